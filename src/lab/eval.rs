//! Measures the engine's parts on public data sets, with the measures of the methods' papers. Each
//! measure documents its definition; `docs/` has the figures.

pub mod answers;
pub mod bootstrap;
pub mod consistency;
pub mod curves;
pub mod gate;
pub mod generation;
pub mod history;
pub mod persona;
pub mod planning;
pub mod plots;
pub mod ranking;
pub mod retrieval;
pub mod sources;
#[cfg(test)]
mod testing;
pub mod unified;
