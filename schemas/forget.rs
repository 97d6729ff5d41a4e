//! The records of the `turns` topic: an utterance, or a demand to forget a history.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::ids::{ConversationId, Scope, ScopeKind, TenantId, TurnId, UserId};
use crate::turn::{Extra, Turn, first_version};

/// The `kind` of a demand to forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForgetKind {
    /// A demand to forget.
    #[default]
    Forget,
}

/// Asks to forget a history: everything that the scope remembers of inputs before this one on the log.
///
/// A demand with a conversation is about that conversation, one without about the user. The engine's
/// configuration (`turns.scope`) decides which of the two has a history of its own. A demand for the
/// other ends as a dead letter that says what to send instead. A demand has no time: its place on the
/// log decides which inputs are forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "anyOf" = [{ "required": ["conversation_id"] }, { "required": ["user_id"] }]
))]
pub struct Forget {
    /// Version of this record; 1 if absent. A record with a version above the engine's becomes a dead letter.
    #[serde(default = "first_version")]
    pub schema_version: u32,
    /// Marks the record as a demand to forget.
    pub kind: ForgetKind,
    /// The organisation; `default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// The conversation to forget; required if the scope is `conversation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// The user to forget, if no conversation is named; required if the scope is `user`. Beside a
    /// conversation it is carried to the output and has no other effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    /// Unique within the scope, among turns too; `partition-offset` of the input if absent. A repeat is
    /// recorded as a duplicate and removes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// Anything that the sender wants to see again; carried to the output.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Extra,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Why a demand to forget names no scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoScope {
    /// Neither a conversation nor a user is named.
    Nothing,
    /// Each conversation has a history of its own, but the demand names a user.
    UserOfConversations,
    /// Each user has one history of all conversations, but the demand names a conversation.
    ConversationOfUser,
}

impl Forget {
    /// A demand to forget the history of a scope of this kind.
    pub fn of(kind: ScopeKind, tenant: Option<TenantId>, id: &str) -> Self {
        let mut forget = Self {
            schema_version: crate::SCHEMA_VERSION,
            kind: ForgetKind::Forget,
            tenant_id: tenant,
            conversation_id: None,
            user_id: None,
            turn_id: None,
            metadata: Map::new(),
            extra: Map::new(),
        };
        match kind {
            ScopeKind::Conversation => forget.conversation_id = Some(id.into()),
            ScopeKind::User => forget.user_id = Some(id.into()),
        }
        forget
    }

    /// The scope to forget.
    ///
    /// # Errors
    /// If the demand names no scope, or one without a history of its own.
    pub fn scope(&self, kind: ScopeKind) -> Result<Scope, NoScope> {
        let id = match (kind, &self.conversation_id, &self.user_id) {
            (_, None, None) => return Err(NoScope::Nothing),
            (ScopeKind::Conversation, Some(conversation), _) => conversation.as_str(),
            (ScopeKind::Conversation, None, Some(_)) => return Err(NoScope::UserOfConversations),
            (ScopeKind::User, None, Some(user)) => user.as_str(),
            (ScopeKind::User, Some(_), _) => return Err(NoScope::ConversationOfUser),
        };
        Ok(Scope::new(self.tenant_id.as_ref(), id))
    }
}

/// A record on the `turns` topic.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum TurnsRecord {
    /// An utterance.
    Turn(Turn),
    /// A demand to forget.
    Forget(Forget),
}

impl TurnsRecord {
    /// Reads a record of the type that its `kind` names.
    ///
    /// # Errors
    /// If the record is not JSON, is of an unknown kind, or does not have the fields of its kind.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        // The kinds of all records.
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Kind {
            Turn,
            Forget,
        }
        #[derive(Deserialize)]
        struct Named {
            kind: Option<Kind>,
        }
        // Nearly all records are turns, so only other records are parsed twice.
        let no_turn = match serde_json::from_str(text) {
            Ok(turn) => return Ok(Self::Turn(turn)),
            Err(error) => error,
        };
        if !text.trim_start().starts_with('{') {
            return Err(no_turn);
        }
        match serde_json::from_str::<Named>(text)?.kind {
            Some(Kind::Forget) => serde_json::from_str(text).map(Self::Forget),
            Some(Kind::Turn) | None => Err(no_turn),
        }
    }

    /// The scope that the record belongs to; `None` if it names none.
    pub fn scope(&self, kind: ScopeKind) -> Option<Scope> {
        match self {
            Self::Turn(turn) => turn.scope(kind),
            Self::Forget(forget) => forget.scope(kind).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forget(json: &str) -> Forget {
        match TurnsRecord::parse(json).unwrap() {
            TurnsRecord::Forget(forget) => forget,
            TurnsRecord::Turn(turn) => panic!("{turn:?}"),
        }
    }

    #[test]
    fn a_record_is_what_its_kind_says() {
        let said = r#"{"conversation_id":"c","speaker":"user","text":"hi"}"#;
        assert!(matches!(TurnsRecord::parse(said), Ok(TurnsRecord::Turn(_))));
        let bare = forget(r#"{"kind":"forget","conversation_id":"c"}"#);
        assert_eq!(bare, Forget::of(ScopeKind::Conversation, None, "c"));
        // Fields that only a turn has are kept like any unknown field.
        let like_a_turn = forget(r#"{"kind":"forget","user_id":"u","speaker":"user","text":"x"}"#);
        assert_eq!(like_a_turn.extra["text"], "x");
        for (json, expected) in [
            (r#"{"kind":"sing","conversation_id":"c"}"#, "expected `turn` or `forget`"),
            (r#"{"kind":"turn","conversation_id":"c"}"#, "missing field `speaker`"),
            (r#"{"kind":"forget","conversation_id":7}"#, "integer `7`"),
            (r#"{"conversation_id":"c","text":"hi"}"#, "missing field `speaker`"),
            ("[]", "expected struct Turn"),
            ("{", "EOF"),
        ] {
            let error = TurnsRecord::parse(json).unwrap_err().to_string();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }

    #[test]
    fn what_has_no_history_of_its_own_cannot_be_forgotten() {
        let named = |ids: &str| forget(&format!(r#"{{"kind":"forget","tenant_id":"t"{ids}}}"#));
        let conversation = named(r#","conversation_id":"c""#);
        let user = named(r#","user_id":"u""#);
        let both = named(r#","conversation_id":"c","user_id":"u""#);
        let scope = |id: &str| Ok(Scope::new(Some(&"t".into()), id));
        use ScopeKind::{Conversation, User};
        assert_eq!(conversation.scope(Conversation), scope("c"));
        assert_eq!(both.scope(Conversation), scope("c"));
        assert_eq!(user.scope(Conversation), Err(NoScope::UserOfConversations));
        assert_eq!(user.scope(User), scope("u"));
        assert_eq!(conversation.scope(User), Err(NoScope::ConversationOfUser));
        assert_eq!(both.scope(User), Err(NoScope::ConversationOfUser));
        assert_eq!(named("").scope(User), Err(NoScope::Nothing));
    }
}
