//! Does the benchmark's task in a bare loop over librdkafka: the latest six turns of a conversation
//! in memory, a response and a changelog record for each turn, in transactions. No restoring, no
//! rebalance, no second thread: the least that the task can cost.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde_json::{Value, json};
use turnstream_engine::commit::CommitConfig;

const KEPT: usize = 6;

/// Serves until the process is killed.
pub(crate) fn serve(bootstrap: &str, prefix: &str, turns: &str) {
    let commit = CommitConfig::default();
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", prefix)
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .create()
        .expect("a consumer");
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("linger.ms", "0.5")
        .set("compression.type", "lz4")
        .set("transactional.id", prefix)
        .create()
        .expect("a producer");
    producer.init_transactions(Duration::from_secs(30)).expect("a transactional id");
    consumer.subscribe(&[turns]).expect("subscribed");
    let (responses, history) = (format!("{prefix}responses"), format!("{prefix}history"));
    let mut latest: HashMap<Vec<u8>, Vec<Value>> = HashMap::new();
    loop {
        let since = Instant::now();
        let interval = Duration::from_millis(commit.interval_ms);
        let (mut offsets, mut taken) = (TopicPartitionList::new(), 0);
        while taken < commit.max_outcomes && since.elapsed() < interval {
            let Some(Ok(message)) = consumer.poll(Duration::from_millis(5)) else { continue };
            if taken == 0 {
                producer.begin_transaction().expect("begun");
            }
            let (key, partition) = (message.key().unwrap_or_default(), message.partition());
            let turn: Value =
                serde_json::from_slice(message.payload().unwrap_or_default()).expect("a turn");
            let known = latest.entry(key.to_vec()).or_default();
            known.push(turn);
            if known.len() > KEPT {
                known.remove(0);
            }
            let turn = &known[known.len() - 1];
            let response = json!({
                "conversation_id": turn["conversation_id"],
                "turn_id": turn["turn_id"],
                "input": {
                    "topic": message.topic(), "partition": partition, "offset": message.offset()
                },
                "latest": &known[known.len().saturating_sub(2)..],
            });
            for (topic, value) in
                [(&responses, &response), (&history, &Value::Array(known.clone()))]
            {
                let value = value.to_string();
                let mut record =
                    BaseRecord::to(topic).partition(partition).key(key).payload(&value);
                while let Err((_, back)) = producer.send(record) {
                    record = back;
                    producer.poll(Duration::from_millis(1));
                }
            }
            let next = Offset::Offset(message.offset() + 1);
            match offsets.find_partition(turns, partition) {
                Some(mut element) => element.set_offset(next),
                None => offsets.add_partition_offset(turns, partition, next),
            }
            .expect("an offset");
            taken += 1;
        }
        if taken == 0 {
            continue;
        }
        // The client's own flush polls only ten times a second.
        while producer.flush(Duration::ZERO).is_err() {
            producer.poll(Duration::from_millis(1));
        }
        let group = consumer.group_metadata().expect("a group");
        let wait = Duration::from_secs(10);
        producer.send_offsets_to_transaction(&offsets, &group, wait).expect("offsets");
        producer.commit_transaction(wait).expect("committed");
    }
}
