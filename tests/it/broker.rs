//! A real Kafka for a test: started through `deploy/kafka/` in a data folder of its own, and
//! stopped when the value is dropped, also by a panic.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A running broker.
pub struct Broker {
    bootstrap: String,
    data: TempDir,
}

impl Broker {
    /// Starts a broker, or says loudly why the test that needs it is skipped and gives `None`.
    ///
    /// # Panics
    ///
    /// Where a program is missing and the environment has `CI`; where the broker does not start
    /// though every program is there.
    pub fn start_or_skip(test: &str) -> Option<Self> {
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
        said(&script("fetch").output().expect("deploy/kafka/fetch runs"), "deploy/kafka/fetch");
        let data = tempfile::tempdir().expect("a folder for the broker");
        // From here on the folder's broker is stopped whatever happens.
        let mut broker = Self { bootstrap: String::new(), data };
        let mut start = script("start");
        start.arg("--data").arg(broker.data.path()).args(["--port", "0"]);
        let said = said(&start.output().expect("deploy/kafka/start runs"), "deploy/kafka/start");
        let bootstrap = said.lines().find_map(|line| line.strip_prefix("bootstrap="));
        bootstrap.expect("deploy/kafka/start prints bootstrap=").clone_into(&mut broker.bootstrap);
        Some(broker)
    }

    /// Where clients find it: `host:port`.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Creates turnstream's topics with so many partitions each.
    pub fn create_topics(&self, partitions: i32) {
        let mut topics = script("topics");
        topics.args(["--bootstrap", &self.bootstrap, "--partitions", &partitions.to_string()]);
        said(&topics.output().expect("deploy/kafka/topics runs"), "deploy/kafka/topics");
    }

    /// `kcat`, pointed at this broker.
    pub fn kcat(&self) -> Command {
        let mut kcat = Command::new("kcat");
        // `-F` keeps a configuration file of the user's out of the test.
        kcat.args(["-F", "/dev/null", "-b", &self.bootstrap]).stdin(Stdio::null());
        kcat
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let mut stop = script("stop");
        // The folder goes with the value; there is nothing in it that a clean end would save.
        stop.arg("--data").arg(self.data.path()).args(["--wait", "0"]);
        match stop.output() {
            Ok(done) if done.status.success() => {}
            Ok(done) if self.bootstrap.is_empty() => {
                eprintln!("there was no broker to stop: {}", lossy(&done.stderr));
            }
            // A panic here would hide the one that may be on its way.
            Ok(done) => eprintln!("the broker could not be stopped: {}", lossy(&done.stderr)),
            Err(error) => eprintln!("the broker could not be stopped: {error}"),
        }
    }
}

/// The standard output of a command that has to succeed.
pub fn said(done: &Output, what: &str) -> String {
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
