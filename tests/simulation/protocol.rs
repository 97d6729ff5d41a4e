//! Steps through the commit protocol, with a crash or an abort wherever the world plans one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use turnstream_log::embedded::{EmbeddedConsumer, EmbeddedProducer};
use turnstream_log::{Consumer, Event, LogError, Producer, Restored, TakeChangelog, Transaction};

/// A place in the commit of a transaction at which a fault can happen. Each step ends where the
/// next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// No output is written.
    BeforeSend,
    /// Some outputs are written.
    AmidSend,
    /// All outputs are written, no positions.
    AfterSend,
    /// The positions are added; nothing is visible.
    AfterOffsets,
    /// Everything is visible; the committer has no answer yet.
    AfterCommit,
    /// The committer has its answer, and has done nothing since.
    AfterAcknowledgement,
}

impl Step {
    /// All steps, in order.
    pub(crate) const ALL: [Self; 6] = [
        Self::BeforeSend,
        Self::AmidSend,
        Self::AfterSend,
        Self::AfterOffsets,
        Self::AfterCommit,
        Self::AfterAcknowledgement,
    ];
}

/// A fault at a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process dies and leaves its transaction open.
    Crash(Step),
    /// The transaction is aborted, and the committer gets the error. Not after the commit.
    Abort(Step),
}

/// Shared state of the world and both ends of one instance's log.
#[derive(Default)]
pub(crate) struct Wire {
    planned: Mutex<Option<Fault>>,
    /// The step at which the process died.
    crashed: Mutex<Option<Step>>,
    /// Whether the process dies without leaving the group.
    silently: AtomicBool,
    commits: AtomicU64,
    aborts: AtomicU64,
    /// The beginnings and ends of calls to the log so far, and the one at which this process is
    /// killed; 0 for none.
    calls: AtomicU64,
    kill_at: AtomicU64,
}

impl Wire {
    /// Plans a fault for the next commit.
    pub(crate) fn plan(&self, fault: Fault) {
        *self.planned.lock().expect("one thread") = Some(fault);
    }

    /// Removes the planned fault.
    pub(crate) fn calm(&self) {
        *self.planned.lock().expect("one thread") = None;
    }

    /// Returns the step at which the process died, if it did.
    pub(crate) fn crashed(&self) -> Option<Step> {
        *self.crashed.lock().expect("one thread")
    }

    /// Makes the consumer not leave the group when it is dropped.
    pub(crate) fn die(&self) {
        self.silently.store(true, Ordering::Relaxed);
    }

    fn at(&self, step: Step) -> Option<Fault> {
        let mut planned = self.planned.lock().expect("one thread");
        planned.take_if(|fault| matches!(*fault, Fault::Crash(at) | Fault::Abort(at) if at == step))
    }

    /// Plans to kill this very process at the beginning or end of a call to the log, counted from
    /// 1.
    pub(crate) fn kill_at(&self, call: u64) {
        self.kill_at.store(call, Ordering::Relaxed);
    }

    /// Counts the beginning or the end of a call to the log.
    fn called(&self) {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if calls == self.kill_at.load(Ordering::Relaxed) {
            crate::directory::kill_this_process();
        }
    }

    /// Runs a call to the log.
    fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        self.called();
        let done = call();
        self.called();
        done
    }

    /// Notes that the process died here. Nothing handles the returned error.
    fn die_at(&self, step: Step) -> LogError {
        *self.crashed.lock().expect("one thread") = Some(step);
        LogError::Refused("the process died".to_owned())
    }

    /// Whether the process dies after the committer learned of a commit.
    pub(crate) fn dies_after_acknowledgement(&self, commits_before: u64) -> bool {
        let step = Step::AfterAcknowledgement;
        let dies = self.commits() > commits_before && self.at(step).is_some();
        if dies {
            let _ = self.die_at(step);
        }
        dies
    }

    /// Returns the number of committed transactions.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Returns the number of aborted transactions.
    pub(crate) fn aborts(&self) -> u64 {
        self.aborts.load(Ordering::Relaxed)
    }
}

/// The producer of an instance.
pub(crate) struct SteppedProducer {
    pub(crate) inner: EmbeddedProducer,
    pub(crate) wire: Arc<Wire>,
}

impl Producer for SteppedProducer {
    fn commit(&mut self, transaction: &Transaction) -> Result<(), LogError> {
        if transaction.positions.is_empty() {
            return Ok(());
        }
        let wire = Arc::clone(&self.wire);
        let mut open = wire.call(|| self.inner.begin())?;
        for step in &Step::ALL[..Step::AfterCommit as usize] {
            match wire.at(*step) {
                // Dropping the transaction leaves it open.
                Some(Fault::Crash(step)) => return Err(wire.die_at(step)),
                Some(Fault::Abort(_)) => {
                    open.abort()?;
                    wire.aborts.fetch_add(1, Ordering::Relaxed);
                    return Err(LogError::Unsettled { what: "aborted by the broker".to_owned() });
                }
                None => {}
            }
            let done = wire.call(|| match step {
                Step::BeforeSend => open.outputs(&part(transaction, |at, half| at < half)),
                Step::AmidSend => open.outputs(&part(transaction, |at, half| at >= half)),
                Step::AfterSend => open.positions(transaction),
                _ => Ok(()),
            });
            if let Err(error) = done {
                open.abort()?;
                return Err(error);
            }
        }
        wire.call(|| open.commit())?;
        wire.commits.fetch_add(1, Ordering::Relaxed);
        match wire.at(Step::AfterCommit) {
            Some(_) => Err(wire.die_at(Step::AfterCommit)),
            None => Ok(()),
        }
    }
}

/// Returns the outputs that `of` selects, given their index and the half of their number; all
/// positions.
fn part(transaction: &Transaction, of: impl Fn(usize, usize) -> bool) -> Transaction {
    let half = transaction.outputs.len() / 2;
    let outputs = transaction.outputs.iter().enumerate().filter(|(at, _)| of(*at, half));
    Transaction {
        outputs: outputs.map(|(_, output)| output.clone()).collect(),
        positions: transaction.positions.clone(),
    }
}

/// The consumer of an instance: the log's own, but a dead process does not leave the group.
pub(crate) struct MortalConsumer {
    inner: Option<EmbeddedConsumer>,
    wire: Arc<Wire>,
}

impl MortalConsumer {
    pub(crate) fn new(inner: EmbeddedConsumer, wire: Arc<Wire>) -> Self {
        Self { inner: Some(inner), wire }
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut EmbeddedConsumer) -> T) -> T {
        let inner = self.inner.as_mut().expect("taken only when dropped");
        self.wire.call(|| call(inner))
    }
}

impl Drop for MortalConsumer {
    fn drop(&mut self) {
        if self.wire.silently.load(Ordering::Relaxed)
            && let Some(inner) = self.inner.take()
        {
            inner.crash();
        }
    }
}

impl Consumer for MortalConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Event, LogError> {
        self.call(|inner| inner.poll(wait))
    }

    fn pause(&mut self, partition: i32) -> Result<(), LogError> {
        self.call(|inner| inner.pause(partition))
    }

    fn resume(&mut self, partition: i32) -> Result<(), LogError> {
        self.call(|inner| inner.resume(partition))
    }

    fn restore(
        &mut self,
        partition: i32,
        changelog: TakeChangelog<'_>,
    ) -> Result<Restored, LogError> {
        self.call(|inner| inner.restore(partition, changelog))
    }

    fn release(&mut self) -> Result<(), LogError> {
        self.call(|inner| inner.release())
    }
}
