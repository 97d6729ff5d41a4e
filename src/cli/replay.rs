//! `turnstream replay`: a log of conversations through the same dataflow, as fast as it goes.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use turnstream_operators::history::ResponseSource;

use super::progress::Progress;
use super::{Exit, InputRefused, Usage, load_config, print_json, signals};
use crate::annotations::{Annotated, Responses};
use crate::engine::{Ends, Summary, serve};
use crate::formats::{self, Format, FormatError, LoggedItem};
use crate::log::jsonl::{self, Records, Sinks, Written};
use crate::log::{LogError, Record};
use crate::metrics::resident_bytes;
use crate::model::language::AnswerFiles;
use crate::parts::Parts;
use crate::tally::Tally;

/// Put a log of conversations through the engine, as fast as it goes and without side effects.
///
/// Outcomes are written in input order. The same log and configuration give the same bytes,
/// whatever the number of workers, unless --timings is given.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream replay log.jsonl --out responses.jsonl
  turnstream replay validation.jsonl.gz --format dailydialog --out out.jsonl --json
  turnstream replay log.jsonl --out a.jsonl --out-history history.jsonl --history generated
  turnstream replay travel.jsonl.gz --format kdconv --out out.jsonl --annotations --json
  turnstream replay log.jsonl --config prompted.toml --out a.jsonl --record-answers answers.jsonl
  turnstream replay log.jsonl --config prompted.toml --out b.jsonl --answers answers.jsonl
  turnstream replay big.jsonl.gz --out out.jsonl --resume")]
pub struct Args {
    /// The log: JSON lines, plain or gzip; `-` for standard input.
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
    /// The log's shape.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub format: Format,
    /// Where responses go, one JSON record a line; replaced where it exists.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Where changes of histories go, one a line.
    #[arg(long, value_name = "FILE")]
    pub out_history: Option<PathBuf>,
    /// Where turns that were recorded and not answered go, one a line, with the reason.
    #[arg(long, value_name = "FILE")]
    pub out_recorded: Option<PathBuf>,
    /// Where turns that could not be served go, one a line, with the reason.
    #[arg(long, value_name = "FILE")]
    pub out_dead_letters: Option<PathBuf>,
    /// Which replies enter history.
    #[arg(long, value_enum, value_name = "WHICH", default_value_t)]
    pub history: ReplayHistory,
    /// The configuration; the defaults where it is not given. The sections log and commit are
    /// not used: a replay reads and writes files.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Workers of the dataflow, 1 to 256; overrides run.workers.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Option<u32>,
    /// Go on after the last complete conversation that the output files hold.
    #[arg(long, requires = "out")]
    pub resume: bool,
    /// Write the time that each stage took into the responses. Two replays then differ.
    #[arg(long)]
    pub timings: bool,
    /// Compare the responses with the data set's annotations, kdconv's triples or kbp's texts:
    /// which turns have a correct link and foreseen facts. Reads LOG once more.
    #[arg(long, requires = "out")]
    pub annotations: bool,
    /// Where answers of language models come from and go to.
    #[command(flatten)]
    pub answer_files: AnswerFiles,
    /// Print one JSON object with counts and rates as the last line of standard output.
    #[arg(long)]
    pub json: bool,
}

/// Which replies enter history while a log is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReplayHistory {
    /// The logged ones: after our answer is made, the log's own reply is what enters.
    #[default]
    Recorded,
    /// Ours: logged replies are dropped.
    Generated,
}

impl From<ReplayHistory> for ResponseSource {
    fn from(history: ReplayHistory) -> Self {
        match history {
            ReplayHistory::Recorded => Self::Recorded,
            ReplayHistory::Generated => Self::Generated,
        }
    }
}

/// What programs read.
#[derive(Debug, Serialize)]
struct Replayed {
    #[serde(flatten)]
    tally: Tally,
    /// Dialogues and lines that could not be read at all, and so are no inputs.
    skipped: u64,
    /// Inputs that an earlier replay had finished; they are not counted above.
    resumed_from: i64,
    seconds: f64,
    turns_per_second: f64,
    peak_rss_bytes: Option<u64>,
    /// How the responses meet the data set's annotations, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Annotated>,
}

/// Replays the log.
///
/// # Errors
/// Where the configuration is wrong, the log cannot be opened, or a file cannot be written.
pub fn execute(args: &Args, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if args.annotations && !matches!(args.format, Format::Kdconv | Format::Kbp) {
        let what = format!("{} has no annotations that responses are compared with", args.format);
        return Err(Usage::new(what, "leave --annotations out, or replay kdconv or kbp").into());
    }
    let mut config = load_config(args.config.as_deref())?.value;
    // Files need no interval, and a logged turn may be as old as it likes.
    config.commit.interval_ms = 0;
    config.commit.publish_recorded = args.out_recorded.is_some();
    config.turns.max_timestamp_skew_seconds = 0;
    let workers = args.workers.unwrap_or(config.run.workers) as usize;

    let sinks = sinks(args);
    let resume = if args.resume { written(&sinks)? } else { None };
    let skipped = Arc::new(AtomicU64::new(0));
    let progress = Progress::start("turns");
    let records = records(args, Arc::clone(&skipped), progress.clone())?;
    let (consumer, producer) = jsonl::open(records, &sinks, resume.as_ref())?;
    let ends = Ends::new(consumer, producer);

    let parts = Parts::new(config)?.with_sources()?;
    let (parts, recording) = parts.with_language_models(&args.answer_files)?;
    let parts = Parts {
        source: args.history.into(),
        publish_changes: args.out_history.is_some(),
        timings: args.timings,
        topic: topic(&args.log).into(),
        ..parts
    };
    let stop = signals::stop_on_signals()?;
    let started = Instant::now();
    let summary = serve(ends, &parts, workers, &stop).context("the replay stopped")?;
    let seconds = started.elapsed().as_secs_f64();
    progress.finish();
    recording.map_or(Ok(()), |recording| recording.finish())?;

    let stopped = stop.load(Ordering::Relaxed);
    let Summary { tally, .. } = summary;
    anyhow::ensure!(tally.is_conserved(), "inputs and outcomes do not add up: {tally:?}");
    let replayed = Replayed {
        skipped: skipped.load(Ordering::Relaxed),
        resumed_from: resume.map_or(0, |written| written.offset),
        seconds,
        turns_per_second: tally.inputs as f64 / seconds.max(f64::EPSILON),
        peak_rss_bytes: resident_bytes("VmHWM:"),
        annotations: annotations(args)?,
        tally,
    };
    if args.json {
        print_json(out, &replayed)?;
    } else {
        say(&replayed, args.out.as_deref(), out)?;
    }
    if stopped {
        eprintln!("stopped by a signal; go on with --resume");
        return Ok(Exit::Failed);
    }
    Ok(Exit::Success)
}

fn say(replayed: &Replayed, file: Option<&Path>, out: &mut dyn Write) -> std::io::Result<()> {
    let Tally { inputs, responses, recorded, dead_letters, .. } = replayed.tally;
    writeln!(
        out,
        "{inputs} inputs = {responses} responses + {recorded} recorded + {dead_letters} dead \
         letters, in {:.1} s ({:.0} turns a second)",
        replayed.seconds, replayed.turns_per_second
    )?;
    let gate = replayed.tally.gate;
    writeln!(
        out,
        "the gate retrieved for {} and skipped {}; {} responses met foreseen facts; {} facts used",
        gate.retrieve, gate.skip, replayed.tally.foreseen_hits, replayed.tally.evidence_used
    )?;
    if let Some(annotated) = &replayed.annotations {
        let Annotated { turns, linked, annotated, named, correctly_linked, .. } = annotated;
        writeln!(
            out,
            "{linked} of {turns} answered turns have a link; of {annotated} whose reply is \
             annotated, {named} name what it is about, {correctly_linked} have a correct link, {} \
             foreseen facts, {} a fact of the annotation selected",
            replayed.annotations.as_ref().map_or(0, |all| all.annotated_foreseen),
            replayed.annotations.as_ref().map_or(0, |all| all.fact_selected),
        )?;
    }
    if replayed.skipped > 0 {
        writeln!(out, "{} dialogues or lines could not be read", replayed.skipped)?;
    }
    if let Some(file) = file {
        writeln!(out, "responses: {}", file.display())?;
    }
    Ok(())
}

/// Compares the responses in the output file with the log's annotations, where asked for.
fn annotations(args: &Args) -> anyhow::Result<Option<Annotated>> {
    let Some(file) = args.out.as_deref().filter(|_| args.annotations) else { return Ok(None) };
    let mut responses = Responses::default();
    let lines = std::io::BufReader::new(std::fs::File::open(file).context("the responses")?);
    for line in lines.lines() {
        let line = line.context("the responses")?;
        responses.add(&serde_json::from_str(&line).context("a response just written")?);
    }
    let items = formats::open(args.format, &args.log)?;
    // What could not be read was told when it was replayed.
    let logged = items.filter_map(|item| match item {
        Ok(LoggedItem::Turn(logged)) => Some(*logged),
        _ => None,
    });
    Ok(Some(responses.compare(args.format, logged)))
}

/// The inputs, from the loader of the format.
fn records(
    args: &Args,
    skipped: Arc<AtomicU64>,
    progress: Progress,
) -> Result<Records, InputRefused> {
    let refused = |error: FormatError| {
        InputRefused::new(error.to_string(), "give a readable log and its --format")
            .caused_by(error)
    };
    let items = formats::open(args.format, &args.log).map_err(refused)?;
    let mut offset = 0;
    let records = items.filter_map(move |item| match item {
        Ok(item) => {
            progress.advance();
            let record = record(item, offset);
            offset += 1;
            Some(Ok(record))
        }
        Err(error) if error.ends() => Some(Err(LogError::Refused(error.to_string()))),
        Err(error) => {
            skipped.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%error, "left out");
            None
        }
    });
    Ok(Box::new(records))
}

/// An item of a log as a record: what a client would have sent.
fn record(item: LoggedItem, offset: i64) -> Record {
    let (key, value, last_of_scope) = match item {
        LoggedItem::Turn(logged) => {
            let key = Some(logged.turn.conversation_id.0.clone().into_bytes());
            let value = serde_json::to_vec(&logged.turn)
                .unwrap_or_else(|error| unreachable!("a turn is JSON: {error}"));
            (key, value, logged.last_of_scope)
        }
        LoggedItem::Raw { bytes, .. } => (None, bytes, false),
    };
    Record {
        partition: jsonl::PARTITION,
        offset,
        key,
        value: Some(value),
        last_of_scope,
        ..Record::default()
    }
}

fn sinks(args: &Args) -> Sinks {
    let checkpoint = args.out.as_ref().map(|out| {
        let mut name = out.clone().into_os_string();
        name.push(".checkpoint");
        PathBuf::from(name)
    });
    Sinks {
        responses: args.out.clone(),
        recorded: args.out_recorded.clone(),
        dead_letters: args.out_dead_letters.clone(),
        history: args.out_history.clone(),
        checkpoint,
    }
}

fn written(sinks: &Sinks) -> Result<Option<Written>, LogError> {
    sinks.checkpoint.as_deref().map_or(Ok(None), Written::read)
}

/// The file's own name stands where a topic's would: two replays of one file on two machines
/// name their inputs alike.
fn topic(log: &Path) -> Arc<str> {
    log.file_name().map_or("stdin".into(), |name| name.to_string_lossy().into())
}
