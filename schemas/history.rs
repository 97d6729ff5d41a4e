//! The history of a scope (DH-RAG): entries, what recall and eviction say about them, and the
//! changes published on the compacted `history` topic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{EntryId, EventTime, EvidenceId, InputId, Scope, Score, TurnId};
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
    /// Sentence embedding of the query, where an encoder is configured; L2 norm 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<Vec<f32>>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
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
    /// α·relevance + (1 − α)·recency at recall, in 0..=1.
    pub weight: Score,
}

/// Why an entry left the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvictionReason {
    /// More entries than the history holds: the lowest weight left.
    Capacity,
    /// Older than the history keeps.
    Age,
    /// Somebody asked to forget.
    Forget,
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
    /// α·relevance + (1 − α)·recency, 0..=1.
    pub weight: Score,
    /// Its place among all entries, from 1: the one just added first, the others by falling
    /// weight. It left because rank > N.
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

/// What a scope keeps besides its entries. Published under the key with no entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScopeRecord {
    /// Version of this record.
    pub schema_version: u32,
    /// Offset of the last input of this scope that was applied. Kept as an assertion only.
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
    /// Fields that this version does not know: clusters and chains will stand here.
    #[serde(flatten)]
    pub extra: Extra,
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
            Self::Entry { key, .. } | Self::Gone { key } | Self::Scope { key, .. } => key,
        }
    }
}
