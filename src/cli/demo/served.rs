//! An embedded log in memory that an engine serves, seen from its clients: they append turns and
//! read what was committed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use turnstream_schemas::{InputId, Outcome, Recorded, Response};

use crate::config::Config;
use crate::engine::{Ends, EngineError, Summary, serve};
use crate::log::embedded::{EmbeddedConfig, EmbeddedLog, Isolation, Message};
use crate::log::{Record, Topic, letters};
use crate::model::language::AnswerFiles;
use crate::parts::Parts;

/// Partitions of every topic: two, so that conversations lie on different ones.
const PARTITIONS: i32 = 2;

/// Records read at once.
const READ_RECORDS: usize = 64;

/// How long a client sleeps while nothing is there. A turn takes about as long.
const NAP: Duration = Duration::from_millis(1);

/// When a client gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A log and the engine that serves it.
pub(super) struct Served {
    log: EmbeddedLog,
    topic: Arc<str>,
    engine: Option<JoinHandle<Result<Summary, EngineError>>>,
    /// Where reading goes on.
    next: BTreeMap<(Topic, i32), i64>,
    /// Outcomes that nobody asked for yet.
    ended: BTreeMap<InputId, Outcome>,
}

impl Served {
    /// Opens the knowledge and starts an engine on an empty log.
    pub(super) fn start(config: Config) -> anyhow::Result<Self> {
        let workers = config.run.workers as usize;
        let parts = Parts::new(config)?.with_documents()?;
        let (parts, _) = parts.with_language_models(&AnswerFiles::default())?;
        let parts = Parts { timings: true, publish_changes: true, ..parts };
        let log = EmbeddedConfig { partitions: PARTITIONS, ..EmbeddedConfig::default() };
        let log = EmbeddedLog::in_memory(&log)?;
        let consumer = log.consumer("demo", Topic::Turns)?;
        let producer = log.producer(&consumer, "demo")?;
        let ends = Ends::new(consumer, producer);
        let topic = Arc::clone(&parts.topic.name);
        let engine = std::thread::Builder::new().name("engine".to_owned());
        // It ends with its input, when the log is sealed.
        let engine = engine.spawn(move || serve(ends, &parts, workers, &AtomicBool::new(false)));
        let engine = engine.context("a thread could not be started")?;
        Ok(Self { log, topic, engine: Some(engine), next: BTreeMap::new(), ended: BTreeMap::new() })
    }

    /// Appends records of one conversation; the engine sees all of them at once.
    pub(super) fn append(
        &self,
        conversation: &str,
        messages: impl IntoIterator<Item = Message>,
    ) -> anyhow::Result<Vec<InputId>> {
        let key = conversation.as_bytes();
        let (partition, offsets) = self.log.append_together(Topic::Turns, key, messages)?;
        let topic = &*self.topic;
        let input = |offset| InputId { topic: topic.to_owned(), partition, offset };
        Ok(offsets.into_iter().map(input).collect())
    }

    /// Waits until an input ended and gives its outcome.
    pub(super) fn outcome(&mut self, input: &InputId) -> anyhow::Result<Outcome> {
        let started = Instant::now();
        loop {
            self.read()?;
            if let Some(outcome) = self.ended.remove(input) {
                return Ok(outcome);
            }
            if self.engine.as_ref().is_none_or(JoinHandle::is_finished) {
                self.join()?;
                bail!("the engine stopped before {input} ended");
            }
            if started.elapsed() > PATIENCE {
                bail!("{input} has not ended in {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(NAP);
        }
    }

    /// Ends the input and waits for the engine.
    pub(super) fn end(mut self) -> anyhow::Result<Summary> {
        self.log.seal(Topic::Turns);
        let summary = self.join()?;
        let tally = &summary.tally;
        ensure!(tally.is_conserved(), "inputs and outcomes do not add up: {tally:?}");
        Ok(summary)
    }

    fn join(&mut self) -> anyhow::Result<Summary> {
        let engine = self.engine.take().context("the engine stopped")?;
        Ok(engine.join().map_err(|_| anyhow!("the engine panicked"))??)
    }

    /// Reads what was committed since the last time.
    fn read(&mut self) -> anyhow::Result<()> {
        for topic in [Topic::Responses, Topic::Recorded, Topic::DeadLetters] {
            for partition in 0..PARTITIONS {
                let next = self.next.entry((topic, partition)).or_default();
                let (from, isolation) = (*next, Isolation::ReadCommitted);
                let records = self.log.read(topic, partition, from, READ_RECORDS, isolation)?;
                for record in records {
                    *next = record.offset + 1;
                    let outcome = outcome_of(topic, &record)?;
                    self.ended.insert(outcome.input().clone(), outcome);
                }
            }
        }
        Ok(())
    }
}

fn outcome_of(topic: Topic, record: &Record) -> anyhow::Result<Outcome> {
    let value = record.value.as_deref();
    let json = value.unwrap_or_default();
    let read = match topic {
        Topic::Responses => {
            serde_json::from_slice::<Response>(json).map(|it| Outcome::Response(Box::new(it)))
        }
        Topic::Recorded => {
            serde_json::from_slice::<Recorded>(json).map(|it| Outcome::Recorded(Box::new(it)))
        }
        _ => {
            let letter = letters::decode(record.key.as_deref(), value, &record.headers)?;
            return Ok(Outcome::DeadLetter(Box::new(letter)));
        }
    };
    read.with_context(|| format!("{} offset {}", topic.name(), record.offset))
}
