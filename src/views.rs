//! Views on a log: follows responses, histories and knowledge, and keeps the `views` topic equal to
//! what they amount to.
//!
//! ```text
//!  views (once) ─────────────────────┐
//!  responses ──▶ ┌───────────────┐   ▼
//!  knowledge ──▶ │ Views (timely)│─▶ rows ──▶ differences ──▶ views
//!  history   ──▶ └───────────────┘
//! ```
//!
//! Beside the engine, in a process of its own (`turnstream views`): what is counted are committed
//! records only, so that nothing here can hold a turn back. No offsets are kept. Views are a
//! function of the logs, so a process that starts reads what the topic says, recounts
//! everything and writes what differs; what happened to the one before it is no matter. One process
//! writes at a time: who starts fences the one before.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::WorkerConfig;
use timely::communication::Allocator;
use timely::communication::allocator::thread::Thread;
use timely::worker::Worker;
use turnstream_knowledge::Change;
use turnstream_log::write::Writer;
use turnstream_log::{Follower, LogError, Record, Topic};
use turnstream_operators::views::Views;
use turnstream_schemas::{EntryKey, HistoryChange, Response, ViewKey, ViewValue};

use crate::histories;

pub mod metrics;
#[cfg(test)]
mod recount;
mod rows;
#[cfg(test)]
mod tests;

pub use rows::{Rows, Size};

use metrics::{Counted, ViewsMetrics};

/// How long one poll waits, and so how soon a stop is seen.
const POLL: Duration = Duration::from_millis(50);

/// Records that cannot be read, told one by one; after those they are only counted.
const TOLD_REFUSALS: u64 = 10;

/// Views: what is counted over responses, histories and knowledge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ViewsConfig {
    /// Milliseconds for which changes of rows are gathered before they are published; a row that
    /// changes ten times in between is written once.
    pub publish_every_ms: u64,
    /// Records that are published together at most, 1 or more.
    pub max_batch_records: usize,
    /// Rows of all views that may be held in memory, 1 or more; with more the process stops. A row
    /// is a fact, a relation or a concept, for each partition of responses that it is in, or a
    /// category of a history, or evidence that a partition of histories names.
    pub max_rows: usize,
    /// Statements of the topic of knowledge that may be remembered, standing or taken back, 1 or
    /// more; with more the process stops.
    pub max_statements: usize,
    /// Whether histories are counted too. Where they are not, no row of theirs stays on the topic.
    pub histories: bool,
    /// Entries of histories that may be remembered, with one more for each scope's own record, 1
    /// or more; with more the process stops.
    pub max_entries: usize,
    /// Where `turnstream views` serves its metrics and health, as `metrics.address` says for
    /// `turnstream run`; another one, so that both may run on one machine from one file.
    pub metrics_address: Option<String>,
}

impl Default for ViewsConfig {
    fn default() -> Self {
        Self {
            publish_every_ms: 1_000,
            max_batch_records: 5_000,
            max_rows: 1_000_000,
            max_statements: 1_000_000,
            histories: true,
            max_entries: 1_000_000,
            metrics_address: None,
        }
    }
}

/// What views are made from and written to. The writer is opened first: from then on nobody else
/// writes.
pub struct Ends {
    /// Writes to the topic of views.
    pub writer: Box<dyn Writer>,
    /// The topic of views, read to what is its end now, and no further.
    pub published: Option<Box<dyn Follower>>,
    /// Responses, as far as the log still has them.
    pub responses: Box<dyn Follower>,
    /// Changes to the knowledge, where they are followed.
    pub knowledge: Option<Box<dyn Follower>>,
    /// Histories, where they are counted.
    pub histories: Option<Box<dyn Follower>>,
}

/// What a process did, and what the views hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Responses that were counted.
    pub responses: u64,
    /// Changes to the knowledge that were counted.
    pub changes: u64,
    /// Changes to histories that were counted.
    pub history_changes: u64,
    /// Records that could not be read, and were passed over.
    pub refused: u64,
    /// Rows that were written.
    pub written: u64,
    /// Rows that were removed from the topic.
    pub removed: u64,
    /// Whether everything was counted, and published, that was there at the start.
    pub caught_up: bool,
}

/// Why views had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ViewsError {
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A row cannot be written as JSON: a fault of ours.
    #[error("a row of a view cannot be written: {0}")]
    Row(#[from] serde_json::Error),
    /// More than may be held in memory.
    #[error(
        "views hold {held} {what}, and views.{key} allows {limit}; raise it, or keep fewer \
         responses, statements or histories on the log; views.histories = false leaves histories \
         out"
    )]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The bound's key.
        key: &'static str,
        /// How many there are.
        held: usize,
        /// The bound.
        limit: usize,
    },
}

/// Views of one log, and their topic.
pub struct Publishing {
    worker: Worker,
    views: Views,
    rows: Rows,
    ends: Ends,
    config: ViewsConfig,
    metrics: ViewsMetrics,
    summary: Summary,
    published: Instant,
}

impl Publishing {
    /// Views over nothing; of their topic nothing is known yet.
    pub fn new(ends: Ends, config: &ViewsConfig, metrics: &ViewsMetrics) -> Self {
        let thread = Allocator::Thread(Thread::default());
        let mut worker = Worker::new(WorkerConfig::default(), thread, Some(Instant::now()));
        Self {
            views: Views::install(&mut worker),
            worker,
            rows: Rows::default(),
            ends,
            config: config.clone(),
            metrics: metrics.clone(),
            summary: Summary::default(),
            published: Instant::now(),
        }
    }

    /// Catches up and publishes; then goes on until it is stopped, or with `once` ends.
    ///
    /// # Errors
    /// What going on cannot mend.
    pub fn run(&mut self, once: bool, stop: &AtomicBool) -> Result<(), ViewsError> {
        let stopped = || stop.load(Ordering::Relaxed);
        let begun = Instant::now();
        while !stopped() && !self.look(POLL)? {}
        while !stopped() && !self.count(POLL)? {}
        if stopped() {
            // What was counted so far is less than the truth.
            return Ok(());
        }
        self.publish()?;
        let rows = self.rows.len();
        let Summary { responses, changes, history_changes, written, removed, .. } = self.summary;
        let milliseconds = begun.elapsed().as_millis() as u64;
        tracing::info!(
            responses,
            changes,
            history_changes,
            rows,
            written,
            removed,
            milliseconds,
            "caught up"
        );
        self.summary.caught_up = true;
        self.tell();
        let every = Duration::from_millis(self.config.publish_every_ms);
        while !once && !stopped() {
            self.count(POLL.min(every))?;
            if self.published.elapsed() >= every {
                self.publish()?;
            }
        }
        self.publish()
    }

    /// Reads what is on the topic of views, waiting at most `wait`. Gives whether everything was
    /// read that was there when it was opened.
    ///
    /// # Errors
    /// The log.
    pub fn look(&mut self, wait: Duration) -> Result<bool, ViewsError> {
        let Some(published) = &mut self.ends.published else { return Ok(true) };
        for record in published.poll(wait)? {
            match record.key.as_deref().map(serde_json::from_slice::<ViewKey>) {
                Some(Ok(key)) => {
                    // A value that is none of ours differs from every count.
                    let count = |value: &[u8]| serde_json::from_slice(value).map_or(0, counted);
                    self.rows.found(key, record.value.as_deref().map(count));
                }
                Some(Err(error)) => self.refuse(Topic::Views, &record, &error),
                None => self.refuse(Topic::Views, &record, &"it has no key"),
            }
        }
        self.metrics.polled();
        // What comes from now on is ours.
        self.ends.published.take_if(|published| published.has_caught_up());
        Ok(self.ends.published.is_none())
    }

    /// Counts what came, waiting at most `wait` for it. Gives whether everything was counted that
    /// was there when the topics were opened.
    ///
    /// # Errors
    /// The log, and more than may be held.
    pub fn count(&mut self, wait: Duration) -> Result<bool, ViewsError> {
        let at_once = |follower: &mut Option<Box<dyn Follower>>| match follower {
            Some(follower) => follower.poll(Duration::ZERO),
            None => Ok(Vec::new()),
        };
        let learned = at_once(&mut self.ends.knowledge)?;
        let remembered = at_once(&mut self.ends.histories)?;
        // Who has just learned looks at once whether there is more.
        let came = !learned.is_empty() || !remembered.is_empty();
        let responses = self.ends.responses.poll(if came { Duration::ZERO } else { wait })?;
        let came = came || !responses.is_empty();
        for record in learned {
            match Change::read(record.key.as_deref().unwrap_or_default(), record.value.as_deref()) {
                Ok(change) => {
                    self.views.learn(&change);
                    self.summary.changes += 1;
                }
                Err(error) => self.refuse(Topic::Knowledge, &record, &error),
            }
        }
        for record in remembered {
            self.remember(&record);
        }
        for record in responses {
            let value = record.value.as_deref().unwrap_or_default();
            match serde_json::from_slice::<Response>(value) {
                Ok(response) => {
                    self.views.insert(record.partition, &response);
                    self.summary.responses += 1;
                }
                Err(error) => self.refuse(Topic::Responses, &record, &error),
            }
        }
        if came {
            for (key, count) in self.views.step(&mut self.worker) {
                self.rows.set(key, count);
            }
            self.check_bounds()?;
        }
        self.tell();
        let Ends { responses, knowledge, histories, .. } = &self.ends;
        let mut others = [knowledge, histories].into_iter().flatten();
        Ok(others.all(|it| it.has_caught_up()) && responses.has_caught_up())
    }

    /// A change to a history. One that cannot be read takes what lay under its key with it, as
    /// compaction will.
    fn remember(&mut self, record: &Record) {
        let bytes = |of: &Option<Vec<u8>>| of.as_ref().map_or(0, Vec::len);
        match histories::change(record) {
            Ok(change) => {
                let bytes = bytes(&record.key) + bytes(&record.value);
                self.views.remember(record.partition, &change, bytes);
                self.summary.history_changes += 1;
            }
            Err(error) => {
                let key = record.key.as_deref().unwrap_or_default();
                if let Ok(key) = serde_json::from_slice::<EntryKey>(key) {
                    let gone = HistoryChange::Gone { key, evicted: None };
                    self.views.remember(record.partition, &gone, 0);
                }
                self.refuse(Topic::History, record, &error);
            }
        }
    }

    /// Writes what differs on the topic, in batches.
    ///
    /// # Errors
    /// The log. Then some of it may be there; the next process knows.
    pub fn publish(&mut self) -> Result<(), ViewsError> {
        let mut batch = 0;
        while let Some((key, count)) = self.rows.next_difference() {
            let value = count.map(|count| serde_json::to_vec(&ViewValue { count })).transpose()?;
            self.ends.writer.write(&serde_json::to_vec(&key)?, value.as_deref())?;
            match value {
                Some(_) => self.summary.written += 1,
                None => self.summary.removed += 1,
            }
            batch += 1;
            if batch == self.config.max_batch_records {
                self.ends.writer.finish()?;
                self.metrics.polled();
                batch = 0;
            }
        }
        self.ends.writer.finish()?;
        self.published = Instant::now();
        self.tell();
        Ok(())
    }

    /// What was done so far.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// What the views hold.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Per partition of responses, of knowledge and of histories: the next offset that was not
    /// counted.
    pub fn offsets(&self) -> [BTreeMap<i32, i64>; 3] {
        let Ends { responses, knowledge, histories, .. } = &self.ends;
        let [knowledge, histories] = [knowledge, histories]
            .map(|it| it.as_ref().map(|it| it.positions()).unwrap_or_default());
        [responses.positions(), knowledge, histories]
    }

    fn check_bounds(&self) -> Result<(), ViewsError> {
        let ViewsConfig { max_rows, max_statements, max_entries, .. } = self.config;
        let (statements, remembered) = (self.views.statements(), self.views.remembered());
        for (what, key, held, limit) in [
            ("rows", "max_rows", self.rows.len(), max_rows),
            ("statements", "max_statements", statements, max_statements),
            ("entries of histories", "max_entries", remembered, max_entries),
        ] {
            if held > limit {
                return Err(ViewsError::TooMany { what, key, held, limit });
            }
        }
        Ok(())
    }

    /// Tells the metrics.
    fn tell(&self) {
        let lag = |follower: &dyn Follower| follower.lag().values().sum();
        let counted = Counted {
            summary: self.summary.clone(),
            sizes: self.rows.sizes(),
            top: self.rows.top_counts(),
            statements: self.views.statements() as u64,
            entries: self.views.remembered() as u64,
            lag: [
                lag(&*self.ends.responses),
                self.ends.knowledge.as_ref().map_or(0, |knowledge| lag(&**knowledge)),
                self.ends.histories.as_ref().map_or(0, |histories| lag(&**histories)),
            ],
        };
        self.metrics.tell(counted);
    }

    /// A record that cannot be read stays on its topic, and is passed over.
    fn refuse(&mut self, topic: Topic, record: &Record, why: &dyn std::fmt::Display) {
        self.summary.refused += 1;
        let Record { partition, offset, .. } = record;
        if self.summary.refused <= TOLD_REFUSALS {
            let topic = topic.name();
            tracing::warn!(topic, partition, offset, %why, "a record cannot be read; passed over");
        }
    }
}

fn counted(value: ViewValue) -> u64 {
    value.count
}
