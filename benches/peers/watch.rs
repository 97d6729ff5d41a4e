//! Reads the records that a contender commits, and measures what its process uses.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde::Deserialize;

/// The longest wait for a record.
const PATIENCE: Duration = Duration::from_secs(120);

/// A reader of committed records.
pub(crate) struct Watch(BaseConsumer);

impl Watch {
    /// Reads a topic from its beginning.
    pub(crate) fn begin(bootstrap: &str, topic: &str, partitions: i32) -> Self {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("group.id", "watch")
            .set("isolation.level", "read_committed")
            .set("enable.auto.commit", "false")
            .set("fetch.queue.backoff.ms", "5")
            .create()
            .expect("a consumer");
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition_offset(topic, partition, Offset::Beginning).expect("a partition");
        }
        consumer.assign(&list).expect("assigned");
        Self(consumer)
    }

    /// Passes on `count` values as they become visible.
    pub(crate) fn take(&self, count: usize, mut each: impl FnMut(usize, usize, &[u8])) {
        let (mut seen, mut since) = (0, Instant::now());
        while seen < count {
            match self.0.poll(Duration::from_millis(20)) {
                Some(Ok(message)) => {
                    seen += 1;
                    since = Instant::now();
                    let key = message.key().map_or(0, <[u8]>::len);
                    each(seen, key, message.payload().unwrap_or_default());
                }
                Some(Err(_)) | None => {
                    assert!(
                        since.elapsed() < PATIENCE,
                        "{seen} of {count}, and nothing more comes"
                    );
                }
            }
        }
    }

    /// Takes the records that are there: length of key, and value.
    pub(crate) fn take_all(&self, mut each: impl FnMut(usize, &[u8])) {
        let mut since = Instant::now();
        while since.elapsed() < Duration::from_secs(2) {
            if let Some(Ok(message)) = self.0.poll(Duration::from_millis(20)) {
                since = Instant::now();
                each(message.key().map_or(0, <[u8]>::len), message.payload().unwrap_or_default());
            }
        }
    }
}

/// Returns what a process has used so far: seconds of processor time, and the most memory, in MiB.
pub(crate) fn usage(process: u32) -> (f64, f64) {
    let read = |file: &str| {
        std::fs::read_to_string(format!("/proc/{process}/{file}")).expect("it is running")
    };
    let stat = read("stat");
    // After the name, which may contain anything, user and system time are the 12th and 13th
    // fields, in hundredths of a second.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    let status = read("status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    ((ticks(11) + ticks(12)) / 100.0, peak.unwrap_or_default() / 1024.0)
}

/// Returns the milliseconds until each response, from the times at which turns were sent, by id.
pub(crate) fn latencies(
    watch: &Watch,
    sent: &std::sync::Mutex<HashMap<String, Instant>>,
    count: usize,
) -> Vec<f64> {
    #[derive(Deserialize)]
    struct Answered {
        turn_id: String,
    }
    let mut took = Vec::with_capacity(count);
    watch.take(count, |_, _, value| {
        let Answered { turn_id } = serde_json::from_slice(value).expect("a response");
        let at = sent.lock().expect("the sender lives").remove(&turn_id);
        took.push(at.expect("it was sent").elapsed().as_secs_f64() * 1e3);
    });
    took
}
