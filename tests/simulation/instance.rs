//! Runs one instance of the engine: intake, core and committer, joined as in a process. The world
//! advances each of them one call at a time, in one thread and in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use timely::WorkerConfig;
use timely::communication::Allocator;
use timely::communication::allocator::thread::Thread;
use timely::scheduling::SyncActivator;
use timely::worker::Worker;
use turnstream_engine::commit::{Committer, Report};
use turnstream_engine::dependencies::Dependencies;
use turnstream_engine::flow_control::FlowControl;
use turnstream_engine::intake::Intake;
use turnstream_engine::panics::{Panicked, WorkerError};
use turnstream_engine::tally::Tally;
use turnstream_engine::worker::{self, Core, Inlets};
use turnstream_log::embedded::EmbeddedLog;
use turnstream_log::{Consumer, Topic};
use turnstream_operators::ingest::Input;
use turnstream_operators::stage::Clock;
use turnstream_ports::cache::MemoryCache;
use turnstream_ports::model::scripted::{Act, Line, Scripted};
use turnstream_ports::model::{Generate, GenerateRequest, Generated};
use turnstream_schemas::ModelUsed;

use crate::protocol::{MortalConsumer, SteppedProducer, Wire};

/// The consumer group.
pub(crate) const GROUP: &str = "simulated";

/// The beginning of texts that the model never answers until the world is calm.
pub(crate) const NEVER: &str = "never";

type Model = Scripted<GenerateRequest, Generated>;

/// A started process.
pub(crate) struct Instance {
    pub(crate) wire: Arc<Wire>,
    /// Its number in the group, for expelling it.
    pub(crate) member: u64,
    worker: Worker,
    core: Core,
    life: Life,
    committer: Committer,
    reports: Receiver<Report>,
    model: Arc<Model>,
    flow: Arc<FlowControl>,
}

enum Life {
    /// Polls.
    Serving(Box<Intake<Inlet>>),
    /// Asked to stop: waits until everything in flight has ended. The consumer lives until then.
    Draining { _consumer: Box<dyn Consumer> },
    /// Only while the state changes.
    Neither,
}

/// The channel from the intake to the one worker.
struct Inlet {
    sender: Sender<Input>,
    waker: SyncActivator,
}

impl Inlets for Inlet {
    fn send(&self, _: i32, inputs: Vec<Input>) -> Result<(), WorkerError> {
        for input in inputs {
            self.sender.send(input).map_err(|_| WorkerError::Panicked(Panicked::default()))?;
        }
        self.waker.activate().map_err(|_| WorkerError::Panicked(Panicked::default()))
    }
}

/// The result of advancing an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// The instance goes on.
    On,
    /// The instance died at a planned fault.
    Died,
    /// The instance was asked to stop and has committed everything.
    Stopped,
}

impl Instance {
    /// Starts a process of this name, as after a crash. Its transactional id is fixed, and its
    /// start aborts the open transactions of that id.
    pub(crate) fn start(
        log: &EmbeddedLog,
        name: &str,
        dependencies: &Dependencies,
        temper: impl Fn(u64) -> (u64, u64) + Send + Sync + 'static,
        calm: &Arc<AtomicBool>,
    ) -> Self {
        let wire = Arc::new(Wire::default());
        let consumer = log.consumer(GROUP, Topic::Turns).expect("a consumer");
        let producer = log.producer(&consumer, name).expect("a producer");
        let member = consumer.member();
        let consumer = Box::new(MortalConsumer::new(consumer, Arc::clone(&wire)));
        let producer = Box::new(SteppedProducer { inner: producer, wire: Arc::clone(&wire) });

        let turns = &dependencies.config.turns;
        let flow =
            Arc::new(FlowControl::new(turns.max_in_flight_per_partition, turns.max_in_flight));
        let committer =
            Committer::new(dependencies.config.commit.clone(), producer, Arc::clone(&flow));
        let (report, reports) = crossbeam_channel::unbounded();
        let (sender, inputs) = crossbeam_channel::unbounded();
        // The graph does not change here; live changes have their own tests.
        let taken_in = worker::Inlet { inputs, changes: crossbeam_channel::never() };
        let model = Arc::new(model(name, temper, Arc::clone(calm)));
        let generate: Arc<Generate> = Arc::clone(&model) as _;
        // The process's disk cache dies with it here.
        let cache: Arc<MemoryCache> = Arc::default();
        let language_models = [("default".to_owned(), generate)].into();
        let dependencies =
            Dependencies { language_models, cache: cache.clone(), ..dependencies.clone() };
        let mut worker =
            Worker::new(WorkerConfig::default(), Allocator::Thread(Thread::default()), None);
        let core =
            Core::install(&mut worker, &dependencies, taken_in, report.clone(), Clock::none());
        let inlet = Inlet { sender, waker: core.waker() };
        let intake = Intake::new(consumer, inlet, report, Arc::clone(&flow), cache);
        let life = Life::Serving(Box::new(intake));
        Self { wire, member, worker, core, life, committer, reports, model, flow }
    }

    /// Polls once, as the consumer thread does.
    pub(crate) fn poll(&mut self, now_ms: u64) {
        if let Life::Serving(intake) = &mut self.life {
            let polled = intake.poll(now_ms, Duration::ZERO);
            assert!(polled.expect("the intake goes on"), "nobody said that inputs end");
        }
    }

    /// Takes a step of the worker, and lets the model answer what is due.
    pub(crate) fn work(&mut self, now_ms: u64) {
        self.model.advance(now_ms);
        self.core.step(&mut self.worker, now_ms);
    }

    /// Gives the committer at most `most` reports.
    pub(crate) fn take_reports(&mut self, most: usize, now_ms: u64) -> Moved {
        for _ in 0..most {
            let Ok(report) = self.reports.try_recv() else { break };
            let moved = self.told(|committer| committer.take(report, now_ms));
            if moved == Moved::Died {
                return moved;
            }
        }
        if self.committer.due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
            return self.told(Committer::commit);
        }
        Moved::On
    }

    /// Stops polling, as on SIGTERM.
    pub(crate) fn ask_to_stop(&mut self) {
        self.life = match std::mem::replace(&mut self.life, Life::Neither) {
            Life::Serving(intake) => Life::Draining { _consumer: intake.stop() },
            life => life,
        };
        self.core.waker().activate().expect("the worker is here");
    }

    /// Whether it was asked to stop.
    pub(crate) fn is_draining(&self) -> bool {
        matches!(self.life, Life::Draining { .. })
    }

    /// Ends the instance if it was asked to stop and everything in flight has ended.
    pub(crate) fn end_if_drained(&mut self, now_ms: u64) -> Moved {
        if !self.is_draining() || !self.core.is_done() || !self.reports.is_empty() {
            return Moved::On;
        }
        match self.told(|committer| committer.take(Report::End, now_ms)) {
            Moved::On => Moved::Stopped,
            moved => moved,
        }
    }

    /// Returns the instance's counts.
    pub(crate) fn tally(&self) -> Tally {
        self.committer.counts().tally.clone()
    }

    /// Returns the number of outcomes of an older assignment that were dropped, and of inputs
    /// skipped as finished.
    pub(crate) fn stale_and_skipped(&self) -> (u64, u64) {
        (self.committer.counts().stale, self.committer.counts().skipped)
    }

    /// Returns the number of inputs in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.flow.in_flight()
    }

    /// Runs an action of the committer, which may kill the instance.
    fn told<E: std::fmt::Display>(
        &mut self,
        act: impl FnOnce(&mut Committer) -> Result<(), E>,
    ) -> Moved {
        let before = self.wire.commits();
        match act(&mut self.committer) {
            Err(_) if self.wire.crashed().is_some() => Moved::Died,
            Err(error) => panic!("the committer gave up: {error}"),
            Ok(()) if self.wire.dies_after_acknowledgement(before) => Moved::Died,
            Ok(()) => Moved::On,
        }
    }
}

/// Returns the lines of the dialogue in the prompt, the latest first.
fn dialogue(prompt: &str) -> impl Iterator<Item = &str> {
    let fenced = prompt.split("<<dialogue ").nth(1).unwrap_or_default();
    let fenced = fenced.split("<</dialogue ").next().unwrap_or_default();
    fenced.lines().rev()
}

/// Returns the mark of our side's last response in the prompt.
fn before(prompt: &str) -> &str {
    let mut lines = dialogue(prompt);
    mark(lines.find_map(|line| line.strip_prefix("- you: ")).unwrap_or("nothing"))
}

/// Returns the mark of a response, which is unique. An agent's text is its own mark.
pub(crate) fn mark(text: &str) -> &str {
    match text.split_once('#') {
        Some((_, rest)) => rest.split_whitespace().next().unwrap_or_default(),
        None => text,
    }
}

/// Returns a model that repeats the user's words, with its own mark and that of the last response
/// in its prompt. Until the world is calm, it is late or fails in every possible way. `temper`
/// gives two random numbers for each request.
fn model(
    name: &str,
    temper: impl Fn(u64) -> (u64, u64) + Send + Sync + 'static,
    calm: Arc<AtomicBool>,
) -> Model {
    let by = name.to_owned();
    let script = move |request: &GenerateRequest, number: u64| {
        let (what, late) = temper(number);
        let mut lines = dialogue(&request.prompt);
        let said = lines.find_map(|line| line.strip_prefix("- user: ")).unwrap_or_default();
        let answer = Generated {
            text: format!("{said}? #{by}.{number} after {}", before(&request.prompt)),
            confidence: None,
            model: ModelUsed { name: by.clone(), prompt_hash: None },
        };
        let act = match what % 24 {
            _ if calm.load(Ordering::Relaxed) => Act::Answer(answer),
            _ if said.starts_with(NEVER) => Act::Silence,
            0 | 1 => Act::Error("out of sorts".to_owned()),
            2 => Act::Panic,
            3 => Act::Silence,
            4 => Act::Drop,
            _ => Act::Answer(answer),
        };
        let longest_ms = if calm.load(Ordering::Relaxed) { 50 } else { 150 };
        Line { after_ms: late % longest_ms, act }
    };
    Scripted::new(name, 64, script)
}
