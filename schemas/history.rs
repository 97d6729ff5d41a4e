//! Defines the history of a scope (DH-RAG): entries, the results of recall and eviction, and the
//! changes published on the compacted `history` topic.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::handover::Handover;
use crate::hierarchy::{CategoryRecord, ChainRecord};
use crate::ids::{EntryId, EventTime, EvidenceId, InputId, Scope, Score, TurnId, UserId};
use crate::remembered::RememberedTurns;
use crate::turn::Extra;

/// A piece of evidence as a history entry keeps it: p_i of the triple (q_i, p_i, r_i).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Passage {
    /// The evidence.
    pub id: EvidenceId,
    /// Its text as it was used.
    pub text: String,
}

/// One entry of a scope's history: the triple (q_i, p_i, r_i) of DH-RAG.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryEntry {
    /// Version of this record.
    pub schema_version: u32,
    /// The input that made the entry.
    pub input: InputId,
    /// q_i: the user's words; absent if an agent spoke without a query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The turn of the query, or the agent's turn if there is no query.
    pub turn_id: TurnId,
    /// The person that this turn named, if any. Used to find the histories of a person who asks to
    /// be forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    /// p_i: the evidence that the response was made from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passages: Vec<Passage>,
    /// r_i: the response; absent if there is none (a failed or superseded turn).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// The turn of the response: the engine's response id, or the agent's turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_turn_id: Option<TurnId>,
    /// Event time of the query, or of the agent's turn if there is no query.
    pub event_time: EventTime,
    /// An encoder's vector of query and response as one text, if the configured encoder is one that is
    /// waited for. A static table's vectors are computed when the history is loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<EntryVector>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The vector of a history entry, rounded to whole numbers, so that computations after a restart
/// equal those before it to the last bit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EntryVector {
    /// Name and fingerprint of the encoder, as `name/hexadecimal`. Vectors of different encoders are
    /// never compared.
    pub encoder: String,
    /// The numbers, scaled to length 16,384 and rounded.
    pub numbers: RoundedVector,
}

/// Whole numbers of 16 bits. Written as base64 of the numbers, each with its low byte first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundedVector(pub Arc<[i16]>);

impl Serialize for RoundedVector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|number| number.to_le_bytes()).collect();
        serializer.serialize_str(&BASE64.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for RoundedVector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64.decode(text).map_err(de::Error::custom)?;
        if bytes.len() % 2 != 0 {
            return Err(de::Error::custom("an odd number of bytes cannot hold 16-bit numbers"));
        }
        let numbers = bytes.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]]));
        Ok(Self(numbers.collect()))
    }
}

impl JsonSchema for RoundedVector {
    fn schema_name() -> Cow<'static, str> {
        "RoundedVector".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "contentEncoding": "base64",
            "description": "Whole numbers of 16 bits as base64, each with its low byte first.",
        })
    }
}

/// Why recall found an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecalledVia {
    /// It is one of the latest exchanges.
    Recent,
    /// It is relevant to the query.
    Relevance,
    /// It is in a matching cluster of the hierarchy.
    Cluster,
    /// It is on a matching chain of thought.
    Chain,
}

/// One entry that recall retrieved for a response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecalledTurn {
    /// The turn of the entry's query.
    pub turn_id: TurnId,
    /// Why it was recalled.
    pub via: RecalledVia,
    /// Its relevance to the query, averaged with that of its neighbours if chains are followed; 0..=1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relevance: Option<Score>,
    /// The weight that eviction would give it at recall, 0..=1.
    pub weight: Score,
    /// Its passage that is most like the query (DH-RAG eq 21), if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passage: Option<EvidenceId>,
    /// Its share of the attention among all evidence and history that the response could be made from,
    /// 0..=1, if it was weighed (DH-RAG eq 6). Entries in the dialogue's window are not weighed: the
    /// response is made from them anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<Score>,
    /// Whether it was weighed and did not fit the budget.
    #[serde(default, skip_serializing_if = "is_false")]
    pub left_out: bool,
}

fn is_false(it: &bool) -> bool {
    !it
}

/// Why an entry left the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvictionReason {
    /// The history had more entries than it may hold, and this one had the lowest weight.
    Capacity,
    /// It was older than the configured maximum age.
    Age,
    /// It was forgotten on demand. There is no query to compare it with, so its relevance is 0.
    Forget,
}

impl EvictionReason {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::Capacity, Self::Age, Self::Forget];

    /// Returns the name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Age => "age",
            Self::Forget => "forget",
        }
    }
}

/// How many entries left a history, by reason. Reasons with a count of 0 are not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvictionCounts {
    /// Those beyond the capacity of the history.
    #[serde(default, skip_serializing_if = "is_none_of")]
    pub capacity: u64,
    /// Those older than the configured maximum age.
    #[serde(default, skip_serializing_if = "is_none_of")]
    pub age: u64,
    /// Those that were forgotten on demand.
    #[serde(default, skip_serializing_if = "is_none_of")]
    pub forget: u64,
}

impl EvictionCounts {
    /// Whether all counts are 0.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the count of a reason.
    pub fn of(&self, reason: EvictionReason) -> u64 {
        match reason {
            EvictionReason::Capacity => self.capacity,
            EvictionReason::Age => self.age,
            EvictionReason::Forget => self.forget,
        }
    }

    /// Counts one more entry for a reason.
    pub fn count(&mut self, reason: EvictionReason) {
        let counted = match reason {
            EvictionReason::Capacity => &mut self.capacity,
            EvictionReason::Age => &mut self.age,
            EvictionReason::Forget => &mut self.forget,
        };
        *counted += 1;
    }
}

fn is_none_of(count: &u64) -> bool {
    *count == 0
}

/// An entry that left the history, with the scores that decided it (DH-RAG eq 12–14).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evicted {
    /// The turn of the entry's query.
    pub turn_id: TurnId,
    /// Relevance(q_i, q_t), 0..=1.
    pub relevance: Score,
    /// Recency(t_i) = 2^(−age / half-life), 0..=1.
    pub recency: Score,
    /// The importance of the entry, 0..=1, if importance has a share in the weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub importance: Option<Score>,
    /// α·relevance + (1 − α)·recency, 0..=1; if importance has a share β, (1 − β) times that sum plus
    /// β·importance.
    pub weight: Score,
    /// Its place among all entries, from 1: the one just added is first, then those of the dialogue's
    /// window that stay, the others follow by falling weight. With the reason `capacity` it left
    /// because rank > N.
    pub rank: u32,
    /// Why it left.
    pub reason: EvictionReason,
}

/// The key of a record on the compacted `history` topic. Written as compact JSON, so that equal
/// keys are equal bytes.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct EntryKey {
    /// The scope of the history.
    pub scope: Scope,
    /// The entry; absent for the scope's own record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryId>,
}

/// The state of a scope besides its entries. Published under the key without an entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScopeRecord {
    /// Version of this record.
    pub schema_version: u32,
    /// Offset of the last input of this scope that was applied; -1 if none was applied since the
    /// history was imported. Used only as an assertion.
    pub last_applied_offset: i64,
    /// Latest event time seen in the scope: the "now" of recency.
    pub latest_event_time: EventTime,
    /// The last turns that ended as a response or a recorded turn, at most 256. They survive
    /// eviction.
    #[serde(default, skip_serializing_if = "RememberedTurns::is_empty")]
    pub remembered_turns: RememberedTurns,
    /// The ids of the last turns as older records keep them, oldest first, in place of
    /// `remembered_turns`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent_turn_ids: Vec<TurnId>,
    /// The last change of hands; absent if the engine always held the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// Event time of the latest turn or takeover of an agent; absent unless an agent holds the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_time: Option<EventTime>,
    /// Number of inputs of this scope that ended as a response or a recorded turn, since it began.
    pub turns: u64,
    /// Number of entries evicted since the scope began.
    #[serde(default, skip_serializing_if = "is_none_of")]
    pub evictions: u64,
    /// These evictions by reason. Older records lack the counts; their evictions have no reason.
    #[serde(default, skip_serializing_if = "EvictionCounts::is_empty")]
    pub evictions_by_reason: EvictionCounts,
    /// The categories and groups of the entries. Every entry is in exactly one group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<CategoryRecord>,
    /// The chains of thought. Every entry is in exactly one chain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<ChainRecord>,
    /// The number of the next category or group, if it is not the one after the highest above.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_cluster: u32,
    /// The number of the next chain, if it is not the one after the highest above.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_chain: u32,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A change to a scope's history: a line of `replay --out-history`, or the key and the value of one
/// record on the compacted `history` topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum HistoryChange {
    /// An entry was added or replaced.
    Entry {
        /// The key of the entry.
        key: EntryKey,
        /// The entry.
        entry: Box<HistoryEntry>,
    },
    /// A record was removed.
    Gone {
        /// The key of the record.
        key: EntryKey,
        /// Why it was removed. On Kafka a header of the tombstone, `turnstream.evicted`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        evicted: Option<Box<Evicted>>,
    },
    /// The scope's own record was written.
    Scope {
        /// The key of the record.
        key: EntryKey,
        /// The record.
        record: Box<ScopeRecord>,
    },
}

impl HistoryChange {
    /// Returns the key of the change.
    pub fn key(&self) -> &EntryKey {
        match self {
            Self::Entry { key, .. } | Self::Gone { key, .. } | Self::Scope { key, .. } => key,
        }
    }
}
