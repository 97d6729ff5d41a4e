//! A response as it leaves on the `responses` topic, with everything that led to it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::demand::Demand;
use crate::evidence::Evidence;
use crate::fault::Degraded;
use crate::history::{Evicted, RecalledTurn};
use crate::ids::{ConversationId, InputId, ResponseId, Score, TenantId, TurnId, UserId};
use crate::model::ModelUsed;
use crate::plan::Plan;
use crate::refinement::RefinementRound;
use crate::stages::Stage;
use crate::turn::Extra;

/// What the gate decided (RAGate).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateDecision {
    /// Whether the turn needs knowledge: score ≥ threshold.
    pub retrieve: bool,
    /// How much it does, 0..=1.
    pub score: Score,
    /// What the score had to reach, 0..=1; absent where no score was weighed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Score>,
    /// What made the score, by name: documented features, each with its contribution; of a trained
    /// gate the score by each definition of need, 0..=1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub features: BTreeMap<String, Score>,
}

/// What a confidence measures. Two kinds are never compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConfidenceKind {
    /// The lowest logit among the chosen tokens (RAGate's tables).
    LowestLogit,
    /// The lowest log-probability among the chosen tokens.
    LowestLogProbability,
    /// The mean relevance of the facts that a model-free response states, 0..=1.
    MeanRelevance,
}

/// How sure the generator was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Confidence {
    /// What is measured.
    pub kind: ConfidenceKind,
    /// The measure.
    pub value: f64,
}

/// The state of the knowledge a response was made with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KnowledgeState {
    /// The snapshot, by the checksum of its content.
    pub snapshot: String,
    /// Per partition of the `knowledge` topic: the next offset that was not yet applied.
    #[serde(default)]
    pub offsets: BTreeMap<i32, i64>,
}

/// The response to one user turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Response {
    /// Version of this record.
    pub schema_version: u32,
    /// This response: the coordinates of its input.
    pub response_id: ResponseId,
    /// The input it answers.
    pub input: InputId,
    /// The organisation, where the turn named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// The conversation.
    pub conversation_id: ConversationId,
    /// The person, where the turn named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    /// The turn it answers.
    pub turn_id: TurnId,
    /// What is said. Empty only from the no-op generator.
    pub text: String,
    /// Does the turn need knowledge?
    pub gate: GateDecision,
    /// Which knowledge it demands; empty where the gate said no.
    pub demand: Demand,
    /// Which sources were asked; empty (NULL) where the gate said no.
    pub plan: Plan,
    /// What they gave: selected evidence first, in its order.
    pub evidence: Vec<Evidence>,
    /// The rounds in which it was made anew from other evidence, in order; `text` and `evidence` are those of
    /// the last one. Absent where there was none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refinement: Vec<RefinementRound>,
    /// Which history was recalled, by falling weight.
    pub history: Vec<RecalledTurn>,
    /// Which entries this turn pushed out of the history.
    pub evicted: Vec<Evicted>,
    /// The query completed from what was recalled, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_reconstructed: Option<String>,
    /// How sure the generator was, where it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
    /// The state of the knowledge it was made with.
    pub knowledge: KnowledgeState,
    /// What wrote it.
    pub model: ModelUsed,
    /// The language models that decided in the stages before, by stage.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<Stage, ModelUsed>,
    /// Stages that failed and were gone without, each with the reason.
    pub degraded: Vec<Degraded>,
    /// Microseconds per stage. Left out in replays unless asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub timings_us: BTreeMap<Stage, u64>,
    /// The turn's metadata.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub metadata: Extra,
    /// The turn's unknown fields.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub extra: Extra,
}

impl Response {
    /// Whether a stage failed, and the turn went on without it.
    pub fn is_without(&self, stage: Stage) -> bool {
        self.degraded.iter().any(|degraded| degraded.stage() == stage)
    }
}
