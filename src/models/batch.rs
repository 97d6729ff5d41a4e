//! The runtime of models in this process: requests of all stages and workers wait in a bounded
//! queue, and inference threads work on them in batches.
//!
//! A worker never waits here: [`Batched`] takes a request or hands it back at once, and then
//! `call` holds the turn, whose input stays in flight; at `turns.max_in_flight` the log is not
//! read any further. So a slow model slows the source down, and memory stays flat.
//!
//! One idle thread at a time gathers a batch ([`gathering`] decides when it closes); the others
//! work. While all work, requests gather by themselves. A text that was embedded lately is
//! answered without the model.

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

/// What works on batches while its thread waits.
pub trait Backend: Send + Sync + 'static {
    /// What a request has several of.
    type Item: Clone + Eq + Hash + Send + Sync + 'static;
    /// What an item becomes. Cheap to clone.
    type Output: Clone + Send + Sync + 'static;

    /// The model's name.
    fn name(&self) -> &str;

    /// About how many tokens an item has, without a tokenizer.
    fn tokens(&self, item: &Self::Item) -> usize;

    /// The output of each item, in order. Items come sorted by [`Self::tokens`], none twice.
    ///
    /// # Errors
    /// What the model says; every request of the batch is answered with it.
    fn run(&self, items: &[Self::Item]) -> Result<(Vec<Self::Output>, Encoded), String>;
}

/// The bounds of a model's queue, batches and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that may wait, from 1.
    pub queue: usize,
    /// Of a batch.
    pub batch: Bounds,
    /// Items whose outputs are remembered; the least used ones go. 0 for none.
    pub remembered: usize,
}

/// Inference threads that may work at the same time, over all models of the process. Clones share
/// them.
#[derive(Clone)]
pub struct Threads {
    count: usize,
    idle: Receiver<()>,
    give_back: Sender<()>,
}

impl Threads {
    /// So many, from 1.
    pub fn new(count: usize) -> Self {
        let count = count.max(1);
        let (give_back, idle) = crossbeam_channel::bounded(count);
        for _ in 0..count {
            // There is room for as many.
            let _ = give_back.try_send(());
        }
        Self { count, idle, give_back }
    }

    /// Waits until one is idle.
    fn take(&self) -> Taken<'_> {
        // The sender is in `self`, so that this does not fail.
        let _ = self.idle.recv();
        Taken(self)
    }
}

/// A thread that works; idle again when this is dropped.
struct Taken<'a>(&'a Threads);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let _ = self.0.give_back.try_send(());
    }
}

/// A request that waits.
struct Waiting<B: Backend> {
    items: Vec<B::Item>,
    reply: Reply<Vec<B::Output>>,
    size: Size,
    came: Duration,
}

/// A model behind its queue. Its threads end when it is dropped and the queue is empty.
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
    /// Held by the thread that gathers.
    gathering: Mutex<Gatherer<B>>,
}

/// The queue's far end.
struct Gatherer<B: Backend> {
    queue: Receiver<Waiting<B>>,
    /// A request that did not fit into the batch before.
    left: Option<Waiting<B>>,
}

impl<B: Backend> Batched<B> {
    /// Starts as many threads as may work at once.
    ///
    /// # Errors
    /// The system gives no more threads.
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
        // Counted first: a thread may take it before this one goes on.
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
    /// The outputs of all items, where all are remembered.
    fn recall(&self, items: &[B::Item]) -> Option<Vec<B::Output>> {
        let remembered = self.remembered.as_ref()?;
        let outputs: Vec<_> = items.iter().map_while(|item| remembered.get(item)).collect();
        let all = outputs.len() == items.len();
        all.then(|| {
            self.metrics.remembered.inc_by(items.len() as u64);
            outputs
        })
    }

    /// A thread's life: gathers a batch, lets the next thread gather, works.
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

    /// The next batch, and the thread to work on it; `None` once there will be none. It may be
    /// empty where nobody waits any more.
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
                // What was gathered is worked on; the next time there is nothing.
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

    /// Works on a batch and answers each request of it, whatever happens.
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
            // Each is there: `run` gives as many outputs as there are unknown items.
            let answer: Option<Vec<_>> =
                items.iter().map(|item| outputs.get(item).cloned().flatten()).collect();
            reply.answer(answer.ok_or(CallError::Dropped));
        }
    }

    /// Lets the model work, contains its panics, and counts.
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
