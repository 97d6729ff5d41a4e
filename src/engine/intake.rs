//! Intake: passes inputs from the log's consumer to the workers, within the bounds of flow control.
//!
//! One thread owns it. It reports inputs to the committer before it sends them to a worker, so that
//! the committer knows every input whose outcome is reported.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError};
use turnstream_log::{Assignment, Consumer, Event, LogError, Record};
use turnstream_operators::flow::Original;
use turnstream_operators::ingest::{Input, InputRecord};
use turnstream_ports::cache::{CacheError, ScopeCache};

use crate::commit::Report;
use crate::commit::ledger::metadata::{MetadataError, OffsetRange, decode};
use crate::flow_control::FlowControl;
use crate::knowledge_feed::CaughtUp;
use crate::panics::WorkerError;
use crate::worker::Inlets;

mod restoring;

use restoring::Restoring;

/// How long the outcomes of a revoked partition may take to be committed before the partition is
/// given back.
const REVOKE_MS: u64 = 5_000;

/// Milliseconds before a failed restore is tried again.
const RESTORE_RETRY_MS: u64 = 100;

/// Milliseconds between two log lines about partitions that still cannot be restored.
const TELL_MS: u64 = 60_000;

/// The longest time without a poll while the process is full, in milliseconds. The client keeps what it
/// has fetched meanwhile; a pause would drop it. Then all partitions pause, so that polls, which
/// rebalances need, bring no more.
const HOLD_MS: u64 = 200;

/// The longest poll while revoked partitions are held, because other members wait for them.
const REVOKED_POLL: Duration = Duration::from_millis(2);

/// The state of the consumer thread. It has no clock: the caller passes the time.
pub struct Intake<W> {
    consumer: Box<dyn Consumer>,
    workers: W,
    reports: Sender<Report>,
    flow: Arc<FlowControl>,
    cache: Arc<dyn ScopeCache>,
    partitions: BTreeMap<i32, AssignedPartition>,
    /// Assigned and not restored yet, in the order of assignment.
    assigned: VecDeque<Assignment>,
    /// When the first of `assigned` is tried again.
    restore_at_ms: u64,
    /// When the process became full; absent while it has room.
    full_since_ms: Option<u64>,
    /// When the last warning about a failed restore was logged.
    told_ms: Option<u64>,
    revoked: Vec<Revoked>,
    /// Partitions that this process held and whose last commit is still in doubt.
    unsettled: Vec<Unsettled>,
    /// No partition is restored before the first reading of the topic of knowledge is complete.
    learned: CaughtUp,
}

/// Partitions that this process held, until their last commit is certain. None of them is restored
/// before that: a broker that crashed may have kept a part of a transaction.
struct Unsettled {
    partitions: Vec<i32>,
    settled: Receiver<()>,
}

impl Unsettled {
    fn is_over(&self) -> bool {
        !matches!(self.settled.try_recv(), Err(TryRecvError::Empty))
    }
}

/// Partitions that are given back once their finished inputs are committed.
struct Revoked {
    of: Unsettled,
    until_ms: u64,
}

/// A partition that this process holds.
struct AssignedPartition {
    generation: u32,
    paused: bool,
    /// Offsets that finished before the restart. Rising and apart.
    finished: Vec<OffsetRange>,
}

impl AssignedPartition {
    fn is_finished(&self, offset: i64) -> bool {
        let after = self.finished.partition_point(|range| range.last < offset);
        self.finished.get(after).is_some_and(|range| range.first <= offset)
    }
}

impl<W: Inlets> Intake<W> {
    /// An intake that has polled nothing. It restores changelogs into `cache`, from which the
    /// workers read.
    pub fn new(
        consumer: Box<dyn Consumer>,
        workers: W,
        reports: Sender<Report>,
        flow: Arc<FlowControl>,
        cache: Arc<dyn ScopeCache>,
    ) -> Self {
        Self {
            consumer,
            workers,
            reports,
            flow,
            cache,
            partitions: BTreeMap::new(),
            assigned: VecDeque::new(),
            restore_at_ms: 0,
            full_since_ms: None,
            told_ms: None,
            revoked: Vec::new(),
            unsettled: Vec::new(),
            learned: CaughtUp::nothing_to_learn(),
        }
    }

    /// Delays restoring until `learned` is done. Until then partitions stay assigned and polling
    /// keeps the membership alive.
    #[must_use]
    pub fn once(mut self, learned: CaughtUp) -> Self {
        self.learned = learned;
        self
    }

    /// Polls once at `now_ms`, for at most `wait`, and passes on what came. Returns `false` when no
    /// input will ever come again.
    ///
    /// # Errors
    /// Only errors that another poll cannot recover from.
    pub fn poll(&mut self, now_ms: u64, wait: Duration) -> Result<bool, IntakeError> {
        self.release(now_ms)?;
        self.restore(now_ms)?;
        if self.holds(now_ms, wait) {
            return Ok(true);
        }
        self.pause_and_resume()?;
        let mut held = self.partitions.values();
        let all_paused = held.len() > 0 && held.all(|held| held.paused);
        let wait = match () {
            () if !self.revoked.is_empty() => wait.min(REVOKED_POLL),
            () if !self.assigned.is_empty() && self.learned.is_done() => {
                wait.min(Duration::from_millis(self.restore_at_ms.saturating_sub(now_ms)))
            }
            () if all_paused && !wait.is_zero() => {
                self.flow.wait_for_settled(wait);
                Duration::ZERO
            }
            () => wait,
        };
        match self.consumer.poll(wait)? {
            Event::Records(records) => self.hand_on(records)?,
            Event::Assigned(assignments) => self.assigned.extend(assignments),
            Event::Revoked(partitions) => self.revoke(partitions, now_ms)?,
            Event::Lost(partitions) => {
                self.drop_partitions(&partitions)?;
                let (settles, settled) = crossbeam_channel::bounded(1);
                self.unsettled.push(Unsettled { partitions: partitions.clone(), settled });
                self.report(Report::Lost { partitions, settled: settles })?;
            }
            Event::End => return Ok(false),
        }
        Ok(true)
    }

    /// Stops polling and returns the consumer.
    pub fn stop(self) -> Box<dyn Consumer> {
        self.consumer
    }

    /// Waits for room instead of a poll if the process is full, for [`HOLD_MS`] in all and for at most
    /// `wait` at once. Returns whether it did.
    fn holds(&mut self, now_ms: u64, wait: Duration) -> bool {
        if !self.flow.is_process_full() {
            self.full_since_ms = None;
            return false;
        }
        let left = HOLD_MS.saturating_sub(now_ms - *self.full_since_ms.get_or_insert(now_ms));
        let holds = left > 0 && !wait.is_zero() && self.revoked.is_empty();
        if holds {
            self.flow.wait_for_settled(wait.min(Duration::from_millis(left)));
        }
        holds
    }

    fn pause_and_resume(&mut self) -> Result<(), IntakeError> {
        for (partition, held) in &mut self.partitions {
            if !held.paused && self.flow.is_full(*partition) {
                self.consumer.pause(*partition)?;
                held.paused = true;
            } else if held.paused && self.flow.has_room(*partition) {
                self.consumer.resume(*partition)?;
                held.paused = false;
            }
        }
        Ok(())
    }

    fn hand_on(&mut self, records: Vec<Record>) -> Result<(), IntakeError> {
        let mut by_partition: BTreeMap<i32, Vec<Record>> = BTreeMap::new();
        for record in records {
            by_partition.entry(record.partition).or_default().push(record);
        }
        for (partition, records) in by_partition {
            let Some(held) = self.partitions.get(&partition) else { continue };
            let generation = held.generation;
            let offsets = records.iter().map(|record| record.offset).collect();
            let assignment = Assignment { partition, generation };
            self.report(Report::Polled { assignment, offsets })?;
            let to_do = records.into_iter().filter(|record| !held.is_finished(record.offset));
            let inputs: Vec<_> = to_do.map(|record| input(record, generation)).collect();
            self.flow.admit(partition, inputs.len());
            self.workers.send(partition, inputs)?;
        }
        Ok(())
    }

    /// Restores the next assigned partition. Tries again later if an open transaction may still
    /// change what is read, or if the log does not answer.
    fn restore(&mut self, now_ms: u64) -> Result<(), IntakeError> {
        let Some(assignment) = self.assigned.front().copied() else { return Ok(()) };
        if now_ms < self.restore_at_ms || !self.learned.is_done() {
            return Ok(());
        }
        self.unsettled.retain(|unsettled| !unsettled.is_over());
        let partition = assignment.partition;
        if self.unsettled.iter().any(|unsettled| unsettled.partitions.contains(&partition)) {
            self.restore_later(now_ms, partition, "its last commit is not certain");
            return Ok(());
        }
        match self.assign(assignment) {
            // A rebalance took the partition back; the next poll reports that.
            Err(IntakeError::Log(LogError::Stale { .. })) => {}
            Err(IntakeError::Log(error)) if !error.is_fatal() => {
                self.restore_later(now_ms, partition, error);
                return Ok(());
            }
            restored => {
                restored?;
                self.told_ms = None;
            }
        }
        self.assigned.pop_front();
        Ok(())
    }

    /// Moves the partition to the end of the queue, so that those behind it need not wait.
    fn restore_later(&mut self, now_ms: u64, partition: i32, why: impl std::fmt::Display) {
        if self.told_ms.is_none_or(|told_ms| now_ms >= told_ms + TELL_MS) {
            self.told_ms = Some(now_ms);
            tracing::warn!(partition, error = %why, "cannot restore the partition yet; retrying");
        }
        self.restore_at_ms = now_ms + RESTORE_RETRY_MS;
        self.assigned.rotate_left(1);
    }

    /// Restores a partition into the cache and starts reading it.
    fn assign(&mut self, assignment: Assignment) -> Result<(), IntakeError> {
        let Assignment { partition, generation } = assignment;
        let mut restoring = Restoring::begin(&*self.cache, assignment)?;
        let restored = self.consumer.restore(partition, &mut |record| restoring.take(record))?;
        restoring.finish()?;
        let (position, metadata) = (restored.position, restored.metadata);
        let finished = decode(position.unwrap_or_default(), &metadata)
            .map_err(|source| IntakeError::Metadata { partition, source })?;
        tracing::info!(partition, generation, position, history = restored.records, "assigned");
        self.report(Report::Assigned { assignment, position, metadata })?;
        self.workers.send(partition, vec![Input::Assigned { partition, generation }])?;
        self.partitions
            .insert(partition, AssignedPartition { generation, paused: false, finished });
        self.consumer.resume(partition)?;
        Ok(())
    }

    /// Asks the committer to commit what has finished. [`Self::release`] gives the partitions back
    /// once that is done or its time is over. Other partitions go on meanwhile.
    fn revoke(&mut self, partitions: Vec<i32>, now_ms: u64) -> Result<(), IntakeError> {
        tracing::info!(which = ?partitions, "revoked");
        self.drop_partitions(&partitions)?;
        let (done, settled) = crossbeam_channel::bounded(1);
        let of = Unsettled { partitions: partitions.clone(), settled };
        self.report(Report::Revoked { partitions, done })?;
        self.revoked.push(Revoked { of, until_ms: now_ms + REVOKE_MS });
        Ok(())
    }

    /// Gives back all revoked partitions at once, when none of them waits any more.
    fn release(&mut self, now_ms: u64) -> Result<(), IntakeError> {
        if self.revoked.is_empty() {
            return Ok(());
        }
        self.revoked.retain(|revoked| !revoked.of.is_over());
        for late in self.revoked.extract_if(.., |revoked| now_ms >= revoked.until_ms) {
            tracing::warn!(
                "finished turns were not committed in time; the next owner serves them again"
            );
            self.unsettled.push(late.of);
        }
        if self.revoked.is_empty() {
            self.consumer.release()?;
        }
        Ok(())
    }

    fn drop_partitions(&mut self, partitions: &[i32]) -> Result<(), IntakeError> {
        self.assigned.retain(|assigned| !partitions.contains(&assigned.partition));
        for partition in partitions {
            self.partitions.remove(partition);
            // The committer hears of this later, when the partition may be assigned to us again
            // with inputs in flight. So it is forgotten here.
            self.flow.forget(*partition);
            self.workers.send(*partition, vec![Input::Revoked { partition: *partition }])?;
            // Turns that still need the cache are dropped: the partition's next owner answers them.
            self.cache.end(*partition);
        }
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
        followed: record.followed,
        answered: record.answered,
    })
}

/// Why the intake stopped.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A worker failed.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The committer is gone. Its own error says why.
    #[error("the committer stopped")]
    NoCommitter,
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
    /// The cache of histories failed.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

#[cfg(test)]
mod tests;
