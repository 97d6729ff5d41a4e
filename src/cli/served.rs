//! An embedded log that an engine of this process serves, seen from its clients: they append turns
//! and read what was committed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use turnstream_log::embedded::{EmbeddedLog, Isolation, Message};
use turnstream_log::{Ends, Record, Topic, letters};
use turnstream_schemas::{InputId, Outcome, Recorded, Response, Turn};

use turnstream_engine::parts::Parts;
use turnstream_engine::serve::{EngineError, Summary, serve};

/// The group and the transactional id in an embedded log, as `turnstream run` has them.
const NAME: &str = super::run::EMBEDDED_NAME;

/// Records read at once.
const READ_RECORDS: usize = 64;

/// How long a client sleeps while nothing is there. A turn of stages without models takes about as
/// long.
const NAP: Duration = Duration::from_millis(1);

/// When a client that has nothing to do meanwhile gives up.
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
    /// Starts an engine on a log. What the log holds already is not read again.
    pub(super) fn start(log: EmbeddedLog, parts: Parts) -> anyhow::Result<Self> {
        let workers = parts.config.run.workers as usize;
        let consumer = log.consumer(NAME, Topic::Turns)?;
        let producer = log.producer(&consumer, NAME)?;
        let mut ends = Ends::new(consumer, producer);
        if parts.config.knowledge.live {
            ends.knowledge = Some(Box::new(log.follower(Topic::Knowledge)));
        }
        let topic = Arc::clone(&parts.topic.name);
        let places = OUTCOMES
            .iter()
            .flat_map(|topic| (0..log.partitions()).map(|partition| (*topic, partition)));
        let next = places.map(|(topic, partition)| ((topic, partition), log.end(topic, partition)));
        let next = next.collect();
        let engine = std::thread::Builder::new().name("engine".to_owned());
        // It ends with its input, when the log is sealed.
        let engine = engine.spawn(move || serve(ends, &parts, workers, &AtomicBool::new(false)));
        let engine = engine.context("a thread could not be started")?;
        Ok(Self { log, topic, engine: Some(engine), next, ended: BTreeMap::new() })
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

    /// Appends a turn, which comes to the log when it is said. Gives where it is, and its bytes.
    pub(super) fn say(&self, turn: &Turn) -> anyhow::Result<(InputId, Vec<u8>)> {
        let bytes = serde_json::to_vec(turn)?;
        let time_ms = turn.timestamp.map(|time| time.millis());
        let message = Message { value: Some(bytes.clone()), time_ms, ..Message::default() };
        let inputs = self.append(turn.conversation_id.as_str(), [message])?;
        let input = inputs.into_iter().next().context("the log gave no offset")?;
        Ok((input, bytes))
    }

    /// Waits until an input ended and gives its outcome; a minute at most.
    pub(super) fn outcome(&mut self, input: &InputId) -> anyhow::Result<Outcome> {
        let started = Instant::now();
        self.outcome_while(input, &mut || match started.elapsed() > PATIENCE {
            true => bail!("{input} has not ended in {} s", PATIENCE.as_secs()),
            false => Ok(()),
        })
    }

    /// Waits for as long as it takes, with something to do meanwhile, again and again, and once
    /// more after the end.
    pub(super) fn outcome_while(
        &mut self,
        input: &InputId,
        meanwhile: &mut dyn FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Outcome> {
        loop {
            self.read()?;
            meanwhile()?;
            if let Some(outcome) = self.ended.remove(input) {
                return Ok(outcome);
            }
            if self.engine.as_ref().is_none_or(JoinHandle::is_finished) {
                self.join()?;
                bail!("the engine stopped before {input} ended");
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
        for ((topic, partition), next) in &mut self.next {
            let (from, isolation) = (*next, Isolation::ReadCommitted);
            let records = self.log.read(*topic, *partition, from, READ_RECORDS, isolation)?;
            for record in records {
                *next = record.offset + 1;
                let outcome = outcome_of(*topic, &record)?;
                self.ended.insert(outcome.input().clone(), outcome);
            }
        }
        Ok(())
    }
}

/// Where outcomes are.
const OUTCOMES: [Topic; 3] = [Topic::Responses, Topic::Recorded, Topic::DeadLetters];

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
