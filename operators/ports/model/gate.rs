//! The port to a trained gate: how surely does a turn need knowledge? (RAGate.)

use std::collections::BTreeMap;

use turnstream_schemas::Speaker;

/// What a learned gate is shown of a turn.
#[derive(Clone, Debug)]
pub struct GateReading<'a> {
    /// The dialogue, oldest first; the last is the current user turn. Never empty.
    pub utterances: Vec<(Speaker, &'a str)>,
    /// What was retrieved for the turn, best first; empty where the gate decides before retrieval.
    pub knowledge: Vec<&'a str>,
    /// A response that was drafted without knowledge, where there is one.
    pub response: Option<&'a str>,
}

/// How surely a turn needs knowledge by each definition that the model knows: 0..=1, on the scale
/// on which the definition's own threshold is one half.
pub type GateScores = BTreeMap<String, f64>;

/// A trained gate. Works while its caller waits, in about a millisecond.
pub trait LearnedGate: Send + Sync {
    /// What it calls itself in records.
    fn name(&self) -> &str;

    /// The language it was trained on, by its BCP 47 primary tag.
    fn language(&self) -> &str;

    /// The definitions of need that it knows: data sets' names.
    fn definitions(&self) -> Vec<&str>;

    /// Scores a turn.
    ///
    /// # Errors
    /// The model fails on the turn.
    fn score(&self, turn: &GateReading<'_>) -> Result<GateScores, GateFailure>;
}

/// Why a learned gate gave no score.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the learned gate: {0}")]
pub struct GateFailure(pub String);
