//! The turns of one stage on one worker that wait for an answer. This is the only place in the flow
//! that holds capabilities while a model works.
//!
//! For each turn it keeps one capability per output, and the question for as long as it may be asked
//! again. An answer always comes: a value, an error, a contained panic, or the timeout. A turn whose
//! outcome is no longer awaited is given up, and its request is abandoned. A question is asked once
//! per turn, except for the retries configured here.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::operators::Capability;
use timely::scheduling::Activator;
use turnstream_ports::model::CallError;
use turnstream_schemas::{Fault, FaultKind, Stage};

use super::line::{self, Line, Open};
use super::question::{Answer, Asked, Call, Question, Request};
use super::runner::StageRunner;
use crate::flow::{Epoch, InFlight};

/// How long a stage waits for a model, and how often it asks again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallConfig {
    /// Milliseconds to wait for one answer, from 1.
    #[schemars(range(min = 1))]
    pub timeout_ms: u64,
    /// How often to ask in total, from 1.
    #[schemars(range(min = 1))]
    pub attempts: u32,
    /// Milliseconds before the second attempt; doubles with each further attempt.
    pub backoff_ms: u64,
    /// Milliseconds before asking again if the model's queue was full, from 1.
    #[schemars(range(min = 1))]
    pub busy_retry_ms: u64,
}

impl Default for CallConfig {
    fn default() -> Self {
        Self { timeout_ms: 30_000, attempts: 2, backoff_ms: 200, busy_retry_ms: 5 }
    }
}

/// One capability for each output.
pub(super) type Capabilities = (Capability<Epoch>, Capability<Epoch>);

/// A turn and the question that is asked about it.
pub(super) struct Waiting<T> {
    pub turn: T,
    pub asked: Asked,
    /// When the question began, in microseconds, if time is measured.
    pub started: Option<u64>,
}

/// A turn that waits for its answer.
pub(super) struct Pending<T> {
    pub waiting: Waiting<T>,
    pub capabilities: Capabilities,
    attempt: u32,
    /// When this attempt times out, or, between attempts, when the next one begins.
    due_ms: u64,
    /// The attempt under way; `None` between attempts.
    open: Option<Box<dyn Open>>,
}

/// A turn with the final answer to its question.
type Settled<T> = (Pending<T>, Result<Answer, Fault>);

/// The turns of one stage on one worker that wait for an answer.
pub(super) struct Calls<T> {
    line: Box<dyn Line>,
    config: CallConfig,
    runner: StageRunner,
    activator: Rc<Activator>,
    armed_ms: Option<u64>,
    /// The value of [`Awaited::given_up`](crate::awaited::Awaited::given_up) at the last look.
    given_up: u64,
    /// Turns that were no longer awaited when they came in.
    gone: Vec<Pending<T>>,
    next_ticket: u64,
    pending: BTreeMap<u64, Pending<T>>,
}

impl<T: InFlight> Calls<T> {
    /// Opens the line to the model. `wake` schedules the operator from any thread, `activator` from
    /// this one.
    pub(super) fn new(
        Call { model, config }: Call,
        runner: &StageRunner,
        wake: Arc<dyn Fn() + Send + Sync>,
        activator: Rc<Activator>,
    ) -> Self {
        runner.awaited.watch(Rc::clone(&activator));
        Self {
            line: line::open(model, wake),
            config,
            runner: runner.clone(),
            activator,
            armed_ms: None,
            given_up: runner.awaited.given_up(),
            gone: Vec::new(),
            next_ticket: 0,
            pending: BTreeMap::new(),
        }
    }

    /// Returns the model's name.
    pub(super) fn name(&self) -> &str {
        self.line.name()
    }

    /// Takes a turn in and asks its question. The caller must look for answers next.
    pub(super) fn begin(&mut self, waiting: Waiting<T>, capabilities: Capabilities) {
        let is_awaited = self.runner.awaited.contains(waiting.turn.context().request);
        let pending = Pending { waiting, capabilities, attempt: 1, due_ms: 0, open: None };
        if is_awaited {
            self.send(pending, None);
        } else {
            self.gone.push(pending);
        }
    }

    /// Asks another question about a turn.
    pub(super) fn ask(&mut self, mut pending: Pending<T>, question: Question) {
        pending.waiting.asked = Asked::new(question);
        pending.attempt = 1;
        self.send(pending, None);
        self.arm(self.runner.timers.now_ms());
    }

    /// Asks once more, in other words, because the answer could not be used.
    pub(super) fn repeat(&mut self, stage: Stage, mut pending: Pending<T>, request: Request) {
        self.runner.observer.tell(|observer| observer.asked_again(stage));
        pending.waiting.asked.repeated = true;
        pending.attempt = 1;
        self.send(pending, Some(request));
        self.arm(self.runner.timers.now_ms());
    }

    /// Sends the turn's question, or `request` in its place, under a new ticket.
    fn send(&mut self, mut pending: Pending<T>, request: Option<Request>) {
        let request = request.unwrap_or_else(|| pending.waiting.asked.request().clone());
        pending.due_ms = self.runner.timers.now_ms() + self.config.timeout_ms;
        pending.open = Some(self.line.send((self.next_ticket, pending.attempt), request));
        self.pending.insert(self.next_ticket, pending);
        self.next_ticket += 1;
    }

    /// Takes out every turn that is no longer awaited. Abandons its request, whose answer is then
    /// ignored.
    pub(super) fn given_up(&mut self) -> Vec<Pending<T>> {
        let mut gone = std::mem::take(&mut self.gone);
        let given_up = self.runner.awaited.given_up();
        if std::mem::replace(&mut self.given_up, given_up) != given_up {
            let awaited = &self.runner.awaited;
            let unwanted =
                |pending: &Pending<T>| !awaited.contains(pending.waiting.turn.context().request);
            let unwanted = self.pending.extract_if(.., |_, pending| unwanted(pending));
            gone.extend(unwanted.map(|(_, pending)| pending));
        }
        gone.iter().filter_map(|pending| pending.open.as_ref()).for_each(|open| open.abandon());
        gone
    }

    /// Takes out every turn whose answer is final.
    pub(super) fn answered(&mut self, stage: Stage) -> Vec<Settled<T>> {
        let mut finished = Vec::new();
        while let Some(((ticket, attempt), answer)) = self.line.receive() {
            let current = self.pending.get(&ticket);
            if current.is_some_and(|it| it.attempt == attempt && it.open.is_some()) {
                finished.extend(self.settle_attempt(stage, ticket, answer));
            }
        }
        let now_ms = self.runner.timers.now_ms();
        let due = self.pending.iter().filter(|(_, pending)| pending.due_ms <= now_ms);
        let late = CallError::Timeout { timeout_ms: self.config.timeout_ms };
        for ticket in due.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            match self.pending.get(&ticket).map(|pending| pending.open.is_some()) {
                Some(true) => {
                    self.line.offer(ticket);
                    let open = self.pending.get(&ticket).and_then(|it| it.open.as_ref());
                    if open.is_some_and(|open| open.time_out(late.clone())) {
                        finished.extend(self.settle_attempt(stage, ticket, Err(late.clone())));
                    }
                }
                Some(false) => self.ask_again(stage, ticket),
                None => {}
            }
        }
        self.line.resume();
        self.arm(now_ms);
        finished
    }

    /// Ends an attempt. Returns `None` if it ended with an error and the turn waits for another attempt.
    fn settle_attempt(
        &mut self,
        stage: Stage,
        ticket: u64,
        answer: Result<Answer, CallError>,
    ) -> Option<Settled<T>> {
        let mut pending = self.pending.remove(&ticket)?;
        pending.open = None;
        let error = match answer {
            Ok(answer) => return Some((pending, Ok(answer))),
            Err(error) => error,
        };
        let asked = &mut pending.waiting.asked;
        let again = match &error {
            // An empty answer cannot be used: the stage asks once more, whatever `attempts` is.
            CallError::Empty(_) if asked.question.repeats => {
                !std::mem::replace(&mut asked.repeated, true)
            }
            // The model would not be called the next time either.
            CallError::Unasked(_) => false,
            _ => pending.attempt < self.config.attempts,
        };
        if again {
            let doublings = (pending.attempt - 1).min(16);
            let backoff_ms = self.config.backoff_ms << doublings;
            pending.due_ms = self.runner.timers.now_ms() + backoff_ms;
            self.pending.insert(ticket, pending);
            return None;
        }
        let kind = match error {
            CallError::Timeout { .. } => FaultKind::Timeout,
            CallError::Panic => FaultKind::Panic,
            CallError::Empty(_) => FaultKind::Unfit,
            CallError::Model(_) | CallError::Dropped | CallError::Unasked(_) => FaultKind::Error,
        };
        let reason = format!(
            "model `{}`, attempt {} of {}: {error}",
            self.name(),
            pending.attempt,
            self.config.attempts.max(pending.attempt)
        );
        Some((pending, Err(Fault::new(stage, kind, reason))))
    }

    /// Begins the next attempt, with the words of the first.
    fn ask_again(&mut self, stage: Stage, ticket: u64) {
        let Some(pending) = self.pending.get_mut(&ticket) else { return };
        self.runner.observer.tell(|observer| observer.asked_again(stage));
        pending.attempt += 1;
        pending.due_ms = self.runner.timers.now_ms() + self.config.timeout_ms;
        let request = pending.waiting.asked.request().clone();
        pending.open = Some(self.line.send((ticket, pending.attempt), request));
    }

    /// Sets one timer for the next deadline.
    fn arm(&mut self, now_ms: u64) {
        if self.armed_ms.is_some_and(|armed| armed <= now_ms) {
            self.armed_ms = None;
        }
        let deadline = self.pending.values().map(|pending| pending.due_ms).min();
        let busy_retry_ms = self.config.busy_retry_ms.max(1);
        let busy = self.line.is_busy().then(|| now_ms + busy_retry_ms);
        let next = deadline.into_iter().chain(busy).min();
        if let Some(next) = next
            && self.armed_ms.is_none_or(|armed| next < armed)
        {
            self.runner.timers.wake_at(next, Rc::clone(&self.activator));
            self.armed_ms = Some(next);
        }
    }
}
