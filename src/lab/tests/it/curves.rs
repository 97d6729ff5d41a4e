//! Tests `turnstream eval curves` on dialogues of our own, in the layout of the data sets.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::turnstream;

fn curves(args: &[&str]) -> Output {
    turnstream(&["eval", "curves"]).args(args).output().expect("it runs")
}

/// Writes two everyday dialogues.
fn dailydialog(folder: &Path) {
    let dialogue = |id: &str, said: &[&str]| {
        let turn = |(at, text): (usize, &&str)| {
            let speaker = if at % 2 == 0 { "A" } else { "B" };
            json!({ "speaker": speaker, "text": text, "act": [], "emotion": "" })
        };
        let turns: Vec<Value> = said.iter().enumerate().map(turn).collect();
        json!({ "id": id, "topic": "Life", "turns": turns }).to_string()
    };
    let lines = [
        dialogue("a", &["Do you like coffee?", "I like a cup in the morning.", "And tea?"]),
        dialogue("b", &["My dog barks at the cat.", "A dog is a good friend.", "It wants a bone."]),
    ];
    let set = folder.join("dailydialog");
    std::fs::create_dir(&set).expect("a folder");
    std::fs::write(set.join("validation.jsonl.gz"), lines.join("\n")).expect("written");
}

#[test]
fn more_facts_say_more_and_no_facts_say_none() {
    let folder = tempfile::tempdir().expect("a folder");
    dailydialog(folder.path());
    let out = folder.path().join("curves");
    let paths = [folder.path(), &out].map(|path| path.to_str().expect("UTF-8"));
    let args = ["--method", "dcrag", "--data-folder", paths[0], "--out", paths[1], "--json"];
    let output = curves(&args);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("kdconv/travel-dev.jsonl.gz is missing"), "{told}");
    let measured: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(measured["method"], "dcrag");
    let points = measured["sweeps"][0]["lines"][0]["points"].as_array().expect("points");
    assert_eq!((points.len(), &points[0]["at"], &points[8]["at"]), (9, &json!(0.0), &json!(50.0)));
    let value = |point: &Value, figure: &str| {
        point["figures"][figure]["value"].as_f64().unwrap_or_default()
    };
    assert_eq!(value(&points[8], "cdp"), 1.0, "each response says a fact: none is decided away");
    assert!(value(&points[0], "cdp") < 1.0);
    assert!(value(&points[8], "evidence_words") > value(&points[0], "evidence_words"));
    let others = measured["sweeps"][0]["lines"][1]["points"].as_array().expect("points");
    assert_eq!(others[0]["figures"], points[0]["figures"], "without facts all are alike");
    assert_ne!(others[6]["figures"]["cdf"], points[6]["figures"]["cdf"]);
    let rows = measured["comparisons"][0]["rows"].as_array().expect("rows");
    let row = |name: &str| &rows.iter().find(|row| row[0] == name).expect("the row")[1];
    assert_eq!(row("all stages")["cdf"], points[6]["figures"]["cdf"], "twenty facts");
    let every = "every concept is a query (T-RAG)";
    assert_eq!(row(every), &others[6]["figures"]);
    assert_eq!(row("no knowledge")["cdp"]["value"], 0.0);
    assert_eq!(row("without retrieval and selection")["cdf"], points[0]["figures"]["cdf"]);

    let written: Value =
        serde_json::from_slice(&std::fs::read(out.join("dcrag.json")).expect("written"))
            .expect("JSON");
    assert_eq!(written, measured);
    let page = std::fs::read_to_string(out.join("dcrag.html")).expect("written");
    assert!(page.contains("<svg") && page.contains("Stages left out, DailyDialog"), "{page}");
}

#[test]
fn what_is_missing_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8");
    let code = |method: &str| {
        let output = curves(&["--method", method, "--data-folder", path, "--out", path]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), told)
    };
    for method in ["dcrag", "dh-rag"] {
        let (code, told) = code(method);
        assert_eq!(code, Some(3), "{told}");
        assert!(told.contains("has none of the method's data sets"), "{told}");
    }
    let (code, told) = code("unims-rag");
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("--model") && told.contains("--judge"), "{told}");
}
