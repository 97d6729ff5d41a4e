//! Tests two languages through the whole engine: Chinese facts are imported, a Chinese conversation
//! is answered in Chinese from them, and an English turn beside it in English.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use turnstream_engine::config::Config;
use turnstream_engine::dependencies::Dependencies;
use turnstream_engine::serve::serve;
use turnstream_knowledge::language::has_han;
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Isolation, Message};
use turnstream_log::{Ends, Topic};
use turnstream_schemas::{Response, Turn};

use crate::{invariants, turnstream};

/// Facts of our own: head, relation, tail. One is in traditional characters, one is a text.
const TRIPLES: &str = "青石古镇\t周边景点\t云湖\n青石古鎮\t周边景点\t石塔寺\n青石古镇\t门票\t免费开放。\n\
    青石古镇\t地址\t云山路9号\n青石古镇\tInformation\t一段很长的介绍。\n\
    雲湖\t建议游玩时间\t2小时\n云湖\t周边景点\t青石古镇\n";

/// Runs the program, and returns its last line.
fn printed(args: &[&str]) -> Value {
    let output = turnstream(args).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
}

/// Imports the triples beside English facts, and returns the snapshot's path.
fn import(folder: &Path) -> String {
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let (triples, snapshot) = (path("triples.tsv"), path("zh.snapshot"));
    std::fs::write(&triples, TRIPLES).expect("written");
    let report = printed(&[
        "knowledge",
        "import",
        &triples,
        "--format",
        "triples",
        "--language",
        "zh",
        "--source",
        "ours",
        "--out",
        &snapshot,
        "--json",
    ]);
    let file = &report["files"][0];
    assert_eq!((&file["facts"], &file["documents"]), (&json!(6), &json!(1)), "{report}");
    snapshot
}

/// Returns the responses to turns, in their order.
fn answers(config: &Config, turns: &[Value]) -> Vec<Response> {
    let log = EmbeddedConfig { partitions: 1, ..EmbeddedConfig::default() };
    let log = EmbeddedLog::in_memory(&log).expect("a log");
    let messages = turns
        .iter()
        .map(|turn| Message { value: Some(turn.to_string().into_bytes()), ..Message::default() });
    log.append_together(Topic::Turns, b"c", messages).expect("appended");
    log.seal(Topic::Turns);
    let consumer = log.consumer("test", Topic::Turns).expect("a consumer");
    let producer = log.producer(&consumer, "test").expect("a producer");
    let ends = Ends::new(consumer, producer);
    let dependencies = Dependencies::new(config).expect("parts");
    let summary = serve(ends, &dependencies, 1, &AtomicBool::new(false)).expect("the log ends");
    assert!(summary.tally.is_conserved(), "{:?}", summary.tally);
    let records = log.read(Topic::Traces, 0, 0, 100, Isolation::ReadCommitted).expect("read");
    let values = records.into_iter().filter_map(|record| record.value);
    values.map(|value| serde_json::from_slice(&value).expect("a response")).collect()
}

#[test]
fn a_chinese_conversation_is_answered_in_chinese_from_imported_facts() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = Config::default();
    config.knowledge.snapshot = import(folder.path()).into();
    let turn = |id: &str, text: &str| json!({"conversation_id": "c", "turn_id": id, "speaker": "user", "text": text});
    let turns = [
        turn("1", "你好！"),
        turn("2", "我想去青石古镇，附近有什么景点？"),
        // The same place in traditional characters.
        turn("3", "青石古鎮的門票多少錢？"),
        turn("4", "雲湖可以玩多久？"),
        turn("5", "謝謝，再見！"),
        turn("6", "Thanks, bye!"),
    ];
    let responses = answers(&config, &turns);
    let said: Vec<&str> = responses.iter().map(|response| response.text.as_str()).collect();
    assert_eq!(said.len(), turns.len());
    for (at, text) in said.iter().enumerate() {
        assert_eq!(has_han(text), at < 5, "{said:?}");
    }
    assert!(said[1].contains("青石古镇的周边景点有"), "{said:?}");
    assert!(said[2].contains("青石古镇的门票是免费开放"), "{said:?}");
    assert!(said[3].contains("云湖建议玩2小时"), "{said:?}");
    for (at, retrieve) in [false, true, true, true, false, false].into_iter().enumerate() {
        assert_eq!(responses[at].gate.retrieve, retrieve, "{}", said[at]);
    }
    let grounds: Vec<&str> =
        responses[1].evidence.iter().map(|evidence| evidence.text.as_str()).collect();
    assert!(grounds.contains(&"青石古镇的周边景点有云湖"), "{grounds:?}");
    assert!(responses[1].evidence.iter().all(|evidence| evidence.source.0 == "ours"));
    let foreseen = |response: &Response| {
        response.evidence.iter().any(|evidence| {
            evidence.set.is_some_and(|set| set == turnstream_schemas::EvidenceSet::Foreseen)
        })
    };
    assert!(responses.iter().any(foreseen), "a fact joins a query and a topic");
    let turns: Vec<Turn> =
        turns.iter().map(|turn| serde_json::from_value(turn.clone()).expect("a turn")).collect();
    assert!(invariants::explicit_queries_are_their_spans(&turns, &responses) > 2);
    assert!(invariants::selected_facts_are_demanded(&responses) > 2);
}

#[test]
fn links_are_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let snapshot = import(folder.path());
    let linked = printed(&["link", "我想去青石古鎮喝coffee", "--snapshot", &snapshot, "--json"]);
    assert_eq!((&linked["turns"], &linked["links"]), (&json!(1), &json!(1)));
    let link = &linked["shown"][0];
    assert_eq!((&link["concept"], &link["language"]), (&json!("青石古镇"), &json!("zh")));
    assert_eq!(link["span"], json!({"start": 9, "end": 21}));
}
