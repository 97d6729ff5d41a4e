//! The history of a scope (DH-RAG): entries, what recall and eviction say about them, and the
//! changes published on the compacted `history` topic.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::ids::{EntryId, EventTime, EvidenceId, InputId, Scope, Score, TurnId, UserId};
use crate::model::ModelUsed;
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
    /// q_i: what the user said; absent where an agent spoke unasked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The turn of the query, or of the agent's words where there is no query.
    pub turn_id: TurnId,
    /// The person that turn named, where it named one: who asks to forget a person finds by it which
    /// histories hold anything of theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    /// p_i: the evidence the response was made with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passages: Vec<Passage>,
    /// r_i: what was answered; absent while nothing was (a failed or superseded turn).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// The turn of the response: our response id, or the agent's turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_turn_id: Option<TurnId>,
    /// Event time of the query (of the agent's words where there is none).
    pub event_time: EventTime,
    /// What an encoder made of query and response as one text, where one is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<EntryVector>,
    /// What the entry is worth in itself, 0..=1, as it was found when the entry was made or
    /// completed; absent where it has no share in what is evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub importance: Option<Score>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The vector of a history entry, rounded to whole numbers: what is computed with after a restart
/// is what was computed with before it, to the last bit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EntryVector {
    /// Name and fingerprint of the encoder, as `name/hexadecimal`: vectors of another encoder are
    /// not compared with its own.
    pub encoder: String,
    /// The numbers, stretched to length 16,384 and rounded.
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
            return Err(de::Error::custom("an odd number of bytes is no vector of 16-bit numbers"));
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

/// Why recall brought an entry back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecalledVia {
    /// It is one of the latest exchanges.
    Recent,
    /// It is relevant to the query.
    Relevance,
    /// It lies in the matching cluster of the hierarchy.
    Cluster,
    /// It lies on the matching chain of thought.
    Chain,
}

/// One entry that recall brought back for a response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecalledTurn {
    /// The turn of the entry's query.
    pub turn_id: TurnId,
    /// Why it came back.
    pub via: RecalledVia,
    /// Its relevance to the query, and that of its neighbours where its chain was followed; 0..=1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relevance: Option<Score>,
    /// The weight that eviction would give it at recall, 0..=1.
    pub weight: Score,
    /// The one of its passages that is most like the query (DH-RAG eq 21), where it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passage: Option<EvidenceId>,
    /// Its share of the attention among all evidence and history that the response could be made
    /// from, 0..=1, where it was weighed (DH-RAG eq 6). Entries of the dialogue's window are not:
    /// the response is made from them anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<Score>,
    /// Whether it was weighed and left out, for want of room.
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
    /// More entries than the history holds: the lowest weight left.
    Capacity,
    /// Older than the history keeps.
    Age,
    /// Somebody asked to forget, which compares with nothing: relevance is 0.
    Forget,
}

impl EvictionReason {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::Capacity, Self::Age, Self::Forget];

    /// The name as records have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Age => "age",
            Self::Forget => "forget",
        }
    }
}

/// How many entries left a history, by reason. A reason that none left for is not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvictionCounts {
    /// Those beyond what the history holds.
    #[serde(default, skip_serializing_if = "is_none_of")]
    pub capacity: u64,
    /// Those older than the history keeps.
    #[serde(default, skip_serializing_if = "is_none_of")]
    pub age: u64,
    /// Those that somebody asked to forget.
    #[serde(default, skip_serializing_if = "is_none_of")]
    pub forget: u64,
}

impl EvictionCounts {
    /// Whether none is counted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How many left for a reason.
    pub fn of(&self, reason: EvictionReason) -> u64 {
        match reason {
            EvictionReason::Capacity => self.capacity,
            EvictionReason::Age => self.age,
            EvictionReason::Forget => self.forget,
        }
    }

    /// One more left for a reason.
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
    /// What the entry was worth in itself, 0..=1, where that has a share in the weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub importance: Option<Score>,
    /// α·relevance + (1 − α)·recency, 0..=1; where importance has a share β, that times 1 − β, and
    /// β·importance.
    pub weight: Score,
    /// Its place among all entries, from 1: the one just added first, the others by falling
    /// weight. It left because rank > N, unless the reason is another one.
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
    /// Whose history.
    pub scope: Scope,
    /// Which entry; absent for the scope's own record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryId>,
}

/// Entries that are about the same: the top level of a history's hierarchy (DH-RAG eq 15).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CategoryRecord {
    /// Its number within the scope; none is given twice.
    pub id: u32,
    /// The groups in it, by rising number; never empty.
    pub groups: Vec<GroupRecord>,
}

/// Entries that say much the same: what one summary stands for (DH-RAG eq 18).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupRecord {
    /// Its number within the scope, among categories and groups; none is given twice.
    pub id: u32,
    /// Offsets of its entries, rising; never empty.
    pub entries: Vec<i64>,
    /// What a language model wrote of them, where one is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<GroupSummary>,
}

/// What a language model wrote of a group's entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupSummary {
    /// The summary; absent where the model failed. It is asked again once the group has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// How many entries the group had when it was asked.
    pub entries: u32,
    /// Which model, and by which prompt.
    pub model: ModelUsed,
}

/// Entries that follow from each other: a chain of thought (DH-RAG eq 22).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChainRecord {
    /// Its number within the scope; none is given twice.
    pub id: u32,
    /// Offsets of its entries, rising; never empty.
    pub entries: Vec<i64>,
}

/// What a scope keeps besides its entries. Published under the key with no entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScopeRecord {
    /// Version of this record.
    pub schema_version: u32,
    /// Offset of the last input of this scope that was applied, -1 where none was since the
    /// history was imported. Kept as an assertion only.
    pub last_applied_offset: i64,
    /// Latest event time seen in the scope: "now" of recency.
    pub latest_event_time: EventTime,
    /// The last turn ids that ended as a response or recorded, oldest first, at most 256. They
    /// survive eviction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent_turn_ids: Vec<TurnId>,
    /// Inputs of this scope that ended as a response or recorded, since the scope began.
    pub turns: u64,
    /// Entries evicted since the scope began.
    pub evictions: u64,
    /// Those of them that are counted by reason; absent in records of versions that did not, whose
    /// evictions count for no reason.
    #[serde(default, skip_serializing_if = "EvictionCounts::is_empty")]
    pub evictions_by_reason: EvictionCounts,
    /// Which entries are about the same. Every entry is in exactly one group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<CategoryRecord>,
    /// Which entries follow from each other. Every entry is in exactly one chain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<ChainRecord>,
    /// The number of the next category or group.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_cluster: u32,
    /// The number of the next chain.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_chain: u32,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A change to a scope's history, as `replay --out-history` writes it; on Kafka the key and the
/// value of one record on the compacted `history` topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum HistoryChange {
    /// The entry is now this.
    Entry {
        /// Where it is kept.
        key: EntryKey,
        /// The entry.
        entry: Box<HistoryEntry>,
    },
    /// The entry is gone.
    Gone {
        /// Where it was kept.
        key: EntryKey,
        /// Why it is gone. On Kafka a header of the tombstone, `turnstream.evicted`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        evicted: Option<Box<Evicted>>,
    },
    /// The scope's own record is now this.
    Scope {
        /// Whose record.
        key: EntryKey,
        /// The record.
        record: Box<ScopeRecord>,
    },
}

impl HistoryChange {
    /// The key that the change is published under.
    pub fn key(&self) -> &EntryKey {
        match self {
            Self::Entry { key, .. } | Self::Gone { key, .. } | Self::Scope { key, .. } => key,
        }
    }
}
