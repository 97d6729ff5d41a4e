//! A follower of a topic of the embedded log.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::super::{Follower, LogError, Record, Topic};
use super::state::LogState;
use super::{EmbeddedLog, Isolation};

/// Reads every partition of a topic from its beginning, without a group.
pub struct EmbeddedFollower {
    log: EmbeddedLog,
    topic: Topic,
    /// The next offset of each partition.
    positions: BTreeMap<i32, i64>,
    /// The ends at the time of opening, of the partitions whose end is not yet reached.
    behind: BTreeMap<i32, i64>,
}

impl EmbeddedFollower {
    pub(super) fn open(log: EmbeddedLog, topic: Topic) -> Self {
        let state = log.state();
        let ends =
            (0..state.partitions).map(|partition| (partition, state.end((topic, partition))));
        let behind = ends.filter(|(_, end)| *end > 0).collect();
        let positions = (0..state.partitions).map(|partition| (partition, 0)).collect();
        drop(state);
        Self { log, topic, positions, behind }
    }

    /// Reads at most `max` records without waiting.
    fn take(&mut self, state: &LogState, max: usize) -> Result<Vec<Record>, LogError> {
        let mut taken = Vec::new();
        for (partition, position) in &mut self.positions {
            let place = (self.topic, *partition);
            let left = max - taken.len();
            let (records, next) = state.read(place, *position, left, Isolation::ReadCommitted)?;
            *position = next;
            taken.extend(records);
        }
        let positions = &self.positions;
        self.behind.retain(|partition, end| positions[partition] < *end);
        Ok(taken)
    }
}

impl Follower for EmbeddedFollower {
    fn poll(&mut self, wait: Duration) -> Result<Vec<Record>, LogError> {
        let log = self.log.clone();
        let deadline = (!wait.is_zero()).then(|| Instant::now() + wait);
        let mut state = log.state();
        loop {
            let records = self.take(&state, log.shared.config.poll_records)?;
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            match left {
                Some(left) if records.is_empty() && !left.is_zero() => {
                    let waited = log.shared.changed.wait_timeout(state, left);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                _ => return Ok(records),
            }
        }
    }

    fn positions(&self) -> BTreeMap<i32, i64> {
        self.positions.clone()
    }

    fn has_caught_up(&self) -> bool {
        self.behind.is_empty()
    }

    fn lag(&self) -> BTreeMap<i32, u64> {
        let state = self.log.state();
        let lag = self.positions.iter().map(|(partition, position)| {
            let end = state.stable_end((self.topic, *partition));
            (*partition, u64::try_from(end - position).unwrap_or_default())
        });
        lag.collect()
    }
}
