//! Tests the topic of knowledge on a real Kafka: what `knowledge put` and `delete` write to it,
//! what a follower reads of it, and how `run` begins with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use turnstream_knowledge::Change;
use turnstream_log::kafka::{KafkaConfig, follow};
use turnstream_log::{Follower, Record, Topic};

use crate::broker::{Broker, said};
use crate::kafka::engine::Engine;

/// Partitions of the topic of knowledge; other topics have a different number.
const PARTITIONS: i32 = 3;

/// How long the test waits without any progress before it gives up.
const PATIENCE: Duration = Duration::from_secs(90);

#[test]
fn the_topic_of_knowledge_on_a_real_kafka() {
    let test = "the_topic_of_knowledge_on_a_real_kafka";
    let Some(broker) = Broker::start_or_skip(test) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let site = KnowledgeSite { broker: &broker, folder: folder.path() };

    // The topic does not exist, and must not be created.
    let strict = site.config("strict", "");
    let (code, report) = site.knowledge("put", &strict, &COFFEE);
    assert_eq!(code, Some(6), "{report}");
    let error = report["error"].as_str().expect("an error");
    assert!(error.contains("topic `knowledge`") && error.contains("create_topics"), "{error}");

    let config = site.config(
        "turnstream",
        &format!("create_topics = true\ncreate_partitions = 2\ncreate_knowledge_partitions = {PARTITIONS}\n"),
    );
    // One fact: a client that is not ours finds it where it was written.
    let (code, report) = site.knowledge("put", &config, &COFFEE);
    assert_eq!((code, &report["written"]), (Some(0), &Value::from(1)), "{report}");
    let place = &report["partitions"][0];
    let read = site.read_with_kcat();
    assert_eq!(read.len(), 1);
    assert_eq!(
        (read[0].0.into(), read[0].1.into()),
        (place["partition"].clone(), place["first_offset"].clone())
    );
    assert!(read[0].2.contains(r#""head":"black coffee""#), "normalised: {}", read[0].2);

    // Many facts, over all partitions, and some taken back for good, one only for a while.
    let facts: String = (0..300).map(|at| format!("IsA\tthing {at}\tthing\t1\tlist\n")).collect();
    let facts = site.file("facts.tsv", &format!("{facts}bad line\n"));
    let (code, report) = site.knowledge("put", &config, &[&facts]);
    assert_eq!((code, &report["written"], &report["bad"]), (Some(0), &300.into(), &1.into()));
    assert_eq!(report["files"][0]["bad_lines"][0]["line"], Value::from(301));
    assert_eq!(report["partitions"].as_array().map(Vec::len), Some(3));
    let gone: String = (0..30).map(|at| format!("IsA\tthing {at}\tthing\n")).collect();
    let gone = site.file("gone.tsv", &gone);
    let (code, _) = site.knowledge("delete", &config, &[&gone, "--source", "list"]);
    assert_eq!(code, Some(0));
    let mut line = COFFEE.to_vec();
    line.push("--tombstone");
    assert_eq!(site.knowledge("delete", &config, &line).0, Some(0));

    let mut followed = Followed::open(&site);
    followed.catch_up();
    assert_eq!(followed.records.len(), 1 + 300 + 30 + 1);
    let partitions: BTreeSet<i32> = followed.records.iter().map(|it| it.partition).collect();
    assert_eq!(partitions.len(), 3);
    let standing = followed.standing();
    let stands = |at: usize| standing[&format!("thing {at}")];
    assert!((0..30).all(|at| !stands(at)) && (30..300).all(stands));
    assert!(!standing["black coffee"], "a tombstone takes back as well");
    let values = |head: &str| followed.values(head);
    assert_eq!(values("thing 3")[1].as_deref(), Some(RETRACTED), "it lasts");
    assert_eq!(values("black coffee")[1], None);

    // The follower continues with later changes.
    assert_eq!(site.knowledge("put", &config, &COFFEE).0, Some(0));
    followed.until("what came later", |it| it.standing()["black coffee"]);
    assert!(followed.has_no_lag());

    runs(&site, &config);
}

/// Without a broker: the first turn knows the facts that were put while no engine served.
#[test]
fn an_embedded_log_is_learned_before_the_first_turn() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let config = path("turnstream.toml");
    let text = format!(
        "[responses]\ntrace = \"inline\"\n[log]\nkind = \"embedded\"\ndirectory = {:?}\n\
         [log.embedded]\npartitions = 1\n",
        path("log")
    );
    std::fs::write(&config, text).expect("written");
    let offsets = |conversation: &str| {
        let turn = serde_json::json!({
            "conversation_id": conversation, "speaker": "user", "text": "Black coffee?",
        });
        std::fs::write(path("turns"), format!("{turn}\n")).expect("written");
        let mut run = crate::turnstream(&["run", "--config", &config]);
        run.stdin(File::open(path("turns")).expect("turns"));
        let out = said(&run.output().expect("the program runs"), "turnstream run");
        let response: Value = serde_json::from_str(out.trim()).expect("one response");
        response["knowledge"]["offsets"].clone()
    };
    let none = offsets("one");
    assert!(none.as_object().is_none_or(|of| of.values().all(|end| *end == 0)), "{none}");
    for (times, conversation) in [(1, "two"), (2, "three")] {
        let mut put = crate::turnstream(&["knowledge", "put", "--config", &config]);
        said(&put.args(COFFEE).output().expect("the program runs"), "knowledge put");
        assert_eq!(offsets(conversation), serde_json::json!({ "0": times }));
    }
}

/// Checks that an engine learns what is there before it is ready, skips records that are no change,
/// and goes on learning; one that may hold less than there is ends and says so.
fn runs(site: &KnowledgeSite<'_>, config: &Path) {
    site.write_with_kcat("no key of ours\t{}\n");
    let log = site.folder.join("run.log");
    let mut engine = Engine::start(config, &log);
    let until = |engine: &mut Engine, what: &str| {
        let deadline = Instant::now() + PATIENCE;
        while !engine.log().contains(what) {
            engine.assert_running();
            assert!(Instant::now() < deadline, "no `{what}`\n{}", engine.log_end());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(&mut engine, "restored");
    let text = engine.log();
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no `{what}`\n{text}"));
    assert!(at("caught up") < at("restored"), "turns wait for it\n{text}");
    assert!(text.contains("a record is not a change") && text.contains("offset="), "{text}");
    engine.stop();

    let narrow = site.config_with("narrow", "", "[knowledge]\nmax_live_changes = 100\n");
    let mut engine = Engine::start(&narrow, &site.folder.join("narrow.log"));
    let status = engine.ended(PATIENCE);
    assert_eq!(status.code(), Some(6), "{}", engine.log_end());
    for said in ["knowledge.max_live_changes allows 100", "turnstream knowledge import"] {
        assert!(engine.log().contains(said), "no `{said}`\n{}", engine.log_end());
    }
    // Without live knowledge, the topic is not needed.
    let off = site.config_with("off", "", "[knowledge]\nlive = false\n");
    let other = std::fs::read_to_string(&off).expect("read");
    let other = other.replace("[log.kafka]\n", "[log.kafka]\ntopics.knowledge = \"nowhere\"\n");
    std::fs::write(&off, other).expect("written");
    let mut engine = Engine::start(&off, &site.folder.join("off.log"));
    until(&mut engine, "restored");
    engine.stop();
}

const COFFEE: [&str; 10] = [
    "--source",
    "ours",
    "--head",
    "Black_Coffee",
    "--relation",
    "UsedFor",
    "--tail",
    "wake up",
    "--bad-lines",
    "3",
];

const RETRACTED: &str = r#"{"weight":1.0,"language":"en","retracted":true}"#;

/// The broker, and a folder for files.
struct KnowledgeSite<'a> {
    broker: &'a Broker,
    folder: &'a Path,
}

impl KnowledgeSite<'_> {
    fn config(&self, name: &str, more: &str) -> PathBuf {
        self.config_with(name, more, "")
    }

    fn config_with(&self, name: &str, kafka: &str, more: &str) -> PathBuf {
        let text = format!(
            "{more}[log.kafka]\nbootstrap_servers = \"{}\"\n{kafka}",
            self.broker.bootstrap()
        );
        PathBuf::from(self.file(&format!("{name}.toml"), &text))
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    }

    /// Returns exit code and report of `turnstream knowledge put` or `delete`.
    fn knowledge(&self, what: &str, config: &Path, words: &[&str]) -> (Option<i32>, Value) {
        let mut command = crate::turnstream(&["knowledge", what, "--json", "--config"]);
        let done = command.arg(config).args(words).output().expect("the program runs");
        let out = String::from_utf8(done.stdout).expect("text");
        let report = serde_json::from_str(out.lines().last().unwrap_or_default());
        let report = report.unwrap_or_else(|error| {
            panic!("{error}: {out}\n{}", String::from_utf8_lossy(&done.stderr))
        });
        (done.status.code(), report)
    }

    /// Returns partition, offset and key of every record of the topic.
    fn read_with_kcat(&self) -> Vec<(i64, i64, String)> {
        let mut kcat = self.broker.kcat();
        kcat.args(["-C", "-t", "knowledge", "-o", "beginning", "-e", "-q", "-f", "%p\t%o\t%k\n"]);
        let read = said(&kcat.output().expect("kcat runs"), "kcat -C");
        let line = |line: &str| {
            let mut parts = line.splitn(3, '\t');
            let mut next = || parts.next().expect("three parts").to_owned();
            let (partition, offset) = (next(), next());
            (partition.parse().expect("a number"), offset.parse().expect("a number"), next())
        };
        read.lines().map(line).collect()
    }

    fn write_with_kcat(&self, line: &str) {
        let file = self.file("lines", line);
        let mut kcat = self.broker.kcat();
        kcat.args(["-P", "-t", "knowledge", "-K", "\t", "-l", &file]);
        said(&kcat.output().expect("kcat runs"), "kcat -P");
    }
}

/// A follower of the topic, and the records that it returned.
struct Followed {
    follower: Box<dyn Follower>,
    records: Vec<Record>,
}

impl Followed {
    fn open(site: &KnowledgeSite<'_>) -> Self {
        let bootstrap_servers = site.broker.bootstrap().to_owned();
        let config = KafkaConfig { bootstrap_servers, ..KafkaConfig::default() };
        Self {
            follower: Box::new(follow(&config, Topic::Knowledge).expect("the topic")),
            records: Vec::new(),
        }
    }

    fn until(&mut self, what: &str, so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !so(self) {
            assert!(Instant::now() < deadline, "{what} does not come: {:?}", self.records.last());
            self.records.extend(self.follower.poll(Duration::from_millis(50)).expect("polled"));
        }
    }

    fn catch_up(&mut self) {
        self.until("the end", |it| it.follower.has_caught_up());
    }

    fn has_no_lag(&mut self) -> bool {
        self.until("no lag", |it| it.follower.lag().values().all(|lag| *lag == 0));
        self.follower.positions().len() == PARTITIONS as usize
    }

    fn of(record: &Record) -> Change {
        let key = record.key.as_deref().expect("a key");
        Change::read(key, record.value.as_deref()).expect("a change")
    }

    /// Returns by head whether the fact holds in the end.
    fn standing(&self) -> BTreeMap<String, bool> {
        let change = |record: &Record| {
            let change = Self::of(record);
            (change.key.head, change.upsert.is_some())
        };
        self.records.iter().map(change).collect()
    }

    /// Returns the values of the records about a head, in their order.
    fn values(&self, head: &str) -> Vec<Option<String>> {
        let about = self.records.iter().filter(|record| Self::of(record).key.head == head);
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).expect("text");
        about.map(|record| record.value.as_ref().map(text)).collect()
    }
}
