//! The knowledge feed: carries changes from the topic of knowledge to the workers while turns flow.
//!
//! One thread owns it. Each poll of the [`Follower`] becomes one batch of [`Changes`] with the
//! offsets behind it, and goes to every worker. No turn is taken in before the feed has [`CaughtUp`]
//! everything that was on the topic at the start. A restarted process therefore never answers from
//! a fact that was retracted.
//!
//! A record that is not a change is logged, counted and skipped. It stays on the topic. Changes of
//! phrasings reach the workers with what they lead to ([`Teaching`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use turnstream_knowledge::phrasings::Taught;
use turnstream_knowledge::{Change, ChangeError, Changes, KnowledgeRecord, LiveCounts};
use turnstream_log::{Follower, LogError, Record, Topic};

use crate::config::LogKind;
use crate::dependencies::Dependencies;
use crate::meaning::LiveVectors;
use crate::metrics::Metrics;
use crate::panics::{Panicked, WorkerError};
use crate::teaching::{Teaching, TeachingError};

mod fed_workers;
#[cfg(test)]
mod tests;

pub use fed_workers::{BATCHES_AHEAD, FedWorkers, ReadBy, Reading};

/// How long one poll waits, and so how soon the thread notices that it must end.
const POLL: Duration = Duration::from_millis(50);

/// The time between two log lines about progress, before the feed has caught up.
const TELL: Duration = Duration::from_secs(5);

/// Most refused records that are logged one by one within [`TELL`]. Of further ones only the number
/// is logged.
const TOLD_REFUSALS: u64 = 10;

/// How long to wait for workers that have nearly caught up.
const LOOK: Duration = Duration::from_millis(1);

/// Takes changes for the core: the workers of a process, or the one core of a simulation.
pub trait Learn {
    /// Passes changes on, behind all earlier ones. May wait for slow workers.
    ///
    /// # Errors
    /// A worker is gone.
    fn learn(&self, changes: Changes) -> Result<(), WorkerError>;

    /// Whether every worker answers new turns from a version that includes everything before these
    /// offsets.
    ///
    /// # Errors
    /// A worker is gone.
    fn knows(&self, offsets: &BTreeMap<i32, i64>) -> Result<bool, WorkerError>;
}

/// Whether the feed has read everything that was on the topic at the start. All clones share it.
#[derive(Clone, Debug, Default)]
pub struct CaughtUp(Arc<AtomicBool>);

impl CaughtUp {
    /// The state of an engine that follows no topic.
    pub fn nothing_to_learn() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// Whether turns may be taken in.
    pub fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The state of the thread that follows the topic.
pub struct KnowledgeFeed {
    follower: Box<dyn Follower>,
    /// The topic's name, for messages.
    topic: String,
    max_live_changes: u64,
    metrics: Metrics,
    counts: Arc<LiveCounts>,
    learned: CaughtUp,
    /// Makes the vectors of new facts before the workers hear of them.
    vectors: Option<LiveVectors>,
    /// Finds what phrasings lead to before the workers hear of them.
    teaching: Arc<Teaching>,
    /// The last offsets that were passed on.
    offsets: BTreeMap<i32, i64>,
    begun: Instant,
    told: Instant,
    records: u64,
    refusals: Refusals,
}

impl KnowledgeFeed {
    /// A feed that has read nothing. It sets `learned` once it has caught up.
    pub fn new(
        follower: Box<dyn Follower>,
        dependencies: &Dependencies,
        learned: CaughtUp,
    ) -> Self {
        let Dependencies { config, metrics, live, teaching, .. } = dependencies;
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
            vectors: dependencies.meaning.live.clone(),
            teaching: Arc::clone(teaching),
            offsets: BTreeMap::new(),
            begun: now,
            told: now,
            records: 0,
            refusals: Refusals { since: now, told: 0, untold: 0 },
        }
    }

    /// Feeds the workers until `stopped` returns true.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn run(
        &mut self,
        workers: &impl Learn,
        stopped: impl Fn() -> bool,
    ) -> Result<(), KnowledgeFeedError> {
        tracing::info!(
            topic = self.topic,
            "reading the topic of knowledge; turns wait until it has caught up"
        );
        while !stopped() {
            self.poll(workers, POLL)?;
        }
        Ok(())
    }

    /// Polls once, for at most `wait`, and passes on what came.
    ///
    /// # Errors
    /// An error that another poll cannot recover from, phrasings that cannot be taught, or more live
    /// changes than allowed.
    pub fn poll(&mut self, workers: &impl Learn, wait: Duration) -> Result<(), KnowledgeFeedError> {
        // Workers that have nearly caught up should not wait for a whole poll.
        let almost = !self.learned.is_done() && self.follower.has_caught_up();
        let records = self.follower.poll(if almost { wait.min(LOOK) } else { wait })?;
        self.records += records.len() as u64;
        let (mut changes, mut taught) =
            (Vec::<Change>::new(), Vec::<(String, Option<Taught>)>::new());
        for record in records.into_iter().filter_map(|record| self.read(record)) {
            match record {
                KnowledgeRecord::Fact(change) => changes.push(change),
                KnowledgeRecord::Phrasing(text, lesson) => taught.push((text, lesson)),
            }
        }
        self.refusals.tell_rest(&self.topic);
        let offsets = self.follower.positions();
        if offsets != self.offsets {
            let knowledge = self.metrics.knowledge();
            let facts = changes.iter().filter(|change| change.upsert.is_some()).count();
            let upserts = facts + taught.iter().filter(|(_, taught)| taught.is_some()).count();
            let retractions = changes.len() + taught.len() - upserts;
            self.offsets.clone_from(&offsets);
            if let Some(vectors) = &self.vectors {
                vectors.embed(&changes);
            }
            let phrasings = self.teaching.changes(taught)?;
            workers.learn(Changes { changes, phrasings, offsets })?;
            knowledge.learned(upserts as u64, retractions as u64);
        }
        self.check_bound()?;
        self.note_progress(workers)?;
        Ok(())
    }

    /// Parses the change in a record. Logs and counts a record that is not a change.
    fn read(&mut self, record: Record) -> Option<KnowledgeRecord> {
        let Record { partition, offset, key, value, .. } = record;
        let read = KnowledgeRecord::read(key.as_deref().unwrap_or_default(), value.as_deref());
        let refused = |error| {
            self.metrics.knowledge().refused.inc();
            self.refusals.tell((&self.topic, partition, offset), &error);
        };
        read.map_err(refused).ok()
    }

    /// Bounds the memory that workers use beside the snapshot. No other place does.
    fn check_bound(&self) -> Result<(), KnowledgeFeedError> {
        let counts = &self.counts;
        let [statements, phrasings] =
            [&counts.differing, &counts.phrasings].map(|count| count.load(Ordering::Relaxed));
        let statements = statements + phrasings;
        let limit = self.max_live_changes;
        if statements <= limit {
            return Ok(());
        }
        Err(KnowledgeFeedError::TooManyLiveChanges { topic: self.topic.clone(), statements, limit })
    }

    fn note_progress(&mut self, workers: &impl Learn) -> Result<(), KnowledgeFeedError> {
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
                tracing::info!(topic, records, left, "reading the topic of knowledge; turns wait");
            }
        }
        self.metrics.learns(caught_up, lag);
        Ok(())
    }
}

/// Logs refused records, and of a flood of them only the number.
struct Refusals {
    since: Instant,
    told: u64,
    untold: u64,
}

impl Refusals {
    fn tell(&mut self, (topic, partition, offset): (&str, i32, i64), error: &ChangeError) {
        if self.told < TOLD_REFUSALS {
            self.told += 1;
            tracing::warn!(topic, partition, offset, %error, "a record is not a change; skipped");
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
            tracing::warn!(topic, records = self.untold, "more records are not changes; skipped");
        }
        *self = Self { since: Instant::now(), told: 0, untold: 0 };
    }
}

/// Why the knowledge feed stopped.
#[derive(Debug, thiserror::Error)]
pub enum KnowledgeFeedError {
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A worker failed.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The phrasings on the topic cannot be taught.
    #[error("cannot learn the phrasings on the topic of knowledge: {0}")]
    Teaching(#[from] TeachingError),
    /// More statements differ from the snapshot than memory may hold.
    #[error(
        "topic {topic}: {statements} statements and phrasings differ from the snapshot, and \
         knowledge.max_live_changes allows {limit}; import them into a new snapshot with \
         `turnstream knowledge import` and empty the topic, or raise the bound"
    )]
    TooManyLiveChanges {
        /// The topic.
        topic: String,
        /// Statements that differ from the snapshot, and phrasings.
        statements: u64,
        /// The bound.
        limit: u64,
    },
    /// The thread panicked: a fault of the engine.
    #[error(
        "the thread that reads the knowledge panicked: {0}; a restart goes on from the last commit"
    )]
    Panicked(Panicked),
}
