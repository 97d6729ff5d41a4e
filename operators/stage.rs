//! The shell that every deciding stage runs in: it moves turns and capabilities, contains
//! panics, measures time, tells who observes, and applies the failure policy, so that a stage
//! itself is a plain function on plain values.

use std::rc::Rc;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::operate::FrontierInterest;
use turnstream_ports::panics::{at_work, contain};
use turnstream_schemas::{Fault, FaultKind, Stage};

use crate::flow::{Epoch, Failed, InFlight};

/// What becomes of a turn when a stage cannot do its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Go on without this stage's output; the response names the stage under `degraded`.
    #[default]
    Degrade,
    /// The turn becomes a dead letter.
    DeadLetter,
    /// Let the lexical form decide; the response names the stage under `degraded`. Where the stage
    /// is lexical, or has no such form, as `degrade`.
    Lexical,
}

/// What a failed stage goes on with: what its lexical form decides, where the policy says so and
/// it can; else nothing.
pub(crate) fn instead<T: Default>(on_failure: OnFailure, lexical: impl FnOnce() -> T) -> T {
    match on_failure {
        OnFailure::Lexical => contain(lexical).unwrap_or_default(),
        OnFailure::Degrade | OnFailure::DeadLetter => T::default(),
    }
}

/// Reads microseconds of some fixed start, for the stages' timings. Injected, since the core
/// has no clock of its own; [`Clock::none`] measures nothing.
#[derive(Clone)]
pub struct Clock(Option<Rc<dyn Fn() -> u64>>);

impl Clock {
    /// A clock that measures nothing: responses carry no timings.
    pub fn none() -> Self {
        Self(None)
    }

    /// A clock that reads microseconds from a function.
    pub fn from_micros(read: impl Fn() -> u64 + 'static) -> Self {
        Self(Some(Rc::new(read)))
    }

    /// Microseconds now, where they are measured.
    pub fn micros(&self) -> Option<u64> {
        self.0.as_ref().map(|read| read())
    }
}

/// How a turn went through a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Microseconds that it took, where they are measured.
    pub micros: Option<u64>,
    /// What went wrong, where something did.
    pub fault: Option<FaultKind>,
    /// Whether the turn goes on without this stage. False where it is a dead letter.
    pub degraded: bool,
}

/// Is told what happens in the stages, for metrics. Called on the workers once or twice per turn
/// and stage, so it must be quick and must not block. Nothing in the flow depends on it.
pub trait StageObserver: Send + Sync {
    /// A turn came to the stage.
    fn entered(&self, stage: Stage);
    /// A turn left the stage: to the next one, or as a fault.
    fn left(&self, stage: Stage, passage: Passage);
    /// A stage asks its model once more for a turn.
    fn asked_again(&self, stage: Stage);
    /// A model gave a stage no answer for a turn that can be used, however often it was asked.
    fn model_failed(&self, model: &str, fault: &Fault);
    /// So many sentences of a turn's persona exceed the bounds.
    fn persona_sentences_passed_over(&self, sentences: u64);
    /// So many scopes more (or fewer) are in the memory of a worker.
    fn scopes_changed(&self, by: i64);
}

/// Who observes the stages, if anybody. Cheap to clone.
#[derive(Clone, Default)]
pub struct Observer(Option<Arc<dyn StageObserver>>);

impl Observer {
    /// Nobody.
    pub fn none() -> Self {
        Self(None)
    }

    /// This one.
    pub fn new(observer: Arc<dyn StageObserver>) -> Self {
        Self(Some(observer))
    }

    /// Tells it something.
    pub(crate) fn tell(&self, what: impl FnOnce(&dyn StageObserver)) {
        if let Some(observer) = &self.0 {
            what(&**observer);
        }
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Observer").field(&self.0.is_some()).finish()
    }
}

/// How a stage is run.
#[derive(Clone)]
pub struct Shell {
    /// Measures the stage.
    pub clock: Clock,
    /// Is told of every turn.
    pub observer: Observer,
    /// What becomes of a turn it cannot serve.
    pub on_failure: OnFailure,
}

/// A stage's work as plain functions: `work` decides about a turn, `fallback` is what the flow
/// goes on with where it failed, `join` puts the decision and the turn together.
pub struct Work<W, F, J> {
    /// Decides about a turn.
    pub work: W,
    /// The decision of a failed stage whose policy is to degrade.
    pub fallback: F,
    /// The turn with the decision.
    pub join: J,
}

/// Runs a stage over a stream of turns: turns in, (turns with the decision, faults) out. A panic
/// in `work` is a fault of that turn alone.
pub fn stage<'scope, I, T, O, W, F, J>(
    turns: StreamVec<'scope, Epoch, I>,
    stage: Stage,
    shell: Shell,
    work: Work<W, F, J>,
) -> (StreamVec<'scope, Epoch, O>, StreamVec<'scope, Epoch, Failed>)
where
    I: InFlight,
    O: InFlight,
    W: Fn(&I) -> Result<T, Fault> + 'static,
    F: Fn(&I) -> T + 'static,
    J: Fn(I, T) -> O + 'static,
{
    let mut builder = OperatorBuilder::new(stage.name().to_owned(), turns.scope());
    let mut input = builder.new_input(turns, Pipeline);
    builder.set_notify_for(0, FrontierInterest::Never);
    let (values, value_stream) = builder.new_output();
    let (faults, fault_stream) = builder.new_output();
    let (mut values, mut faults) = (OutputBuilder::from(values), OutputBuilder::from(faults));

    builder.build(move |_| {
        move |_| {
            let (mut values, mut faults) = (values.activate(), faults.activate());
            input.for_each(|capability, turns| {
                let mut values = values.session(&capability);
                let mut faults = faults.session(&capability);
                for turn in turns.drain(..) {
                    let request = turn.context().request;
                    match at_work(request, || run(turn, stage, &shell, &work)) {
                        Ok(value) => values.give(value),
                        Err(fault) => faults.give(fault),
                    }
                }
            });
        }
    });
    (value_stream, fault_stream)
}

/// One turn through one stage.
fn run<I, T, O, W, F, J>(
    mut turn: I,
    stage: Stage,
    shell: &Shell,
    Work { work, fallback, join }: &Work<W, F, J>,
) -> Result<O, Failed>
where
    I: InFlight,
    O: InFlight,
    W: Fn(&I) -> Result<T, Fault>,
    F: Fn(&I) -> T,
    J: Fn(I, T) -> O,
{
    let started = shell.begin(stage);
    let decided = contain(|| work(&turn))
        .unwrap_or_else(|said| Err(Fault::new(stage, FaultKind::Panic, said)));
    let decided = shell.settle(&mut turn, (stage, started), decided, fallback)?;
    Ok(join(turn, decided))
}

impl Shell {
    /// A turn comes to the stage. Gives the microseconds now, where they are measured.
    pub(crate) fn begin(&self, stage: Stage) -> Option<u64> {
        self.observer.tell(|observer| observer.entered(stage));
        self.clock.micros()
    }

    /// A turn that began at `started` leaves the stage: notes its time and applies the failure
    /// policy to what was decided.
    pub(crate) fn settle<I: InFlight, T>(
        &self,
        turn: &mut I,
        (stage, started): (Stage, Option<u64>),
        decided: Result<T, Fault>,
        fallback: impl Fn(&I) -> T,
    ) -> Result<T, Failed> {
        let fault = decided.as_ref().err().map(|fault| fault.kind);
        let decided = apply_policy(turn, stage, self.on_failure, decided, fallback);
        let now = self.clock.micros();
        let micros = started.zip(now).map(|(started, now)| now.saturating_sub(started));
        if let Some(micros) = micros {
            // A stage may ask twice.
            *turn.progress().timings_us.entry(stage).or_default() += micros;
        }
        let degraded = fault.is_some() && decided.is_ok();
        self.observer.tell(|observer| observer.left(stage, Passage { micros, fault, degraded }));
        decided
    }

    /// A turn that began at `started` leaves the stage because nobody waits for it any more.
    pub(crate) fn give_up(&self, stage: Stage, started: Option<u64>) {
        let micros = started.zip(self.clock.micros());
        let micros = micros.map(|(started, now)| now.saturating_sub(started));
        let passage = Passage { micros, fault: None, degraded: false };
        self.observer.tell(|observer| observer.left(stage, passage));
    }
}

fn apply_policy<I: InFlight, T>(
    turn: &mut I,
    stage: Stage,
    on_failure: OnFailure,
    decided: Result<T, Fault>,
    fallback: impl Fn(&I) -> T,
) -> Result<T, Failed> {
    match (decided, on_failure) {
        (Ok(decided), _) => Ok(decided),
        (Err(fault), OnFailure::Degrade | OnFailure::Lexical) => {
            let decided = fallback(turn);
            let progress = turn.progress();
            if !progress.is_without(stage) {
                progress.degraded.push(Fault { stage, ..fault });
            }
            Ok(decided)
        }
        (Err(fault), OnFailure::DeadLetter) => {
            Err(Failed { context: Arc::clone(turn.context()), fault })
        }
    }
}
