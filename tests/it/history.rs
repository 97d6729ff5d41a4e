//! Tests `turnstream history` on the output of a replay of our own conversation: it says what the
//! responses said at the time; and on a log that asks to forget.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json as object};
use turnstream_schemas::{EvictionReason, Recorded, RecordedReason, Response};

use crate::turnstream;

const CONVERSATION: &str = include_str!("../../src/cli/demo/conversations/returning.jsonl");

fn json(args: &[&str]) -> Value {
    let output = turnstream(args).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().expect("a last line")).expect("JSON")
}

/// Replays the conversation with room for six entries; returns its responses, and the files of its
/// changes and of its configuration.
fn replayed(folder: &Path) -> (Vec<Response>, PathBuf, PathBuf) {
    let file = |name: &str| folder.join(name);
    std::fs::write(file("log.jsonl"), CONVERSATION).expect("a file");
    std::fs::write(file("six.toml"), "[history]\nmax_entries = 6\nwindow_utterances = 6\n")
        .expect("a file");
    let path = |name: &str| file(name).display().to_string();
    json(&[
        "replay",
        &path("log.jsonl"),
        "--config",
        &path("six.toml"),
        "--history",
        "generated",
        "--out",
        &path("out.jsonl"),
        "--out-history",
        &path("history.jsonl"),
        "--json",
    ]);
    let responses = std::fs::read_to_string(file("out.jsonl")).expect("a file");
    let responses = responses.lines().map(|line| serde_json::from_str(line).expect("a response"));
    (responses.collect(), file("history.jsonl"), file("six.toml"))
}

#[test]
fn every_eviction_is_explained_as_its_response_did() {
    let folder = tempfile::tempdir().unwrap();
    let (responses, changes, config) = replayed(folder.path());
    let (changes, config) = (changes.display().to_string(), config.display().to_string());
    let list = json(&["history", "show", "--changes", &changes, "--json"]);
    let scope = list["scopes"][0]["scope"].as_str().unwrap();
    let shown =
        json(&["history", "show", scope, "--changes", &changes, "--config", &config, "--json"]);

    let told: Vec<(&str, f64, u32)> = responses
        .iter()
        .flat_map(|response| &response.evicted)
        .map(|gone| (gone.turn_id.as_str(), gone.weight.get(), gone.rank))
        .collect();
    assert!(told.len() > 6, "{told:?}");
    let explained: Vec<(&str, f64, u32)> = shown["evicted"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gone| {
            assert!(gone["query"].is_string(), "what was said is known: {gone}");
            let rank = gone["rank"].as_u64().unwrap() as u32;
            (gone["turn_id"].as_str().unwrap(), gone["weight"].as_f64().unwrap(), rank)
        })
        .collect();
    assert_eq!(explained, told);
    assert_eq!(shown["evictions"], told.len());

    let groups = shown["categories"].as_array().unwrap().iter();
    let groups = groups.flat_map(|category| category["groups"].as_array().unwrap());
    let entries: usize = groups.map(|group| group["entries"].as_array().unwrap().len()).sum();
    assert_eq!(entries, 6, "every entry is shown once");
}

#[test]
fn what_is_exported_is_shown_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (_, changes, config) = replayed(folder.path());
    let (changes, config) = (changes.display().to_string(), config.display().to_string());
    let exported = folder.path().join("exported.jsonl").display().to_string();
    let output = turnstream(&["history", "export", "--changes", &changes, "--out", &exported]);
    assert!({ output }.output().unwrap().status.success());
    let shown = |from: &str| {
        let list = json(&["history", "show", "--changes", from, "--json"]);
        let scope = list["scopes"][0]["scope"].as_str().unwrap().to_owned();
        json(&["history", "show", &scope, "--changes", from, "--config", &config, "--json"])
    };
    let (before, after) = (shown(&changes), shown(&exported));
    assert_eq!(before["categories"], after["categories"]);
    assert_eq!(before["chains"], after["chains"]);
    assert_eq!(after["evicted"], serde_json::json!([]), "an export is of what is held");
}

#[test]
fn what_cannot_be_shown_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (_, changes, _) = replayed(folder.path());
    let changes = changes.display().to_string();
    let said = |args: &[&str], code: i32| {
        let output = turnstream(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let missing = said(&["history", "show", "nobody", "--changes", &changes], 2);
    assert!(missing.contains("default/nobody"), "{missing}");
    let other = folder.path().join("log.jsonl").display().to_string();
    let refused = said(&["history", "show", "--changes", &other], 3);
    assert!(refused.contains("log.jsonl:1"), "{refused}");
}

#[test]
fn a_replay_forgets_where_it_is_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let lines: Vec<&str> = CONVERSATION.lines().collect();
    let (before, after) = lines.split_at(5);
    let forget = r#"{"kind":"forget","conversation_id":"returning","turn_id":"forget-1"}"#;
    let log = [before, &[forget], after].concat().join("\n");
    std::fs::write(path("log.jsonl"), log).unwrap();
    let report = json(&[
        "replay",
        &path("log.jsonl"),
        "--history",
        "generated",
        "--out",
        &path("out.jsonl"),
        "--out-recorded",
        &path("recorded.jsonl"),
        "--out-history",
        &path("history.jsonl"),
        "--json",
    ]);
    assert_eq!((&report["recorded"], &report["dead_letters"]), (&1.into(), &0.into()), "{report}");
    let recorded: Recorded =
        serde_json::from_str(&std::fs::read_to_string(path("recorded.jsonl")).unwrap()).unwrap();
    assert_eq!(recorded.reason, RecordedReason::Forgotten);
    assert_eq!(recorded.evicted.len(), before.len());
    assert!(recorded.evicted.iter().all(|gone| gone.reason == EvictionReason::Forget));

    let responses = std::fs::read_to_string(path("out.jsonl")).unwrap();
    let responses: Vec<Response> =
        responses.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let recalled: Vec<usize> =
        responses.iter().map(|response| response.history.len()).take(before.len() + 2).collect();
    assert_eq!(recalled[before.len() - 1..], [before.len() - 1, 0, 1], "{recalled:?}");
    let known: Vec<&str> = recorded.evicted.iter().map(|gone| gone.turn_id.as_str()).collect();
    for response in &responses[before.len()..] {
        let of_it =
            response.history.iter().find(|recalled| known.contains(&recalled.turn_id.as_str()));
        assert!(of_it.is_none(), "{} recalls what was forgotten: {of_it:?}", response.turn_id);
    }

    let shown =
        json(&["history", "show", "returning", "--changes", &path("history.jsonl"), "--json"]);
    let evicted = shown["evicted"].as_array().unwrap();
    assert_eq!(evicted.len(), before.len(), "{shown}");
    assert!(evicted.iter().all(|gone| gone["reason"] == "forget"), "{shown}");
    let tree = turnstream(&["history", "show", "returning", "--changes", &path("history.jsonl")]);
    let tree = String::from_utf8({ tree }.output().unwrap().stdout).unwrap();
    assert!(tree.contains("was forgotten on request"), "{tree}");
}

/// A log in a directory that `run` serves from standard input to its end.
struct Served {
    folder: tempfile::TempDir,
}

impl Served {
    fn new(more: &str) -> Self {
        let served = Self { folder: tempfile::tempdir().expect("a folder") };
        let (log, cache) = (served.path("log"), served.path("cache"));
        let text = format!(
            "{more}\n[log]\nkind = \"embedded\"\ndirectory = {log:?}\n\
             [run]\ncache_directory = {cache:?}\n"
        );
        std::fs::write(served.path("config.toml"), text).expect("written");
        served
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Serves these records, and returns the responses to them.
    fn run(&self, records: &[Value]) -> Vec<Response> {
        let mut command = turnstream(&["run", "--config", &self.path("config.toml")]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut input = child.stdin.take().expect("piped");
        for record in records {
            writeln!(input, "{record}").expect("taken");
        }
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.lines().map(|line| serde_json::from_str(line).expect("a response")).collect()
    }

    fn history(&self, args: &[&str]) -> Value {
        let config = self.path("config.toml");
        json(&[&["history"], args, &["--config", &config, "--json"]].concat())
    }

    /// Returns the scope of each history, and the numbers of its entries and evictions.
    fn histories(&self) -> Vec<(String, u64, u64)> {
        let list = self.history(&["show"]);
        let scopes = list["scopes"].as_array().expect("a list").iter();
        let number = |of: &Value, name: &str| of[name].as_u64().expect("a number");
        scopes
            .map(|of| {
                let scope = of["scope"].as_str().expect("a name").to_owned();
                (scope, number(of, "entries"), number(of, "evictions"))
            })
            .collect()
    }
}

fn said(conversation: &str, user: &str, text: &str) -> Value {
    object!({ "conversation_id": conversation, "user_id": user, "speaker": "user", "text": text })
}

#[test]
fn all_histories_of_a_user_are_forgotten_and_stay_so() {
    let served = Served::new("");
    let answered = served.run(&[
        said("boats", "mara", "Where is my boat?"),
        said("trains", "mara", "When does the train leave?"),
        said("boats", "mara", "Is it in the harbour?"),
        said("planes", "paul", "Is the plane late?"),
    ]);
    assert_eq!(answered.len(), 4);
    let dry = served.history(&["forget", "--user", "mara", "--dry-run"]);
    assert_eq!((dry["histories"].as_array().unwrap().len(), &dry["written"]), (2, &0.into()));
    let asked = served.history(&["forget", "--user", "mara"]);
    let of_mara: Vec<(&str, u64)> = asked["histories"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| (of["scope"].as_str().unwrap(), of["entries"].as_u64().unwrap()))
        .collect();
    assert_eq!(of_mara, [("default/boats", 2), ("default/trains", 1)]);
    assert_eq!(asked["written"], 2, "{asked}");
    let still = |scope: &str, entries, evictions| (format!("default/{scope}"), entries, evictions);
    assert_eq!(
        served.histories(),
        [still("boats", 2, 0), still("planes", 1, 0), still("trains", 1, 0)],
        "nothing is taken away before the engine comes to it"
    );

    // The engine starts anew from the log.
    let after = served.run(&[said("boats", "mara", "So is it?")]);
    let [after] = &after[..] else { panic!("{after:?}") };
    assert!(after.history.is_empty() && after.query_reconstructed.is_none(), "{after:?}");
    let left = [still("boats", 1, 2), still("planes", 1, 0), still("trains", 0, 1)];
    assert_eq!(served.histories(), left);
    assert_eq!(served.run(&[]).len(), 0);
    assert_eq!(served.histories(), left, "a restart brings nothing back");

    let nothing = served.history(&["forget", "trains"]);
    assert_eq!((&nothing["written"], &nothing["histories"]), (&0.into(), &object!([])));
    let missing =
        turnstream(&["history", "forget", "ships", "--config", &served.path("config.toml")]);
    let missing = { missing }.output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("default/ships"));
}

#[test]
fn a_user_with_one_history_is_forgotten_by_name() {
    let served = Served::new("[turns]\nscope = \"user\"");
    let mara = |of: &str, text: &str| {
        let mut turn = said(of, "mara", text);
        turn["tenant_id"] = "har/bour".into();
        turn
    };
    served.run(&[mara("boats", "Where is my boat?"), mara("trains", "When does the train leave?")]);
    let asked = served.history(&["forget", "--user", "mara", "--tenant", "har/bour"]);
    assert_eq!((&asked["written"], &asked["histories"][0]["entries"]), (&1.into(), &2.into()));
    let after = served.run(&[mara("planes", "Is the plane late?")]);
    assert_eq!(after.iter().map(|response| response.history.len()).collect::<Vec<_>>(), [0]);
    assert_eq!(served.histories(), [("har%2Fbour/mara".to_owned(), 1, 2)]);
}
