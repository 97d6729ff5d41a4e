//! Sends turns to the topic, at a fixed rate for some time.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

pub(crate) const PARTITIONS: i32 = 8;

/// The conversations, which speak in rotation.
const CONVERSATIONS: usize = 10_000;

/// Turns per second of a flood: more than any engine here serves, and not more than a disk holds.
const FLOOD_PER_SECOND: u64 = 3_000;

const TEXTS: [&str; 4] = [
    "My dog barks all night, what can I do?",
    "I had three cups of coffee and cannot sleep.",
    "It rains again. Should I take an umbrella?",
    "Thanks, that is all for today.",
];

struct Sender(BaseProducer);

impl Sender {
    fn new(bootstrap: &str) -> Self {
        let mut settings = ClientConfig::new();
        settings.set("bootstrap.servers", bootstrap).set("linger.ms", "20");
        Self(settings.create().expect("a producer"))
    }

    fn send(&self, number: usize) {
        let conversation = format!("conversation-{:05}", number % CONVERSATIONS);
        let turn = serde_json::json!({
            "conversation_id": conversation,
            "turn_id": format!("turn-{number}"),
            "speaker": "user",
            "text": TEXTS[number / CONVERSATIONS % TEXTS.len()],
        });
        let turn = turn.to_string();
        let mut record = BaseRecord::to("turns").key(&conversation).payload(&turn);
        while let Err((error, back)) = self.0.send(record) {
            let full = error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull);
            assert!(full, "{error}");
            record = back;
            self.0.poll(Duration::from_millis(5));
        }
    }

    fn flush(&self) {
        self.0.flush(Duration::from_secs(60)).expect("delivered");
    }
}

/// Sends turns for `seconds`.
pub(crate) fn flood(bootstrap: &str, seconds: u64) {
    let sender = Sender::new(bootstrap);
    let begun = Instant::now();
    let mut sent = 0;
    while begun.elapsed().as_secs() < seconds {
        let owed = begun.elapsed().as_millis() as u64 * FLOOD_PER_SECOND / 1_000;
        while sent < owed as usize {
            sender.send(sent);
            sent += 1;
        }
        sender.0.poll(Duration::from_millis(5));
    }
    sender.flush();
    println!("{sent} turns were sent");
}
