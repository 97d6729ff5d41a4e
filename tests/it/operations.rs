//! Tests what an operator meets: log-ins, exit codes, open transactions and keys on wrong
//! partitions, on a real Kafka whose clients must log in.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::broker::{Afterwards, Broker, said};

const USER: &str = "dialogue";
const PASSWORD: &str = "correct-horse-7";

/// How long the test waits without any progress before it gives up.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn exit_codes_tell_an_operator_what_to_do() {
    let test = "exit_codes_tell_an_operator_what_to_do";
    let login = format!("{USER}:{PASSWORD}");
    let Some(broker) = Broker::start_with(test, &["--sasl", &login]) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let site = OperatorSite { broker: &broker, folder: folder.path() };

    // Nothing listens on the discard port. It takes half a minute to give up.
    let nowhere = site.config("nowhere", "127.0.0.1:9", "");
    let mut nowhere = site.run(&nowhere, PASSWORD);

    // Nor does a broker answer a client that does not log in.
    let without = site.folder.join("without.toml");
    let text = format!("[log.kafka]\nbootstrap_servers = \"{}\"\n", broker.bootstrap());
    std::fs::write(&without, text).expect("written");
    let mut without = site.run(&without, PASSWORD);

    let here = site.config("here", broker.bootstrap(), "create_partitions = 3\n");
    let refused = site.run(&here, "wrong-horse-7").ended();
    assert_eq!(refused.0, Some(6), "{}", refused.1);
    assert!(refused.1.contains("error: ") && refused.1.contains("`sasl.*`"), "{}", refused.1);
    assert!(refused.1.contains("the broker refuses the credentials"), "{}", refused.1);
    assert!(!refused.1.contains("wrong-horse-7"), "the password is shown: {}", refused.1);

    let missing = site.run(&here, PASSWORD).ended();
    assert_eq!(missing.0, Some(6), "{}", missing.1);
    assert!(missing.1.contains("topic `knowledge`") && missing.1.contains("create_topics"));

    let text = "create_topics = true\ncreate_partitions = 3\n";
    let here = site.config("here", broker.bootstrap(), text);
    let mut engine = site.run(&here, PASSWORD);
    // kcat places keys as librdkafka does, unless it is told a partition.
    let turns: Vec<String> = (0..30).map(|number| turn(&format!("c-{number}"))).collect();
    engine.until(|| site.read("turns").is_some());
    site.send(&turns, None);
    engine.until(|| site.read("responses").is_some_and(|read| read.len() == 30));
    // `c-1` belongs on one of three partitions.
    for partition in 0..3 {
        site.send(&[turn("c-1")], Some(partition));
    }
    engine.until(|| site.read("dead-letters").is_some_and(|read| read.len() == 2));
    engine.until(|| site.read("responses").is_some_and(|read| read.len() == 31));

    let shown = site.transactions(&["show", "--json"], &here);
    assert_eq!(shown, (Some(0), "{\"aborted\":null,\"held_back\":[]}\n".to_owned()));
    let unconfirmed = site.transactions(&["abort", "--json"], &here);
    assert_eq!(unconfirmed.0, Some(2), "{}", unconfirmed.1);
    engine.assert_running();
    let aborted = site.transactions(&["abort", "--yes", "--json"], &here);
    let expected = "{\"aborted\":\"turnstream-1\",\"held_back\":[]}\n";
    assert_eq!(aborted, (Some(0), expected.to_owned()));
    site.send(&[turn("c-2")], None);
    let fenced = engine.ended();
    assert_eq!(fenced.0, Some(4), "{}", fenced.1);
    assert!(fenced.1.contains("transactional id `turnstream-1`"), "{}", fenced.1);

    // The turn is not lost: the next process answers it.
    let mut engine = site.run(&here, PASSWORD);
    engine.until(|| site.read("responses").is_some_and(|read| read.len() == 32));
    drop(engine);
    let nowhere = nowhere.ended();
    assert_eq!(nowhere.0, Some(5), "{}", nowhere.1);
    assert!(nowhere.1.contains("no broker answered at 127.0.0.1:9 in 30 s: "), "{}", nowhere.1);
    assert!(nowhere.1.contains("Connection refused"), "{}", nowhere.1);
    assert!(nowhere.1.contains("check that a broker runs there"), "{}", nowhere.1);
    let without = without.ended();
    assert_eq!(without.0, Some(5), "{}", without.1);
    assert!(without.1.contains("in 30 s: ") && without.1.contains("(SASL)"), "{}", without.1);
}

fn turn(conversation: &str) -> String {
    let turn = serde_json::json!({
        "conversation_id": conversation, "speaker": "user", "text": "How do I make good coffee?",
    });
    format!("{conversation}\t{turn}\n")
}

/// The broker, and a folder for configurations and logs.
struct OperatorSite<'a> {
    broker: &'a Broker,
    folder: &'a Path,
}

impl OperatorSite<'_> {
    fn config(&self, name: &str, bootstrap: &str, more: &str) -> PathBuf {
        let path = self.folder.join(format!("{name}.toml"));
        let text = format!(
            "[turns]\npartitioner = \"crc32\"\n[log.kafka]\nbootstrap_servers = \"{bootstrap}\"\n\
             {more}[log.kafka.client]\n\"security.protocol\" = \"sasl_plaintext\"\n\
             \"sasl.mechanism\" = \"PLAIN\"\n\"sasl.username\" = \"{USER}\"\n\
             \"sasl.password\" = \"${{TEST_KAFKA_PASSWORD}}\"\n"
        );
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Starts `turnstream run`.
    fn run(&self, config: &Path, password: &str) -> Running {
        let log = config.with_extension("log");
        let file = File::create(&log).expect("a file for the log");
        let mut run = crate::turnstream(&["run", "--config"]);
        run.arg(config).env("TEST_KAFKA_PASSWORD", password);
        run.stdout(file.try_clone().expect("a second handle")).stderr(file);
        let process = run.spawn().expect("the program starts");
        let mut kill = Command::new("kill");
        kill.args(["-KILL", &process.id().to_string()]);
        Running { process, kills: Afterwards::run(&kill), log }
    }

    /// Returns exit code and standard output of `turnstream transactions`.
    fn transactions(&self, words: &[&str], config: &Path) -> (Option<i32>, String) {
        let mut command = crate::turnstream(&["transactions"]);
        command.args(words).arg("--config").arg(config).env("TEST_KAFKA_PASSWORD", PASSWORD);
        let done = command.output().expect("the program runs");
        (done.status.code(), String::from_utf8(done.stdout).expect("text"))
    }

    fn kcat(&self) -> Command {
        let mut kcat = self.broker.kcat();
        for setting in ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN"] {
            kcat.args(["-X", setting]);
        }
        kcat.args(["-X", &format!("sasl.username={USER}")]);
        kcat.args(["-X", &format!("sasl.password={PASSWORD}")]);
        kcat
    }

    /// Writes turns, to the partition that kcat chooses if none is named.
    fn send(&self, turns: &[String], partition: Option<i32>) {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(turns.concat().as_bytes()).expect("written");
        let mut kcat = self.kcat();
        kcat.args(["-P", "-t", "turns", "-K", "\t"]);
        if let Some(partition) = partition {
            kcat.args(["-p", &partition.to_string()]);
        }
        said(&kcat.arg("-l").arg(file.path()).output().expect("kcat runs"), "kcat -P");
    }

    /// Returns the committed values of a topic; `None` if it does not exist yet.
    fn read(&self, topic: &str) -> Option<Vec<String>> {
        let mut kcat = self.kcat();
        kcat.args(["-C", "-t", topic, "-o", "beginning", "-e", "-q"]);
        kcat.args(["-X", "isolation.level=read_committed"]);
        let done = kcat.stderr(Stdio::null()).output().expect("kcat runs");
        let text = String::from_utf8(done.stdout).expect("text");
        done.status.success().then(|| text.lines().map(str::to_owned).collect())
    }
}

/// A running `turnstream run`; killed if it is dropped before it ended.
struct Running {
    process: Child,
    /// Kills the process if this one is killed.
    kills: Afterwards,
    log: PathBuf,
}

impl Running {
    /// Waits until it has ended by itself, and returns exit code and log.
    fn ended(&mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().expect("a child") {
                return (status.code(), self.log());
            }
            assert!(Instant::now() < deadline, "it goes on\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for a condition while it runs.
    fn until(&mut self, so: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !so() {
            self.assert_running();
            assert!(Instant::now() < deadline, "nothing comes\n{}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn assert_running(&mut self) {
        if let Some(status) = self.process.try_wait().expect("a child") {
            panic!("turnstream run ended by itself: {status}\n{}", self.log());
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kills.forget();
        // Ignore the error: the process may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
