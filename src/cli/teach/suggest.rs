//! `turnstream teach suggest`: suggests phrasings from the replies of agents.
//!
//! If an agent's reply repeats a section, the customer's turn before it is a way to ask for that
//! section.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::path::PathBuf;

use serde_json::json;
use turnstream_console::{InputRefused, print_json};
use turnstream_formats::LoggedItem;
use turnstream_knowledge::terms::terms;
use turnstream_ports::documents::SearchDocuments;
use turnstream_schemas::{Action, ConversationId, Speaker, Turn};
use turnstream_sources::documents::{Documents, DocumentsConfig};
use turnstream_sources::phrasings::{PhrasingLine, phrasings, slug};

use super::{LogOfTurns, add};

/// Most sections that a reply is compared with.
const NEAREST: usize = 5;
/// The fewest distinct terms of a reply that has content of its own.
const LEAST_TERMS: usize = 4;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream teach suggest log.jsonl --documents store
  turnstream teach suggest log.jsonl --documents store --phrasings taught.jsonl --add")]
pub(super) struct TeachSuggestArgs {
    #[command(flatten)]
    log: LogOfTurns,
    /// The directory of the documents, as `documents import --out` wrote it.
    #[arg(long, value_name = "DIR")]
    documents: PathBuf,
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

/// Prints the suggestions, in the order of the log.
pub(super) fn suggest(args: &TeachSuggestArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let documents = Documents::open(&args.documents, &DocumentsConfig::default())?;
    let mut known = BTreeSet::new();
    if let Some(path) = args.phrasings.as_ref().filter(|path| path.exists()) {
        let lines = phrasings(path).map_err(|error| InputRefused::new(error.to_string(), ""))?;
        known.extend(lines.into_iter().map(|(line, _)| line.text));
    }
    let (mut replies, mut suggested) = (0, 0);
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
        let Some(place) = repeated(&documents, &turn.text, args.least)? else { continue };
        if !known.insert(text.clone()) {
            continue;
        }
        suggested += 1;
        if args.json {
            print_json(out, &json!({ "text": text, "gold": place, "reply": turn.text }))?;
        } else {
            writeln!(out, "“{text}”\n    → {place}\n    agent: {}\n", turn.text)?;
        }
        if let Some(path) = args.phrasings.as_ref().filter(|_| args.add) {
            let gold = Some(place);
            add(path, &PhrasingLine { id: None, text, gold, action: Action::Answer })?;
        }
    }
    if args.json {
        return Ok(print_json(out, &json!({ "replies": replies, "suggested": suggested }))?);
    }
    writeln!(out, "{suggested} phrasings from {replies} replies of agents.")?;
    if !args.add {
        writeln!(out, "To add them once you have read them: the same with --phrasings FILE --add")?;
    }
    Ok(())
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
