//! Defines the records of the `turns` topic: an utterance, or a directive.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::ids::{ConversationId, EventTime, Scope, ScopeKind, TenantId, TurnId, UserId};
use crate::turn::{Extra, Turn, first_version};

/// The kind of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DirectiveKind {
    /// Forget everything that the scope remembers of inputs before this one. The order of the log
    /// decides which those are, not their times.
    Forget,
    /// An agent takes the conversation over: from here on the engine answers no turn of it.
    Takeover,
    /// The engine answers again: the agent is done, or no agent needs to come.
    Release,
}

/// A record that says nothing in a conversation but directs what happens to it.
///
/// A directive that names a conversation is about that conversation, any other about the user. The
/// configuration (`turns.scope`) decides which of the two has a history. A directive about the
/// other becomes a dead letter that says what to send instead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "anyOf" = [{ "required": ["conversation_id"] }, { "required": ["user_id"] }]
))]
pub struct Directive {
    /// Version of this record; 1 if absent. A record with a version above the engine's becomes a dead letter.
    #[serde(default = "first_version")]
    pub schema_version: u32,
    /// The kind of the directive.
    pub kind: DirectiveKind,
    /// The organisation; `default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// The conversation that it is about; required if the scope is `conversation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// The user that it is about, if no conversation is named; required if the scope is `user`. Beside a
    /// conversation it is carried to the output and has no other effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    /// Unique within the scope, also among turns; `partition-offset` of the input if absent. A
    /// repeat is recorded as a duplicate and changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// When it was given; the log's time if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<EventTime>,
    /// Anything that the sender wants to see again; carried to the output.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Extra,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Why a directive names no scope that has a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoScope {
    /// Neither a conversation nor a user is named.
    Nothing,
    /// Each conversation has a history of its own, but the directive names a user.
    UserOfConversations,
    /// Each user has one history of all conversations, but the directive names a conversation.
    ConversationOfUser,
}

impl Directive {
    /// Makes a directive about a scope of this kind.
    pub fn new(
        kind: DirectiveKind,
        scope: ScopeKind,
        tenant_id: Option<TenantId>,
        id: &str,
    ) -> Self {
        let mut directive = Self {
            schema_version: crate::SCHEMA_VERSION,
            kind,
            tenant_id,
            conversation_id: None,
            user_id: None,
            turn_id: None,
            timestamp: None,
            metadata: Map::new(),
            extra: Map::new(),
        };
        match scope {
            ScopeKind::Conversation => directive.conversation_id = Some(id.into()),
            ScopeKind::User => directive.user_id = Some(id.into()),
        }
        directive
    }

    /// Returns the scope that the directive is about.
    ///
    /// # Errors
    /// If the directive names no scope, or one without a history of its own.
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
    /// A directive.
    Directive(Directive),
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
            Takeover,
            Release,
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
            Some(Kind::Turn) | None => Err(no_turn),
            Some(Kind::Forget | Kind::Takeover | Kind::Release) => {
                serde_json::from_str(text).map(Self::Directive)
            }
        }
    }

    /// Returns the scope that the record belongs to; `None` if it names none.
    pub fn scope(&self, kind: ScopeKind) -> Option<Scope> {
        match self {
            Self::Turn(turn) => turn.scope(kind),
            Self::Directive(directive) => directive.scope(kind).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directive(json: &str) -> Directive {
        match TurnsRecord::parse(json).unwrap() {
            TurnsRecord::Directive(directive) => directive,
            TurnsRecord::Turn(turn) => panic!("{turn:?}"),
        }
    }

    #[test]
    fn a_record_is_what_its_kind_says() {
        let said = r#"{"conversation_id":"c","speaker":"user","text":"hi"}"#;
        assert!(matches!(TurnsRecord::parse(said), Ok(TurnsRecord::Turn(_))));
        let bare = directive(r#"{"kind":"forget","conversation_id":"c"}"#);
        let scope = ScopeKind::Conversation;
        assert_eq!(bare, Directive::new(DirectiveKind::Forget, scope, None, "c"));
        let released = directive(r#"{"kind":"release","conversation_id":"c","timestamp":7}"#);
        assert_eq!(
            (released.kind, released.timestamp),
            (DirectiveKind::Release, Some(EventTime(7)))
        );
        // Fields that only a turn has are kept like any unknown field.
        let like_a_turn =
            directive(r#"{"kind":"forget","user_id":"u","speaker":"user","text":"x"}"#);
        assert_eq!(like_a_turn.extra["text"], "x");
        for (json, expected) in [
            (
                r#"{"kind":"sing","conversation_id":"c"}"#,
                "expected one of `turn`, `forget`, `takeover`, `release`",
            ),
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
    fn what_has_no_history_of_its_own_cannot_be_directed() {
        let named = |ids: &str| directive(&format!(r#"{{"kind":"forget","tenant_id":"t"{ids}}}"#));
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
