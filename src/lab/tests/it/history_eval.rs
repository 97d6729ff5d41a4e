//! Tests `turnstream eval history` and `eval histories` on our own turns, and on the real data if
//! it is available.

use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};

use crate::turnstream;

fn eval(args: &[&str]) -> Output {
    turnstream(&["eval"]).args(args).output().expect("it runs")
}

/// Returns the last line on standard output.
fn json_of(args: &[&str]) -> Value {
    let output = eval(&[args, &["--json"]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    let out = String::from_utf8(output.stdout).expect("UTF-8");
    serde_json::from_str(out.lines().last().expect("a line")).expect("JSON")
}

/// Writes a log of eight utterances with two questions at the end; the first asks for the second
/// exchange.
fn log(folder: &tempfile::TempDir) -> String {
    let said = [
        "My parcel is late.",
        "Which parcel?",
        "I keep bees in the garden.",
        "How many hives?",
        "My violin needs a string.",
        "Which one broke?",
        "The train was full.",
        "On Monday again?",
    ];
    let turn = |text: &str, id: String, speaker: &str, metadata: Value| {
        json!({ "conversation_id": "c", "turn_id": id, "speaker": speaker, "text": text,
                "metadata": metadata })
    };
    let spoken = said
        .iter()
        .enumerate()
        .map(|(at, text)| turn(text, at.to_string(), ["user", "system"][at % 2], json!({})));
    let asked = [
        ("How are the bees?", json!({ "evidence": ["2"], "category": "one", "probe": true })),
        (
            "Is the train full?",
            json!({ "evidence": ["6", "lost"], "category": "two", "probe": true }),
        ),
    ];
    let asked = asked
        .into_iter()
        .enumerate()
        .map(|(at, (text, metadata))| turn(text, format!("ask{at}"), "user", metadata));
    let lines: String = spoken.chain(asked).map(|line| format!("{line}\n")).collect();
    let path = folder.path().join("log.jsonl");
    std::fs::write(&path, lines).expect("written");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn our_own_turns_are_measured_with_the_keys_that_programs_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log(&folder);
    let base = ["history", "--format", "turns", "--data", &log, "--k", "2,8"];
    let all = json_of(&[&base[..], &["--encoder", "none"]].concat());
    assert_eq!(all["format"], "turns");
    assert_eq!((&all["n"], &all["conversations"]), (&json!(2), &json!(1)));
    assert_eq!((&all["capacity"], &all["eviction"]), (&Value::Null, &json!("none")));
    assert_eq!(all["recall_method"], "all");
    assert_eq!(all["recall"], json!({ "2": 1.0, "8": 1.0 }));
    assert_eq!(all["full"], json!({ "2": 1.0, "8": 1.0 }));
    assert_eq!(all["survival"], 1.0);
    assert_eq!(all["by_category"]["one"]["n"], 1);
    assert_eq!((&all["questions_skipped"], &all["malformed_evidence"]), (&json!(0), &json!(1)));

    let kept = ["--capacity", "25%", "--eviction", "recency", "--recall", "recency"];
    let kept = json_of(&[&base[..], &kept].concat());
    assert_eq!(kept["capacity_share"], 0.25);
    assert_eq!((&kept["survival"], &kept["recall"]["2"]), (&json!(0.5), &json!(0.5)));
    let kept = json_of(&[&base[..], &["--capacity", "6", "--eviction", "recency"]].concat());
    assert_eq!((&kept["capacity"], &kept["survival"]), (&json!(6), &json!(1.0)));
}

#[test]
fn what_is_wrong_is_refused_by_its_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log(&folder);
    let code = |args: &[&str]| eval(&[&["history"], args].concat()).status.code();
    assert_eq!(code(&["--format", "sgd", "--data", &log]), Some(2));
    assert_eq!(code(&["--format", "turns", "--data", &log, "--capacity", "120%"]), Some(2));
    assert_eq!(code(&["--format", "turns", "--data", &log, "--capacity", "1"]), Some(2));
    assert_eq!(code(&["--format", "turns", "--data", &log, "--k", "0"]), Some(2));
    assert_eq!(code(&["--format", "turns", "--data", &log, "--skip", "1"]), Some(3));
    assert_eq!(code(&["--format", "locomo", "--data", &log]), Some(3));
    assert_eq!(code(&["--format", "turns", "--data", "nowhere.jsonl"]), Some(3));
}

/// Returns a file of the real data, if it is available.
fn real(file: &str) -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("TURNSTREAM_DATA").map_or(beside, PathBuf::from);
    let path = folder.join(file);
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: no {}; set TURNSTREAM_DATA to the data's folder", path.display());
    None
}

#[test]
fn the_engine_finds_in_locomo_what_it_should() {
    let Some(path) = real("locomo/conversations-1-5.jsonl.gz") else { return };
    let path = path.to_str().expect("UTF-8");
    let found = json_of(&["history", "--format", "locomo", "--data", path]);
    assert_eq!((&found["n"], &found["conversations"]), (&json!(996), &json!(5)));
    assert_eq!((&found["questions_skipped"], &found["malformed_evidence"]), (&json!(3), &json!(4)));
    assert_eq!(found["by_category"].as_object().map(serde_json::Map::len), Some(5));
    let at_ten = found["recall"]["10"].as_f64().expect("a number");
    assert!(at_ten >= 0.60, "{at_ten}: everything is kept, and the goal is 0.60");
    let latest = json_of(&["history", "--format", "locomo", "--data", path, "--recall", "recency"]);
    assert!(latest["recall"]["10"].as_f64().is_some_and(|recall| recall < 0.1), "{latest}");
}

#[test]
fn the_engine_finds_in_topiocqa_what_was_left() {
    let Some(path) = real("topiocqa/train.jsonl.gz") else { return };
    let path = path.to_str().expect("UTF-8");
    let part = ["history", "--format", "topiocqa", "--data", path, "--skip", "300", "--take", "50"];
    let on_return = |method: &str| {
        let found = json_of(&[&part[..], &["--recall", method]].concat());
        assert!(found["on_return"]["n"].as_u64().is_some_and(|turns| turns > 20), "{found}");
        assert!(found["topic_precision"]["3"].is_number(), "{found}");
        found["on_return"]["1"].as_f64().expect("a number")
    };
    assert_eq!(on_return("recency"), 0.0, "the turn before has another topic");
    assert!(on_return("flat") > 0.25);
}
