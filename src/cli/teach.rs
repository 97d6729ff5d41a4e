//! `turnstream teach`: groups the turns that were not answered by likeness, and records what staff
//! says answers them.
//!
//! Staff teaches phrasings: lines of the file that `teaching.phrasings` names
//! ([`turnstream_sources::phrasings`]), or records of the `knowledge` topic.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use serde::Serialize;
use serde_json::json;
use turnstream_console::{InputRefused, Usage, print_json};
use turnstream_formats::Format;
use turnstream_models::reader::AnswerReader;
use turnstream_ports::model::encoder::Encoder;
use turnstream_schemas::{Action, Evidence, HandOffReason, Response};
use turnstream_sources::phrasings::{PhrasingLine, phrasings, slug};

use crate::diff::name_of;
use crate::responses::each_response;
use crate::utterances::{Utterance, utterances};

mod choices;
mod put;
mod suggest;
mod verdicts;

use choices::AwaitedChoices;
use put::{TeachDeleteArgs, TeachPutArgs, delete, put};
use suggest::{TeachSuggestArgs, suggest};

/// The least cosine with a cluster's first turn at which a turn joins the cluster.
const ALIKE: f32 = 0.8;
/// Most sections that are shown for a cluster.
const NEAREST: usize = 3;
/// Most turns that are shown of a cluster.
const SHOWN: usize = 4;

/// List the turns that were not answered, and teach what answers them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream teach list questions.jsonl responses.jsonl
  turnstream teach suggest log.jsonl --documents store
  turnstream teach set log.jsonl c-17/t3 returns.md#refunds --phrasings taught.jsonl
  turnstream teach put taught.jsonl --config turnstream.toml --dry-run log.jsonl
  turnstream teach put taught.jsonl --config turnstream.toml")]
pub struct TeachArgs {
    #[command(subcommand)]
    command: TeachCommand,
}

#[derive(Debug, Subcommand)]
enum TeachCommand {
    /// List the turns that were declined, asked back or handed over, but for danger, or that an agent
    /// answered after the engine had: similar ones together, the most frequent first, with the nearest
    /// sections and rows, what an agent replied, and which place the user chose.
    List(TeachListArgs),
    /// Suggest phrasings: where an agent's reply repeats a section, the customer's turn before it asks for that section;
    /// where the user chose one of the places that a response asked about, the turn before that response asks for the place.
    Suggest(TeachSuggestArgs),
    /// Teach that a section or row answers turns like this one, or which action the response takes.
    Set(TeachSetArgs),
    /// Teach a running service: write phrasings to the topic of knowledge, or see first what they change.
    Put(TeachPutArgs),
    /// Withdraw phrasings from a running service.
    Delete(TeachDeleteArgs),
}

/// A log with its turns.
#[derive(Debug, clap::Args)]
struct LogOfTurns {
    /// The conversations: the log that was replayed.
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// The shape of that log.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Format,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream teach list questions.jsonl responses.jsonl
  turnstream teach list questions.jsonl responses.jsonl --most 50 --json")]
struct TeachListArgs {
    #[command(flatten)]
    log: LogOfTurns,
    /// The responses to it, one a line, as `replay --out` writes them.
    #[arg(value_name = "RESPONSES")]
    responses: PathBuf,
    /// Show at most this many clusters.
    #[arg(long, value_name = "N", default_value_t = 20)]
    most: usize,
    /// Print one cluster a line, then one JSON object with counts.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream teach set log.jsonl c-17/t3 returns.md#refunds --phrasings taught.jsonl
  turnstream teach set log.jsonl c-18/t1 row:T-04 --phrasings taught.jsonl
  turnstream teach set log.jsonl c-19/t2 --action decline --phrasings taught.jsonl")]
struct TeachSetArgs {
    #[command(flatten)]
    log: LogOfTurns,
    /// The turn: the conversation's id, a slash, and the turn's id.
    #[arg(value_name = "CONVERSATION/TURN")]
    turn: String,
    /// The section or row that answers it: page.md#heading or row:ID.
    #[arg(value_name = "PLACE", required_unless_present = "action")]
    place: Option<String>,
    /// The action of the response instead of answering: decline, hand_off or social.
    #[arg(long, value_name = "ACTION", conflicts_with = "place", value_parser = parsed_action)]
    action: Option<Action>,
    /// The file of phrasings, to which a line is added; created if missing.
    #[arg(long, value_name = "FILE")]
    phrasings: PathBuf,
    /// Print one JSON object: the line that was added.
    #[arg(long)]
    json: bool,
}

impl TeachArgs {
    pub(super) fn json(&self) -> bool {
        match &self.command {
            TeachCommand::List(args) => args.json,
            TeachCommand::Suggest(args) => args.json,
            TeachCommand::Set(args) => args.json,
            TeachCommand::Put(args) => args.json,
            TeachCommand::Delete(args) => args.json,
        }
    }
}

fn parsed_action(name: &str) -> Result<Action, String> {
    let actions = [Action::Decline, Action::HandOff, Action::Social];
    let found = actions.into_iter().find(|action| action.name() == name);
    found.ok_or_else(|| "name one of: decline, hand_off, social".to_owned())
}

/// Runs the command.
///
/// # Errors
/// A file cannot be read or written to, or a turn is not in the log.
pub fn execute(args: &TeachArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.command {
        TeachCommand::List(args) => list(args, out),
        TeachCommand::Suggest(args) => suggest(args, out),
        TeachCommand::Set(args) => set(args, out),
        TeachCommand::Put(args) => put(args, out),
        TeachCommand::Delete(args) => delete(args, out),
    }
}

/// A turn that was not answered.
struct Unanswered {
    turn: String,
    text: String,
    action: Action,
    /// What the log replies to the turn.
    reply: Option<String>,
    /// The place that the user chose, where the response asked which is meant.
    chosen: Option<String>,
    /// The nearest evidence: relevance and place.
    nearest: Vec<(f64, String)>,
}

/// Similar turns that were not answered.
#[derive(Serialize)]
struct Cluster {
    count: usize,
    /// The places nearest to them, the nearest first.
    nearest: Vec<String>,
    turns: Vec<TurnOfCluster>,
}

#[derive(Serialize)]
struct TurnOfCluster {
    turn: String,
    text: String,
    action: Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<String>,
}

/// Whether the response left the turn to others or to nobody. Danger is not for phrasings to answer.
fn is_unanswered(response: &Response) -> bool {
    match response.action {
        Some(Action::Decline | Action::Ask) => true,
        Some(Action::HandOff) => response.hand_off != Some(HandOffReason::Safety),
        _ => false,
    }
}

/// Whether the turn was answered and an agent answered it as well: only echoes tell an agent from
/// another bot, whose every turn would be listed.
fn is_corrected(response: &Response, said: &Utterance) -> bool {
    response.action == Some(Action::Answer) && said.is_echoed && said.reply.is_some()
}

/// The place of a passage or row, as phrasings name it.
fn place(evidence: &Evidence) -> Option<String> {
    if let Some(row) = &evidence.row {
        return Some(format!("row:{}", row.columns.first()?.value));
    }
    let passage = evidence.document.as_ref()?;
    let heading = passage.title.rsplit(": ").next().unwrap_or_default();
    Some(format!("{}#{}", passage.document, slug(heading)))
}

fn unanswered(args: &TeachListArgs) -> anyhow::Result<(usize, Vec<Unanswered>)> {
    let utterances = utterances(&args.log.log, args.log.format)?;
    let mut choices = AwaitedChoices::of(&utterances);
    // The place that the user chose, by turn.
    let mut chosen: HashMap<String, String> = HashMap::new();
    let (mut responses, mut found) = (0, Vec::<Unanswered>::new());
    each_response(&args.responses, |_, response| {
        responses += 1;
        if let Some(choice) = choices.read(&response) {
            chosen.insert(choice.turn, choice.place);
        }
        let turn = name_of(&response);
        let (Some(action), Some(said)) = (response.action, utterances.get(&turn)) else { return };
        if is_unanswered(&response) || is_corrected(&response, said) {
            let near =
                response.evidence.iter().filter_map(|it| Some((it.relevance.get(), place(it)?)));
            let (Utterance { text, reply, .. }, nearest) = (said.clone(), near.collect());
            found.push(Unanswered { turn, text, action, reply, chosen: None, nearest });
        }
    })?;
    for turn in &mut found {
        turn.chosen = chosen.remove(&turn.turn);
    }
    Ok((responses, found))
}

/// Clusters turns that ask alike, by the reader's vectors: each joins the cluster whose first turn
/// is nearest, if that is near enough. The largest cluster comes first; equal ones keep the order
/// of the log.
fn clustered(turns: &[Unanswered], encoder: &dyn Encoder) -> anyhow::Result<Vec<Cluster>> {
    let texts: Vec<&str> = turns.iter().map(|it| &*it.text).collect();
    let mut vectors = Vec::new();
    encoder.encode(&texts, &mut vectors)?;
    let width = encoder.dimensions().max(1);
    let vector = |at: usize| &vectors[at * width..(at + 1) * width];
    let mut members: Vec<Vec<usize>> = Vec::new();
    for at in 0..turns.len() {
        let cosine = |first: usize| -> f32 {
            vector(first).iter().zip(vector(at)).map(|(a, b)| a * b).sum()
        };
        let near = members.iter_mut().map(|of| (cosine(of[0]), of));
        match near.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(near, _)| *near >= ALIKE) {
            Some((_, of)) => of.push(at),
            None => members.push(vec![at]),
        }
    }
    members.sort_by_key(|of| std::cmp::Reverse(of.len()));
    let cluster = |of: Vec<usize>| {
        let mut nearest: HashMap<&str, f64> = HashMap::new();
        for (relevance, place) in of.iter().flat_map(|at| &turns[*at].nearest) {
            let known = nearest.entry(place).or_default();
            *known = known.max(*relevance);
        }
        let mut nearest: Vec<(&str, f64)> = nearest.into_iter().collect();
        nearest.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        let turn = |at: &usize| {
            let Unanswered { turn, text, action, reply, chosen, .. } = &turns[*at];
            let (turn, text) = (turn.clone(), text.clone());
            let (reply, chosen) = (reply.clone(), chosen.clone());
            TurnOfCluster { turn, text, action: *action, reply, chosen }
        };
        Cluster {
            count: of.len(),
            nearest: nearest.into_iter().take(NEAREST).map(|(place, _)| place.to_owned()).collect(),
            turns: of.iter().map(turn).collect(),
        }
    };
    Ok(members.into_iter().map(cluster).collect())
}

fn list(args: &TeachListArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let (responses, turns) = unanswered(args)?;
    let count = turns.len();
    let clusters = clustered(&turns, &*AnswerReader::shipped()?)?;
    for cluster in clusters.iter().take(args.most) {
        if args.json {
            print_json(out, cluster)?;
            continue;
        }
        let Cluster { count, nearest, turns } = cluster;
        writeln!(out, "{count} × {}", turns[0].text)?;
        for turn in turns.iter().take(SHOWN) {
            writeln!(out, "    {}  {}  “{}”", turn.turn, turn.action.name(), turn.text)?;
            if let Some(reply) = &turn.reply {
                writeln!(out, "        an agent: “{reply}”")?;
            }
            if let Some(chosen) = &turn.chosen {
                writeln!(out, "        the user chose: {chosen}")?;
            }
        }
        if turns.len() > SHOWN {
            writeln!(out, "    and {} more", turns.len() - SHOWN)?;
        }
        writeln!(out, "    nearest: {}\n", nearest.join(", "))?;
    }
    if args.json {
        let counts =
            json!({ "responses": responses, "unanswered": count, "clusters": clusters.len() });
        return Ok(print_json(out, &counts)?);
    }
    writeln!(
        out,
        "{count} of {responses} responses answered nothing; {} different questions.",
        clusters.len()
    )?;
    writeln!(
        out,
        "Say what answers one: turnstream teach set LOG CONVERSATION/TURN PLACE --phrasings FILE"
    )?;
    Ok(())
}

fn set(args: &TeachSetArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let utterances = utterances(&args.log.log, args.log.format)?;
    let Utterance { text, .. } = utterances.get(&args.turn).ok_or_else(|| {
        let remedy = "turns are named by the conversation's id, a slash and the turn's id";
        Usage::new(format!("{} has no turn {}", args.log.log.display(), args.turn), remedy)
    })?;
    let action = args.action.unwrap_or(Action::Answer);
    let line = PhrasingLine { id: None, text: text.clone(), gold: args.place.clone(), action };
    add(&args.phrasings, &line)?;
    if args.json {
        return Ok(print_json(out, &line)?);
    }
    let leads_to = args.place.as_deref().unwrap_or(action.name());
    writeln!(
        out,
        "“{text}” leads to {leads_to}, from the next start on ({})",
        args.phrasings.display()
    )?;
    Ok(())
}

/// Adds a phrasing to a file; the file is replaced as a whole.
fn add(file: &Path, line: &PhrasingLine) -> anyhow::Result<()> {
    let mut known = String::new();
    if file.exists() {
        let taught = phrasings(file).map_err(|error| InputRefused::new(error.to_string(), ""))?;
        if taught.iter().any(|(it, _)| it.text == line.text) {
            let remedy = "edit or remove its line, to teach something else";
            let message = format!("{} has this phrasing already: {}", file.display(), line.text);
            return Err(Usage::new(message, remedy).into());
        }
        known = std::fs::read_to_string(file)?;
        if !known.is_empty() && !known.ends_with('\n') {
            known.push('\n');
        }
    }
    known.push_str(&serde_json::to_string(line)?);
    known.push('\n');
    let failed =
        || format!("cannot write {}; check the folder and its permissions", file.display());
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut written = tempfile::NamedTempFile::new_in(folder).with_context(failed)?;
    written.write_all(known.as_bytes()).with_context(failed)?;
    written.persist(file).with_context(failed)?;
    Ok(())
}
