//! Defines the record of a partial response: what a language model has written of it so far.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ConversationId, TenantId, TurnId};

/// A record on the topic `partials`: a response while a language model writes it.
/// **Not committed**: the outcome of the turn replaces it. The response may have other words; any
/// other outcome withdraws them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PartialResponse {
    /// Version of this record.
    pub schema_version: u32,
    /// The conversation.
    pub conversation_id: ConversationId,
    /// The organisation, if the turn named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// The turn that is being answered.
    pub turn_id: TurnId,
    /// All words written so far. They replace those of the turn's earlier records.
    pub text: String,
}
