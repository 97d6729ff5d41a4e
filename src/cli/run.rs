//! `turnstream run`: serves turns from a log until it is told to stop.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde::Deserialize;
use turnstream_console::{load_config, signals};
use turnstream_engine::cache::DiskCache;
use turnstream_engine::commit::TracePlace;
use turnstream_engine::config::{Config, LogKind};
use turnstream_engine::dependencies::{Dependencies, Reach};
use turnstream_engine::metrics::Metrics;
use turnstream_engine::partials::write_partials;
use turnstream_engine::serve::{Summary, serve};
use turnstream_log::embedded::{EmbeddedLog, Isolation, Message};
use turnstream_log::{Ends, Follower, LogError, Topic, kafka};
use turnstream_models::language::AnswerFiles;
use turnstream_models::probe;
use turnstream_operators::ingest::InputTopic;
use turnstream_operators::prompted::ReadAlong;
use turnstream_schemas::ScopeKind;

use super::opening;

/// The group and the transactional id in an embedded log: a directory serves one process.
pub(super) const EMBEDDED_NAME: &str = "turnstream";
/// How often the embedded log is polled for new responses.
const LOOK: Duration = Duration::from_millis(20);
/// Responses per read of the embedded log.
const READ_RECORDS: usize = 256;

/// Serve turns: read them from the log's topic of turns, write a response, a recorded outcome or
/// a dead letter for each, and keep the history of every conversation.
///
/// With log.kind = "embedded" there is no broker: turns come on standard input, one JSON object a
/// line, responses leave on standard output, and the end of input ends it.
///
/// SIGTERM and SIGINT end it cleanly: turns in flight are finished and committed first, for
/// run.drain_at_most_ms at most. A second signal ends it at once. Neither loses or doubles
/// anything: what was not committed is read again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  stopped cleanly
  1  failure while running, an engine fault among them; a restart goes on from the last commit
  2  wrong usage or configuration: fix it first
  4  fenced: another process has our transactional id or instance id. Find it before a restart:
     two processes with one id fence each other in turn
  5  the broker cannot be reached, or the Kafka client cannot go on: restart
  6  the log refuses us: topics, permissions, credentials, limits, or records that are not ours.
     A restart does not help: fix them first

Examples:
  turnstream run --config turnstream.toml
  turnstream run --config turnstream.toml --workers 2 --log-format json
  KAFKA_PASSWORD=… turnstream run --config turnstream.toml    (with \"${KAFKA_PASSWORD}\" in it)")]
pub struct RunArgs {
    /// The configuration; the defaults if not given. `turnstream validate` explains it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Workers of the dataflow, 1 to 256; overrides run.workers.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Option<u32>,
    /// Write every answer of a language model to FILE: `turnstream replay --answers` reads it.
    #[arg(long, value_name = "FILE")]
    pub record_answers: Option<PathBuf>,
    /// Also write what the models were asked, people's words included: `turnstream explain
    /// --prompts` shows it.
    #[arg(long, requires = "record_answers")]
    pub record_prompts: bool,
}

/// Serves turns.
///
/// # Errors
/// The configuration is wrong, the log cannot be reached, or serving it fails.
pub fn execute(args: &RunArgs, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let mut loaded = load_config(args.config.as_deref())?;
    if let Some(workers) = args.workers {
        loaded.value.run.workers = workers;
    }
    let config = &loaded.value;
    let record_answers = args.record_answers.clone();
    let record_prompts = args.record_prompts;
    let files = AnswerFiles { record_answers, record_prompts, ..AnswerFiles::default() };
    let stop = signals::stop_on_signals()?;
    let metrics = Metrics::new(&config.metrics);
    let checks = opening::serving(config);
    // Started before the log is reached, so that monitoring sees the start. Serves until this
    // function returns.
    let server = checks.is_empty().then(|| config.metrics.serve(metrics.clone()));
    let _server = server.transpose()?;
    // Opened before joining the group, so that no partition is assigned to a process that cannot
    // serve.
    let (dependencies, recording) =
        opening::open(&loaded, checks, &metrics, (&files, Reach::Servers))?;
    probe::tell(&dependencies.language_models, &files);
    let workers = config.run.workers as usize;
    let summary = match config.log.kind {
        LogKind::Kafka => {
            let knowledge = follow(config)?;
            let (consumer, producer) = kafka::connect(&config.log.kafka)?;
            let name = config.log.kafka.topics.name(Topic::Turns).into();
            let topic = InputTopic { name, partitions: Some(consumer.partitions()) };
            let [has_traces, publish_conversations] =
                [Topic::Traces, Topic::Conversations].map(|topic| consumer.has(topic));
            let ends = Ends { knowledge, ..Ends::new(consumer, producer) };
            let cache = Arc::new(DiskCache::open(&config.run)?);
            let read_along = partials(config)?;
            let mut dependencies =
                Dependencies { topic, cache, publish_conversations, read_along, ..dependencies };
            if !publish_conversations {
                tracing::warn!(
                    topic = config.log.kafka.topics.name(Topic::Conversations),
                    "there is no such topic, so no reader learns who holds a conversation; create \
                     it with `deploy/kafka/topics` and start again"
                );
            }
            if config.responses.trace == TracePlace::Topic && !has_traces {
                tracing::warn!(
                    topic = config.log.kafka.topics.name(Topic::Traces),
                    "there is no such topic, so responses hold their traces, as with \
                     responses.trace = \"inline\"; create it with `deploy/kafka/topics` and start \
                     again, or set responses.trace to \"inline\" or \"off\""
                );
                Arc::make_mut(&mut dependencies.config).responses.trace = TracePlace::Inline;
            }
            tracing::info!(workers, "serving");
            serve(ends, &dependencies, workers, &stop)?
        }
        LogKind::Embedded => serve_embedded(dependencies, &stop, out)?,
    };
    recording.map_or(Ok(()), |recording| recording.finish())?;
    report(&summary);
    Ok(())
}

/// Follows the topic of knowledge, if configured.
fn follow(config: &Config) -> Result<Option<Box<dyn Follower>>, LogError> {
    if !config.knowledge.live {
        return Ok(None);
    }
    Ok(Some(Box::new(kafka::follow(&config.log.kafka, Topic::Knowledge)?)))
}

/// Publishes what language models are writing on the topic of partial responses, if configured.
fn partials(config: &Config) -> Result<Option<ReadAlong>, LogError> {
    if !config.gateway.partials {
        return Ok(None);
    }
    let kafka = config.log.kafka.clone();
    write_partials(Box::new(move || Ok(Box::new(kafka::write(&kafka, Topic::Partials)?)))).map(Some)
}

fn report(summary: &Summary) {
    let Summary { tally, skipped, late_answers, stale, left } = summary;
    tracing::info!(
        inputs = tally.inputs,
        responses = tally.responses,
        recorded = tally.recorded,
        dead_letters = tally.dead_letters,
        skipped,
        late_answers,
        stale,
        left,
        "stopped"
    );
}

/// Serves standard input through an embedded log in a directory.
fn serve_embedded(
    dependencies: Dependencies,
    stop: &AtomicBool,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<Summary> {
    let config = Arc::clone(&dependencies.config);
    let directory = config.log.directory.as_deref().context("log.directory is missing")?;
    let log = EmbeddedLog::in_directory(directory, &config.log.embedded)?;
    let consumer = log.consumer(EMBEDDED_NAME, Topic::Turns)?;
    let producer = log.producer(&consumer, EMBEDDED_NAME)?;
    let follower = || Box::new(log.follower(Topic::Knowledge)) as Box<dyn Follower>;
    let knowledge = config.knowledge.live.then(follower);
    let partitions = config.log.embedded.partitions;
    let mut shown: Vec<i64> = (0..partitions).map(|of| log.end(Topic::Responses, of)).collect();
    let topic =
        InputTopic { partitions: Some(partitions), ..InputTopic::from(Topic::Turns.name()) };
    let workers = config.run.workers as usize;
    let scope = config.turns.scope;
    let cache = Arc::new(DiskCache::open(&config.run)?);
    let dependencies = Dependencies { topic, cache, ..dependencies };
    let ends = Ends { knowledge, ..Ends::new(consumer, producer) };

    let feeding = log.clone();
    // Not joined: after a signal it may wait for a line that never comes.
    std::thread::Builder::new().name("standard-input".to_owned()).spawn(move || {
        if let Err(error) = feed(&feeding, scope) {
            tracing::error!(error = %error, "standard input ends here");
        }
        feeding.seal(Topic::Turns);
    })?;
    let served = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let showing = threads.spawn(|| -> anyhow::Result<()> {
            loop {
                let last = served.load(Ordering::Acquire);
                show(&log, &mut shown, out)?;
                if last {
                    return Ok(());
                }
                std::thread::sleep(LOOK);
            }
        });
        let summary = serve(ends, &dependencies, workers, stop);
        served.store(true, Ordering::Release);
        let shown = showing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        shown?;
        Ok(summary?)
    })
}

/// Appends every line of standard input to the log. The key is the conversation or the user,
/// whichever has its own history, if the line names it. A line that is neither a turn nor a demand
/// to forget is appended as it is and becomes a dead letter.
fn feed(log: &EmbeddedLog, scope: ScopeKind) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct Keyed {
        conversation_id: Option<String>,
        user_id: Option<String>,
    }
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line.context("standard input")?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let keyed = serde_json::from_slice::<Keyed>(&line).ok();
        let key = keyed.and_then(|of| match scope {
            ScopeKind::Conversation => of.conversation_id,
            ScopeKind::User => of.user_id,
        });
        let time_ms = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        let message = Message {
            key: key.map(String::into_bytes),
            value: Some(line),
            headers: Vec::new(),
            time_ms: time_ms.and_then(|since| i64::try_from(since.as_millis()).ok()),
        };
        log.append_by_key(Topic::Turns, message)?;
    }
    Ok(())
}

/// Writes newly committed responses.
fn show(log: &EmbeddedLog, shown: &mut [i64], out: &mut dyn Write) -> anyhow::Result<()> {
    for (partition, next) in (0..).zip(shown) {
        loop {
            let isolation = Isolation::ReadCommitted;
            let records = log.read(Topic::Responses, partition, *next, READ_RECORDS, isolation)?;
            let Some(last) = records.last() else { break };
            *next = last.offset + 1;
            for value in records.into_iter().filter_map(|record| record.value) {
                out.write_all(&value)?;
                out.write_all(b"\n")?;
            }
            out.flush()?;
        }
    }
    Ok(())
}
