//! The port to a trained gate, which scores the certainty that a turn needs knowledge. (RAGate.)

use std::collections::BTreeMap;

use turnstream_schemas::Speaker;

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
