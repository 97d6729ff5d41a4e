//! Asking a broker whether it would serve this configuration, for `turnstream validate --connect`.
//! The check joins no group, takes no id, creates nothing and writes nothing, so it can run beside
//! engines.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use super::super::{LogError, Topic};
use super::errors::{failed, refused, remedy_of};
use super::membership::Membership;
use super::restore::{OutsideGroup, committed_in_time};
use super::{KafkaConfig, REQUEST_TIMEOUT, topics};

/// The longest wait of one poll.
const SLICE: Duration = Duration::from_millis(100);

/// Checks that these topics are fit to be served, and that the process may read them and the group.
/// A missing topic passes if `log.kafka.create_topics` is set. The permission to write cannot be
/// checked.
///
/// # Errors
///
/// As [`connect`](super::connect), whichever error comes first.
pub fn ask(config: &KafkaConfig, wanted: &[Topic]) -> Result<(), LogError> {
    config.check()?;
    let turns = config.topics.name(Topic::Turns);
    let making = |source| failed("making a Kafka consumer from `log.kafka.client`", source);
    let client: BaseConsumer<Membership> = config
        .uncommitted_settings()
        .create_with_context(Membership::new(turns))
        .map_err(making)?;
    let there = topics::check_existing(&client, config, wanted)?;
    if there.contains(&Topic::Turns) {
        let mut list = TopicPartitionList::new();
        list.add_partition(turns, 0);
        let doing = format!("asking for the offsets of group `{}`", config.group_id);
        committed_in_time(&client, &list, Instant::now() + REQUEST_TIMEOUT, &doing)?;
    }
    let reader = config.changelog_settings().create_with_context(OutsideGroup).map_err(making)?;
    there
        .into_iter()
        .filter(|topic| matches!(topic, Topic::Turns | Topic::History | Topic::Knowledge))
        .try_for_each(|topic| may_read(&reader, config.topics.name(topic)))
}

/// Reads at the end of a topic's first partition, until the client reports the end.
fn may_read(client: &BaseConsumer<OutsideGroup>, topic: &str) -> Result<(), LogError> {
    let doing = format!("reading topic `{topic}`");
    let failed = |source| failed(&doing, source);
    let mut list = TopicPartitionList::with_capacity(1);
    list.add_partition_offset(topic, 0, Offset::End).map_err(failed)?;
    client.assign(&list).map_err(failed)?;
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    loop {
        match client.poll(SLICE) {
            Some(Ok(_) | Err(KafkaError::PartitionEOF(_))) => break,
            Some(Err(source)) if let Some(remedy) = remedy_of(&source) => {
                return Err(refused(&doing, &source, remedy));
            }
            Some(Err(source)) if Instant::now() >= deadline => return Err(failed(source)),
            None if Instant::now() >= deadline => break,
            // A broker that is away for a moment comes back.
            Some(Err(_)) | None => {}
        }
    }
    client.unassign().map_err(failed)
}
