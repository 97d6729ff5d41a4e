//! The text before, between and after the turns: how to read the demo, the purpose of each
//! conversation, and the totals.

use std::io;
use std::time::Duration;

use turnstream_engine::serve::Summary;
use turnstream_engine::tally::Tally;
use turnstream_explain::{Ink, Page, Text};

use super::script::Conversation;
use super::show;

/// The dataflow in one line.
const FLOW: &str = "turn > recall > gate > queries + topics > revision > facts > selection \
                    > answer > history";

/// The meaning of the rows.
const LEGEND: &[(&str, &str)] = &[
    (
        "gate",
        "does the turn need knowledge? A score in 0..1 and what moved it most; from 0.50 on, yes",
    ),
    (
        "demand",
        "explicit: what the dialogue names (and in which turn); implicit: what that points to; \
      maintained and extended: topics that stay, and topics that may come next; revised: what queries \
      and topics change in each other, and why",
    ),
    (
        "facts",
        "foreseen: joins a query and a topic; unforeseen: touches one of them. In the order in \
      which they were selected, with their relevance",
    ),
    (
        "history",
        "entries the turn was answered from (the latest, or older ones that are relevant) and \
      entries it pushed out, with weight = half relevance + half recency",
    ),
    (
        "answer",
        "the response; re:p2 is our answer to turn p2. No large model is used here: a \
      realiser puts facts into sentences, and a small one of our own (reader-en) words rows of tables",
    ),
];

/// Says what the demo shows.
pub(super) fn introduction(page: &mut Page<'_>) -> io::Result<()> {
    page.rule("turnstream demo")?;
    page.paragraph(
        &"Conversations that we wrote go through the engine: appended to a log in memory, served as `turnstream \
          run` serves them, read back from what was committed. No large language model is used."
            .into(),
    )
}

/// Explains how to read the conversations about common knowledge.
pub(super) fn common_knowledge(page: &mut Page<'_>) -> io::Result<()> {
    page.blank()?;
    page.rule("common knowledge, stage by stage")?;
    page.paragraph(
        &"The facts are ConceptNet's. On the log these conversations interleave; here they stand one after the \
          other."
            .into(),
    )?;
    legend(page)
}

/// Explains how to use the chat.
pub(super) fn chat_introduction(page: &mut Page<'_>) -> io::Result<()> {
    page.rule("turnstream demo --chat")?;
    let what = "Type a turn and press Enter; an empty line or Ctrl-D ends it. Each line is appended \
                to a log in memory and served as `turnstream run` serves it. The facts are \
                ConceptNet's: everyday things and what people do with them. Try: What do I need to \
                bake bread?";
    page.paragraph(&what.into())?;
    legend(page)
}

fn legend(page: &mut Page<'_>) -> io::Result<()> {
    page.blank()?;
    page.item("flow", &Text::new(Ink::Strong, FLOW))?;
    for (label, meaning) in LEGEND {
        page.item(label, &Text::new(Ink::Quiet, *meaning))?;
    }
    Ok(())
}

/// Introduces a conversation.
pub(super) fn opening(page: &mut Page<'_>, conversation: &Conversation) -> io::Result<()> {
    page.blank()?;
    page.rule(conversation.name)?;
    page.paragraph(&Text::new(Ink::Quiet, conversation.about))
}

/// Shows the totals.
pub(super) fn closing(page: &mut Page<'_>, summary: &Summary, time: Duration) -> io::Result<()> {
    let Tally { inputs, responses, recorded, dead_letters, .. } = summary.tally;
    page.blank()?;
    page.rule("what became of the inputs")?;
    let law = format!(
        "{} = {} + {recorded} recorded + {}",
        counted(inputs, "input"),
        counted(responses, "response"),
        counted(dead_letters, "dead letter")
    );
    let law =
        Text::new(Ink::Strong, law).and(Ink::Quiet, ": every input ends as exactly one of them");
    page.item("law", &law)?;
    let reasons = summary.tally.recorded_by_reason.iter();
    let reasons: Vec<String> =
        reasons.map(|(reason, count)| format!("{count} {}", show::reason(reason))).collect();
    page.item("recorded", &reasons.join(", ").into())?;
    let gate = summary.tally.gate;
    let decided = format!("{} turns retrieved, {} did not need to", gate.retrieve, gate.skip);
    page.item("gate", &decided.into())?;
    let used = format!(
        "{} selected for {}; {} had a foreseen one among the candidates",
        summary.tally.evidence_used,
        counted(responses, "response"),
        summary.tally.foreseen_hits
    );
    page.item("facts", &used.into())?;
    let seconds = time.as_secs_f64();
    let rate = format!(
        "{seconds:.2} s, {:.0} turns per second, with people who wait for each answer; what the \
         engine can do is measured by `replay`",
        inputs as f64 / seconds.max(f64::EPSILON)
    );
    page.item("time", &rate.into())?;
    next(page)
}

/// A number with its noun.
fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

fn next(page: &mut Page<'_>) -> io::Result<()> {
    page.blank()?;
    page.rule("where to go from here")?;
    for (command, what) in [
        ("turnstream new DIR", "the tea house's files, to put your own company in their place"),
        ("turnstream demo --all", "common knowledge too, explained stage by stage"),
        ("turnstream demo --chat", "type the turns yourself"),
        (
            "turnstream replay LOG --out FILE",
            "put a log of conversations through, as fast as it goes",
        ),
        ("turnstream run --config FILE", "serve the turns of a topic until told to stop"),
    ] {
        let head = Text::new(Ink::Plain, format!("  {command:<34}"));
        page.headed(&head, &Text::new(Ink::Quiet, what))?;
    }
    Ok(())
}
