//! The workers of a process, as whoever learns reaches them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{SendTimeoutError, Sender};
use timely::scheduling::SyncActivator;
use turnstream_knowledge::{Changes, Moment};

use super::Learn;
use crate::panics::{WorkerError, WorkersPanic};

/// Batches that may wait for the workers: a topic that is read faster than it is learned is held
/// back, rather than kept in memory.
pub const BATCHES_AHEAD: usize = 16;

/// How often workers that are behind are looked after.
const LOOK: Duration = Duration::from_millis(100);

/// Hands changes to the first worker, which hands them to the others. Clones are the same.
#[derive(Clone)]
pub struct Learners {
    inlet: Sender<Changes>,
    waker: SyncActivator,
    panic: WorkersPanic,
    reading: Reading,
}

impl Learners {
    /// The first worker's inlet and what wakes it, and what all of them read.
    pub fn new(
        inlet: Sender<Changes>,
        waker: SyncActivator,
        panic: WorkersPanic,
        reading: Reading,
    ) -> Self {
        Self { inlet, waker, panic, reading }
    }

    /// Ends the changes, where nobody else holds them open.
    pub fn end(self) {
        let Self { inlet, waker, .. } = self;
        drop(inlet);
        // A worker that is gone already is found out elsewhere.
        let _ = waker.activate();
    }
}

impl Learn for Learners {
    fn learn(&self, changes: Changes) -> Result<(), WorkerError> {
        let mut changes = changes;
        loop {
            // One that panicked leaves others that wait for it.
            self.panic.check()?;
            match self.inlet.send_timeout(changes, LOOK) {
                Ok(()) => break,
                Err(SendTimeoutError::Timeout(back)) => changes = back,
                Err(SendTimeoutError::Disconnected(_)) => return Err(self.panic.error()),
            }
        }
        self.waker.activate().map_err(|_| self.panic.error())
    }

    fn knows(&self, offsets: &BTreeMap<i32, i64>) -> Result<bool, WorkerError> {
        self.panic.check()?;
        Ok(self.reading.covers(offsets))
    }
}

/// The offsets of the moment that each worker reads. Clones are the same.
#[derive(Clone, Debug)]
pub struct Reading(Arc<Mutex<Vec<BTreeMap<i32, i64>>>>);

impl Reading {
    /// Of workers that read the snapshot.
    pub fn of(workers: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![BTreeMap::new(); workers])))
    }

    /// What one worker tells of itself.
    pub fn by(&self, worker: usize) -> ReadBy {
        ReadBy { reading: self.clone(), worker, told: BTreeMap::new() }
    }

    /// Whether every worker reads everything before these offsets.
    fn covers(&self, offsets: &BTreeMap<i32, i64>) -> bool {
        let reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reading.iter().all(|reads| {
            offsets.iter().all(|(at, end)| reads.get(at).copied().unwrap_or_default() >= *end)
        })
    }
}

/// One worker's part of [`Reading`].
#[derive(Debug)]
pub struct ReadBy {
    reading: Reading,
    worker: usize,
    /// What was told last: a worker tells at every step, and nothing most of the time.
    told: BTreeMap<i32, i64>,
}

impl ReadBy {
    /// The worker reads this moment now.
    pub fn tell(&mut self, moment: &Moment) {
        let offsets = &moment.state().offsets;
        if *offsets == self.told {
            return;
        }
        self.told.clone_from(offsets);
        let mut reading = self.reading.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reads) = reading.get_mut(self.worker) {
            reads.clone_from(offsets);
        }
    }
}
