//! `turnstream run` as a process of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a drain may take. Generous: it bounds a hang, not a performance.
const DRAIN: Duration = Duration::from_secs(90);

/// A running engine; killed where it is dropped before it stopped.
pub struct Engine {
    process: Child,
    log: PathBuf,
}

impl Engine {
    /// Starts the program that Cargo built for this test; its log goes to a file.
    pub fn start(config: &Path, log: &Path) -> Self {
        let file = File::create(log).expect("a file for the log");
        let process = Command::new(env!("CARGO_BIN_EXE_turnstream"))
            .args(["run", "--config"])
            .arg(config)
            .env_remove("TURNSTREAM_LOG")
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .spawn()
            .expect("the program starts");
        Self { process, log: log.to_owned() }
    }

    /// Panics, with the end of the log, where the engine has ended by itself.
    pub fn assert_running(&mut self) {
        if let Some(status) = self.process.try_wait().expect("a child") {
            panic!("turnstream run ended by itself: {status}\n{}", self.log_end());
        }
    }

    /// Asks for a clean stop with SIGTERM, and waits for exit code 0. Gives the time it took.
    pub fn stop(mut self) -> Duration {
        self.assert_running();
        let asked = Instant::now();
        let signalled =
            Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        assert!(signalled.expect("kill runs").success());
        let status = loop {
            if let Some(status) = self.process.try_wait().expect("a child") {
                break status;
            }
            assert!(asked.elapsed() < DRAIN, "no end after SIGTERM\n{}", self.log_end());
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(status.code(), Some(0), "after SIGTERM\n{}", self.log_end());
        asked.elapsed()
    }

    /// The last lines of its log.
    pub fn log_end(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It has ended already, or ends now.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
