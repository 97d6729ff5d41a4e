//! Tests `turnstream eval gate` and `eval gates` on every labelled data set's shape in our own
//! words, and on the real data sets if they are available.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use turnstream_models::gate::Gate;

use crate::turnstream;

/// The keys of the result with `--json`.
const KEYS: [&str; 17] = [
    "format",
    "model",
    "positive",
    "n",
    "conversations",
    "positives",
    "threshold",
    "precision",
    "recall",
    "f1",
    "auc",
    "fdr",
    "confusion",
    "intervals",
    "causal",
    "by_position",
    "by_domain",
];

fn eval(args: &[&str]) -> Output {
    turnstream(&["eval"]).args(args).output().expect("it runs")
}

/// Returns the last line on standard output.
fn json(args: &[&str]) -> Value {
    let output = eval(&[args, &["--json"]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    let out = String::from_utf8(output.stdout).expect("UTF-8");
    serde_json::from_str(out.lines().last().expect("a line")).expect("JSON")
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// Writes records, one per line, and returns the path.
    fn write(&self, name: &str, records: &[Value]) -> String {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let lines: String = records.iter().map(|record| format!("{record}\n")).collect();
        std::fs::write(&path, lines).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Returns whether an utterance of a made-up dialogue asks for knowledge, and its text: even ones
/// ask, odd ones do not.
fn said(number: usize) -> (bool, String) {
    let place = ["mill", "harbour inn", "blue lantern"][number % 3];
    match number % 2 {
        0 => (true, format!("Is the breakfast at the {place} any good?")),
        _ => (false, format!("Please book the {place} for {} nights.", 1 + number % 5)),
    }
}

/// Returns thirty dialogues of a data set's shape; each three in a row begin alike.
fn dialogues(format: &str) -> Vec<Value> {
    (0..30).map(|number| dialogue(format, number)).collect()
}

fn dialogue(format: &str, number: usize) -> Value {
    let (asks, text) = said(number);
    let opening = format!("Hello number {}.", number - number % 3);
    match format {
        "dstc11" | "dstc10" => {
            let mut record = json!({ "target": asks, "turns": [
                { "speaker": "U", "text": opening }, { "speaker": "S", "text": "How can I help?" },
                { "speaker": "U", "text": text }] });
            if asks {
                let snippet = json!({ "domain": "hotel", "entity_id": 1, "doc_id": 2 });
                record["knowledge"] = json!([snippet]);
                record["response"] = "It is praised.".into();
            }
            record
        }
        "sgd" => {
            let mut frame = json!({ "service": "Hotels_2" });
            if asks {
                frame["service_call"] = json!({ "method": "Search" });
            }
            json!({ "dialogue_id": format!("d{number}"), "turns": [
                { "speaker": "USER", "utterance": text, "frames": [{ "service": "Hotels_2" }] },
                { "speaker": "SYSTEM", "utterance": "Here you are.", "frames": [frame] }] })
        }
        "ketod" => {
            json!({ "dialogue_id": format!("k{number}"), "services": ["Hotels_2"], "turns": [
            { "speaker": "USER", "utterance": text, "enrich": false },
            { "speaker": "SYSTEM", "utterance": "Here you are.", "enrich": asks }] })
        }
        "topical-chat" => {
            let source = if asks { "FS1" } else { "Personal Knowledge" };
            json!({ "id": format!("t{number}"), "turns": [
                { "agent": "agent_1", "text": text, "knowledge_source": ["Personal Knowledge"] },
                { "agent": "agent_2", "text": "Well.", "knowledge_source": [source] }] })
        }
        "kbp" => {
            let used = if asks { json!([["B0"]]) } else { json!([]) };
            json!({ "id": format!("p{number}"), "persona": { "B0": "我喜欢早餐" },
                "conversation": [{ "U": text, "S": "好的。", "P-K": used }] })
        }
        _ => {
            let attrs = json!([{ "name": "a", "attrname": "b", "attrvalue": "c" }]);
            json!({ "messages": [{ "message": text },
                { "message": "好的。", "attrs": if asks { attrs } else { json!([]) } }] })
        }
    }
}

#[test]
fn every_labelled_data_set_is_measured_with_the_same_keys() {
    let folder = Folder::new();
    for (format, class) in [
        ("dstc11", "unstructured"),
        ("dstc10", "unstructured"),
        ("ketod", "unstructured"),
        ("topical-chat", "unstructured"),
        ("sgd", "structured"),
        ("kdconv", "structured"),
        ("kbp", "null"),
    ] {
        let records = dialogues(format);
        let train = folder.write(&format!("{format}-train.jsonl"), &records[..18]);
        let data = folder.write(&format!("{format}.jsonl"), &records[18..]);
        let args = ["gate", "--format", format, "--data", &data];
        let learned = [&args[..], &["--model", "tfidf", "--train", &train]].concat();
        for (args, learns) in [(&args[..], false), (&learned[..], true)] {
            let found = json(args);
            for key in KEYS {
                assert!(found.get(key).is_some(), "{format} has no {key}");
            }
            assert_eq!(found["positive"], class, "{format}");
            assert_eq!((&found["n"], &found["positives"]), (&json!(12), &json!(6)), "{format}");
            assert_eq!(found.get("others").is_some(), format == "kbp");
            assert_eq!(found["causal"], true);
            if learns {
                // Utterances that ask and utterances that tell share no word but the place.
                assert_eq!(found["auc"], 1.0, "{format}");
                assert_eq!(found["model"], "tfidf");
            }
        }
    }
}

#[test]
fn instances_of_one_conversation_are_drawn_together_and_domains_are_counted() {
    let folder = Folder::new();
    let data = folder.write("dstc11.jsonl", &dialogues("dstc11"));
    let found = json(&["gate", "--format", "dstc11", "--data", &data, "--model", "always"]);
    assert_eq!((&found["n"], &found["conversations"]), (&json!(30), &json!(10)));
    assert_eq!(found["confusion"], json!({ "tp": 15, "fp": 15, "tn": 0, "fn": 0 }));
    assert_eq!(found["by_position"], json!({ "3": group(30, 15, 30, 15) }));
    let domains = json!({ "hotel": group(15, 15, 15, 15), "not told": group(15, 0, 15, 0) });
    assert_eq!(found["by_domain"], domains);
    let never = json(&["gate", "--format", "dstc11", "--data", &data, "--model", "never"]);
    assert_eq!((&never["precision"], &never["recall"]), (&Value::Null, &json!(0.0)));
    let all = json(&["gate", "--format", "dstc11", "--data", &data, "--threshold", "0"]);
    assert_eq!((&all["threshold"], &all["recall"]), (&json!(0.0), &json!(1.0)));
}

fn group(n: u64, positives: u64, predicted: u64, tp: u64) -> Value {
    json!({ "n": n, "positives": positives, "predicted": predicted, "tp": tp })
}

#[test]
fn a_transcript_is_measured_without_its_punctuation_and_with_its_errors() {
    let folder = Folder::new();
    let instance = |number: usize| {
        let place = ["mill", "harbour inn", "blue lantern"][number % 3];
        let (asks, mark) = if number.is_multiple_of(2) { (true, "?") } else { (false, ".") };
        let text = format!("The breakfast at the {place} is good{mark}");
        json!({ "target": asks, "turns": [{ "speaker": "U", "text": text }] })
    };
    let data = folder.write("dstc11.jsonl", &(0..12).map(instance).collect::<Vec<_>>());
    let lexical = ["gate", "--format", "dstc11", "--data", &data];
    let said = |errors: &str, seed: &str| {
        json(&[&lexical[..], &["--transcript", errors, "--seed", seed]].concat())
    };
    // Only the question mark tells a question here, and a transcript has none.
    assert_eq!(json(&lexical)["auc"], 1.0);
    assert_eq!(said("0", "1")["auc"], 0.5);
    // A seed always mishears the same text in the same way, and another seed in another way.
    assert_eq!(said("0.5", "1"), said("0.5", "1"));
    assert_ne!(said("0.5", "1")["auc"], said("0.5", "4")["auc"]);
    let refused = eval(&[&lexical[..], &["--transcript", "1.5"]].concat());
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn the_table_leaves_out_what_is_not_there_and_says_so() {
    let folder = Folder::new();
    for (set, split, records) in [
        ("kbp", "train", &dialogues("kbp")[..18]),
        ("kbp", "dev", &dialogues("kbp")[18..]),
        ("sgd", "train", &dialogues("sgd")),
    ] {
        folder.write(&format!("{set}/{split}.jsonl.gz"), records);
    }
    let (data, table) = (folder.path(""), folder.path("table.md"));
    let [data, table] = [data.to_str().expect("UTF-8"), table.to_str().expect("UTF-8")];
    let output = eval(&["gates", "--data-folder", data, "--out", table, "--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("sgd: left out, because ") && said.contains("dstc11: left out"),
        "{said}"
    );
    let found: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let sections = found["sections"].as_array().expect("a list");
    let names = |of: &Value| {
        let rows = of["rows"].as_array().expect("a list");
        rows.iter().map(|row| row["model"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(sections.len(), 2, "both classes");
    for section in sections {
        assert_eq!(names(section), ["lexical", "tfidf", "always", "never", "random at 0.500"]);
        assert_eq!(section["rows"][1]["over_tfidf"]["auc"]["by"], 0.0);
    }
    let table = std::fs::read_to_string(table).expect("a table");
    assert!(table.contains("eval gates --data-folder DATA --out docs/gate-table.md`"), "{table}");
    assert!(table.contains("## kbp, class null\n\n12 turns of 12 conversations in `dev.jsonl.gz`"));
    assert_eq!(table.lines().filter(|line| line.starts_with("| tfidf |")).count(), 2);
}

#[test]
fn what_cannot_be_measured_is_refused_with_the_reason() {
    let folder = Folder::new();
    let data = folder.write("sgd.jsonl", &dialogues("sgd"));
    let bad = folder.write("bad.jsonl", &[dialogue("sgd", 0), json!({ "turns": 3 })]);
    let same = ["--model", "tfidf", "--train", &data];
    for (args, code, reason) in [
        (vec!["--format", "dailydialog", "--data", &data], 3, "use one of dstc11, dstc10, ketod"),
        (vec!["--format", "sgd", "--data", &bad], 3, "bad.jsonl:2: not a dialogue of sgd"),
        (vec!["--format", "sgd", "--data", &data, "--positive", "null"], 2, "write structured"),
        (vec!["--format", "sgd", "--data", &data, "--knowledge", "k"], 2, "for dstc11 and dstc10"),
        (vec!["--format", "sgd", "--data", &data, "--threshold", "2"], 2, "from 0 to 1"),
        ([&["--format", "sgd", "--data", &data], &same[..]].concat(), 2, "in-sample figures"),
    ] {
        let output = eval(&[&["gate"], &args[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(reason), "{args:?}: {said}");
    }
}

#[test]
fn a_gate_is_trained_and_measured_and_the_papers_is_an_encoder_alone() {
    let folder = Folder::new();
    let records = dialogues("sgd");
    let train = format!("{},format=sgd", folder.write("train.jsonl", &records[..20]));
    let data = folder.write("sgd.jsonl", &records[20..]);
    for (preset, has_regression) in [("small", true), ("paper", false)] {
        let path = folder.path(&format!("{preset}.zst"));
        let out = path.to_str().expect("UTF-8");
        let train = ["train", "gate", "--data", &train, "--out", out, "--preset", preset];
        let output =
            turnstream(&train).args(["--epochs", "1", "--json"]).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let gate = Gate::open(&path).expect("a gate");
        let ngrams = &gate.card().ngrams;
        assert_eq!(ngrams.len(), usize::from(has_regression));
        if has_regression {
            // Utterances that ask and utterances that tell share no word but the place.
            assert!(
                ngrams[0].words.iter().any(|it| &**it == "the breakfast"),
                "{:?}",
                ngrams[0].words
            );
        }
        let found = json(&["gate", "--format", "sgd", "--data", &data, "--model", out]);
        assert_eq!((&found["model"], &found["n"]), (&json!("gate (contx)"), &json!(10)));
        assert!(!folder.path(&format!("{preset}.zst.training")).exists(), "it is complete");
    }
}

#[test]
fn drafts_are_for_adapters_that_read_a_response() {
    let folder = Folder::new();
    let data = format!("{},format=sgd", folder.write("sgd.jsonl", &dialogues("sgd")));
    let examples = folder.path("examples");
    let out = examples.to_str().expect("UTF-8");
    let train = ["train", "adapter", "--data", &data, "--out", out, "--drafts", "shipped"];
    let output = turnstream(&train).args(["--inputs", "contx"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("add --inputs contx-resp-ner"), "{said}");
    assert!(!examples.exists(), "nothing is written");
}

#[test]
fn the_real_development_splits_have_the_turns_that_were_counted() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("TURNSTREAM_DATA").map_or(beside, PathBuf::from);
    for (format, file, n, positives) in [
        ("dstc11", "dstc11-track5/dev.jsonl.gz", 460, 237),
        ("topical-chat", "topical-chat/valid_rare.jsonl.gz", 11_153, 9_723),
        ("kbp", "kbp/dev.jsonl.gz", 1_227, 191),
    ] {
        let data = folder.join(file);
        if !data.is_file() {
            eprintln!("SKIPPED: no {}; set TURNSTREAM_DATA to the data's folder", data.display());
            continue;
        }
        let data = data.to_str().expect("UTF-8");
        let found = json(&["gate", "--format", format, "--data", data, "--model", "always"]);
        assert_eq!((&found["n"], &found["positives"]), (&json!(n), &json!(positives)), "{format}");
    }
}
