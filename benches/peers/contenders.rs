//! Starts the programs that do the task.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The variable that makes this program the bare loop: the bootstrap address, its prefix and the
/// topic of turns, separated by spaces.
pub(crate) const BARE: &str = "PEERS_BARE";

/// A program that does the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    /// A bare loop in Rust.
    Bare,
    /// Kafka Streams, its state in memory.
    Streams,
    /// turnstream with the gate closed, recall by recency and no encoder: the work of the others,
    /// and restoring, checking and eviction besides.
    ClosedRecency,
    /// turnstream with the gate closed, and the history as shipped.
    Closed,
    /// turnstream as shipped.
    AsShipped,
}

use Contender::{AsShipped, Bare, Closed, ClosedRecency, Streams};

impl Contender {
    pub(crate) const ALL: [Self; 5] = [Bare, Streams, ClosedRecency, Closed, AsShipped];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Bare => "bare",
            Streams => "streams",
            ClosedRecency => "closed-recency",
            Closed => "closed",
            AsShipped => "default",
        }
    }

    /// Returns the topics that it writes to, without the prefix.
    pub(crate) fn topics(self) -> &'static [&'static str] {
        match self {
            Bare => &["responses", "history"],
            Streams => &["responses", "-latest-changelog"],
            ClosedRecency | Closed | AsShipped => &["responses", "traces", "history"],
        }
    }

    /// Returns the keys of its configuration.
    fn config(self) -> &'static str {
        match self {
            Bare | Streams | AsShipped => "",
            Closed => "[gate]\nform = \"never\"\n",
            ClosedRecency => {
                "[gate]\nform = \"never\"\n[models]\nembedder = \"none\"\n\
                 [history.recall]\nmethod = \"recency\"\n"
            }
        }
    }

    /// Starts it on a topic of turns; the names of everything that it writes begin with `prefix`.
    pub(crate) fn start(self, site: &Site<'_>, prefix: &str, turns: &str) -> Child {
        let mut command = match self {
            Bare => {
                let mut command = Command::new(std::env::current_exe().expect("this program"));
                command.env(BARE, format!("{} {prefix} {turns}", site.bootstrap));
                command
            }
            Streams => {
                let mut command = Command::new("java");
                command.arg("-Xmx1g").arg("-cp").arg(site.jars.join("*"));
                command.arg(Path::new(HERE).join("Streams.java")).arg(site.bootstrap).arg(prefix);
                command.arg(turns).arg(format!("{prefix}responses")).arg(site.state(prefix));
                command
            }
            ClosedRecency | Closed | AsShipped => {
                let path = site.folder.join(format!("{prefix}.toml"));
                let names = ["responses", "traces", "recorded", "history"]
                    .map(|topic| format!("{topic} = \"{prefix}{topic}\"\n"))
                    .concat();
                let text = format!(
                    "{}[run]\ncache_directory = {:?}\n[log.kafka]\nbootstrap_servers = {:?}\n\
                     group_id = {prefix:?}\ntransactional_id = {prefix:?}\n[log.kafka.topics]\n\
                     turns = {turns:?}\n{names}dead_letters = \"{prefix}dead-letters\"\n",
                    self.config(),
                    site.state(prefix),
                    site.bootstrap,
                );
                std::fs::write(&path, text).expect("a configuration");
                let mut command = Command::new(env!("CARGO_BIN_EXE_turnstream"));
                command.arg("run").arg("--config").arg(path).args(["--log-level", "warn"]);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts")
    }
}

/// This bench's folder.
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers");

/// The environment that contenders share.
pub(crate) struct Site<'a> {
    pub(crate) bootstrap: &'a str,
    /// The jars of Kafka Streams.
    pub(crate) jars: PathBuf,
    /// A folder for configurations and state.
    pub(crate) folder: &'a Path,
}

impl Site<'_> {
    /// Returns the folder of a contender's local state.
    pub(crate) fn state(&self, prefix: &str) -> PathBuf {
        self.folder.join(prefix)
    }
}

/// Copies the jars of Kafka Streams beside the build, once. Prints a warning and returns `None` if
/// Maven is missing.
pub(crate) fn jars() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers-jars");
    if folder.join("complete").is_file() {
        return Some(folder);
    }
    let pom = Path::new(HERE).join("pom.xml");
    let mut fetch = Command::new("mvn");
    fetch.args(["-B", "-q", "-Dstyle.color=never", "dependency:copy-dependencies", "-f"]).arg(pom);
    let fetched = fetch.arg(format!("-DoutputDirectory={}", folder.display())).status();
    if !fetched.as_ref().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: Kafka Streams: mvn brought no jars ({fetched:?})");
        return None;
    }
    std::fs::write(folder.join("complete"), "").expect("written");
    Some(folder)
}
