//! The workers of a process, as the knowledge feed sees them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{SendTimeoutError, Sender};
use timely::scheduling::SyncActivator;
use turnstream_knowledge::{Changes, KnowledgeVersion};

use super::Learn;
use crate::panics::{WorkerError, WorkersPanic};

/// Most batches that wait for the workers. A topic that is read faster than the workers apply it is
/// held back and does not fill memory.
pub const BATCHES_AHEAD: usize = 16;

/// How often a blocked send checks that the workers are alive.
const LOOK: Duration = Duration::from_millis(100);

/// Sends changes to the first worker, which passes them to the others. All clones share one
/// channel.
#[derive(Clone)]
pub struct FedWorkers {
    inlet: Sender<Changes>,
    waker: SyncActivator,
    panic: WorkersPanic,
    reading: Reading,
}

impl FedWorkers {
    /// Takes the first worker's channel and its waker, and the versions that all workers read.
    pub fn new(
        inlet: Sender<Changes>,
        waker: SyncActivator,
        panic: WorkersPanic,
        reading: Reading,
    ) -> Self {
        Self { inlet, waker, panic, reading }
    }

    /// Closes the channel of changes, if no other clone holds it open.
    pub fn end(self) {
        let Self { inlet, waker, .. } = self;
        drop(inlet);
        // Another check notices a worker that is gone.
        let _ = waker.activate();
    }
}

impl Learn for FedWorkers {
    fn learn(&self, changes: Changes) -> Result<(), WorkerError> {
        let mut changes = changes;
        loop {
            // A panicked worker leaves others that wait for it, so the channel alone does not
            // report it.
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

/// The offsets of the graph's version that each worker reads. All clones share them.
#[derive(Clone, Debug)]
pub struct Reading(Arc<Mutex<Vec<BTreeMap<i32, i64>>>>);

impl Reading {
    /// Begins with workers that read the snapshot.
    pub fn of(workers: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![BTreeMap::new(); workers])))
    }

    /// The handle by which one worker reports its offsets.
    pub fn by(&self, worker: usize) -> ReadBy {
        ReadBy { reading: self.clone(), worker, told: BTreeMap::new() }
    }

    /// Whether every worker's version includes everything before these offsets.
    fn covers(&self, offsets: &BTreeMap<i32, i64>) -> bool {
        let reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reading.iter().all(|reads| {
            offsets.iter().all(|(at, end)| reads.get(at).copied().unwrap_or_default() >= *end)
        })
    }
}

/// One worker's handle on [`Reading`].
#[derive(Debug)]
pub struct ReadBy {
    reading: Reading,
    worker: usize,
    /// The last report. A worker calls [`Self::tell`] at every step, and mostly nothing has
    /// changed.
    told: BTreeMap<i32, i64>,
}

impl ReadBy {
    /// Reports that the worker reads this version now.
    pub fn tell(&mut self, version: &KnowledgeVersion) {
        let offsets = &version.state().offsets;
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
