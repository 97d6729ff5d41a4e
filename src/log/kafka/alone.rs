//! Joining the group of a log that nobody serves: to write where only its engines do.

use rdkafka::consumer::{BaseConsumer, Consumer as _};

use super::super::{LogError, Start, Topic};
use super::errors::failed;
use super::membership::Membership;
use super::{KafkaConfig, KafkaConsumer, KafkaProducer, REQUEST_TIMEOUT, connect};

/// Like [`connect`], where the group has no member; and for each partition where its turns begin
/// as long as nothing is committed of it.
///
/// # Errors
///
/// [`LogError::Refused`] where the group has members, with what to do; else as [`connect`].
pub fn connect_alone(
    config: &KafkaConfig,
) -> Result<(KafkaConsumer, KafkaProducer, Vec<i64>), LogError> {
    config.check()?;
    // Nobody must wait for it when it has gone.
    let config = KafkaConfig { group_instance_id: String::new(), ..config.clone() };
    let turns = config.topics.name(Topic::Turns);
    let client: BaseConsumer<Membership> = config
        .uncommitted_settings()
        .create_with_context(Membership::new(turns))
        .map_err(|source| failed("making a Kafka consumer from `log.kafka.client`", source))?;
    let group = &config.group_id;
    let doing = format!("asking who is in group `{group}`");
    let listed = client
        .fetch_group_list(Some(group), REQUEST_TIMEOUT)
        .map_err(|source| failed(&doing, source))?;
    let groups = listed.groups().iter().filter(|listed| listed.name() == group);
    let members: usize = groups.map(|listed| listed.members().len()).sum();
    if members > 0 {
        return Err(LogError::Refused(format!(
            "group `{group}` has {members} members: engines serve this log; stop them and try \
             again (who was killed, or has a log.kafka.group_instance_id, stays a member for \
             log.kafka.session_timeout_ms, {} ms)",
            config.session_timeout_ms
        )));
    }
    let (consumer, producer) = connect(&config)?;
    let beginnings = (0..consumer.partitions()).map(|partition| {
        let doing = format!("asking where `{turns}`, partition {partition}, begins");
        let marks = client.fetch_watermarks(turns, partition, REQUEST_TIMEOUT);
        let (oldest, end) = marks.map_err(|source| failed(&doing, source))?;
        Ok(match config.start {
            Start::Earliest => oldest,
            Start::Latest => end,
        })
    });
    let beginnings = beginnings.collect::<Result<_, LogError>>()?;
    Ok((consumer, producer, beginnings))
}
