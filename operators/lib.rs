//! What happens to a turn: the operators of turnstream, in the order of the flow.
#![allow(missing_docs)]

pub mod flow;
pub mod knowledge;
pub mod language;
pub mod linking;
pub mod stage;
