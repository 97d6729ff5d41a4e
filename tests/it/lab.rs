//! Tests that `turnstream` hands over to another program, which measures and trains.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Links this program into a folder of its own.
fn alone() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let program = folder.path().join("turnstream");
    fs::hard_link(env!("CARGO_BIN_EXE_turnstream"), &program).expect("linked");
    (folder, program)
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).env("PATH", "").output().expect("it runs")
}

#[test]
fn commands_of_the_lab_are_handed_over_as_they_were_typed() {
    let (folder, program) = alone();
    let lab = folder.path().join("turnstream-lab");
    fs::write(&lab, "#!/bin/sh\nprintf '%s|' \"$@\"\nexit 3\n").expect("written");
    fs::set_permissions(&lab, fs::Permissions::from_mode(0o755)).expect("made to run");
    for arguments in [
        &["--log-level", "warn", "eval", "gate", "--data", "a b", "--json"][..],
        &["eval", "--help"],
        &["train", "gate", "-x", "--", "--y"],
        &["models", "distil", "--out", "table"],
        &["models", "bench", "minilm"],
        &["knowledge", "generate", "--facts", "7"],
    ] {
        let ended = run(&program, arguments);
        let told = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert_eq!((ended.status.code(), told), (Some(3), arguments.join("|") + "|"));
    }
}

#[test]
fn without_the_lab_it_says_where_that_comes_from() {
    let (_folder, program) = alone();
    let ended = run(&program, &["eval", "gate", "--json"]);
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(told.contains("turnstream-lab") && told.contains("cargo build"), "{told}");
    assert_eq!(ended.status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("one JSON object");
    assert_eq!(json["exit_code"], 2, "{json}");
}
