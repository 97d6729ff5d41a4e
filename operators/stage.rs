//! The contract of a stage: a state machine without I/O that decides about one turn at a time.
//!
//! A stage is a struct that owns its configuration and whatever it needs to decide. It implements
//! [`Decide`], or the shorter [`DecideByRules`] if it never asks a model. A stage reads no clock,
//! starts no thread, holds no turn and does not mention timely: [`run`] does all that for every
//! stage.
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
//! - [`read`](Decide::read) turns the answer into a decision, or into another question. This is how a
//!   stage lets its model think in a separate call, and how it asks once more if it cannot use the
//!   answer ([`Prompt`](crate::prompted::Prompt) does both for stages that ask a language model).
//! - [`without`](Decide::without) returns a substitute for the decision if the stage is off or
//!   failed.
//! - [`write`](Decide::write) puts the decision into the turn's record.
//!
//! Errors are data: `begin` and `read` return a [`Fault`], and a panic in them becomes one.
//! [`OnFailure`] says what then happens to the turn. The runner also keeps deadlines, retries after
//! a fault of the model, waits while a model's queue is full, gives up turns whose outcome is no
//! longer awaited, and reports to the [`StageObserver`].
//!
//! # Example
//!
//! A stage that asks an encoder, except for an empty query:
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

/// Decides about turns. [`run`] calls it on one worker, one turn at a time.
pub trait Decide: 'static {
    /// The record that goes through the stage.
    type Turn: InFlight;
    /// What the stage decides about a turn.
    type Decision: 'static;

    /// The stage's name in records, configuration and metrics.
    const STAGE: Stage;

    /// Returns what happens to a turn on which the stage fails.
    fn on_failure(&self, turn: &Self::Turn) -> OnFailure;

    /// Returns the model that the stage asks, if it asks one. [`run`] calls this once, before the
    /// first turn: a stage without a model gets no timers and no queues.
    fn call(&self) -> Option<Call> {
        None
    }

    /// Whether the stage has to decide about the turn. If not, the turn passes with what
    /// [`without`](Self::without) returns, and is neither measured nor counted.
    fn concerns(&self, _turn: &Self::Turn) -> bool {
        true
    }

    /// Decides, or asks the model.
    ///
    /// # Errors
    /// The stage failed on the turn.
    fn begin(&self, turn: &Self::Turn) -> Result<Step<Self::Decision>, Fault>;

    /// Reads the answer to what was `asked`. A stage that asks a model must implement it.
    ///
    /// # Errors
    /// The answer cannot be used, or the stage failed on the turn. The default always returns an error.
    fn read(
        &self,
        _turn: &Self::Turn,
        _asked: &Asked,
        _answer: Answer,
    ) -> Result<Step<Self::Decision>, Fault> {
        Err(nobody_was_asked(Self::STAGE))
    }

    /// Returns a substitute for the decision if the stage does not decide about the turn.
    fn without(&self, turn: &Self::Turn, why: Without<'_>) -> Self::Decision;

    /// Writes the decision into the turn, and only into the parts of the record that the stage's row of
    /// the table names.
    fn write(&self, turn: &mut Self::Turn, decision: Self::Decision);
}

/// Decides by rules alone: a [`Decide`] that never asks a model.
pub trait DecideByRules: 'static {
    /// The record that goes through the stage.
    type Turn: InFlight;
    /// What the stage decides about a turn.
    type Decision: 'static;

    /// The stage's name in records, configuration and metrics.
    const STAGE: Stage;

    /// Returns what happens to a turn on which the stage fails.
    fn on_failure(&self) -> OnFailure;

    /// Decides.
    ///
    /// # Errors
    /// The stage failed on the turn.
    fn decide(&self, turn: &Self::Turn) -> Result<Self::Decision, Fault>;

    /// Returns a substitute for the decision if the stage does not decide about the turn.
    fn without(&self, turn: &Self::Turn, why: Without<'_>) -> Self::Decision;

    /// Writes the decision into the turn, and only into the parts of the record that the stage's row of
    /// the table names.
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

/// The next step for a turn.
#[derive(Clone, Debug)]
pub enum Step<D> {
    /// The stage has decided. The second value is the model that decided, if the turn's record is to
    /// name it.
    Decided(D, Option<ModelUsed>),
    /// Asks the model, for the first time or as a consequence of its last answer.
    Ask(Question),
    /// Asks the model once more, with this request, because its answer cannot be used. Allowed only if
    /// [`Asked::may_repeat`].
    Repeat(Request),
}

impl<D> Step<D> {
    /// Makes a decision for which the record names no model.
    pub fn decided(decision: D) -> Self {
        Self::Decided(decision, None)
    }

    /// Asks a plain question, without an earlier thought and without a fallback.
    pub fn ask(request: impl Into<Request>) -> Self {
        Self::Ask(Question::new(request))
    }
}

/// Makes the fault for an answer that reaches a stage without a model.
pub(crate) fn nobody_was_asked(stage: Stage) -> Fault {
    Fault::new(stage, FaultKind::Error, "the stage got an answer, but has no model to ask")
}

/// Why a stage does not decide about a turn. A failed stage also gets the question that it asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Without<'a> {
    /// The stage is off, or the turn does not concern it.
    Off,
    /// The stage failed, and the turn goes on without its decision.
    Failed(Option<&'a Asked>),
    /// The stage failed, and its rules decide instead; a stage without rules treats it like
    /// [`Self::Failed`]. If the rules panic, the runner contains the panic and passes `Failed`.
    ByRules(Option<&'a Asked>),
}

impl<'a> Without<'a> {
    /// Returns what the model thought before the failure; empty if it did not think.
    pub fn thought(self) -> &'a str {
        match self {
            Self::Off => "",
            Self::Failed(asked) | Self::ByRules(asked) => asked.map_or("", Asked::thought),
        }
    }
}

/// What happens to a turn on which a stage fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The turn goes on without this stage's output, and the response names the stage under `degraded`.
    #[default]
    Degrade,
    /// The turn becomes a dead letter.
    DeadLetter,
    /// The lexical form decides, and the response names the stage under `degraded`. If the stage is
    /// lexical already, or has no such form, this is the same as `degrade`.
    Lexical,
}

#[cfg(test)]
mod tests;
