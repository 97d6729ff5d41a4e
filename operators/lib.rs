//! What happens to a turn: the operators of turnstream, in the order of the flow.
#![allow(missing_docs)]

pub mod cross_revision;
pub mod fact_retrieval;
pub mod fact_selection;
pub mod flow;
pub mod form;
pub mod gate;
pub mod generation;
pub mod join;
pub mod knowledge;
pub mod language;
pub mod linking;
#[cfg(test)]
mod promises;
pub mod query_production;
pub mod ranking;
pub mod resources;
pub mod salience;
pub mod small_talk;
pub mod stage;
#[cfg(test)]
mod testing;
pub mod topic_planning;
