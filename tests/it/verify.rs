//! Tests that the answers of a service, worded by a language model, are derived again from its log,
//! and that the model is asked only where nothing is recorded, and as often as is allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use turnstream_schemas::Response;

use crate::broker::said;
use crate::from_log::command;
use crate::scripted_server::{Script, ScriptedServer};
use crate::turnstream;

const CONVERSATIONS: usize = 12;

/// Returns the turns of these rounds: questions whose answers a model words.
fn turns(rounds: std::ops::Range<usize>) -> String {
    let asked = ["What is a violin?", "What is a piano?", "What is a dog?"];
    let mut lines = String::new();
    for round in rounds {
        for conversation in 0..CONVERSATIONS {
            let turn = json!({
                "conversation_id": format!("c-{conversation}"), "turn_id": format!("t-{round}"),
                "speaker": "user",
                "text": format!("{} I am {conversation}.", asked[(round + conversation) % asked.len()]),
            });
            writeln!(lines, "{turn}").expect("written");
        }
    }
    lines
}

/// Serves these turns by a service with an embedded log.
fn answer(folder: &Path, config: &str, turns: &str, flags: &[&str]) {
    let file = folder.join("turns");
    std::fs::write(&file, turns).expect("written");
    let mut run = turnstream(&[&["run", "--config", config], flags].concat());
    run.stdin(File::open(file).expect("turns"));
    said(&run.output().expect("it starts"), "turnstream run");
}

/// Returns the text of the response to each turn.
fn texts(file: &str) -> BTreeMap<(String, String), String> {
    let text = std::fs::read_to_string(file).expect("responses");
    let responses = text.lines().map(|line| serde_json::from_str(line).expect("a response"));
    responses.map(|it: Response| ((it.conversation_id.0, it.turn_id.0), it.text)).collect()
}

#[test]
fn a_service_is_verified_from_the_recorded_answers_of_its_model() {
    // If the model does not answer, the turn ends as a dead letter, or with another response.
    for on_failure in ["degrade", "dead_letter"] {
        verified_from_recorded_answers(on_failure);
    }
}

fn verified_from_recorded_answers(on_failure: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let model = ScriptedServer::start(Script::Good);
    let config = path("service.toml");
    let text = format!(
        "[log]\nkind = \"embedded\"\ndirectory = {:?}\n{}[generation]\nform = \"prompted\"\n\
         on_failure = \"{on_failure}\"\n",
        path("log"),
        model.config(),
    );
    std::fs::write(&config, &text).expect("written");
    let answers = path("answers.jsonl");
    answer(folder.path(), &config, &turns(0..3), &["--record-answers", &answers]);
    let all = (3 * CONVERSATIONS) as u64;
    let asked = model.seen().len();
    assert_eq!(asked as u64, all, "the model words all of them");

    // Inputs of a replay have other numbers than in the service; their questions are found all the
    // same.
    let verify = ["verify", "--from-log", &config];
    let report = command(&[&verify[..], &["--answers", &answers]].concat());
    assert_eq!((&report["responses"], &report["same"]), (&all.into(), &all.into()), "{report}");
    // A forged answer makes another response.
    let forged = std::fs::read_to_string(&answers).expect("answers");
    let forged = forged.replacen("You speak of", "You never spoke of", 1);
    std::fs::write(path("forged.jsonl"), forged).expect("written");
    let mut verified = turnstream(&verify);
    verified.args(["--answers", &path("forged.jsonl"), "--json"]);
    let verified = verified.output().expect("it starts");
    let report: Value = serde_json::from_slice(&verified.stdout).expect("JSON");
    assert_eq!((&report["differ"], &report["same"]), (&1.into(), &(all - 1).into()), "{report}");
    assert_eq!(
        (verified.status.code(), &report["shown"][0]["stage"]),
        (Some(1), &"generation".into())
    );
    let report = command(&verify);
    assert_eq!(report["underivable"], json!({ "answer_not_recorded": all }), "{report}");
    assert_eq!(model.seen().len(), asked, "verifying asks nobody");

    // Half of the answers are not recorded. The model is asked as often as is allowed.
    let few = path("few.jsonl");
    let half: Vec<String> = std::fs::read_to_string(&answers)
        .expect("answers")
        .lines()
        .take(asked / 2)
        .map(str::to_owned)
        .collect();
    std::fs::write(&few, half.join("\n") + "\n").expect("written");
    let more = path("more.jsonl");
    let counts = command(&[
        "replay",
        "--from-log",
        &config,
        "--config",
        &config,
        "--out",
        &path("again.jsonl"),
        "--answers",
        &few,
        "--max-requests",
        "5",
        "--record-answers",
        &more,
    ]);
    let told = json!({ "recorded": asked / 2, "asked": 5, "unasked": asked - asked / 2 - 5 });
    assert_eq!(counts["questions"], told, "{counts}");
    assert_eq!(model.seen().len(), asked + 5);
    let lines = std::fs::read_to_string(&more).expect("answers").lines().count();
    assert_eq!(lines, asked / 2 + 5, "what nobody was asked is not recorded");

    // The configuration differs from the one that the service had.
    let other = format!("{text}[decision.hand_off]\nasked = false\n");
    std::fs::write(&config, other.replace("form = \"prompted\"", "form = \"lexical\""))
        .expect("written");
    let report = command(&verify);
    assert_eq!(report["underivable"], json!({ "made_otherwise": all }), "{report}");
    assert!(report["made_by"].as_array().expect("a list").contains(&"configuration".into()));
}

/// A replay of a service's log is cut short, the log grows, and the replay goes on to its first
/// ends.
#[test]
fn a_replay_of_a_log_that_grows_can_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (service, prompted) = (path("service.toml"), path("prompted.toml"));
    let log = format!("[log]\nkind = \"embedded\"\ndirectory = {:?}\n", path("log"));
    std::fs::write(&service, &log).expect("written");
    answer(folder.path(), &service, &turns(0..3), &[]);
    let model = ScriptedServer::start(Script::Holds("It is an instrument that many people like."));
    let text = format!("{}[generation]\nform = \"prompted\"\n", model.config());
    std::fs::write(&prompted, text).expect("written");
    let (cut, whole) = (path("cut.jsonl"), path("whole.jsonl"));
    let replay = |out: &str| {
        turnstream(&["replay", "--from-log", &service, "--config", &prompted, "--out", out])
    };
    let mut under_way =
        replay(&cut).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    (0..CONVERSATIONS).for_each(|_| model.go_on());
    while std::fs::metadata(&cut).map_or(0, |file| file.len()) == 0 {
        assert_eq!(under_way.try_wait().expect("a process"), None, "the model holds its words");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = under_way.id().to_string();
    said(&Command::new("kill").args(["-TERM", &pid]).output().expect("kill runs"), "kill");
    assert_eq!(under_way.wait().expect("it ends").code(), Some(1));

    answer(folder.path(), &service, &turns(3..5), &[]);
    (0..10 * CONVERSATIONS).for_each(|_| model.go_on());
    let resumed = replay(&cut).args(["--resume", "--json"]).output().expect("it starts");
    let resumed: Value =
        serde_json::from_str(said(&resumed, "replay --resume").trim()).expect("JSON");
    assert!(resumed["resumed_from"].as_u64() > Some(0), "{resumed}");
    said(&replay(&whole).output().expect("it starts"), "replay");
    let (cut, whole) = (texts(&cut), texts(&whole));
    assert_eq!((cut.len(), whole.len()), (3 * CONVERSATIONS, 5 * CONVERSATIONS));
    for (turn, text) in &cut {
        assert_eq!(Some(text), whole.get(turn), "{turn:?}");
    }
}

/// One prompt is edited: only the turns that ask it differ, as the recorded questions show.
#[test]
fn an_edited_prompt_changes_the_turns_that_ask_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let model = ScriptedServer::start(Script::Counts);
    let said = ["What is a violin?", "I want to speak to a human", "And a piano?", "thanks a lot"];
    let turns = (0..20).map(|at| {
        let (conversation, text) = (format!("c-{}", at % 5), said[(at / 5 + at) % said.len()]);
        let turn = json!({ "conversation_id": conversation, "turn_id": format!("t-{at}"),
                           "speaker": "user", "text": text });
        format!("{turn}\n")
    });
    std::fs::write(path("log.jsonl"), turns.collect::<String>()).expect("written");
    let shown = turnstream(&["prompts", "show", "generation"]).output().expect("it starts");
    let shown = crate::broker::said(&shown, "prompts show");
    let edited = shown.replacen("One to three sentences", "One or two sentences", 1);
    assert_ne!(edited, shown);
    std::fs::write(path("edited.txt"), edited).expect("written");
    let replay = |name: &str, prompt: &str| {
        let text = format!("{}[generation]\nform = \"prompted\"\n{prompt}", model.config());
        std::fs::write(path("config.toml"), text).expect("written");
        let (log, config, out) = (path("log.jsonl"), path("config.toml"), path(name));
        let answers = path("answers.jsonl");
        let files = ["--out", &out, "--record-answers", &answers];
        command(&[&["replay", &log, "--config", &config], &files[..]].concat());
        out
    };
    let before = replay("before.jsonl", "");
    let edited = format!("[generation.prompted]\nprompt = {:?}\n", path("edited.txt"));
    let after = replay("after.jsonl", &edited);
    let changed = path("changed.jsonl");
    let report = command(&["diff", &before, &after, "--out", &changed]);

    let lines = |file: &str| {
        let text = std::fs::read_to_string(file).expect("a file");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.collect::<Vec<_>>()
    };
    let asked = lines(&path("answers.jsonl")).into_iter();
    let asked: BTreeSet<i64> =
        asked.map(|it| it["input"]["offset"].as_i64().expect("a number")).collect();
    let turn = |at: &i64| format!("c-{}/t-{at}", at % 5);
    let expected: BTreeSet<String> = asked.iter().map(turn).collect();
    let found: BTreeSet<String> =
        lines(&changed).iter().map(|it| it["turn"].as_str().expect("a turn").to_owned()).collect();
    assert_eq!(found, expected, "{report}");
    assert_eq!(report["same"], 20 - expected.len(), "{report}");
    assert_eq!(report["stages"], json!([{ "name": "generation", "count": expected.len() }]));
    assert!((5..20).contains(&expected.len()), "some turns ask no model: {expected:?}");
    let made_by = report["made_by"].as_array().expect("a list");
    assert!(made_by.contains(&"prompts".into()), "{report}");
}
