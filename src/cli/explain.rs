//! `turnstream explain`: the whole path of one response, as a tree or as JSON.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use turnstream_formats::Format;
use turnstream_schemas::Response;

use turnstream_console::{InputRefused, Usage, load_config, print_json};
use turnstream_explain::{Asked, Fits, Shown, Spoken, terminal_width, tree};
use turnstream_models::answers::{self, AnswersError};

mod find;
pub(super) mod words;

use find::{Source, Wanted};

/// Most pieces of evidence shown that were not selected, unless `--all` is given.
const NOT_SELECTED: usize = 5;

/// Show how one response came about: what was recalled, what the gate decided, what was demanded,
/// found and selected, what wrote the answer, and what the models were asked.
///
/// The response is taken from a file of responses, from the directory of an embedded log, or from
/// the topic of responses of the log that a configuration names; the latest one, unless another is
/// named.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream explain responses.jsonl
  turnstream explain responses.jsonl --turn c-17/t3 --log log.jsonl
  turnstream explain responses.jsonl --line 12 --prompts answers.jsonl
  turnstream explain --data conversations --json
  turnstream explain --config turnstream.toml --response turns-0-4711 --all
  tail -n 1 responses.jsonl | turnstream explain -")]
pub struct ExplainArgs {
    /// Responses, one JSON record a line, as `replay --out` writes them; `-` for standard input.
    #[arg(value_name = "RESPONSES", required_unless_present_any = ["data", "config"])]
    pub responses: Option<PathBuf>,
    /// The directory of an embedded log, as `chat --data` keeps it. No other process may have it
    /// open.
    #[arg(long, value_name = "DIR", conflicts_with = "responses")]
    pub data: Option<PathBuf>,
    /// The configuration. It has the gate's threshold, which is in no record, and names the log to
    /// read if neither RESPONSES nor --data is given.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The response with this id.
    #[arg(long, value_name = "ID", group = "which")]
    pub response: Option<String>,
    /// The response to this turn: the conversation's id, a slash, and the turn's id.
    #[arg(long, value_name = "CONVERSATION/TURN", group = "which")]
    pub turn: Option<String>,
    /// The response on this line of RESPONSES, from 1.
    #[arg(long, value_name = "N", group = "which", requires = "responses")]
    pub line: Option<u64>,
    /// The log that was replayed, to show what people said beside the ids of turns.
    #[arg(long, value_name = "FILE", requires = "responses")]
    pub log: Option<PathBuf>,
    /// The shape of that log.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, requires = "log")]
    pub format: Format,
    /// Show what the models were asked: the file that --record-answers with --record-prompts wrote.
    #[arg(long, value_name = "ANSWERS")]
    pub prompts: Option<PathBuf>,
    /// Show all evidence, however much was not selected.
    #[arg(long)]
    pub all: bool,
    /// No colours, even on a terminal; the variable NO_COLOR does the same.
    #[arg(long)]
    pub no_color: bool,
    /// Print one JSON object instead: the record, the prompts, and the gate's threshold.
    #[arg(long)]
    pub json: bool,
}

/// The explanation for programs.
#[derive(Debug, Serialize)]
struct Explained<'a> {
    response: &'a Response,
    gate_threshold: Option<f64>,
    prompts: Vec<Prompt<'a>>,
}

#[derive(Debug, Serialize)]
struct Prompt<'a> {
    #[serde(flatten)]
    asked: &'a Asked,
    fits: Fits,
}

/// Shows a response's path.
///
/// # Errors
/// There is no such response, a file or the log cannot be read, or the given answers have no
/// prompts for it.
pub fn execute(args: &ExplainArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.config.as_deref())?.value;
    let source = Source::of(args, &config)?;
    let wanted = Wanted::of(args);
    let response = source.find(&wanted)?;
    let spoken = words::of(&source, args, &response)?;
    let threshold = args.config.is_some().then_some(config.gate.threshold);
    let asked = match &args.prompts {
        Some(path) => asked(path, &response)?,
        None => Vec::new(),
    };
    if args.json {
        let prompts = asked.iter().map(|asked| Prompt { asked, fits: asked.fits(&response) });
        let prompts = prompts.collect();
        let explained = Explained { response: &response, gate_threshold: threshold, prompts };
        return Ok(print_json(out, &explained)?);
    }
    let shown = Shown {
        spoken: Some(&spoken),
        threshold,
        not_selected: (!args.all).then_some(NOT_SELECTED),
        asked: &asked,
    };
    let colour = !args.no_color && takes_colour();
    out.write_all(tree(&response, &shown).render(terminal_width(), colour).as_bytes())?;
    Ok(())
}

/// The path of a response that was just given, for `chat`.
pub(super) fn shown(
    response: &Response,
    spoken: &Spoken,
    shown: Shown<'_>,
    colour: bool,
) -> String {
    let shown = Shown { spoken: Some(spoken), not_selected: Some(NOT_SELECTED), ..shown };
    tree(response, &shown).render(terminal_width(), colour)
}

/// Whether standard output shows colours.
pub(super) fn takes_colour() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// The recorded questions to models about the response's turn.
fn asked(path: &Path, response: &Response) -> anyhow::Result<Vec<Asked>> {
    let mut found: Vec<Asked> = Vec::new();
    let mut without_prompts = 0;
    let refused = |error: AnswersError| InputRefused::new(error.to_string(), "").caused_by(error);
    for line in answers::lines(path).map_err(refused)? {
        let line = line.map_err(refused)?;
        if line.origin.input != response.input {
            continue;
        }
        let Some(question) = line.question else {
            without_prompts += 1;
            continue;
        };
        let asked = Asked {
            stage: line.stage,
            step: line.origin.step,
            round: line.origin.round,
            for_gate: line.origin.for_gate,
            model: line.asked,
            prompt_hash: line.origin.prompt,
            system: question.system,
            prompt: question.prompt,
            answer: line.failed.is_none().then_some(line.text),
            failed: line.failed.map(|error| error.to_string()),
        };
        // The later of two equal questions counts, as in a replay.
        found.retain(|one| one.place() != asked.place());
        found.push(asked);
    }
    if without_prompts > 0 && found.is_empty() {
        let what = format!("{} has answers for this turn, but no prompts", path.display());
        return Err(Usage::new(what, "record them with --record-prompts").into());
    }
    if found.is_empty() {
        let (path, input) = (path.display(), &response.input);
        let what = format!("{path} has no answer for {input}, the input of this response");
        let remedy = "give the file that was recorded when the response was made; not every \
                      response asks a model";
        return Err(Usage::new(what, remedy).into());
    }
    found.sort_by_key(Asked::place);
    Ok(found)
}
