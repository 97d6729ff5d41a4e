//! What happens to a turn: the operators of turnstream, in the order of the flow.
//!
//! 1. [`ingest`]: bytes become turns, or dead letters;
//! 2. [`history`]: the order of a scope, recall, and at the end of the feedback edge the update
//!    and eviction;
//! 3. [`gate`]: does the turn need knowledge?
//! 4. [`embedding`]: the dialogue as a vector;
//! 5. [`query_production`] and [`topic_planning`], side by side, and their [`join`];
//! 6. [`cross_revision`]: queries and topics repair each other;
//! 7. [`fact_retrieval`]: foreseen and unforeseen facts, ranked by [`ranking`] and [`meaning`];
//! 8. [`persona_retrieval`]: sentences of the turn's persona, where it has one;
//! 9. [`document_retrieval`]: passages of documents, where there are any;
//! 10. [`fact_selection`]: up to twenty of the facts, and a few passages, in order;
//! 11. [`integration`]: evidence and history weighed together, and cut to what there is room for;
//! 12. [`generation`]: the response;
//! 13. [`consistency`]: how well each piece of evidence and the response agree;
//! 14. [`self_refinement`]: the response made anew from other evidence.
//!
//! What they rest on: the graph and the words ([`turnstream_knowledge`]), the concepts that a
//! dialogue names ([`salience`]); the ports to models, indexes and documents
//! ([`turnstream_ports`]); what every stage is and what runs it ([`stage`]); what travels between two
//! stages ([`flow`]). Beside the flow stand the [`views`], over what it committed.
//!
//! # The contract of a stage
//!
//! [`stage`] is the whole of it, with an example; read that first.
//!
//! - One file, one stage: a struct that implements [`stage::Decide`] over plain functions on plain
//!   values, and one entry function: streams and configuration in, (values, faults) out. Nothing
//!   else in the file mentions timely.
//! - [`stage::run`] does the rest: it moves turns and capabilities, asks models, contains panics and
//!   applies the stage's `on_failure`. Every turn that goes in comes out exactly once, as a value or
//!   as a fault: a stage that swallowed one would stop its scope for ever.
//! - No clock, no thread, no order that depends on a random hash: the same inputs give the same
//!   outputs.
//! - The configuration is strict and documented field by field; a stage's `form` has a variant for
//!   each thing that it can do, and no other.
//!
//! Nothing here reaches Kafka, candle or arroy.

pub mod ingest;

pub mod history;

pub mod gate;

pub mod embedding;

pub mod source_planning;
pub mod sources;

pub mod query_production;
pub mod topic_planning;

pub mod join;

pub mod cross_revision;

pub mod retrieval;

pub mod fact_retrieval;
pub mod meaning;
pub mod ranking;

pub mod persona_retrieval;

pub mod document_retrieval;

pub mod table_retrieval;
pub mod tables;

pub mod relevance;

pub mod fact_selection;

pub mod integration;

pub mod generation;

pub mod consistency;
pub mod self_refinement;

pub mod attention;
pub mod awaited;
pub mod bm25;
pub mod dialogue_vector;
pub mod faithful;
pub mod flow;
pub mod fusion;
pub mod judge;

pub mod prompted;
pub mod salience;
pub mod stage;
pub mod stage_config;
pub mod stage_context;
pub mod timers;
pub mod unified;
pub mod views;

#[cfg(test)]
mod ablations;
#[cfg(test)]
mod promises;
#[cfg(test)]
mod testing;
