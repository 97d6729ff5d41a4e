//! The line to a stage's model: sends requests, receives answers, and queues the requests that the
//! model returned because its own queue was full.
//!
//! [`Line`] hides the type of the port, so that the runner is compiled once per stage, whatever model
//! the stage asks.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use turnstream_ports::model::{self, Busy, CallError, Model, Outcome, Reply};

use super::question::{Answer, AskedModel, OtherPort, Request};

/// A request's ticket, and the number of the attempt.
pub(super) type Ticket = (u64, u32);

/// The line to a model.
pub(super) trait Line {
    /// Returns the model's name.
    fn name(&self) -> &str;

    /// Sends a request, or queues it behind those that wait already, so that none of them starves.
    fn send(&mut self, ticket: Ticket, request: Request) -> Box<dyn Open>;

    /// Offers the model a request that still waits, so that a recording model hears of it.
    fn offer(&mut self, ticket: u64);

    /// Drops abandoned requests and sends waiting ones while the model's queue has room.
    fn resume(&mut self);

    /// Whether requests wait for room in the model's queue.
    fn is_busy(&self) -> bool;

    /// Returns the next answer, if one has come.
    fn receive(&mut self) -> Option<(Ticket, Result<Answer, CallError>)>;
}

/// Opens the line to a model, which calls `wake` when an answer has come.
pub(super) fn open(model: AskedModel, wake: Arc<dyn Fn() + Send + Sync>) -> Box<dyn Line> {
    match model {
        AskedModel::Text(model) => Box::new(ToModel::new(model, wake)),
        AskedModel::Vectors(model) => Box::new(ToModel::new(model, wake)),
        AskedModel::Scores(model) => Box::new(ToModel::new(model, wake)),
        AskedModel::Unified(model) => Box::new(ToModel::new(model, wake)),
        AskedModel::Reading(model) => Box::new(ToModel::new(model, wake)),
        AskedModel::Needs(model) => Box::new(ToModel::new(model, wake)),
    }
}

/// A request on its way.
pub(super) trait Open {
    /// Abandons the request: its answer is no longer needed.
    fn abandon(&self);

    /// Ends the request with this error. Returns false if the answer came first.
    fn time_out(&self, error: CallError) -> bool;
}

impl<A> Open for Outcome<A> {
    fn abandon(&self) {
        Outcome::abandon(self);
    }

    fn time_out(&self, error: CallError) -> bool {
        Outcome::time_out(self, error)
    }
}

struct ToModel<Q, A> {
    model: Arc<dyn Model<Q, A>>,
    wake: Arc<dyn Fn() + Send + Sync>,
    /// Requests that a full queue returned, in order.
    busy: VecDeque<Busy<Q, A>>,
    send: Sender<model::Answer<A>>,
    answers: Receiver<model::Answer<A>>,
}

impl<Q, A> ToModel<Q, A> {
    fn new(model: Arc<dyn Model<Q, A>>, wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        // The channel needs no bound: it holds at most one answer per attempt of a turn in flight.
        let (send, answers) = crossbeam_channel::unbounded();
        Self { model, wake, busy: VecDeque::new(), send, answers }
    }
}

impl<Q, A> Line for ToModel<Q, A>
where
    Q: TryFrom<Request, Error = OtherPort> + 'static,
    A: Into<Answer> + 'static,
{
    fn name(&self) -> &str {
        self.model.name()
    }

    fn send(&mut self, ticket: Ticket, request: Request) -> Box<dyn Open> {
        let (answers, wake, outcome) =
            (self.send.clone(), Arc::clone(&self.wake), Outcome::default());
        let reply = Reply::new(ticket, answers, wake, outcome.clone());
        let Ok(request) = Q::try_from(request) else {
            // The request is of another port. Dropping the reply answers with an error.
            return Box::new(outcome);
        };
        if !self.busy.is_empty() {
            self.busy.push_back(Busy { request, reply });
        } else if let Err(busy) = self.model.ask(request, reply) {
            self.busy.push_back(busy);
        }
        Box::new(outcome)
    }

    fn offer(&mut self, ticket: u64) {
        let place = self.busy.iter().position(|busy| busy.reply.ticket() == ticket);
        let busy = place.and_then(|place| self.busy.remove(place));
        let _offered = busy.map(|Busy { request, reply }| self.model.ask(request, reply));
    }

    fn resume(&mut self) {
        self.busy.retain(|busy| !busy.reply.is_abandoned());
        while let Some(Busy { request, reply }) = self.busy.pop_front() {
            if let Err(busy) = self.model.ask(request, reply) {
                self.busy.push_front(busy);
                break;
            }
        }
    }

    fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    fn receive(&mut self) -> Option<(Ticket, Result<Answer, CallError>)> {
        let (ticket, attempt, answer) = self.answers.try_recv().ok()?;
        Some(((ticket, attempt), answer.map(Into::into)))
    }
}
