//! Runs `turnstream run`, or another command that serves, in a process of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::broker::Afterwards;

/// How long a drain may take. Generous: it bounds a hang, not a performance.
const DRAIN: Duration = Duration::from_secs(90);

/// A running engine; killed if it is dropped before it stopped.
pub(crate) struct Engine {
    process: Child,
    /// Kills the engine if this process is killed.
    kills: Afterwards,
    config: PathBuf,
    log: PathBuf,
}

impl Engine {
    /// Starts the program that Cargo built for this test; its log goes to a file.
    pub(crate) fn start(config: &Path, log: &Path) -> Self {
        Self::start_command("run", config, log)
    }

    /// Starts another command than `run` that goes on until it is told to stop.
    pub(crate) fn start_command(command: &str, config: &Path, log: &Path) -> Self {
        let file = File::create(log).expect("a file for the log");
        let process = crate::turnstream(&[command, "--config"])
            .arg(config)
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .spawn()
            .expect("the program starts");
        let mut kill = Command::new("kill");
        kill.args(["-KILL", &process.id().to_string()]);
        Self {
            process,
            kills: Afterwards::run(&kill),
            config: config.to_owned(),
            log: log.to_owned(),
        }
    }

    /// Panics, with the end of the log, if the engine has ended by itself.
    pub(crate) fn assert_running(&mut self) {
        if let Some(status) = self.status() {
            panic!("turnstream ended by itself: {status}\n{}", self.log_end());
        }
    }

    /// Asks for a clean stop with SIGTERM, and waits for exit code 0. Returns the time it took.
    pub(crate) fn stop(mut self) -> Duration {
        self.assert_running();
        self.ask_to_stop();
        let asked = Instant::now();
        let status = self.ended(DRAIN);
        assert_eq!(status.code(), Some(0), "after SIGTERM\n{}", self.log_end());
        asked.elapsed()
    }

    /// Sends SIGTERM.
    pub(crate) fn ask_to_stop(&self) {
        self.signal("TERM");
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(sent.expect("kill runs").success(), "SIG{name}");
    }

    /// Kills it at once, as a crash would.
    pub(crate) fn kill(mut self) {
        self.process.kill().expect("a process of ours");
        let status = self.process.wait().expect("a child");
        assert!(status.code().is_none(), "it had ended by itself: {status}\n{}", self.log_end());
    }

    /// Returns its exit status, if it has ended.
    pub(crate) fn status(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().expect("a child")
    }

    /// Waits for its end, and returns its exit status.
    pub(crate) fn ended(&mut self, within: Duration) -> ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.status() {
                return status;
            }
            assert!(
                since.elapsed() < within,
                "no end within {within:?}\n{}\n{}",
                self.held_back(),
                self.log_end()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns its log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns what holds readers of its topics back, as `turnstream transactions show` prints it.
    pub(crate) fn held_back(&self) -> String {
        let mut show = crate::turnstream(&["transactions", "show", "--config"]);
        let shown = show.arg(&self.config).output().expect("the program runs");
        let text = [shown.stdout, shown.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Returns the last lines of its log.
    pub(crate) fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.kills.forget();
        // Ignore the error: the process may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
