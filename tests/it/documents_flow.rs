//! Tests documents through the whole program: imported, searched, answered from, removed; and
//! retrieval measured on data sets small enough to count by hand.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turnstream_schemas::{Action, Response};

use crate::turnstream;

const DOCUMENTS: &str = r#"{"id":"ashley-1","title":"Ashley Hotel","text":"Is there parking for guests? Yes, parking is free, and there is room for twelve cars.","metadata":{"kind":"faq"}}
{"id":"gonville-1","title":"Gonville Hotel","text":"Guests pay ten pounds a day for parking.","metadata":{"kind":"faq"}}
{"id":"gonville-2","title":"Gonville Hotel","text":"The breakfast was cold."}
not a document
{"id":"zh-1","title":"云湖饭店","text":"云湖饭店的早餐从七点开始。停车场是免费的。"}
"#;

/// Runs the program; returns its exit code and its last line.
fn run(args: &[&str]) -> (i32, Value) {
    let output = turnstream(args).output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().unwrap_or_else(|| panic!("no line of {args:?}: {errors}"));
    (output.status.code().expect("a code"), serde_json::from_str(last).expect("JSON"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Writes a file in a folder.
fn file(folder: &Path, name: &str, content: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).expect("written");
    path
}

/// Imports the documents; returns the folder of the store.
fn import(folder: &Path) -> PathBuf {
    let (documents, store) = (file(folder, "documents.jsonl", DOCUMENTS), folder.join("store"));
    let (code, report) =
        run(&["documents", "import", text(&documents), "--out", text(&store), "--json"]);
    assert_eq!((code, &report["added"], &report["bad"]), (0, &json!(4), &json!(1)), "{report}");
    assert_eq!(report["bad_lines"][0]["line"], 4);
    store
}

#[test]
fn documents_are_imported_found_and_taken_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = import(folder.path());
    let search = |more: &[&str]| {
        let mut args = vec!["documents", "search", "--dir", text(&store), "--json"];
        args.extend(more);
        let (code, found) = run(&args);
        assert_eq!(code, 0, "{found}");
        let found = found["found"].as_array().expect("chunks").clone();
        found.iter().map(|it| it["id"].as_str().expect("an id").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(search(&["parking"]), ["ashley-1#0", "gonville-1#0"]);
    assert_eq!(search(&["--named", "parking at the Ashley?"]), ["ashley-1#0"]);
    assert_eq!(search(&["--where", "kind=faq", "cold breakfast parking"]).len(), 2);
    assert_eq!(search(&["--document", "zh-1", "停車場"]), ["zh-1#0"]);
    let (code, report) =
        run(&["documents", "delete", "--dir", text(&store), "gonville-1", "nobody", "--json"]);
    assert_eq!(code, 0);
    assert_eq!((&report["deleted"], &report["missing"]), (&json!(1), &json!(1)));
    assert_eq!(search(&["parking"]), ["ashley-1#0"]);
    let (_, listed) = run(&["documents", "list", "--dir", text(&store), "--json"]);
    assert_eq!((&listed["documents"], &listed["chunks"]), (&json!(3), &json!(3)));
    let nowhere = folder.path().join("nowhere");
    let (code, refused) = run(&["documents", "list", "--dir", text(&nowhere), "--json"]);
    let error = refused["error"].as_str().expect("an error");
    assert!(code == 1 && error.contains("documents import"), "{refused}");
}

/// Returns the responses to a user's turns, each in a conversation of its own.
fn responses(folder: &Path, store: Option<&Path>, turns: &[&str]) -> Vec<Response> {
    let turns: String = turns
        .iter()
        .enumerate()
        .map(|(at, text)| {
            let turn =
                json!({ "conversation_id": at.to_string(), "speaker": "user", "text": text });
            format!("{turn}\n")
        })
        .collect();
    let log = file(folder, "turns.jsonl", &turns);
    // The gate uses the graph, which has no Chinese here, so a question alone must pass it.
    let mut config = "[gate]\nthreshold = 0.3\n".to_owned();
    if let Some(store) = store {
        config += &format!("[documents]\ndirectory = {:?}\n", text(store));
    }
    let config = file(folder, "turnstream.toml", &config);
    let out = folder.join("responses.jsonl");
    let (code, summary) =
        run(&["replay", text(&log), "--config", text(&config), "--out", text(&out), "--json"]);
    assert_eq!(code, 0, "{summary}");
    let lines = std::fs::read_to_string(out).expect("responses");
    lines.lines().map(|line| serde_json::from_str(line).expect("a response")).collect()
}

#[test]
fn responses_rest_on_documents_where_these_know_better() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = import(folder.path());
    let turns = [
        "Is the parking free at the Ashley Hotel?",
        "云湖饭店的早餐几点开始？",
        "What is coffee used for?",
    ];
    let answered = responses(folder.path(), Some(&store), &turns);
    let said: Vec<&str> = answered.iter().map(|response| response.text.as_str()).collect();
    assert_eq!(said[0], "Yes, parking is free, and there is room for twelve cars.");
    assert_eq!(said[1], "云湖饭店的早餐从七点开始。");
    // Common knowledge does not answer for a hotel.
    assert_eq!(answered[2].action, Some(Action::Decline), "{said:?}");
    let first = &answered[0].evidence[0];
    let passage = first.document.as_ref().expect("a passage");
    assert!(
        first.selected && first.id.0 == "documents/ashley-1#0" && first.source.0 == "documents"
    );
    assert_eq!((passage.title.as_str(), passage.chunk), ("Ashley Hotel", 0));
    assert!(passage.by_words.is_some() && passage.by_meaning.is_some());
    assert!(answered[0].plan.0.iter().any(|source| source.0 == "documents"));
    // Without documents, nothing of this is there.
    let without = responses(folder.path(), None, &turns);
    assert!(without.iter().flat_map(|it| &it.evidence).all(|it| it.document.is_none()));
    assert!(without[2].text.contains("coffee"), "{}", without[2].text);
}

#[test]
fn a_store_that_is_not_there_is_a_problem_of_the_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = folder.path().join("nowhere");
    let content = format!("[documents]\ndirectory = {:?}\n", text(&nowhere));
    let config = file(folder.path(), "turnstream.toml", &content);
    let (code, refused) = run(&["validate", "--config", text(&config), "--json"]);
    assert_eq!(code, 2, "{refused}");
    assert!(refused.to_string().contains("documents.directory"), "{refused}");
}

/// Two entities; the second instance names neither, so that everything is searched for it.
const SNIPPETS: &str = r#"{"hotel":{"0":{"name":"ASHLEY HOTEL","reviews":{"0":{"sentences":{"0":"The parking was free.","1":"The rooms were quiet."}}},"faqs":{"0":{"question":"Is there a gym?","answer":"No."}}},"1":{"name":"GONVILLE HOTEL","reviews":{"0":{"sentences":{"0":"Parking cost us ten pounds.","1":"Parking, parking, parking: never free."}}},"faqs":{}}}}"#;
const INSTANCES: &str = r#"{"target":true,"turns":[{"speaker":"U","text":"The Ashley Hotel, please."},{"speaker":"S","text":"Booked."},{"speaker":"U","text":"Is the parking free?"}],"knowledge":[{"domain":"hotel","entity_id":0,"doc_type":"review","doc_id":0,"sent_id":0}]}
{"target":true,"turns":[{"speaker":"U","text":"Any gym?"}],"knowledge":[{"domain":"hotel","entity_id":0,"doc_type":"faq","doc_id":0},{"domain":"hotel","entity_id":0,"doc_type":"review","doc_id":0,"sent_id":1}]}
{"target":false,"turns":[{"speaker":"U","text":"Thanks."}]}
"#;

#[test]
fn dstc11_is_measured_as_counted_by_hand() {
    let folder = tempfile::tempdir().expect("a folder");
    let knowledge = file(folder.path(), "knowledge.json", SNIPPETS);
    let data = file(folder.path(), "dev.jsonl", INSTANCES);
    let eval = |within: &str| {
        let args = [
            "eval",
            "retrieval",
            "--format",
            "dstc11",
            "--data",
            text(&data),
            "--knowledge",
            text(&knowledge),
            "--within",
            within,
            "--json",
        ];
        let (code, figures) = run(&args);
        assert_eq!(code, 0, "{figures}");
        figures
    };
    // The first instance finds its one snippet first; the second finds one of its two first.
    let within = eval("entities");
    assert_eq!((&within["n"], &within["mrr"]), (&json!(2), &json!(1.0)), "{within}");
    assert_eq!(within["recall"], json!({ "1": 0.75, "5": 0.75, "10": 0.75 }));
    // Among all snippets, the other hotel says "parking" and "free" more often than the named one.
    let all = eval("all");
    assert_eq!(all["recall"]["1"], json!(0.25), "{all}");
    assert_eq!(all["recall"]["5"], json!(0.75), "{all}");
}

const DIALOGUE: &str = r#"{"id":"a","persona":{"B0":"我 是 老师","B1":"我 喜欢 北京"},"persona_kg":{"B0":{"K0":"老师在学校工作"},"B1":{"K0":"北京是首都","K1":"北京有长城"}},"conversation":[{"U":"你好","S":"你好","P-K":[]},{"U":"你是老师吗","S":"是","P-K":[["B0"]]},{"U":"北京有长城吗","S":"有","P-K":[["B1"],["B1-K1"]]},{"U":"首都呢","S":"北京","P-K":[["B1"],["B1-K0"]]}]}
"#;

#[test]
fn kbp_is_measured_as_counted_by_hand() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = file(folder.path(), "dev.jsonl", DIALOGUE);
    let eval = |more: &[&str]| {
        let mut args =
            vec!["eval", "retrieval", "--format", "kbp", "--data", text(&data), "--json"];
        args.extend(more);
        run(&args)
    };
    // "首都呢" shares nothing with a persona, so the first one is taken, which is wrong.
    let (code, figures) = eval(&[]);
    assert_eq!((code, &figures["n"]), (0, &json!(3)), "{figures}");
    assert_eq!((&figures["persona"], &figures["both_persona"]), (&json!(1.0), &json!(0.5)));
    assert_eq!(figures["both_documents"], json!(1.0));
    let (code, refused) = eval(&["--retriever", "fusion"]);
    assert!(code == 2 && refused.to_string().contains("--train"), "{refused}");
    // Trained on the very data that it is measured on, the fusion must know them.
    let (code, figures) = eval(&["--retriever", "fusion", "--train", text(&data)]);
    assert_eq!((code, &figures["both_persona"]), (0, &json!(1.0)), "{figures}");
}
