//! Shows one turn and everything that led to its outcome: a row for each stage, in the order of the
//! flow. It knows only records, not their source.

use std::io;

use turnstream_explain::{
    Ink, Page, Spoken, Text, confidence_kind, recorded_because, revision_kind,
};
use turnstream_schemas::{
    Action, DeadLetter, Demand, Evicted, Evidence, EvidenceSet, GateDecision, Outcome,
    RecalledTurn, RecalledVia, Recorded, Response, Revision, RevisionKind, Speaker, Turn,
};

use super::play::Heard;

/// Most concepts of a list that are shown. The rest is counted.
const CONCEPTS: usize = 6;

/// Most facts that are shown.
const FACTS: usize = 5;

/// Most changes of cross revision that are shown.
const REVISIONS: usize = 2;

/// Most features of the gate that are shown.
const FEATURES: usize = 3;

/// Most characters of a quoted utterance.
const QUOTED: usize = 48;

/// Most characters of a thought that are shown.
const THOUGHT: usize = 72;

/// Shows a turn. `spoken` is what was said before it.
pub(super) fn turn(page: &mut Page<'_>, heard: &Heard, spoken: &Spoken) -> io::Result<()> {
    page.blank()?;
    header(page, heard)?;
    match &heard.outcome {
        Outcome::Response(answered) => {
            let mut known = Spoken::default();
            let spoken = match &heard.turn {
                // Most queries come from the turn itself.
                Some(turn) => {
                    known.clone_from(spoken);
                    known.note_turn(turn);
                    &known
                }
                None => spoken,
            };
            response(page, answered, spoken)
        }
        Outcome::Recorded(noted) => recorded(page, noted, spoken),
        Outcome::DeadLetter(letter) => dead_letter(page, letter),
    }
}

/// Shows a customer's turn, the action and words of the response, and the evidence for them.
pub(super) fn reply(page: &mut Page<'_>, heard: &Heard) -> io::Result<()> {
    page.blank()?;
    header(page, heard)?;
    let Outcome::Response(response) = &heard.outcome else { return Ok(()) };
    let (ink, action) = match response.action {
        Some(Action::Answer) | None => (Ink::Good, "answer"),
        Some(Action::Social) => (Ink::Good, "social"),
        Some(Action::Ask) => (Ink::Careful, "ask"),
        Some(Action::Decline) => (Ink::Careful, "decline"),
        Some(Action::HandOff) => (Ink::Careful, "hand off"),
    };
    page.row(action, "", &Text::new(ink, &*response.text))?;
    let from: Vec<&str> = response.evidence.iter().filter(|it| it.selected).map(place).collect();
    let mut why = if from.is_empty() { String::new() } else { format!("from {}", from.join(", ")) };
    if let (Some(precision), Some(Action::Answer)) = (response.answer_precision, response.action) {
        let share = (precision.get() * 100.0).round();
        why.push_str(&format!("; of such answers {share}\u{a0}% were right elsewhere"));
    }
    if why.is_empty() { Ok(()) } else { page.row("", "", &Text::new(Ink::Quiet, why)) }
}

/// The name of a piece of evidence: a passage's title, or a row's first column.
fn place(evidence: &Evidence) -> &str {
    let title = evidence.document.as_ref().map(|passage| &*passage.title);
    let row = || Some(&*evidence.row.as_ref()?.columns.first()?.value);
    title.or_else(row).unwrap_or(&evidence.id.0)
}

/// The header: speaker, text and time.
fn header(page: &mut Page<'_>, heard: &Heard) -> io::Result<()> {
    let Some(turn) = &heard.turn else {
        let what = match heard.outcome {
            Outcome::Recorded(_) => " directive",
            _ => " no turn",
        };
        let head = Text::new(Ink::Strong, "?").and(Ink::Quiet, what);
        let bytes = String::from_utf8_lossy(&heard.bytes).into_owned();
        return page.headed(&head, &bytes.into());
    };
    let id = turn.turn_id.as_ref().map_or("-", |id| id.as_str());
    let who = match (turn.speaker, &turn.response_id) {
        (Speaker::User, _) => "user",
        (Speaker::System, None) => "agent",
        (Speaker::System, Some(_)) => "echo",
    };
    let head = Text::new(Ink::Strong, id).and(Ink::Quiet, format!(" {}{who}", clock(turn)));
    page.headed(&head, &Text::new(Ink::Strong, &*turn.text))
}

/// Hours and minutes of a turn's event time (UTC).
fn clock(turn: &Turn) -> String {
    let minutes = turn.timestamp.map(|time| time.millis().div_euclid(60_000).rem_euclid(1_440));
    minutes.map_or(String::new(), |minutes| format!("{:02}:{:02} ", minutes / 60, minutes % 60))
}

fn response(page: &mut Page<'_>, response: &Response, spoken: &Spoken) -> io::Result<()> {
    gate(page, &response.gate)?;
    demand(page, &response.demand, spoken)?;
    facts(page, &response.evidence)?;
    recalled(page, &response.history, spoken)?;
    page.row("answer", &response.model.name, &Text::new(Ink::Good, &*response.text))?;
    page.row("", "", &sureness(response))?;
    evicted(page, &response.evicted, spoken)?;
    time(page, response)
}

fn gate(page: &mut Page<'_>, gate: &GateDecision) -> io::Result<()> {
    let decision = match gate.retrieve {
        true => Text::new(Ink::Good, "retrieve"),
        false => Text::new(Ink::Careful, "no retrieval"),
    };
    let mut features: Vec<_> = gate.features.iter().filter(|(name, _)| *name != "bias").collect();
    features.sort_by(|a, b| b.1.get().abs().total_cmp(&a.1.get().abs()));
    let features = features.into_iter().take(FEATURES).map(|(name, part)| {
        let words = name.replace('_', " ");
        Text::new(Ink::Plain, glued(&format!("{words} {:+.2}", part.get())))
    });
    let score = format!("{:.2}", gate.score.get());
    let why = Text::joined(features, ", ");
    page.row("gate", &score, &decision.and(Ink::Quiet, ": ").then(why))
}

fn demand(page: &mut Page<'_>, demand: &Demand, spoken: &Spoken) -> io::Result<()> {
    let mut label = "demand";
    let mut row = |page: &mut Page<'_>, second: &str, text: Text| -> io::Result<()> {
        if !text.is_empty() {
            page.row(std::mem::take(&mut label), second, &text)?;
        }
        Ok(())
    };
    let explicit = demand.queries.explicit.iter().map(|query| {
        let (words, turn) = (spoken.span(&query.turn, query.span), spoken.label(&query.turn));
        let found = match words == query.concept || words.is_empty() {
            true => format!("\u{a0}({turn})"),
            false => format!("\u{a0}(\"{}\"\u{a0}{turn})", glued(words)),
        };
        concept(&query.concept).and(Ink::Quiet, found)
    });
    row(page, "explicit", list(explicit))?;
    let reached = |name: &str, because: &[String]| {
        let from = because.first().map_or(String::new(), |from| glued(&format!(" (from {from})")));
        concept(name).and(Ink::Quiet, from)
    };
    let implicit = demand.queries.implicit.iter();
    row(page, "implicit", list(implicit.map(|query| reached(&query.concept, &query.because))))?;
    let maintained = demand.topics.maintained.iter();
    row(page, "maintained", list(maintained.map(|topic| concept(&topic.concept))))?;
    let extended = demand.topics.extended.iter();
    row(page, "extended", list(extended.map(|topic| reached(&topic.concept, &topic.because))))?;
    for thought in [&demand.thoughts.queries, &demand.thoughts.topics] {
        row(page, "thought", Text::new(Ink::Quiet, beginning(thought, THOUGHT)))?;
    }
    row(page, "revised", revised(&demand.revisions))
}

/// The changes of cross revision. Preferences come last.
fn revised(revisions: &[Revision]) -> Text {
    let mut revisions: Vec<&Revision> = revisions.iter().collect();
    revisions.sort_by_key(|revision| revision.kind == RevisionKind::Prefer);
    let more = revisions.len().saturating_sub(REVISIONS);
    let shown = revisions.into_iter().take(REVISIONS).map(|revision| {
        let (ink, kind) = revision_kind(revision.kind);
        let why = format!(" ({})", revision.why.trim_end_matches('.'));
        Text::new(ink, kind).and(Ink::Plain, format!(" {}", revision.what)).and(Ink::Quiet, why)
    });
    counted(Text::joined(shown, "; "), more)
}

fn facts(page: &mut Page<'_>, evidence: &[Evidence]) -> io::Result<()> {
    if evidence.is_empty() {
        return Ok(());
    }
    let selected: Vec<&Evidence> = evidence.iter().filter(|evidence| evidence.selected).collect();
    let of = |set| evidence.iter().filter(|evidence| evidence.set == Some(set)).count();
    let (foreseen, unforeseen) = (of(EvidenceSet::Foreseen), of(EvidenceSet::Unforeseen));
    let candidates = format!(
        "{} of {} candidates chosen ({foreseen} foreseen, {unforeseen} unforeseen)",
        selected.len(),
        evidence.len()
    );
    page.row("facts", "", &candidates.into())?;
    for evidence in selected.iter().take(FACTS) {
        let (ink, set) = match evidence.set {
            Some(EvidenceSet::Foreseen) => (Ink::Good, "foreseen"),
            Some(EvidenceSet::Unforeseen) => (Ink::Plain, "unforeseen"),
            None => (Ink::Plain, ""),
        };
        let relevance = format!("{:.2}\u{a0}", evidence.relevance.get());
        let text = Text::new(Ink::Quiet, relevance).and(ink, format!(" {}", evidence.text));
        page.row("", set, &text)?;
    }
    match selected.len().saturating_sub(FACTS) {
        0 => Ok(()),
        more => page.row("", "", &Text::new(Ink::Quiet, format!("and {more} more"))),
    }
}

fn recalled(page: &mut Page<'_>, history: &[RecalledTurn], spoken: &Spoken) -> io::Result<()> {
    let of = |via: RecalledVia| history.iter().filter(move |turn| turn.via == via);
    let named = |turn: &RecalledTurn| {
        Text::new(Ink::Plain, spoken.label(&turn.turn_id))
            .and(Ink::Quiet, format!("\u{a0}{:.2}", turn.weight.get()))
    };
    let recent = list(of(RecalledVia::Recent).map(named));
    let mut label = if recent.is_empty() { "history" } else { "" };
    page.row("history", "recent", &recent)?;
    for turn in history.iter().filter(|turn| turn.via != RecalledVia::Recent) {
        let via = match turn.via {
            RecalledVia::Recent | RecalledVia::Relevance => "relevant",
            RecalledVia::Cluster => "cluster",
            RecalledVia::Chain => "chain",
        };
        let text = named(turn).and(Ink::Good, quoted(spoken.words(&turn.turn_id)));
        page.row(std::mem::take(&mut label), via, &text)?;
    }
    Ok(())
}

fn evicted(page: &mut Page<'_>, evicted: &[Evicted], spoken: &Spoken) -> io::Result<()> {
    for gone in evicted {
        let reason = serde_json::to_value(gone.reason).unwrap_or_default();
        let scores = format!(
            " {:.2} (relevance {:.2}, recency {:.2}; rank {}, {})",
            gone.weight.get(),
            gone.relevance.get(),
            gone.recency.get(),
            gone.rank,
            reason.as_str().unwrap_or_default()
        );
        let text = Text::new(Ink::Careful, spoken.label(&gone.turn_id))
            .and(Ink::Quiet, scores)
            .and(Ink::Careful, quoted(spoken.words(&gone.turn_id)));
        page.row("history", "evicted", &text)?;
    }
    Ok(())
}

/// The confidence of the answer, and the stages that failed.
fn sureness(response: &Response) -> Text {
    let mut text = Text::default();
    if let Some(confidence) = response.confidence {
        let kind = confidence_kind(confidence.kind);
        text = text.and(Ink::Quiet, format!("confidence {:.2} ({kind})", confidence.value));
    }
    if !response.degraded.is_empty() {
        let stages = response.degraded.iter().map(|degraded| degraded.stage().name());
        let stages: Vec<&str> = stages.collect();
        text = text.and(Ink::Careful, format!(" went without {}", stages.join(", ")));
    }
    text
}

fn time(page: &mut Page<'_>, response: &Response) -> io::Result<()> {
    let stages = response.timings_us.iter();
    let stages = stages
        .map(|(stage, time)| Text::new(Ink::Quiet, glued(&format!("{} {time}", stage.row().word))));
    let total: u64 = response.timings_us.values().sum();
    page.row("time", &format!("{total} µs"), &Text::joined(stages, ", "))
}

/// A reason for recording a turn as one word, by its name in records.
pub(super) fn reason(name: &str) -> &str {
    match name {
        "superseded_by" => "superseded",
        "duplicate_of" => "duplicate",
        name => name,
    }
}

fn recorded(page: &mut Page<'_>, recorded: &Recorded, spoken: &Spoken) -> io::Result<()> {
    let why = recorded_because(&recorded.reason, spoken);
    page.row("recorded", reason(recorded.reason.name()), &why.into())?;
    evicted(page, &recorded.evicted, spoken)
}

fn dead_letter(page: &mut Page<'_>, letter: &DeadLetter) -> io::Result<()> {
    let why = Text::new(Ink::Careful, &*letter.fault.reason)
        .and(Ink::Quiet, ". Its bytes are kept as they came, and the pipeline goes on.");
    page.row("dead letter", letter.fault.stage.name(), &why)
}

fn concept(name: &str) -> Text {
    Text::new(Ink::Plain, glued(name))
}

/// Items separated by commas. Only the first ones are shown, the rest is counted.
fn list(items: impl Iterator<Item = Text>) -> Text {
    let items: Vec<Text> = items.collect();
    let more = items.len().saturating_sub(CONCEPTS);
    counted(Text::joined(items.into_iter().take(CONCEPTS), ", "), more)
}

/// A text, followed by the number of further items.
fn counted(text: Text, more: usize) -> Text {
    if more == 0 { text } else { text.and(Ink::Quiet, format!(" and {more}\u{a0}more")) }
}

/// Words that stay on one line.
fn glued(words: &str) -> String {
    words.replace(' ', "\u{a0}")
}

/// The quoted beginning of an utterance; empty if it is unknown.
fn quoted(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(" \"{}\"", beginning(words, QUOTED)) }
}

/// The beginning of a text in whole words, with at most `characters` characters.
fn beginning(text: &str, characters: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(characters) else { return text.to_owned() };
    let whole_words = text[..end].rfind(' ').unwrap_or(end);
    format!("{} ...", &text[..whole_words])
}
