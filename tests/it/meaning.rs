//! Tests facts and documents ranked by meaning, through the commands and the whole engine, by
//! MiniLM.

use std::path::Path;

use serde_json::{Value, json};
use turnstream_schemas::{Evidence, Response};

use crate::models::minilm;
use crate::turnstream;

/// Runs a command that must succeed, and returns the JSON object of its last line.
fn run(arguments: &[&str]) -> Value {
    let ended = turnstream(arguments).output().expect("started");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{arguments:?}: {said}");
    let printed = String::from_utf8(ended.stdout).expect("UTF-8");
    serde_json::from_str(printed.lines().last().expect("a line")).expect("a JSON object")
}

/// Returns the response to one turn under a configuration.
fn response(folder: &Path, text: &str, config: &str) -> Response {
    let file = |name: &str| folder.join(name).display().to_string();
    let turn = json!({ "conversation_id": "c", "turn_id": "t", "speaker": "user", "text": text });
    std::fs::write(file("log.jsonl"), format!("{turn}\n")).expect("a log");
    std::fs::write(file("turnstream.toml"), config).expect("a configuration");
    let (config, out) = (file("turnstream.toml"), file("out.jsonl"));
    // Each run writes a new file.
    let _ = std::fs::remove_file(&out);
    run(&["replay", &file("log.jsonl"), "--config", &config, "--out", &out, "--json"]);
    let line = std::fs::read_to_string(&out).expect("responses");
    serde_json::from_str(line.lines().next().expect("a response")).expect("a response")
}

#[test]
fn facts_that_share_no_more_words_are_ranked_by_meaning() {
    if minilm().is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let facts = "IsA\tpet\tdog\t1.2\nIsA\tpet\tkitten\t1\nIsA\tpet\tparrot\t1.1\n";
    std::fs::write(file("facts.tsv"), facts).expect("facts");
    let snapshot = file("facts.snapshot");
    run(&["knowledge", "import", &file("facts.tsv"), "--out", &snapshot, "--json"]);
    let config = |embedder: &str| {
        format!(
            "[knowledge]\nsnapshot = {snapshot:?}\n[gate]\nthreshold = 0.0\n[models]\nthreads = 1\n\
             embedder = {embedder:?}\n[source_planning]\nform = \"off\"\n"
        )
    };
    let ranked = |embedder: &str| {
        let text = "My pet purrs and meows all night.";
        let response = response(folder.path(), text, &config(embedder));
        assert!(response.degraded.is_empty());
        let mut facts = response.evidence;
        facts.sort_by(|one, other| other.relevance.get().total_cmp(&one.relevance.get()));
        let ranked = |evidence: Evidence| Some((evidence.fact?.tail, evidence.relevance.get()));
        facts.into_iter().filter_map(ranked).collect::<Vec<_>>()
    };
    let tails =
        |embedder: &str| ranked(embedder).into_iter().map(|(tail, _)| tail).collect::<Vec<_>>();
    assert_eq!(tails("none"), ["dog", "parrot", "kitten"], "by words and strength");
    assert_eq!(tails("minilm"), ["dog", "parrot", "kitten"], "without vectors of the facts");
    run(&["knowledge", "embed", &snapshot, "--encoder", "static", "--json"]);
    let by_table = ranked("static");
    assert_ne!(by_table, ranked("none"), "by meaning, as the shipped table has it");
    assert_eq!(ranked("minilm"), by_table, "by the table, without vectors by MiniLM");
    let embed = ["knowledge", "embed", &snapshot, "--encoder", "minilm", "--json"];
    let embedded = run(&embed);
    assert_eq!((&embedded["facts"], &embedded["dimensions"]), (&json!(3), &json!(384)));
    assert_eq!(tails("minilm")[0], "kitten", "by meaning");

    // Vectors for other facts are refused.
    let other = file("other.snapshot");
    std::fs::write(file("other.tsv"), "IsA\tpet\tcat\t1\n").expect("facts");
    run(&["knowledge", "import", &file("other.tsv"), "--out", &other, "--json"]);
    std::fs::rename(format!("{snapshot}.minilm.vectors"), format!("{other}.minilm.vectors"))
        .expect("moved");
    std::fs::write(file("t.toml"), config("minilm").replace(&snapshot, &other)).expect("written");
    let refused = ["replay", &file("log.jsonl"), "--config", &file("t.toml")];
    let refused = turnstream(&refused).output().expect("started");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("turnstream knowledge embed"), "{said}");
}

#[test]
fn documents_that_share_no_word_are_found_by_meaning() {
    if minilm().is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let documents = [
        ("garage", "Guests can leave their car in our garage for free."),
        ("breakfast", "Eggs, bread and fruit are served from seven o'clock."),
        ("animals", "Dogs and cats are welcome in all rooms."),
    ];
    let lines = documents.map(|(id, text)| json!({ "id": id, "title": id, "text": text }));
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(file("hotel.jsonl"), lines).expect("documents");
    let store = file("store");
    let import = ["documents", "import", &file("hotel.jsonl"), "--out", &store, "--json"];
    run(&[&import[..], &["--encoder", "minilm"]].concat());

    let config = |embedder: &str| {
        format!(
            "[gate]\nthreshold = 0.0\n[models]\nthreads = 1\nembedder = {embedder:?}\n[documents]\n\
             directory = {store:?}\n[document_retrieval]\nform = \"fusion\"\nmin_score = 0.0\n"
        )
    };
    let text = "Where may I park my vehicle?";
    let first = |embedder: &str| {
        let response = response(folder.path(), text, &config(embedder));
        let mut passages: Vec<_> =
            response.evidence.into_iter().filter(|evidence| evidence.document.is_some()).collect();
        passages.sort_by(|one, other| other.relevance.get().total_cmp(&one.relevance.get()));
        passages.first().map(|passage| passage.text.clone())
    };
    let garage = documents[0].1;
    assert_ne!(first("none").as_deref(), Some(garage), "no word is shared");
    assert_eq!(first("minilm").as_deref(), Some(garage), "by meaning");
}
