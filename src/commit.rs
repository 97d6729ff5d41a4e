//! The committer: one transaction at a time, it makes outcomes visible together with the
//! positions behind them.
//!
//! It sees polled offsets and ended inputs in one channel, so that any prefix of what it saw is
//! a consistent cut: a position never lies beyond an input that it does not know to have ended.
//! Scopes finish out of order, so the position of a partition is its lowest pending offset, and
//! the finished offsets above it travel in the commit's metadata (see [`ledger`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flow_control::FlowControl;
use crate::log::{LogError, Producer, Restored, Topic, Transaction};
use crate::tally::Tally;

pub mod encode;
pub mod ledger;

pub use encode::{Ended, encode};
use ledger::Ledger;

/// `[commit]`: how often outcomes become visible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CommitConfig {
    /// Milliseconds between transactions at most while outcomes wait. A response waits half of
    /// it on average. 0 commits whatever is there as soon as nothing more is.
    pub interval_ms: u64,
    /// Outcomes in one transaction at most, from 1; with so many it does not wait.
    pub max_outcomes: usize,
    /// How often a transaction that was aborted is tried again before the process stops.
    pub retries: u32,
    /// Milliseconds before an aborted transaction is tried again.
    pub retry_backoff_ms: u64,
    /// Whether recorded outcomes are written to the `recorded` topic.
    pub publish_recorded: bool,
}

impl Default for CommitConfig {
    fn default() -> Self {
        Self {
            interval_ms: 50,
            max_outcomes: 500,
            retries: 5,
            retry_backoff_ms: 200,
            publish_recorded: true,
        }
    }
}

/// What the committer is told, in the order in which it happened.
#[derive(Debug)]
pub enum Report {
    /// The partition begins here.
    Assigned {
        /// The partition.
        partition: i32,
        /// Its generation.
        generation: u32,
        /// Where it stood.
        restored: Restored,
    },
    /// The partition is another's.
    Revoked {
        /// The partition.
        partition: i32,
    },
    /// These offsets were polled and will each end.
    Polled {
        /// The partition.
        partition: i32,
        /// Rising offsets.
        offsets: Vec<i64>,
    },
    /// These inputs ended.
    Ended(Ended),
}

/// Collects outcomes and commits them. Holds no thread: [`run`] drives it.
pub struct Committer {
    config: CommitConfig,
    producer: Box<dyn Producer>,
    flow: Arc<FlowControl>,
    ledger: Ledger,
    generations: BTreeMap<i32, u32>,
    waiting: Vec<Ended>,
    moved: BTreeSet<i32>,
    tally: Tally,
    stale: u64,
}

impl Committer {
    /// A committer that has seen nothing.
    pub fn new(config: CommitConfig, producer: Box<dyn Producer>, flow: Arc<FlowControl>) -> Self {
        Self {
            config,
            producer,
            flow,
            ledger: Ledger::default(),
            generations: BTreeMap::new(),
            waiting: Vec::new(),
            moved: BTreeSet::new(),
            tally: Tally::default(),
            stale: 0,
        }
    }

    /// Takes note of what happened.
    pub fn take(&mut self, report: Report) -> Result<(), CommitError> {
        match report {
            Report::Assigned { partition, generation, restored } => {
                self.forget(partition);
                self.generations.insert(partition, generation);
                self.ledger.restore(partition, &restored).map_err(|source| {
                    CommitError::Metadata { partition, source }
                })?;
            }
            Report::Revoked { partition } => self.forget(partition),
            Report::Polled { partition, offsets } => {
                self.tally.inputs += offsets.len() as u64;
                for offset in offsets {
                    self.ledger.polled(partition, offset);
                }
            }
            Report::Ended(ended) => {
                if self.generations.get(&ended.partition) == Some(&ended.generation) {
                    for offset in &ended.offsets {
                        self.ledger.finished(ended.partition, *offset);
                    }
                    self.moved.insert(ended.partition);
                    self.waiting.push(ended);
                } else {
                    self.stale += ended.offsets.len() as u64;
                }
            }
        }
        Ok(())
    }

    /// Whether a transaction's worth of outcomes waits.
    pub fn is_full(&self) -> bool {
        self.waiting.iter().map(|ended| ended.offsets.len()).sum::<usize>()
            >= self.config.max_outcomes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Commits everything that waits, in one transaction. One that was aborted is tried again
    /// as it is: nothing of it was visible.
    pub fn commit(&mut self) -> Result<(), CommitError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut ended = std::mem::take(&mut self.waiting);
        let outputs = ended.iter_mut().flat_map(|ended| std::mem::take(&mut ended.outputs));
        let outputs = only_last_change_per_key(outputs.collect());
        let moved = std::mem::take(&mut self.moved);
        let positions = moved.into_iter().filter_map(|of| self.ledger.position(of)).collect();
        let transaction = Transaction { outputs, positions };
        let mut attempt = 0;
        while let Err(source) = self.producer.commit(&transaction) {
            attempt += 1;
            if source.is_fatal() || attempt > self.config.retries {
                return Err(CommitError::Log { attempt, source });
            }
            tracing::warn!(attempt, error = %source, "transaction aborted; trying again");
            std::thread::sleep(Duration::from_millis(self.config.retry_backoff_ms));
        }
        for ended in ended {
            self.tally.add(&ended.tally);
            self.flow.settle(ended.partition, ended.offsets.len());
        }
        Ok(())
    }

    /// What was counted so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Outcomes of an older assignment that were dropped.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// Drops what a partition has that is not committed: its next owner does it again.
    fn forget(&mut self, partition: i32) {
        let pending = self.ledger.pending_count(partition);
        let waiting = self.waiting.iter().filter(|ended| ended.partition == partition);
        let lost = waiting.map(|ended| ended.offsets.len()).sum::<usize>();
        self.tally.inputs -= (pending + lost) as u64;
        self.waiting.retain(|ended| ended.partition != partition);
        self.moved.remove(&partition);
        self.ledger.drop_partition(partition);
        self.generations.remove(&partition);
        self.flow.forget(partition);
    }
}

/// Drives a committer until everybody who reports to it is gone, then commits the rest.
pub fn run(mut committer: Committer, reports: &Receiver<Report>) -> Result<Committer, CommitError> {
    let interval = Duration::from_millis(committer.config.interval_ms);
    let mut due: Option<Instant> = None;
    loop {
        let report = match due {
            None => reports.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => reports.recv_deadline(due),
        };
        match report {
            Ok(report) => committer.take(report)?,
            Err(RecvTimeoutError::Timeout) => {
                committer.commit()?;
                due = None;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => {
                committer.commit()?;
                return Ok(committer);
            }
        }
        if committer.is_full() {
            committer.commit()?;
            due = None;
        } else if due.is_none() && !committer.is_empty() {
            due = Some(Instant::now() + interval);
        }
    }
}

/// Within a transaction only the last record per key of the changelog is sent.
fn only_last_change_per_key(outputs: Vec<crate::log::Output>) -> Vec<crate::log::Output> {
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

/// Why the committer had to stop.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The log would not take a transaction.
    #[error("commit failed at attempt {attempt}: {source}")]
    Log {
        /// How often it was tried.
        attempt: u32,
        /// What the log said.
        source: LogError,
    },
    /// The metadata committed for a partition is not ours.
    #[error(
        "partition {partition}: {source}; another program commits under our group id: give one \
         of them its own"
    )]
    Metadata {
        /// The partition.
        partition: i32,
        /// What is wrong with it.
        source: ledger::MetadataError,
    },
}
