//! Connects the dataflow's workers with a server: a bounded queue, and one thread that runs up to a
//! configured number of requests at once.
//!
//! Asking never blocks: a full queue hands the request back. An abandoned request is cancelled,
//! which closes its connection. Dropping the queue drops all queued and active requests.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use turnstream_ports::model::{Busy, CallError, Model, Reply};

use crate::metrics::RemoteMetrics;
use tokio::runtime;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::LocalSet;

use super::config::RemoteConfig;

/// How often an active request checks whether its stage still waits.
const LOOK: Duration = Duration::from_millis(20);

/// Answers requests, on the queue's own thread.
pub(super) trait Work<Q, A>: 'static {
    /// Answers one request.
    async fn work(&self, request: &Q) -> Result<A, CallError>;
}

/// The sending end of the queue.
pub(super) struct Queue<Q, A> {
    name: String,
    waiting: mpsc::Sender<(Q, Reply<A>)>,
    metrics: RemoteMetrics,
    /// Dropping the sender ends the thread.
    _alive: oneshot::Sender<()>,
}

impl<Q: Send + 'static, A: Send + 'static> Queue<Q, A> {
    /// Starts the thread, and calls `begin` on it to make the [`Work`].
    ///
    /// # Errors
    /// The system cannot start the thread.
    pub(super) fn start<W: Work<Q, A>>(
        name: &str,
        begin: impl FnOnce() -> W + Send + 'static,
        config: &RemoteConfig,
        metrics: RemoteMetrics,
    ) -> io::Result<Self> {
        let (waiting, queue) = mpsc::channel(config.queue_requests);
        let (alive, gone) = oneshot::channel();
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (most, counted) = (config.max_concurrent, metrics.clone());
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let tasks = LocalSet::new();
            tasks.block_on(&runtime, async {
                tokio::select! {
                    () = hand_out(begin(), queue, most, &counted) => {}
                    _ = gone => {}
                }
            });
            // Dropping the active requests answers and disconnects them.
            drop(tasks);
            counted.queued.set(0);
        })?;
        Ok(Self { name: name.to_owned(), waiting, metrics, _alive: alive })
    }
}

impl<Q: Send, A: Send> Model<Q, A> for Queue<Q, A> {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, request: Q, reply: Reply<A>) -> Result<(), Busy<Q, A>> {
        // Increment before sending: the thread may take the request at once.
        self.metrics.queued.inc();
        self.waiting.try_send((request, reply)).map_err(|error| {
            self.metrics.queued.dec();
            self.metrics.refused.inc();
            let (TrySendError::Full(waiting) | TrySendError::Closed(waiting)) = error;
            let (request, reply) = waiting;
            Busy { request, reply }
        })
    }
}

/// Starts requests in order, within the limit of active requests.
async fn hand_out<Q: 'static, A: 'static>(
    work: impl Work<Q, A>,
    mut queue: mpsc::Receiver<(Q, Reply<A>)>,
    most: usize,
    metrics: &RemoteMetrics,
) {
    let (work, permits) = (Rc::new(work), Arc::new(Semaphore::new(most)));
    // Take the permit first, so that no request waits outside the queue. The semaphore is never
    // closed.
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        let Some((request, reply)) = queue.recv().await else { return };
        metrics.queued.dec();
        let (work, metrics) = (Rc::clone(&work), metrics.clone());
        tokio::task::spawn_local(async move {
            let _permit = permit;
            answer(&*work, &request, reply, &metrics).await;
        });
    }
}

/// Answers one request, or drops it once abandoned.
async fn answer<Q, A>(
    work: &impl Work<Q, A>,
    request: &Q,
    reply: Reply<A>,
    metrics: &RemoteMetrics,
) {
    if reply.is_abandoned() {
        metrics.skipped.inc();
        return;
    }
    let _under_way = InFlight::begin(metrics);
    let abandoned = async {
        while !reply.is_abandoned() {
            tokio::time::sleep(LOOK).await;
        }
    };
    let answer = tokio::select! {
        answer = work.work(request) => Some(answer),
        () = abandoned => None,
    };
    match answer {
        Some(answer) => reply.answer(answer),
        None => {
            metrics.skipped.inc();
        }
    }
}

/// Counts an active request until it is dropped.
struct InFlight<'a>(&'a RemoteMetrics);

impl<'a> InFlight<'a> {
    fn begin(metrics: &'a RemoteMetrics) -> Self {
        metrics.in_flight.inc();
        Self(metrics)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.dec();
    }
}
