//! Flow control: bounds the inputs in flight, including waiting ones, per partition and per
//! process. A full partition is paused, so that one endless conversation pauses only its own
//! partition. Timely has no back-pressure.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts inputs from their poll to the commit of their outcome.
#[derive(Debug)]
pub struct FlowControl {
    max_per_partition: usize,
    max_in_all: usize,
    state: Mutex<State>,
    settled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    per_partition: BTreeMap<i32, usize>,
    in_all: usize,
}

impl FlowControl {
    /// Takes the bounds in inputs. Each is at least 1.
    pub fn new(max_per_partition: usize, max_in_all: usize) -> Self {
        Self {
            max_per_partition: max_per_partition.max(1),
            max_in_all: max_in_all.max(1),
            state: Mutex::default(),
            settled: Condvar::new(),
        }
    }

    /// Counts inputs that were polled.
    pub fn admit(&self, partition: i32, inputs: usize) {
        let mut state = self.state();
        *state.per_partition.entry(partition).or_default() += inputs;
        state.in_all += inputs;
    }

    /// Counts inputs whose outcomes were committed.
    pub fn settle(&self, partition: i32, inputs: usize) {
        let mut state = self.state();
        if let Some(in_flight) = state.per_partition.get_mut(&partition) {
            let settled = inputs.min(*in_flight);
            *in_flight -= settled;
            state.in_all -= settled;
        }
        self.settled.notify_all();
    }

    /// Forgets a partition that this process no longer holds.
    pub fn forget(&self, partition: i32) {
        let mut state = self.state();
        let gone = state.per_partition.remove(&partition).unwrap_or_default();
        state.in_all -= gone;
        self.settled.notify_all();
    }

    /// Whether the partition must pause.
    pub fn is_full(&self, partition: i32) -> bool {
        let state = self.state();
        state.of(partition) >= self.max_per_partition || state.in_all >= self.max_in_all
    }

    /// Whether all partitions together have reached the bound of the process.
    pub fn is_process_full(&self) -> bool {
        self.state().in_all >= self.max_in_all
    }

    /// Whether a paused partition may resume: both counts are at most half their bounds, so that it
    /// does not pause again at once.
    pub fn has_room(&self, partition: i32) -> bool {
        let state = self.state();
        state.of(partition) <= self.max_per_partition / 2 && state.in_all <= self.max_in_all / 2
    }

    /// Inputs in flight in the whole process.
    pub fn in_flight(&self) -> usize {
        self.state().in_all
    }

    /// Inputs in flight of each partition that has had any since it was assigned.
    pub fn in_flight_per_partition(&self) -> BTreeMap<i32, usize> {
        self.state().per_partition.clone()
    }

    /// Waits until an outcome is committed, for at most `wait`.
    pub fn wait_for_settled(&self, wait: Duration) {
        // The caller checks its condition again, whatever ended the wait.
        drop(self.settled.wait_timeout(self.state(), wait));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn of(&self, partition: i32) -> usize {
        self.per_partition.get(&partition).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog};
    use turnstream_log::{Assignment, Topic};

    use super::*;
    use crate::commit::{CommitConfig, Committer, Report};

    /// The committer hears of an assignment some time after the first inputs were admitted.
    #[test]
    fn a_committer_that_lags_behind_forgets_no_input_in_flight() {
        let log = EmbeddedLog::in_memory(&EmbeddedConfig::default()).unwrap();
        let consumer = log.consumer("group", Topic::Turns).unwrap();
        let producer = Box::new(log.producer(&consumer, "id").unwrap());
        let flow = Arc::new(FlowControl::new(4, 6));
        let mut committer = Committer::new(CommitConfig::default(), producer, Arc::clone(&flow));
        flow.admit(0, 3);
        let assignment = Assignment { partition: 0, generation: 1 };
        let metadata = String::new();
        committer.take(Report::Assigned { assignment, position: None, metadata }, 0).unwrap();
        assert_eq!(flow.in_flight(), 3);
        let (settled, _) = crossbeam_channel::bounded(1);
        committer.take(Report::Lost { partitions: vec![0], settled }, 0).unwrap();
        assert_eq!(flow.in_flight(), 3, "they may be those of the next assignment");
    }

    #[test]
    fn a_full_partition_pauses_itself_and_a_full_process_everybody() {
        let flow = FlowControl::new(4, 6);
        flow.admit(0, 4);
        assert!(flow.is_full(0) && !flow.is_full(1));
        flow.admit(1, 2);
        assert_eq!(flow.in_flight_per_partition(), [(0, 4), (1, 2)].into());
        assert!(flow.is_full(1), "six in all");
        flow.settle(0, 2);
        assert!(!flow.is_full(1) && !flow.has_room(1), "room comes at half of the bound");
        flow.settle(0, 2);
        assert!(flow.has_room(1));
        flow.forget(1);
        assert_eq!(flow.in_flight(), 0);
        flow.settle(1, 5);
        assert_eq!(flow.in_flight(), 0, "what was forgotten is not counted twice");
    }
}
