//! Learning: from the topic of knowledge to the workers, while turns flow.
//!
//! One thread owns it. What one poll of the [`Follower`] brings becomes one batch of [`Changes`],
//! with the offsets behind it, and goes to every worker. No turn is taken in before everything is
//! [learned](Learned) that was on the topic at the start, so that no restart answers with what was
//! taken back.
//!
//! A record that is no change stays on the topic, is told and counted, and passed over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use turnstream_knowledge::{Change, ChangeError, Changes, LiveCounts};
use turnstream_log::{Follower, LogError, Record, Topic};

use crate::config::LogKind;
use crate::meaning::LiveVectors;
use crate::metrics::Metrics;
use crate::panics::{Panicked, WorkerError};
use crate::parts::Parts;

mod learners;
#[cfg(test)]
mod tests;

pub use learners::{BATCHES_AHEAD, Learners, ReadBy, Reading};

/// How long one poll waits, and so how soon the thread sees that it is to end.
const POLL: Duration = Duration::from_millis(50);

/// How often it is told how far it is, before it has caught up.
const TELL: Duration = Duration::from_secs(5);

/// Records that are no change, told within [`TELL`] one by one; of more only the number is.
const TOLD_REFUSALS: u64 = 10;

/// How long to wait for workers that are about to know what was there.
const LOOK: Duration = Duration::from_millis(1);

/// Where changes are handed to the core: the workers of a process, or the one of a simulation.
pub trait Learn {
    /// Hands changes on, behind all that were handed on before. May wait for workers that are
    /// behind.
    ///
    /// # Errors
    /// A worker is gone.
    fn learn(&self, changes: Changes) -> Result<(), WorkerError>;

    /// Whether a turn that comes now is answered, by whichever worker, from a state that has
    /// everything before these offsets.
    ///
    /// # Errors
    /// A worker is gone.
    fn knows(&self, offsets: &BTreeMap<i32, i64>) -> Result<bool, WorkerError>;
}

/// Whether everything was learned that was on the topic at the start. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Learned(Arc<AtomicBool>);

impl Learned {
    /// Of an engine that follows no topic.
    pub fn nothing_to_learn() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// Whether turns may be taken in.
    pub fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The state of the thread that learns.
pub struct Learning {
    follower: Box<dyn Follower>,
    /// The topic's name, for messages.
    topic: String,
    max_live_changes: u64,
    metrics: Metrics,
    counts: Arc<LiveCounts>,
    learned: Learned,
    /// Makes the vectors of what is learned, before anybody hears of it.
    vectors: Option<LiveVectors>,
    /// The offsets that were handed on last.
    offsets: BTreeMap<i32, i64>,
    begun: Instant,
    told: Instant,
    records: u64,
    refusals: Refusals,
}

impl Learning {
    /// Learning that has read nothing yet; `learned` is told when it has caught up.
    pub fn new(follower: Box<dyn Follower>, parts: &Parts, learned: Learned) -> Self {
        let Parts { config, metrics, live, .. } = parts;
        let topic = match config.log.kind {
            LogKind::Kafka => config.log.kafka.topics.name(Topic::Knowledge),
            LogKind::Embedded => Topic::Knowledge.name(),
        };
        let now = Instant::now();
        metrics.learns(false, follower.lag());
        metrics.knowledge().counted_by(live);
        Self {
            follower,
            topic: topic.to_owned(),
            max_live_changes: config.knowledge.max_live_changes,
            metrics: metrics.clone(),
            counts: Arc::clone(live),
            learned,
            vectors: parts.meaning.live.clone(),
            offsets: BTreeMap::new(),
            begun: now,
            told: now,
            records: 0,
            refusals: Refusals { since: now, told: 0, untold: 0 },
        }
    }

    /// Learns until it is told to stop.
    ///
    /// # Errors
    /// What [`Self::poll`] gives.
    pub fn run(
        &mut self,
        workers: &impl Learn,
        stopped: impl Fn() -> bool,
    ) -> Result<(), LearningError> {
        tracing::info!(topic = self.topic, "learning what is on the topic; turns wait for it");
        while !stopped() {
            self.poll(workers, POLL)?;
        }
        Ok(())
    }

    /// Polls once, waiting at most `wait`, and hands on what came.
    ///
    /// # Errors
    /// What polling again cannot mend, and more live changes than allowed.
    pub fn poll(&mut self, workers: &impl Learn, wait: Duration) -> Result<(), LearningError> {
        // Workers that are about to know everything are not to wait for a whole poll.
        let almost = !self.learned.is_done() && self.follower.has_caught_up();
        let records = self.follower.poll(if almost { wait.min(LOOK) } else { wait })?;
        self.records += records.len() as u64;
        let changes: Vec<Change> =
            records.into_iter().filter_map(|record| self.read(record)).collect();
        self.refusals.tell_rest(&self.topic);
        let offsets = self.follower.positions();
        if offsets != self.offsets {
            let knowledge = self.metrics.knowledge();
            let upserts = changes.iter().filter(|change| change.upsert.is_some()).count();
            let retractions = changes.len() - upserts;
            self.offsets.clone_from(&offsets);
            if let Some(vectors) = &self.vectors {
                vectors.embed(&changes);
            }
            workers.learn(Changes { changes, offsets })?;
            knowledge.learned(upserts as u64, retractions as u64);
        }
        self.check_bound()?;
        self.note_progress(workers)?;
        Ok(())
    }

    /// The change that a record says, or nothing, and then it was told.
    fn read(&mut self, record: Record) -> Option<Change> {
        let Record { partition, offset, key, value, .. } = record;
        let read = Change::read(key.as_deref().unwrap_or_default(), value.as_deref());
        let refused = |error| {
            self.metrics.knowledge().refused.inc();
            self.refusals.tell((&self.topic, partition, offset), &error);
        };
        read.map_err(refused).ok()
    }

    /// The one place where memory is bounded: what the workers hold beside the snapshot, as they
    /// tell it.
    fn check_bound(&self) -> Result<(), LearningError> {
        let statements = self.counts.differing.load(Ordering::Relaxed);
        let limit = self.max_live_changes;
        if statements <= limit {
            return Ok(());
        }
        Err(LearningError::TooManyLiveChanges { topic: self.topic.clone(), statements, limit })
    }

    fn note_progress(&mut self, workers: &impl Learn) -> Result<(), LearningError> {
        let lag = self.follower.lag();
        let mut caught_up = self.follower.has_caught_up();
        if !self.learned.is_done() {
            let (topic, records) = (&self.topic, self.records);
            caught_up = caught_up && workers.knows(&self.offsets)?;
            if caught_up {
                let milliseconds = self.begun.elapsed().as_millis() as u64;
                tracing::info!(topic, records, offsets = ?self.offsets, milliseconds, "caught up");
                self.learned.0.store(true, Ordering::Release);
            } else if self.told.elapsed() >= TELL {
                self.told = Instant::now();
                let left: u64 = lag.values().sum();
                tracing::info!(topic, records, left, "learning; turns wait for it");
            }
        }
        self.metrics.learns(caught_up, lag);
        Ok(())
    }
}

/// Tells of records that are no change, and of a flood of them only how many.
struct Refusals {
    since: Instant,
    told: u64,
    untold: u64,
}

impl Refusals {
    fn tell(&mut self, (topic, partition, offset): (&str, i32, i64), error: &ChangeError) {
        if self.told < TOLD_REFUSALS {
            self.told += 1;
            tracing::warn!(topic, partition, offset, %error, "a record is no change; passed over");
        } else {
            self.untold += 1;
        }
    }

    fn tell_rest(&mut self, topic: &str) {
        if self.told == 0 || self.since.elapsed() < TELL {
            if self.told == 0 {
                self.since = Instant::now();
            }
            return;
        }
        if self.untold > 0 {
            tracing::warn!(topic, records = self.untold, "more records are no change");
        }
        *self = Self { since: Instant::now(), told: 0, untold: 0 };
    }
}

/// Why learning had to stop.
#[derive(Debug, thiserror::Error)]
pub enum LearningError {
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The workers.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// More was put and taken back than may be held in memory.
    #[error(
        "topic {topic}: {statements} statements differ from the snapshot, and \
         knowledge.max_live_changes allows {limit}; import them into a new snapshot with \
         `turnstream knowledge import` and empty the topic, or raise the bound"
    )]
    TooManyLiveChanges {
        /// The topic.
        topic: String,
        /// Statements that differ from the snapshot.
        statements: u64,
        /// The bound.
        limit: u64,
    },
    /// The thread panicked: a fault of the engine.
    #[error("the thread that learns panicked: {0}; a restart goes on from the last commit")]
    Panicked(Panicked),
}
