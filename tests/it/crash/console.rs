//! Reads the topic of responses with Kafka's own console consumer, which is neither ours nor
//! librdkafka's. A record counts once, even if the consumer reads it again because its position was
//! lost with a broker.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::broker::{Afterwards, Broker};

/// How long it may take to read to the end.
const PATIENCE: Duration = Duration::from_secs(120);

/// A console consumer at work.
pub(crate) struct Console {
    process: Child,
    kills: Afterwards,
    printed: Arc<Mutex<Printed>>,
}

/// The place of each printed record, and the id of its response.
type Printed = BTreeSet<(String, String)>;

fn lock(printed: &Mutex<Printed>) -> MutexGuard<'_, Printed> {
    printed.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Deserialize)]
struct Named {
    response_id: String,
}

impl Console {
    /// Starts reading.
    pub(crate) fn start(broker: &Broker, topic: &str) -> Self {
        let mut process = broker
            .console_consumer(topic)
            .args(["--formatter-property", "print.partition=true"])
            .args(["--formatter-property", "print.offset=true"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("deploy/kafka/console-consumer starts");
        let mut kill = Command::new("kill");
        kill.args(["-KILL", &process.id().to_string()]);
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let printed = Arc::new(Mutex::new(Printed::new()));
        let seen = Arc::clone(&printed);
        // Ends with the process, whose output it reads.
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // Each line is `Partition:0<tab>Offset:12<tab>` and the record.
                let at = line.rfind("\t{").unwrap_or_default();
                let (place, record) = line.split_at(at);
                let id = match serde_json::from_str::<Named>(record.trim_start()) {
                    Ok(named) => named.response_id,
                    Err(error) => format!("{error}: {line}"),
                };
                lock(&seen).insert((place.to_owned(), id));
            }
        });
        Self { process, kills: Afterwards::run(&kill), printed }
    }

    /// Waits until it has printed `records` records, and returns how many there are of each
    /// response.
    pub(crate) fn finish(self, records: usize) -> BTreeMap<String, usize> {
        let since = Instant::now();
        loop {
            let printed = lock(&self.printed);
            let seen = printed.len();
            if seen >= records {
                let mut ids = BTreeMap::new();
                for (_, id) in printed.iter() {
                    *ids.entry(id.clone()).or_default() += 1;
                }
                return ids;
            }
            drop(printed);
            assert!(since.elapsed() < PATIENCE, "the console consumer saw {seen} of {records}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.kills.forget();
        // Ignore the error: the process may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
