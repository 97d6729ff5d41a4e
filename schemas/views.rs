//! Views: what the committed responses, the histories and the knowledge amount to, as the records
//! of the compacted `views` topic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is counted.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ViewName {
    /// By evidence id: the responses that a fact grounds (it was selected).
    FactsUsed,
    /// By evidence id: those of a fact that was taken back on the `knowledge` topic since.
    WithdrawnFactsUsed,
    /// By relation: the facts that ground responses, each as often as it does.
    RelationsUsed,
    /// By concept: the responses whose demand asks for it.
    ConceptsAsked,
    /// By concept, or word: the responses that asked for it and found no fact, as long as the
    /// `knowledge` topic names none either.
    ConceptsMissing,
    /// By `scope#category`: the entries that a history holds in that category of its hierarchy.
    EntriesByCluster,
    /// By number of entries: the categories that hold so many.
    ClusterSizes,
    /// By reason (`capacity`, `age`, `forget`): the entries that left the histories that are there.
    EvictionsByReason,
    /// By evidence id: the entries held whose passages name it.
    EvidenceRemembered,
    /// `scopes`, `entries`, `categories`, `groups` and `chains` of histories, and the `bytes` of
    /// keys and values of their entries.
    HistorySizes,
}

impl ViewName {
    /// All views.
    pub const ALL: [Self; 10] = [
        Self::FactsUsed,
        Self::WithdrawnFactsUsed,
        Self::RelationsUsed,
        Self::ConceptsAsked,
        Self::ConceptsMissing,
        Self::EntriesByCluster,
        Self::ClusterSizes,
        Self::EvictionsByReason,
        Self::EvidenceRemembered,
        Self::HistorySizes,
    ];

    /// The name as records have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::FactsUsed => "facts_used",
            Self::WithdrawnFactsUsed => "withdrawn_facts_used",
            Self::RelationsUsed => "relations_used",
            Self::ConceptsAsked => "concepts_asked",
            Self::ConceptsMissing => "concepts_missing",
            Self::EntriesByCluster => "entries_by_cluster",
            Self::ClusterSizes => "cluster_sizes",
            Self::EvictionsByReason => "evictions_by_reason",
            Self::EvidenceRemembered => "evidence_remembered",
            Self::HistorySizes => "history_sizes",
        }
    }
}

/// The key of a record on the compacted `views` topic. Written as compact JSON, so that equal
/// keys are equal bytes.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct ViewKey {
    /// What is counted.
    pub view: ViewName,
    /// Partition of the responses, or of the histories, that it is counted in.
    pub partition: i32,
    /// Of what.
    pub key: String,
}

/// The value of a record on the `views` topic; a tombstone where the count came down to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ViewValue {
    /// How many, 1 and above.
    pub count: u64,
}
