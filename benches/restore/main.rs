//! Measures restoring a large history from a real Kafka, beside a bare consumer that reads the same
//! topic; and the memory of idle scopes.
//!
//! ```sh
//! cargo bench --bench restore              # everything; needs what deploy/packages installs
//! RESTORE_ENTRIES=100000 RESTORE_SCOPES=100000 cargo bench --bench restore    # a tenth of it
//! ```
//!
//! Every phase is a process of its own, so that none is charged with another's memory:
//!
//! - `bare`: an rdkafka consumer of committed records reads all partitions of the history topic to
//!   their ends and parses nothing;
//! - `engine`: a member of the group, its intake and its workers, until all partitions are
//!   restored into the cache;
//! - `idle`: four turns of each scope, and another of some;
//! - `held`: the memory of a scope with four entries, for a thousand scopes to a million.
//!
//! Asserts only that the measurement took place as intended. Numbers are in benches/README.md.

#![allow(clippy::print_stdout)] // The benchmark prints its numbers.

use std::process::Command;

#[allow(dead_code)] // This benchmark does not use all of the tests' broker.
#[path = "../../tests/it/broker.rs"]
mod broker;
mod idle;
mod memory;
mod topic;

/// The variable that tells a child process its phase.
const PHASE: &str = "RESTORE_PHASE";
/// The variable that tells it the broker's address.
const BOOTSTRAP: &str = "RESTORE_BOOTSTRAP";
/// The variable with the number of scopes.
const SCOPES: &str = "RESTORE_SCOPES";

fn main() {
    if let Ok(phase) = std::env::var(PHASE) {
        let bootstrap = std::env::var(BOOTSTRAP).unwrap_or_default();
        match phase.as_str() {
            "bare" => topic::read_bare(&bootstrap),
            "engine" => topic::restore(&bootstrap),
            "idle" => idle::come_and_go(),
            "held" => idle::stay(),
            other => panic!("no phase {other}"),
        }
        return;
    }
    if let Some(broker) = broker::Broker::start_or_skip("restoring a history") {
        broker.create_topics("", topic::PARTITIONS);
        topic::fill(broker.bootstrap());
        for phase in ["bare", "engine", "bare", "engine"] {
            run(phase, (BOOTSTRAP, broker.bootstrap()));
        }
    }
    let scopes = number(SCOPES, 1_000_000);
    for scopes in [1_000, 10_000, 100_000, 1_000_000].into_iter().filter(|few| *few <= scopes) {
        run("held", (SCOPES, &scopes.to_string()));
    }
    run("idle", (SCOPES, &scopes.to_string()));
}

fn run(phase: &str, (variable, value): (&str, &str)) {
    let program = std::env::current_exe().expect("this program");
    let done = Command::new(program).env(PHASE, phase).env(variable, value).status();
    assert!(done.expect("a process").success(), "{phase}");
}

/// Returns a number that the environment may set.
fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a whole number"))
}

/// Makes a folder on the disk that the build uses.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}
