//! `turnstream eval generation`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;
use turnstream_console::progress::Progress;
use turnstream_console::{InputRefused, Usage, load_config, print_json};
use turnstream_engine::config::Config;
use turnstream_formats::Format;
use turnstream_models::language::{AnswerFiles, Starter};
use turnstream_models::metrics::Metrics;
use turnstream_sources::knowledge;

use crate::eval::generation::judge::{Judge, JudgedMeans, Prompts};
use crate::eval::generation::material::{self, Answer, Log, Place};
use crate::eval::generation::tokens::Tokenisation;
use crate::eval::generation::{Beside, GenerationError, MeasuredGeneration, measure};
use turnstream_models;

pub(super) const EXAMPLES: &str = "\
Without --references there are only the figures that need no history: Distinct-2, the words that
come from evidence, and confidence. docs/generation.md defines every figure.

Examples:
  turnstream eval generation --data responses.jsonl
  turnstream eval generation --data responses.jsonl --references log.jsonl --json
  turnstream eval generation --data r.jsonl --references val.jsonl.gz --format dailydialog --json
  turnstream eval generation --data r.jsonl --references log.jsonl --config c.toml --judge gpt";

/// `eval generation`
#[derive(Clone, Debug, clap::Args)]
pub struct GenerationArgs {
    /// The responses, as `turnstream replay --out` wrote them, plain or gzip
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The log that was replayed: its turns are the history, its system turns the references
    #[arg(long, value_name = "LOG")]
    references: Option<PathBuf>,
    /// The log's shape
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, requires = "references")]
    format: Format,
    /// The graph for CDP and CDF, or "pack"; the configuration's if not given
    #[arg(long, value_name = "SNAPSHOT", requires = "references")]
    snapshot: Option<String>,
    /// The language model that judges, by its name in [language_models] of the configuration
    #[arg(long, value_name = "NAME", requires = "references")]
    judge: Option<String>,
    /// The number of responses to judge, evenly spread; all if not given
    #[arg(long, value_name = "N", requires = "judge", value_parser = clap::value_parser!(u32).range(1..))]
    judged: Option<u32>,
    /// Responses judged concurrently, 1 to 256
    #[arg(long, value_name = "N", requires = "judge", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    judged_at_once: u32,
    /// The configuration, of which [knowledge], [models] and [language_models] are read; the
    /// defaults if not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The files of the judge's answers
    #[command(flatten)]
    answer_files: AnswerFiles,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// The result printed with `--json`.
#[derive(Debug, Serialize)]
struct GenerationResult {
    /// The log's format, if there is a log.
    format: Option<&'static str>,
    #[serde(flatten)]
    measured: MeasuredGeneration,
    #[serde(flatten)]
    judged: Option<JudgedMeans>,
}

pub(super) fn execute(args: &GenerationArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.judge.is_none()
        && (args.answer_files.answers.is_some() || args.answer_files.record_answers.is_some())
    {
        let remedy = "name the judge with --judge";
        return Err(Usage::new(
            "--answers and --record-answers are for the answers of a judge",
            remedy,
        )
        .into());
    }
    let config = load_config(args.config.as_deref())?.value;
    let answers = material::answers(&args.data).map_err(refused)?;
    let Some(references) = &args.references else {
        let measured = measure(&answers, None);
        return print(args, &GenerationResult { format: None, measured, judged: None }, out);
    };
    let log = Log::read(args.format, references).map_err(refused)?;
    let places = log.places(&answers).map_err(refused)?;
    let snapshot = args.snapshot.clone().unwrap_or_else(|| config.knowledge.snapshot.to_string());
    let graph = knowledge::open(&snapshot)?;
    let beside = Beside { log: &log, places: &places, graph: graph.view() };
    let mut measured = measure(&answers, Some(&beside));
    let placed: Vec<(&Answer, Place)> = answers.iter().zip(places.iter().copied()).collect();
    let judged = judged(args, &config, &mut measured, (&placed, &log))?;
    print(args, &GenerationResult { format: Some(args.format.name()), measured, judged }, out)
}

/// Asks the judge for scores, if there is a judge.
fn judged(
    args: &GenerationArgs,
    config: &Config,
    measured: &mut MeasuredGeneration,
    (answers, log): (&[(&Answer, Place)], &Log),
) -> anyhow::Result<Option<JudgedMeans>> {
    let Some(name) = &args.judge else { return Ok(None) };
    let metrics = Metrics::unread();
    let configured = config.language_models.get(name);
    let starter = Starter::new(&args.answer_files, &metrics)?;
    let Some(model) = starter.start(name, configured)? else {
        let what = format!("no language model is called `{name}`");
        let remedy = format!("add [language_models.{name}] to the file that --config names");
        return Err(Usage::new(what, remedy).into());
    };
    let encoder = turnstream_models::encoder(&config.models)?;
    let all = answers.len();
    let most = args.judged.map_or(all, |most| (most as usize).min(all));
    let chosen: Vec<_> = (0..most).map(|at| answers[at * all / most]).collect();

    let language = Tokenisation::of_corpus(answers.iter().map(|(answer, _)| &*answer.text));
    let progress = Progress::of(chosen.len(), "responses judged");
    let judge = Judge {
        model: &*model,
        encoder: encoder.as_deref(),
        prompts: Prompts::shipped(language),
        at_once: args.judged_at_once as usize,
    };
    let (judgements, counts) = judge.judge(&chosen, log, &|| progress.advance())?;
    progress.finish();
    starter.into_recording().map_or(Ok(()), |recording| recording.finish())?;
    let chosen: Vec<&Answer> = chosen.iter().map(|(answer, _)| *answer).collect();
    let encoder = judge.encoder.map(|encoder| encoder.name().to_owned());
    let judged = JudgedMeans::new(measured, &chosen, &judgements);
    Ok(Some(judged.by(name, &judge.prompts, encoder.as_deref(), counts)))
}

fn print(
    args: &GenerationArgs,
    printed: &GenerationResult,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if args.json {
        return Ok(print_json(out, printed)?);
    }
    let figures = serde_json::to_value(printed).context("figures as JSON")?;
    let MeasuredGeneration { n, references, tokenisation, confidence, intervals, .. } =
        &printed.measured;
    writeln!(out, "{n} responses, {references} with a reference; tokens by {tokenisation}")?;
    let numbers = figures.as_object().into_iter().flatten();
    for (name, value) in numbers.filter(|(name, _)| !["n", "references"].contains(&name.as_str())) {
        let Some(value) = value.as_f64() else { continue };
        let interval = intervals.get(name.as_str());
        let interval =
            interval.map_or(String::new(), |[low, high]| format!("  [{low:.4}, {high:.4}]"));
        writeln!(out, "{name:<20}{value:>9.4}{interval}")?;
    }
    for (kind, confidence) in confidence {
        writeln!(
            out,
            "confidence, {kind}: {:.4} over {} responses",
            confidence.mean, confidence.n
        )?;
    }
    if let Some(JudgedMeans { judge, .. }) = &printed.judged {
        let counts = &judge.counts;
        writeln!(
            out,
            "judged by {}: {} responses, {} questions, {} asked again, {} unreadable, {} failed",
            judge.name, judge.n, counts.asked, counts.asked_again, counts.unreadable, counts.failed
        )?;
    }
    Ok(())
}

/// Distinguishes errors of the input from others.
fn refused(error: GenerationError) -> anyhow::Error {
    InputRefused::new(error.to_string(), "give the replay's output, and the log it replayed")
        .caused_by(error)
        .into()
}
