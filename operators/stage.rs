//! The contract of a stage: how it decides about a turn, as a state machine without I/O.
//!
//! A stage is a struct that owns its configuration and what it decides by. It implements
//! [`Decide`]; where rules alone decide, [`DecideByRules`], which is less to write. It reads no
//! clock, starts no thread, holds no turn and mentions no timely: [`run`] does all that, for every
//! stage alike.
//!
//! ```text
//!             ┌────────────────── failed, and the policy lets it go on ─────────────────┐
//!             │                                                                         ▼
//!  turn ──▶ begin ──▶ a question ──▶ the model ──▶ read ──▶ decided ──▶ write ◀── without
//!             │             ▲                       │                     ▲
//!             │             └──────── another ──────┘                     │
//!             └───────────────────────── decided ─────────────────────────┘
//! ```
//!
//! - [`begin`](Decide::begin) looks at a turn and decides, or asks the stage's model.
//! - [`read`](Decide::read) makes something of the answer: a decision, or another question. So a
//!   model thinks in a call of its own, and so it is asked once more where its answer cannot be
//!   used ([`Prompt`](crate::prompted::Prompt) does both for the stages that ask a language model).
//! - [`without`](Decide::without) is what the turn goes on with where the stage is off, or failed.
//! - [`write`](Decide::write) puts the decision into the turn's record.
//!
//! What goes wrong is data: `begin` and `read` give a [`Fault`], and a panic in them becomes one.
//! [`OnFailure`] says what becomes of the turn. The runner also keeps deadlines, asks again after a
//! fault of the model, waits while a model's queue is full, gives up turns that nobody awaits any
//! more, and tells the [`StageObserver`] what happened.
//!
//! # Example
//!
//! A stage that asks an encoder where there are words, and needs nobody where there are none:
//!
//! ```
//! use turnstream_operators::flow::{Embedded, TurnInFlight};
//! use turnstream_operators::stage::{Answer, Asked, Call, Decide, OnFailure, Step, Without};
//! use turnstream_ports::model::Embedding;
//! use turnstream_schemas::{Fault, Stage};
//!
//! struct Direction {
//!     encoder: Call,
//! }
//!
//! impl Decide for Direction {
//!     type Turn = TurnInFlight;
//!     type Decision = Option<Embedding>;
//!
//!     const STAGE: Stage = Stage::Embedding;
//!
//!     fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
//!         OnFailure::Degrade
//!     }
//!
//!     fn call(&self) -> Option<Call> {
//!         Some(self.encoder.clone())
//!     }
//!
//!     fn begin(&self, turn: &TurnInFlight) -> Result<Step<Self::Decision>, Fault> {
//!         Ok(match turn.context.query() {
//!             "" => Step::decided(None),
//!             said => Step::ask(vec![said.to_owned()]),
//!         })
//!     }
//!
//!     fn read(
//!         &self,
//!         _: &TurnInFlight,
//!         _: &Asked,
//!         answer: Answer,
//!     ) -> Result<Step<Self::Decision>, Fault> {
//!         let vectors: Vec<Embedding> = answer.of(Self::STAGE)?;
//!         Ok(Step::decided(vectors.into_iter().next()))
//!     }
//!
//!     fn without(&self, _: &TurnInFlight, _: Without<'_>) -> Self::Decision {
//!         None
//!     }
//!
//!     fn write(&self, turn: &mut TurnInFlight, dialogue: Self::Decision) {
//!         turn.embedding = dialogue.map(|dialogue| Embedded { dialogue, utterance: None });
//!     }
//! }
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_schemas::{Fault, FaultKind, ModelUsed, Stage};

use crate::flow::InFlight;

mod calls;
mod line;
mod observer;
mod question;
mod runner;

pub use calls::CallConfig;
pub use observer::{Clock, Observer, Passage, StageObserver};
pub use question::{Answer, Asked, AskedModel, Call, Question, Request};
pub use runner::{StageRunner, Streams, run};

/// How a stage decides about turns. [`run`] calls it, on one worker, one turn at a time.
pub trait Decide: 'static {
    /// What comes in.
    type Turn: InFlight;
    /// What the stage decides about it.
    type Decision: 'static;

    /// The stage's name in records, configuration and metrics.
    const STAGE: Stage;

    /// What becomes of a turn that the stage fails on.
    fn on_failure(&self, turn: &Self::Turn) -> OnFailure;

    /// The model that the stage asks, where it asks one. [`run`] looks once, before the first turn:
    /// a stage without a model has no timers and no queues.
    fn call(&self) -> Option<Call> {
        None
    }

    /// Whether the stage has anything to do with the turn. Where it has not, the turn passes, with
    /// what [`without`](Self::without) gives, and is neither measured nor counted.
    fn concerns(&self, _turn: &Self::Turn) -> bool {
        true
    }

    /// Decides, or asks.
    ///
    /// # Errors
    /// The stage failed on the turn.
    fn begin(&self, turn: &Self::Turn) -> Result<Step<Self::Decision>, Fault>;

    /// Reads the answer to what was `asked`.
    ///
    /// # Errors
    /// The answer cannot be used, or the stage failed on the turn; or nobody was asked, as where the
    /// stage does not say what to make of an answer.
    fn read(
        &self,
        _turn: &Self::Turn,
        _asked: &Asked,
        _answer: Answer,
    ) -> Result<Step<Self::Decision>, Fault> {
        Err(nobody_was_asked(Self::STAGE))
    }

    /// What the turn goes on with that the stage does not decide about.
    fn without(&self, turn: &Self::Turn, why: Without<'_>) -> Self::Decision;

    /// Writes the decision into the turn: the parts of the record that the stage's row of the table names.
    fn write(&self, turn: &mut Self::Turn, decision: Self::Decision);
}

/// How a stage decides that has only rules. It is a [`Decide`] that never asks.
pub trait DecideByRules: 'static {
    /// What comes in.
    type Turn: InFlight;
    /// What the stage decides about it.
    type Decision: 'static;

    /// The stage's name in records, configuration and metrics.
    const STAGE: Stage;

    /// What becomes of a turn that the stage fails on.
    fn on_failure(&self) -> OnFailure;

    /// Decides.
    ///
    /// # Errors
    /// The stage failed on the turn.
    fn decide(&self, turn: &Self::Turn) -> Result<Self::Decision, Fault>;

    /// What the turn goes on with that the stage does not decide about.
    fn without(&self, turn: &Self::Turn, why: Without<'_>) -> Self::Decision;

    /// Writes the decision into the turn: the parts of the record that the stage's row of the table names.
    fn write(&self, turn: &mut Self::Turn, decision: Self::Decision);
}

impl<R: DecideByRules> Decide for R {
    type Turn = R::Turn;
    type Decision = R::Decision;

    const STAGE: Stage = R::STAGE;

    fn on_failure(&self, _: &Self::Turn) -> OnFailure {
        DecideByRules::on_failure(self)
    }

    fn begin(&self, turn: &Self::Turn) -> Result<Step<Self::Decision>, Fault> {
        self.decide(turn).map(Step::decided)
    }

    fn without(&self, turn: &Self::Turn, why: Without<'_>) -> Self::Decision {
        DecideByRules::without(self, turn, why)
    }

    fn write(&self, turn: &mut Self::Turn, decision: Self::Decision) {
        DecideByRules::write(self, turn, decision);
    }
}

/// What comes next for a turn.
#[derive(Clone, Debug)]
pub enum Step<D> {
    /// The stage has decided; with the model that did, where the turn's record is to name it.
    Decided(D, Option<ModelUsed>),
    /// The model is asked: for the first time, or for what follows from its last answer.
    Ask(Question),
    /// The model is asked once more, in these words, since its answer cannot be used. Only where
    /// [`Asked::may_repeat`].
    Repeat(Request),
}

impl<D> Step<D> {
    /// Decided, and no model is named.
    pub fn decided(decision: D) -> Self {
        Self::Decided(decision, None)
    }

    /// A plain question: nothing was thought before it, and no other takes its place.
    pub fn ask(request: impl Into<Request>) -> Self {
        Self::Ask(Question::new(request))
    }
}

/// What is wrong where an answer comes to a stage that asks nobody.
pub(crate) fn nobody_was_asked(stage: Stage) -> Fault {
    Fault::new(stage, FaultKind::Error, "an answer came to a stage that asks nobody")
}

/// Why a stage does not decide about a turn; where it failed, with what it had asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Without<'a> {
    /// It is off, or the turn does not concern it.
    Off,
    /// It failed, and the turn goes on without what it would have decided.
    Failed(Option<&'a Asked>),
    /// It failed, and its rules are to decide, where it has some; else as [`Self::Failed`]. A panic
    /// in them is contained, and `Failed` takes its place.
    ByRules(Option<&'a Asked>),
}

impl<'a> Without<'a> {
    /// What the model thought before it failed; empty where it did not.
    pub fn thought(self) -> &'a str {
        match self {
            Self::Off => "",
            Self::Failed(asked) | Self::ByRules(asked) => asked.map_or("", Asked::thought),
        }
    }
}

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

#[cfg(test)]
mod tests;
