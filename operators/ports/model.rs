//! What stages need of models: generate, embed and score, behind one port. Nothing here knows
//! candle, a server or a thread; of the stages' crate the stage runner alone asks.
//!
//! A [`Model`] takes a request with a [`Reply`] and answers whenever it likes, from wherever it
//! likes. It cannot forget to: a reply that is dropped answers with a fault of its own, since a
//! lost answer would stop the conversation and the frontier for ever.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use serde::{Deserialize, Serialize};
use turnstream_schemas::{Confidence, InputId, ModelUsed, Stage};

pub mod encoder;
pub mod scripted;
pub mod unified;

/// Asks for text.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateRequest {
    /// Who asks; a model may serve several stages.
    pub stage: Stage,
    /// What the model is told about its task.
    pub system: String,
    /// What it is asked, the dialogue included.
    pub prompt: String,
    /// Tokens to generate at most.
    pub max_tokens: u32,
    /// Sampling temperature, from 0 (greedy).
    pub temperature: f32,
    /// The JSON Schema that the answer must follow, where it must.
    pub schema: Option<Arc<str>>,
    /// Seeds the sampling, so that the same request gives the same text where the model can do
    /// that.
    pub seed: u64,
    /// Is told of the text as it is written, where somebody wants to read along.
    pub listener: Option<Listener>,
    /// What it is asked for, where a stage asks about a turn: answers are recorded by it.
    pub origin: Option<Origin>,
}

/// What a stage asks a language model for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The input whose turn it is about.
    pub input: InputId,
    /// Which of the stage's questions it is.
    pub step: Step,
    /// How often the response had been made anew when it was asked.
    #[serde(default, skip_serializing_if = "is_first")]
    pub round: u32,
    /// Whether it is the draft that the gate reads: what is asked behind the gate is asked anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_gate: bool,
    /// Hash of the prompt's template.
    pub prompt: String,
}

fn is_first(round: &u32) -> bool {
    *round == 0
}

/// A stage's question about a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// To think, before it answers.
    Think,
    /// To answer.
    Answer,
    /// To answer once more, since the answer before could not be read.
    Again,
}

/// Is told of a text piece by piece while a model writes it, from whichever thread that is. The
/// answer holds the whole text nevertheless; after a failed attempt the next one begins anew, as does each
/// round of self-refinement.
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

/// Text that a model wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generated {
    /// The text.
    pub text: String,
    /// How sure the model was, where it says.
    pub confidence: Option<Confidence>,
    /// What wrote it.
    pub model: ModelUsed,
}

/// A sentence embedding: finite numbers, L2 norm 1, as many as the model has dimensions.
pub type Embedding = Arc<[f32]>;

/// Asks for the embeddings of texts, one each, in order.
pub type EmbedRequest = Vec<String>;

/// Asks for the scores of pairs of texts, one each, in order.
pub type ScoreRequest = Vec<(String, String)>;

/// A model that answers requests of type `Q` with `A`.
pub trait Model<Q, A>: Send + Sync {
    /// The model's name, for records and metrics.
    fn name(&self) -> &str;

    /// Takes the request, or hands it back at once where the queue is full. Never blocks. The
    /// answer comes through the reply.
    fn ask(&self, request: Q, reply: Reply<A>) -> Result<(), Busy<Q, A>>;
}

/// Generates text.
pub type Generate = dyn Model<GenerateRequest, Generated>;
/// Embeds sentences.
pub type Embed = dyn Model<EmbedRequest, Vec<Embedding>>;
/// Scores pairs of texts, each 0..=1.
pub type Score = dyn Model<ScoreRequest, Vec<f32>>;

/// A request that a full queue handed back.
pub struct Busy<Q, A> {
    /// The request.
    pub request: Q,
    /// Its reply, not answered.
    pub reply: Reply<A>,
}

/// Why a model gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum CallError {
    /// The model answered with an error.
    #[error("the model answered: {0}")]
    Model(String),
    /// The model answered, and there is no text in its answer.
    #[error("the model answered without a text: {0}")]
    Empty(String),
    /// The model panicked while it worked on the request.
    #[error("the model panicked")]
    Panic,
    /// The model dropped the request without an answer.
    #[error("the model dropped the request without an answer")]
    Dropped,
    /// No answer came within the stage's timeout.
    #[error("no answer within {timeout_ms} ms")]
    Timeout {
        /// How long the stage waited.
        timeout_ms: u64,
    },
}

/// A reply for who asks outside of the flow, and where its answer arrives.
pub fn reply<A>() -> (Reply<A>, Asked<A>) {
    let (send, answers) = crossbeam_channel::bounded(1);
    let outcome = Outcome::default();
    let asked = Asked { answers, outcome: outcome.clone() };
    (Reply::new((0, 1), send, Arc::new(|| ()), outcome), asked)
}

/// Where the answer to one request arrives. Nobody waits for it any more once this is dropped.
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
        // A reply that is dropped answers as well, so that the channel does not just close.
        self.answers.recv().map_or(Err(CallError::Dropped), |(_, _, answer)| answer)
    }

    /// Waits for the answer, for so long.
    ///
    /// # Errors
    /// The model gave none, or not in that time.
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

/// Which came first: the answer, or that nobody waits for it any more. One of the two, for whoever
/// asks and whoever answers, so that what is heard of an answer is what was used of it.
pub struct Outcome<A>(Arc<Deciding<A>>);

struct Deciding<A> {
    decided: AtomicU8,
    /// Who hears what was used, each by a name.
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

    /// Nobody waits any more. False where the answer came before that: it is on its way.
    pub fn abandon(&self) -> bool {
        self.decide(Self::ABANDONED)
    }

    /// Nobody waits any more, and goes on with this error in the answer's place. False where the
    /// answer came before that.
    pub fn time_out(&self, error: CallError) -> bool {
        let abandoned = self.abandon();
        if abandoned {
            self.tell(&Err(error));
        }
        abandoned
    }

    /// There is an answer. False where nobody waits for it.
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

    /// Tells who hears, once.
    fn tell(&self, used: &Result<A, CallError>) {
        let taps = std::mem::take(&mut *self.taps());
        for (_, tap) in taps {
            tap(used);
        }
    }
}

/// An answer on its way back: which request, which attempt, what came of it.
pub type Answer<A> = (u64, u32, Result<A, CallError>);

/// Where a model puts its answer. Answers exactly once: explicitly, or by being dropped.
pub struct Reply<A> {
    ticket: u64,
    attempt: u32,
    answers: Sender<Answer<A>>,
    wake: Arc<dyn Fn() + Send + Sync>,
    outcome: Outcome<A>,
    answered: bool,
}

/// Hears what is used: an answer on its way, or that it took too long.
type Tap<A> = Box<dyn FnOnce(&Result<A, CallError>) + Send>;

impl<A: 'static> Reply<A> {
    /// The same, whose answer `hear` hears first: the one that is used, which is that it took too
    /// long where its stage gave it up for that; nothing where nobody waited for it any more. Who
    /// hears it already, by its name, where a full queue had handed it back, goes on hearing it.
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
    /// A reply to an attempt of a request, by its ticket. Its answer is sent to `answers`, and then
    /// `wake` called, where `outcome` was not abandoned before.
    pub fn new(
        (ticket, attempt): (u64, u32),
        answers: Sender<Answer<A>>,
        wake: Arc<dyn Fn() + Send + Sync>,
        outcome: Outcome<A>,
    ) -> Self {
        Self { ticket, attempt, answers, wake, outcome, answered: false }
    }

    /// The request that it answers.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The same, heard by nobody: for one that is let go of without an answer.
    pub fn unheard(self) -> Self {
        self.outcome.taps().clear();
        self
    }

    /// Answers the request. The caller may be gone; then nothing happens.
    pub fn answer(mut self, answer: Result<A, CallError>) {
        self.send(answer);
    }

    /// Whether nobody waits for the answer any more: the model may skip the work.
    pub fn is_abandoned(&self) -> bool {
        self.outcome.is_abandoned()
    }

    fn send(&mut self, answer: Result<A, CallError>) {
        self.answered = true;
        if !self.outcome.answer() {
            return;
        }
        self.outcome.tell(&answer);
        // The operator that asked is gone when its dataflow was dropped; nobody waits then.
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
        // Answered first: who waited cannot give it up any more, for it is on its way.
        let (first, asked) = reply();
        listening(first).answer(Ok(1));
        assert!(!asked.outcome.abandon());
        assert_eq!(asked.wait(), Ok(1));
        // Given up first: the answer is not heard, and nothing comes.
        let (second, asked) = reply();
        assert!(asked.outcome.abandon() && second.is_abandoned());
        listening(second).answer(Ok(2));
        assert!(asked.answers.try_recv().is_err());
        assert_eq!(*heard.lock().unwrap(), [Ok(1)]);
        // Too late for who asked, who goes on with that: it is what is heard, and not the answer.
        let (third, asked) = reply();
        let third = listening(listening(third));
        assert!(asked.outcome.time_out(CallError::Timeout { timeout_ms: 9 }));
        third.answer(Ok(3));
        assert_eq!(heard.lock().unwrap().last(), Some(&Err(CallError::Timeout { timeout_ms: 9 })));
        assert_eq!(heard.lock().unwrap().len(), 2, "once, by one that heard it already");
    }
}
