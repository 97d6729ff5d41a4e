//! Runs a real Kafka for a test: starts it through `deploy/kafka/` in a data folder of its own, and
//! stops it when the value is dropped, also by a panic.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tempfile::TempDir;

/// Tests with one broker mostly wait, so as many run at a time as there are test threads. Tests that
/// crash brokers or measure how long nothing happens run alone: beside others their sessions expire
/// on a small machine.
static BROKERS: RwLock<()> = RwLock::new(());

/// A broker that lives for a minute need not be compiled twice.
const OF_SHORT_LIFE: &str = "-XX:TieredStopAtLevel=1";

/// The right to run brokers.
enum BrokerLease {
    /// Beside others.
    Beside { _lock: RwLockReadGuard<'static, ()> },
    /// Alone.
    Alone { _lock: RwLockWriteGuard<'static, ()> },
}

impl BrokerLease {
    /// Waits for it. A test that failed does not fail the next one.
    fn take(alone: bool) -> Self {
        match alone {
            false => Self::Beside { _lock: BROKERS.read().unwrap_or_else(PoisonError::into_inner) },
            true => Self::Alone { _lock: BROKERS.write().unwrap_or_else(PoisonError::into_inner) },
        }
    }
}

/// A running broker.
pub(crate) struct Broker {
    bootstrap: String,
    // Dropped before the folder.
    _stops: Afterwards,
    data: TempDir,
    // Released when the broker has stopped.
    _lease: BrokerLease,
}

impl Broker {
    /// Starts a broker, or prints why the test that needs it is skipped and returns `None`.
    ///
    /// # Panics
    ///
    /// A program is missing and the environment has `CI`, or the broker does not start although no
    /// program is missing.
    pub(crate) fn start_or_skip(test: &str) -> Option<Self> {
        Self::start_with(test, &[])
    }

    /// Starts a broker with options of `deploy/kafka/start`.
    ///
    /// # Panics
    ///
    /// As [`Broker::start_or_skip`].
    pub(crate) fn start_with(test: &str, options: &[&str]) -> Option<Self> {
        Self::start(test, options, false)
    }

    /// As [`Broker::start_with`], while no other test of this process has a broker.
    ///
    /// # Panics
    ///
    /// As [`Broker::start_or_skip`].
    pub(crate) fn start_alone(test: &str, options: &[&str]) -> Option<Self> {
        Self::start(test, options, true)
    }

    fn start(test: &str, options: &[&str], alone: bool) -> Option<Self> {
        let missing = missing_programs();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            let remedy = "deploy/packages installs what is missing";
            assert!(
                std::env::var_os("CI").is_none(),
                "{test} needs a real Kafka, and there is no {missing}; {remedy}"
            );
            eprintln!("SKIPPED: {test}: there is no {missing}; {remedy}");
            return None;
        }
        let lease = BrokerLease::take(alone);
        said(&script("fetch").output().expect("deploy/kafka/fetch runs"), "deploy/kafka/fetch");
        let data = tempfile::tempdir().expect("a folder for the broker");
        // From here on the broker stops when this value is dropped, on every path. There is nothing
        // in the folder that a clean stop would save.
        let mut stop = script("stop");
        stop.arg("--data").arg(data.path()).args(["--wait", "0"]);
        let stops = Afterwards::run(&stop);
        let mut start = script("start");
        start.arg("--data").arg(data.path()).args(["--port", "0"]).args(options);
        start.env("JDK_JAVA_OPTIONS", OF_SHORT_LIFE);
        let said = said(&start.output().expect("deploy/kafka/start runs"), "deploy/kafka/start");
        let bootstrap = said.lines().find_map(|line| line.strip_prefix("bootstrap="));
        let bootstrap = bootstrap.expect("deploy/kafka/start prints bootstrap=").to_owned();
        Some(Self { bootstrap, _stops: stops, data, _lease: lease })
    }

    /// Stops the broker cleanly.
    pub(crate) fn stop(&self) {
        let mut stop = script("stop");
        said(&stop.arg("--data").arg(self.data.path()).output().expect("it runs"), "stop");
    }

    /// Starts the broker again on its port, with its data.
    pub(crate) fn start_again(&self) {
        let mut start = script("start");
        said(&start.arg("--data").arg(self.data.path()).output().expect("it runs"), "start");
    }

    /// Kills the broker as a crash would, and starts it again on its port after `away`.
    pub(crate) fn crash(&self, away: Duration) {
        let mut stop = script("stop");
        stop.arg("--data").arg(self.data.path()).args(["--wait", "0"]);
        said(&stop.output().expect("deploy/kafka/stop runs"), "deploy/kafka/stop");
        std::thread::sleep(away);
        self.start_again();
    }

    /// Ends one node of a cluster, counted from 1: cleanly, so that other nodes take over its
    /// partitions at once, or killed, as by a crash.
    pub(crate) fn end_node(&self, node: usize, killed: bool) {
        let mut stop = script("stop");
        stop.arg("--data").arg(self.data.path()).args(["--broker", &node.to_string()]);
        if killed {
            stop.args(["--wait", "0"]);
        }
        said(&stop.output().expect("deploy/kafka/stop runs"), "deploy/kafka/stop");
    }

    /// Starts one node of a cluster again, on its port and with its records, and waits until it
    /// answers.
    pub(crate) fn start_node(&self, node: usize) {
        let mut start = script("start");
        start.arg("--data").arg(self.data.path()).args(["--broker", &node.to_string()]);
        said(&start.output().expect("deploy/kafka/start runs"), "deploy/kafka/start");
    }

    /// Returns the log file of each of its nodes.
    pub(crate) fn logs(&self) -> Vec<PathBuf> {
        let folders = [".", "1", "2", "3"].map(|node| self.data.path().join(node));
        folders
            .map(|folder| folder.join("broker.log"))
            .into_iter()
            .filter(|log| log.is_file())
            .collect()
    }

    /// Returns the certificate of a broker over TLS, if it was started as one.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.data.path().join("ca.pem")
    }

    /// Returns the address for clients: `host:port`.
    pub(crate) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Creates turnstream's topics, with a prefix before their names and `partitions` partitions
    /// each.
    pub(crate) fn create_topics(&self, prefix: &str, partitions: i32) {
        let mut topics = script("topics");
        topics.args(["--prefix", prefix]);
        topics.args(["--bootstrap", &self.bootstrap, "--partitions", &partitions.to_string()]);
        said(&topics.output().expect("deploy/kafka/topics runs"), "deploy/kafka/topics");
    }

    /// Returns Kafka's own console consumer, which prints all committed records of a topic as they
    /// come, one per line.
    pub(crate) fn console_consumer(&self, topic: &str) -> Command {
        let mut consumer = script("console-consumer");
        consumer.args(["--bootstrap-server", &self.bootstrap, "--topic", topic]);
        consumer.args(["--from-beginning", "--isolation-level", "read_committed"]);
        consumer
    }

    /// Returns `kcat`, pointed at this broker.
    pub(crate) fn kcat(&self) -> Command {
        let mut kcat = Command::new("kcat");
        // `-F` keeps the user's own configuration file out of the test.
        kcat.args(["-F", "/dev/null", "-b", &self.bootstrap]).stdin(Stdio::null());
        kcat
    }
}

/// A command that runs when this value is dropped, and also when this process ends without
/// dropping anything: killed, or by Ctrl-C.
pub(crate) struct Afterwards {
    waiting: Child,
}

impl Afterwards {
    /// Starts a shell that waits for the end of its input, which comes when we close it or die.
    pub(crate) fn run(command: &Command) -> Self {
        let waiting = Command::new("sh")
            .args(["-c", "cat >/dev/null; exec \"$@\"", "sh"])
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A process group of its own, so that Ctrl-C reaches us and not the shell.
            .process_group(0)
            .spawn();
        Self { waiting: waiting.expect("a shell") }
    }

    /// Cancels the command.
    pub(crate) fn forget(&mut self) {
        // Ignore the error: the process may have exited already.
        let _ = self.waiting.kill();
    }
}

impl Drop for Afterwards {
    fn drop(&mut self) {
        drop(self.waiting.stdin.take());
        // A panic here would hide one that is already unwinding.
        let _ = self.waiting.wait();
    }
}

/// Returns the standard output of a command that must succeed.
pub(crate) fn said(done: &Output, what: &str) -> String {
    assert!(done.status.success(), "{what}: {}: {}", done.status, lossy(&done.stderr));
    lossy(&done.stdout)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn script(name: &str) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kafka");
    let mut script = Command::new(folder.join(name));
    script.stdin(Stdio::null());
    script
}

/// Returns the missing programs, of those that start a broker and those that are clients of others.
fn missing_programs() -> Vec<&'static str> {
    let java_home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let java = java_home.unwrap_or_else(|| PathBuf::from("java"));
    // If the jars are in the cache already, Maven is not needed.
    let fetched = script("fetch").arg("--check").output().is_ok_and(|done| done.status.success());
    [
        ("Java", java.as_path(), true),
        ("Maven", Path::new("mvn"), !fetched),
        ("kcat", Path::new("kcat"), true),
    ]
    .into_iter()
    .filter(|(_, program, needed)| *needed && !is_there(program))
    .map(|(name, ..)| name)
    .collect()
}

fn is_there(program: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A program with a folder in its name is looked up as a path.
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
        || (program.components().count() > 1 && program.is_file())
}
