//! Defines identifiers, coordinates and measures as newtypes, so that the compiler keeps them
//! apart.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
            JsonSchema,
        )]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// Returns the identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

text_id!(
    /// The organisation that a conversation belongs to. Absent means `default`.
    TenantId
);
text_id!(
    /// One conversation. With the tenant it names the default [`Scope`].
    ConversationId
);
text_id!(
    /// The person who speaks. With the tenant it names a user [`Scope`].
    UserId
);
text_id!(
    /// One turn, unique within its scope. If absent, it becomes `partition-offset` of the input.
    TurnId
);
text_id!(
    /// One response of the engine: the coordinates of the input that it answers, `topic-partition-offset`.
    ResponseId
);
text_id!(
    /// One piece of evidence, stable across runs: `source/relation/head/tail` for a fact.
    EvidenceId
);
text_id!(
    /// The name of a source of knowledge, as in the configuration and the snapshot.
    SourceName
);

/// The coordinates of an input on the log. Every output names the input that it came from.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct InputId {
    /// Topic (or log file) from which the input was read.
    pub topic: String,
    /// Partition of the topic, from 0.
    pub partition: i32,
    /// Offset within the partition, from 0.
    pub offset: i64,
}

impl InputId {
    /// Returns the id of the response that answers this input.
    pub fn response_id(&self) -> ResponseId {
        ResponseId(format!("{}-{}-{}", self.topic, self.partition, self.offset))
    }

    /// Returns the turn id for a turn that came without one.
    pub fn turn_id(&self) -> TurnId {
        TurnId(format!("{}-{}", self.partition, self.offset))
    }

    /// Returns the id of the history entry that this input makes.
    pub fn entry_id(&self) -> EntryId {
        EntryId { partition: self.partition, offset: self.offset }
    }
}

impl fmt::Display for InputId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]@{}", self.topic, self.partition, self.offset)
    }
}

/// One attempt to answer one input: its coordinates, and the generation of the partition's
/// assignment. An answer to any request but the one in flight is late, and `history` drops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId {
    /// Partition of the input.
    pub partition: i32,
    /// How often the partition had been assigned when the input was read.
    pub generation: u32,
    /// Offset of the input.
    pub offset: i64,
}

/// A history entry within its scope: the input that made it. Ordered like the log.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct EntryId {
    /// Partition of the input.
    pub partition: i32,
    /// Offset of the input; negative if the entry was imported, from an input on another log.
    pub offset: i64,
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.partition, self.offset)
    }
}

/// The kind of a [`Scope`]: one conversation, or one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScopeKind {
    /// `tenant/conversation`: each conversation is a sequence of its own.
    #[default]
    Conversation,
    /// `tenant/user`: all conversations of a user are one sequence and share one history.
    User,
}

/// The unit of keys, exchange, order, state and changelog: `tenant/conversation` or `tenant/user`.
/// `/` and `%` within a tenant are percent-escaped, so that different scopes have different texts.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Scope(String);

impl Scope {
    /// The tenant of turns that name none.
    pub const DEFAULT_TENANT: &'static str = "default";

    /// Makes the scope of a tenant (or the default tenant) and a conversation or user id.
    pub fn new(tenant: Option<&TenantId>, id: &str) -> Self {
        let tenant = tenant.map_or(Self::DEFAULT_TENANT, TenantId::as_str);
        if tenant.contains(['/', '%']) {
            let tenant = tenant.replace('%', "%25").replace('/', "%2F");
            Self(format!("{tenant}/{id}"))
        } else {
            Self(format!("{tenant}/{id}"))
        }
    }

    /// Returns the tenant as turns name it, and the id of the conversation or the user.
    pub fn parts(&self) -> (TenantId, &str) {
        let (tenant, id) = self.0.split_once('/').unwrap_or((Self::DEFAULT_TENANT, &self.0));
        (TenantId(tenant.replace("%2F", "/").replace("%25", "%")), id)
    }

    /// Returns the scope as text, `tenant/id`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A finite measure without unit: a score in 0..=1 unless the field says otherwise. Never NaN:
/// [`Score::new`] turns a value that is not finite into 0.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Score(f64);

impl Score {
    /// Makes a score; values that are not finite become 0.
    pub fn new(value: f64) -> Self {
        Self(if value.is_finite() { value } else { 0.0 })
    }

    /// Returns the number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// When a turn happened, according to its sender: milliseconds since 1970-01-01T00:00:00Z. Read from
/// an integer of milliseconds or from RFC 3339 text; written as the integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventTime(pub i64);

impl EventTime {
    /// Returns the milliseconds since the epoch.
    pub fn millis(self) -> i64 {
        self.0
    }

    /// Returns the hour of the time, such as `2026-11-26T09:00Z`; beyond the calendar, its
    /// milliseconds.
    pub fn hour(self) -> String {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => time.strftime("%Y-%m-%dT%H:00Z").to_string(),
            Err(_) => format!("{} ms", self.0),
        }
    }
}

impl Serialize for EventTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.0)
    }
}

impl<'de> Deserialize<'de> for EventTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = EventTime;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("milliseconds since 1970 or an RFC 3339 time")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<EventTime, E> {
                Ok(EventTime(value))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<EventTime, E> {
                i64::try_from(value)
                    .map(EventTime)
                    .map_err(|_| E::custom(format!("{value} milliseconds is out of range")))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<EventTime, E> {
                text.parse::<jiff::Timestamp>()
                    .map(|time| EventTime(time.as_millisecond()))
                    .map_err(|error| {
                        E::custom(format!("`{text}` is not an RFC 3339 time: {error}"))
                    })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for EventTime {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EventTime".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Milliseconds since 1970-01-01T00:00:00Z, or RFC 3339 text (on input).",
            "anyOf": [{ "type": "integer" }, { "type": "string", "format": "date-time" }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_of_different_tenants_never_read_the_same() {
        let a = Scope::new(Some(&"a/b".into()), "c");
        let b = Scope::new(Some(&"a".into()), "b/c");
        assert_ne!(a, b);
        assert_eq!(Scope::new(None, "c").as_str(), "default/c");
        assert_ne!(
            Scope::new(Some(&"a%2Fb".into()), "c"),
            Scope::new(Some(&"a/b".into()), "c"),
            "the escape itself is escaped"
        );
    }

    #[test]
    fn the_parts_of_a_scope_are_what_it_was_made_of() {
        for tenant in ["acme", "a/b", "a%2Fb", "a%b", "%25", "/%", "%252F"] {
            for id in ["c", "b/c", "a%2Fb", ""] {
                let tenant = TenantId::from(tenant);
                assert_eq!(Scope::new(Some(&tenant), id).parts(), (tenant, id));
            }
        }
        assert_eq!(Scope::new(None, "c").parts(), (Scope::DEFAULT_TENANT.into(), "c"));
    }

    #[test]
    fn event_time_reads_both_forms_and_writes_one() {
        let millis: EventTime = serde_json::from_str("1700000000000").unwrap();
        let text: EventTime = serde_json::from_str("\"2023-11-14T22:13:20Z\"").unwrap();
        assert_eq!(millis, text);
        assert_eq!(serde_json::to_string(&text).unwrap(), "1700000000000");
        assert_eq!(text.hour(), "2023-11-14T22:00Z");
        assert_eq!(EventTime(i64::MAX).hour(), "9223372036854775807 ms");
        assert!(serde_json::from_str::<EventTime>("\"yesterday\"").is_err());
        assert!(serde_json::from_str::<EventTime>("1.5").is_err());
    }

    #[test]
    fn a_score_is_never_nan() {
        assert_eq!(Score::new(f64::NAN).get(), 0.0);
        assert_eq!(Score::new(f64::INFINITY).get(), 0.0);
    }
}
