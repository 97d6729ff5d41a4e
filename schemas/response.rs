//! Defines a response, as it leaves on the `responses` topic (brief, for clients that show it) and
//! on the `traces` topic (with everything that led to it).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::demand::Demand;
use crate::evidence::{Citation, Evidence};
use crate::fault::Degraded;
use crate::fingerprint::Fingerprint;
use crate::handover::HandOffReason;
use crate::history::{Evicted, RecalledTurn};
use crate::ids::{ConversationId, InputId, ResponseId, Score, TenantId, TurnId, UserId};
use crate::model::ModelUsed;
use crate::plan::Plan;
use crate::refinement::RefinementRound;
use crate::stages::Stage;
use crate::turn::Extra;

/// The decision of the gate (RAGate).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateDecision {
    /// Whether the turn needs knowledge: score ≥ threshold.
    pub retrieve: bool,
    /// How much the turn needs knowledge, 0..=1.
    pub score: Score,
    /// The score from which a turn retrieves, 0..=1; absent if the gate did not decide by a score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Score>,
    /// The parts of the score, by name: the contributions of documented features or, for a trained gate,
    /// the score by each definition of need, 0..=1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub features: BTreeMap<String, Score>,
}

/// The measure of a confidence. Confidences of different kinds are never compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConfidenceKind {
    /// The lowest logit among the chosen tokens (RAGate's tables).
    LowestLogit,
    /// The lowest log-probability among the chosen tokens.
    LowestLogProbability,
    /// The mean relevance of the facts that a model-free response states, 0..=1.
    MeanRelevance,
    /// The share of right answers on development data among those whose evidence fitted as well,
    /// 0..=1.
    AnswerPrecision,
}

/// How sure the generator was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Confidence {
    /// The kind of the measure.
    pub kind: ConfidenceKind,
    /// The value of the measure.
    pub value: f64,
}

/// What a response does.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Answers from the evidence.
    Answer,
    /// Asks one question back, which names what is missing.
    Ask,
    /// Says that nothing in the knowledge answers.
    Decline,
    /// Hands the conversation over to a person.
    HandOff,
    /// Greets, thanks, says good-bye, or keeps the conversation going.
    Social,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 5] =
        [Self::Answer, Self::Ask, Self::Decline, Self::HandOff, Self::Social];

    /// Returns the name in records and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Ask => "ask",
            Self::Decline => "decline",
            Self::HandOff => "hand_off",
            Self::Social => "social",
        }
    }
}

/// The state of the knowledge that a response was made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KnowledgeState {
    /// The snapshot, named by the checksum of its content.
    pub snapshot: String,
    /// Per partition of the `knowledge` topic: the first offset that was not yet applied.
    #[serde(default)]
    pub offsets: BTreeMap<i32, i64>,
}

/// The response to one user turn. Where `brief` is true, the fields from `gate` on are absent,
/// except `model`, `degraded`, `metadata` and `extra`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Response {
    /// Version of this record.
    pub schema_version: u32,
    /// The id of this response: the coordinates of its input.
    pub response_id: ResponseId,
    /// The input that it answers.
    pub input: InputId,
    /// The organisation, if the turn named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// The conversation.
    pub conversation_id: ConversationId,
    /// The person, if the turn named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    /// The turn that it answers.
    pub turn_id: TurnId,
    /// The words of the response. Empty only from the generator `none`.
    pub text: String,
    /// What the response does; absent if the decision is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// Why the conversation is handed over; present with the action `hand_off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_off: Option<HandOffReason>,
    /// The share of right answers on development data among those whose best evidence fitted as
    /// well as here, 0..=1; absent if no reader judged the evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_precision: Option<Score>,
    /// The evidence that the words come from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub citations: Vec<Citation>,
    /// Whether this record leaves out how the response came about. The record of the same `response_id` on
    /// the topic `traces` then has it, if responses are traced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub brief: bool,
    /// The digests of the program, configuration, prompts, models and knowledge that made it; a
    /// brief record has only the digest of all together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// Whether the turn needs knowledge.
    #[serde(default)]
    pub gate: GateDecision,
    /// The knowledge that it demands; empty if the gate decided against retrieval.
    #[serde(default)]
    pub demand: Demand,
    /// The sources that were asked; empty (NULL) if the gate decided against retrieval.
    #[serde(default)]
    pub plan: Plan,
    /// The evidence from the sources: selected evidence first, in its order.
    #[serde(default)]
    pub evidence: Vec<Evidence>,
    /// The rounds in which the response was made anew from other evidence, in order; `text` and `evidence`
    /// are those of the last draft. Absent if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refinement: Vec<RefinementRound>,
    /// The recalled history: entries of the window, the latest first, then older ones by falling
    /// relevance.
    #[serde(default)]
    pub history: Vec<RecalledTurn>,
    /// The entries that this turn evicted from the history.
    #[serde(default)]
    pub evicted: Vec<Evicted>,
    /// The query as completed from earlier exchanges, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_reconstructed: Option<String>,
    /// How sure the generator was, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
    /// The state of the knowledge that it was made from.
    #[serde(default)]
    pub knowledge: KnowledgeState,
    /// The model or generator that wrote it.
    pub model: ModelUsed,
    /// The language models that decided in earlier stages, by stage.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<Stage, ModelUsed>,
    /// The stages that failed and that the response was made without, each with the reason.
    pub degraded: Vec<Degraded>,
    /// Microseconds per stage. Left out in replays unless requested.
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

/// A response without what led to it, for clients that show it: a record whose `brief` is true.
#[derive(Clone, Debug, Serialize)]
pub struct BriefResponse<'a> {
    schema_version: u32,
    response_id: &'a ResponseId,
    input: &'a InputId,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: &'a Option<TenantId>,
    conversation_id: &'a ConversationId,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: &'a Option<UserId>,
    turn_id: &'a TurnId,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<Action>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hand_off: Option<HandOffReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer_precision: Option<Score>,
    #[serde(skip_serializing_if = "<[Citation]>::is_empty")]
    citations: &'a [Citation],
    brief: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<Fingerprint>,
    model: &'a ModelUsed,
    degraded: &'a [Degraded],
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    metadata: &'a Extra,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    extra: &'a Extra,
}

impl<'a> From<&'a Response> for BriefResponse<'a> {
    fn from(response: &'a Response) -> Self {
        Self {
            schema_version: response.schema_version,
            response_id: &response.response_id,
            input: &response.input,
            tenant_id: &response.tenant_id,
            conversation_id: &response.conversation_id,
            user_id: &response.user_id,
            turn_id: &response.turn_id,
            text: &response.text,
            action: response.action,
            hand_off: response.hand_off,
            answer_precision: response.answer_precision,
            citations: &response.citations,
            brief: true,
            fingerprint: response.fingerprint.as_ref().map(Fingerprint::brief),
            model: &response.model,
            degraded: &response.degraded,
            metadata: &response.metadata,
            extra: &response.extra,
        }
    }
}
