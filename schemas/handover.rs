//! Defines who holds a conversation, and the records of its changes of hands: in the scope's own
//! record and on the compacted `conversations` topic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{ConversationId, EventTime, InputId, Scope, TenantId, UserId};

/// Who holds a conversation: who answers its next user turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// The engine.
    #[default]
    Bot,
    /// Nobody yet: the engine handed it off, and no agent has come.
    Waiting,
    /// An agent.
    Agent,
}

/// Why a conversation is handed over to a person.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum HandOffReason {
    /// The user asked for a person.
    Asked,
    /// The user complains of repeated trouble, or is angry.
    Complaint,
    /// The user speaks of danger to people: self-harm, a threat, an emergency.
    Safety,
    /// Nothing was found for the user's last turns.
    NothingFound,
    /// Staff taught to hand over turns like this one.
    Taught,
}

impl HandOffReason {
    /// All reasons.
    pub const ALL: [Self; 5] =
        [Self::Asked, Self::Complaint, Self::Safety, Self::NothingFound, Self::Taught];

    /// Returns the name in records and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Complaint => "complaint",
            Self::Safety => "safety",
            Self::NothingFound => "nothing_found",
            Self::Taught => "taught",
        }
    }
}

/// Why a conversation changed hands. The reason implies the [holder](Self::holder).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum HandoverReason {
    /// A response handed it off.
    HandOff,
    /// An agent spoke.
    AgentTurn,
    /// An agent sent a `takeover` directive.
    Takeover,
    /// A `release` directive came.
    Release,
    /// A user turn came, and the agent had not spoken for long.
    AgentSilent,
    /// A user turn came, and the user had waited for long.
    NobodyCame,
}

impl HandoverReason {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::HandOff,
        Self::AgentTurn,
        Self::Takeover,
        Self::Release,
        Self::AgentSilent,
        Self::NobodyCame,
    ];

    /// Returns the name in records and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HandOff => "hand_off",
            Self::AgentTurn => "agent_turn",
            Self::Takeover => "takeover",
            Self::Release => "release",
            Self::AgentSilent => "agent_silent",
            Self::NobodyCame => "nobody_came",
        }
    }

    /// Returns who holds a conversation after it changed hands for this reason.
    pub const fn holder(self) -> Holder {
        match self {
            Self::HandOff => Holder::Waiting,
            Self::AgentTurn | Self::Takeover => Holder::Agent,
            Self::Release | Self::AgentSilent | Self::NobodyCame => Holder::Bot,
        }
    }
}

/// A change of hands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Handover {
    /// Who holds the conversation from here on.
    pub holder: Holder,
    /// Why.
    pub reason: HandoverReason,
    /// The input that caused the change.
    pub since: InputId,
    /// Event time of that input.
    pub time: EventTime,
    /// For `waiting`: why the response handed the conversation off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_off: Option<HandOffReason>,
    /// For `waiting`: the queue of people who may take it, if the configuration names one for that reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The length of the wait that this change ends, in milliseconds of event time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
}

/// A record on the compacted `conversations` topic: the last change of hands of a scope. Its key is the
/// scope. A scope without a record was always held by the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConversationRecord {
    /// Version of this record.
    pub schema_version: u32,
    /// The scope.
    pub scope: Scope,
    /// The organisation, if the input named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// The conversation of the input, if it named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// The person, if the input named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    /// Who holds it, since when and why.
    #[serde(flatten)]
    pub handover: Handover,
}
