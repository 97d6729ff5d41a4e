//! Tests what `turnstream-lab` measures, by running the program. Tests that also need `turnstream`
//! are among those of the whole workspace.

use std::path::Path;
use std::process::{Command, Stdio};

mod curves;
mod gates;
mod history_eval;

/// Returns a command that runs the program with the shared snapshot of the shipped knowledge, and
/// an empty standard input.
fn turnstream(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnstream-lab"));
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    command.args(args).env("TURNSTREAM_CACHE", cache).env_remove("TURNSTREAM_LOG");
    command.stdin(Stdio::null());
    command
}

#[test]
fn help_shows_commands_as_they_are_typed() {
    let help = turnstream(&["eval", "gate", "--help"]).output().expect("it runs");
    let told = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(told.contains("Usage: turnstream eval gate "), "{told}");
}
