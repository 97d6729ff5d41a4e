//! Joining the group of a log that no engine serves, to write to the topics that only engines
//! write.

use std::time::Instant;

use rdkafka::consumer::Consumer as _;

use super::super::{LogError, Start, Topic};
use super::errors::failed;
use super::restore::edges;
use super::{KafkaConfig, KafkaConsumer, KafkaProducer, Outside, REQUEST_TIMEOUT};

/// A log that no engine serves, before its group is joined.
pub struct Unserved {
    config: KafkaConfig,
    outside: Outside,
    beginnings: Vec<i64>,
}

/// Checks that no engine serves the log, without joining the group. Creates the topics if the
/// configuration says so.
///
/// # Errors
///
/// [`LogError::Refused`] if the group has members, with what to do; otherwise as
/// [`connect`](super::connect).
pub fn unserved(config: &KafkaConfig) -> Result<Unserved, LogError> {
    // A static member would keep its place in the group after it has left.
    let config = KafkaConfig { group_instance_id: String::new(), ..config.clone() };
    let outside = Outside::new(&config)?;
    let group = &config.group_id;
    let doing = format!("asking who is in group `{group}`");
    let listed = outside.client.fetch_group_list(Some(group), REQUEST_TIMEOUT);
    let listed = listed.map_err(|source| failed(&doing, source))?;
    let groups = listed.groups().iter().filter(|listed| listed.name() == group);
    let members: usize = groups.map(|listed| listed.members().len()).sum();
    if members > 0 {
        return Err(LogError::Refused(format!(
            "group `{group}` has {members} members: engines serve this log; stop them and try \
             again (an engine that was killed, or that has a log.kafka.group_instance_id, stays a \
             member for log.kafka.session_timeout_ms, {} ms)",
            config.session_timeout_ms
        )));
    }
    let turns = config.topics.name(Topic::Turns);
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let beginnings = (0..outside.fit.partitions).map(|partition| {
        let (oldest, end) = edges(&outside.client, (turns, partition), deadline, || Ok(()))?;
        Ok(match config.start {
            Start::Earliest => oldest,
            Start::Latest => end,
        })
    });
    let beginnings = beginnings.collect::<Result<_, LogError>>()?;
    Ok(Unserved { config, outside, beginnings })
}

impl Unserved {
    /// For each partition, the offset where its turns begin while no offset is committed.
    #[must_use]
    pub fn beginnings(&self) -> &[i64] {
        &self.beginnings
    }

    /// Joins the group and takes the transactional id. A member that leaves while it still joins
    /// may count as a member until its session ends, so check everything else first.
    ///
    /// # Errors
    ///
    /// As [`connect`](super::connect).
    pub fn join(self) -> Result<(KafkaConsumer, KafkaProducer), LogError> {
        self.outside.join(&self.config)
    }
}
