//! `turnstream teach suggest`: suggests phrasings from the replies of agents and the choices of users.
//!
//! If an agent's reply repeats a section, the customer's turn before it is a way to ask for that
//! section. If a response asked which place is meant, and the user chose one, the turn that was asked
//! back about is a way to ask for that place.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;
use turnstream_console::{InputRefused, print_json};
use turnstream_formats::LoggedItem;
use turnstream_knowledge::terms::terms;
use turnstream_ports::documents::SearchDocuments;
use turnstream_schemas::{Action, ConversationId, Speaker, Turn};
use turnstream_sources::documents::{Documents, DocumentsConfig};
use turnstream_sources::phrasings::{PhrasingLine, phrasings, slug};

use super::choices::AwaitedChoices;
use super::{LogOfTurns, add};
use crate::responses::each_response;
use crate::utterances::utterances;

/// Most sections that a reply is compared with.
const NEAREST: usize = 5;
/// The fewest distinct terms of a reply that has content of its own.
const LEAST_TERMS: usize = 4;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream teach suggest log.jsonl --documents store
  turnstream teach suggest log.jsonl --documents store --responses responses.jsonl
  turnstream teach suggest log.jsonl --documents store --phrasings taught.jsonl --add")]
pub(super) struct TeachSuggestArgs {
    #[command(flatten)]
    log: LogOfTurns,
    /// The directory of the documents, as `documents import --out` wrote it.
    #[arg(long, value_name = "DIR")]
    documents: PathBuf,
    /// The responses to the log, one a line, as `replay --out` writes them: suggest also each turn that a response
    /// asked back about, for the place that the user chose.
    #[arg(long, value_name = "RESPONSES")]
    responses: Option<PathBuf>,
    /// The file of phrasings. Its phrasings are not suggested again.
    #[arg(long, value_name = "FILE")]
    phrasings: Option<PathBuf>,
    /// Add the suggestions to that file.
    #[arg(long, requires = "phrasings")]
    add: bool,
    /// The least share of a reply's words that are in the section; 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.6)]
    least: f64,
    /// Print one suggestion a line, then one JSON object with counts.
    #[arg(long)]
    pub(super) json: bool,
}

/// Prints the suggestions: those from replies in the order of the log, then those from choices in the order of
/// the responses.
pub(super) fn suggest(args: &TeachSuggestArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let documents = Documents::open(&args.documents, &DocumentsConfig::default())?;
    // Responses that cannot be read are refused before a suggestion is added.
    let choices = args.responses.as_deref().map(|it| choices(&args.log, it)).transpose()?;
    let mut suggestions = Suggestions::of(args)?;
    let mut replies = 0;
    let mut asked: HashMap<ConversationId, String> = HashMap::new();
    for turn in turns(&args.log)? {
        let turn = turn?;
        if turn.speaker == Speaker::User {
            asked.insert(turn.conversation_id, turn.text);
            continue;
        }
        // A second reply of an agent in a row answers no other turn.
        let Some(text) = asked.remove(&turn.conversation_id) else { continue };
        replies += 1;
        if let Some(place) = repeated(&documents, &turn.text, args.least)? {
            suggestions.suggest(text, place, Some(&turn.text), out)?;
        }
    }
    let chosen = choices.as_ref().map(Vec::len);
    for (text, place) in choices.into_iter().flatten() {
        suggestions.suggest(text, place, None, out)?;
    }
    let suggested = suggestions.suggested;
    if args.json {
        let mut counts = json!({ "replies": replies, "suggested": suggested });
        if let Some(choices) = chosen {
            counts["choices"] = choices.into();
        }
        return Ok(print_json(out, &counts)?);
    }
    let choices = chosen.map(|choices| format!(" and {choices} choices")).unwrap_or_default();
    writeln!(out, "{suggested} phrasings from {replies} replies of agents{choices}.")?;
    if !args.add {
        writeln!(out, "To add them once you have read them: the same with --phrasings FILE --add")?;
    }
    Ok(())
}

/// What is suggested, each text once.
struct Suggestions<'a> {
    args: &'a TeachSuggestArgs,
    /// The texts of the file of phrasings, and those that were suggested.
    known: BTreeSet<String>,
    suggested: usize,
}

impl<'a> Suggestions<'a> {
    fn of(args: &'a TeachSuggestArgs) -> anyhow::Result<Self> {
        let mut known = BTreeSet::new();
        if let Some(path) = args.phrasings.as_ref().filter(|path| path.exists()) {
            let lines =
                phrasings(path).map_err(|error| InputRefused::new(error.to_string(), ""))?;
            known.extend(lines.into_iter().map(|(line, _)| line.text));
        }
        Ok(Self { args, known, suggested: 0 })
    }

    /// Suggests a text for a place, unless it is known. Either an agent's reply is from the place, or the user
    /// chose it.
    fn suggest(
        &mut self,
        text: String,
        place: String,
        reply: Option<&str>,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        if !self.known.insert(text.clone()) {
            return Ok(());
        }
        self.suggested += 1;
        match (self.args.json, reply) {
            (true, Some(reply)) => {
                print_json(out, &json!({ "text": text, "gold": place, "reply": reply }))?;
            }
            (true, None) => {
                print_json(out, &json!({ "text": text, "gold": place, "chosen": true }))?;
            }
            (false, Some(reply)) => writeln!(out, "“{text}”\n    → {place}\n    agent: {reply}\n")?,
            (false, None) => writeln!(out, "“{text}”\n    → {place}\n    the user chose it\n")?,
        }
        if let Some(path) = self.args.phrasings.as_ref().filter(|_| self.args.add) {
            let gold = Some(place);
            add(path, &PhrasingLine { id: None, text, gold, action: Action::Answer })?;
        }
        Ok(())
    }
}

/// The turns that responses asked back about, each with the place that the user chose.
fn choices(log: &LogOfTurns, responses: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let utterances = utterances(&log.log, log.format)?;
    let mut awaited = AwaitedChoices::of(&utterances);
    let mut found = Vec::new();
    each_response(responses, |_, response| {
        found.extend(awaited.read(&response).map(|it| (it.text.to_owned(), it.place)));
    })?;
    Ok(found)
}

/// The turns of a log.
fn turns(log: &LogOfTurns) -> anyhow::Result<impl Iterator<Item = anyhow::Result<Turn>>> {
    let refused = |error: turnstream_formats::FormatError| {
        InputRefused::new(error.to_string(), "").caused_by(error)
    };
    let items = turnstream_formats::open(log.format, &log.log).map_err(refused)?;
    Ok(items.filter_map(move |item| match item {
        Ok(LoggedItem::Turn(logged)) => Some(Ok(logged.turn)),
        // An item that is not a turn was a dead letter.
        Ok(LoggedItem::Raw { bytes, .. }) => serde_json::from_slice(&bytes).ok().map(Ok),
        Err(error) => Some(Err(refused(error).into())),
    }))
}

/// The section that has most of a reply's words, if it has enough of them.
fn repeated(documents: &Documents, reply: &str, least: f64) -> anyhow::Result<Option<String>> {
    let said: BTreeSet<String> = terms(reply).into_iter().collect();
    if said.len() < LEAST_TERMS {
        return Ok(None);
    }
    let mut best: Option<(usize, String)> = None;
    for found in documents.by_words(reply, None, NEAREST)? {
        let Some(chunk) = documents.chunk(found.chunk)? else { continue };
        let has: BTreeSet<String> = terms(&chunk.text).into_iter().collect();
        let shared = said.intersection(&has).count();
        let heading = chunk.title.rsplit(": ").next().unwrap_or_default();
        if best.as_ref().is_none_or(|(most, _)| shared > *most) {
            best = Some((shared, format!("{}#{}", chunk.document, slug(heading))));
        }
    }
    let enough = best.filter(|(shared, _)| *shared as f64 >= least * said.len() as f64);
    Ok(enough.map(|(_, place)| place))
}
