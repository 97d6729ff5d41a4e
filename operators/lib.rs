//! What happens to a turn: the operators of turnstream, in the order of the flow.
#![allow(missing_docs)]

pub mod call;
pub mod flow;
pub mod history;
pub mod index;
pub mod ingest;
pub mod knowledge;
pub mod language;
pub mod linking;
pub mod model;
pub mod stage;
pub mod timers;
