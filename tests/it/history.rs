//! `turnstream history` on what a replay of our own conversation wrote: what it says is what the
//! responses said when it happened.

use std::path::{Path, PathBuf};

use serde_json::Value;
use turnstream_schemas::Response;

use crate::turnstream;

const CONVERSATION: &str = include_str!("../../src/cli/demo/conversations/returning.jsonl");

fn json(args: &[&str]) -> Value {
    let output = turnstream(args).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().expect("a last line")).expect("JSON")
}

/// Replays the conversation with room for six entries: its responses, and where its changes are.
fn replayed(folder: &Path) -> (Vec<Response>, PathBuf, PathBuf) {
    let file = |name: &str| folder.join(name);
    std::fs::write(file("log.jsonl"), CONVERSATION).expect("a file");
    std::fs::write(file("six.toml"), "[history]\nmax_entries = 6\nwindow_utterances = 6\n")
        .expect("a file");
    let path = |name: &str| file(name).display().to_string();
    json(&[
        "replay",
        &path("log.jsonl"),
        "--config",
        &path("six.toml"),
        "--history",
        "generated",
        "--out",
        &path("out.jsonl"),
        "--out-history",
        &path("history.jsonl"),
        "--json",
    ]);
    let responses = std::fs::read_to_string(file("out.jsonl")).expect("a file");
    let responses = responses.lines().map(|line| serde_json::from_str(line).expect("a response"));
    (responses.collect(), file("history.jsonl"), file("six.toml"))
}

#[test]
fn every_eviction_is_explained_as_its_response_did() {
    let folder = tempfile::tempdir().unwrap();
    let (responses, changes, config) = replayed(folder.path());
    let (changes, config) = (changes.display().to_string(), config.display().to_string());
    let list = json(&["history", "show", "--changes", &changes, "--json"]);
    let scope = list["scopes"][0]["scope"].as_str().unwrap();
    let shown =
        json(&["history", "show", scope, "--changes", &changes, "--config", &config, "--json"]);

    let told: Vec<(&str, f64, u32)> = responses
        .iter()
        .flat_map(|response| &response.evicted)
        .map(|gone| (gone.turn_id.as_str(), gone.weight.get(), gone.rank))
        .collect();
    assert!(told.len() > 6, "{told:?}");
    let explained: Vec<(&str, f64, u32)> = shown["evicted"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gone| {
            assert!(gone["query"].is_string(), "what was said is known: {gone}");
            let rank = gone["rank"].as_u64().unwrap() as u32;
            (gone["turn_id"].as_str().unwrap(), gone["weight"].as_f64().unwrap(), rank)
        })
        .collect();
    assert_eq!(explained, told);
    assert_eq!(shown["evictions"], told.len());

    let groups = shown["categories"].as_array().unwrap().iter();
    let groups = groups.flat_map(|category| category["groups"].as_array().unwrap());
    let entries: usize = groups.map(|group| group["entries"].as_array().unwrap().len()).sum();
    assert_eq!(entries, 6, "every entry is shown once");
}

#[test]
fn what_is_exported_is_shown_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (_, changes, config) = replayed(folder.path());
    let (changes, config) = (changes.display().to_string(), config.display().to_string());
    let exported = folder.path().join("exported.jsonl").display().to_string();
    let output = turnstream(&["history", "export", "--changes", &changes, "--out", &exported]);
    assert!({ output }.output().unwrap().status.success());
    let shown = |from: &str| {
        let list = json(&["history", "show", "--changes", from, "--json"]);
        let scope = list["scopes"][0]["scope"].as_str().unwrap().to_owned();
        json(&["history", "show", &scope, "--changes", from, "--config", &config, "--json"])
    };
    let (before, after) = (shown(&changes), shown(&exported));
    assert_eq!(before["categories"], after["categories"]);
    assert_eq!(before["chains"], after["chains"]);
    assert_eq!(after["evicted"], serde_json::json!([]), "an export is of what is held");
}

#[test]
fn what_cannot_be_shown_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (_, changes, _) = replayed(folder.path());
    let changes = changes.display().to_string();
    let said = |args: &[&str], code: i32| {
        let output = turnstream(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let missing = said(&["history", "show", "nobody", "--changes", &changes], 2);
    assert!(missing.contains("default/nobody"), "{missing}");
    let other = folder.path().join("log.jsonl").display().to_string();
    let refused = said(&["history", "show", "--changes", &other], 3);
    assert!(refused.contains("log.jsonl:1"), "{refused}");
}
