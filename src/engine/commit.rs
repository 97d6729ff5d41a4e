//! The committer makes outcomes visible together with the positions behind them, one transaction at
//! a time.
//!
//! It receives polled offsets and finished inputs through one channel, so any prefix of what it
//! received is a consistent cut: a position never lies beyond an input that is still pending.
//! Scopes finish out of order. The position of a partition is therefore its lowest pending offset,
//! and the finished offsets above it travel in the commit's metadata (see [`ledger`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_log::{Assignment, LogError, Output, Producer, Topic, Transaction};
use turnstream_ports::broken::Broken;
use turnstream_schemas::Stage;

use crate::flow_control::FlowControl;
use crate::metrics::OutcomeMetrics;
use crate::tally::Tally;

pub mod encode;
pub mod ledger;

pub use encode::{EncodedBatch, Publication, ResponsesConfig, TracePlace, encode};
use ledger::metadata::MetadataError;
use ledger::{Ledger, Polled};

/// The time between two log lines about a transaction that is still being tried again.
const TELL: Duration = Duration::from_secs(60);

/// How long a process that is stopping keeps trying while the log takes no transaction.
const AT_THE_END: Duration = Duration::from_secs(10);

/// `[commit]`: how often outcomes become visible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CommitConfig {
    /// Milliseconds between the beginnings of two transactions while outcomes wait: under load a
    /// response waits half of it on average, and one that comes alone is committed at once. 0
    /// commits all waiting outcomes as soon as no more arrive.
    pub interval_ms: u64,
    /// The most outcomes in one transaction, 1 or more; a full transaction is committed at once.
    #[schemars(range(min = 1))]
    pub max_outcomes: usize,
    /// Milliseconds before an aborted transaction is tried again.
    pub retry_backoff_ms: u64,
    /// Whether recorded outcomes are written to the `recorded` topic.
    pub publish_recorded: bool,
}

impl Default for CommitConfig {
    fn default() -> Self {
        Self { interval_ms: 50, max_outcomes: 500, retry_backoff_ms: 200, publish_recorded: true }
    }
}

/// Events for the committer, in the order in which they happened.
#[derive(Debug)]
pub enum Report {
    /// Reading of the partition begins.
    Assigned {
        /// The partition and its generation.
        assignment: Assignment,
        /// The committed offset.
        position: Option<i64>,
        /// The metadata of that commit.
        metadata: String,
    },
    /// The group takes these partitions back: commit what has finished, then report it.
    Revoked {
        /// The revoked partitions.
        partitions: Vec<i32>,
        /// Receives a message once the commit is certain.
        done: Sender<()>,
    },
    /// Another process already holds these partitions.
    Lost {
        /// The lost partitions.
        partitions: Vec<i32>,
        /// Receives a message once the last commit of the partitions is certain.
        settled: Sender<()>,
    },
    /// These offsets were polled.
    Polled {
        /// The partition and its generation.
        assignment: Assignment,
        /// Rising offsets.
        offsets: Vec<i64>,
    },
    /// Finished inputs, encoded.
    Ended(Box<EncodedBatch>),
    /// Nothing more will be reported: commit what waits, then end.
    End,
}

/// Collects outcomes and commits them. It has no thread and no clock: [`run`] drives it.
pub struct Committer {
    config: CommitConfig,
    producer: Box<dyn Producer>,
    flow: Arc<FlowControl>,
    ledger: Ledger,
    waiting: Vec<EncodedBatch>,
    /// The latest time for the next commit.
    due_ms: Option<u64>,
    /// When the latest commit began.
    committed_ms: Option<u64>,
    /// Whether the result of the last commit is in doubt.
    is_doubtful: bool,
    /// Receive a message once the last commit is certain.
    unsettled: Vec<Sender<()>>,
    counts: Counts,
    metrics: OutcomeMetrics,
    /// Whether the process must stop.
    stopping: Arc<AtomicBool>,
}

/// The counts of a committer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Inputs and the outcomes that were committed.
    pub tally: Tally,
    /// Inputs that were read again although they had finished before.
    pub skipped: u64,
    /// Outcomes of an older assignment that were dropped.
    pub stale: u64,
}

impl Committer {
    /// A committer without assignments.
    pub fn new(config: CommitConfig, producer: Box<dyn Producer>, flow: Arc<FlowControl>) -> Self {
        let (ledger, waiting, counts) = (Ledger::default(), Vec::new(), Counts::default());
        Self {
            config,
            producer,
            flow,
            ledger,
            waiting,
            due_ms: None,
            committed_ms: None,
            is_doubtful: false,
            unsettled: Vec::new(),
            counts,
            metrics: OutcomeMetrics::default(),
            stopping: Arc::default(),
        }
    }

    /// Counts in these metrics as well.
    #[must_use]
    pub fn counted_by(self, metrics: &OutcomeMetrics) -> Self {
        Self { metrics: metrics.clone(), ..self }
    }

    /// Gives a failing transaction at most ten seconds once `stopping` is set.
    #[must_use]
    pub fn until(self, stopping: Arc<AtomicBool>) -> Self {
        Self { stopping, ..self }
    }

    /// Records what happened, and commits when a transaction is full.
    ///
    /// # Errors
    /// The log refused a transaction, or holds positions that another program wrote. The process
    /// must stop.
    pub fn take(&mut self, report: Report, now_ms: u64) -> Result<(), CommitError> {
        self.note(report)?;
        if self.is_full() {
            self.committed_ms = Some(now_ms);
            return self.commit();
        }
        self.plan(now_ms);
        Ok(())
    }

    /// Commits what is due.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn wake(&mut self, now_ms: u64) -> Result<(), CommitError> {
        self.committed_ms = Some(now_ms);
        self.commit()?;
        self.plan(now_ms);
        Ok(())
    }

    fn plan(&mut self, now_ms: u64) {
        let due_ms = match (self.waiting.is_empty(), self.is_doubtful) {
            (false, _) => {
                self.committed_ms.map_or(now_ms, |at| now_ms.max(at + self.config.interval_ms))
            }
            (true, true) => now_ms + self.config.retry_backoff_ms,
            (true, false) => return,
        };
        self.due_ms.get_or_insert(due_ms);
    }

    /// The latest time to call [`Self::wake`]; `None` while nothing waits.
    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    fn note(&mut self, report: Report) -> Result<(), CommitError> {
        match report {
            Report::Assigned { assignment, position, metadata } => {
                let Assignment { partition, generation } = assignment;
                self.forget(partition);
                self.ledger
                    .assign(partition, generation, position, &metadata)
                    .map_err(|source| CommitError::Metadata { partition, source })?;
            }
            Report::Revoked { partitions, done } => {
                self.commit()?;
                self.unsettled.push(done);
                self.settle()?;
                for partition in partitions {
                    self.forget(partition);
                }
            }
            Report::Lost { partitions, settled } => {
                self.unsettled.push(settled);
                self.settle()?;
                for partition in partitions {
                    self.forget(partition);
                }
            }
            Report::Polled { assignment, offsets } => self.polled(assignment, &offsets),
            Report::Ended(ended) => self.ended(*ended),
            Report::End => self.commit()?,
        }
        Ok(())
    }

    fn polled(&mut self, assignment: Assignment, offsets: &[i64]) {
        let Assignment { partition, generation } = assignment;
        for offset in offsets {
            match self.ledger.polled(partition, generation, *offset) {
                Polled::Pending => {
                    self.counts.tally.inputs += 1;
                    self.metrics.inputs.inc();
                }
                Polled::AlreadyFinished => {
                    self.counts.skipped += 1;
                    self.metrics.skipped.inc();
                }
                Polled::Unexpected => {}
            }
        }
    }

    fn ended(&mut self, ended: EncodedBatch) {
        let EncodedBatch { partition, generation, .. } = ended;
        let mut offsets = ended.offsets.iter();
        // A group of inputs has one assignment, so all of it is pending or all of it is stale.
        if offsets.all(|offset| self.ledger.finished(partition, generation, *offset)) {
            let unscoped = ended.tally.dead_letters_by_stage.contains_key(&Stage::Ingest);
            if Broken::SkipByLastApplied.here() && unscoped {
                ended.offsets.iter().for_each(|at| self.ledger.leave_out(partition, *at));
            }
            self.waiting.push(ended);
        } else {
            self.counts.stale += ended.offsets.len() as u64;
            self.metrics.stale.inc_by(ended.offsets.len() as u64);
        }
    }

    /// Whether enough outcomes wait for a full transaction.
    fn is_full(&self) -> bool {
        self.waiting.iter().map(|ended| ended.offsets.len()).sum::<usize>()
            >= self.config.max_outcomes
    }

    /// Commits what waits, in one transaction. An aborted transaction was never visible and is
    /// tried again as it is, without a limit. Partitions that were lost meanwhile are left out. A
    /// partition whose finished offsets do not fit into the metadata waits for its lowest pending
    /// one.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn commit(&mut self) -> Result<(), CommitError> {
        self.due_ms = None;
        if self.is_doubtful {
            self.settle()?;
        }
        let (mut ended, mut transaction) = self.transaction();
        let (mut attempt, mut told, mut stopping) = (0, Instant::now(), None);
        while !ended.is_empty() {
            let Err(source) = self.producer.commit(&transaction) else { break };
            attempt += 1;
            if self.stopping.load(Ordering::Relaxed) {
                stopping.get_or_insert_with(Instant::now);
            }
            let is_over = stopping.is_some_and(|since| since.elapsed() >= AT_THE_END);
            if source.is_fatal() || is_over {
                return Err(CommitError::Log { attempt, source });
            }
            if let LogError::Stale { partitions } = &source {
                tracing::info!(
                    which = ?partitions,
                    "other processes own these partitions now; they write the outcomes"
                );
                transaction.outputs.retain(|output| !partitions.contains(&output.partition));
                transaction.positions.retain(|position| !partitions.contains(&position.partition));
                let gone = ended.extract_if(.., |ended| partitions.contains(&ended.partition));
                self.waiting.extend(gone);
                for partition in partitions {
                    self.forget(*partition);
                }
            } else {
                if attempt == 1 || told.elapsed() >= TELL {
                    told = Instant::now();
                    tracing::warn!(attempt, error = %source, "transaction aborted; retrying");
                }
                std::thread::sleep(Duration::from_millis(self.config.retry_backoff_ms));
            }
        }
        self.metrics.committed(ended.iter().map(|ended| &ended.tally));
        for ended in ended {
            self.counts.tally.add(&ended.tally);
            self.flow.settle(ended.partition, ended.offsets.len());
        }
        Ok(())
    }

    /// Makes the last commit certain. The next owner of its partitions waits for that, and may be
    /// this process.
    fn settle(&mut self) -> Result<(), CommitError> {
        let settled = self.producer.commit(&Transaction::default());
        let was_doubtful = std::mem::replace(&mut self.is_doubtful, settled.is_err());
        match settled {
            Err(source) if source.is_fatal() => Err(CommitError::Log { attempt: 1, source }),
            Err(error) => {
                if !was_doubtful {
                    tracing::warn!(%error, "the last commit is unconfirmed; checking again");
                }
                Ok(())
            }
            Ok(()) => {
                for settled in self.unsettled.drain(..) {
                    // The receiver may have given up waiting.
                    let _ = settled.send(());
                }
                Ok(())
            }
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Takes the waiting outcomes and puts them into a transaction.
    fn transaction(&mut self) -> (Vec<EncodedBatch>, Transaction) {
        let mut positions = BTreeMap::new();
        let mut waiting = std::mem::take(&mut self.waiting);
        for ended in &waiting {
            let ledger = &self.ledger;
            positions.entry(ended.partition).or_insert_with(|| {
                match ledger.position(ended.partition) {
                    Ok(position) => position,
                    Err(error) => {
                        tracing::warn!(%error, "outcomes wait");
                        None
                    }
                }
            });
        }
        let placed =
            |ended: &EncodedBatch| positions.get(&ended.partition).is_some_and(Option::is_some);
        self.waiting = waiting.extract_if(.., |ended| !placed(ended)).collect();
        let count = waiting.iter().map(|ended| ended.outputs.len()).sum();
        let mut outputs: Vec<Output> = Vec::with_capacity(count);
        for ended in &mut waiting {
            outputs.append(&mut ended.outputs);
        }
        if !self.producer.keeps_every_change() {
            outputs = only_last_change_per_key(outputs);
        }
        let positions = positions.into_values().flatten().collect();
        (waiting, Transaction { outputs, positions })
    }

    /// Drops the uncommitted inputs of a partition: its next owner answers them.
    fn forget(&mut self, partition: i32) {
        let of_it = self.waiting.extract_if(.., |ended| ended.partition == partition);
        let lost = of_it.map(|ended| ended.offsets.len()).sum::<usize>();
        let pending = self.ledger.pending_count(partition);
        self.counts.tally.inputs -= (pending + lost) as u64;
        self.metrics.given_back.inc_by((pending + lost) as u64);
        self.ledger.drop_partition(partition);
    }
}

/// Drives a committer until [`Report::End`], or until all senders are gone. Then commits what
/// waits.
pub fn run(mut committer: Committer, reports: &Receiver<Report>) -> Result<Committer, CommitError> {
    let started = Instant::now();
    loop {
        let report = match committer.due_ms() {
            None => reports.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due_ms) => reports.recv_deadline(started + Duration::from_millis(due_ms)),
        };
        match report {
            Ok(Report::End) | Err(RecvTimeoutError::Disconnected) => {
                committer.commit()?;
                return Ok(committer);
            }
            Ok(report) => committer.take(report, started.elapsed().as_millis() as u64)?,
            Err(RecvTimeoutError::Timeout) => {
                committer.wake(started.elapsed().as_millis() as u64)?;
            }
        }
    }
}

/// Keeps only the last changelog record of each key in a transaction.
fn only_last_change_per_key(outputs: Vec<Output>) -> Vec<Output> {
    let mut seen = BTreeSet::new();
    let mut kept: Vec<_> = outputs
        .into_iter()
        .rev()
        .filter(|output| {
            output.topic != Topic::History || seen.insert((output.partition, output.key.clone()))
        })
        .collect();
    kept.reverse();
    kept
}

/// Why the committer stopped.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The log refused a transaction.
    #[error("commit failed at attempt {attempt}: {source}")]
    Log {
        /// The number of attempts.
        attempt: u32,
        /// The error of the log.
        source: LogError,
    },
    /// Another program wrote the metadata that is committed for a partition.
    #[error(
        "partition {partition}: {source}; another program commits under our group id; give each \
         its own"
    )]
    Metadata {
        /// The partition.
        partition: i32,
        /// The problem.
        source: MetadataError,
    },
}

#[cfg(test)]
mod tests;
