//! Measures what a flood on a real Kafka does to memory while the model never answers.
//!
//! ```sh
//! cargo bench --bench flood                     # ten minutes
//! FLOOD_SECONDS=60 cargo bench --bench flood
//! ```
//!
//! Sends more turns than any engine serves to one whose model is stalled ([`flood`]), and prints
//! its memory every ten seconds. Asserts only that the measurement took place as intended. Numbers
//! are in benches/README.md.

#![allow(clippy::print_stdout)] // The benchmark prints its numbers.

use std::process::{Child, Command};

#[allow(dead_code)] // This benchmark does not use all of the tests' broker.
#[path = "../../tests/it/broker.rs"]
mod broker;
mod flood;
#[allow(dead_code)] // Only the other benchmark measures peaks.
#[path = "../restore/memory.rs"]
mod memory;
mod turns;

/// The variable that tells a child process its part of the measurement.
const PART: &str = "FLOOD_PART";
/// The variable that tells it the broker's address.
const BOOTSTRAP: &str = "FLOOD_BOOTSTRAP";

fn main() {
    if let Ok(part) = std::env::var(PART) {
        let bootstrap = std::env::var(BOOTSTRAP).expect("set with the part");
        return match part.as_str() {
            "engine" => flood::serve(&bootstrap),
            "clients" => turns::flood(&bootstrap, flood::seconds()),
            other => panic!("no part {other}"),
        };
    }
    let Some(broker) = broker::Broker::start_or_skip("flood") else { return };
    broker.create_topics("", turns::PARTITIONS);
    flood::measure(&broker);
}

/// Starts this program for a part.
fn start(part: &str, bootstrap: &str) -> Child {
    let program = std::env::current_exe().expect("this program");
    let mut part_of = Command::new(program);
    part_of.env(PART, part).env(BOOTSTRAP, bootstrap).spawn().expect("a process")
}
