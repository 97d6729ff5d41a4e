//! What may lie on the `turns` topic: an utterance, or a demand to forget what was said.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::ids::{ConversationId, Scope, ScopeKind, TenantId, TurnId, UserId};
use crate::turn::{Extra, Turn, first_version};

/// What a record that asks to forget says it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForgetKind {
    /// It asks to forget.
    #[default]
    Forget,
}

/// Asks to forget a history: all that the scope remembers of what was said before, in log order.
///
/// With a conversation it is meant for that conversation, without one for the user. Which of them
/// has a history of its own is the engine's to say (`turns.scope`); what has none cannot be
/// forgotten by one record, and ends as a dead letter that says what to send instead. A time it has
/// none: what was said before it is what lies before it on the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "anyOf" = [{ "required": ["conversation_id"] }, { "required": ["user_id"] }]
))]
pub struct Forget {
    /// Version of this record; 1 where absent. A version above ours is a dead letter.
    #[serde(default = "first_version")]
    pub schema_version: u32,
    /// That it asks to forget.
    pub kind: ForgetKind,
    /// The organisation; `default` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// The conversation to forget; required where the scope is `conversation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// The user to forget, where no conversation is named; required where the scope is `user`.
    /// Beside a conversation it is carried to the output and has no other effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    /// Unique within the scope, among turns too; `partition-offset` of the input where absent. A
    /// repeat is recorded as a duplicate, and what was said since the first stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// Anything the sender wants to see again; carried to the output.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Extra,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Why a demand to forget names nothing that has a history of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoScope {
    /// Neither a conversation nor a user is named.
    Nothing,
    /// Each conversation has a history of its own, and a user is named.
    UserOfConversations,
    /// Each user has one history of all conversations, and one of these is named.
    ConversationOfUser,
}

impl Forget {
    /// Asks to forget what a scope of this kind remembers.
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
    /// What is named has no history of its own.
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
    /// Reads a record: what it is, its `kind` says.
    ///
    /// # Errors
    /// It is not JSON, of no kind that we know, or not what its kind must be.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        // What is told apart, in all records.
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
        // Nearly all are turns: only what is none is looked at twice.
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

    /// The scope that the record belongs to, or `None` where it names none.
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
        // What only a turn has is kept like anything else.
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
