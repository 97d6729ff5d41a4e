//! Tests against an embedded log in a directory. `tests/it/` uses a real broker.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};
use turnstream_console::Exit;
use turnstream_console::failure::exit_of;
use turnstream_log::{Follower as _, Record};

use super::super::{KnowledgeArgs, execute};
use super::*;

#[derive(Parser)]
struct ChangeProgram {
    #[command(flatten)]
    args: KnowledgeArgs,
}

/// A folder with the configuration of an embedded log.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let log = format!(
            "[log]\nkind = \"embedded\"\ndirectory = {:?}\n[log.embedded]\npartitions = 3\n",
            place.path("log")
        );
        std::fs::write(place.path("turnstream.toml"), log).unwrap();
        place
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    fn run(&self, line: &[&str]) -> (anyhow::Result<()>, String) {
        let (command, rest) = line.split_first().unwrap();
        let config = self.path("turnstream.toml");
        let line = [&["knowledge", *command, "--config", config.as_str()], rest].concat();
        let mut out = Vec::new();
        let result = execute(&ChangeProgram::try_parse_from(line).expect("usage").args, &mut out);
        (result, String::from_utf8(out).unwrap())
    }

    fn json(&self, line: &[&str]) -> Value {
        let (result, out) = self.run(&[line, &["--json"]].concat());
        result.unwrap();
        serde_json::from_str(out.lines().last().unwrap()).unwrap()
    }

    fn log(&self) -> EmbeddedLog {
        let config =
            turnstream_log::embedded::EmbeddedConfig { partitions: 3, ..Default::default() };
        EmbeddedLog::in_directory(Path::new(&self.path("log")), &config).unwrap()
    }

    /// The records of the topic, by partition and offset.
    fn records(&self) -> BTreeMap<(i32, i64), Record> {
        let records = self.log().follower(Topic::Knowledge).poll(Duration::ZERO).unwrap();
        records.into_iter().map(|record| ((record.partition, record.offset), record)).collect()
    }

    /// The last change of each head.
    fn changes(&self) -> BTreeMap<String, Change> {
        let read = |record: Record| {
            let change = Change::read(&record.key.unwrap(), record.value.as_deref()).unwrap();
            (change.key.head.clone(), change)
        };
        self.records().into_values().map(read).collect()
    }
}

const COFFEE: [&str; 8] =
    ["--source", "ours", "--head", "Black_Coffee", "--relation", "UsedFor", "--tail", "wake up"];

#[test]
fn one_fact_is_put_changed_and_taken_back() {
    let place = Place::new();
    let put = [&["put"], &COFFEE[..], &["--weight", "-2", "--language", "de"]].concat();
    let done = place.json(&put);
    let at = &done["partitions"][0];
    assert_eq!(
        (&done["written"], &done["bad"], &done["topic"]),
        (&json!(1), &json!(0), &json!("knowledge"))
    );
    assert_eq!(
        (&at["records"], &at["first_offset"], &at["last_offset"]),
        (&json!(1), &json!(0), &json!(0))
    );
    let upsert = place.changes()["black coffee"].upsert.clone().unwrap();
    assert_eq!((upsert.weight, upsert.language.as_str()), (-2.0, "de"));
    // The concept has the same key in any spelling, and therefore the same partition.
    let line = [&["delete"], &COFFEE[..2], &["--head", "black coffee"], &COFFEE[4..]].concat();
    let (result, out) = place.run(&line);
    result.unwrap();
    assert_eq!(out, format!("knowledge partition {}: offset 1\n", at["partition"]));
    let last = place.records().into_values().next_back().unwrap();
    assert_eq!(last.key, place.records().into_values().next().unwrap().key);
    let value: Value = serde_json::from_slice(&last.value.unwrap()).unwrap();
    assert_eq!(value["retracted"], json!(true), "it lasts");
    place.run(&[&line[..], &["--tombstone"]].concat()).0.unwrap();
    assert_eq!(place.records().into_values().next_back().unwrap().value, None);
}

#[test]
fn files_are_written_without_their_bad_lines() {
    let place = Place::new();
    let tsv = place.file(
        "facts.tsv",
        "relation\thead\ttail\tweight\tsource\nUsedFor\ttea\twake up\t2\tours\nbad\n\n\
         /r/IsA\tmilk\tdrink\t\tours\nIsA\tbeer\tdrink\tmuch\tours\nIsA\tnobody\tdrink\t1\n",
    );
    let lines = place.file(
        "facts.jsonl",
        "{\"source\":\"x\",\"head\":\"rum\",\"relation\":\"IsA\",\"tail\":\"drink\",\"weight\":3}\n\
         {\"source\":\"x\",\"head\":\"gin\",\"relation\":\"IsA\",\"tail\":\"drink\",\"retracted\":true}\n\
         {\"source\":\"x\",\"head\":\"ale\",\"relation\":\"IsA\",\"tail\":\"drink\",\"wieght\":3}\n",
    );
    let done = place.json(&["put", &tsv, &lines, "--weight", "5"]);
    assert_eq!((&done["written"], &done["bad"]), (&json!(4), &json!(4)));
    let bad = |file: usize| {
        let lines = done["files"][file]["bad_lines"].as_array().unwrap();
        lines.iter().map(|bad| bad["line"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((bad(0), bad(1)), (vec![3, 6, 7], vec![3]));
    assert_eq!(done["files"][0]["lines"], json!(7));
    let said = done["files"][0]["bad_lines"][2]["reason"].as_str().unwrap();
    assert!(said.contains("--source"), "{said}");
    let changes = place.changes();
    let weights: Vec<_> = changes
        .iter()
        .map(|(head, change)| (head.as_str(), change.upsert.as_ref().map(|upsert| upsert.weight)))
        .collect();
    assert_eq!(
        weights,
        [("gin", None), ("milk", Some(5.0)), ("rum", Some(3.0)), ("tea", Some(2.0))]
    );
    assert_eq!(changes["milk"].key.relation, "IsA");
    // Deleting needs no weight and ignores it.
    let gone = place.file("gone.tsv", "IsA\tmilk\tdrink\nIsA\trum\tdrink\tmuch\n");
    let done = place.json(&["delete", &gone, "--source", "ours"]);
    assert_eq!((&done["written"], &done["bad"]), (&json!(2), &json!(0)));
    assert_eq!(place.changes()["milk"].upsert, None);
}

#[test]
fn a_sentence_and_capitals_are_put_with_a_fact() {
    let place = Place::new();
    place.json(&[&["put"], &COFFEE[..], &["--sentence", "Our coffee wakes you."]].concat());
    let tsv = place.file(
        "facts.tsv",
        "relation\thead\ttail\tweight\tsource\tsentence\n\
         IsA\tContoso Bergen\tsofa\t1\tours\tThe Bergen is a sofa.\n",
    );
    let line = r#"{"source":"x","head":"rum","relation":"IsA","tail":"drink","sentence":"Rum!"}"#;
    let lines = place.file("facts.jsonl", line);
    let done = place.json(&["put", &tsv, &lines]);
    assert_eq!((&done["written"], &done["bad"]), (&json!(2), &json!(0)));
    let changes = place.changes();
    let words = |head: &str| changes[head].upsert.clone().unwrap().wording;
    assert_eq!(words("black coffee").sentence.as_deref(), Some("Our coffee wakes you."));
    assert_eq!(words("black coffee").head.as_deref(), Some("Black Coffee"));
    assert_eq!(words("contoso bergen").sentence.as_deref(), Some("The Bergen is a sofa."));
    assert_eq!(words("contoso bergen").head.as_deref(), Some("Contoso Bergen"));
    assert_eq!(words("rum").sentence.as_deref(), Some("Rum!"));
    assert_eq!(words("rum").head, None);
}

#[test]
fn equal_keys_lie_on_one_partition_in_their_order() {
    let place = Place::new();
    let lines: String =
        (0..60).map(|at| format!("IsA\tthing {}\tthing\t{}\n", at % 20, at + 1)).collect();
    let done = place.json(&["put", &place.file("facts.tsv", &lines), "--source", "ours"]);
    assert_eq!(done["partitions"].as_array().unwrap().len(), 3, "spread over all");
    let mut of: BTreeMap<Vec<u8>, Vec<(i32, f32)>> = BTreeMap::new();
    for record in place.records().into_values() {
        let key = record.key.unwrap();
        let change = Change::read(&key, record.value.as_deref()).unwrap();
        let weight = change.upsert.unwrap().weight;
        of.entry(key).or_default().push((record.partition, weight));
    }
    assert_eq!(of.len(), 20);
    for places in of.values() {
        assert_eq!(places.len(), 3);
        assert!(places.iter().all(|(partition, _)| *partition == places[0].0));
        assert!(places.is_sorted_by(|one, next| one.1 < next.1));
    }
}

#[test]
fn what_cannot_be_written_is_refused_by_its_kind() {
    let place = Place::new();
    let zero = [&["put"], &COFFEE[..], &["--weight", "0"]].concat();
    let error = place.run(&zero).0.unwrap_err();
    assert_eq!(exit_of(&error), Exit::Usage, "{error}");
    assert!(error.to_string().contains("weight 0"), "{error}");
    let error = place.run(&["put", &place.path("nowhere")]).0.unwrap_err();
    assert_eq!(exit_of(&error), Exit::InputRefused, "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
    let (result, out) = place.run(&["put", &place.file("bad.tsv", "bad\n"), "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["bad"], json!(1));
    assert_eq!(exit_of(&result.unwrap_err()), Exit::InputRefused);
    let running = place.log();
    let error = place.run(&[&["put"], &COFFEE[..]].concat()).0.unwrap_err();
    assert_eq!(exit_of(&error), Exit::LogRefused, "{error:?}");
    assert!(format!("{error:#}").contains("while no `turnstream run` has it"), "{error:#}");
    assert!(format!("{error:#}").contains("another turnstream has this embedded log open"));
    drop(running);
    assert!(place.records().is_empty(), "nothing was written");
}

#[test]
fn a_fact_is_named_whole_or_by_files() {
    for (line, fits) in [
        (&["put", "--head", "a"][..], false),
        (&["put", "--source", "s", "--head", "a", "--relation", "IsA", "--tail", "b"], true),
        (&["put", "f", "--head", "a", "--relation", "IsA", "--tail", "b"], false),
        (&["put"], false),
        (&["delete", "f"], true),
        (&["delete", "f", "--weight", "1"], false),
        (&["put", "f", "--sentence", "s"], false),
    ] {
        let parsed = ChangeProgram::try_parse_from([&["knowledge"], line].concat());
        assert_eq!(parsed.is_ok(), fits, "{line:?}");
    }
}
