//! A model that answers from a script in virtual time. The script gives each request's latency and
//! its answer, error or panic. Tests and the simulation drive the model; it has no randomness and
//! no clock.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Busy, CallError, Model, Reply};

/// The reaction of the model to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Act<A> {
    /// Answers.
    Answer(A),
    /// Answers with an error.
    Error(String),
    /// Panics while it holds the request.
    Panic,
    /// Drops the request without an answer.
    Drop,
    /// Keeps the request for ever.
    Silence,
}

/// A line of the script.
#[derive(Clone, Debug, PartialEq)]
pub struct Line<A> {
    /// Virtual milliseconds after the request.
    pub after_ms: u64,
    /// The reaction.
    pub act: Act<A>,
}

type Script<Q, A> = Box<dyn Fn(&Q, u64) -> Line<A> + Send + Sync>;

/// A scripted model. The script sees each request and its number, from 0.
pub struct Scripted<Q, A> {
    name: String,
    capacity: usize,
    script: Script<Q, A>,
    state: Mutex<State<A>>,
}

struct State<A> {
    now_ms: u64,
    asked: u64,
    due: BTreeMap<(u64, u64), (Reply<A>, Act<A>)>,
}

impl<Q, A> Scripted<Q, A> {
    /// A model that holds at most `capacity` requests and handles them by `script`.
    pub fn new(
        name: &str,
        capacity: usize,
        script: impl Fn(&Q, u64) -> Line<A> + Send + Sync + 'static,
    ) -> Self {
        let state = State { now_ms: 0, asked: 0, due: BTreeMap::new() };
        Self { name: name.to_owned(), capacity, script: Box::new(script), state: Mutex::new(state) }
    }

    /// Moves virtual time to `now_ms` and acts on every request that is due.
    pub fn advance(&self, now_ms: u64) {
        let due = {
            let mut state = self.state();
            state.now_ms = now_ms;
            let later = state.due.split_off(&(now_ms + 1, 0));
            std::mem::replace(&mut state.due, later)
        };
        for (_, (reply, act)) in due {
            perform(reply, act);
        }
    }

    /// Returns when the next request is due, in virtual milliseconds; `None` while none is.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.state().due.keys().map(|(due, _)| *due).find(|due| *due < u64::MAX)
    }

    /// Number of requests taken so far.
    pub fn asked(&self) -> u64 {
        self.state().asked
    }

    fn state(&self) -> MutexGuard<'_, State<A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn perform<A>(reply: Reply<A>, act: Act<A>) {
    match act {
        Act::Answer(answer) => reply.answer(Ok(answer)),
        Act::Error(reason) => reply.answer(Err(CallError::Model(reason))),
        Act::Drop => drop(reply),
        Act::Panic => {
            // A real unwinding with the reply on the stack, but without the panic hook, whose
            // output would drown a test with a thousand panics.
            let _contained = catch_unwind(AssertUnwindSafe(move || {
                let _reply = reply;
                std::panic::resume_unwind(Box::new("scripted panic"));
            }));
        }
        Act::Silence => {}
    }
}

impl<Q: Send, A: Send> Model<Q, A> for Scripted<Q, A> {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, request: Q, reply: Reply<A>) -> Result<(), Busy<Q, A>> {
        let mut state = self.state();
        state.due.retain(|_, (reply, _)| !reply.is_abandoned());
        if state.due.len() >= self.capacity {
            return Err(Busy { request, reply });
        }
        let number = state.asked;
        let line = (self.script)(&request, number);
        let due = match line.act {
            Act::Silence => u64::MAX,
            _ => state.now_ms.saturating_add(line.after_ms),
        };
        state.asked += 1;
        state.due.insert((due, number), (reply, line.act));
        Ok(())
    }
}
