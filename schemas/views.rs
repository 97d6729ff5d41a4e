//! Defines views, the counts over committed responses, histories and the knowledge, as the records
//! of the compacted `views` topic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of a view.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ViewName {
    /// By evidence id: the responses for which the fact was selected.
    FactsUsed,
    /// By evidence id: the same, for facts that the `knowledge` topic has retracted.
    WithdrawnFactsUsed,
    /// By relation: the facts selected for responses, each as often as it was selected.
    RelationsUsed,
    /// By concept: the responses whose demand asks for it.
    ConceptsAsked,
    /// By concept or word: the responses whose demand asked for it and found no fact. A concept is
    /// not counted while the `knowledge` topic names it.
    ConceptsMissing,
    /// By `scope#category`: the entries that a history holds in that category of its hierarchy.
    EntriesByCluster,
    /// By number of entries: the categories with that many.
    ClusterSizes,
    /// By reason (`capacity`, `age`, `forget`): the entries that left the present histories.
    EvictionsByReason,
    /// By evidence id: the present entries whose passages name it.
    EvidenceRemembered,
    /// `scopes`, `entries`, `categories`, `groups` and `chains` of histories, and the `bytes` of
    /// keys and values of their entries.
    HistorySizes,
    /// By action, and by `hand_off/reason`: the responses that do it.
    Actions,
    /// By `waiting/reason` (with `/queue`, if one is configured) and by `agent`: the scopes that an
    /// agent holds, or whose users wait for one.
    Holders,
    /// By the hour of event time in which the wait began, such as `2026-11-26T09:00Z`: the scopes that wait
    /// for an agent.
    WaitingSince,
}

impl ViewName {
    /// All views.
    pub const ALL: [Self; 13] = [
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
        Self::Actions,
        Self::Holders,
        Self::WaitingSince,
    ];

    /// Returns the name in records.
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
            Self::Actions => "actions",
            Self::Holders => "holders",
            Self::WaitingSince => "waiting_since",
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
    /// The view.
    pub view: ViewName,
    /// The partition of the counted responses or histories.
    pub partition: i32,
    /// The key that is counted, as the view defines it.
    pub key: String,
}

/// The value of a record on the `views` topic. A count of 0 is a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ViewValue {
    /// The count, from 1.
    pub count: u64,
}
