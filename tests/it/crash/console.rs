//! Kafka's own console consumer at the topic of responses: a reader that is neither ours nor
//! librdkafka's.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::broker::{Afterwards, Broker};

/// How long it may take to read to the end.
const PATIENCE: Duration = Duration::from_secs(120);

/// A console consumer at work.
pub(crate) struct Console {
    process: Child,
    kills: Afterwards,
    lines: Arc<AtomicUsize>,
    /// How often it printed each response.
    ids: Arc<Mutex<BTreeMap<String, usize>>>,
}

#[derive(Deserialize)]
struct Named {
    response_id: String,
}

impl Console {
    /// Begins to read.
    pub(crate) fn start(broker: &Broker, topic: &str) -> Self {
        let mut process = broker
            .console_consumer(topic)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("deploy/kafka/console-consumer starts");
        let mut kill = Command::new("kill");
        kill.args(["-KILL", &process.id().to_string()]);
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let lines = Arc::new(AtomicUsize::new(0));
        let ids = Arc::new(Mutex::new(BTreeMap::new()));
        let (counted, seen) = (Arc::clone(&lines), Arc::clone(&ids));
        // Ends with the process, whose output it reads.
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let id = match serde_json::from_str::<Named>(&line) {
                    Ok(named) => named.response_id,
                    Err(error) => format!("{error}: {line}"),
                };
                *seen.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_default() += 1;
                counted.fetch_add(1, Ordering::Release);
            }
        });
        Self { process, kills: Afterwards::run(&kill), lines, ids }
    }

    /// Waits until it printed so many lines, and gives how often it printed each response.
    pub(crate) fn finish(self, lines: usize) -> BTreeMap<String, usize> {
        let since = Instant::now();
        while self.lines.load(Ordering::Acquire) < lines {
            let seen = self.lines.load(Ordering::Relaxed);
            assert!(since.elapsed() < PATIENCE, "the console consumer saw {seen} of {lines}");
            std::thread::sleep(Duration::from_millis(50));
        }
        std::mem::take(&mut *self.ids.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.kills.forget();
        // It has ended already, or ends now.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
