//! The questions of a stage to its model, and the answers.

use std::sync::Arc;

use turnstream_ports::model::gate::{JudgeNeed, NeedPrompt};
use turnstream_ports::model::reader::{Read, ReadRequest, Reading};
use turnstream_ports::model::unified::{Unified, UnifiedAnswer, UnifiedRequest};
use turnstream_ports::model::{
    Embed, EmbedRequest, Embedding, Generate, GenerateRequest, Generated, Score, ScoreRequest,
};
use turnstream_schemas::{Fault, FaultKind, Stage};

use super::CallConfig;

/// The model that a stage asks, and how the stage waits for it.
#[derive(Clone)]
pub struct Call {
    /// The model.
    pub model: AskedModel,
    /// How long the stage waits and how often it asks.
    pub config: CallConfig,
}

impl Call {
    /// Makes a call to a model with this configuration.
    pub fn new(model: impl Into<AskedModel>, config: &CallConfig) -> Self {
        Self { model: model.into(), config: config.clone() }
    }
}

/// Defines models, requests and answers as enums with one variant per port. A stage asks one model.
macro_rules! ports {
    ($($(#[$doc:meta])* $kind:ident: $model:ty, $request:ty => $answer:ty;)*) => {
        /// A model, by its port.
        #[derive(Clone)]
        pub enum AskedModel {
            $($(#[$doc])* $kind(Arc<$model>),)*
        }

        /// A request to a model, by its port.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Request {
            $($(#[$doc])* $kind($request),)*
        }

        /// A model's answer, by its port.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Answer {
            $($(#[$doc])* $kind($answer),)*
        }

        $(
            impl From<Arc<$model>> for AskedModel {
                fn from(model: Arc<$model>) -> Self {
                    Self::$kind(model)
                }
            }

            impl From<$request> for Request {
                fn from(request: $request) -> Self {
                    Self::$kind(request)
                }
            }

            impl TryFrom<Request> for $request {
                type Error = OtherPort;

                fn try_from(request: Request) -> Result<Self, OtherPort> {
                    match request {
                        Request::$kind(request) => Ok(request),
                        _ => Err(OtherPort),
                    }
                }
            }

            impl From<$answer> for Answer {
                fn from(answer: $answer) -> Self {
                    Self::$kind(answer)
                }
            }

            impl TryFrom<Answer> for $answer {
                type Error = OtherPort;

                fn try_from(answer: Answer) -> Result<Self, OtherPort> {
                    match answer {
                        Answer::$kind(answer) => Ok(answer),
                        _ => Err(OtherPort),
                    }
                }
            }
        )*
    };
}

ports! {
    /// A text, by a language model.
    Text: Generate, GenerateRequest => Generated;
    /// One vector per text, by an encoder.
    Vectors: Embed, EmbedRequest => Vec<Embedding>;
    /// One score per pair of texts, 0..=1.
    Scores: Score, ScoreRequest => Vec<f32>;
    /// One plan, relevance or response per request, by the unified model.
    Unified: Unified, Vec<UnifiedRequest> => Vec<UnifiedAnswer>;
    /// One reading per question, by the reader.
    Reading: Read, Vec<ReadRequest> => Vec<Reading>;
    /// One certainty that a turn needs knowledge per prompt, 0..=1, by a language model with an
    /// adapter.
    Needs: JudgeNeed, Vec<NeedPrompt> => Vec<f64>;
}

/// The error for a request or an answer whose port is not that of the stage's model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stage and its model have different ports")]
pub struct OtherPort;

impl Answer {
    /// Returns the answer as the type of the stage's port.
    ///
    /// # Errors
    /// If a model of another port answered.
    pub fn of<A: TryFrom<Self, Error = OtherPort>>(self, stage: Stage) -> Result<A, Fault> {
        A::try_from(self).map_err(|error| Fault::new(stage, FaultKind::Unfit, error.to_string()))
    }
}

/// A question to the stage's model.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub(super) request: Request,
    thought: String,
    pub(super) repeats: bool,
    pub(super) instead: Option<Box<Question>>,
}

impl Question {
    /// Makes a plain question.
    pub fn new(request: impl Into<Request>) -> Self {
        Self { request: request.into(), thought: String::new(), repeats: false, instead: None }
    }

    /// Attaches what the model thought before this question.
    pub fn after(self, thought: String) -> Self {
        Self { thought, ..self }
    }

    /// Allows the question to be asked once more if the answer is empty or cannot be used.
    pub fn repeated(self) -> Self {
        Self { repeats: true, ..self }
    }

    /// Adds a fallback: the runner asks `instead` if this question fails and the policy lets the turn
    /// go on.
    pub fn or(self, instead: Self) -> Self {
        Self { instead: Some(Box::new(instead)), ..self }
    }
}

/// The question that was asked. The stage gets it together with the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub(super) question: Question,
    /// Whether the previous answer was empty or could not be used.
    pub(super) repeated: bool,
}

impl Asked {
    pub(super) fn new(question: Question) -> Self {
        Self { question, repeated: false }
    }

    /// Returns the request in its first wording.
    pub fn request(&self) -> &Request {
        &self.question.request
    }

    /// Returns what the model thought in the previous question; empty if it was not asked to think.
    pub fn thought(&self) -> &str {
        &self.question.thought
    }

    /// Whether the stage can do without the answer, because a fallback question takes its place.
    pub fn is_dispensable(&self) -> bool {
        self.question.instead.is_some()
    }

    /// Whether the model may be asked once more if its answer cannot be used.
    pub fn may_repeat(&self) -> bool {
        self.question.repeats && !self.repeated
    }
}
