//! Tests `turnstream explain` on the output of a replay and of a chat.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use turnstream_schemas::Response;

use crate::chat::prompted_generation;
use crate::turnstream;

const SAID: [(&str, &str, &str); 4] = [
    ("kitchen", "k1", "What do I need to bake bread?"),
    ("kitchen", "k2", "And how do I clean the oven?"),
    ("garden", "g1", "Which flowers like shade?"),
    ("kitchen", "k3", "Thank you!"),
];

fn file(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

fn run(args: &[&str]) -> Output {
    turnstream(args).output().expect("started")
}

fn succeeded(args: &[&str]) -> String {
    let output = run(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Replays a log of ours with `turns` turns, and returns the responses.
fn replayed(folder: &Path, turns: usize, more: &[&str]) -> Vec<Response> {
    let lines = SAID[..turns].iter().map(|(conversation, turn, text)| {
        json!({ "conversation_id": conversation, "turn_id": turn, "speaker": "user", "text": text })
            .to_string()
            + "\n"
    });
    let (log, out) = (file(folder, "log.jsonl"), file(folder, "responses.jsonl"));
    std::fs::write(&log, lines.collect::<String>()).expect("a log");
    succeeded(&[&["replay", &log, "--out", &out, "--timings"], more].concat());
    let responses = std::fs::read_to_string(&out).expect("responses");
    responses.lines().map(|line| serde_json::from_str(line).expect("a response")).collect()
}

#[test]
fn any_response_of_a_file_can_be_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let graph = file(folder.path(), "graph.toml");
    std::fs::write(&graph, "[sources.graph]\nkind = \"graph\"\nspeak = true\n").expect("written");
    let responses = replayed(folder.path(), 4, &["--config", &graph]);
    let (out, log) = (file(folder.path(), "responses.jsonl"), file(folder.path(), "log.jsonl"));
    let json = |args: &[&str]| -> Value {
        let printed = succeeded(&[&["explain", &out, "--json"], args].concat());
        assert_eq!(printed.lines().count(), 1);
        serde_json::from_str(&printed).expect("an object")
    };
    let explained = |args: &[&str]| -> Response {
        serde_json::from_value(json(args)["response"].clone()).expect("a response")
    };
    assert_eq!(explained(&[]), *responses.last().expect("one"), "the last one");
    assert_eq!(explained(&["--line", "1"]), responses[0]);
    let of_k2 = responses.iter().find(|it| it.turn_id.as_str() == "k2").expect("answered");
    assert_eq!(explained(&["--turn", "kitchen/k2"]), *of_k2);
    let id = of_k2.response_id.as_str();
    assert_eq!(explained(&["--response", id]), *of_k2);
    assert_eq!(json(&["--line", "1"])["gate_threshold"], Value::Null, "no record bears it");

    let tree = succeeded(&["explain", &out, "--turn", "kitchen/k2", "--log", &log]);
    assert!(
        tree.starts_with(&format!("response {id} to turn k2 of conversation kitchen")),
        "{tree}"
    );
    for part in [
        "─ turn And how do I clean the oven?",
        "─ history 1 entry is recalled",
        "k1 weight ",
        "\"What do I need to bake bread?\"",
        "─ gate retrieve: score 0.",
        "decided by features",
        "question +1.60",
        "bytes 23..27 \"oven\" of k2",
        "─ maintained",
        "─ extended",
        "─ evidence ",
        "unforeseen, relevance ",
        "passed over",
        "more that were not selected",
        "─ answer by realiser, confidence ",
        "─ knowledge snapshot ",
        "─ time ",
    ] {
        assert!(tree.contains(part), "`{part}` is missing in\n{tree}");
    }
    assert!(!tree.contains('\u{1b}') && tree.lines().all(|line| line.chars().count() <= 100));
    let all = succeeded(&["explain", &out, "--turn", "kitchen/k2", "--all"]);
    assert_eq!(all.matches(" relevance 0.").count(), of_k2.evidence.len(), "{all}");
    assert!(!all.contains("more that were not selected"));

    let config = file(folder.path(), "gate.toml");
    std::fs::write(&config, "[gate]\nthreshold = 0.375\n").expect("written");
    // A response says what was in force; a record of an earlier version does not.
    let tree = succeeded(&["explain", &out, "--line", "1", "--config", &config]);
    assert!(tree.contains("threshold 0.50, "), "{tree}");
    let earlier = file(folder.path(), "earlier.jsonl");
    let written = std::fs::read_to_string(&out).expect("responses");
    std::fs::write(&earlier, written.replace("\"threshold\":0.5,", "")).expect("written");
    let tree = succeeded(&["explain", &earlier, "--line", "1", "--config", &config]);
    assert!(tree.contains("threshold 0.38 as configured"), "{tree}");
}

#[test]
fn what_cannot_be_explained_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    replayed(folder.path(), 4, &[]);
    let out = file(folder.path(), "responses.jsonl");
    let refused = |args: &[&str], code: i32, said: &str| {
        let output = run(&[&["explain"], args].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(said), "`{said}` is not in {errors}");
    };
    refused(&[&out, "--turn", "kitchen/k9"], 2, "no response to the turn `kitchen/k9`");
    refused(&[&out, "--line", "99"], 2, "no line 99");
    refused(&["/nowhere/r.jsonl"], 3, "/nowhere/r.jsonl");
    refused(&["--data", "/nowhere/data"], 1, "/nowhere/data");
    let log = file(folder.path(), "log.jsonl");
    refused(&[&log], 3, "line 1");
    let answers = file(folder.path(), "answers.jsonl");
    std::fs::write(&answers, "").expect("written");
    refused(&[&out, "--prompts", &answers], 2, "no answer for log.jsonl[0]@");
}

#[test]
fn a_response_in_brief_is_explained_by_its_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let turn = json!({"conversation_id": "c", "speaker": "user", "text": "What is a violin?"});
    std::fs::write(folder.path().join("turns"), format!("{turn}\n")).expect("written");
    for (trace, is_told) in [("topic", true), ("inline", true), ("off", false)] {
        let (data, config) = (file(folder.path(), trace), file(folder.path(), "run.toml"));
        let text = format!(
            "[responses]\ntrace = \"{trace}\"\n[log]\nkind = \"embedded\"\ndirectory = {data:?}\n"
        );
        std::fs::write(&config, text).expect("written");
        let turns = std::fs::File::open(folder.path().join("turns")).expect("turns");
        let run = turnstream(&["run", "--config", &config]).stdin(turns).output().expect("it runs");
        let said: Response = serde_json::from_slice(&run.stdout).expect("a response");
        assert_eq!((said.brief, said.evidence.is_empty()), (trace != "inline", trace != "inline"));
        assert!(said.text.contains("instrument") && !said.citations.is_empty(), "{said:?}");
        let tree = succeeded(&["explain", "--data", &data]);
        assert_eq!(tree.contains("─ gate retrieve: score 0."), is_told, "{trace}: {tree}");
        assert_eq!(
            tree.contains("no record here says how it came about"),
            !is_told,
            "{trace}: {tree}"
        );
        assert!(tree.contains(&format!("from {}", said.citations[0].id.0)), "{trace}: {tree}");
    }
}

#[test]
fn the_prompts_of_a_response_are_shown_and_held_against_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_server, config) = prompted_generation(folder.path());
    let answers = file(folder.path(), "answers.jsonl");
    let recorded = ["--config", &config, "--record-answers", &answers, "--record-prompts"];
    let responses = replayed(folder.path(), 2, &recorded);
    let out = file(folder.path(), "responses.jsonl");
    let asked = |line: &str| -> Value {
        let args = ["explain", &out, "--line", line, "--prompts", &answers, "--json"];
        let explained: Value = serde_json::from_str(&succeeded(&args)).expect("an object");
        explained["prompts"].clone()
    };
    for (response, line) in responses.iter().zip(1..) {
        let prompts = asked(&line.to_string());
        let [prompt] = prompts.as_array().expect("a list").as_slice() else { panic!("{prompts}") };
        assert_eq!((&prompt["stage"], &prompt["fits"]), (&json!("generation"), &json!("used")));
        assert_eq!(prompt["prompt_hash"], json!(response.model.prompt_hash));
        assert_eq!(prompt["answer"].as_str().expect("a text").trim(), response.text);
        let said = SAID.iter().find(|(_, turn, _)| *turn == response.turn_id.as_str());
        let (_, _, text) = said.expect("a turn of the log");
        assert!(prompt["prompt"].as_str().expect("a text").contains(text), "{prompt}");
    }
    let tree = succeeded(&["explain", &out, "--line", "1", "--prompts", &answers]);
    assert!(tree.contains("this response's") && tree.contains("<<dialogue "), "{tree}");

    // Answers to another prompt, and of another run.
    let hash = responses[0].model.prompt_hash.as_deref().expect("a prompt");
    let text = std::fs::read_to_string(&answers).expect("answers");
    std::fs::write(&answers, text.replace(hash, "0123")).expect("written");
    assert_eq!(asked("1")[0]["fits"], json!("other_prompt"));
    let other = text.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).expect("an answer");
        line["text"] = json!("something else");
        format!("{line}\n")
    });
    std::fs::write(&answers, other.collect::<String>()).expect("written");
    assert_eq!(asked("1")[0]["fits"], json!("other_answer"));

    // Without recorded prompts the command says so; a replay accepts answers with prompts, too.
    let without = text.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).expect("an answer");
        line.as_object_mut().expect("an object").remove("question").expect("a question");
        format!("{line}\n")
    });
    std::fs::write(&answers, without.collect::<String>()).expect("written");
    let refused = run(&["explain", &out, "--prompts", &answers]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--record-prompts"));
    std::fs::write(&answers, text).expect("written");
    let texts = |responses: &[Response]| -> Vec<String> {
        responses.iter().map(|response| response.text.clone()).collect()
    };
    let again = replayed(folder.path(), 2, &["--config", &config, "--answers", &answers]);
    assert_eq!(texts(&again), texts(&responses));
}
