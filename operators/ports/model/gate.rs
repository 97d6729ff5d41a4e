//! The port to a trained gate, which scores the certainty that a turn needs knowledge. (RAGate.)

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnstream_schemas::Speaker;

use super::Model;

/// The parts of a turn that a learned gate reads.
#[derive(Clone, Debug)]
pub struct GateReading<'a> {
    /// The dialogue, oldest first; the last is the current user turn. Never empty.
    pub utterances: Vec<(Speaker, &'a str)>,
    /// The evidence retrieved for the turn, best first; empty if the gate decides before retrieval.
    pub knowledge: Vec<&'a str>,
    /// A response that was drafted without knowledge, if there is one.
    pub response: Option<&'a str>,
}

/// The certainty that a turn needs knowledge, by each definition of need that the model knows:
/// 0..=1, scaled so that the threshold of every definition is one half.
pub type GateScores = BTreeMap<String, f64>;

/// The end of every prompt to a language model with an adapter; the answer follows after a space.
pub const ANSWER_FOLLOWS: &str = "### Response:";

/// The texts that a language model with an adapter reads to decide about a turn; each is added to
/// those before it. (RAGate-PEFT.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateInputs {
    /// The dialogue.
    Contx,
    /// A response, with its named entities.
    ContxRespNer,
    /// Retrieved knowledge as well.
    ContxRespNerKnow,
    /// The source of the knowledge as well.
    ContxRespNerKnowSource,
}

impl GateInputs {
    /// All inputs.
    pub const ALL: [Self; 4] =
        [Self::Contx, Self::ContxRespNer, Self::ContxRespNerKnow, Self::ContxRespNerKnowSource];

    /// The name in cards and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Contx => "contx",
            Self::ContxRespNer => "contx-resp-ner",
            Self::ContxRespNerKnow => "contx-resp-ner-know",
            Self::ContxRespNerKnowSource => "contx-resp-ner-know-source",
        }
    }

    /// Whether a response is read.
    pub fn reads_response(self) -> bool {
        self >= Self::ContxRespNer
    }

    /// Whether retrieved knowledge is read.
    pub fn reads_knowledge(self) -> bool {
        self >= Self::ContxRespNerKnow
    }
}

/// A prompt to a language model with an adapter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NeedPrompt(pub String);

/// A language model with an adapter: asked prompts, it answers with the certainty of each that its
/// turn needs knowledge, on the scale of [`GateScores`].
pub type JudgeNeed = dyn Model<Vec<NeedPrompt>, Vec<f64>>;

/// A [`JudgeNeed`] with what it was trained for.
#[derive(Clone)]
pub struct NeedJudge {
    /// The model.
    pub model: Arc<JudgeNeed>,
    /// The language that it was trained on, as a BCP 47 primary tag.
    pub language: String,
    /// The definition of need that it knows, by the name of its data set.
    pub definition: String,
}

/// A trained gate. Works while its caller waits, in about a millisecond.
pub trait LearnedGate: Send + Sync {
    /// The gate's name in records.
    fn name(&self) -> &str;

    /// The language that the gate was trained on, as a BCP 47 primary tag.
    fn language(&self) -> &str;

    /// The definitions of need that the gate knows, by the names of their data sets.
    fn definitions(&self) -> Vec<&str>;

    /// Scores a turn.
    ///
    /// # Errors
    /// The model failed on the turn.
    fn score(&self, turn: &GateReading<'_>) -> Result<GateScores, GateFailure>;
}

/// Why a learned gate gave no score.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the learned gate: {0}")]
pub struct GateFailure(pub String);
