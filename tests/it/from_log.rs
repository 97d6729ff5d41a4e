//! Tests that the answers of a service are replayed from its log: the same configuration answers
//! the same, and another one differs where it must.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnstream_schemas::Response;

use crate::broker::{Broker, said};
use crate::kafka::engine::Engine;
use crate::kafka::kcat::{KEY_END, read_all, send_lines};
use crate::turnstream;

const PATIENCE: Duration = Duration::from_secs(90);

/// The words of users, one after the other; every conversation begins at another place.
const SAID: [&str; 6] = [
    "What is a violin?",
    "My violin is broken.",
    "I want to speak to a human",
    "Can a dog fly?",
    "thanks a lot",
    "And what is a piano?",
];
const CONVERSATIONS: usize = 12;
/// Turns of each: more than the window of recent ones, so that older ones are recalled by clusters.
const ROUNDS: usize = 11;

/// Returns the turns, some without an id, with one that an agent says and one that is no turn.
fn turns() -> Vec<(String, String)> {
    let mut turns = Vec::new();
    for round in 0..ROUNDS {
        for conversation in 0..CONVERSATIONS {
            let key = format!("c-{conversation}");
            let mut turn = json!({
                "conversation_id": key, "speaker": "user", "text": SAID[(conversation + round) % SAID.len()],
            });
            if conversation % 2 == 0 {
                turn["turn_id"] = json!(format!("t-{round}"));
            }
            if conversation == 3 {
                // Only an agent's turn can echo a response.
                turn["response_id"] = json!("shop-1");
            }
            turns.push((key, turn.to_string()));
        }
    }
    let agent = json!({ "conversation_id": "m", "speaker": "system", "text": "Marta here." });
    turns.push(("m".to_owned(), agent.to_string()));
    turns.push(("c-1".to_owned(), "{".to_owned()));
    turns
}

/// Runs a command that must succeed; returns its last line as JSON.
pub(crate) fn command(words: &[&str]) -> Value {
    let done = turnstream(words).arg("--json").output().expect("it starts");
    let out = said(&done, &words.join(" "));
    serde_json::from_str(out.lines().last().expect("a line")).expect("JSON")
}

fn responses(file: &str) -> Vec<Response> {
    let text = std::fs::read_to_string(file).expect("responses");
    text.lines().map(|line| serde_json::from_str(line).expect("a response")).collect()
}

/// Replays the log of a service with its own configuration and others.
fn replays_answer_as_the_service_did(folder: &Path, service: &str) {
    let path = |name: &str| folder.join(name).display().to_string();
    let answered = (CONVERSATIONS * ROUNDS) as u64;
    let same = path("same.jsonl");
    let counts = command(&["replay", "--from-log", service, "--config", service, "--out", &same]);
    assert_eq!((&counts["responses"], &counts["dead_letters"]), (&answered.into(), &1.into()));
    let report = command(&["diff", "--from-log", service, &same]);
    assert_eq!(report["compared"], answered, "{report}");
    assert_eq!((&report["same"], &report["made_by"]), (&answered.into(), &json!([])), "{report}");
    let report = command(&["verify", "--from-log", service]);
    assert_eq!((&report["responses"], &report["same"]), (&answered.into(), &answered.into()));
    for (part, is_some) in [
        (["--until", "2020-01-01T00:00:00Z"], false),
        (["--since", "1h"], true),
        (["--offsets", "0:0-9"], true),
    ] {
        let report = command(&[&["verify", "--from-log", service], &part[..]].concat());
        assert_eq!(report["responses"], report["same"], "{report}");
        assert_eq!(report["responses"].as_u64() > Some(0), is_some, "{part:?}: {report}");
        assert!(
            report["responses"].as_u64()
                <= Some(if part[0] == "--offsets" { 10 } else { answered })
        );
    }
    let before = std::fs::read_to_string(&same).expect("responses");
    command(&["replay", "--from-log", service, "--config", service, "--out", &same]);
    assert_eq!(std::fs::read_to_string(&same).expect("responses"), before, "the same bytes twice");

    // A user who asks for a person is asked back now; history goes on as it was, so nothing else
    // changes.
    let changed = path("changed.jsonl");
    let other = path("other.toml");
    std::fs::write(&other, "[decision.hand_off]\nasked = false\n").expect("written");
    command(&["replay", "--from-log", service, "--config", &other, "--out", &changed]);
    let report = command(&["diff", "--from-log", service, &changed]);
    let asks = |response: &&Response| response.hand_off.is_some();
    let asked = responses(&same).iter().filter(asks).count() as u64;
    assert_eq!(report["changed"], asked, "{report}");
    assert_eq!(report["actions"], json!([{ "name": "hand_off → ask", "count": asked }]));
    assert_eq!(report["made_by"], json!(["configuration"]));

    // With its own answers in history, later turns recall another one.
    let own = path("own.jsonl");
    let generated = ["--history", "generated", "--out", &own];
    command(&[&["replay", "--from-log", service, "--config", &other], &generated[..]].concat());
    let report = command(&["diff", "--from-log", service, &own]);
    assert!(report["changed"].as_u64() >= Some(asked), "{report}");

    let of = |flags: &[&str]| {
        let some = path("some.jsonl");
        command(&[&["replay", "--from-log", service, "--out", &some], flags].concat());
        let mut ids: Vec<String> =
            responses(&some).into_iter().map(|it| it.conversation_id.0).collect();
        ids.sort();
        ids.dedup();
        ids
    };
    assert_eq!(of(&["--conversation", "c-3", "--conversation", "c-7"]), ["c-3", "c-7"]);
    let half = of(&["--sample", "50%"]);
    assert!((1..CONVERSATIONS).contains(&half.len()), "{half:?}");
    assert_eq!(of(&["--until", "2020-01-01T00:00:00Z"]).len(), 0);
    assert_eq!(of(&["--since", "1h"]).len(), CONVERSATIONS);
}

#[test]
fn an_embedded_log_is_replayed_as_it_was_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let config = path("service.toml");
    let text = format!("[log]\nkind = \"embedded\"\ndirectory = {:?}\n", path("log"));
    std::fs::write(&config, text).expect("written");
    let lines: Vec<String> = turns().into_iter().map(|(_, turn)| turn).collect();
    std::fs::write(path("turns"), lines.join("\n")).expect("written");
    let mut run = turnstream(&["run", "--config", &config]);
    run.stdin(std::fs::File::open(path("turns")).expect("turns"));
    said(&run.output().expect("it starts"), "turnstream run");
    replays_answer_as_the_service_did(folder.path(), &config);
}

#[test]
fn a_log_on_a_real_broker_is_replayed_as_it_was_answered() {
    let test = "a_log_on_a_real_broker_is_replayed_as_it_was_answered";
    let Some(broker) = Broker::start_or_skip(test) else { return };
    broker.create_topics("", 3);
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("service.toml");
    let text = format!("[log.kafka]\nbootstrap_servers = \"{}\"\n", broker.bootstrap());
    std::fs::write(&config, text).expect("written");
    let mut engine = Engine::start(&config, &folder.path().join("run.log"));
    let line =
        |(key, turn): (String, String)| [key.as_bytes(), &[KEY_END], turn.as_bytes()].concat();
    let lines: Vec<_> = turns().into_iter().map(line).collect();
    send_lines(&broker, &lines, &[], false);
    let topics = ["turns", "responses", "traces", "recorded", "dead-letters", "history"];
    let counts = || topics.map(|topic| read_all(&broker, topic).len());
    let deadline = Instant::now() + PATIENCE;
    let answered = CONVERSATIONS * ROUNDS;
    while counts()[..5] != [answered + 2, answered, answered, 1, 1] {
        engine.assert_running();
        assert!(Instant::now() < deadline, "{:?}: {}", counts(), engine.log_end());
        std::thread::sleep(Duration::from_millis(100));
    }
    engine.stop();
    let before = counts();
    replays_answer_as_the_service_did(folder.path(), &config.display().to_string());
    assert_eq!(counts(), before, "nothing was written");
}
