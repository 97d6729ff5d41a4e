//! `turnstream replay`: runs a log of conversations through the dataflow, as fast as possible.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use turnstream_console::progress::Progress;
use turnstream_console::{Exit, InputRefused, Usage, load_config, print_json, signals};
use turnstream_engine::config::{Checks, Config, Loaded};
use turnstream_engine::dependencies::{Dependencies, Reach};
use turnstream_engine::metrics::{Metrics, resident_bytes};
use turnstream_engine::serve::{Summary, serve};
use turnstream_engine::tally::Tally;
use turnstream_formats::{Format, FormatError, LoggedItem, LoggedItems};
use turnstream_log::jsonl::{self, Records};
use turnstream_log::{LogError, Record};
use turnstream_models::budget::AnswersTold;
use turnstream_models::language::AnswerFiles;
use turnstream_models::probe;
use turnstream_operators::history::ResponseSource;

use super::opening;
use crate::annotations::{Annotated, Responses};
use crate::logged::{LoggedPart, ServiceLog};

mod lookahead;
mod outputs;

use outputs::Outputs;

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
  turnstream replay log.jsonl --config b.toml --out b.jsonl --answers a.jsonl --max-requests 500
  turnstream replay --from-log prod.toml --since 24h --config next.toml --out next.jsonl
  turnstream replay --from-log prod.toml --sample 5% --out sample.jsonl --history generated
  turnstream replay log.jsonl --out - | head -n 3
  turnstream replay big.jsonl.gz --out out.jsonl --resume")]
pub struct ReplayArgs {
    /// The log: JSON lines, plain or gzip; `-` for standard input.
    #[arg(value_name = "LOG", required_unless_present = "from_log")]
    pub log: Option<PathBuf>,
    /// Replay what a service has read, from the log that its configuration names, instead of a
    /// file. Nothing is written to that log, and no group is joined. With `--history recorded`, the
    /// service's responses enter history after each turn.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["log", "format", "annotations"])]
    pub from_log: Option<PathBuf>,
    /// The part of that log to replay.
    #[command(flatten)]
    pub(crate) logged: LoggedPart,
    /// The log's shape.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub format: Format,
    /// File for responses, one JSON record a line; replaced if it exists. `-` for standard output;
    /// messages about the replay then go to standard error.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// File for changes of histories, one a line.
    #[arg(long, value_name = "FILE")]
    pub out_history: Option<PathBuf>,
    /// File for turns that were recorded and not answered, one a line, with the reason.
    #[arg(long, value_name = "FILE")]
    pub out_recorded: Option<PathBuf>,
    /// File for turns that could not be served, one a line, with the reason.
    #[arg(long, value_name = "FILE")]
    pub out_dead_letters: Option<PathBuf>,
    /// The replies that enter history.
    #[arg(long, value_enum, value_name = "WHICH", default_value_t)]
    pub history: ReplayHistory,
    /// The configuration; the defaults if not given. The sections log and commit are not used: a
    /// replay reads and writes files.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Workers of the dataflow, 1 to 256; overrides run.workers.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Option<u32>,
    /// Continue an interrupted replay of the same log from FILE.checkpoint, which lies beside FILE
    /// of --out until the log's end is reached. Give the same flags and configuration. What cannot
    /// be continued (compressed files, devices and standard output, another log, other files) is
    /// refused, and no file is touched.
    #[arg(long, requires = "out")]
    pub resume: bool,
    /// Write the time that each stage took into the responses. Two replays then differ.
    #[arg(long)]
    pub timings: bool,
    /// Compare the responses with the data set's annotations, kdconv's triples or kbp's texts:
    /// which turns have a correct link and foreseen facts. Reads LOG once more.
    #[arg(long, requires = "out")]
    pub annotations: bool,
    /// The files that answers of language models are read from and recorded to.
    #[command(flatten)]
    pub answer_files: AnswerFiles,
    /// Print one JSON object with counts and rates as the last line of standard output.
    #[arg(long)]
    pub json: bool,
}

impl ReplayArgs {
    /// A replay of a file of turns, whose own answers enter history; responses go to a file.
    pub(crate) fn of_file(log: &Path, format: Format, out: PathBuf) -> Self {
        Self {
            log: Some(log.to_owned()),
            from_log: None,
            format,
            out_dead_letters: None,
            history: ReplayHistory::Generated,
            config: None,
            ..Self::of_service(
                log,
                &LoggedPart::default(),
                AnswerFiles::default(),
                [out, PathBuf::new()],
            )
        }
    }

    /// A replay of what a service has read, with its own configuration; responses and dead letters
    /// go to two files.
    pub(crate) fn of_service(
        config: &Path,
        logged: &LoggedPart,
        answer_files: AnswerFiles,
        [out, dead_letters]: [PathBuf; 2],
    ) -> Self {
        Self {
            log: None,
            from_log: Some(config.to_owned()),
            logged: logged.clone(),
            format: Format::default(),
            out: Some(out),
            out_history: None,
            out_recorded: None,
            out_dead_letters: Some(dead_letters),
            history: ReplayHistory::Recorded,
            config: Some(config.to_owned()),
            workers: None,
            resume: false,
            timings: false,
            annotations: false,
            answer_files,
            json: false,
        }
    }
}

/// Selects the replies that enter history while a log is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReplayHistory {
    /// The logged ones: after our answer is made, the log's own reply enters.
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

/// The report for programs.
#[derive(Debug, Serialize)]
struct Replayed {
    #[serde(flatten)]
    tally: Tally,
    /// Dialogues and lines that could not be read and are therefore not inputs.
    skipped: u64,
    /// Inputs that an earlier replay had finished. The counts above exclude them.
    resumed_from: i64,
    seconds: f64,
    turns_per_second: f64,
    peak_rss_bytes: Option<u64>,
    /// How questions to language models were answered, if there are models.
    #[serde(skip_serializing_if = "Option::is_none")]
    questions: Option<AnswersTold>,
    /// The comparison with the data set's annotations, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Annotated>,
}

/// Replays the log.
///
/// # Errors
/// The configuration is wrong, the log cannot be opened, a file cannot be written, or the replay
/// cannot be resumed.
pub fn execute(args: &ReplayArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if args.annotations && !matches!(args.format, Format::Kdconv | Format::Kbp) {
        let what = format!("{} has no annotations to compare responses with", args.format);
        return Err(Usage::new(what, "leave --annotations out, or replay kdconv or kbp").into());
    }
    let AnswerFiles { answers, record_answers, .. } = &args.answer_files;
    if answers.is_some() && answers == record_answers {
        let what = "--record-answers would replace the file of --answers";
        return Err(Usage::new(what, "name another file").into());
    }
    run(args, load_config(args.config.as_deref())?, out)
}

/// Replays the log with a configuration that was loaded, whatever the arguments name.
///
/// # Errors
/// As [`execute`].
pub(crate) fn run(
    args: &ReplayArgs,
    mut loaded: Loaded<Config>,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let outputs = Outputs::of(args)?;
    let config = &mut loaded.value;
    config.set_for_replay();
    config.commit.publish_recorded = args.out_recorded.is_some();
    let workers = args.workers.unwrap_or(config.run.workers) as usize;

    let metrics = Metrics::new(&config.metrics);
    // Recording starts once it is known that the outputs can be written.
    let unrecorded = AnswerFiles { record_answers: None, ..args.answer_files.clone() };
    let reach = (&unrecorded, Reach::Servers);
    let (mut dependencies, _) = opening::open(&loaded, Checks::default(), &metrics, reach)?;
    probe::tell(&dependencies.language_models, &args.answer_files);
    let skipped = Arc::new(AtomicU64::new(0));
    let read = Arc::default();
    let mut ends = None;
    let (records, progress, name) = match (&args.log, &args.from_log) {
        (Some(file), _) => {
            let progress = Progress::through(file, &read, "turns");
            let items =
                turnstream_formats::open_counting(args.format, file, &read).map_err(unreadable)?;
            let records = records(items, Arc::clone(&skipped), progress.clone());
            (records, progress, outputs::log_name(file))
        }
        (None, config) => {
            let log = ServiceLog::open(config.as_ref().context("no log is given")?)?;
            let progress = Progress::start("turns");
            let until = ends.insert(outputs.ends(args, &log)?).clone();
            let answers = args.history == ReplayHistory::Recorded;
            let inputs = log.inputs(&args.logged, answers, until);
            let counted = progress.clone();
            let records: Records = Box::new(inputs.inspect(move |_| counted.advance()));
            (records, progress, log.turns_topic().to_owned())
        }
    };
    let records = lookahead::with_fragments(records, &dependencies.config.turns);
    let opening = outputs.opening(args, &dependencies, (name.clone(), ends.as_ref(), records))?;
    let resumed_from = opening.offset();
    progress.begins_here();
    let resumed = args.resume.then_some(resumed_from);
    let answer_files = AnswerFiles { resumed_from: resumed, ..args.answer_files.clone() };
    let recording = answer_files.recording()?;
    if let Some(recording) = &recording {
        for (name, model) in &mut dependencies.language_models {
            *model = recording.of(name, Arc::clone(model));
        }
    }
    let dependencies = Dependencies {
        source: args.history.into(),
        publish_changes: outputs.sinks.history.is_some(),
        publish_conversations: false,
        timings: args.timings,
        topic: name.into(),
        ..dependencies
    };
    let has_models = !dependencies.language_models.is_empty();
    let stop = signals::stop_on_signals()?;
    let ends = outputs.open(opening)?;
    let started = Instant::now();
    let summary = serve(ends, &dependencies, workers, &stop).context("the replay stopped")?;
    let seconds = started.elapsed().as_secs_f64();
    progress.finish();
    recording.map_or(Ok(()), |recording| recording.finish())?;

    let Summary { tally, .. } = summary;
    anyhow::ensure!(tally.is_conserved(), "inputs and outcomes do not add up: {tally:?}");
    let replayed = Replayed {
        skipped: skipped.load(Ordering::Relaxed),
        resumed_from,
        seconds,
        turns_per_second: tally.inputs as f64 / seconds.max(f64::EPSILON),
        peak_rss_bytes: resident_bytes("VmHWM:"),
        questions: has_models.then(|| args.answer_files.counts.told()),
        annotations: annotations(args)?,
        tally,
    };
    tell(args, outputs.streams, &replayed, out)?;
    if stop.load(Ordering::Relaxed) {
        eprintln!("stopped by a signal; {}", outputs.how_to_go_on());
        return Ok(Exit::Failed);
    }
    outputs.finished()?;
    Ok(Exit::Success)
}

/// Prints the figures: as JSON, or for people, on standard error if responses go to standard
/// output.
fn tell(
    args: &ReplayArgs,
    streams: bool,
    replayed: &Replayed,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    match (args.json, streams) {
        (true, _) => print_json(out, replayed),
        (false, true) => say(replayed, &mut std::io::stderr()),
        (false, false) => {
            say(replayed, out)?;
            let mut files = args.out.iter();
            files.try_for_each(|file| writeln!(out, "responses: {}", file.display()))
        }
    }
}

fn say(replayed: &Replayed, out: &mut dyn Write) -> std::io::Result<()> {
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
    if let Some(AnswersTold { recorded, asked, unasked }) = replayed.questions {
        writeln!(
            out,
            "questions to language models: {asked} asked, {recorded} answered from the record, \
             {unasked} not asked"
        )?;
    }
    if replayed.skipped > 0 {
        writeln!(out, "{} dialogues or lines could not be read", replayed.skipped)?;
    }
    Ok(())
}

/// Compares the responses in the output file with the log's annotations, if requested.
fn annotations(args: &ReplayArgs) -> anyhow::Result<Option<Annotated>> {
    let (Some(file), Some(log), true) = (&args.out, &args.log, args.annotations) else {
        return Ok(None);
    };
    let mut responses = Responses::default();
    let lines = std::io::BufReader::new(std::fs::File::open(file).context("the responses")?);
    for line in lines.lines() {
        let line = line.context("the responses")?;
        responses.add(&serde_json::from_str(&line).context("a response just written")?);
    }
    let items = turnstream_formats::open(args.format, log)?;
    // The replay reported unreadable items already.
    let logged = items.filter_map(|item| match item {
        Ok(LoggedItem::Turn(logged)) => Some(*logged),
        _ => None,
    });
    Ok(Some(responses.compare(args.format, logged)))
}

fn unreadable(error: FormatError) -> InputRefused {
    InputRefused::new(error.to_string(), "give a readable log and its --format").caused_by(error)
}

/// The inputs, from the loader of the format.
fn records(items: LoggedItems, skipped: Arc<AtomicU64>, progress: Progress) -> Records {
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
    Box::new(records)
}

/// An item of a log as the record that a client would have sent.
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
