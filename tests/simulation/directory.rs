//! Tests that a log in a directory survives its process. A child process that serves it is killed
//! at the beginning and the end of each call to the log, one after the other, and the next child
//! goes on.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fastrand::Rng;
use tempfile::TempDir;
use turnstream_engine::config::Config;
use turnstream_log::Topic;
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Isolation};
use turnstream_operators::generation::GenerationForm;

use crate::instance::{Instance, Moved};
use crate::oracle::Oracle;
use crate::workload::Workload;
use crate::world::dependencies;

/// Partitions of the log.
const PARTITIONS: i32 = 2;

/// Inputs on the log.
const INPUTS: usize = 24;

/// The most rounds of a child, each of 5 virtual milliseconds.
const ROUNDS: u64 = 2_000;

/// Pass the directory to the child, and the call at which it is killed; 0 for none.
const DIRECTORY: &str = "TURNSTREAM_SIMULATION_DIRECTORY";
const KILL_AT: &str = "TURNSTREAM_SIMULATION_KILL_AT";

/// SIGKILL.
const KILLED: i32 = 9;

#[test]
fn a_process_killed_at_any_call_to_its_log_loses_and_doubles_nothing() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let kill_at = std::env::var(KILL_AT).expect("set").parse().expect("a number");
        return serve(Path::new(&directory), kill_at);
    }
    let mut killed = 0;
    for kill_at in 1.. {
        let folder = folder();
        let workload = fill(folder.path());
        let status = child(folder.path(), kill_at);
        if status.signal() == Some(KILLED) {
            killed += 1;
            // Also killed at another call, while it recovers from the first kill.
            let status = child(folder.path(), 1 + kill_at * 7 % 40);
            assert!(status.success() || status.signal() == Some(KILLED), "{kill_at}: {status}");
            let status = child(folder.path(), 0);
            assert!(status.success(), "after a kill at call {kill_at}: {status}");
        } else {
            assert!(status.success(), "call {kill_at}: {status}");
        }
        let log = open(folder.path());
        let mut oracle = Oracle::default();
        oracle.observe(&log, &workload);
        oracle.check(&log, &workload, &config());
        if status.success() {
            break;
        }
    }
    eprintln!("killed at {killed} places");
    assert!(killed > 50, "there must be more calls than {killed}");
}

/// Makes a folder in memory, if there is one. The kernel keeps what a killed process wrote there as
/// on a disk, and hundreds of processes need not wait for disks.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    folder.expect("a folder")
}

fn open(directory: &Path) -> EmbeddedLog {
    let config = EmbeddedConfig {
        partitions: PARTITIONS,
        poll_records: 5,
        compact_after_records: 20,
        map_size_mib: 64,
        ..EmbeddedConfig::default()
    };
    EmbeddedLog::in_directory(directory, &config).expect("opened")
}

fn fill(directory: &Path) -> Workload {
    let log = open(directory);
    let mut rng = Rng::with_seed(7);
    let mut workload = Workload::new(&mut rng, PARTITIONS, false);
    (0..INPUTS).for_each(|at| workload.send(&mut rng, &log, at as u64));
    workload
}

/// Starts this test as another process.
fn child(directory: &Path, kill_at: u64) -> ExitStatus {
    let this = std::env::current_exe().expect("this program");
    let name = "directory::a_process_killed_at_any_call_to_its_log_loses_and_doubles_nothing";
    let child = Command::new(this)
        .args(["--exact", name])
        .env(DIRECTORY, directory)
        .env(KILL_AT, kill_at.to_string())
        .output()
        .expect("it runs");
    let status = child.status;
    if !status.success() && status.signal() != Some(KILLED) {
        eprintln!("{}", String::from_utf8_lossy(&child.stdout));
    }
    status
}

/// Serves, in the child, until every input has its outcome.
fn serve(directory: &Path, kill_at: u64) {
    let log = open(directory);
    let calm = Arc::new(AtomicBool::new(true));
    let mut instance =
        Instance::start(&log, "process", &dependencies(config()), |number| (0, number * 13), &calm);
    instance.wire.kill_at(kill_at);
    for now_ms in (0..ROUNDS).map(|round| round * 5) {
        instance.poll(now_ms);
        instance.work(now_ms);
        assert_eq!(instance.take_reports(usize::MAX, now_ms), Moved::On);
        if instance.end_if_drained(now_ms) == Moved::Stopped {
            return;
        }
        if outcomes(&log) == INPUTS {
            instance.ask_to_stop();
        }
    }
    panic!("{} of {INPUTS} outcomes", outcomes(&log));
}

fn outcomes(log: &EmbeddedLog) -> usize {
    let topics = [Topic::Responses, Topic::Recorded, Topic::DeadLetters];
    let all = topics.into_iter().flat_map(|topic| (0..PARTITIONS).map(move |at| (topic, at)));
    let count = |(topic, partition)| {
        log.read(topic, partition, 0, usize::MAX, Isolation::ReadCommitted).expect("read").len()
    };
    all.map(count).sum()
}

fn config() -> Config {
    let mut config = Config::default();
    config.history.max_entries = 3;
    config.history.alpha = 0.0;
    config.history.importance_share = 0.0;
    config.commit.interval_ms = 10;
    config.commit.max_outcomes = 4;
    config.turns.max_in_flight_per_partition = 4;
    config.generation.form = GenerationForm::Prompted;
    config
}

/// Ends this process as `kill -9` does.
pub(crate) fn kill_this_process() -> ! {
    let this = std::process::id().to_string();
    let kill = Command::new("kill").args(["-KILL", &this]).status();
    panic!("still here: {kill:?}");
}
