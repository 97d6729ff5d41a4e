//! An embedded log and the engine that serves it in this process, from the view of a client that
//! appends turns and reads committed records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use turnstream_log::embedded::{EmbeddedLog, Isolation, Message};
use turnstream_log::{Ends, Record, Topic, letters};
use turnstream_schemas::{InputId, Outcome, Recorded, Response, Turn};

use turnstream_engine::dependencies::Dependencies;
use turnstream_engine::serve::{EngineError, Summary, serve};

/// The group and the transactional id in an embedded log, as in `turnstream run`.
const NAME: &str = super::run::EMBEDDED_NAME;

/// Records per read.
const READ_RECORDS: usize = 64;

/// How long a client sleeps if nothing is there: about the time of a turn without models.
const NAP: Duration = Duration::from_millis(1);

/// How long a client waits for an outcome if it has nothing else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A log and the engine that serves it.
pub(super) struct Served {
    log: EmbeddedLog,
    topic: Arc<str>,
    engine: Option<JoinHandle<Result<Summary, EngineError>>>,
    /// The next offset to read.
    next: BTreeMap<(Topic, i32), i64>,
    /// Outcomes that the caller has not asked for yet.
    ended: BTreeMap<InputId, Outcome>,
}

impl Served {
    /// Starts an engine on a log. Outcomes that the log already has are not read.
    pub(super) fn start(log: EmbeddedLog, dependencies: Dependencies) -> anyhow::Result<Self> {
        let workers = dependencies.config.run.workers as usize;
        let consumer = log.consumer(NAME, Topic::Turns)?;
        let producer = log.producer(&consumer, NAME)?;
        let mut ends = Ends::new(consumer, producer);
        if dependencies.config.knowledge.live {
            ends.knowledge = Some(Box::new(log.follower(Topic::Knowledge)));
        }
        let topic = Arc::clone(&dependencies.topic.name);
        let places = OUTCOMES
            .iter()
            .flat_map(|topic| (0..log.partitions()).map(|partition| (*topic, partition)));
        let next = places.map(|(topic, partition)| ((topic, partition), log.end(topic, partition)));
        let next = next.collect();
        let engine = std::thread::Builder::new().name("engine".to_owned());
        // The engine ends with its input, when the log is sealed.
        let engine =
            engine.spawn(move || serve(ends, &dependencies, workers, &AtomicBool::new(false)));
        let engine = engine.context("a thread could not be started")?;
        Ok(Self { log, topic, engine: Some(engine), next, ended: BTreeMap::new() })
    }

    /// Appends records of one conversation. The engine sees all of them at once.
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

    /// Appends a turn with its own timestamp. Returns its input and its bytes.
    pub(super) fn say(&self, turn: &Turn) -> anyhow::Result<(InputId, Vec<u8>)> {
        let bytes = serde_json::to_vec(turn)?;
        let time_ms = turn.timestamp.map(|time| time.millis());
        let message = Message { value: Some(bytes.clone()), time_ms, ..Message::default() };
        let inputs = self.append(turn.conversation_id.as_str(), [message])?;
        let input = inputs.into_iter().next().context("the log gave no offset")?;
        Ok((input, bytes))
    }

    /// Waits for the outcome of an input, for a minute at most.
    pub(super) fn outcome(&mut self, input: &InputId) -> anyhow::Result<Outcome> {
        let started = Instant::now();
        self.outcome_while(input, &mut || match started.elapsed() > PATIENCE {
            true => bail!("{input} has not ended in {} s", PATIENCE.as_secs()),
            false => Ok(()),
        })
    }

    /// Waits for the outcome of an input without a limit. Calls `meanwhile` repeatedly, and once
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

    /// Reads newly committed outcomes.
    fn read(&mut self) -> anyhow::Result<()> {
        for ((topic, partition), next) in &mut self.next {
            let (from, isolation) = (*next, Isolation::ReadCommitted);
            let records = self.log.read(*topic, *partition, from, READ_RECORDS, isolation)?;
            for record in records {
                *next = record.offset + 1;
                // The mark of a letter that was sent again; the turn that was sent has its own
                // outcome.
                if *topic == Topic::DeadLetters && letters::marked(&record).is_some() {
                    continue;
                }
                let outcome = outcome_of(*topic, &record)?;
                self.ended.insert(outcome.input().clone(), outcome);
            }
        }
        Ok(())
    }
}

/// The topics of outcomes.
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
