//! A real Kafka for a test: started through `deploy/kafka/` in a data folder of its own, and
//! stopped when the value is dropped, also by a panic.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

/// One test with a broker runs at a time: on a few cores, two brokers with their engines starve each other until
/// sessions expire.
static ALONE: Mutex<()> = Mutex::new(());

/// A running broker.
pub(crate) struct Broker {
    bootstrap: String,
    // Dropped before the folder.
    _stops: Afterwards,
    data: TempDir,
    // Released when the broker has stopped.
    _alone: MutexGuard<'static, ()>,
}

impl Broker {
    /// Starts a broker, or says loudly why the test that needs it is skipped and gives `None`.
    ///
    /// # Panics
    ///
    /// Where a program is missing and the environment has `CI`; where the broker does not start
    /// though every program is there.
    pub(crate) fn start_or_skip(test: &str) -> Option<Self> {
        Self::start_with(test, &[])
    }

    /// The same, with options of `deploy/kafka/start`.
    ///
    /// # Panics
    ///
    /// As [`Broker::start_or_skip`].
    pub(crate) fn start_with(test: &str, options: &[&str]) -> Option<Self> {
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
        // A test that failed does not fail the next one.
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        said(&script("fetch").output().expect("deploy/kafka/fetch runs"), "deploy/kafka/fetch");
        let data = tempfile::tempdir().expect("a folder for the broker");
        // From here on the folder's broker is stopped, whatever happens. There is nothing in the
        // folder that a clean end would save.
        let mut stop = script("stop");
        stop.arg("--data").arg(data.path()).args(["--wait", "0"]);
        let stops = Afterwards::run(&stop);
        let mut start = script("start");
        start.arg("--data").arg(data.path()).args(["--port", "0"]).args(options);
        let said = said(&start.output().expect("deploy/kafka/start runs"), "deploy/kafka/start");
        let bootstrap = said.lines().find_map(|line| line.strip_prefix("bootstrap="));
        let bootstrap = bootstrap.expect("deploy/kafka/start prints bootstrap=").to_owned();
        Some(Self { bootstrap, _stops: stops, data, _alone: alone })
    }

    /// Ends it, with what it holds.
    pub(crate) fn stop(&self) {
        let mut stop = script("stop");
        said(&stop.arg("--data").arg(self.data.path()).output().expect("it runs"), "stop");
    }

    /// Starts it again on its port, with what it held.
    pub(crate) fn start_again(&self) {
        let mut start = script("start");
        said(&start.arg("--data").arg(self.data.path()).output().expect("it runs"), "start");
    }

    /// Kills it as a crash would, and starts it again after a while, where it was.
    pub(crate) fn crash(&self, away: Duration) {
        let mut stop = script("stop");
        stop.arg("--data").arg(self.data.path()).args(["--wait", "0"]);
        said(&stop.output().expect("deploy/kafka/stop runs"), "deploy/kafka/stop");
        std::thread::sleep(away);
        self.start_again();
    }

    /// Ends one node of a cluster, counted from 1: with a farewell, so that others lead at once what
    /// it led, or killed, as by a crash.
    pub(crate) fn end_node(&self, node: usize, killed: bool) {
        let mut stop = script("stop");
        stop.arg("--data").arg(self.data.path()).args(["--broker", &node.to_string()]);
        if killed {
            stop.args(["--wait", "0"]);
        }
        said(&stop.output().expect("deploy/kafka/stop runs"), "deploy/kafka/stop");
    }

    /// Starts one node of a cluster again, with its port and its records, and waits until it answers.
    pub(crate) fn start_node(&self, node: usize) {
        let mut start = script("start");
        start.arg("--data").arg(self.data.path()).args(["--broker", &node.to_string()]);
        said(&start.output().expect("deploy/kafka/start runs"), "deploy/kafka/start");
    }

    /// The file that each of its nodes logs to.
    pub(crate) fn logs(&self) -> Vec<PathBuf> {
        let folders = [".", "1", "2", "3"].map(|node| self.data.path().join(node));
        folders
            .map(|folder| folder.join("broker.log"))
            .into_iter()
            .filter(|log| log.is_file())
            .collect()
    }

    /// The certificate that a broker over TLS is known by, where it was started so.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.data.path().join("ca.pem")
    }

    /// Where clients find it: `host:port`.
    pub(crate) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Creates turnstream's topics, their names behind a prefix, with so many partitions each.
    pub(crate) fn create_topics(&self, prefix: &str, partitions: i32) {
        let mut topics = script("topics");
        topics.args(["--prefix", prefix]);
        topics.args(["--bootstrap", &self.bootstrap, "--partitions", &partitions.to_string()]);
        said(&topics.output().expect("deploy/kafka/topics runs"), "deploy/kafka/topics");
    }

    /// Kafka's own console consumer, which reads all committed records of a topic as they come,
    /// one a line.
    pub(crate) fn console_consumer(&self, topic: &str) -> Command {
        let mut consumer = script("console-consumer");
        consumer.args(["--bootstrap-server", &self.bootstrap, "--topic", topic]);
        consumer.args(["--from-beginning", "--isolation-level", "read_committed"]);
        consumer
    }

    /// `kcat`, pointed at this broker.
    pub(crate) fn kcat(&self) -> Command {
        let mut kcat = Command::new("kcat");
        // `-F` keeps a configuration file of the user's out of the test.
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
    /// Starts a shell that waits for the end of its input, which is ours to close or to lose.
    pub(crate) fn run(command: &Command) -> Self {
        let waiting = Command::new("sh")
            .args(["-c", "cat >/dev/null; exec \"$@\"", "sh"])
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A group of its own, so that Ctrl-C reaches us and not it.
            .process_group(0)
            .spawn();
        Self { waiting: waiting.expect("a shell") }
    }

    /// The command is not needed any more.
    pub(crate) fn forget(&mut self) {
        // It is gone already, or it goes now.
        let _ = self.waiting.kill();
    }
}

impl Drop for Afterwards {
    fn drop(&mut self) {
        drop(self.waiting.stdin.take());
        // A panic here would hide the one that may be on its way.
        let _ = self.waiting.wait();
    }
}

/// The standard output of a command that has to succeed.
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

/// The programs without which no broker starts and no client that is not ours talks to it.
fn missing_programs() -> Vec<&'static str> {
    let java_home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let java = java_home.unwrap_or_else(|| PathBuf::from("java"));
    // The jars may be in the cache already; then nobody needs Maven.
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
    // A program with a folder in its name stands for itself.
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
        || (program.components().count() > 1 && program.is_file())
}
