//! Tests `turnstream history import`: histories move from one log to another, and the conversations
//! go on there.

use std::path::Path;

use serde_json::{Value, json};
use turnstream_engine::histories::Histories;
use turnstream_log::Topic;
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Isolation};
use turnstream_schemas::{HistoryChange, Response, ScopeRecord};

use crate::broker::{Broker, said};
use crate::kafka::engine::Engine;
use crate::kafka::kcat::{read_all, send_lines};

/// Utterances about several subjects, so that there is something to recall and to evict.
const SAID: [&str; 8] = [
    "My dog is called Bello and likes the lake.",
    "Where can I buy coffee beans?",
    "How do I roast coffee at home?",
    "Does a dog like swimming in a lake?",
    "Which umbrella is good in the wind?",
    "How long does roasted coffee keep?",
    "Is a dog allowed at the lake?",
    "What did I say of my dog?",
];

/// Histories of four entries, of which the latest two are always recalled.
const SMALL: &str = "[gate]\nthreshold = 0.0\n[history]\nmax_entries = 4\nwindow_utterances = 2\n\
                     [turns]\nmax_timestamp_skew_seconds = 10_000_000_000\n";

/// A folder with logs that are served.
struct ImportSite<'a>(&'a Path);

impl ImportSite<'_> {
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a configuration of the embedded log of that name, and returns its path.
    fn config(&self, log: &str) -> String {
        let path = self.path(&format!("{log}.toml"));
        let directory = self.path(log);
        let text = format!(
            "{SMALL}[responses]\ntrace = \"inline\"\n[log]\nkind = \"embedded\"\ndirectory = {directory:?}\n"
        );
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Serves turns on a log; returns the responses.
    fn serve(&self, log: &str, turns: &[Value]) -> Vec<Response> {
        let lines: String = turns.iter().map(|turn| format!("{turn}\n")).collect();
        std::fs::write(self.path("turns"), lines).expect("written");
        let turns = std::fs::File::open(self.path("turns")).expect("turns");
        let mut command = crate::turnstream(&["run", "--config", &self.config(log)]);
        let out = command.stdin(turns).output().expect("the program runs");
        let lines = said(&out, "turnstream run");
        lines.lines().map(|line| serde_json::from_str(line).expect("a response")).collect()
    }

    fn export(&self, from: &[&str], name: &str) -> Histories {
        let path = self.path(name);
        let words = [&["history", "export"], from, &["--out", &path]].concat();
        said(&crate::turnstream(&words).output().expect("it runs"), "turnstream history export");
        let mut histories = Histories::default();
        for line in std::fs::read_to_string(&path).expect("a file").lines() {
            histories.take(serde_json::from_str::<HistoryChange>(line).expect("a change"));
        }
        histories
    }

    /// Runs an import; returns the exit code, and the report or the error.
    fn import(&self, words: &[&str]) -> (i32, Value) {
        let words = [&["history", "import"], words, &["--json"]].concat();
        let out = crate::turnstream(&words).output().expect("it runs");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let errors = String::from_utf8_lossy(&out.stderr);
        let last = text.lines().last().unwrap_or_else(|| panic!("{words:?}: {errors}"));
        (out.status.code().expect("a code"), serde_json::from_str(last).expect("JSON"))
    }
}

/// Runs `turnstream history` with these words; returns its report.
fn history(words: &[&str]) -> Value {
    let words = [&["history"], words, &["--json"]].concat();
    let text = said(&crate::turnstream(&words).output().expect("it runs"), "turnstream history");
    serde_json::from_str(text.lines().last().expect("a report")).expect("JSON")
}

fn turn(conversation: &str, at: usize) -> Value {
    json!({
        "conversation_id": conversation,
        "speaker": "user",
        "text": SAID[at],
        "turn_id": format!("{conversation}-{at}"),
        "timestamp": 1_700_000_000_000_i64 + 60_000 * at as i64,
    })
}

/// Returns histories as they are on any log: without the offsets of their inputs.
fn anywhere(histories: &Histories) -> Vec<Value> {
    let of = histories.iter().map(|(scope, kept)| {
        let at = |offset: &i64| kept.entries.keys().position(|id| id.offset == *offset);
        let named = |record: &ScopeRecord| {
            let categories = record.categories.iter().map(|category| {
                let groups = category.groups.iter();
                let groups = groups
                    .map(|group| (group.id, group.entries.iter().map(at).collect::<Vec<_>>()));
                (category.id, groups.collect::<Vec<_>>())
            });
            let chains = record.chains.iter();
            let chains =
                chains.map(|chain| (chain.id, chain.entries.iter().map(at).collect::<Vec<_>>()));
            json!([categories.collect::<Vec<_>>(), chains.collect::<Vec<_>>()])
        };
        let entries = kept.entries.values().map(|entry| {
            let mut entry = serde_json::to_value(entry).expect("JSON");
            entry.as_object_mut().expect("an object").remove("input");
            entry
        });
        let mut record = serde_json::to_value(&kept.record).expect("JSON");
        for gone in ["categories", "chains", "last_applied_offset"] {
            record.as_object_mut().expect("an object").remove(gone);
        }
        json!([scope, entries.collect::<Vec<_>>(), named(&kept.record), record])
    });
    of.collect()
}

#[test]
fn a_conversation_goes_on_where_its_history_was_imported() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = ImportSite(folder.path());
    let turns: Vec<Value> =
        (0..7).flat_map(|at| [turn("c-1", at), turn("c-2", (at + 3) % 7)]).collect();
    // Times increase in one of them only.
    assert_eq!(site.serve("one", &turns).len(), 14);
    let (one, two) = (site.config("one"), site.path("two"));
    let before = site.export(&["--config", &one], "one.jsonl");
    let file = site.path("one.jsonl");

    let (code, done) = site.import(&[&file, "--data", &two, "--config", &one]);
    let counts = json!({
        "scopes": 2, "entries": 8, "unchanged": 0, "replaced": 0, "written": 10, "removed": 0,
    });
    assert_eq!((code, &done), (0, &counts));
    let after = site.export(&["--data", &two], "two.jsonl");
    assert_eq!(anywhere(&after), anywhere(&before));
    for (_, kept) in after.iter() {
        assert_eq!(kept.entries.keys().map(|id| id.offset).collect::<Vec<_>>(), [-4, -3, -2, -1]);
        assert_eq!(kept.record.last_applied_offset, -1);
        assert_eq!((kept.record.evictions, kept.record.evictions_by_reason.capacity), (3, 3));
    }
    let groups = |record: &ScopeRecord| record.categories.iter().map(|it| it.groups.len()).sum();
    let groups: Vec<usize> = after.iter().map(|(_, kept)| groups(&kept.record)).collect();
    assert!(groups.iter().any(|groups| *groups > 1), "{groups:?}");
    // A second import, also of what was exported there, finds everything there already.
    for file in [&file, &site.path("two.jsonl")] {
        let (code, again) = site.import(&[file, "--data", &two]);
        assert_eq!((code, &again["unchanged"], &again["written"]), (0, &2.into(), &0.into()));
    }

    // The other log shows the same, and the next turn recalls what it would have recalled.
    let shown = |from: &[&str]| -> Value {
        let words = [&["history", "show", "c-1", "--json"], from].concat();
        let out = said(&crate::turnstream(&words).output().expect("it runs"), "history show");
        serde_json::from_str(&out).expect("JSON")
    };
    let (old, new) = (shown(&["--config", &one]), shown(&["--data", &two, "--config", &one]));
    assert_eq!((&old["categories"], &old["chains"]), (&new["categories"], &new["chains"]));
    let [stayed, moved] = ["one", "two"].map(|log| site.serve(log, &[turn("c-1", 7)]));
    let ([stayed], [moved]) = (&stayed[..], &moved[..]) else { panic!("one response each") };
    assert_eq!((&stayed.text, &stayed.evicted), (&moved.text, &moved.evicted));
    assert_eq!(stayed.history, moved.history);
    assert!(stayed.history.len() > 1 && stayed.evicted.len() == 1, "{stayed:?}");
    assert_eq!(moved.input.offset, 0, "the first turn of that log");
    let [stayed, moved] = [
        site.export(&["--config", &one], "one.jsonl"),
        site.export(&["--data", &two], "two.jsonl"),
    ]
    .map(|histories| anywhere(&unnamed(&histories)));
    assert_eq!(stayed, moved);

    // The conversation went on, so an import does not replace its history without being told.
    let first = site.path("first.jsonl");
    std::fs::write(&first, lines_of(&before)).expect("written");
    let (code, refused) = site.import(&[&first, "--data", &two]);
    assert_eq!(code, 3, "{refused}");
    assert!(
        refused["error"].as_str().expect("text").contains("already has a history of `default/c-1`"),
        "{refused}"
    );
    let (code, replaced) = site.import(&[&first, "--data", &two, "--replace"]);
    assert_eq!((code, &replaced["replaced"], &replaced["unchanged"]), (0, &1.into(), &1.into()));
    // One of its four entries was evicted for the new one, which is removed again.
    assert_eq!(replaced["removed"], 1, "{replaced}");
    assert_eq!(anywhere(&site.export(&["--data", &two], "two.jsonl")), anywhere(&before));
}

/// Returns histories without the ids of responses, which are coordinates.
fn unnamed(histories: &Histories) -> Histories {
    let mut unnamed = Histories::default();
    for mut change in histories.changes() {
        if let HistoryChange::Entry { entry, .. } = &mut change {
            entry.response_turn_id = None;
        }
        unnamed.take(change);
    }
    unnamed
}

fn lines_of(histories: &Histories) -> String {
    let line = |change| serde_json::to_string(&change).expect("JSON") + "\n";
    histories.changes().map(line).collect()
}

#[test]
fn nothing_is_written_of_what_cannot_be_imported() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = ImportSite(folder.path());
    let (file, data) = (site.path("broken.jsonl"), site.path("log"));
    let scope = r#"{"change":"scope","key":{"scope":"default/c"},"record":{"schema_version":1,"last_applied_offset":3,"latest_event_time":5,"turns":1,"evictions":0}}"#;
    std::fs::write(&file, format!("{scope}\n{{\"change\":\"entry\"}}\n")).expect("written");
    let (code, refused) = site.import(&[&file, "--data", &data]);
    assert_eq!(code, 3, "{refused}");
    assert!(refused["error"].as_str().expect("text").contains("broken.jsonl:2"), "{refused}");
    assert!(!Path::new(&data).exists(), "no log was made");

    std::fs::write(&file, format!("{scope}\n")).expect("written");
    let embedded = EmbeddedConfig::default();
    let log = EmbeddedLog::in_directory(Path::new(&data), &embedded).expect("a log");
    let (code, refused) = site.import(&[&file, "--data", &data]);
    assert_eq!(code, 6, "{refused}");
    assert!(refused["error"].as_str().expect("text").contains("has this embedded log open"));
    assert!((0..embedded.partitions).all(|partition| log.end(Topic::History, partition) == 0));
    drop(log);
    assert_eq!(site.import(&[&file, "--data", &data]).0, 0);
    let log = EmbeddedLog::in_directory(Path::new(&data), &embedded).expect("a log");
    let there = (0..embedded.partitions).flat_map(|partition| {
        log.read(Topic::History, partition, 0, 9, Isolation::ReadCommitted).expect("records")
    });
    assert_eq!(there.count(), 1);
}

/// Imports from an embedded log into Kafka, which no engine may serve meanwhile, and one serves
/// afterwards.
#[test]
fn histories_go_into_a_kafka_that_nobody_serves() {
    let test = "histories_go_into_a_kafka_that_nobody_serves";
    let Some(broker) = Broker::start_or_skip(test) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let site = ImportSite(folder.path());
    let conversations: Vec<String> = (0..6).map(|at| format!("c-{at}")).collect();
    let turns: Vec<Value> =
        (0..3).flat_map(|at| conversations.iter().map(move |it| turn(it, at))).collect();
    assert_eq!(site.serve("one", &turns).len(), 18);
    let before = site.export(&["--config", &site.config("one")], "one.jsonl");
    let file = site.path("one.jsonl");

    let config = |name: &str, turns: &str| {
        let (path, bootstrap) = (site.path(name), broker.bootstrap());
        let text = format!(
            "{SMALL}{turns}[log.kafka]\nbootstrap_servers = \"{bootstrap}\"\n\
             create_topics = true\ncreate_partitions = 3\n"
        );
        std::fs::write(&path, text).expect("written");
        path
    };
    let (unchecked, crc32) =
        (config("unchecked.toml", ""), config("crc32.toml", "partitioner = \"crc32\"\n"));
    let (code, refused) = site.import(&[&file, "--config", &unchecked]);
    assert_eq!(code, 2, "{refused}");
    assert!(refused["error"].as_str().expect("text").contains("turns.partitioner"), "{refused}");
    let (code, done) = site.import(&[&file, "--config", &crc32]);
    assert_eq!((code, &done["scopes"], &done["written"]), (0, &6.into(), &24.into()), "{done}");
    let after = site.export(&["--config", &crc32], "two.jsonl");
    assert_eq!(anywhere(&after), anywhere(&before));

    // The engine starts with them, at the first turn, although it served nothing here before.
    let engine = Engine::start(Path::new(&crc32), &folder.path().join("run.log"));
    let line =
        |conversation: &String| format!("{conversation}\t{}", turn(conversation, 3)).into_bytes();
    send_lines(&broker, &conversations.iter().map(line).collect::<Vec<_>>(), &[], false);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
    while read_all(&broker, "responses").len() < 6 {
        assert!(std::time::Instant::now() < deadline, "{}", engine.log_end());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    for read in read_all(&broker, "traces") {
        let response: Response =
            serde_json::from_slice(&read.value.expect("a value")).expect("a response");
        let recalled: Vec<&str> =
            response.history.iter().map(|recalled| recalled.turn_id.as_str()).collect();
        let first = format!("{}-0", response.conversation_id);
        assert!(recalled.contains(&first.as_str()), "the dog is remembered: {recalled:?}");
    }
    let (code, refused) = site.import(&[&file, "--config", &crc32, "--replace"]);
    assert_eq!(code, 6, "{refused}");
    assert!(refused["error"].as_str().expect("text").contains("engines serve"), "{refused}");
    engine.stop();
    let (code, refused) = site.import(&[&file, "--config", &crc32]);
    assert_eq!(code, 3, "{refused}");
    let (code, replaced) = site.import(&[&file, "--config", &crc32, "--replace"]);
    assert_eq!((code, &replaced["replaced"]), (0, &6.into()), "{replaced}");
    let again = site.export(&["--config", &crc32], "three.jsonl");
    assert_eq!(anywhere(&again), anywhere(&before));

    // `show` reports what is on the topic, and the engine that starts next forgets it on demand.
    let entries = || -> Vec<u64> {
        let list = history(&["show", "--config", &crc32]);
        let of = |scope: &Value| scope["entries"].as_u64().expect("a number");
        list["scopes"].as_array().expect("scopes").iter().map(of).collect()
    };
    assert_eq!(entries(), [3; 6]);
    let asked = history(&["forget", "c-0", "--config", &crc32]);
    assert_eq!(asked["written"], 1, "{asked}");
    let engine = Engine::start(Path::new(&crc32), &folder.path().join("again.log"));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
    while entries() != [0, 3, 3, 3, 3, 3] {
        assert!(std::time::Instant::now() < deadline, "{:?}: {}", entries(), engine.log_end());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    engine.stop();
}
