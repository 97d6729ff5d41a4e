//! Provides the broker of a test, with separate topics for each test.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rdkafka::admin::{NewTopic, TopicReplication};

use super::*;

/// A broker. If the test started it, it stops when this value is dropped.
pub(super) struct Broker {
    pub(super) bootstrap: String,
    pub(super) data: Option<tempfile::TempDir>,
}

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kafka");

/// Runs a script. Returns its output, or its error output.
fn run(script: &str, arguments: &[&OsStr]) -> Result<String, String> {
    let mut script = Command::new(Path::new(SCRIPTS).join(script));
    // A broker that lives for a minute need not be compiled twice.
    let done = script.env("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1").args(arguments).output();
    let done = done.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}

impl Broker {
    pub(super) fn start() -> Option<Self> {
        if let Ok(bootstrap) = std::env::var("TURNSTREAM_TEST_KAFKA") {
            return Some(Self { bootstrap, data: None });
        }
        Self::start_ours()
    }

    /// Starts a broker that the test may crash.
    pub(super) fn start_ours() -> Option<Self> {
        let data = tempfile::tempdir().unwrap();
        let words =
            [OsStr::new("--data"), data.path().as_os_str(), OsStr::new("--port"), "0".as_ref()];
        let started = run("fetch", &[]).and_then(|_| run("start", &words));
        match started {
            Ok(said) => {
                let bootstrap = said.lines().find_map(|line| line.strip_prefix("bootstrap="));
                Some(Self { bootstrap: bootstrap.unwrap().to_owned(), data: Some(data) })
            }
            Err(why) if std::env::var_os("CI").is_none() => {
                eprintln!(
                    "SKIPPED: no Kafka broker could be started, so nothing was tested: {why}"
                );
                None
            }
            Err(why) => panic!("in CI a Kafka broker is needed: {why}"),
        }
    }

    /// Kills the test's own broker, as a crash would, and starts it again after a while.
    pub(super) fn crash(&self, away: Duration) {
        let data = self.data.as_ref().expect("a broker of our own").path().as_os_str();
        run("stop", &["--data".as_ref(), data, "--wait".as_ref(), "0".as_ref()]).unwrap();
        std::thread::sleep(away);
        run("start", &["--data".as_ref(), data]).unwrap();
    }

    /// Creates topics for one test, and returns settings that name them.
    pub(super) fn fresh(&self) -> KafkaConfig {
        let config = self.unmade();
        self.make_topics(&config, PARTITIONS, |_, topic| topic);
        config
    }

    /// Returns settings that name topics for one test, without creating the topics.
    pub(super) fn unmade(&self) -> KafkaConfig {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut config = KafkaConfig {
            bootstrap_servers: self.bootstrap.clone(),
            session_timeout_ms: 15_000,
            restore_timeout_ms: 5_000,
            ..KafkaConfig::default()
        };
        let prefix = format!("test-{}-{number}", std::process::id());
        config.group_id = format!("{prefix}-g");
        config.transactional_id = format!("{prefix}-t");
        for name in [
            &mut config.topics.turns,
            &mut config.topics.responses,
            &mut config.topics.recorded,
            &mut config.topics.dead_letters,
            &mut config.topics.history,
            &mut config.topics.traces,
            &mut config.topics.conversations,
            &mut config.topics.knowledge,
            &mut config.topics.partials,
            &mut config.topics.views,
        ] {
            *name = format!("{prefix}-{name}");
        }
        config
    }

    /// Creates all topics with fit settings, which `change` may alter.
    pub(super) fn make_topics(
        &self,
        config: &KafkaConfig,
        partitions: i32,
        change: impl Fn(Topic, NewTopic<'_>) -> NewTopic<'_>,
    ) {
        let topics = Topic::ALL.map(|topic| {
            let policy = if topic.is_compacted() { "compact" } else { "delete" };
            let name = config.topics.name(topic);
            let made = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
            change(topic, made.set("cleanup.policy", policy))
        });
        let admin = topics::admin(config).unwrap();
        let made = topics::wait_for(admin.create_topics(&topics, &topics::options())).unwrap();
        for topic in made {
            // The answer comes before the broker's own metadata knows the topic.
            let name = topic.unwrap();
            let known = || {
                let metadata = admin.inner().fetch_metadata(Some(&name), REQUEST_TIMEOUT).unwrap();
                metadata.topics().iter().all(|topic| topic.error().is_none())
            };
            while !known() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(data) = &self.data {
            let words = [OsStr::new("--data"), data.path().as_os_str()];
            let stopped = Command::new(Path::new(SCRIPTS).join("stop")).args(words).status();
            assert!(stopped.unwrap().success());
        }
    }
}
