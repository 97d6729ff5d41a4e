//! Measures and trains what turnstream ships. Nothing that serves a turn depends on this crate.
//!
//! [`commands`] has the commands of the program `turnstream-lab`, to which `turnstream` hands
//! `eval`, `train`, `models distil`, `models bench` and `knowledge generate`. [`eval`] measures the
//! engine's parts on public data sets, over turns with labels ([`labelled`]). The crate trains the
//! gate ([`gate_training`]), the weights of attention ([`attention_training`]), and static tables
//! from pairs ([`pair_training`], [`calibration`]) and from a sentence encoder ([`distil`]).

use std::ffi::OsString;
use std::process::ExitCode;

pub mod attention_training;
pub mod bench;
pub mod calibration;
pub mod commands;
pub mod distil;
pub mod eval;
pub mod gate_reading;
pub mod gate_training;
pub mod generate;
pub mod labelled;
pub mod pair_training;
mod piece_vectors;

/// Parses the command line, runs the command and reports errors.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    commands::main(args)
}
