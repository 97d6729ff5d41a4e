//! The stage runner does all that a stage does not do itself: it moves turns and capabilities,
//! contains panics, measures time, informs the observer, asks models, and applies the failure policy.
//!
//! Each stage is one operator, named after the stage. A turn that needs no model leaves at once. A
//! turn that asks a model waits in [`Calls`] with a capability for each output, and leaves at the
//! time at which it came. Such turns may overtake each other, which does no harm, because a scope has
//! at most one turn in flight.

use std::rc::Rc;
use std::sync::Arc;

use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::operate::FrontierInterest;
use turnstream_ports::panics::{at_work, contain};
use turnstream_schemas::{Fault, FaultKind, ModelUsed, Stage};

use super::calls::{Calls, Capabilities, Pending, Waiting};
use super::observer::{Clock, Observer, Passage};
use super::question::{Answer, Asked, Question};
use super::{Decide, OnFailure, Step, Without};
use crate::awaited::Awaited;
use crate::flow::{Epoch, Failed, InFlight};
use crate::timers::Timers;

/// The outputs of a stage: turns with its decision, and turns on which it failed.
pub type Streams<'scope, T> = (StreamVec<'scope, Epoch, T>, StreamVec<'scope, Epoch, Failed>);

/// What one worker needs to run its stages. Cheap to clone.
#[derive(Clone)]
pub struct StageRunner {
    /// Measures the stages.
    pub clock: Clock,
    /// Hears of every turn in every stage.
    pub observer: Observer,
    /// Wakes stages that wait for a model.
    pub timers: Timers,
    /// The turns that `history` still waits for; stages give up all others.
    pub awaited: Awaited,
}

/// Runs a stage over a stream of turns: turns in, (turns with the decision, faults) out. Every turn
/// that goes in comes out exactly once.
pub fn run<'scope, S: Decide>(
    turns: StreamVec<'scope, Epoch, S::Turn>,
    stage: S,
    runner: &StageRunner,
) -> Streams<'scope, S::Turn> {
    let scope = turns.scope();
    let mut builder = OperatorBuilder::new(S::STAGE.name().to_owned(), scope);
    let address = builder.operator_info().address;
    let mut input = builder.new_input(turns, Pipeline);
    builder.set_notify_for(0, FrontierInterest::Never);
    let (values, value_stream) = builder.new_output();
    let (faults, fault_stream) = builder.new_output();
    let (mut values, mut faults) = (OutputBuilder::from(values), OutputBuilder::from(faults));

    let calls = stage.call().map(|call| {
        let activator = Rc::new(scope.activator_for(Rc::clone(&address)));
        let waker = scope.worker().sync_activator_for(address.to_vec());
        let wake = Arc::new(move || {
            // Ignore the error: it means that the worker is gone, and there is nothing to wake.
            let _ = waker.activate();
        });
        Calls::new(call, runner, wake, activator)
    });
    let mut running = Running { stage, runner: runner.clone(), calls };

    builder.build(move |_| {
        move |_| {
            let (mut values, mut faults) = (values.activate(), faults.activate());
            input.for_each(|capability, turns| {
                let mut values = values.session(&capability);
                let mut faults = faults.session(&capability);
                for turn in turns.drain(..) {
                    match at_work(turn.context().request, || running.enter(turn)) {
                        Entered::Left(Ok(value)) => values.give(value),
                        Entered::Left(Err(fault)) => faults.give(fault),
                        Entered::Asks(waiting) => {
                            let capabilities = (capability.retain(0), capability.retain(1));
                            running.ask(waiting, capabilities);
                        }
                    }
                }
            });
            for (left, capabilities) in running.answered() {
                match left {
                    Ok(value) => values.session(&capabilities.0).give(value),
                    Err(fault) => faults.session(&capabilities.1).give(fault),
                }
            }
        }
    });
    (value_stream, fault_stream)
}

/// A stage with the state that it has while it runs.
struct Running<S: Decide> {
    stage: S,
    runner: StageRunner,
    /// The turns that wait for an answer, if the stage has a model.
    calls: Option<Calls<S::Turn>>,
}

/// What happened to a turn that came in.
enum Entered<S: Decide> {
    Left(Result<S::Turn, Failed>),
    /// The stage asks its model about it.
    Asks(Waiting<S::Turn>),
}

/// A turn that leaves the stage after an answer, with the capabilities to send it.
type Left<S> = (Result<<S as Decide>::Turn, Failed>, Capabilities);

/// A decision, with the model that the turn's record names for it.
type Decision<S> = Result<(<S as Decide>::Decision, Option<ModelUsed>), Fault>;

impl<S: Decide> Running<S> {
    /// Takes a turn in and lets the stage decide or ask.
    fn enter(&self, mut turn: S::Turn) -> Entered<S> {
        if !self.stage.concerns(&turn) {
            let decision = self.stage.without(&turn, Without::Off);
            self.write(&mut turn, decision);
            return Entered::Left(Ok(turn));
        }
        debug_assert_eq!(
            turn.progress().written.lacks(S::STAGE.row().reads),
            None,
            "{} reads a part of the record that no earlier stage wrote",
            S::STAGE
        );
        let started = self.runner.begin(S::STAGE);
        let question = match contained::<S, _>(|| self.stage.begin(&turn)) {
            Ok(Step::Ask(question)) => question,
            Ok(Step::Repeat(request)) => Question::new(request),
            Ok(Step::Decided(decision, by)) => {
                return Entered::Left(self.settle(turn, started, Ok((decision, by)), None));
            }
            Err(fault) => return Entered::Left(self.settle(turn, started, Err(fault), None)),
        };
        if self.calls.is_none() {
            let fault = Fault::new(S::STAGE, FaultKind::Error, "the stage has no model to ask");
            return Entered::Left(self.settle(turn, started, Err(fault), None));
        }
        Entered::Asks(Waiting { turn, asked: Asked::new(question), started })
    }

    /// Asks the model about a turn.
    fn ask(&mut self, waiting: Waiting<S::Turn>, capabilities: Capabilities) {
        if let Some(calls) = &mut self.calls {
            calls.begin(waiting, capabilities);
        }
    }

    /// Takes out every turn that can leave: because it is no longer awaited, or because it has its
    /// answer.
    fn answered(&mut self) -> Vec<Left<S>> {
        let Some(calls) = &mut self.calls else { return Vec::new() };
        let given_up =
            calls.given_up().into_iter().map(|Pending { waiting, capabilities, .. }| {
                self.runner.leave(S::STAGE, waiting.started, None, false);
                let fault =
                    Fault::new(S::STAGE, FaultKind::Error, "nobody waits for this turn any more");
                let context = Arc::clone(waiting.turn.context());
                (Err(Failed { context, fault }), capabilities)
            });
        let mut left: Vec<Left<S>> = given_up.collect();
        for (pending, answer) in calls.answered(S::STAGE) {
            let request = pending.waiting.turn.context().request;
            left.extend(at_work(request, || self.read(pending, answer)));
        }
        left
    }

    /// Lets the stage read an answer. Returns `None` if the stage then asks another question.
    fn read(
        &mut self,
        mut pending: Pending<S::Turn>,
        answer: Result<Answer, Fault>,
    ) -> Option<Left<S>> {
        let calls = self.calls.as_mut()?;
        let Waiting { turn, asked, started } = &mut pending.waiting;
        let step =
            answer.and_then(|answer| contained::<S, _>(|| self.stage.read(turn, asked, answer)));
        let decided = match step {
            Ok(Step::Repeat(request)) if asked.may_repeat() => {
                calls.repeat(S::STAGE, pending, request);
                return None;
            }
            Ok(Step::Repeat(_)) => {
                let reason = "the stage asks its model again more often than allowed";
                Err(Fault::new(S::STAGE, FaultKind::Error, reason))
            }
            Ok(Step::Ask(question)) => {
                self.runner.measure(S::STAGE, turn, *started, None, false);
                *started = self.runner.begin(S::STAGE);
                calls.ask(pending, question);
                return None;
            }
            Ok(Step::Decided(decision, by)) => Ok((decision, by)),
            Err(fault) => Err(fault),
        };
        if let Err(fault) = &decided {
            self.runner.observer.tell(|it| it.model_failed(calls.name(), fault));
            let goes_on = self.stage.on_failure(turn) != OnFailure::DeadLetter;
            if let Some(instead) = asked.question.instead.take().filter(|_| goes_on) {
                degrade(turn, S::STAGE, fault.clone());
                self.runner.measure(S::STAGE, turn, *started, Some(fault.kind), true);
                *started = self.runner.begin(S::STAGE);
                calls.ask(pending, *instead);
                return None;
            }
        }
        let Pending { waiting: Waiting { turn, asked, started }, capabilities, .. } = pending;
        Some((self.settle(turn, started, decided, Some(&asked)), capabilities))
    }

    /// Lets a turn that began at `started` leave the stage: applies the failure policy, records the
    /// time, and writes the decision.
    fn settle(
        &self,
        mut turn: S::Turn,
        started: Option<u64>,
        decided: Decision<S>,
        asked: Option<&Asked>,
    ) -> Result<S::Turn, Failed> {
        let failed = decided.as_ref().err().map(|fault| fault.kind);
        let decided = self.apply_policy(&mut turn, decided, asked);
        let degraded = failed.is_some() && decided.is_ok();
        self.runner.measure(S::STAGE, &mut turn, started, failed, degraded);
        let (decision, by) = decided?;
        turn.progress().models.extend(by.map(|by| (S::STAGE, by)));
        self.write(&mut turn, decision);
        Ok(turn)
    }

    /// Writes a decision. With debug assertions, panics if that changes a part of the record that the
    /// stage's row of the table does not name.
    fn write(&self, turn: &mut S::Turn, decision: S::Decision) {
        let was = cfg!(debug_assertions).then(|| turn.clone());
        self.stage.write(turn, decision);
        turn.progress().written.add(S::STAGE.row().writes);
        let Some(was) = was else { return };
        let written = S::STAGE.row().writes;
        let other = turn.changed(&was).into_iter().find(|part| !written.contains(part));
        assert!(other.is_none(), "{} changed {other:?}, which its row does not list", S::STAGE);
    }

    fn apply_policy(
        &self,
        turn: &mut S::Turn,
        decided: Decision<S>,
        asked: Option<&Asked>,
    ) -> Result<(S::Decision, Option<ModelUsed>), Failed> {
        let fault = match decided {
            Ok(decided) => return Ok(decided),
            Err(fault) => fault,
        };
        let without = |why| self.stage.without(turn, why);
        let decision = match self.stage.on_failure(turn) {
            OnFailure::Degrade => without(Without::Failed(asked)),
            OnFailure::Lexical => contain(|| without(Without::ByRules(asked)))
                .unwrap_or_else(|_| without(Without::Failed(asked))),
            OnFailure::DeadLetter => {
                return Err(Failed { context: Arc::clone(turn.context()), fault });
            }
        };
        degrade(turn, S::STAGE, fault);
        Ok((decision, None))
    }
}

/// Calls into a stage. A panic becomes a fault of this turn alone.
fn contained<S: Decide, T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    contain(work).unwrap_or_else(|said| Err(Fault::new(S::STAGE, FaultKind::Panic, said)))
}

/// Records that the turn goes on without the stage: once, however often the stage failed.
fn degrade(turn: &mut impl InFlight, stage: Stage, fault: Fault) {
    let progress = turn.progress();
    if !progress.is_without(stage) {
        progress.degraded.push(Fault { stage, ..fault });
    }
}

impl StageRunner {
    /// Reports that a turn came to the stage. Returns the microseconds now, if time is measured.
    fn begin(&self, stage: Stage) -> Option<u64> {
        self.observer.tell(|observer| observer.entered(stage));
        self.clock.micros()
    }

    /// Reports that a turn that began at `started` left the stage, and records its time in the turn.
    fn measure(
        &self,
        stage: Stage,
        turn: &mut impl InFlight,
        started: Option<u64>,
        fault: Option<FaultKind>,
        degraded: bool,
    ) {
        if let Some(micros) = self.leave(stage, started, fault, degraded) {
            // A stage may ask twice, so its times add up.
            *turn.progress().timings_us.entry(stage).or_default() += micros;
        }
    }

    /// Reports that a turn that began at `started` left the stage. Returns the microseconds it took.
    fn leave(
        &self,
        stage: Stage,
        started: Option<u64>,
        fault: Option<FaultKind>,
        degraded: bool,
    ) -> Option<u64> {
        let micros = started.zip(self.clock.micros());
        let micros = micros.map(|(started, now)| now.saturating_sub(started));
        self.observer.tell(|observer| observer.left(stage, Passage { micros, fault, degraded }));
        micros
    }
}
