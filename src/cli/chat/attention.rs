//! Models whose user watches: what they write is told piece by piece with the turn it is for, what
//! they are asked is kept, and they can be interrupted.
//!
//! An interrupted model has failed, as far as its stage knows; so the turn ends as the stage's
//! policy says, and every input still ends exactly once. The model itself is told that nobody waits
//! any more, and stops.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Receiver, Sender};
use turnstream_ports::model::{
    self, Busy, CallError, Generate, GenerateRequest, Generated, Listener, Model, Reply,
};
use turnstream_schemas::InputId;

use turnstream_explain::Asked;

/// Part of what a model writes.
pub(super) struct Piece {
    /// The turn.
    pub(super) input: InputId,
    /// Which request it answers: what another one wrote before is void.
    pub(super) attempt: u64,
    pub(super) text: String,
}

/// Watches over models. Cheap to clone.
#[derive(Clone)]
pub(super) struct Attention(Arc<Shared>);

struct Shared {
    pieces: Sender<Piece>,
    attempts: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The turn whose models are to stop.
    interrupted: Option<InputId>,
    under_way: Vec<UnderWay>,
    /// What was asked for the latest turn, each with its attempt.
    asked: Vec<(u64, InputId, Asked)>,
}

/// A request that a model works on.
struct UnderWay {
    input: InputId,
    /// The stage's reply, until it is answered.
    reply: Waiting,
    /// Dropped, it tells the model that nobody waits.
    _model: model::Asked<Generated>,
}

type Waiting = Arc<Mutex<Option<Reply<Generated>>>>;

impl Attention {
    /// Nobody is watched yet. Gives where pieces come as well.
    pub(super) fn new() -> (Self, Receiver<Piece>) {
        let (pieces, told) = crossbeam_channel::unbounded();
        let shared = Shared { pieces, attempts: AtomicU64::new(0), state: Mutex::default() };
        (Self(Arc::new(shared)), told)
    }

    /// A model that is watched, under its name in the configuration.
    pub(super) fn of(&self, name: &str, model: Arc<Generate>) -> Arc<Generate> {
        Arc::new(Watched { name: name.to_owned(), model, attention: self.clone() })
    }

    /// A turn begins: what was asked before is forgotten.
    pub(super) fn begin(&self) {
        let mut state = self.state();
        state.asked.clear();
        state.prune();
    }

    /// Ends what models do for a turn, now and until it ends.
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

    /// What was asked for a turn that was the latest one, in the order of the flow.
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
    /// Lets go of requests that were answered or that their stage gave up.
    fn prune(&mut self) {
        self.under_way.retain(|one| {
            let reply = one.reply.lock().unwrap_or_else(PoisonError::into_inner);
            reply.as_ref().is_some_and(|reply| !reply.is_abandoned())
        });
    }
}

fn interrupted() -> CallError {
    CallError::Model("interrupted by who reads along".to_owned())
}

fn taken(reply: &Waiting) -> Option<Reply<Generated>> {
    reply.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A model that is watched.
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
        mut request: GenerateRequest,
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
            // Of a question that is asked again the last attempt counts.
            let question = (asked.stage, asked.step);
            state.asked.retain(|(_, of, one)| *of != input || (one.stage, one.step) != question);
            state.asked.push((attempt, input.clone(), asked));
            let reply = Arc::clone(&waiting);
            state.under_way.push(UnderWay { input: input.clone(), reply, _model: answered });
        }
        if request.listener.is_some() {
            let pieces = shared.pieces.clone();
            request.listener = Some(Listener(Arc::new(move |text: &str| {
                let piece = Piece { input: input.clone(), attempt, text: text.to_owned() };
                // Nobody reads any more once the chat ends.
                let _ = pieces.send(piece);
            })));
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
        // The stage asks again; until then nothing is under way.
        drop(reply.unheard());
        match taken(&waiting) {
            Some(reply) => Err(Busy { request, reply }),
            // It was interrupted meanwhile, and so answered.
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
