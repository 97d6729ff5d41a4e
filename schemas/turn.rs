//! Defines a turn as it arrives on the `turns` topic: one utterance of one speaker.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{
    ConversationId, EventTime, ResponseId, Scope, ScopeKind, TenantId, TurnId, UserId,
};

/// Fields that this version does not know. The engine keeps them and carries them to every output
/// as `extra`.
pub type Extra = Map<String, Value>;

/// The speaker of an utterance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The person who is served. The engine answers user turns.
    User,
    /// The other side: this engine, another bot or a human agent. The engine records system turns.
    System,
}

/// The `kind` of an utterance. Records of other kinds are [directives](crate::Directive).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnKind {
    /// An utterance.
    #[default]
    Turn,
}

/// One utterance of one speaker, as a client writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Turn {
    /// Version of this record; 1 if absent. A record with a version above the engine's becomes a dead letter.
    #[serde(default = "first_version")]
    pub schema_version: u32,
    /// Marks the record as an utterance; may be absent.
    #[serde(default)]
    pub kind: TurnKind,
    /// The organisation; `default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// The conversation that this turn belongs to; not empty.
    #[schemars(length(min = 1))]
    pub conversation_id: ConversationId,
    /// The person who speaks; required if the scope is `user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    /// Unique within the scope; `partition-offset` of the input if absent. A turn with one of the last 256
    /// ids is recorded as a duplicate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The speaker.
    pub speaker: Speaker,
    /// The words; not empty, at most `turns.max_text_bytes` bytes of UTF-8.
    #[schemars(length(min = 1))]
    pub text: String,
    /// When it was said; the log's time if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<EventTime>,
    /// BCP 47 language tag, such as `en` or `zh-TW`. If absent, or if the engine does not support the
    /// language, the script of the text decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Sentences that describe the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persona: Vec<String>,
    /// On a system turn: the response of the engine that it echoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<ResponseId>,
    /// Anything that the sender wants to see again; carried to every output.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

pub(crate) fn first_version() -> u32 {
    1
}

impl Turn {
    /// Makes a turn with the required fields only.
    pub fn new(conversation: &str, speaker: Speaker, text: &str) -> Self {
        Self {
            schema_version: crate::SCHEMA_VERSION,
            kind: TurnKind::Turn,
            tenant_id: None,
            conversation_id: conversation.into(),
            user_id: None,
            turn_id: None,
            speaker,
            text: text.to_owned(),
            timestamp: None,
            language: None,
            persona: Vec::new(),
            response_id: None,
            metadata: Map::new(),
            extra: Map::new(),
        }
    }

    /// Returns the scope of this turn; `None` if scopes are users and the turn names no user.
    pub fn scope(&self, kind: ScopeKind) -> Option<Scope> {
        let id = match kind {
            ScopeKind::Conversation => self.conversation_id.as_str(),
            ScopeKind::User => self.user_id.as_ref()?.as_str(),
        };
        Some(Scope::new(self.tenant_id.as_ref(), id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_kept() {
        let json = r#"{"conversation_id":"c","speaker":"user","text":"hi","mood":"good"}"#;
        let turn: Turn = serde_json::from_str(json).unwrap();
        assert_eq!(turn.extra["mood"], "good");
        assert_eq!(turn.schema_version, 1);
        let back = serde_json::to_value(&turn).unwrap();
        assert_eq!(back["mood"], "good");
    }

    #[test]
    fn what_is_of_another_kind_is_no_turn() {
        for kind in ["sing", "forget"] {
            let json = format!(
                r#"{{"kind":"{kind}","conversation_id":"c","speaker":"user","text":"la"}}"#
            );
            let error = serde_json::from_str::<Turn>(&json).unwrap_err().to_string();
            assert!(error.contains(kind), "{error}");
        }
    }

    #[test]
    fn a_user_scope_needs_a_user() {
        let mut turn = Turn::new("c", Speaker::User, "hi");
        assert_eq!(turn.scope(ScopeKind::User), None);
        turn.user_id = Some("u".into());
        assert_eq!(turn.scope(ScopeKind::User).unwrap().as_str(), "default/u");
    }
}
