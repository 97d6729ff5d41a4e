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
use super::restore::{OutsideGroup, edges};
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
    let mut there = Vec::new();
    for topic in wanted {
        let may_be_missing = Topic::MAY_BE_MISSING.contains(topic);
        match topics::find(&asking, config, *topic, false)? {
            Some(_) => there.push(*topic),
            None if may_be_missing => {}
            None => {
                let name = config.topics.name(*topic);
                let remedy = "create it, or name another in `log.kafka.topics`";
                return Err(LogError::Refused(format!("topic `{name}` does not exist; {remedy}")));
            }
        }
    }
    let names: Vec<&str> = there.iter().map(|topic| config.topics.name(*topic)).collect();
    begin(&client, &names, &doing)?;
    client.subscribe(&names).map_err(|source| failed(&doing, source))?;
    let (waiting, polled) = (VecDeque::new(), BTreeMap::new());
    Ok(KafkaDelivery { config: config.clone(), client, waiting, polled })
}

/// Commits the ends of partitions for which the group has committed nothing.
fn begin(client: &BaseConsumer<OutsideGroup>, names: &[&str], doing: &str) -> Result<(), LogError> {
    let failed = |source| failed(doing, source);
    let mut all = TopicPartitionList::new();
    for name in names {
        let metadata = client.fetch_metadata(Some(name), REQUEST_TIMEOUT).map_err(failed)?;
        for topic in metadata.topics() {
            for partition in topic.partitions() {
                all.add_partition(name, partition.id());
            }
        }
    }
    let committed = client.committed_offsets(all, REQUEST_TIMEOUT).map_err(failed)?;
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let mut ends = TopicPartitionList::new();
    for element in committed.elements() {
        if !matches!(element.offset(), Offset::Offset(_)) {
            let (name, partition) = (element.topic(), element.partition());
            let (_, end) = edges(client, (name, partition), deadline, || Ok(()))?;
            ends.add_partition_offset(name, partition, Offset::Offset(end)).map_err(failed)?;
        }
    }
    if ends.count() == 0 {
        return Ok(());
    }
    match client.commit(&ends, CommitMode::Sync) {
        // Another member of the group has already begun.
        Err(error) if is_of_membership(&error) => Ok(()),
        done => done.map_err(failed),
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
