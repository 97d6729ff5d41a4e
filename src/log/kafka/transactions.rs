//! Open transactions on our topics: where they hold readers back, and how to end those of a dead
//! process.
//!
//! Readers of committed records see nothing at or above the first record of the oldest open
//! transaction of a partition, its stable end. If the stable end is below the high watermark, a
//! transaction is open. librdkafka cannot ask a broker for its owner. Taking the transactional id
//! of a process aborts the transactions that the process left open.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde::Serialize;

use super::super::{LogError, Topic};
use super::errors::failed;
use super::membership::Membership;
use super::restore::edges;
use super::sweep::{of_turns, sweep};
use super::topics::{Fit, find};
use super::{KafkaConfig, REQUEST_TIMEOUT};

/// The longest single wait for a record.
const SLICE: Duration = Duration::from_millis(100);

/// How long to look for the record at a stable end, which may be gone by then.
const LOOK: Duration = Duration::from_secs(5);

/// A partition whose readers of committed records are held back by an open transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldBack {
    /// The topic's name on the broker.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The first offset that those readers do not see.
    pub stable_end: i64,
    /// One above the last offset.
    pub high_watermark: i64,
    /// The log's time of the record at the stable end, which is the first record of the
    /// transaction, in milliseconds since 1970. `None` if it could not be read.
    pub since_ms: Option<i64>,
}

/// Returns every partition of our topics that an open transaction holds back, by topic and
/// partition. A process at work has a transaction open for milliseconds at a time, which may be
/// included.
///
/// # Errors
///
/// [`LogError::Refused`] if a topic is missing or the broker refuses; [`LogError::Kafka`] if it
/// does not answer.
pub fn held_back(config: &KafkaConfig) -> Result<Vec<HeldBack>, LogError> {
    let config = KafkaConfig { create_topics: false, ..config.clone() };
    config.check()?;
    let turns = config.topics.name(Topic::Turns);
    let make = |settings: ClientConfig| -> Result<BaseConsumer<Membership>, LogError> {
        settings
            .create_with_context(Membership::new(turns))
            .map_err(|source| failed("making a Kafka consumer from `log.kafka.client`", source))
    };
    let committed = make(config.changelog_settings())?;
    let all = make(config.uncommitted_settings())?;
    let mut found = Vec::new();
    for topic in Topic::ALL {
        // A missing topic of knowledge or of views is no error: `find` returns `None` if topics may
        // be created. This function creates none.
        let create_topics = !Topic::OF_TURNS.contains(&topic);
        let config = KafkaConfig { create_topics, ..config.clone() };
        let partitions = find(&all, &config, topic, false)?.map_or(0, |topic| topic.partitions);
        let topic = config.topics.name(topic);
        for partition in 0..partitions {
            let end = |client: &BaseConsumer<Membership>| -> Result<i64, LogError> {
                let deadline = Instant::now() + REQUEST_TIMEOUT;
                Ok(edges(client, (topic, partition), deadline, || Ok(()))?.1)
            };
            // In this order, since the stable end may only have grown meanwhile.
            let high_watermark = end(&all)?;
            let stable_end = end(&committed)?;
            if stable_end < high_watermark {
                let since_ms = time_of(&all, topic, partition, stable_end)?;
                let topic = topic.to_owned();
                found.push(HeldBack { topic, partition, stable_end, high_watermark, since_ms });
            }
        }
    }
    Ok(found)
}

/// Takes the transactional id of the configuration. This fences a process that has the id and
/// aborts the open transactions of the id, also those that the broker forgot.
///
/// # Errors
///
/// As [`held_back`].
pub fn abort(config: &KafkaConfig) -> Result<(), LogError> {
    config.check()?;
    let config = KafkaConfig { create_topics: false, ..config.clone() };
    let of_views = config.transactional_id == config.views_transactional_id;
    let topic = if of_views { Topic::Views } else { Topic::Turns };
    let asking = config
        .uncommitted_settings()
        .create_with_context(Membership::new(config.topics.name(Topic::Turns)))
        .map_err(|source| failed("making a Kafka consumer from `log.kafka.client`", source))?;
    let partitions = find(&asking, &config, topic, false)?.map_or(0, |topic| topic.partitions);
    if of_views {
        sweep(&config, [(topic, partitions)], REQUEST_TIMEOUT)
    } else {
        let mut there = [false; Topic::MAY_BE_MISSING.len()];
        for (topic, there) in Topic::MAY_BE_MISSING.into_iter().zip(&mut there) {
            *there = find(&asking, &config, topic, false)?.is_some();
        }
        let fit = Fit { partitions, there, accepted_bytes: None };
        sweep(&config, of_turns(fit), REQUEST_TIMEOUT)
    }
}

/// The log's time of the first record at or above an offset, committed or not.
fn time_of(
    client: &BaseConsumer<Membership>,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Result<Option<i64>, LogError> {
    let doing = format!("reading `{topic}`, partition {partition}, offset {offset}");
    let failed = |source| failed(&doing, source);
    let mut list = TopicPartitionList::with_capacity(1);
    list.add_partition_offset(topic, partition, Offset::Offset(offset)).map_err(failed)?;
    client.assign(&list).map_err(failed)?;
    let deadline = Instant::now() + LOOK;
    let mut time = None;
    while time.is_none() && Instant::now() < deadline {
        if let Some(Ok(message)) = client.poll(SLICE)
            && (message.topic(), message.partition()) == (topic, partition)
        {
            time = message.timestamp().to_millis();
            break;
        }
    }
    client.unassign().map_err(failed)?;
    Ok(time)
}
