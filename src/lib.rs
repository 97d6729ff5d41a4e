//! turnstream: a streaming dataflow engine for retrieval-augmented dialogue.

pub mod cli;
pub mod commit;
pub mod config;
pub mod dataflow;
pub mod engine;
pub mod flow_control;
pub mod formats;
pub mod intake;
pub mod knowledge;
pub mod log;
pub mod tally;
pub mod worker;
