//! Tests that dead letters are shown, corrected and sent again, each once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog};
use turnstream_log::{Follower as _, Topic};
use turnstream_schemas::Response;

use crate::broker::{Broker, said};
use crate::kafka::engine::Engine;
use crate::kafka::kcat::{KEY_END, read_all, send_lines};
use crate::kafka::outcomes::parse;
use crate::turnstream;

const PATIENCE: Duration = Duration::from_secs(90);

/// Runs `dead-letters` with a configuration; returns the exit code and its output as JSON.
fn dead_letters(config: &Path, words: &[&str]) -> (Option<i32>, Value) {
    let mut command = turnstream(&["dead-letters"]);
    let done = command.args(words).arg("--config").arg(config).arg("--json").output();
    let done = done.expect("the program runs");
    let out = String::from_utf8(done.stdout).expect("text");
    let last = out.lines().last().unwrap_or_else(|| {
        panic!("{words:?} says nothing: {}", String::from_utf8_lossy(&done.stderr))
    });
    (done.status.code(), serde_json::from_str(last).expect("JSON"))
}

/// Returns a turn of the tests; its number determines what is wrong with it.
fn turn(number: usize) -> String {
    let (conversation, id) = (format!("c-{}", number % 40), format!("t-{number}"));
    let turn = |speaker: &str, text: &str| {
        json!({
            "conversation_id": conversation, "turn_id": id, "speaker": speaker, "text": text,
        })
    };
    match number % 5 {
        0 | 1 => turn("customer", "What is a violin?"),
        2 | 3 => turn("user", &format!("What is {} violin?", "a nice and shiny ".repeat(9))),
        _ => json!({ "turn_id": id, "speaker": "user", "text": "Hello?", "chat": conversation }),
    }
    .to_string()
}

/// Accepts only short texts.
const SHORT: &str = "[turns]\nmax_text_bytes = 64\n";
const CHAT: &str = ".conversation_id = .chat | del(.chat)";

#[test]
fn letters_of_an_embedded_log_are_corrected_and_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, directory) = (folder.path().join("turnstream.toml"), folder.path().join("log"));
    let serve = |turns: &str, lines: &str| {
        let text = format!("{turns}[log]\nkind = \"embedded\"\ndirectory = {directory:?}\n");
        std::fs::write(&config, text).expect("written");
        let input = folder.path().join("turns");
        std::fs::write(&input, lines).expect("written");
        let mut run = turnstream(&["run", "--config"]);
        run.arg(&config).stdin(std::fs::File::open(&input).expect("turns"));
        said(&run.output().expect("the program runs"), "turnstream run");
    };
    let fine = json!({ "conversation_id": "c-0", "speaker": "user", "text": "What is a dog?" });
    let lines: Vec<String> = (0..10).map(turn).chain([fine.to_string(), "{".to_owned()]).collect();
    serve(SHORT, &lines.join("\n"));

    let list = |words: &[&str]| dead_letters(&config, &[&["list"], words].concat()).1;
    let all = list(&[]);
    assert_eq!((&all["letters"], &all["sent_again"]), (&json!(11), &json!(0)), "{all}");
    let counts: Vec<u64> = all["reasons"]
        .as_array()
        .expect("reasons")
        .iter()
        .map(|reason| reason["letters"].as_u64().expect("a number"))
        .collect();
    assert_eq!(counts, [4, 4, 2, 1], "{all}");
    assert_eq!(list(&["--reason", "CUSTOMER"])["letters"], 4);
    assert_eq!(list(&["--stage", "generation"])["letters"], 0);
    assert_eq!(list(&["--since", "2h", "--kind", "invalid"])["letters"], 11);
    assert_eq!(list(&["--since", "2100-01-01T00:00:00Z"])["letters"], 0);
    let broken =
        list(&["--reason", "EOF"])["latest"][0]["letter"].as_str().expect("a name").to_owned();
    let (_, letter) = dead_letters(&config, &["show", &broken]);
    assert_eq!(letter["value"], "ew==", "the bytes as they came: {letter}");

    let redrive = |words: &[&str]| dead_letters(&config, &[&["redrive"], words].concat());
    assert_eq!(redrive(&[]).0, Some(2), "which ones must be said");
    let (code, tried) = redrive(&["--reason", "customer", "--dry-run"]);
    assert_eq!((code, &tried["sent"]), (Some(0), &json!(4)));
    let (code, done) = redrive(&["--reason", "customer", "--edit", ".speaker = \"user\""]);
    assert_eq!((code, &done["sent"], &done["left"]), (Some(0), &json!(4), &json!(0)), "{done}");
    let (code, done) = redrive(&["--reason", "customer", "--edit", ".speaker = \"user\""]);
    assert_eq!((code, &done["sent"], &done["sent_before"]), (Some(0), &json!(0), &json!(4)));
    assert_eq!(redrive(&["--reason", "conversation_id", "--edit", CHAT]).1["sent"], 2);
    let (code, done) = redrive(&["--all", "--edit", "."]);
    assert_eq!((code, &done["sent"], &done["left"]), (Some(1), &json!(4), &json!(1)), "{done}");
    assert_eq!(done["why_left"][0]["letter"], broken, "{done}");
    let (code, _) = redrive(&["0-4711"]);
    assert_eq!(code, Some(2), "there is no such letter");

    // Longer texts are accepted now, so all but the broken one are answered.
    serve("", "");
    let answered = answered(&directory);
    assert_eq!(answered.len(), 11, "{answered:?}");
    assert!(answered.values().all(|times| *times == 1), "{answered:?}");
    let (all, left) = (list(&["--all"]), list(&[]));
    assert_eq!((&all["letters"], &all["sent_again"]), (&json!(11), &json!(10)), "{all}");
    assert_eq!(left["latest"].as_array().map(Vec::len), Some(1), "{left}");
    assert_eq!(left["latest"][0]["letter"], broken);
    let sent = &all["latest"][0]["letter"];
    let sent = sent.as_str().expect("a name");
    assert_eq!(redrive(&[sent]).0, Some(2), "it was sent again");
    assert_eq!(redrive(&[sent, "--again"]).1["sent"], 1);
}

/// Counts the answers to each turn.
fn answered(directory: &Path) -> BTreeMap<String, usize> {
    let log = EmbeddedLog::in_directory(directory, &EmbeddedConfig::default()).expect("a log");
    let mut answered = BTreeMap::new();
    let mut follower = log.follower(Topic::Responses);
    while !follower.has_caught_up() {
        for record in follower.poll(Duration::ZERO).expect("readable") {
            let value = record.value.expect("a value");
            let response: Response = serde_json::from_slice(&value).expect("a response");
            *answered.entry(response.turn_id.0).or_insert(0) += 1;
        }
    }
    answered
}

#[test]
fn letters_sent_again_on_a_real_broker_are_answered_once() {
    let test = "letters_sent_again_on_a_real_broker_are_answered_once";
    let Some(broker) = Broker::start_or_skip(test) else { return };
    broker.create_topics("", 4);
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("turnstream.toml");
    let start = |turns: &str, log: &str| {
        let text = format!("{turns}[log.kafka]\nbootstrap_servers = \"{}\"\n", broker.bootstrap());
        std::fs::write(&config, text).expect("written");
        Engine::start(&config, &folder.path().join(log))
    };
    let wait = |engine: &mut Engine, topic: &str, count: usize| {
        let deadline = Instant::now() + PATIENCE;
        while read_all(&broker, topic).len() < count {
            engine.assert_running();
            assert!(Instant::now() < deadline, "{count} {topic}: {}", engine.log_end());
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let mut engine = start(SHORT, "first.log");
    let line = |number| {
        let key = format!("c-{}", number % 40);
        [key.as_bytes(), &[KEY_END], turn(number).as_bytes()].concat()
    };
    let lines: Vec<_> = (0..500).map(line).collect();
    send_lines(&broker, &lines, &["traceparent=00-1-1-01"], false);
    wait(&mut engine, "dead-letters", 500);
    engine.stop();

    // Killed after ever more milliseconds: it may have read, sent nothing, some, or all.
    let speaker = ["redrive", "--reason", "customer", "--edit", ".speaker = \"user\""];
    let chat = ["redrive", "--reason", "conversation_id", "--edit", CHAT];
    let long = ["redrive", "--reason", "bytes"];
    let mut left = BTreeSet::new();
    for (words, after) in [&speaker[..], &chat, &long].into_iter().cycle().zip((100..).step_by(150))
    {
        let mut command = turnstream(&["dead-letters"]);
        command.args(words).arg("--config").arg(&config);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut process = command.spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(after));
        process.kill().expect("a process of ours");
        process.wait().expect("it ended");
        let (_, list) = dead_letters(&config, &["list"]);
        let sent = list["sent_again"].as_u64().expect("a number");
        left.insert(500 - sent);
        if sent == 500 || after > 2_500 {
            break;
        }
    }
    println!("letters that were left after each kill: {left:?}");
    for words in [&speaker[..], &chat, &long] {
        let (code, done) = dead_letters(&config, words);
        assert_eq!((code, &done["left"]), (Some(0), &json!(0)), "{done}");
    }
    let (_, list) = dead_letters(&config, &["list"]);
    assert_eq!((&list["letters"], &list["sent_again"]), (&json!(500), &json!(500)), "{list}");

    let mut engine = start("", "second.log");
    wait(&mut engine, "responses", 500);
    engine.stop();
    let responses = read_all(&broker, "responses");
    let ids: BTreeSet<String> =
        responses.iter().map(|read| parse::<Response>(read).turn_id.0).collect();
    assert_eq!((responses.len(), ids.len()), (500, 500), "each once");
    assert_eq!(ids, (0..500).map(|number| format!("t-{number}")).collect());
    let is_traced = |header: &String| header == "traceparent";
    assert!(responses.iter().all(|read| read.headers.keys().any(is_traced)), "with their headers");
    let letters = read_all(&broker, "dead-letters").into_iter();
    let letters = letters.filter(|read| read.value.is_some());
    assert_eq!(letters.count(), 500, "none failed again");
}
