//! Views on a log: follows responses, histories and knowledge, and keeps the `views` topic equal to
//! their counts.
//!
//! ```text
//!  views (once) ─────────────────────┐
//!  responses ──▶ ┌───────────────┐   ▼
//!  knowledge ──▶ │ Views (timely)│─▶ rows ──▶ differences ──▶ views
//!  history   ──▶ └───────────────┘
//! ```
//!
//! Views run beside the engine, in a separate process (`turnstream views`). They read only
//! committed records, so they cannot hold a turn back. They keep no offsets: views are a function
//! of the logs. A process that starts reads the topic, counts everything again and writes the
//! differences, whatever happened to the earlier process. One process writes at a time: a process
//! that starts fences the earlier one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::WorkerConfig;
use timely::communication::Allocator;
use timely::communication::allocator::thread::Thread;
use timely::worker::Worker;
use turnstream_knowledge::KnowledgeRecord;
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

/// How long one poll waits, and so how soon a stop is noticed.
const POLL: Duration = Duration::from_millis(50);

/// Most unreadable records that are logged one by one. Further ones are only counted.
const TOLD_REFUSALS: u64 = 10;

/// Views: the counts over responses, histories and knowledge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ViewsConfig {
    /// Milliseconds for which changes of rows are gathered before they are published; a row that
    /// changes ten times in between is written once.
    pub publish_every_ms: u64,
    /// The most records that are published together, 1 or more.
    #[schemars(range(min = 1))]
    pub max_batch_records: usize,
    /// The most rows of all views in memory, 1 or more; with more the process stops. A row is a
    /// fact, a relation or a concept, for each partition of responses that it is in, or a category
    /// of a history, or evidence that a partition of histories names.
    #[schemars(range(min = 1))]
    pub max_rows: usize,
    /// The most statements of the topic of knowledge in memory, present or retracted, 1 or more;
    /// with more the process stops.
    #[schemars(range(min = 1))]
    pub max_statements: usize,
    /// Whether histories are counted too. If not, their rows are removed from the topic.
    pub histories: bool,
    /// The most entries of histories in memory, with one more for each scope's own record, 1 or
    /// more; with more the process stops.
    #[schemars(range(min = 1))]
    pub max_entries: usize,
    /// Where `turnstream views` serves its metrics and health, as `metrics.address` for
    /// `turnstream run`; another address, so that both can run on one machine from one file.
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

/// The sources of the views and their target. The writer is opened first; from then on no other
/// process writes.
pub struct Ends {
    /// Writes to the topic of views.
    pub writer: Box<dyn Writer>,
    /// The topic of views, read up to its present end.
    pub published: Option<Box<dyn Follower>>,
    /// Responses, as far back as the log keeps them.
    pub responses: Box<dyn Follower>,
    /// Traces of responses, if the log has them.
    pub traces: Option<Box<dyn Follower>>,
    /// Changes of the graph, if the log has them.
    pub knowledge: Option<Box<dyn Follower>>,
    /// Histories, if views count them.
    pub histories: Option<Box<dyn Follower>>,
}

/// The counts of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ViewsSummary {
    /// Responses that were counted.
    pub responses: u64,
    /// Changes of the graph that were counted.
    pub changes: u64,
    /// Changes of histories that were counted.
    pub history_changes: u64,
    /// Records that could not be read and were skipped.
    pub refused: u64,
    /// Rows that were written.
    pub written: u64,
    /// Rows that were removed from the topic.
    pub removed: u64,
    /// Whether everything that was there at the start is counted and published.
    pub caught_up: bool,
}

/// Why the views stopped.
#[derive(Debug, thiserror::Error)]
pub enum ViewsError {
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A row cannot be written as JSON: a bug.
    #[error("a row of a view cannot be written: {0}")]
    Row(#[from] serde_json::Error),
    /// The views hold more than their bound.
    #[error(
        "views hold {held} {what}, and views.{key} allows {limit}; raise it, or keep fewer \
         responses, statements or histories on the log; views.histories = false leaves histories \
         out"
    )]
    TooMany {
        /// The kind of thing that is bounded.
        what: &'static str,
        /// The bound's key.
        key: &'static str,
        /// The number held.
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
    summary: ViewsSummary,
    published: Instant,
}

impl Publishing {
    /// Views that have counted nothing and read nothing of their topic.
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
            summary: ViewsSummary::default(),
            published: Instant::now(),
        }
    }

    /// Catches up and publishes. Then goes on until `stop` is set, or ends if `once` is set.
    ///
    /// # Errors
    /// An error that going on cannot recover from.
    pub fn run(&mut self, once: bool, stop: &AtomicBool) -> Result<(), ViewsError> {
        let stopped = || stop.load(Ordering::Relaxed);
        let begun = Instant::now();
        while !stopped() && !self.look(POLL)? {}
        while !stopped() && !self.count(POLL)? {}
        if stopped() {
            // The counts are incomplete, so they are not published.
            return Ok(());
        }
        self.publish()?;
        let rows = self.rows.len();
        let ViewsSummary { responses, changes, history_changes, written, removed, .. } =
            self.summary;
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

    /// Reads the topic of views, for at most `wait`. Returns whether it has read everything that
    /// was there when the topic was opened.
    ///
    /// # Errors
    /// The log failed.
    pub fn look(&mut self, wait: Duration) -> Result<bool, ViewsError> {
        let Some(published) = &mut self.ends.published else { return Ok(true) };
        for record in published.poll(wait)? {
            match record.key.as_deref().map(serde_json::from_slice::<ViewKey>) {
                Some(Ok(key)) => {
                    // An unreadable value counts as 0, which differs from every count.
                    let count = |value: &[u8]| serde_json::from_slice(value).map_or(0, counted);
                    self.rows.found(key, record.value.as_deref().map(count));
                }
                Some(Err(error)) => self.refuse(Topic::Views, &record, &error),
                None => self.refuse(Topic::Views, &record, &"it has no key"),
            }
        }
        self.metrics.polled();
        // Later records are this process's own.
        self.ends.published.take_if(|published| published.has_caught_up());
        Ok(self.ends.published.is_none())
    }

    /// Counts new records, waiting for them at most `wait`. Returns whether it has counted
    /// everything that was there when the topics were opened.
    ///
    /// # Errors
    /// The log failed, or the views hold more than their bounds.
    pub fn count(&mut self, wait: Duration) -> Result<bool, ViewsError> {
        let at_once = |follower: &mut Option<Box<dyn Follower>>| match follower {
            Some(follower) => follower.poll(Duration::ZERO),
            None => Ok(Vec::new()),
        };
        let learned = at_once(&mut self.ends.knowledge)?;
        let remembered = at_once(&mut self.ends.histories)?;
        // After new changes the responses are polled without waiting, so that further changes
        // follow at once.
        let came = !learned.is_empty() || !remembered.is_empty();
        let traces = at_once(&mut self.ends.traces)?;
        let came = came || !traces.is_empty();
        let responses = self.ends.responses.poll(if came { Duration::ZERO } else { wait })?;
        let came = came || !responses.is_empty();
        for record in learned {
            let key = record.key.as_deref().unwrap_or_default();
            match KnowledgeRecord::read(key, record.value.as_deref()) {
                Ok(KnowledgeRecord::Fact(change)) => {
                    self.views.learn(&change);
                    self.summary.changes += 1;
                }
                // No view counts phrasings.
                Ok(KnowledgeRecord::Phrasing(..)) => {}
                Err(error) => self.refuse(Topic::Knowledge, &record, &error),
            }
        }
        for record in remembered {
            self.remember(&record);
        }
        // A response is whole, or brief with its trace beside it. It counts once either way.
        let responses = responses.into_iter().map(|record| (Topic::Responses, record));
        let traces = traces.into_iter().map(|record| (Topic::Traces, record));
        for (topic, record) in responses.chain(traces) {
            let value = record.value.as_deref().unwrap_or_default();
            match serde_json::from_slice::<Response>(value) {
                Ok(response) => {
                    if topic == Topic::Traces {
                        self.views.insert_trace(record.partition, &response);
                    } else {
                        self.views.insert(record.partition, &response);
                        self.summary.responses += 1;
                    }
                }
                Err(error) => self.refuse(topic, &record, &error),
            }
        }
        if came {
            for (key, count) in self.views.step(&mut self.worker) {
                self.rows.set(key, count);
            }
            self.check_bounds()?;
        }
        self.tell();
        let Ends { responses, traces, knowledge, histories, .. } = &self.ends;
        let mut others = [traces, knowledge, histories].into_iter().flatten();
        Ok(others.all(|it| it.has_caught_up()) && responses.has_caught_up())
    }

    /// Applies a change of a history. An unreadable change removes the earlier record of its key,
    /// as compaction will.
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

    /// Writes the differences to the topic, in batches.
    ///
    /// # Errors
    /// The log failed. Some batches may be written; the next process finds them.
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

    /// Returns the counts of this process so far.
    pub fn summary(&self) -> &ViewsSummary {
        &self.summary
    }

    /// The rows of the views.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Returns the next offset to count, per partition of responses, of traces, of knowledge and of
    /// histories.
    pub fn offsets(&self) -> [BTreeMap<i32, i64>; 4] {
        let Ends { responses, traces, knowledge, histories, .. } = &self.ends;
        let [traces, knowledge, histories] = [traces, knowledge, histories]
            .map(|it| it.as_ref().map(|it| it.positions()).unwrap_or_default());
        [responses.positions(), traces, knowledge, histories]
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

    /// Updates the metrics.
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
                self.ends.traces.as_ref().map_or(0, |traces| lag(&**traces)),
                self.ends.knowledge.as_ref().map_or(0, |knowledge| lag(&**knowledge)),
                self.ends.histories.as_ref().map_or(0, |histories| lag(&**histories)),
            ],
        };
        self.metrics.tell(counted);
    }

    /// Counts and logs an unreadable record. It stays on its topic and is skipped.
    fn refuse(&mut self, topic: Topic, record: &Record, why: &dyn std::fmt::Display) {
        self.summary.refused += 1;
        let Record { partition, offset, .. } = record;
        if self.summary.refused <= TOLD_REFUSALS {
            let topic = topic.name();
            tracing::warn!(topic, partition, offset, %why, "cannot read a record; skipped");
        }
    }
}

fn counted(value: ViewValue) -> u64 {
    value.count
}
