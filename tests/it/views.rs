//! Tests views on a real Kafka: `turnstream views` beside an engine, killed and followed by
//! another, and the final content of the compacted topic. And on an embedded log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnstream_knowledge::{Change, Upsert};
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Isolation, Message};
use turnstream_log::kafka::{KafkaConfig, write};
use turnstream_log::write::Writer;
use turnstream_log::{Record, Topic};
use turnstream_schemas::{FactKey, ViewKey, ViewName, ViewValue};

use crate::broker::{Broker, said};
use crate::kafka::engine::Engine;
use crate::kafka::kcat::{Read, read_all, send_lines};

#[path = "../../src/engine/views/recount.rs"]
mod recount;

/// Histories of two entries, so that some are evicted.
const SMALL: &str = "[history]\nmax_entries = 2\n";

/// How long the test waits without any progress before it gives up.
const PATIENCE: Duration = Duration::from_secs(90);

/// The concepts that turns name; the shipped knowledge has the first two, and nothing has the last.
const NAMED: [&str; 5] = ["coffee", "dog", "umbrella", "blorptastic", "zwiebelfisch"];

#[test]
fn views_on_a_real_kafka_are_what_a_recount_gives() {
    let test = "views_on_a_real_kafka_are_what_a_recount_gives";
    let Some(broker) = Broker::start_or_skip(test) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let site = ViewsSite { broker: &broker, folder: folder.path() };
    let serving = site.config("serving", "create_topics = true\ncreate_partitions = 3\n", "");
    let strict = site.config("strict", "", "");
    let mut engine = Engine::start(&serving, &folder.path().join("run.log"));
    until(&mut engine, "restored");
    // The engine needs no topic of views; `turnstream views` does.
    let (code, report) = site.once(&strict);
    let error = report["error"].as_str().expect("an error");
    assert!(code == Some(6) && error.contains("topic `views`"), "{report}");

    let mut writer = site.writer();
    site.turns("one", 6);
    site.answered(6);
    let (code, report) = site.once(&serving);
    assert_eq!((code, &report["responses"]), (Some(0), &6.into()), "{report}");
    assert_eq!((&report["caught_up"], &report["changes"]), (&true.into(), &0.into()), "{report}");
    site.check("once");
    let asked = &report["views"][3];
    assert_eq!(asked["view"], "concepts_asked");
    let sizes = site.rows().into_iter().filter(|(key, _)| key.view == ViewName::ConceptsAsked);
    let (keys, counts): (BTreeSet<String>, Vec<u64>) =
        sizes.map(|(key, count)| (key.key, count)).unzip();
    assert_eq!(asked["keys"], keys.len());
    assert_eq!(asked["count"], counts.iter().sum::<u64>());
    let (_, again) = site.once(&strict);
    assert_eq!((&again["written"], &again["removed"]), (&0.into(), &0.into()), "{again}");

    // It runs while turns and changes come, and is killed in the middle.
    let live = site.config("live", "", "[views]\npublish_every_ms = 20\nmax_batch_records = 3\n");
    let mut views = site.views(&live, "killed.log");
    until(&mut views, "caught up");
    site.turns("two", 12);
    let used = site.used_facts();
    site.change(&mut writer, &used[..used.len() / 2], false);
    site.change(&mut writer, &[fact("blorptastic", "thing")], true);
    let before = read_all(&broker, "views").len();
    wait("something of it", || read_all(&broker, "views").len() > before);
    views.kill();

    site.turns("three", 12);
    let asks = "Can I talk to someone, please?";
    let asks = json!({"conversation_id": "person", "speaker": "user", "text": asks});
    send_lines(&broker, &[format!("person\t{asks}").into_bytes()], &[], false);
    site.answered(31);
    site.change(&mut writer, &used[..used.len() / 4], true);
    let mut views = site.views(&live, "heir.log");
    until(&mut views, "caught up");
    site.wait_and_check("after the kill");
    let views_of = |view| site.rows().keys().any(|key| key.view == view);
    assert!(ViewName::ALL.into_iter().all(views_of), "each view has rows: {:?}", site.rows());

    // Rows go when nothing is left to count.
    site.change(&mut writer, &used[..used.len() / 2], true);
    site.change(&mut writer, &[fact("zwiebelfisch", "thing")], true);
    site.wait_and_check("after facts came back");
    let gone = [ViewName::WithdrawnFactsUsed, ViewName::ConceptsMissing];
    let missing: BTreeSet<String> =
        site.rows().into_keys().filter(|key| gone.contains(&key.view)).map(|key| key.key).collect();
    assert!(!missing.iter().any(|key| key.contains("blorp") || key.contains('/')), "{missing:?}");
    assert!(read_all(&broker, "views").iter().any(|read| read.value.is_none()), "tombstones");

    // A process that starts fences the one before, which says so.
    let mut heir = site.views(&live, "second.log");
    // The fenced process learns of it at its next write, so there must be something to write.
    until(&mut heir, "caught up");
    site.turns("four", 3);
    let status = views.ended(PATIENCE);
    assert_eq!(status.code(), Some(4), "{}", views.log_end());
    assert!(views.log().contains("turnstream-views"), "{}", views.log_end());
    site.answered(33);
    site.wait_and_check("by the second");
    heir.stop();
    engine.stop();
}

/// Without a broker: while no engine serves the directory.
#[test]
fn views_of_an_embedded_log_are_counted_while_nobody_serves_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let text = format!(
        "[source_planning]\nform = \"off\"\n{SMALL}[log]\nkind = \"embedded\"\ndirectory = {:?}\n",
        path("log")
    );
    std::fs::write(path("turnstream.toml"), text).expect("written");
    let command = |words: &[&str]| {
        let mut command = crate::turnstream(words);
        command.args(["--config", &path("turnstream.toml")]);
        command
    };
    let serve = |lines: &str| {
        std::fs::write(path("turns"), lines).expect("written");
        let turns = std::fs::File::open(path("turns")).expect("turns");
        let out = command(&["run"]).stdin(turns).output().expect("the program runs");
        said(&out, "turnstream run").lines().count()
    };
    let count = || -> Value {
        let done = command(&["views", "--json"]).output().expect("the program runs");
        let out = said(&done, "turnstream views");
        serde_json::from_str(out.lines().last().expect("a line")).expect("JSON")
    };
    let turn = |at: usize| {
        let text = format!("What of {} and {}?", NAMED[0], NAMED[3]);
        json!({"conversation_id": format!("c-{at}"), "speaker": "user", "text": text}).to_string()
            + "\n"
    };
    assert_eq!(serve(&(0..3).map(turn).collect::<String>()), 3);
    let report = count();
    let asked = &report["views"][3]["top"][0];
    assert_eq!((&asked["key"], &asked["count"]), (&"coffee".into(), &3.into()), "{report}");
    assert_eq!(report["views"][4]["top"][0]["key"], NAMED[3], "{report}");
    assert_eq!(serve(&turn(4)), 1);
    let more = count();
    assert_eq!((&more["responses"], &more["views"][3]["top"][0]["count"]), (&4.into(), &4.into()));
    let written = more["written"].as_u64().expect("a number");
    assert!(written > 0, "{more}");
    assert_eq!(count()["written"], 0, "and nothing is written that is there");

    // A conversation continues until its history is full, and then it is deleted.
    let log = || {
        EmbeddedLog::in_directory(Path::new(&path("log")), &EmbeddedConfig::default())
            .expect("the log")
    };
    let check = || {
        let log = log();
        assert_eq!(rows(&log), recounted(&log));
    };
    assert_eq!(serve(&turn(0).repeat(3)), 3);
    let full = count();
    assert_eq!(full["history_changes"], read(&log(), Topic::History).len(), "{full}");
    check();
    assert!(full["views"][7]["top"][0] == json!({"key": "capacity", "count": 2}), "{full}");
    // Conversations lie on partitions of their own or share one: readers add up.
    let rows_now = rows(&log());
    let sum = |what: &str| -> u64 {
        let is_it = |key: &ViewKey| key.view == ViewName::HistorySizes && key.key == what;
        rows_now.iter().filter(|(key, _)| is_it(key)).map(|(_, count)| count).sum()
    };
    assert_eq!((sum("scopes"), sum("entries")), (4, 5));
    let of_it = |record: &Record| {
        let key = String::from_utf8_lossy(record.key.as_deref().expect("a key")).into_owned();
        key.contains("c-0").then_some((record.partition, record.key.clone()))
    };
    let held = log();
    for (partition, key) in read(&held, Topic::History).iter().filter_map(of_it) {
        let message = Message { key, ..Message::default() };
        held.append(Topic::History, partition, message).expect("a tombstone");
    }
    drop(held);
    let less = count();
    assert!(less["removed"].as_u64() > Some(0), "{less}");
    check();
    assert_eq!((&less["views"][7]["keys"], &less["views"][7]["count"]), (&0.into(), &0.into()));

    // Another process has the directory.
    let _held = log();
    let refused = command(&["views"]).output().expect("the program runs");
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(6), "{errors}");
    assert!(errors.contains("while no `turnstream run` has it"), "{errors}");
}

/// Returns the committed records of a topic of an embedded log.
fn read(log: &EmbeddedLog, topic: Topic) -> Vec<Record> {
    let of = |partition| log.read(topic, partition, 0, usize::MAX, Isolation::ReadCommitted);
    (0..log.partitions()).flat_map(|partition| of(partition).expect("records")).collect()
}

/// Returns the rows that a reader of an embedded log's topic of views has in the end.
fn rows(log: &EmbeddedLog) -> BTreeMap<ViewKey, u64> {
    let mut rows = BTreeMap::new();
    for Record { key, value, .. } in read(log, Topic::Views) {
        let key = serde_json::from_slice(&key.expect("a key")).expect("a key of a view");
        match value {
            Some(value) => {
                let value: ViewValue = serde_json::from_slice(&value).expect("a count");
                rows.insert(key, value.count);
            }
            None => drop(rows.remove(&key)),
        }
    }
    rows
}

/// Returns what the oracle counts from an embedded log on which no knowledge was written.
fn recounted(log: &EmbeddedLog) -> BTreeMap<ViewKey, u64> {
    let response = |record: Record| {
        let value = record.value.expect("a response");
        (record.partition, serde_json::from_slice(&value).expect("a response"))
    };
    let [responses, traces] = [Topic::Responses, Topic::Traces]
        .map(|topic| read(log, topic).into_iter().map(response).collect::<Vec<_>>());
    let mut rows = recount::recount(&responses, &traces, &[]);
    let told = |record: Record| (record.partition, record.key.expect("a key"), record.value);
    let histories: Vec<_> = read(log, Topic::History).into_iter().map(told).collect();
    rows.extend(recount::recount_histories(&histories));
    rows
}

/// Returns a fact of ours.
fn fact(head: &str, tail: &str) -> FactKey {
    FactKey {
        source: "ours".to_owned(),
        head: head.to_owned(),
        relation: "IsA".to_owned(),
        tail: tail.to_owned(),
    }
}

fn until(process: &mut Engine, what: &str) {
    wait(what, || {
        process.assert_running();
        process.log().contains(what)
    });
}

fn wait(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "{what} does not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The broker, and a folder for files.
struct ViewsSite<'a> {
    broker: &'a Broker,
    folder: &'a Path,
}

impl ViewsSite<'_> {
    fn config(&self, name: &str, kafka: &str, more: &str) -> PathBuf {
        let path = self.folder.join(format!("{name}.toml"));
        let bootstrap = self.broker.bootstrap();
        let text = format!(
            "[gate]\nthreshold = 0.0\n[sources.graph]\nkind = \"graph\"\nspeak = true\n{SMALL}{more}\
             [log.kafka]\nbootstrap_servers = \"{bootstrap}\"\n{kafka}"
        );
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Returns exit code and report of `turnstream views --once`.
    fn once(&self, config: &Path) -> (Option<i32>, Value) {
        let mut command = crate::turnstream(&["views", "--once", "--json", "--config"]);
        let done = command.arg(config).output().expect("the program runs");
        let out = String::from_utf8(done.stdout).expect("text");
        let report = serde_json::from_str(out.lines().last().unwrap_or_default());
        let errors = String::from_utf8_lossy(&done.stderr);
        (done.status.code(), report.unwrap_or_else(|e| panic!("{e}: {out}\n{errors}")))
    }

    fn views(&self, config: &Path, log: &str) -> Engine {
        Engine::start_command("views", config, &self.folder.join(log))
    }

    fn writer(&self) -> impl Writer {
        let bootstrap_servers = self.broker.bootstrap().to_owned();
        let config = KafkaConfig { bootstrap_servers, ..KafkaConfig::default() };
        write(&config, Topic::Knowledge).expect("the topic of knowledge")
    }

    fn change(&self, writer: &mut impl Writer, facts: &[FactKey], stands: bool) {
        for key in facts {
            let upsert = stands.then(|| Upsert::new(1.0, "en"));
            let (key, value) = Change { key: key.clone(), upsert }.record();
            writer.write(&key, Some(&value)).expect("written");
        }
        writer.finish().expect("delivered");
    }

    /// Sends turns, three of each conversation, that name two things.
    fn turns(&self, name: &str, count: usize) {
        let turn = |at: usize| {
            let (one, other) = (NAMED[at % NAMED.len()], NAMED[(at * 2 + 1) % NAMED.len()]);
            let text = format!("What of {one} and {other}?");
            let conversation = format!("{name}-{}", at / 3);
            let turn = json!({"conversation_id": conversation, "speaker": "user", "text": text});
            format!("{conversation}\t{turn}").into_bytes()
        };
        send_lines(self.broker, &(0..count).map(turn).collect::<Vec<_>>(), &[], false);
    }

    fn answered(&self, count: usize) {
        wait("every answer", || read_all(self.broker, "responses").len() >= count);
    }

    /// Returns the responses of a topic, or the traces.
    fn responses(&self, topic: &str) -> Vec<(i32, turnstream_schemas::Response)> {
        let parse = |read: Read| {
            let value = read.value.expect("a response");
            (read.partition, serde_json::from_slice(&value).expect("a response"))
        };
        read_all(self.broker, topic).into_iter().map(parse).collect()
    }

    /// Returns the facts that ground responses so far.
    fn used_facts(&self) -> Vec<FactKey> {
        let mut used = BTreeSet::new();
        for (_, response) in self.responses("traces") {
            for evidence in response.evidence.into_iter().filter(|evidence| evidence.selected) {
                let Some(fact) = evidence.fact else { continue };
                let source = evidence.source.0;
                let key = (source, fact.head, fact.relation, fact.tail);
                used.insert(key);
            }
        }
        let key = |(source, head, relation, tail)| FactKey { source, head, relation, tail };
        let used: Vec<FactKey> = used.into_iter().map(key).collect();
        assert!(used.len() >= 4, "{used:?}");
        used
    }

    /// Returns the rows that a reader of the whole topic has in the end.
    fn rows(&self) -> BTreeMap<ViewKey, u64> {
        let mut rows = BTreeMap::new();
        for read in read_all(self.broker, "views") {
            let key = serde_json::from_slice(&read.key.expect("a key")).expect("a key of a view");
            match read.value {
                Some(value) => {
                    let value: ViewValue = serde_json::from_slice(&value).expect("a count");
                    rows.insert(key, value.count);
                }
                None => drop(rows.remove(&key)),
            }
        }
        rows
    }

    /// Returns what the oracle counts from the topics.
    fn recounted(&self) -> BTreeMap<ViewKey, u64> {
        let change = |read: Read| {
            Change::read(&read.key.expect("a key"), read.value.as_deref()).expect("a change")
        };
        let changes: Vec<Change> =
            read_all(self.broker, "knowledge").into_iter().map(change).collect();
        let mut rows =
            recount::recount(&self.responses("responses"), &self.responses("traces"), &changes);
        let told = |read: Read| (read.partition, read.key.expect("a key"), read.value);
        let histories: Vec<_> = read_all(self.broker, "history").into_iter().map(told).collect();
        rows.extend(recount::recount_histories(&histories));
        rows
    }

    fn check(&self, when: &str) {
        assert_eq!(self.rows(), self.recounted(), "{when}");
    }

    /// Waits until the present state is published; otherwise reports the differences.
    fn wait_and_check(&self, when: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.rows() != self.recounted() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(200));
        }
        self.check(when);
    }
}
