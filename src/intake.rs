//! Intake: from the log's consumer to the workers, within the bounds of flow control.
//!
//! One thread owns it. It tells the committer about inputs before it hands them to a worker, so
//! that no outcome is reported for an input that the committer never saw.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use turnstream_operators::ingest::{Input, InputRecord, Original};
use turnstream_schemas::{EntryKey, HistoryChange};

use crate::commit::Report;
use crate::commit::ledger::{Ledger, MetadataError};
use crate::flow_control::FlowControl;
use crate::log::{Consumer, Event, LogError, Record};
use crate::worker::{WorkerError, Workers};

/// How long one poll waits, and how long a full process waits before it polls again: the
/// consumer must be polled every few seconds also while everything is paused.
const POLL: Duration = Duration::from_millis(50);

/// The state of the consumer thread.
pub struct Intake<'run> {
    consumer: Box<dyn Consumer>,
    workers: &'run Workers,
    reports: Sender<Report>,
    flow: Arc<FlowControl>,
    /// Partitions that are ours, and whether each is paused.
    partitions: BTreeMap<i32, bool>,
    generations: BTreeMap<i32, u32>,
    /// Finished offsets above the committed position, per partition.
    finished: Ledger,
    skipped: u64,
}

impl<'run> Intake<'run> {
    /// An intake that has polled nothing.
    pub fn new(
        consumer: Box<dyn Consumer>,
        workers: &'run Workers,
        reports: Sender<Report>,
        flow: Arc<FlowControl>,
    ) -> Self {
        let (partitions, generations) = (BTreeMap::new(), BTreeMap::new());
        let (finished, skipped) = (Ledger::default(), 0);
        Self { consumer, workers, reports, flow, partitions, generations, finished, skipped }
    }

    /// Polls once and hands on what came. `false` when no input will ever come again.
    pub fn poll(&mut self) -> Result<bool, IntakeError> {
        self.pause_and_resume()?;
        let all_paused = !self.partitions.is_empty() && self.partitions.values().all(|p| *p);
        if all_paused {
            self.flow.wait_for_settled(POLL);
        }
        let wait = if all_paused { Duration::ZERO } else { POLL };
        match self.consumer.poll(wait)? {
            Event::Records(records) => self.hand_on(records)?,
            Event::Assigned(partitions) => {
                for partition in partitions {
                    self.assign(partition)?;
                }
            }
            Event::Revoked(partitions) => {
                for partition in partitions {
                    self.revoke(partition)?;
                }
            }
            Event::End => return Ok(false),
        }
        Ok(true)
    }

    /// Stops polling: the consumer, and how many inputs were skipped because they had ended
    /// before.
    pub fn stop(self) -> (Box<dyn Consumer>, u64) {
        (self.consumer, self.skipped)
    }

    fn pause_and_resume(&mut self) -> Result<(), IntakeError> {
        for (partition, paused) in &mut self.partitions {
            if !*paused && self.flow.is_full(*partition) {
                self.consumer.pause(*partition)?;
                *paused = true;
            } else if *paused && self.flow.has_room(*partition) {
                self.consumer.resume(*partition)?;
                *paused = false;
            }
        }
        Ok(())
    }

    fn hand_on(&mut self, records: Vec<Record>) -> Result<(), IntakeError> {
        let mut by_partition: BTreeMap<i32, Vec<Record>> = BTreeMap::new();
        for record in records {
            if self.finished.is_finished(record.partition, record.offset) {
                self.skipped += 1;
            } else if self.partitions.contains_key(&record.partition) {
                by_partition.entry(record.partition).or_default().push(record);
            }
        }
        for (partition, records) in by_partition {
            let offsets: Vec<i64> = records.iter().map(|record| record.offset).collect();
            self.flow.admit(partition, offsets.len());
            self.report(Report::Polled { partition, offsets })?;
            let generation = self.generations[&partition];
            let inputs = records.into_iter().map(|record| input(record, generation));
            self.workers.send(partition, inputs)?;
        }
        Ok(())
    }

    fn assign(&mut self, partition: i32) -> Result<(), IntakeError> {
        let restored = self.consumer.restore(partition)?;
        let generation = self.generations.entry(partition).or_default();
        *generation += 1;
        let generation = *generation;
        self.finished
            .restore(partition, &restored)
            .map_err(|source| IntakeError::Metadata { partition, source })?;
        let changes = history_of(partition, &restored.changelog)?;
        tracing::info!(
            partition,
            generation,
            position = restored.position,
            history_records = changes.len(),
            "partition assigned"
        );
        self.report(Report::Assigned { partition, generation, restored })?;
        self.workers.send(
            partition,
            [Input::Assigned { partition, generation, restored: changes }],
        )?;
        self.partitions.insert(partition, false);
        self.consumer.resume(partition)?;
        Ok(())
    }

    fn revoke(&mut self, partition: i32) -> Result<(), IntakeError> {
        tracing::info!(partition, "partition revoked");
        self.partitions.remove(&partition);
        self.finished.drop_partition(partition);
        self.report(Report::Revoked { partition })?;
        self.workers.send(partition, [Input::Revoked { partition }])?;
        Ok(())
    }

    fn report(&self, report: Report) -> Result<(), IntakeError> {
        self.reports.send(report).map_err(|_| IntakeError::NoCommitter)
    }
}

fn input(record: Record, generation: u32) -> Input {
    Input::Record(InputRecord {
        partition: record.partition,
        generation,
        offset: record.offset,
        original: Original {
            key: record.key,
            value: record.value,
            headers: record.headers,
            time_ms: record.time_ms,
        },
        last_of_scope: record.last_of_scope,
    })
}

/// Reads the changelog of a partition.
fn history_of(partition: i32, changelog: &[Record]) -> Result<Vec<HistoryChange>, IntakeError> {
    let read = |record: &Record| -> Result<HistoryChange, serde_json::Error> {
        let key: EntryKey = serde_json::from_slice(record.key.as_deref().unwrap_or_default())?;
        Ok(match (&record.value, key.entry) {
            (None, _) => HistoryChange::Gone { key },
            (Some(value), Some(_)) => {
                HistoryChange::Entry { key, entry: serde_json::from_slice(value)? }
            }
            (Some(value), None) => {
                HistoryChange::Scope { key, record: serde_json::from_slice(value)? }
            }
        })
    };
    let changes = changelog.iter().map(|record| {
        read(record).map_err(|source| IntakeError::Changelog {
            partition,
            offset: record.offset,
            source,
        })
    });
    changes.collect()
}

/// Why the intake had to stop.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The workers.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The committer is gone; it says itself why.
    #[error("the committer stopped")]
    NoCommitter,
    /// The metadata committed for a partition is not ours.
    #[error(
        "partition {partition}: {source}; another program commits under our group id: give one \
         of them its own"
    )]
    Metadata {
        /// The partition.
        partition: i32,
        /// What is wrong with it.
        source: MetadataError,
    },
    /// A record of the history topic is not ours.
    #[error(
        "history topic, partition {partition}, offset {offset}: {source}; the topic must hold \
         nothing but this engine's histories"
    )]
    Changelog {
        /// The partition.
        partition: i32,
        /// The record's offset.
        offset: i64,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}
