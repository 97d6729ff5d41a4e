//! One process of the engine, joined to a log: a consumer thread, timely workers, a committer, and,
//! if the log has a topic of knowledge, a thread that follows it. `run`, `replay` and `demo` differ
//! only in the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use turnstream_log::{Consumer, Ends, Follower};

use crate::commit::{self, CommitConfig, CommitError, Committer, Counts, Report};
use crate::dependencies::Dependencies;
use crate::flow_control::FlowControl;
use crate::intake::{Intake, IntakeError};
use crate::knowledge_feed::{CaughtUp, KnowledgeFeed, KnowledgeFeedError};
use crate::panics::{Panicked, WorkerError};
use crate::tally::Tally;
use crate::worker::Workers;

/// How long one poll waits, and how long a full process waits before it polls again. The consumer
/// must be polled every few seconds, also while all partitions are paused.
const POLL: Duration = Duration::from_millis(50);

/// The counts of an engine that has stopped.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Inputs and their outcomes.
    pub tally: Tally,
    /// Inputs that were read again although they had finished before.
    pub skipped: u64,
    /// Answers that came after their turn had ended in another way.
    pub late_answers: u64,
    /// Outcomes of an older assignment that were dropped.
    pub stale: u64,
    /// Inputs in flight that had not ended when the time to drain was over. The next start reads
    /// them again.
    pub left: u64,
}

/// Serves a log until it ends or `stop` is set, then drains: everything in flight ends and is
/// committed. After `stop`, draining takes at most `run.drain_at_most_ms`.
pub fn serve(
    ends: Ends,
    dependencies: &Dependencies,
    workers: usize,
    stop: &AtomicBool,
) -> Result<Summary, EngineError> {
    let turns = &dependencies.config.turns;
    let flow = Arc::new(FlowControl::new(turns.max_in_flight_per_partition, turns.max_in_flight));
    let commit: CommitConfig = dependencies.config.commit.clone();
    let ends = dependencies.metrics.observe(ends, &flow);
    let committer = Committer::new(commit, ends.producer, Arc::clone(&flow));
    let stopping = Arc::new(AtomicBool::new(false));
    let committer =
        committer.counted_by(dependencies.metrics.outcomes()).until(Arc::clone(&stopping));
    let (reports, reported) = crossbeam_channel::unbounded();
    let in_flight = Arc::clone(&flow);

    std::thread::scope(|threads| {
        let committing = std::thread::Builder::new()
            .name("committer".to_owned())
            .spawn_scoped(threads, move || commit::run(committer, &reported))
            .map_err(EngineError::Thread)?;
        let stopped = || stop.load(Ordering::Relaxed) || committing.is_finished();
        let incoming = (ends.consumer, ends.knowledge);
        let taken_in = take_in(incoming, dependencies, workers, (reports.clone(), flow), stopped);
        stopping.store(true, Ordering::Relaxed);
        // Every finished input was reported before this. The committer may be gone already.
        let _ = reports.send(Report::End);
        let thread = committing.thread().id();
        let panicked = |_| EngineError::CommitterPanicked(Panicked::of(thread));
        let committed = committing.join().map_err(panicked)?;
        let committer = committed?;
        let consumer = taken_in?;
        let late_answers = dependencies.late_answers.load(Ordering::Relaxed);
        let Counts { tally, skipped, stale } = committer.counts().clone();
        // The consumer lives until everything is committed, and the producer ends before it.
        // Leaving the group earlier would give our partitions to others while we still commit for
        // them.
        drop(committer);
        drop(consumer);
        let left = in_flight.in_flight() as u64;
        if left > 0 {
            tracing::warn!(left, "stopped with turns in flight; the next start serves them");
        }
        Ok(Summary { tally, skipped, late_answers, stale, left })
    })
}

/// Polls until the end, then drains the workers. Returns the consumer.
fn take_in(
    (consumer, knowledge): (Box<dyn Consumer>, Option<Box<dyn Follower>>),
    dependencies: &Dependencies,
    workers: usize,
    (reports, flow): (Sender<Report>, Arc<FlowControl>),
    stopped: impl Fn() -> bool,
) -> Result<Box<dyn Consumer>, EngineError> {
    let workers = Workers::start(workers, dependencies, &reports)?;
    let learned = match knowledge {
        Some(_) => CaughtUp::default(),
        None => CaughtUp::nothing_to_learn(),
    };
    let intake = Intake::new(consumer, &workers, reports, flow, Arc::clone(&dependencies.cache));
    let mut intake = intake.once(learned.clone());
    let ended = AtomicBool::new(false);
    let polled = std::thread::scope(|threads| {
        let feed = match knowledge {
            Some(follower) => {
                let fed_workers = workers
                    .fed_workers()
                    .ok_or_else(|| WorkerError::Panicked(Panicked::default()))?;
                let mut feed = KnowledgeFeed::new(follower, dependencies, learned);
                let ended = &ended;
                let thread = std::thread::Builder::new().name("knowledge-feed".to_owned());
                let learn = move || feed.run(&fed_workers, || ended.load(Ordering::Relaxed));
                Some(thread.spawn_scoped(threads, learn).map_err(EngineError::Thread)?)
            }
            None => None,
        };
        let stopped = || stopped() || feed.as_ref().is_some_and(|it| it.is_finished());
        let polled = poll_until(&mut intake, &workers, stopped);
        dependencies.metrics.stopping();
        ended.store(true, Ordering::Relaxed);
        // The error of the knowledge feed explains why polling ended, so it is returned first.
        if let Some(feed) = feed {
            let thread = feed.thread().id();
            feed.join().map_err(|_| KnowledgeFeedError::Panicked(Panicked::of(thread)))??;
        }
        Ok::<_, EngineError>(polled?)
    });
    let consumer = intake.stop();
    // A panic of a worker explains why polling failed, so it is returned first.
    let at_most = Duration::from_millis(dependencies.config.run.drain_at_most_ms);
    workers.drain(stopped().then_some(at_most))?;
    polled?;
    Ok(consumer)
}

/// Polls until the input ends or `stopped` returns true.
fn poll_until(
    intake: &mut Intake<&Workers>,
    workers: &Workers,
    stopped: impl Fn() -> bool,
) -> Result<(), IntakeError> {
    let started = Instant::now();
    loop {
        if stopped() {
            tracing::info!("stopping; turns in flight finish first, within run.drain_at_most_ms");
            return Ok(());
        }
        workers.check()?;
        if !intake.poll(started.elapsed().as_millis() as u64, POLL)? {
            return Ok(());
        }
    }
}

/// Why an engine had to stop.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Reading inputs failed.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// Following the topic of knowledge failed.
    #[error(transparent)]
    KnowledgeFeed(#[from] KnowledgeFeedError),
    /// A worker failed.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// Committing outcomes failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A thread could not be started.
    #[error("a thread could not be started: {0}; free memory or raise the limit of processes")]
    Thread(std::io::Error),
    /// The committer panicked: a fault of the engine.
    #[error("the committer panicked: {0}; a restart goes on from the last commit")]
    CommitterPanicked(Panicked),
}
