//! A member of a separate group, which commits the records that were passed on.
//!
//! A group that has never committed begins at the present ends of the topics and commits them at
//! once. All later records are then delivered, even if the process is killed before its first
//! delivery.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use super::super::deliver::Delivery;
use super::super::{LogError, Record, Topic};
use super::closing::ClosedInTime;
use super::consumer::record;
use super::errors::{failed, refused, remedy_of};
use super::membership::Membership;
use super::restore::{OutsideGroup, committed_in_time, edges};
use super::sweep::is_of_sweep;
use super::{KafkaConfig, REQUEST_TIMEOUT, topics};

/// The most records of one poll.
const MOST: usize = 500;

/// Reads topics for a caller that passes their records on.
pub struct KafkaDelivery {
    config: KafkaConfig,
    client: ClosedInTime<BaseConsumer<OutsideGroup>>,
    /// Records that came while the caller delivered earlier ones.
    waiting: VecDeque<(Topic, Record)>,
    /// The next offset of each partition that was polled and not committed since.
    polled: BTreeMap<(Topic, i32), i64>,
}

/// Joins the group of this name, which reads the wanted topics. Leaves out those of
/// [`Topic::MAY_BE_MISSING`] that do not exist.
///
/// # Errors
///
/// [`LogError::Refused`] if the settings or the topics are unfit, with what to change;
/// [`LogError::Kafka`] if the broker cannot be reached or refuses.
pub fn deliver(
    config: &KafkaConfig,
    group_id: &str,
    wanted: &[Topic],
) -> Result<KafkaDelivery, LogError> {
    config.check()?;
    let doing = format!("joining the group `{group_id}`");
    let mut settings = config.changelog_settings();
    settings
        .set("group.id", group_id)
        .set("enable.partition.eof", "false")
        .set("partition.assignment.strategy", "cooperative-sticky");
    let client: Result<BaseConsumer<_>, _> = settings.create_with_context(OutsideGroup);
    let client = client.map(ClosedInTime::new).map_err(|source| failed(&doing, source))?;
    let turns = config.topics.name(Topic::Turns);
    let asking = config.uncommitted_settings().create_with_context(Membership::new(turns));
    let asking = asking.map(ClosedInTime::new).map_err(|source| failed(&doing, source))?;
    let (mut names, mut partitions) = (Vec::new(), TopicPartitionList::new());
    for topic in wanted {
        let name = config.topics.name(*topic);
        match topics::find(&asking, config, *topic, false)? {
            Some(found) => {
                names.push(name);
                (0..found.partitions).for_each(|at| _ = partitions.add_partition(name, at));
            }
            None if Topic::MAY_BE_MISSING.contains(topic) => {}
            None => {
                let remedy = "create it, or name another in `log.kafka.topics`";
                return Err(LogError::Refused(format!("topic `{name}` does not exist; {remedy}")));
            }
        }
    }
    begin(&client, &partitions, &doing)?;
    client.subscribe(&names).map_err(|source| failed(&doing, source))?;
    let (waiting, polled) = (VecDeque::new(), BTreeMap::new());
    Ok(KafkaDelivery { config: config.clone(), client, waiting, polled })
}

/// Commits the ends of those partitions for which the group has committed nothing.
fn begin(
    client: &BaseConsumer<OutsideGroup>,
    partitions: &TopicPartitionList,
    doing: &str,
) -> Result<(), LogError> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let committed = committed_in_time(client, partitions, deadline, doing)?;
    let mut ends = TopicPartitionList::new();
    for element in committed.elements() {
        if !matches!(element.offset(), Offset::Offset(_)) {
            let (name, partition) = (element.topic(), element.partition());
            let (_, end) = edges(client, (name, partition), deadline, || Ok(()))?;
            ends.add_partition_offset(name, partition, Offset::Offset(end))
                .map_err(|source| failed(doing, source))?;
        }
    }
    if ends.count() == 0 {
        return Ok(());
    }
    match client.commit(&ends, CommitMode::Sync) {
        // Another member of the group has already begun.
        Err(error) if is_of_membership(&error) => Ok(()),
        done => done.map_err(|source| failed(doing, source)),
    }
}

/// Whether a commit was refused because the group's members have changed.
fn is_of_membership(error: &KafkaError) -> bool {
    let code = error.rdkafka_error_code();
    matches!(
        code,
        Some(Code::UnknownMemberId | Code::IllegalGeneration | Code::RebalanceInProgress)
    )
}

impl KafkaDelivery {
    /// Takes one record from the client, within `wait`.
    fn take(&mut self, wait: Duration) -> Result<Option<(Topic, Record)>, LogError> {
        match self.client.poll(wait) {
            None => Ok(None),
            Some(Ok(message)) if is_of_sweep(&message) => Ok(None),
            Some(Ok(message)) => {
                let topic = self.config.topics.of(message.topic());
                Ok(topic.map(|topic| (topic, record(&message))))
            }
            Some(Err(source)) => {
                if matches!(source, KafkaError::MessageConsumptionFatal(_)) {
                    return Err(failed("reading what is to be delivered", source));
                }
                if let Some(remedy) = remedy_of(&source) {
                    return Err(refused("reading what is to be delivered", &source, remedy));
                }
                tracing::debug!(error = %source, "Kafka delivery");
                Ok(None)
            }
        }
    }

    fn paused(&self, paused: bool) -> Result<(), LogError> {
        let held = self.client.assignment().and_then(|held| match paused {
            true => self.client.pause(&held),
            false => self.client.resume(&held),
        });
        held.map_err(|source| failed("holding what is to be delivered", source))
    }
}

impl Delivery for KafkaDelivery {
    fn poll(&mut self, wait: Duration) -> Result<Vec<(Topic, Record)>, LogError> {
        let mut records: Vec<_> = self.waiting.drain(..).collect();
        let mut wait = if records.is_empty() { wait } else { Duration::ZERO };
        while records.len() < MOST
            && let Some(taken) = self.take(wait)?
        {
            records.push(taken);
            wait = Duration::ZERO;
        }
        for (topic, record) in &records {
            self.polled.insert((*topic, record.partition), record.offset + 1);
        }
        Ok(records)
    }

    fn hold(&mut self, wait: Duration) -> Result<(), LogError> {
        // A partition that is assigned meanwhile is not paused until the next call.
        self.paused(true)?;
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let taken = self.take(left)?;
            self.waiting.extend(taken);
            if left.is_zero() {
                return Ok(());
            }
        }
    }

    fn delivered(&mut self) -> Result<(), LogError> {
        let mut list = TopicPartitionList::new();
        for ((topic, partition), next) in std::mem::take(&mut self.polled) {
            let name = self.config.topics.name(topic);
            list.add_partition_offset(name, partition, Offset::Offset(next))
                .map_err(|source| failed("committing what is delivered", source))?;
        }
        if list.count() > 0
            && let Err(source) = self.client.commit(&list, CommitMode::Sync)
        {
            if let Some(remedy) = remedy_of(&source) {
                return Err(refused("committing what is delivered", &source, remedy));
            }
            tracing::warn!(error = %source, "what was delivered may be delivered again");
        }
        self.paused(false)
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::mocking::MockCluster;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    use super::*;

    #[test]
    fn a_group_is_joined_once_its_coordinator_is_ready() {
        let cluster = MockCluster::new(1).unwrap();
        let config = KafkaConfig {
            bootstrap_servers: cluster.bootstrap_servers(),
            ..KafkaConfig::default()
        };
        cluster.create_topic(config.topics.name(Topic::Responses), 2, 1).unwrap();
        let not_yet = [
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR,
        ];
        for api in [RDKafkaApiKey::OffsetFetch, RDKafkaApiKey::OffsetCommit] {
            cluster.request_errors(api, &not_yet);
        }
        let joined = deliver(&config, "webhook", &[Topic::Responses]).unwrap();
        let mut second = TopicPartitionList::new();
        second.add_partition(&config.topics.responses, 1);
        let begun = joined.client.committed_offsets(second, REQUEST_TIMEOUT).unwrap();
        assert_eq!(begun.elements()[0].offset(), Offset::Offset(0), "it begins at the end");
    }
}
