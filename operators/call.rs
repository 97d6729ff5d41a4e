//! Asks a model without blocking a worker. The one place in the flow that holds capabilities
//! while somebody else works, and the one mechanism through which every stage asks.
//!
//! Per request it keeps one capability for each output, sends the request, is woken by the
//! answer, and emits at the request's time. An answer always comes: a value, an error, a
//! contained panic, or the timeout. A turn that nobody waits for any more is given up, and its
//! request abandoned. What is asked is a recorded fact from then on: nobody asks
//! twice for one turn, but for the retries configured here.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::operate::FrontierInterest;
use timely::scheduling::Activator;
use turnstream_ports::model::{Answer, Busy, CallError, Model, Outcome, Reply};
use turnstream_ports::panics::at_work;
use turnstream_schemas::{Fault, FaultKind, Stage};

use crate::awaited::Awaited;
use crate::flow::{Epoch, Failed, InFlight};
use crate::stage::Shell;
use crate::timers::Timers;

/// How long a stage waits for a model, and how often it asks again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallConfig {
    /// Milliseconds to wait for one answer, from 1.
    pub timeout_ms: u64,
    /// How often to ask in all, from 1.
    pub attempts: u32,
    /// Milliseconds before the second attempt; doubles with each further one.
    pub backoff_ms: u64,
    /// Milliseconds before asking again where the model's queue was full, from 1.
    pub busy_retry_ms: u64,
}

impl Default for CallConfig {
    fn default() -> Self {
        Self { timeout_ms: 30_000, attempts: 2, backoff_ms: 200, busy_retry_ms: 5 }
    }
}

/// A stage's question as plain functions.
pub struct Question<Ask, Read, Fallback, Join> {
    /// The request for a turn. Also called for a retry.
    pub ask: Ask,
    /// Reads the model's answer.
    pub read: Read,
    /// The decision of a failed stage whose policy is to degrade.
    pub fallback: Fallback,
    /// The turn with the decision.
    pub join: Join,
}

/// What is asked in place of an answer that could not be read: the turn, the answer, and what is
/// wrong with it.
pub type Mend<I, Q, A> = Box<dyn Fn(&I, &A, &Fault) -> Q>;

/// How a calling stage is run.
#[derive(Clone)]
pub struct CallShell {
    /// Measures it, and says what becomes of a turn it cannot serve.
    pub shell: Shell,
    /// How long it waits, how often it asks.
    pub call: CallConfig,
    /// Wakes it at its deadlines.
    pub timers: Timers,
    /// The turns that somebody still waits for; the others are given up.
    pub awaited: Awaited,
}

/// Asks `model` once for every turn: turns in, (turns with the answer, faults) out. Turns of
/// different scopes may leave in another order than they came.
pub fn call<'scope, I, O, T, Q, A, FA, FR, FF, FJ>(
    turns: StreamVec<'scope, Epoch, I>,
    stage: Stage,
    model: Arc<dyn Model<Q, A>>,
    shell: CallShell,
    question: Question<FA, FR, FF, FJ>,
) -> (StreamVec<'scope, Epoch, O>, StreamVec<'scope, Epoch, Failed>)
where
    I: InFlight,
    O: InFlight,
    T: 'static,
    Q: 'static,
    A: Clone + Send + 'static,
    FA: Fn(&I) -> Q + 'static,
    FR: Fn(&I, A) -> Result<T, Fault> + 'static,
    FF: Fn(&I) -> T + 'static,
    FJ: Fn(I, T) -> O + 'static,
{
    call_mending(turns, stage, model, shell, question, None)
}

/// [`call`], and where an answer cannot be read, the model is asked for that turn once more, by
/// `mend`.
pub fn call_mending<'scope, I, O, T, Q, A, FA, FR, FF, FJ>(
    turns: StreamVec<'scope, Epoch, I>,
    stage: Stage,
    model: Arc<dyn Model<Q, A>>,
    shell: CallShell,
    question: Question<FA, FR, FF, FJ>,
    mend: Option<Mend<I, Q, A>>,
) -> (StreamVec<'scope, Epoch, O>, StreamVec<'scope, Epoch, Failed>)
where
    I: InFlight,
    O: InFlight,
    T: 'static,
    Q: 'static,
    A: Clone + Send + 'static,
    FA: Fn(&I) -> Q + 'static,
    FR: Fn(&I, A) -> Result<T, Fault> + 'static,
    FF: Fn(&I) -> T + 'static,
    FJ: Fn(I, T) -> O + 'static,
{
    let scope = turns.scope();
    let mut builder = OperatorBuilder::new(stage.name().to_owned(), scope);
    let address = builder.operator_info().address;
    let mut input = builder.new_input(turns, Pipeline);
    builder.set_notify_for(0, FrontierInterest::Never);
    let (values, value_stream) = builder.new_output();
    let (faults, fault_stream) = builder.new_output();
    let (mut values, mut faults) = (OutputBuilder::from(values), OutputBuilder::from(faults));

    let activator = Rc::new(scope.activator_for(Rc::clone(&address)));
    let waker = scope.worker().sync_activator_for(address.to_vec());
    let wake = Arc::new(move || {
        // Fails only when the worker is gone, and then nobody needs waking.
        let _ = waker.activate();
    });
    let mut calls = Calls::new(stage, model, shell, wake, activator);
    calls.mends = mend.is_some();

    builder.build(move |_| {
        move |_| {
            let (mut values, mut faults) = (values.activate(), faults.activate());
            input.for_each(|capability, turns| {
                for turn in turns.drain(..) {
                    let capabilities = (capability.retain(0), capability.retain(1));
                    let request = turn.context().request;
                    at_work(request, || calls.begin(turn, capabilities, &question.ask));
                }
            });
            for Pending { turn, capabilities, started, .. } in calls.given_up() {
                calls.shell.shell.give_up(stage, started);
                let fault = Fault::new(stage, FaultKind::Error, "nobody waits for it any more");
                let failed = Failed { context: Arc::clone(turn.context()), fault };
                faults.session(&capabilities.1).give(failed);
            }
            for (pending, answer) in calls.answered(&question.ask) {
                let unread = answer.as_ref().ok().filter(|_| mend.is_some()).cloned();
                let decided = at_work(pending.turn.context().request, || {
                    answer.and_then(|answer| (question.read)(&pending.turn, answer))
                });
                if let (Err(fault), Some(mend), Some(unread), false) =
                    (&decided, &mend, unread, pending.mended)
                {
                    let request = mend(&pending.turn, &unread, fault);
                    calls.mend(pending, request);
                    continue;
                }
                let Pending { mut turn, capabilities, started, .. } = pending;
                let shell = &calls.shell.shell;
                if let Err(fault) = &decided {
                    shell.observer.tell(|it| it.model_failed(calls.model.name(), fault));
                }
                match shell.settle(&mut turn, (stage, started), decided, &question.fallback) {
                    Ok(decided) => {
                        let value = (question.join)(turn, decided);
                        values.session(&capabilities.0).give(value);
                    }
                    Err(failed) => faults.session(&capabilities.1).give(failed),
                }
            }
        }
    });
    (value_stream, fault_stream)
}

/// A turn with what its call came to.
type Settled<I, A> = (Pending<I, A>, Result<A, Fault>);

/// A turn whose answer is awaited.
struct Pending<I, A> {
    turn: I,
    capabilities: (Capability<Epoch>, Capability<Epoch>),
    attempt: u32,
    /// Whether an answer could not be read or was empty, and another was asked for.
    mended: bool,
    /// When this attempt is given up, or when the next one begins while `waiting`.
    due_ms: u64,
    waiting: bool,
    outcome: Outcome<A>,
    started: Option<u64>,
}

/// The requests in flight of one stage on one worker.
struct Calls<I, Q, A> {
    stage: Stage,
    model: Arc<dyn Model<Q, A>>,
    shell: CallShell,
    /// Whether an answer that cannot be used is asked for once more.
    mends: bool,
    wake: Arc<dyn Fn() + Send + Sync>,
    activator: Rc<Activator>,
    armed_ms: Option<u64>,
    /// How many turns had been given up when it was looked at last.
    given_up: u64,
    /// Turns that came when nobody waited for them any more.
    gone: Vec<Pending<I, A>>,
    next_ticket: u64,
    pending: BTreeMap<u64, Pending<I, A>>,
    /// Requests that a full queue handed back, in order.
    busy: VecDeque<Busy<Q, A>>,
    send: Sender<Answer<A>>,
    answers: Receiver<Answer<A>>,
}

impl<I: InFlight, Q, A> Calls<I, Q, A> {
    fn new(
        stage: Stage,
        model: Arc<dyn Model<Q, A>>,
        shell: CallShell,
        wake: Arc<dyn Fn() + Send + Sync>,
        activator: Rc<Activator>,
    ) -> Self {
        // Unbounded, and yet bounded: one answer per attempt of a turn in flight.
        let (send, answers) = crossbeam_channel::unbounded();
        let (pending, busy) = (BTreeMap::new(), VecDeque::new());
        shell.awaited.watch(Rc::clone(&activator));
        let (armed_ms, next_ticket) = (None, 0);
        let given_up = shell.awaited.given_up();
        Self {
            stage,
            model,
            shell,
            mends: false,
            wake,
            activator,
            armed_ms,
            given_up,
            gone: Vec::new(),
            next_ticket,
            pending,
            busy,
            send,
            answers,
        }
    }

    /// Takes a turn in and asks for it.
    fn begin(
        &mut self,
        turn: I,
        capabilities: (Capability<Epoch>, Capability<Epoch>),
        ask: &impl Fn(&I) -> Q,
    ) {
        let started = self.shell.shell.begin(self.stage);
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let is_awaited = self.shell.awaited.contains(turn.context().request);
        let request = is_awaited.then(|| ask(&turn));
        let pending = Pending {
            turn,
            capabilities,
            attempt: 1,
            mended: false,
            due_ms: self.shell.timers.now_ms() + self.shell.call.timeout_ms,
            waiting: false,
            outcome: Outcome::default(),
            started,
        };
        match request {
            Some(request) => {
                self.send(ticket, &pending, request);
                self.pending.insert(ticket, pending);
            }
            None => self.gone.push(pending),
        }
    }

    fn send(&mut self, ticket: u64, pending: &Pending<I, A>, request: Q) {
        let (answers, wake) = (self.send.clone(), Arc::clone(&self.wake));
        let outcome = pending.outcome.clone();
        let reply = Reply::new((ticket, pending.attempt), answers, wake, outcome);
        // Behind those that wait already, so that nobody is overtaken for ever.
        if !self.busy.is_empty() {
            self.busy.push_back(Busy { request, reply });
        } else if let Err(busy) = self.model.ask(request, reply) {
            self.busy.push_back(busy);
        }
    }

    /// Every turn that nobody waits for any more. Its request is abandoned, and what comes for it
    /// is not heard.
    fn given_up(&mut self) -> Vec<Pending<I, A>> {
        let mut gone = std::mem::take(&mut self.gone);
        let given_up = self.shell.awaited.given_up();
        if std::mem::replace(&mut self.given_up, given_up) != given_up {
            let awaited = &self.shell.awaited;
            let unwanted =
                |pending: &Pending<I, A>| !awaited.contains(pending.turn.context().request);
            let unwanted = self.pending.extract_if(.., |_, pending| unwanted(pending));
            gone.extend(unwanted.map(|(_, pending)| pending));
        }
        for pending in &gone {
            pending.outcome.abandon();
        }
        gone
    }

    /// Every turn whose answer is final now.
    fn answered(&mut self, ask: &impl Fn(&I) -> Q) -> Vec<Settled<I, A>> {
        let mut finished = Vec::new();
        while let Ok((ticket, attempt, answer)) = self.answers.try_recv() {
            let current = self.pending.get(&ticket);
            if current.is_some_and(|pending| pending.attempt == attempt && !pending.waiting) {
                self.settle_attempt(ticket, answer, &mut finished);
            }
        }
        let now_ms = self.shell.timers.now_ms();
        let due = self.pending.iter().filter(|(_, pending)| pending.due_ms <= now_ms);
        let late = CallError::Timeout { timeout_ms: self.shell.call.timeout_ms };
        for ticket in due.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            if self.pending[&ticket].waiting {
                self.ask_again(ticket, ask);
                continue;
            }
            // What it was never the turn of is offered all the same: who records must hear of it.
            let place = self.busy.iter().position(|busy| busy.reply.ticket() == ticket);
            let busy = place.and_then(|place| self.busy.remove(place));
            let _offered = busy.map(|Busy { request, reply }| self.model.ask(request, reply));
            if self.pending[&ticket].outcome.time_out(late.clone()) {
                self.settle_attempt(ticket, Err(late.clone()), &mut finished);
            }
        }
        self.busy.retain(|busy| !busy.reply.is_abandoned());
        while let Some(Busy { request, reply }) = self.busy.pop_front() {
            if let Err(busy) = self.model.ask(request, reply) {
                self.busy.push_front(busy);
                break;
            }
        }
        self.arm(now_ms);
        finished
    }

    /// An attempt ended: with an answer, or with an error that may be tried again.
    fn settle_attempt(
        &mut self,
        ticket: u64,
        answer: Result<A, CallError>,
        finished: &mut Vec<Settled<I, A>>,
    ) {
        let Some(mut pending) = self.pending.remove(&ticket) else { return };
        let again = match &answer {
            Ok(_) => false,
            // An answer, if one that cannot be used: asked for once more, however many attempts.
            Err(CallError::Empty(_)) if self.mends => !std::mem::replace(&mut pending.mended, true),
            Err(_) => pending.attempt < self.shell.call.attempts,
        };
        match answer {
            Ok(answer) => finished.push((pending, Ok(answer))),
            Err(_) if again => {
                let doublings = (pending.attempt - 1).min(16);
                let backoff_ms = self.shell.call.backoff_ms << doublings;
                pending.due_ms = self.shell.timers.now_ms() + backoff_ms;
                pending.waiting = true;
                self.pending.insert(ticket, pending);
            }
            Err(error) => {
                let kind = match error {
                    CallError::Timeout { .. } => FaultKind::Timeout,
                    CallError::Panic => FaultKind::Panic,
                    CallError::Empty(_) => FaultKind::Unfit,
                    CallError::Model(_) | CallError::Dropped => FaultKind::Error,
                };
                let reason = format!(
                    "model `{}`, attempt {} of {}: {error}",
                    self.model.name(),
                    pending.attempt,
                    self.shell.call.attempts.max(pending.attempt)
                );
                finished.push((pending, Err(Fault::new(self.stage, kind, reason))));
            }
        }
    }

    fn ask_again(&mut self, ticket: u64, ask: &impl Fn(&I) -> Q) {
        let Some(mut pending) = self.pending.remove(&ticket) else { return };
        self.shell.shell.observer.tell(|observer| observer.asked_again(self.stage));
        pending.attempt += 1;
        pending.waiting = false;
        pending.outcome = Outcome::default();
        pending.due_ms = self.shell.timers.now_ms() + self.shell.call.timeout_ms;
        let request = ask(&pending.turn);
        self.send(ticket, &pending, request);
        self.pending.insert(ticket, pending);
    }

    /// Asks for a turn whose answer could not be read.
    fn mend(&mut self, mut pending: Pending<I, A>, request: Q) {
        self.shell.shell.observer.tell(|observer| observer.asked_again(self.stage));
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        (pending.attempt, pending.mended, pending.waiting) = (1, true, false);
        pending.outcome = Outcome::default();
        let now_ms = self.shell.timers.now_ms();
        pending.due_ms = now_ms + self.shell.call.timeout_ms;
        self.send(ticket, &pending, request);
        self.pending.insert(ticket, pending);
        self.arm(now_ms);
    }

    /// Asks to be woken at the next deadline, once.
    fn arm(&mut self, now_ms: u64) {
        if self.armed_ms.is_some_and(|armed| armed <= now_ms) {
            self.armed_ms = None;
        }
        let deadline = self.pending.values().map(|pending| pending.due_ms).min();
        let busy = (!self.busy.is_empty()).then(|| now_ms + self.shell.call.busy_retry_ms.max(1));
        let next = deadline.into_iter().chain(busy).min();
        if let Some(next) = next
            && self.armed_ms.is_none_or(|armed| next < armed)
        {
            self.shell.timers.wake_at(next, Rc::clone(&self.activator));
            self.armed_ms = Some(next);
        }
    }
}

#[cfg(test)]
mod tests;
