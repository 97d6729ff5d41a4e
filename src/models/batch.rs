//! Runs models in this process. Requests of all stages and workers wait in a bounded queue, and
//! inference threads answer them in batches.
//!
//! A worker never waits here: [`Batched`] takes a request or hands it back at once. If it hands the
//! request back, `call` holds the turn and its input stays in flight; at `turns.max_in_flight` the
//! engine stops reading the log. A slow model therefore slows the source down, and memory stays
//! flat.
//!
//! One idle thread at a time gathers a batch ([`gathering`] decides when it closes) while the other
//! threads compute. When all threads are busy, requests accumulate in the queue. A small memory of
//! recent outputs answers repeated texts without the model.

use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError};
use quick_cache::sync::Cache;
use rustc_hash::FxHashMap;
use turnstream_ports::model::encoder::Encoded;
use turnstream_ports::model::{Busy, CallError, Model, Reply};
use turnstream_ports::panics::contain;

use crate::metrics::ModelMetrics;

pub mod backends;
pub mod gathering;
#[cfg(test)]
mod tests;

use gathering::{Bounds, Gathering, Next, Size};

/// A model that computes batches on the calling thread.
pub trait Backend: Send + Sync + 'static {
    /// An item of a request, such as a text or a pair of texts.
    type Item: Clone + Eq + Hash + Send + Sync + 'static;
    /// The result for an item. Cheap to clone.
    type Output: Clone + Send + Sync + 'static;

    /// The model's name.
    fn name(&self) -> &str;

    /// Estimates the tokens of an item, without a tokenizer.
    fn tokens(&self, item: &Self::Item) -> usize;

    /// Computes the output of each item, in order. Items come sorted by [`Self::tokens`], without
    /// duplicates.
    ///
    /// # Errors
    /// The model's error; every request of the batch is answered with it.
    fn run(&self, items: &[Self::Item]) -> Result<(Vec<Self::Output>, Encoded), String>;
}

/// The bounds of a model's queue, batches and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that may wait, from 1.
    pub queue: usize,
    /// Bounds of a batch.
    pub batch: Bounds,
    /// Items whose outputs are remembered; the least used are dropped. 0 remembers none.
    pub remembered: usize,
}

/// The inference threads that may compute at the same time, over all models of the process. Clones
/// share the limit.
#[derive(Clone)]
pub struct Threads {
    count: usize,
    idle: Receiver<()>,
    give_back: Sender<()>,
}

impl Threads {
    /// Allows `count` threads, at least 1.
    pub fn new(count: usize) -> Self {
        let count = count.max(1);
        let (give_back, idle) = crossbeam_channel::bounded(count);
        for _ in 0..count {
            // The channel has room for `count`, so this does not fail.
            let _ = give_back.try_send(());
        }
        Self { count, idle, give_back }
    }

    /// Waits for an idle thread.
    fn take(&self) -> Taken<'_> {
        // `self` holds the sender, so this does not fail.
        let _ = self.idle.recv();
        Taken(self)
    }
}

/// Permission to compute; dropping it returns the thread.
struct Taken<'a>(&'a Threads);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let _ = self.0.give_back.try_send(());
    }
}

/// A queued request.
struct Waiting<B: Backend> {
    items: Vec<B::Item>,
    reply: Reply<Vec<B::Output>>,
    size: Size,
    came: Duration,
}

/// A model behind its queue. After a drop, its threads finish the queue and end.
pub struct Batched<B: Backend> {
    shared: Arc<Shared<B>>,
    queue: Sender<Waiting<B>>,
}

struct Shared<B: Backend> {
    backend: B,
    limits: Limits,
    threads: Threads,
    metrics: ModelMetrics,
    started: Instant,
    remembered: Option<Cache<B::Item, B::Output>>,
    /// Held by the gathering thread.
    gathering: Mutex<Gatherer<B>>,
}

/// The receiving end of the queue.
struct Gatherer<B: Backend> {
    queue: Receiver<Waiting<B>>,
    /// A request that did not fit into the previous batch.
    left: Option<Waiting<B>>,
}

impl<B: Backend> Batched<B> {
    /// Starts as many threads as may compute at once.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub fn start(
        backend: B,
        limits: Limits,
        threads: &Threads,
        metrics: ModelMetrics,
    ) -> std::io::Result<Self> {
        let (queue, far_end) = crossbeam_channel::bounded(limits.queue.max(1));
        let shared = Arc::new(Shared {
            backend,
            limits,
            threads: threads.clone(),
            metrics,
            started: Instant::now(),
            remembered: (limits.remembered > 0).then(|| Cache::new(limits.remembered)),
            gathering: Mutex::new(Gatherer { queue: far_end, left: None }),
        });
        for index in 0..threads.count {
            let shared = Arc::clone(&shared);
            let name = format!("{} {index}", shared.backend.name());
            std::thread::Builder::new().name(name).spawn(move || shared.work())?;
        }
        Ok(Self { shared, queue })
    }
}

impl<B: Backend> Model<Vec<B::Item>, Vec<B::Output>> for Batched<B> {
    fn name(&self) -> &str {
        self.shared.backend.name()
    }

    fn ask(
        &self,
        items: Vec<B::Item>,
        reply: Reply<Vec<B::Output>>,
    ) -> Result<(), Busy<Vec<B::Item>, Vec<B::Output>>> {
        let Shared { backend, metrics, started, .. } = &*self.shared;
        if let Some(outputs) = self.shared.recall(&items) {
            reply.answer(Ok(outputs));
            return Ok(());
        }
        let tokens = items.iter().map(|item| backend.tokens(item)).sum();
        let size = Size { tokens, texts: items.len() };
        // Increment before sending: a thread may take the request at once.
        metrics.queued.inc();
        let waiting = Waiting { items, reply, size, came: started.elapsed() };
        self.queue.try_send(waiting).map_err(|error| {
            metrics.queued.dec();
            metrics.refused.inc();
            let (TrySendError::Full(waiting) | TrySendError::Disconnected(waiting)) = error;
            Busy { request: waiting.items, reply: waiting.reply }
        })
    }
}

impl<B: Backend> Shared<B> {
    /// Returns the outputs of all items if all are remembered.
    fn recall(&self, items: &[B::Item]) -> Option<Vec<B::Output>> {
        let remembered = self.remembered.as_ref()?;
        let outputs: Vec<_> = items.iter().map_while(|item| remembered.get(item)).collect();
        let all = outputs.len() == items.len();
        all.then(|| {
            self.metrics.remembered.inc_by(items.len() as u64);
            outputs
        })
    }

    /// The main loop of a thread: gather a batch, let the next thread gather, compute.
    fn work(&self) {
        loop {
            let gathered = {
                let mut gatherer = self.gathering.lock().unwrap_or_else(PoisonError::into_inner);
                self.gather(&mut gatherer)
            };
            let Some((batch, _taken)) = gathered else { return };
            if !batch.is_empty() {
                self.answer(batch);
            }
        }
    }

    /// Returns the next batch and permission to compute it, or `None` when the queue is closed and
    /// empty. The batch is empty if every request in it was abandoned.
    fn gather(&self, gatherer: &mut Gatherer<B>) -> Option<(Vec<Waiting<B>>, Taken<'_>)> {
        let first = match gatherer.left.take() {
            Some(left) => left,
            None => gatherer.queue.recv().ok()?,
        };
        let taken = self.threads.take();
        let (mut batch, mut gathering) = (Vec::new(), Gathering::default());
        let mut request = Some(first);
        loop {
            if let Some(waiting) = request.take() {
                if waiting.reply.is_abandoned() {
                    self.metrics.queued.dec();
                    self.metrics.skipped.inc();
                } else if gathering.admit(waiting.size, waiting.came, &self.limits.batch) {
                    self.metrics.queued.dec();
                    batch.push(waiting);
                } else {
                    gatherer.left = Some(waiting);
                    break;
                }
            }
            match gatherer.queue.try_recv() {
                Ok(waiting) => request = Some(waiting),
                // Compute what was gathered; the next call finds the queue empty and closed.
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    match gathering.next(self.started.elapsed(), &self.limits.batch) {
                        Next::Launch => break,
                        Next::Wait(left) => match gatherer.queue.recv_timeout(left) {
                            Ok(waiting) => request = Some(waiting),
                            Err(_) => break,
                        },
                    }
                }
            }
        }
        Some((batch, taken))
    }

    /// Computes a batch and answers every request in it, also after an error or a panic.
    fn answer(&self, batch: Vec<Waiting<B>>) {
        let mut outputs: FxHashMap<B::Item, Option<B::Output>> = FxHashMap::default();
        let mut unknown = Vec::new();
        for item in batch.iter().flat_map(|waiting| &waiting.items) {
            if outputs.contains_key(item) {
                continue;
            }
            let output = self.remembered.as_ref().and_then(|remembered| remembered.get(item));
            match output {
                Some(_) => {
                    self.metrics.remembered.inc();
                }
                None => unknown.push(item.clone()),
            }
            outputs.insert(item.clone(), output);
        }
        unknown.sort_by_key(|item| self.backend.tokens(item));
        match self.run(&unknown) {
            Ok(made) => {
                for (item, output) in unknown.into_iter().zip(made) {
                    if let Some(remembered) = &self.remembered {
                        remembered.insert(item.clone(), output.clone());
                    }
                    outputs.insert(item, Some(output));
                }
            }
            Err(error) => {
                batch.into_iter().for_each(|waiting| waiting.reply.answer(Err(error.clone())));
                return;
            }
        }
        for Waiting { items, reply, .. } in batch {
            // Every output exists: `run` returns one for each unknown item.
            let answer: Option<Vec<_>> =
                items.iter().map(|item| outputs.get(item).cloned().flatten()).collect();
            reply.answer(answer.ok_or(CallError::Dropped));
        }
    }

    /// Runs the model, catches its panics, and updates the metrics.
    fn run(&self, items: &[B::Item]) -> Result<Vec<B::Output>, CallError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let started = Instant::now();
        let ran = contain(|| self.backend.run(items));
        self.metrics.seconds.observe(started.elapsed().as_secs_f64());
        self.metrics.batch.observe(items.len() as f64);
        let Ok(ran) = ran else {
            self.metrics.panics.inc();
            return Err(CallError::Panic);
        };
        let ran = ran.and_then(|(outputs, encoded)| match outputs.len() == items.len() {
            true => Ok((outputs, encoded)),
            false => Err(format!("{} answers to {} questions", outputs.len(), items.len())),
        });
        let (outputs, encoded) = ran.map_err(|reason| {
            self.metrics.errors.inc();
            CallError::Model(reason)
        })?;
        self.metrics.tokens.inc_by(encoded.tokens);
        self.metrics.cut.inc_by(encoded.cut);
        Ok(outputs)
    }
}
