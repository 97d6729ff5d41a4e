//! The operators of turnstream, in the order in which a turn passes them.
//!
//! 1. [`ingest`] converts bytes to turns, or to dead letters;
//! 2. [`history`] keeps the order of a scope and recalls entries; at the end of the feedback edge it
//!    updates the history and evicts;
//! 3. [`gate`] decides whether the turn needs knowledge;
//! 4. [`embedding`] encodes the dialogue as a vector;
//! 5. [`source_planning`] decides which [`sources`] to ask;
//! 6. [`query_production`] and [`topic_planning`] run side by side, and [`join`] merges their results;
//! 7. [`cross_revision`] revises queries by topics, and topics by queries;
//! 8. [`retrieval`] asks the sources of the plan: [`fact_retrieval`] (ranked by [`ranking`] and
//!    [`meaning`]), [`table_retrieval`], [`persona_retrieval`] and [`document_retrieval`];
//! 9. [`relevance`] judges how relevant each piece of evidence is;
//! 10. [`fact_selection`] selects up to twenty facts and a few passages, and orders them;
//! 11. [`decision`] says by the evidence what the response does;
//! 12. [`integration`] weighs evidence and history together and cuts them to a budget;
//! 13. [`generation`] words the response;
//! 14. [`consistency`] judges how well the response agrees with each piece of evidence;
//! 15. [`self_refinement`] makes the response anew from other evidence.
//!
//! The operators build on the graph and its words ([`turnstream_knowledge`]), the concepts that a
//! dialogue names ([`salience`]), the ports to models, indexes and documents
//! ([`turnstream_ports`]), the contract and the runner of stages ([`stage`]), and the records that
//! travel between stages ([`flow`]). The [`views`] run beside the flow and count its committed
//! records.
//!
//! # The contract of a stage
//!
//! [`stage`] defines the contract and has an example; read that first.
//!
//! - Each stage has one file: a struct that implements [`stage::Decide`] over plain functions on
//!   plain values, and one entry function that takes streams and the configuration and returns
//!   (values, faults). Nothing else in the file mentions timely.
//! - [`stage::run`] does the rest: it moves turns and capabilities, asks models, contains panics and
//!   applies the stage's `on_failure`. Every turn that goes in comes out exactly once, as a value or
//!   as a fault: a stage that swallowed one would stop its scope for ever.
//! - A stage uses no clock, no thread and no order that depends on a random hash: the same inputs
//!   give the same outputs.
//! - The configuration is strict and documented field by field; a stage's `form` has one variant for
//!   each way in which the stage can decide.
//!
//! This crate does not depend on Kafka, candle or arroy.

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

pub mod decision;
pub mod fact_selection;

pub mod integration;

pub mod generation;

pub mod consistency;
pub mod self_refinement;

mod asked_facts;
pub mod attention;
pub mod awaited;
pub mod bm25;
pub mod dialogue_vector;
pub mod faithful;
pub mod flow;
pub mod fusion;
pub mod judge;

pub mod prompted;
mod questions;
pub mod response_texts;
pub mod salience;
pub mod stage;
pub mod stage_config;
pub mod stage_context;
pub mod stage_form;
pub mod timers;
pub mod unified;
pub mod views;

#[cfg(test)]
mod ablations;
#[cfg(test)]
mod promises;
#[cfg(test)]
mod testing;
