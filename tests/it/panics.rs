//! Tests that a panic that ends the process is reported, through the real program.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};
use turnstream_log::Topic;
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Isolation, Message};

/// A history record that cannot be read stops the worker, as documented.
#[test]
fn a_workers_panic_names_message_place_and_input_in_json_and_in_the_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().join("log");
    let toml = folder.path().join("run.toml");
    let config = format!(
        "[log]\nkind = \"embedded\"\ndirectory = {directory:?}\n[models]\nembedder = \"none\"\n"
    );
    std::fs::write(&toml, config).expect("written");
    let serve = || {
        let toml = toml.to_str().expect("a path");
        let words = ["run", "--workers", "1", "--log-format", "json", "--config", toml];
        let mut run = crate::turnstream(&words);
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = run.spawn().expect("the program starts");
        let turn = json!({"conversation_id": "c-1", "speaker": "user", "text": "Is tea a drink?"});
        writeln!(run.stdin.take().expect("its input"), "{turn}").expect("read");
        let ended = run.wait_with_output().expect("it ends");
        (ended.status.code(), String::from_utf8(ended.stderr).expect("text"))
    };
    let (code, said) = serve();
    assert_eq!(code, Some(0), "{said}");

    let log = EmbeddedLog::in_directory(&directory, &EmbeddedConfig::default()).expect("the log");
    let kept = |partition| {
        let read = log.read(Topic::History, partition, 0, 10, Isolation::ReadCommitted);
        read.expect("records").into_iter().next()
    };
    let entry = (0..log.partitions()).find_map(kept).expect("a history");
    let (partition, value) = (entry.partition, Some(b"{}".to_vec()));
    let strange = Message { key: entry.key, value, ..Message::default() };
    log.append(Topic::History, partition, strange).expect("written");
    let offset = log.end(Topic::Turns, partition);
    drop(log);

    let (code, said) = serve();
    assert_eq!(code, Some(1), "{said}");
    let mut lines: Vec<&str> = said.lines().collect();
    let error = lines.pop().expect("an error");
    let lines: Vec<Value> = lines
        .into_iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let panics: Vec<_> = lines.iter().filter(|line| line["said"].is_string()).collect();
    let [panic] = panics[..] else { panic!("one panic: {said}") };
    let message = panic["said"].as_str().expect("a message");
    let place = panic["place"].as_str().expect("a place");
    assert!(message.contains("of scope default/c-1") && message.contains("missing field"));
    assert!(place.starts_with("operators/history/scopes.rs:"), "{place}");
    assert_eq!(panic["level"], "ERROR");
    assert_eq!((&panic["partition"], &panic["offset"]), (&partition.into(), &offset.into()));
    let input = format!("while serving the input at partition {partition}, offset {offset}");
    for part in ["a worker panicked", message, place, &input] {
        assert!(error.contains(part), "{part} in {error}");
    }
}
