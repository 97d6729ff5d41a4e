//! The ledger: which inputs have finished. Every commit takes its positions from it.
//!
//! Scopes finish out of order. A commit's offset can only be that of the lowest pending input,
//! while inputs above it may have finished already. The [`Ledger`] keeps, per partition, the polled
//! offsets and which of them have finished. For each commit it gives the [`Position`]: the lowest
//! pending offset, with the finished ones above it as metadata (see [`metadata`]). After a restart,
//! an offset that is read again and is in that metadata is skipped, because its outcome was
//! committed with it. The idea comes from Confluent's Parallel Consumer. It needs no barrier and
//! covers inputs that belong to no scope.
//!
//! Ranges run over *polled* offsets. Offsets between two polled ones hold control records, or
//! records that compaction removed. They are never polled, so a range may contain them.
//!
//! The ledger has no clock, no thread and no log. The committer feeds it the events of one channel,
//! so any prefix of them is a consistent cut.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use turnstream_ports::broken::Broken;

use turnstream_log::{METADATA_LIMIT_BYTES, Position};

pub mod metadata;
#[cfg(test)]
mod tests;

use metadata::{MetadataError, OffsetRange};

/// The classification of a polled offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// To be served. The caller reports its end by [`Ledger::finished`].
    Pending,
    /// Its outcome was committed before a restart: skip it.
    AlreadyFinished,
    /// Not above the offsets polled before, or of a partition or generation that the ledger does
    /// not hold. The ledger is unchanged.
    Unexpected,
}

/// Why the ledger cannot give a position.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The partition is not in the ledger.
    #[error("partition {0} is not held; it must be assigned before it is committed")]
    NotHeld(i32),
    /// The finished offsets do not fit into the metadata of a commit.
    #[error(
        "partition {partition}: the finished offsets above {offset} take {bytes} bytes, more \
         than the {limit} that a commit holds; poll no more than `room` allows"
    )]
    TooLong {
        /// Partition of the input topic.
        partition: i32,
        /// The lowest pending offset.
        offset: i64,
        /// Size of the encoded set.
        bytes: usize,
        /// The most bytes that a commit may carry.
        limit: usize,
    },
}

/// Polled, pending and finished inputs per partition.
#[derive(Debug)]
pub struct Ledger {
    partitions: BTreeMap<i32, PartitionLedger>,
    limit_bytes: usize,
}

#[derive(Debug)]
struct PartitionLedger {
    generation: u32,
    /// One above the last polled offset, or where reading begins; `None` until either is known.
    next: Option<i64>,
    /// Every polled offset from the lowest pending one on, rising, and whether it has finished.
    /// Never begins with a finished one.
    polled: VecDeque<(i64, bool)>,
    pending: usize,
    /// Finished before the restart and not yet polled again. Rising and apart.
    restored: VecDeque<OffsetRange>,
    /// Finished, but kept out of the metadata on purpose: see [`Broken::SkipByLastApplied`].
    left_out: BTreeSet<i64>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new(METADATA_LIMIT_BYTES)
    }
}

impl Ledger {
    /// An empty ledger whose positions carry at most `limit_bytes` of metadata.
    pub fn new(limit_bytes: usize) -> Self {
        Self { partitions: BTreeMap::new(), limit_bytes: limit_bytes.min(METADATA_LIMIT_BYTES) }
    }

    /// Begins a partition under this generation of its assignment, from the committed position and
    /// its metadata as [`Consumer::restore`](turnstream_log::Consumer::restore) returned them.
    pub fn assign(
        &mut self,
        partition: i32,
        generation: u32,
        position: Option<i64>,
        metadata: &str,
    ) -> Result<(), MetadataError> {
        let restored = metadata::decode(position.unwrap_or(0), metadata)?.into();
        let state = PartitionLedger {
            generation,
            next: position,
            polled: VecDeque::new(),
            pending: 0,
            restored,
            left_out: BTreeSet::new(),
        };
        self.partitions.insert(partition, state);
        Ok(())
    }

    /// Forgets a partition that was released or lost.
    pub fn drop_partition(&mut self, partition: i32) {
        self.partitions.remove(&partition);
    }

    /// Notes that an input was polled. The offsets of a partition must rise.
    pub fn polled(&mut self, partition: i32, generation: u32, offset: i64) -> Polled {
        let Some(state) = self.held(partition, generation) else {
            return Polled::Unexpected;
        };
        if state.next.is_some_and(|next| offset < next) {
            return Polled::Unexpected;
        }
        let finished = state.is_finished(offset);
        state.next = Some(offset + 1);
        while state.restored.front().is_some_and(|range| range.last <= offset) {
            state.restored.pop_front();
        }
        if finished {
            if !state.polled.is_empty() {
                state.polled.push_back((offset, true));
            }
            return Polled::AlreadyFinished;
        }
        state.polled.push_back((offset, false));
        state.pending += 1;
        Polled::Pending
    }

    /// Notes that an input has its outcome. Returns false and changes nothing if the input is not
    /// pending under this generation: the answer is late and must be dropped.
    pub fn finished(&mut self, partition: i32, generation: u32, offset: i64) -> bool {
        let Some(state) = self.held(partition, generation) else {
            return false;
        };
        let Ok(index) = state.polled.binary_search_by_key(&offset, |(offset, _)| *offset) else {
            return false;
        };
        if std::mem::replace(&mut state.polled[index].1, true) {
            return false;
        }
        state.pending -= 1;
        while state.polled.front().is_some_and(|(_, finished)| *finished) {
            state.polled.pop_front();
        }
        true
    }

    /// Keeps a finished offset out of the metadata. Breaks a promise on purpose, so that the crash
    /// simulation can show that it notices.
    pub(super) fn leave_out(&mut self, partition: i32, offset: i64) {
        if let Some(state) = self.partitions.get_mut(&partition) {
            state.left_out.insert(offset);
        }
    }

    /// Whether the offset has an outcome, so that it must not be served again.
    pub fn is_finished(&self, partition: i32, offset: i64) -> bool {
        self.partitions.get(&partition).is_some_and(|state| state.is_finished(offset))
    }

    /// The number of polled inputs of the partition without an outcome.
    pub fn pending_count(&self, partition: i32) -> usize {
        self.partitions.get(&partition).map_or(0, |state| state.pending)
    }

    /// How many more inputs of the partition may be polled so that its metadata fits in any order
    /// of finishing, as long as offsets do not leap by more than a million. Pause the partition
    /// while this is less than a batch.
    pub fn room(&self, partition: i32) -> usize {
        self.partitions.get(&partition).map_or(0, |state| state.room(self.limit_bytes))
    }

    /// The position to commit now: the lowest pending offset, or the next one to read if none is
    /// pending, with the finished ones above it. `None` until the ledger knows where reading
    /// begins.
    pub fn position(&self, partition: i32) -> Result<Option<Position>, LedgerError> {
        let state = self.partitions.get(&partition).ok_or(LedgerError::NotHeld(partition))?;
        let Some(offset) = state.lowest() else {
            return Ok(None);
        };
        if Broken::CommitPastPending.here() {
            let (generation, offset) = (state.generation, state.next.unwrap_or(offset));
            return Ok(Some(Position { partition, generation, offset, metadata: String::new() }));
        }
        let metadata = metadata::encode(offset, &state.finished_ranges());
        if metadata.len() > self.limit_bytes {
            return Err(LedgerError::TooLong {
                partition,
                offset,
                bytes: metadata.len(),
                limit: self.limit_bytes,
            });
        }
        Ok(Some(Position { partition, generation: state.generation, offset, metadata }))
    }

    /// The partitions that the ledger holds, rising.
    pub fn partitions(&self) -> impl Iterator<Item = i32> {
        self.partitions.keys().copied()
    }

    fn held(&mut self, partition: i32, generation: u32) -> Option<&mut PartitionLedger> {
        self.partitions
            .get_mut(&partition)
            .filter(|state| state.generation == generation || Broken::LateAnswers.here())
    }
}

impl PartitionLedger {
    fn lowest(&self) -> Option<i64> {
        self.polled.front().map(|(offset, _)| *offset).or(self.next)
    }

    fn is_finished(&self, offset: i64) -> bool {
        match self.next {
            Some(next) if offset < next => self
                .polled
                .binary_search_by_key(&offset, |(offset, _)| *offset)
                // Every polled offset below the lowest pending one has finished.
                .map_or(self.lowest().is_some_and(|lowest| offset < lowest), |at| {
                    self.polled[at].1
                }),
            _ => {
                let after = self.restored.partition_point(|range| range.last < offset);
                self.restored.get(after).is_some_and(|range| range.first <= offset)
            }
        }
    }

    /// Runs of finished offsets without a pending one between, rising.
    fn finished_ranges(&self) -> Vec<OffsetRange> {
        let mut ranges: Vec<OffsetRange> = Vec::new();
        let mut running = false;
        for &(offset, finished) in &self.polled {
            match ranges.last_mut() {
                _ if self.left_out.contains(&offset) => {}
                Some(range) if finished && running => range.last = offset,
                _ if finished => ranges.push(OffsetRange { first: offset, last: offset }),
                _ => {}
            }
            running = finished && !self.left_out.contains(&offset);
        }
        // A range that is being polled again counts only from `next` on: `polled` holds the rest.
        let next = self.next.unwrap_or(i64::MIN);
        ranges.extend(
            self.restored
                .iter()
                .map(|range| OffsetRange { first: range.first.max(next), last: range.last }),
        );
        ranges
    }

    fn room(&self, limit_bytes: usize) -> usize {
        let lowest = self.lowest().unwrap_or(0);
        let highest = self.restored.back().map(|range| range.last).max(self.next).unwrap_or(0);
        let worst = metadata::worst_range_bytes(highest.saturating_sub(lowest).max(0));
        // Every range ends at a pending offset or at one that is not polled yet.
        let ranges = self.pending + self.restored.len() + 1;
        (limit_bytes.saturating_sub(metadata::VERSION.len()) / worst).saturating_sub(ranges)
    }
}
