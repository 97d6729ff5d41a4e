//! Defines the stages of the flow in one table, with a row for each stage, in flow order. All lists
//! of stages (in records, configuration, prompts, metrics and output) come from it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of a turn's record that one stage writes and others read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordPart {
    /// The turn, and the dialogue up to it.
    Dialogue,
    /// Recalled entries, and the completed query.
    Recalled,
    /// Concepts that the dialogue names, and words that the graph does not have.
    Concepts,
    /// Whether the turn needs knowledge.
    Gate,
    /// The dialogue as vectors.
    Embedding,
    /// The sources to ask.
    Plan,
    /// Queries, and the thought behind them.
    Queries,
    /// Topics, and the thought behind them.
    Topics,
    /// The changes of cross revision, demands without a fact, and the thought behind the response.
    Demand,
    /// The evidence from the sources.
    Candidates,
    /// The evidence with its selection.
    Evidence,
    /// The action of the response, and its words where the decision gives them.
    Decision,
    /// The attention of recalled entries.
    Attention,
    /// The response.
    Draft,
    /// Rounds in which the response was made anew.
    Refinement,
}

/// The table's row for a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageRow {
    /// The stage's name in records, configuration and metrics; its section of the configuration has
    /// the same name.
    pub name: &'static str,
    /// Its name in one word, for narrow output.
    pub word: &'static str,
    /// The values of `form` in its section; empty if it decides in one way only.
    pub forms: &'static [&'static str],
    /// The dotted path of the configuration table that has its `prompted`; `None` if it asks no language
    /// model.
    pub prompted: Option<&'static str>,
    /// The default of `on_failure`; `None` if the stage has no such key.
    pub on_failure: Option<&'static str>,
    /// Whether turns pass through it one by one and are counted in it.
    pub is_counted: bool,
    /// The parts of a turn's record that it reads at its place in the flow. (A gate that decides later also
    /// reads candidates or a draft.)
    pub reads: &'static [RecordPart],
    /// The parts of a turn's record that it writes.
    pub writes: &'static [RecordPart],
}

macro_rules! stages {
    ($($(#[$doc:meta])* $stage:ident {
        name: $name:literal, word: $word:literal, forms: [$($form:literal),*],
        prompted: $prompted:expr, on_failure: $on_failure:expr, is_counted: $counted:literal,
        reads: [$($reads:ident),*], writes: [$($writes:ident),*],
    })*) => {
        /// A stage of the flow, in flow order.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
            JsonSchema,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum Stage {
            $($(#[$doc])* $stage,)*
        }

        impl Stage {
            /// All stages in flow order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$stage),*];

            /// Returns the table's row for this stage.
            pub const fn row(self) -> StageRow {
                match self {
                    $(Self::$stage => StageRow {
                        name: $name,
                        word: $word,
                        forms: &[$($form),*],
                        prompted: $prompted,
                        on_failure: $on_failure,
                        is_counted: $counted,
                        reads: &[$(RecordPart::$reads),*],
                        writes: &[$(RecordPart::$writes),*],
                    },)*
                }
            }
        }
    };
}

stages! {
    /// Converts bytes to turns, or to dead letters.
    Ingest {
        name: "ingest", word: "ingest", forms: [],
        prompted: None, on_failure: None, is_counted: false,
        reads: [], writes: [Dialogue],
    }
    /// Order within a scope, recall, update, eviction.
    History {
        name: "history", word: "history", forms: [],
        prompted: Some("history.summaries"), on_failure: None, is_counted: true,
        reads: [Dialogue], writes: [Recalled],
    }
    /// Whether the turn needs knowledge.
    Gate {
        name: "gate", word: "gate",
        forms: [
            "auto", "lexical", "learned", "by_source", "adapter", "prompted", "always", "never", "random"
        ],
        prompted: Some("gate"), on_failure: Some("degrade"), is_counted: true,
        reads: [Dialogue, Recalled], writes: [Concepts, Gate],
    }
    /// The dialogue as a vector.
    Embedding {
        name: "embedding", word: "embedding", forms: [],
        prompted: None, on_failure: Some("degrade"), is_counted: true,
        reads: [Dialogue], writes: [Embedding],
    }
    /// The sources to ask, in order.
    SourcePlanning {
        name: "source_planning", word: "sources",
        forms: ["lexical", "learned", "prompted", "off"],
        prompted: Some("source_planning"), on_failure: Some("degrade"), is_counted: true,
        reads: [Dialogue, Recalled], writes: [Plan],
    }
    /// Explicit and implicit queries.
    QueryProduction {
        name: "query_production", word: "queries", forms: ["lexical", "prompted", "off"],
        prompted: Some("query_production"), on_failure: Some("degrade"), is_counted: true,
        reads: [Dialogue, Recalled, Concepts, Embedding], writes: [Queries],
    }
    /// Maintained and extended topics.
    TopicPlanning {
        name: "topic_planning", word: "topics", forms: ["lexical", "prompted", "off"],
        prompted: Some("topic_planning"), on_failure: Some("degrade"), is_counted: true,
        reads: [Dialogue, Recalled, Concepts], writes: [Topics],
    }
    /// Queries revised by topics, and topics by queries.
    CrossRevision {
        name: "cross_revision", word: "revision", forms: ["lexical", "prompted", "off"],
        prompted: Some("cross_revision"), on_failure: Some("degrade"), is_counted: true,
        reads: [Dialogue, Recalled, Concepts, Queries, Topics],
        writes: [Queries, Topics, Demand],
    }
    /// Foreseen and unforeseen facts.
    FactRetrieval {
        name: "fact_retrieval", word: "retrieval", forms: ["lexical", "off"],
        prompted: None, on_failure: Some("degrade"), is_counted: true,
        reads: [Dialogue, Embedding, Plan, Queries, Topics, Demand],
        writes: [Demand, Candidates],
    }
    /// Sentences of the turn's persona.
    PersonaRetrieval {
        name: "persona_retrieval", word: "persona", forms: ["bm25", "dense", "fusion"],
        prompted: None, on_failure: Some("lexical"), is_counted: true,
        reads: [Dialogue, Embedding, Plan, Candidates], writes: [Candidates],
    }
    /// Passages of documents.
    DocumentRetrieval {
        name: "document_retrieval", word: "documents", forms: ["bm25", "dense", "fusion"],
        prompted: None, on_failure: Some("degrade"), is_counted: true,
        reads: [Dialogue, Recalled, Embedding, Plan, Candidates], writes: [Candidates],
    }
    /// Rows of tables.
    TableRetrieval {
        name: "table_retrieval", word: "tables", forms: [],
        prompted: None, on_failure: Some("degrade"), is_counted: true,
        reads: [Dialogue, Recalled, Plan, Candidates], writes: [Candidates],
    }
    /// How relevant each piece of evidence is.
    Relevance {
        name: "relevance", word: "relevance", forms: ["off", "learned", "encoder", "prompted"],
        prompted: Some("relevance"), on_failure: Some("degrade"), is_counted: true,
        reads: [Dialogue, Recalled, Plan, Candidates], writes: [Candidates],
    }
    /// Up to twenty facts in order.
    FactSelection {
        name: "fact_selection", word: "selection", forms: ["lexical", "prompted", "off"],
        prompted: Some("fact_selection"), on_failure: Some("degrade"), is_counted: true,
        reads: [Dialogue, Recalled, Plan, Queries, Topics, Candidates],
        writes: [Candidates, Evidence],
    }
    /// Whether the response answers, asks, declines, hands over or is social.
    Decision {
        name: "decision", word: "decision", forms: ["learned", "lexical", "prompted", "off"],
        prompted: Some("decision"), on_failure: Some("lexical"), is_counted: true,
        reads: [Dialogue, Recalled, Evidence], writes: [Evidence, Decision],
    }
    /// Evidence and history weighed together, and cut to a budget.
    Integration {
        name: "integration", word: "integration", forms: ["lexical", "learned", "off"],
        prompted: None, on_failure: Some("degrade"), is_counted: true,
        reads: [Dialogue, Recalled, Evidence, Decision], writes: [Evidence, Attention],
    }
    /// The response.
    Generation {
        name: "generation", word: "generation", forms: ["lexical", "learned", "prompted"],
        prompted: Some("generation"), on_failure: Some("dead_letter"), is_counted: true,
        reads: [
            Dialogue, Recalled, Concepts, Queries, Topics, Demand, Evidence, Decision, Attention
        ],
        writes: [Demand, Evidence, Decision, Draft],
    }
    /// How well each piece of evidence and the response agree.
    Consistency {
        name: "consistency", word: "consistency",
        forms: ["off", "lexical", "learned", "prompted"],
        prompted: Some("consistency"), on_failure: Some("degrade"), is_counted: true,
        reads: [Dialogue, Recalled, Evidence, Decision, Draft], writes: [Evidence],
    }
    /// The response made anew from other evidence.
    SelfRefinement {
        name: "self_refinement", word: "refinement", forms: [],
        prompted: None, on_failure: Some("degrade"), is_counted: true,
        reads: [Plan, Demand, Evidence, Decision, Attention, Draft],
        writes: [Demand, Evidence, Attention, Draft, Refinement],
    }
}

impl Stage {
    /// Returns the stage's name in records, configuration and metrics.
    pub const fn name(self) -> &'static str {
        self.row().name
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_stage_is_written_by_its_name() {
        for stage in Stage::ALL {
            assert_eq!(serde_json::to_value(stage).unwrap(), stage.name());
        }
        assert!(Stage::ALL.is_sorted(), "the stages stand in flow order");
        let words: BTreeSet<&str> = Stage::ALL.map(|stage| stage.row().word).into();
        assert_eq!(words.len(), Stage::ALL.len(), "each has a word of its own");
        assert!(words.iter().all(|word| !word.contains('_')));
    }

    /// A stage cannot read a part before an earlier stage has written it.
    #[test]
    fn what_a_stage_reads_was_written_before() {
        let mut written = BTreeSet::<RecordPart>::new();
        for stage in Stage::ALL {
            let StageRow { reads, writes, forms, prompted, .. } = stage.row();
            for part in reads {
                assert!(written.contains(part), "{stage} reads {part:?}, which nobody wrote");
            }
            assert!(!writes.is_empty(), "{stage} leaves nothing");
            written.extend(writes);
            if stage != Stage::History {
                let asks = forms.contains(&"prompted");
                assert_eq!(prompted, asks.then_some(stage.name()), "{stage}");
            }
        }
    }
}
