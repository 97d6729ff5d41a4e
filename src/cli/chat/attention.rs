//! Watches over models: forwards the text that they write, piece by piece, with its turn; keeps
//! their prompts; and can interrupt them.
//!
//! To its stage, an interrupted model has failed. The turn therefore ends by the stage's failure
//! policy, and every input still ends exactly once. The model learns that its reply is abandoned,
//! and stops.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Receiver, Sender};
use turnstream_operators::flow::TurnContext;
use turnstream_operators::prompted::ReadAlong;
use turnstream_ports::model::{
    self, Busy, CallError, Generate, GenerateRequest, Generated, Listener, Model, Reply,
};
use turnstream_schemas::InputId;

use turnstream_explain::Asked;

/// What a model has written of a response so far.
pub(super) struct TextSoFar {
    /// The turn.
    pub(super) input: InputId,
    pub(super) text: String,
}

/// Watches over models. Cheap to clone.
#[derive(Clone)]
pub(super) struct Attention(Arc<Shared>);

struct Shared {
    written: Sender<TextSoFar>,
    attempts: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The turn whose models must stop.
    interrupted: Option<InputId>,
    under_way: Vec<UnderWay>,
    /// The requests of the latest turn, each with its attempt.
    asked: Vec<(u64, InputId, Asked)>,
}

/// A request that a model works on.
struct UnderWay {
    input: InputId,
    /// The stage's reply, until it is answered.
    reply: Waiting,
    /// Dropping it tells the model that its reply is abandoned.
    _model: model::Asked<Generated>,
}

type Waiting = Arc<Mutex<Option<Reply<Generated>>>>;

impl Attention {
    /// Watches no model yet. Also returns the receiver of what is written.
    pub(super) fn new() -> (Self, Receiver<TextSoFar>) {
        let (written, told) = crossbeam_channel::unbounded();
        let shared = Shared { written, attempts: AtomicU64::new(0), state: Mutex::default() };
        (Self(Arc::new(shared)), told)
    }

    /// Forwards what models write of each response to the receiver.
    pub(super) fn read_along(&self) -> ReadAlong {
        let written = self.0.written.clone();
        ReadAlong(Arc::new(move |turn: &TurnContext| {
            let (input, written) = (turn.input.clone(), written.clone());
            Listener(Arc::new(move |text: &str| {
                // The receiver is gone when the chat ends.
                let _ = written.send(TextSoFar { input: input.clone(), text: text.to_owned() });
            }))
        }))
    }

    /// Watches a model, under its name in the configuration.
    pub(super) fn of(&self, name: &str, model: Arc<Generate>) -> Arc<Generate> {
        Arc::new(Watched { name: name.to_owned(), model, attention: self.clone() })
    }

    /// Begins a turn: forgets the requests of the one before.
    pub(super) fn begin(&self) {
        let mut state = self.state();
        state.asked.clear();
        state.prune();
    }

    /// Interrupts the models of a turn, now and until it ends.
    pub(super) fn interrupt(&self, input: &InputId) {
        let mut state = self.state();
        state.interrupted = Some(input.clone());
        let (ended, others) =
            std::mem::take(&mut state.under_way).into_iter().partition(|one| one.input == *input);
        state.under_way = others;
        drop(state);
        let ended: Vec<UnderWay> = ended;
        for UnderWay { reply, .. } in ended {
            if let Some(reply) = taken(&reply) {
                reply.answer(Err(interrupted()));
            }
        }
    }

    /// The requests of the latest turn, in the order of the flow.
    pub(super) fn asked(&self, input: &InputId) -> Vec<Asked> {
        let state = self.state();
        let asked = state.asked.iter().filter(|(_, of, _)| of == input);
        let mut asked: Vec<Asked> = asked.map(|(_, _, asked)| asked.clone()).collect();
        asked.sort_by_key(|asked| (asked.stage, asked.step));
        asked
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Drops requests that were answered or that their stage gave up.
    fn prune(&mut self) {
        self.under_way.retain(|one| {
            let reply = one.reply.lock().unwrap_or_else(PoisonError::into_inner);
            reply.as_ref().is_some_and(|reply| !reply.is_abandoned())
        });
    }
}

fn interrupted() -> CallError {
    CallError::Model("interrupted by the user".to_owned())
}

fn taken(reply: &Waiting) -> Option<Reply<Generated>> {
    reply.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A watched model.
struct Watched {
    name: String,
    model: Arc<Generate>,
    attention: Attention,
}

impl Model<GenerateRequest, Generated> for Watched {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn ask(
        &self,
        request: GenerateRequest,
        reply: Reply<Generated>,
    ) -> Result<(), Busy<GenerateRequest, Generated>> {
        let Some(origin) = request.origin.clone() else { return self.model.ask(request, reply) };
        let (input, shared) = (origin.input, &self.attention.0);
        let attempt = shared.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        let asked = Asked {
            stage: request.stage,
            step: origin.step,
            round: origin.round,
            for_gate: origin.for_gate,
            model: self.name.clone(),
            prompt_hash: origin.prompt,
            system: request.system.clone(),
            prompt: request.prompt.clone(),
            answer: None,
            failed: None,
        };
        let waiting: Waiting = Arc::new(Mutex::new(Some(reply)));
        let (inner, answered) = model::reply();
        {
            let mut state = self.attention.state();
            state.prune();
            if state.interrupted.as_ref() == Some(&input) {
                drop(state);
                if let Some(reply) = taken(&waiting) {
                    reply.answer(Err(interrupted()));
                }
                return Ok(());
            }
            // Only the last attempt of a question is kept.
            let question = (asked.stage, asked.step);
            state.asked.retain(|(_, of, one)| *of != input || (one.stage, one.step) != question);
            state.asked.push((attempt, input.clone(), asked));
            let reply = Arc::clone(&waiting);
            state.under_way.push(UnderWay { input, reply, _model: answered });
        }
        let (attention, to) = (self.attention.clone(), Arc::clone(&waiting));
        let inner = inner.heard("attention", move |answer: &Result<Generated, CallError>| {
            let mut state = attention.state();
            if let Some((_, _, asked)) = state.asked.iter_mut().find(|(at, ..)| *at == attempt) {
                match answer {
                    Ok(generated) => asked.answer = Some(generated.text.clone()),
                    Err(error) => asked.failed = Some(error.to_string()),
                }
            }
            drop(state);
            if let Some(reply) = taken(&to) {
                reply.answer(answer.clone());
            }
        });
        let Err(Busy { request, reply }) = self.model.ask(request, inner) else { return Ok(()) };
        // The stage asks again; until then the model works on nothing.
        drop(reply.unheard());
        match taken(&waiting) {
            Some(reply) => Err(Busy { request, reply }),
            // The request was interrupted meanwhile, which answered it.
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
