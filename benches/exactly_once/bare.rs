//! A loop that consumes, copies and produces in transactions, and does nothing else: what the
//! broker and its client cost by themselves.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use turnstream_engine::commit::CommitConfig;
use turnstream_log::kafka::KafkaConfig;

use crate::throughput::{print, turns};

/// What is written for an input.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outputs {
    /// A record as long as a response.
    One,
    /// A response, an entry and a scope's record, as the engine writes them.
    Three,
}

/// Bytes of the engine's records, as measured in this very run's topics.
const RESPONSE_BYTES: usize = 540;
const ENTRY_BYTES: usize = 280;
const SCOPE_BYTES: usize = 260;

pub(crate) fn serve(bootstrap: &str, what: Outputs) {
    let (ours, commit) = (KafkaConfig::default(), CommitConfig::default());
    let group = if what == Outputs::One { "bare" } else { "bare-three" };
    let mut reading = ClientConfig::new();
    reading
        .set("bootstrap.servers", bootstrap)
        .set("group.id", group)
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("queued.max.messages.kbytes", ours.fetch_queue_kib.to_string());
    let consumer: BaseConsumer = reading.create().expect("a consumer");
    let mut writing = ClientConfig::new();
    writing
        .set("bootstrap.servers", bootstrap)
        .set("linger.ms", "0.5")
        .set("transactional.id", group);
    let producer: BaseProducer = writing.create().expect("a producer");
    producer.init_transactions(Duration::from_secs(30)).expect("a transactional id");
    consumer.subscribe(&["turns"]).expect("subscribed");

    let payload = vec![b'x'; RESPONSE_BYTES];
    let interval = Duration::from_millis(commit.interval_ms);
    let (mut served, mut begun, mut commits) = (0, None, Vec::new());
    while served < turns() {
        let since = Instant::now();
        let mut offsets = TopicPartitionList::new();
        let mut taken = 0;
        while taken < commit.max_outcomes && since.elapsed() < interval {
            let Some(polled) = consumer.poll(Duration::from_millis(5)) else { continue };
            let Ok(message) = polled else { continue };
            if taken == 0 {
                begun.get_or_insert_with(Instant::now);
                producer.begin_transaction().expect("begun");
            }
            let key = message.key().unwrap_or_default();
            let send = |topic: &str, bytes: usize| {
                let record = BaseRecord::to(topic).partition(message.partition()).key(key);
                producer.send(record.payload(&payload[..bytes])).expect("room in the queue");
            };
            send("responses", RESPONSE_BYTES);
            if what == Outputs::Three {
                send("recorded", ENTRY_BYTES);
                send("recorded", SCOPE_BYTES);
            }
            let next = Offset::Offset(message.offset() + 1);
            match offsets.find_partition("turns", message.partition()) {
                Some(mut element) => element.set_offset(next),
                None => offsets.add_partition_offset("turns", message.partition(), next),
            }
            .expect("an offset");
            taken += 1;
        }
        if taken == 0 {
            continue;
        }
        let committing = Instant::now();
        while producer.flush(Duration::ZERO).is_err() {
            producer.poll(Duration::from_micros(500));
        }
        let group = consumer.group_metadata().expect("a group");
        let timeout = Duration::from_secs(10);
        producer.send_offsets_to_transaction(&offsets, &group, timeout).expect("offsets");
        producer.commit_transaction(timeout).expect("committed");
        commits.push(committing.elapsed());
        served += taken;
    }
    let name = if what == Outputs::One { "bare loop, 1 record" } else { "bare loop, 3 records" };
    print(name, served, begun.expect("served").elapsed(), commits);
}
