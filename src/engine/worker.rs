//! Timely workers: the deterministic core, driven by `step(now)`, and the threads that drive it in
//! a process.
//!
//! The core has no clock, no thread and no random order. A simulation can therefore run it in one
//! thread and in virtual time.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError};
use timely::Config as TimelyConfig;
use timely::communication::WorkerGuards;
use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::Probe;
use timely::dataflow::operators::generic::Operator;
use timely::dataflow::operators::generic::OutputBuilderSession;
use timely::dataflow::operators::generic::operator::source;
use timely::dataflow::{ProbeHandle, Scope, StreamVec};
use timely::scheduling::SyncActivator;
use timely::worker::Worker;
use turnstream_knowledge::{Changes, Knowledge, KnowledgeVersion};
use turnstream_operators::flow::{Epoch, Finished};
use turnstream_operators::ingest::Input;
use turnstream_operators::stage::Clock;
use turnstream_operators::timers::Timers;
use turnstream_ports::panics::at_work;
use turnstream_schemas::RequestId;

use crate::commit::{Publication, Report, encode};
use crate::config::Config;
use crate::dataflow::dialogue;
use crate::dependencies::Dependencies;
use crate::knowledge_feed::{BATCHES_AHEAD, FedWorkers, Reading};
use crate::panics::{WorkerError, WorkersPanic};

/// Milliseconds of one epoch, the dataflow's time. Coarse on purpose: a time per turn doubles the
/// cost and gains nothing (measured with 10,000 conversations of 10 turns).
const EPOCH_MS: u64 = 100;

/// Most inputs that the source takes in at one scheduling, so that other operators get to run.
const INPUTS_PER_SCHEDULING: usize = 1_024;

/// How often a draining process checks whether its workers have ended.
const DRAIN_LOOK: Duration = Duration::from_millis(1);

/// The channels from which a core reads.
pub struct Inlet {
    /// Inputs. The core ends when this channel is closed and empty.
    pub inputs: Receiver<Input>,
    /// Changes of the graph. Only the first worker reads them and passes them to the others. A
    /// worker ends only after this channel is closed as well.
    pub changes: Receiver<Changes>,
}

/// The deterministic core on one worker.
pub struct Core {
    timers: Timers,
    probe: ProbeHandle<Epoch>,
    knowledge: Knowledge,
    waker: SyncActivator,
    learner: SyncActivator,
}

impl Core {
    /// Builds two dataflows: one of the graph, and one of the turns, which reads the graph.
    /// Finished inputs leave through `outlet`.
    pub fn install(
        worker: &mut Worker,
        dependencies: &Dependencies,
        inlet: Inlet,
        outlet: Sender<Report>,
        clock: Clock,
    ) -> Self {
        let timers = Timers::default();
        let Config { responses, commit, .. } = &*dependencies.config;
        let made_by = dependencies.made_by.as_ref();
        let publication = Publication {
            fingerprint: made_by.map(|it| Arc::new(it.fingerprint.clone())),
            trace: responses.trace,
            recorded: commit.publish_recorded,
            conversations: dependencies.publish_conversations,
        };
        let Inlet { inputs: inlet, changes } = inlet;
        let (graph, phrasings) = (Arc::clone(&dependencies.graph), dependencies.phrasings.clone());
        let knowledge = Knowledge::new(graph, phrasings);
        let counts = Arc::clone(&dependencies.live);
        let learner = worker.dataflow(|scope| knowledge.follow(scope, changes, counts));
        worker.dataflow::<Epoch, _, _>(|scope| {
            let (inputs, waker) = inputs(scope, inlet, timers.clone());
            let probe = ProbeHandle::new();
            let context = dependencies.stage_context(knowledge.clone(), clock, timers.clone());
            let finished = dialogue(inputs, dependencies, &context);
            outputs(finished, outlet, publication).probe_with(&probe);
            Self { timers, probe, knowledge, waker, learner }
        })
    }

    /// Moves time to `now_ms` and runs every operator that has work.
    pub fn step(&self, worker: &mut Worker, now_ms: u64) {
        self.timers.advance(now_ms);
        worker.step();
        self.knowledge.settle();
    }

    /// Whether the channel of inputs is closed and every turn has ended.
    pub fn is_done(&self) -> bool {
        self.probe.done()
    }

    /// The latest time, in milliseconds, for the next step: a call's deadline passes, or idle
    /// scopes leave memory.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.timers.next_ms()
    }

    /// Wakes the source of inputs. Call it after sending inputs or closing the channel.
    pub fn waker(&self) -> SyncActivator {
        self.waker.clone()
    }

    /// Wakes the source of changes on the first worker. Call it after sending changes or closing
    /// the channel.
    pub fn learner(&self) -> SyncActivator {
        self.learner.clone()
    }

    /// The latest version of the graph, from which a new turn is answered.
    pub fn knowledge(&self) -> KnowledgeVersion {
        self.knowledge.now()
    }
}

/// The source: passes on inputs from the channel, and drops its capability when the channel is
/// closed.
fn inputs<'scope>(
    scope: Scope<'scope, Epoch>,
    inlet: Receiver<Input>,
    timers: Timers,
) -> (StreamVec<'scope, Epoch, Input>, SyncActivator) {
    let mut waker = None;
    let stream = source(scope, "inputs", |capability, info| {
        let again = scope.activator_for(Rc::clone(&info.address));
        waker = Some(scope.worker().sync_activator_for(info.address.to_vec()));
        let mut capability = Some(capability);
        move |output: &mut OutputBuilderSession<'_, Epoch, CapacityContainerBuilder<Vec<Input>>>| {
            let Some(held) = capability.as_mut() else { return };
            let epoch = timers.now_ms() / EPOCH_MS;
            if epoch > *held.time() {
                held.downgrade(&epoch);
            }
            let mut session = output.session(&*held);
            for _ in 0..INPUTS_PER_SCHEDULING {
                match inlet.try_recv() {
                    Ok(input) => session.give(input),
                    Err(TryRecvError::Empty) => return,
                    Err(TryRecvError::Disconnected) => {
                        drop(session);
                        capability = None;
                        return;
                    }
                }
            }
            again.activate();
        }
    });
    let waker = waker.unwrap_or_else(|| unreachable!("the source was built above"));
    (stream, waker)
}

/// The end of the flow: encodes outputs and sends them to the committer. Encoding happens here, on
/// each worker, because there is only one committer.
fn outputs(
    finished: StreamVec<'_, Epoch, Finished>,
    outlet: Sender<Report>,
    publication: Publication,
) -> StreamVec<'_, Epoch, ()> {
    finished.unary(Pipeline, "outputs", move |_, _| {
        move |input, output: &mut OutputBuilderSession<'_, Epoch, CapacityContainerBuilder<Vec<()>>>| {
            input.for_each(|capability, finished| {
                let _progress = output.session(&capability);
                for inputs in finished.drain(..) {
                    let ended = at_work(first_of(&inputs), || encode(inputs, &publication));
                    // The committer is gone only when the process is about to stop. The next start
                    // reads again what was not committed.
                    let _ = outlet.send(Report::Ended(Box::new(ended)));
                }
            });
        }
    })
}

/// The first of a group of inputs that ended together.
fn first_of(finished: &Finished) -> Option<RequestId> {
    let (first, _) = finished.outcomes.first()?;
    let Finished { partition, generation, .. } = *finished;
    Some(RequestId { partition, generation, offset: first.input().offset })
}

/// Takes inputs for the core: the workers of a process, or the one core of a simulation.
pub trait Inlets {
    /// Passes on inputs of a partition, in order, behind all earlier ones.
    ///
    /// # Errors
    /// A worker is gone.
    fn send(&self, partition: i32, inputs: Vec<Input>) -> Result<(), WorkerError>;
}

/// The workers of a process. Each has its own thread.
pub struct Workers {
    inlets: Vec<(Sender<Input>, SyncActivator)>,
    fed_workers: Option<FedWorkers>,
    guards: Option<WorkerGuards<()>>,
    panic: WorkersPanic,
}

/// Records the panic of the thread that holds it.
struct NotePanic(WorkersPanic);

impl Drop for NotePanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.note();
        }
    }
}

impl Workers {
    /// Starts `count` workers and waits until each has built its dataflow.
    pub fn start(
        count: usize,
        dependencies: &Dependencies,
        outlet: &Sender<Report>,
    ) -> Result<Self, WorkerError> {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..count).map(|_| crossbeam_channel::unbounded()).unzip();
        let (changes, changed) = crossbeam_channel::bounded(BATCHES_AHEAD);
        let reading = Reading::of(count);
        let reads = reading.clone();
        let (dependencies, outlet) = (dependencies.clone(), outlet.clone());
        let (ready, started) = crossbeam_channel::bounded(count);
        let panic = WorkersPanic::default();
        let noted = panic.clone();
        let guards = timely::execute(TimelyConfig::process(count), move |worker| {
            let _note = NotePanic(noted.clone());
            let index = worker.index();
            let start = Instant::now();
            let clock = match dependencies.timings {
                true => Clock::from_micros(move || start.elapsed().as_micros() as u64),
                false => Clock::none(),
            };
            let changes = if index == 0 { changed.clone() } else { crossbeam_channel::never() };
            let inlet = Inlet { inputs: receivers[index].clone(), changes };
            let core = Core::install(worker, &dependencies, inlet, outlet.clone(), clock);
            // The receiver is gone if the process gave up before this worker started.
            let _ = ready.send((index, core.waker(), core.learner()));
            let mut reads = reads.by(index);
            while !core.is_done() {
                let now_ms = start.elapsed().as_millis() as u64;
                core.step(worker, now_ms);
                reads.tell(&core.knowledge());
                // After the last turn nothing wakes a worker that parks.
                if core.is_done() {
                    break;
                }
                let next = core.next_deadline_ms();
                let wait = next.map(|at| Duration::from_millis(at.saturating_sub(now_ms)));
                worker.step_or_park(wait);
            }
        })
        .map_err(WorkerError::Start)?;
        let (mut wakers, mut knowledge) = (BTreeMap::new(), None);
        while wakers.len() < count {
            let (index, waker, learner) = started.recv().map_err(|_| panic.error())?;
            if index == 0 {
                knowledge = Some(learner);
            }
            wakers.insert(index, waker);
        }
        let inlets = senders.into_iter().zip(wakers.into_values()).collect();
        let noted = panic.clone();
        let fed_workers = knowledge.map(|waker| FedWorkers::new(changes, waker, noted, reading));
        Ok(Self { inlets, fed_workers, guards: Some(guards), panic })
    }

    /// The channel to the knowledge of all workers. Drop it before draining.
    pub fn fed_workers(&self) -> Option<FedWorkers> {
        self.fed_workers.clone()
    }

    /// Checks that no worker has panicked.
    ///
    /// # Errors
    /// [`WorkerError::Panicked`] if one has.
    pub fn check(&self) -> Result<(), WorkerError> {
        self.panic.check()
    }

    /// Closes the input and waits until every turn in flight has ended. Returns early after
    /// `at_most`, or when a worker panics, because the others may then wait forever. The threads
    /// that are left run until the process ends.
    pub fn drain(mut self, at_most: Option<Duration>) -> Result<(), WorkerError> {
        let began = Instant::now();
        if let Some(fed_workers) = self.fed_workers.take() {
            fed_workers.end();
        }
        for (inlet, waker) in std::mem::take(&mut self.inlets) {
            drop(inlet);
            // The loop below notices a worker that is gone.
            let _ = waker.activate();
        }
        let Some(guards) = self.guards.take() else { return Ok(()) };
        while !guards.guards().iter().all(JoinHandle::is_finished) {
            if let Err(panicked) = self.check() {
                std::mem::forget(guards);
                return Err(panicked);
            }
            if at_most.is_some_and(|at_most| began.elapsed() >= at_most) {
                std::mem::forget(guards);
                return Ok(());
            }
            std::thread::sleep(DRAIN_LOOK);
        }
        guards.join().into_iter().try_for_each(|worker| worker.map_err(|_| self.panic.error()))
    }
}

impl Inlets for Workers {
    /// Sends all inputs of a partition through one worker's source, so that the exchange keeps
    /// their order, and wakes that worker.
    fn send(&self, partition: i32, inputs: Vec<Input>) -> Result<(), WorkerError> {
        self.check()?;
        let worker = partition.rem_euclid(self.inlets.len() as i32) as usize;
        let (inlet, waker) = &self.inlets[worker];
        for input in inputs {
            inlet.send(input).map_err(|_| self.panic.error())?;
        }
        waker.activate().map_err(|_| self.panic.error())
    }
}

impl<W: Inlets> Inlets for &W {
    fn send(&self, partition: i32, inputs: Vec<Input>) -> Result<(), WorkerError> {
        (**self).send(partition, inputs)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // Timely joins here, which would wait for workers whose input is still open.
        std::mem::forget(self.guards.take());
    }
}

#[cfg(test)]
mod tests;
