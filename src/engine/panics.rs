//! Panics of the process's threads: written to the log, and kept for the error that ends the
//! process.
//!
//! A stage or a model contains its own panic, which costs one turn. Any other panic ends its thread
//! and with it the process. The process's error then carries the message, the place in the code and
//! the input that the thread was working on.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::panic::PanicHookInfo;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use turnstream_ports::panics::{input_at_work, is_contained, message};
use turnstream_schemas::RequestId;

/// The last panic of each thread that a panic ended, until [`Panicked::of`] takes it.
static KEPT: Mutex<Vec<(ThreadId, Panic)>> = Mutex::new(Vec::new());

fn kept() -> MutexGuard<'static, Vec<(ThreadId, Panic)>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The details of a thread's panic.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Panic {
    said: String,
    /// File, line and column.
    place: String,
    thread: String,
    input: Option<RequestId>,
}

impl Panic {
    fn of(info: &PanicHookInfo<'_>) -> Self {
        let place = info.location().map_or("an unknown place".to_owned(), ToString::to_string);
        let thread = thread::current().name().unwrap_or("without a name").to_owned();
        Self { said: message(info.payload()), place, thread, input: input_at_work() }
    }

    fn tell(&self, contained: bool) {
        let Self { said, place, thread, input } = self;
        let (partition, offset) = input.map(|input| (input.partition, input.offset)).unzip();
        // Captured only if `RUST_BACKTRACE` asks for it.
        let backtrace = Backtrace::capture();
        let backtrace = matches!(backtrace.status(), BacktraceStatus::Captured)
            .then(|| tracing::field::display(backtrace));
        if contained {
            let what = "contained a panic; only the work in progress is lost";
            tracing::warn!(said, place, thread, partition, offset, backtrace, "{what}");
        } else {
            tracing::error!(said, place, thread, partition, offset, backtrace, "a thread panicked");
        }
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { said, place, thread, input } = self;
        write!(f, "{said} (at {place}, in thread {thread}")?;
        if let Some(RequestId { partition, offset, .. }) = input {
            write!(f, ", while serving the input at partition {partition}, offset {offset}")?;
        }
        f.write_str(")")
    }
}

/// Why a thread ended, as part of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Panicked(Option<Panic>);

impl Panicked {
    /// The panic of the current thread.
    pub fn here() -> Self {
        Self::of(thread::current().id())
    }

    /// The panic that ended the thread. Taken: a second call finds nothing.
    pub fn of(thread: ThreadId) -> Self {
        let mut kept = kept();
        let at = kept.iter().position(|(of, _)| *of == thread);
        Self(at.map(|at| kept.swap_remove(at).1))
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(panic) => panic.fmt(f),
            None => f.write_str("its message is on standard error"),
        }
    }
}

/// Installs a hook that logs every panic of the process from now on and keeps those that end a
/// thread.
pub fn tell_all() {
    std::panic::set_hook(Box::new(|info| {
        let (panic, contained) = (Panic::of(info), is_contained());
        panic.tell(contained);
        if !contained {
            let (here, mut kept) = (thread::current().id(), kept());
            // Some runtimes catch a panic and go on, so the thread may have an older one.
            kept.retain(|(of, _)| *of != here);
            kept.push((here, panic));
        }
    }));
}

/// Why the first worker panicked, if one has. All clones share it.
#[derive(Clone, Debug, Default)]
pub struct WorkersPanic(Arc<OnceLock<Panicked>>);

impl WorkersPanic {
    /// Notes that this thread panicked. The first panic stays: later ones may be its consequence.
    pub fn note(&self) {
        let _ = self.0.set(Panicked::here());
    }

    /// Checks that no worker has panicked.
    ///
    /// # Errors
    /// [`WorkerError::Panicked`] if one has.
    pub fn check(&self) -> Result<(), WorkerError> {
        self.0.get().cloned().map_or(Ok(()), |why| Err(WorkerError::Panicked(why)))
    }

    /// The error to report when a worker is gone.
    pub fn error(&self) -> WorkerError {
        WorkerError::Panicked(self.0.get().cloned().unwrap_or_default())
    }
}

/// Why the workers failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Timely could not start them.
    #[error("the workers did not start: {0}")]
    Start(String),
    /// A worker panicked: a fault of the engine, since panics of stages are contained.
    #[error("a worker panicked: {0}; a restart goes on from the last commit")]
    Panicked(Panicked),
}
