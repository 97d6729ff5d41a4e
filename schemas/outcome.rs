//! Defines the three ways in which an input can end. Every input ends in exactly one of them: the
//! conservation law.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::fault::Fault;
use crate::history::Evicted;
use crate::ids::{ConversationId, InputId, TenantId, TurnId, UserId};
use crate::response::Response;
use crate::turn::Extra;

/// Why a turn was recorded instead of answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "reason", content = "refers_to", rename_all = "snake_case")]
pub enum RecordedReason {
    /// It is a system turn: it completed the latest entry without a response, or made an entry of its own
    /// (or a replay with generated history dropped it).
    System,
    /// It echoes this response of the engine, which entered the history when it was made.
    Echo(crate::ids::ResponseId),
    /// This agent's turn or takeover came before it was answered. Its query entered the history.
    SupersededBy(TurnId),
    /// It is a fragment of an utterance whose last fragment is this turn, which was answered with the words of
    /// all.
    MergedInto(TurnId),
    /// It came while an agent held the conversation, or while the user waited for one. Its query entered the
    /// history.
    Held,
    /// A turn of the scope with this id had ended before. The history did not change.
    DuplicateOf(TurnId),
    /// It is a directive to forget: all entries of the scope were removed.
    Forgotten,
    /// It is a directive: an agent takes the conversation over.
    Takeover,
    /// It is a directive: the engine answers again.
    Release,
}

impl RecordedReason {
    /// The names of all reasons.
    pub const NAMES: [&'static str; 9] = [
        "system",
        "echo",
        "superseded_by",
        "merged_into",
        "held",
        "duplicate_of",
        "forgotten",
        "takeover",
        "release",
    ];

    /// Returns the reason's name in records and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Echo(_) => "echo",
            Self::SupersededBy(_) => "superseded_by",
            Self::MergedInto(_) => "merged_into",
            Self::Held => "held",
            Self::DuplicateOf(_) => "duplicate_of",
            Self::Forgotten => "forgotten",
            Self::Takeover => "takeover",
            Self::Release => "release",
        }
    }
}

/// A recorded turn: an input that ended without a response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recorded {
    /// Version of this record.
    pub schema_version: u32,
    /// The input.
    pub input: InputId,
    /// The organisation, if the turn named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<TenantId>,
    /// The conversation; absent only in a directive about a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// The person, if the turn named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    /// The turn.
    pub turn_id: TurnId,
    /// Why it was not answered.
    #[serde(flatten)]
    pub reason: RecordedReason,
    /// The entries that it evicted from the history. For a directive to forget, the first 256 by weight; the
    /// tombstones name all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<Evicted>,
    /// The turn's metadata.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub metadata: Extra,
    /// The turn's unknown fields.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub extra: Extra,
}

/// Unchanged bytes; base64 in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(de::Error::custom)
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "contentEncoding": "base64" })
    }
}

/// A header of a log record. Headers of an input, `traceparent` among them, go to all outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// The header's name; may repeat.
    pub name: String,
    /// Its bytes; absent if the header has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Bytes>,
}

/// An input that could not be served, with its bytes and the reason. On a log, `value`, `key` and
/// `headers` are those of the log's record, and the other fields are headers whose names begin with
/// `turnstream.`; in JSON lines the whole is this record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeadLetter {
    /// Version of this record.
    pub schema_version: u32,
    /// The input.
    pub input: InputId,
    /// The unchanged bytes; absent if the record had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Bytes>,
    /// The unchanged key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Bytes>,
    /// The unchanged headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Header>,
    /// The stage that refused it, and why.
    #[serde(flatten)]
    pub fault: Fault,
    /// The log's time of the input: milliseconds since 1970.
    pub time: i64,
}

/// How one input ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It was answered.
    Response(Box<Response>),
    /// It was recorded without a response.
    Recorded(Box<Recorded>),
    /// It could not be served.
    DeadLetter(Box<DeadLetter>),
}

impl Outcome {
    /// Returns the input that ended.
    pub fn input(&self) -> &InputId {
        match self {
            Self::Response(response) => &response.input,
            Self::Recorded(recorded) => &recorded.input,
            Self::DeadLetter(letter) => &letter.input,
        }
    }
}
