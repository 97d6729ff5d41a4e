//! Measuring the engine's parts on public data sets, as methods' papers do. Each measure says how
//! it is defined; `docs/` has the figures.

pub mod bootstrap;
pub mod consistency;
pub mod gate;
pub mod generation;
pub mod history;
pub mod persona;
pub mod planning;
pub mod ranking;
pub mod retrieval;
pub mod sources;
#[cfg(test)]
mod testing;
pub mod unified;
