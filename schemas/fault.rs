//! Why a stage could not do its work. Failure is data: every fallible operator gives values and
//! faults.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A stage of the flow, in flow order.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Bytes become a turn.
    Ingest,
    /// Order within a scope, recall, update, eviction.
    History,
    /// Does the turn need knowledge?
    Gate,
    /// The dialogue as a vector.
    Embedding,
    /// Which sources are asked, in which order.
    SourcePlanning,
    /// Explicit and implicit queries.
    QueryProduction,
    /// Maintained and extended topics.
    TopicPlanning,
    /// Queries and topics repair each other.
    CrossRevision,
    /// Foreseen and unforeseen facts.
    FactRetrieval,
    /// Sentences of the turn's persona.
    PersonaRetrieval,
    /// Passages of documents.
    DocumentRetrieval,
    /// Rows of tables.
    TableRetrieval,
    /// How relevant each piece of evidence is.
    Relevance,
    /// Up to twenty facts in order.
    FactSelection,
    /// Evidence and history weighed together, and cut to what there is room for.
    Integration,
    /// The response.
    Generation,
    /// How well each piece of evidence and the response agree.
    Consistency,
    /// The response made anew from other evidence.
    SelfRefinement,
}

impl Stage {
    /// All stages in flow order.
    pub const ALL: [Self; 18] = [
        Self::Ingest,
        Self::History,
        Self::Gate,
        Self::Embedding,
        Self::SourcePlanning,
        Self::QueryProduction,
        Self::TopicPlanning,
        Self::CrossRevision,
        Self::FactRetrieval,
        Self::PersonaRetrieval,
        Self::DocumentRetrieval,
        Self::TableRetrieval,
        Self::Relevance,
        Self::FactSelection,
        Self::Integration,
        Self::Generation,
        Self::Consistency,
        Self::SelfRefinement,
    ];

    /// The stage's name in records, configuration and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::History => "history",
            Self::Gate => "gate",
            Self::Embedding => "embedding",
            Self::SourcePlanning => "source_planning",
            Self::QueryProduction => "query_production",
            Self::TopicPlanning => "topic_planning",
            Self::CrossRevision => "cross_revision",
            Self::FactRetrieval => "fact_retrieval",
            Self::PersonaRetrieval => "persona_retrieval",
            Self::DocumentRetrieval => "document_retrieval",
            Self::TableRetrieval => "table_retrieval",
            Self::Relevance => "relevance",
            Self::FactSelection => "fact_selection",
            Self::Integration => "integration",
            Self::Generation => "generation",
            Self::Consistency => "consistency",
            Self::SelfRefinement => "self_refinement",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kind of a fault.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The input itself cannot be served.
    Invalid,
    /// A model or source answered with an error.
    Error,
    /// No answer came in time.
    Timeout,
    /// The stage or the model panicked; the panic was contained.
    Panic,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Invalid, Self::Error, Self::Timeout, Self::Panic];

    /// The kind's name in records and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
        }
    }
}

/// Why a stage could not do its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// The stage that failed.
    pub stage: Stage,
    /// What kind of failure it was.
    pub kind: FaultKind,
    /// What happened and what would mend it, for a person.
    pub reason: String,
}

impl Fault {
    /// A fault of a stage.
    pub fn new(stage: Stage, kind: FaultKind, reason: impl Into<String>) -> Self {
        Self { stage, kind, reason: reason.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stage, self.reason)
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_written_by_its_name() {
        for stage in Stage::ALL {
            assert_eq!(serde_json::to_value(stage).unwrap(), stage.name());
        }
        assert!(Stage::ALL.is_sorted(), "the stages stand in flow order");
    }

    #[test]
    fn a_kind_is_written_by_its_name() {
        for kind in FaultKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
