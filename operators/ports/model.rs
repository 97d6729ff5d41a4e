//! The port to models: generate, embed and score. Nothing here knows candle, a server or a thread;
//! among the stages, only the stage runner uses this port.
//!
//! A [`Model`] takes a request with a [`Reply`] and may answer at any time, from any thread. A lost
//! answer would stop the conversation and the frontier for ever, so a reply that is dropped answers
//! with a fault by itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use serde::{Deserialize, Serialize};
use turnstream_schemas::{Confidence, InputId, ModelUsed, Stage};

pub mod calibration;
pub mod encoder;
pub mod gate;
pub mod matrix;
pub mod reader;
pub mod scripted;
pub mod unified;

/// Asks for text.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateRequest {
    /// The asking stage; a model may serve several.
    pub stage: Stage,
    /// The instructions: what the model is told about its task.
    pub system: String,
    /// The question, with the dialogue.
    pub prompt: String,
    /// The most tokens to generate.
    pub max_tokens: u32,
    /// Sampling temperature, from 0 (greedy).
    pub temperature: f32,
    /// The JSON Schema of the answer, if it must follow one.
    pub schema: Option<Arc<str>>,
    /// Seeds the sampling, so that the same request gives the same text if the model supports it.
    pub seed: u64,
    /// Receives the text while the model writes it, if the caller reads along.
    pub listener: Option<Listener>,
    /// Identifies the question of a stage about a turn, under which the answer is recorded.
    pub origin: Option<Origin>,
}

/// Identifies a question of a stage to a language model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The input of the turn.
    pub input: InputId,
    /// The stage's question.
    pub step: Step,
    /// How often self-refinement had made the response anew before this question.
    #[serde(default, skip_serializing_if = "is_first")]
    pub round: u32,
    /// Whether this is for the draft that the gate reads. After the gate, the stage asks the same
    /// question again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_gate: bool,
    /// Hash of the prompt's template.
    pub prompt: String,
}

fn is_first(round: &u32) -> bool {
    *round == 0
}

/// The step of a stage that asks about a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Thinks before it answers.
    Think,
    /// Answers.
    Answer,
    /// Answers once more, since the previous answer could not be read.
    Again,
}

/// Receives the whole text so far, on any thread, each time the model has written more of it. The
/// answer still holds the whole text. The text begins anew after a failed attempt and in each round
/// of self-refinement.
#[derive(Clone)]
pub struct Listener(pub Arc<dyn Fn(&str) + Send + Sync>);

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

impl PartialEq for Listener {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A text that a model wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generated {
    /// The text.
    pub text: String,
    /// The model's confidence, if it reports one.
    pub confidence: Option<Confidence>,
    /// The model that wrote it.
    pub model: ModelUsed,
}

/// A sentence embedding: finite numbers, L2 norm 1, as many as the model has dimensions.
pub type Embedding = Arc<[f32]>;

/// Asks for the embeddings of texts, in order.
pub type EmbedRequest = Vec<String>;

/// Asks for the scores of pairs of texts, in order.
pub type ScoreRequest = Vec<(String, String)>;

/// A model that answers requests of type `Q` with `A`.
pub trait Model<Q, A>: Send + Sync {
    /// The model's name, for records and metrics.
    fn name(&self) -> &str;

    /// Takes the request, or returns it at once if the queue is full. Never blocks. The answer
    /// comes through the reply.
    fn ask(&self, request: Q, reply: Reply<A>) -> Result<(), Busy<Q, A>>;
}

/// Generates text.
pub type Generate = dyn Model<GenerateRequest, Generated>;
/// The language models of a process by their names in the configuration.
pub type LanguageModels = BTreeMap<String, Arc<Generate>>;
/// Embeds sentences.
pub type Embed = dyn Model<EmbedRequest, Vec<Embedding>>;
/// Scores pairs of texts, each 0..=1.
pub type Score = dyn Model<ScoreRequest, Vec<f32>>;

/// A request that a full queue returned.
pub struct Busy<Q, A> {
    /// The request.
    pub request: Q,
    /// Its reply, not yet answered.
    pub reply: Reply<A>,
}

/// The start of the message of [`CallError::Unasked`].
pub const UNASKED: &str = "no language model was asked";

/// Why a model gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum CallError {
    /// The model answered with an error.
    #[error("the model answered: {0}")]
    Model(String),
    /// The model answered, but its answer has no text.
    #[error("the model answered without a text: {0}")]
    Empty(String),
    /// The model panicked while it worked on the request.
    #[error("the model panicked")]
    Panic,
    /// The model dropped the request without an answer.
    #[error("the model dropped the request without an answer")]
    Dropped,
    /// The model was not called: no answer to the question is recorded, or a limit of questions is
    /// reached.
    #[error("{UNASKED}: {0}", UNASKED = UNASKED)]
    Unasked(String),
    /// No answer came within the stage's timeout.
    #[error("no answer within {timeout_ms} ms")]
    Timeout {
        /// How long the stage waited.
        timeout_ms: u64,
    },
}

/// Makes a reply for a caller outside of the flow, and the receiver of its answer.
pub fn reply<A>() -> (Reply<A>, Asked<A>) {
    let (send, answers) = crossbeam_channel::bounded(1);
    let outcome = Outcome::default();
    let asked = Asked { answers, outcome: outcome.clone() };
    (Reply::new((0, 1), send, Arc::new(|| ()), outcome), asked)
}

/// Receives the answer to one request. Dropping it abandons the request.
pub struct Asked<A> {
    answers: Receiver<Answer<A>>,
    outcome: Outcome<A>,
}

impl<A> Asked<A> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The model gave none.
    pub fn wait(self) -> Result<A, CallError> {
        // A dropped reply sends an answer too, so the channel does not just close.
        self.answers.recv().map_or(Err(CallError::Dropped), |(_, _, answer)| answer)
    }

    /// Waits for the answer at most for `patience`.
    ///
    /// # Errors
    /// The model gave none, or none in that time.
    pub fn wait_for(self, patience: Duration) -> Result<A, CallError> {
        match self.answers.recv_timeout(patience) {
            Ok((_, _, answer)) => answer,
            Err(RecvTimeoutError::Disconnected) => Err(CallError::Dropped),
            Err(RecvTimeoutError::Timeout) => {
                Err(CallError::Timeout { timeout_ms: patience.as_millis() as u64 })
            }
        }
    }
}

impl<A> Drop for Asked<A> {
    fn drop(&mut self) {
        self.outcome.abandon();
    }
}

/// Decides once which came first: the answer, or its abandonment. The asker and the model share it,
/// so that taps hear exactly the answer that is used.
pub struct Outcome<A>(Arc<Deciding<A>>);

struct Deciding<A> {
    decided: AtomicU8,
    /// The taps to call with the result that is used, each with a name.
    taps: Mutex<Vec<(&'static str, Tap<A>)>>,
}

impl<A> Default for Outcome<A> {
    fn default() -> Self {
        Self(Arc::new(Deciding { decided: AtomicU8::new(0), taps: Mutex::default() }))
    }
}

impl<A> Clone for Outcome<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A> Outcome<A> {
    const ANSWERED: u8 = 1;
    const ABANDONED: u8 = 2;

    /// Abandons the request. Returns false if the answer came first and is on its way.
    pub fn abandon(&self) -> bool {
        self.decide(Self::ABANDONED)
    }

    /// Abandons the request, and tells the taps this error in place of the answer. Returns false if
    /// the answer came first.
    pub fn time_out(&self, error: CallError) -> bool {
        let abandoned = self.abandon();
        if abandoned {
            self.tell(&Err(error));
        }
        abandoned
    }

    /// Records that there is an answer. Returns false if the request was abandoned.
    fn answer(&self) -> bool {
        self.decide(Self::ANSWERED)
    }

    fn decide(&self, outcome: u8) -> bool {
        let decided = &self.0.decided;
        let open = decided.compare_exchange(0, outcome, Ordering::AcqRel, Ordering::Acquire);
        open.is_ok() || open == Err(outcome)
    }

    fn is_abandoned(&self) -> bool {
        self.0.decided.load(Ordering::Acquire) == Self::ABANDONED
    }

    fn taps(&self) -> MutexGuard<'_, Vec<(&'static str, Tap<A>)>> {
        self.0.taps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the taps, once.
    fn tell(&self, used: &Result<A, CallError>) {
        let taps = std::mem::take(&mut *self.taps());
        for (_, tap) in taps {
            tap(used);
        }
    }
}

/// An answer on its way back: the ticket, the attempt and the result.
pub type Answer<A> = (u64, u32, Result<A, CallError>);

/// Takes the answer of a model. Answers exactly once: explicitly, or by being dropped.
pub struct Reply<A> {
    ticket: u64,
    attempt: u32,
    answers: Sender<Answer<A>>,
    wake: Arc<dyn Fn() + Send + Sync>,
    outcome: Outcome<A>,
    answered: bool,
}

/// A function to call with the result that is used: an answer, or a timeout.
type Tap<A> = Box<dyn FnOnce(&Result<A, CallError>) + Send>;

impl<A: 'static> Reply<A> {
    /// Adds a tap that hears the result that is used, before the asker does: the answer, or a
    /// timeout if the stage gave up. It hears nothing if the request was abandoned otherwise. If a
    /// full queue returned the request, the earlier tap of the same name stays in place.
    pub fn heard(
        self,
        who: &'static str,
        hear: impl FnOnce(&Result<A, CallError>) + Send + 'static,
    ) -> Self {
        let mut taps = self.outcome.taps();
        if taps.iter().all(|(other, _)| *other != who) {
            taps.push((who, Box::new(hear)));
        }
        drop(taps);
        self
    }
}

impl<A> Reply<A> {
    /// Makes the reply to an attempt of the request with this ticket. Unless `outcome` was
    /// abandoned before, it sends its answer to `answers` and then calls `wake`.
    pub fn new(
        (ticket, attempt): (u64, u32),
        answers: Sender<Answer<A>>,
        wake: Arc<dyn Fn() + Send + Sync>,
        outcome: Outcome<A>,
    ) -> Self {
        Self { ticket, attempt, answers, wake, outcome, answered: false }
    }

    /// The ticket of the request.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Removes all taps, for a reply that is dropped without an answer.
    pub fn unheard(self) -> Self {
        self.outcome.taps().clear();
        self
    }

    /// Answers the request. Does nothing if the asker is gone.
    pub fn answer(mut self, answer: Result<A, CallError>) {
        self.send(answer);
    }

    /// Whether the request was abandoned, so that the model may skip the work.
    pub fn is_abandoned(&self) -> bool {
        self.outcome.is_abandoned()
    }

    fn send(&mut self, answer: Result<A, CallError>) {
        self.answered = true;
        if !self.outcome.answer() {
            return;
        }
        self.outcome.tell(&answer);
        // The channel is closed if the asker's dataflow was dropped.
        if self.answers.send((self.ticket, self.attempt, answer)).is_ok() {
            (self.wake)();
        }
    }
}

impl<A> Drop for Reply<A> {
    fn drop(&mut self) {
        if !self.answered {
            let unwinding = std::thread::panicking();
            self.send(Err(if unwinding { CallError::Panic } else { CallError::Dropped }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn an_answer_is_used_or_not_and_heard_just_where_it_is_used() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listening = |reply: Reply<u32>| {
            let hears = Arc::clone(&heard);
            reply.heard("test", move |answer| hears.lock().unwrap().push(answer.clone()))
        };
        // Answered first: the asker can no longer abandon the request.
        let (first, asked) = reply();
        listening(first).answer(Ok(1));
        assert!(!asked.outcome.abandon());
        assert_eq!(asked.wait(), Ok(1));
        // Abandoned first: the tap hears no answer, and none is sent.
        let (second, asked) = reply();
        assert!(asked.outcome.abandon() && second.is_abandoned());
        listening(second).answer(Ok(2));
        assert!(asked.answers.try_recv().is_err());
        assert_eq!(*heard.lock().unwrap(), [Ok(1)]);
        // Too late: the asker continues with the timeout, so the tap hears the timeout.
        let (third, asked) = reply();
        let third = listening(listening(third));
        assert!(asked.outcome.time_out(CallError::Timeout { timeout_ms: 9 }));
        third.answer(Ok(3));
        assert_eq!(heard.lock().unwrap().last(), Some(&Err(CallError::Timeout { timeout_ms: 9 })));
        assert_eq!(heard.lock().unwrap().len(), 2, "once, by one that heard it already");
    }
}
