//! Defines the rounds in which self-refinement made a response anew from other evidence (UniMS-RAG,
//! algorithm 1).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{EvidenceId, Score};

/// How good a piece of evidence is for a draft.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScoredEvidence {
    /// The piece.
    pub id: EvidenceId,
    /// Its relevance to the dialogue, 0..=1; absent if no judge scored it, and then 1 in `score`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relevance: Option<Score>,
    /// Its consistency with the draft, 0..=1.
    pub consistency: Score,
    /// Relevance × consistency, 0..=1.
    pub score: Score,
}

/// A round: a draft that was put aside, and the change of evidence for the next draft.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RefinementRound {
    /// Its number, from 1.
    pub round: u32,
    /// The text of the draft that was put aside.
    pub text: String,
    /// The evidence that the draft was made from, in its order.
    pub evidence: Vec<ScoredEvidence>,
    /// The evidence that was dropped, the lowest score first.
    pub dropped: Vec<EvidenceId>,
    /// The evidence that replaced it, in the order of the dropped pieces.
    pub added: Vec<EvidenceId>,
}
