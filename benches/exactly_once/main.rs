//! What exactly-once costs on a real Kafka, and what a flood does to memory.
//!
//! ```sh
//! cargo bench --bench exactly_once -- throughput   # the engine beside a bare loop
//! cargo bench --bench exactly_once -- flood        # ten minutes with a model that never answers
//! FLOOD_SECONDS=60 cargo bench --bench exactly_once -- flood
//! ```
//!
//! `throughput` ([`throughput`]) fills a topic and has it served by processes of their own, one
//! after the other: a bare rdkafka loop that consumes, copies and produces in the same
//! transactions, and the engine with a generator that says nothing. `flood` ([`flood`]) sends
//! turns as fast as a broker takes them to an engine whose model is stalled, and prints its
//! memory every ten seconds. Asserts only that what was measured is what was meant. Numbers are
//! in benches/README.md.

#![allow(clippy::print_stdout)] // Numbers are what it is for.

use std::process::{Child, Command};

mod bare;
#[allow(dead_code)] // The tests' broker can do more than is needed here.
#[path = "../../tests/it/broker.rs"]
mod broker;
mod flood;
#[allow(dead_code)] // Peaks are the other measurement's.
#[path = "../restore/memory.rs"]
mod memory;
mod throughput;
mod turns;

/// Names the part of a measurement to a process that is to do it.
const PART: &str = "EXACTLY_ONCE_PART";
/// Tells it where the broker is.
const BOOTSTRAP: &str = "EXACTLY_ONCE_BOOTSTRAP";

fn main() {
    if let Ok(part) = std::env::var(PART) {
        let bootstrap = std::env::var(BOOTSTRAP).expect("set with the part");
        return match part.as_str() {
            "fill" => turns::fill(&bootstrap, throughput::turns()),
            "bare" => bare::serve(&bootstrap, bare::Outputs::One),
            "bare-three" => bare::serve(&bootstrap, bare::Outputs::Three),
            "engine-gate-closed" => throughput::serve(&bootstrap, false),
            "engine" => throughput::serve(&bootstrap, true),
            "flood-engine" => flood::serve(&bootstrap),
            "flood-clients" => turns::flood(&bootstrap, flood::seconds()),
            other => panic!("no part {other}"),
        };
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    for (name, measure) in
        [("throughput", throughput::measure as fn(&broker::Broker)), ("flood", flood::measure)]
    {
        // The flood takes its time: only where it is asked for.
        let by_default = wanted.is_empty() && name == "throughput";
        if by_default || wanted.iter().any(|arg| arg == name) {
            let Some(broker) = broker::Broker::start_or_skip(name) else { return };
            broker.create_topics("", turns::PARTITIONS);
            measure(&broker);
        }
    }
}

/// Starts this program for a part.
fn start(part: &str, bootstrap: &str) -> Child {
    let program = std::env::current_exe().expect("this program");
    let mut part_of = Command::new(program);
    part_of.env(PART, part).env(BOOTSTRAP, bootstrap).spawn().expect("a process")
}

/// Has a part done.
fn run(part: &str, bootstrap: &str) {
    assert!(start(part, bootstrap).wait().expect("a child").success(), "{part}");
}

/// A number that the environment may set.
fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a whole number"))
}
