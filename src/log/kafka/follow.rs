//! A follower of a topic: a consumer that is assigned every partition, without a group.
//!
//! The client reports the end of a partition without an offset, once it has fetched everything
//! before the end, transaction markers and aborted records included. The follower therefore reads
//! nothing until the stable ends have reached the high watermarks of the time when the topic was
//! opened. The first reported end of a partition is then at or above that watermark. The follower
//! waits for a transaction that is open below a watermark, since it hides committed records behind
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::statistics::Statistics;
use rdkafka::{Offset, TopicPartitionList};

use super::super::{Follower, LogError, Record, Topic};
use super::closing::ClosedInTime;
use super::consumer::record;
use super::errors::{failed, login_refused, refused, remedy_of};
use super::membership::Membership;
use super::sweep::is_of_sweep;
use super::topics::without;
use super::{KafkaConfig, REQUEST_TIMEOUT, outage, topics};

/// The timeout of one request for the ends of partitions.
const SLICE: Duration = Duration::from_secs(2);
/// The wait before the next request for the ends.
const RETRY: Duration = Duration::from_millis(50);
/// The interval of warnings that an open transaction delays the follower.
const TELL: Duration = Duration::from_secs(5);

/// Reads every partition of a topic.
pub struct KafkaFollower {
    config: KafkaConfig,
    topic: Topic,
    /// Reads from the first record of this time on, in milliseconds since 1970; `None` reads from
    /// the oldest record.
    since_ms: Option<i64>,
    client: ClosedInTime<BaseConsumer<Following>>,
    /// Learns from the broker why it refuses the credentials.
    watermarks: ClosedInTime<BaseConsumer<Membership>>,
    /// Whether the caller reads to the present end and waits for no more records.
    is_brief: bool,
    /// The next offset of each partition.
    positions: BTreeMap<i32, i64>,
    /// The ends of partitions when the topic was opened, of those that are not reached yet.
    behind: BTreeMap<i32, i64>,
    /// Partitions whose position is at the end, as far as the client knows.
    at_end: BTreeSet<i32>,
    /// Whether reading has begun.
    begun: bool,
    /// The time of the last warning that an open transaction delays the follower.
    told: Instant,
}

/// Keeps the ends from the client's statistics.
struct Following {
    topic: String,
    ends: Mutex<BTreeMap<i32, i64>>,
}

impl ClientContext for Following {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        outage::report_log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        outage::report_error(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        outage::report_statistics(&statistics);
        let partitions = statistics.topics.get(&self.topic).map(|topic| &topic.partitions);
        let known =
            partitions.into_iter().flatten().filter(|(at, of)| **at >= 0 && of.ls_offset >= 0);
        let ends = known.map(|(at, of)| (*at, of.ls_offset)).collect();
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = ends;
    }
}

impl ConsumerContext for Following {}

/// Opens a topic and follows it from its oldest record. Checks the topic first, and creates it if
/// it is missing and the configuration says so.
///
/// # Errors
///
/// [`LogError::Refused`] if the settings or the topic are unfit, with what to change;
/// [`LogError::Kafka`] if the broker cannot be reached or refuses.
pub fn follow(config: &KafkaConfig, wanted: Topic) -> Result<KafkaFollower, LogError> {
    follow_since(config, wanted, None)
}

/// Follows a topic as [`follow`] does, but from the first record of this time on, in milliseconds
/// since 1970.
///
/// # Errors
///
/// As [`follow`].
pub fn follow_since(
    config: &KafkaConfig,
    wanted: Topic,
    since_ms: Option<i64>,
) -> Result<KafkaFollower, LogError> {
    open(config, wanted, None, since_ms)
}

/// Follows one partition of a topic as [`follow_since`] follows all, for a caller that reads to its
/// end.
///
/// # Errors
///
/// As [`follow`], or the topic has no such partition.
pub fn follow_partition(
    config: &KafkaConfig,
    wanted: Topic,
    partition: i32,
    since_ms: Option<i64>,
) -> Result<KafkaFollower, LogError> {
    open(config, wanted, Some(partition), since_ms)
}

fn open(
    config: &KafkaConfig,
    wanted: Topic,
    partition: Option<i32>,
    since_ms: Option<i64>,
) -> Result<KafkaFollower, LogError> {
    config.check()?;
    let topic = config.topics.name(wanted);
    let making =
        |source| failed(&format!("making the reader of `{topic}` from `log.kafka.client`"), source);
    let watermarks = config
        .uncommitted_settings()
        .create_with_context(Membership::new(topic))
        .map(ClosedInTime::new)
        .map_err(making)?;
    let partitions = topics::fit_alone(&watermarks, config, wanted)?;
    let client = reader(config, topic, partition.is_some()).map_err(making)?;
    let all = 0..partitions;
    let read = all.filter(|it| partition.is_none_or(|only| only == *it));
    let positions: BTreeMap<i32, i64> = read.map(|partition| (partition, 0)).collect();
    let ends = ends_in_time(&watermarks, topic, &positions)?;
    let behind = ends.into_iter().filter(|(_, end)| *end > 0).collect();
    Ok(KafkaFollower {
        config: config.clone(),
        topic: wanted,
        since_ms,
        client,
        watermarks,
        is_brief: partition.is_some(),
        positions,
        behind,
        at_end: BTreeSet::new(),
        begun: false,
        told: Instant::now(),
    })
}

/// Returns the end of each partition of a topic: the offset that its next record will have.
///
/// # Errors
///
/// As [`follow`].
pub fn ends_of(config: &KafkaConfig, wanted: Topic) -> Result<BTreeMap<i32, i64>, LogError> {
    config.check()?;
    let topic = config.topics.name(wanted);
    let client = config.uncommitted_settings().create_with_context(Membership::new(topic));
    let client = client.map(ClosedInTime::new).map_err(|source| failed(&asking(topic), source))?;
    let partitions = topics::fit_alone(&client, config, wanted)?;
    ends_in_time(&client, topic, &(0..partitions).map(|partition| (partition, 0)).collect())
}

/// Follows one of [`Topic::MAY_BE_MISSING`] as [`follow_since`] does; `None` if it is missing.
///
/// # Errors
///
/// As [`follow`].
pub fn follow_if_there(
    config: &KafkaConfig,
    wanted: Topic,
    since_ms: Option<i64>,
) -> Result<Option<KafkaFollower>, LogError> {
    config.check()?;
    let topic = config.topics.name(wanted);
    let client = config.uncommitted_settings().create_with_context(Membership::new(topic));
    let client = client.map(ClosedInTime::new).map_err(|source| failed(&asking(topic), source))?;
    let found = topics::find(&client, config, wanted, false)?;
    found.map(|_| follow_since(config, wanted, since_ms)).transpose()
}

fn reader(
    config: &KafkaConfig,
    topic: &str,
    is_brief: bool,
) -> Result<ClosedInTime<BaseConsumer<Following>>, KafkaError> {
    let following = Following { topic: topic.to_owned(), ends: Mutex::default() };
    let settings = if is_brief { config.restorer_settings() } else { config.follower_settings() };
    settings.create_with_context(following).map(ClosedInTime::new)
}

fn asking(topic: &str) -> String {
    format!("asking for the ends of `{topic}`")
}

fn slow_ends(topic: &str, code: Code) -> LogError {
    failed(&asking(topic), KafkaError::OffsetFetch(code))
}

/// The ends of partitions as this client sees them: high watermarks, or stable ends for readers of
/// committed records.
fn ends_in_time(
    client: &BaseConsumer<Membership>,
    topic: &str,
    partitions: &BTreeMap<i32, i64>,
) -> Result<BTreeMap<i32, i64>, LogError> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    loop {
        match ends(client, topic, partitions) {
            Ok(ends) if ends.len() == partitions.len() => return Ok(ends),
            Ok(_) if Instant::now() < deadline => {}
            Ok(_) => return Err(slow_ends(topic, Code::LeaderNotAvailable)),
            Err(source) if Instant::now() >= deadline => {
                return Err(failed(&asking(topic), source));
            }
            Err(_) => {}
        }
        std::thread::sleep(RETRY);
    }
}

fn ends<C: ConsumerContext>(
    client: &BaseConsumer<C>,
    topic: &str,
    partitions: &BTreeMap<i32, i64>,
) -> Result<BTreeMap<i32, i64>, KafkaError> {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for partition in partitions.keys() {
        list.add_partition_offset(topic, *partition, Offset::End)?;
    }
    let found = client.offsets_for_times(list, SLICE)?;
    let known = found.elements().into_iter().filter_map(|element| match element.offset() {
        Offset::Offset(end) if element.error().is_ok() => Some((element.partition(), end)),
        _ => None,
    });
    Ok(known.collect())
}

impl KafkaFollower {
    fn topic(&self) -> &str {
        self.config.topics.name(self.topic)
    }

    /// Starts to read once no transaction is open below the ends.
    fn begin(&mut self, wait: Duration) -> Result<(), LogError> {
        let settled = match ends(&self.client, self.topic(), &self.positions) {
            Ok(settled) => settled,
            Err(source) => {
                // The client also returns this code if the leader of a partition has left its list
                // of brokers. A new client knows the leader; if the topic is gone, reading shows
                // it.
                if source.rdkafka_error_code() != Some(Code::UnknownPartition) {
                    self.judge(source)?;
                }
                let making = |source| failed(&asking(self.topic()), source);
                let client = reader(&self.config, self.topic(), self.is_brief);
                self.client = client.map_err(making)?;
                std::thread::sleep(wait.min(RETRY));
                return Ok(());
            }
        };
        let open = self.behind.iter().find(|(at, end)| settled.get(at).is_none_or(|at| at < end));
        if let Some((partition, end)) = open {
            if self.told.elapsed() >= TELL {
                self.told = Instant::now();
                tracing::warn!(
                    topic = self.topic(),
                    partition,
                    stable_end = settled.get(partition),
                    end,
                    "an open transaction holds readers back here; waiting for it to end; \
                     `turnstream transactions` shows and ends it"
                );
            }
            std::thread::sleep(wait.min(RETRY));
            return Ok(());
        }
        let doing = format!("reading topic `{}`", self.topic());
        let mut list = TopicPartitionList::with_capacity(self.positions.len());
        let from = self.since_ms.map_or(Offset::Beginning, Offset::Offset);
        for partition in self.positions.keys() {
            list.add_partition_offset(self.topic(), *partition, from)
                .map_err(|source| failed(&doing, source))?;
        }
        if self.since_ms.is_some() {
            // Without such a record, reading begins at the end.
            match self.client.offsets_for_times(list, SLICE) {
                Ok(found) => list = found,
                Err(source) => {
                    self.judge(source)?;
                    std::thread::sleep(wait.min(RETRY));
                    return Ok(());
                }
            }
        }
        self.client.assign(&list).map_err(|source| failed(&doing, source))?;
        self.begun = true;
        Ok(())
    }

    /// Records that a partition has been read to its end.
    fn ended(&mut self, partition: i32) {
        self.at_end.insert(partition);
        if let (Some(end), Some(position)) =
            (self.behind.remove(&partition), self.positions.get_mut(&partition))
        {
            *position = (*position).max(end);
        }
    }

    /// Advances the position past a record.
    fn pass(&mut self, partition: i32, offset: i64) -> Result<(), LogError> {
        self.at_end.remove(&partition);
        let topic = self.config.topics.name(self.topic);
        let Some(position) = self.positions.get_mut(&partition) else { return Ok(()) };
        if offset < *position {
            return Err(LogError::Refused(format!(
                "topic `{topic}`, partition {partition}: offset {offset} comes after offset {}; \
                 the topic was recreated or truncated, and no longer matches what was read \
                 from it; start the process again",
                *position - 1
            )));
        }
        *position = offset + 1;
        if self.behind.get(&partition).is_some_and(|end| offset + 1 >= *end) {
            self.behind.remove(&partition);
        }
        Ok(())
    }

    /// Ignores errors that the client recovers from itself, since its context has reported them.
    fn judge(&self, source: KafkaError) -> Result<(), LogError> {
        let topic = self.topic();
        let doing = format!("reading topic `{topic}`");
        match source.rdkafka_error_code() {
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition) => {
                let without = without(self.topic);
                return Err(LogError::Refused(format!(
                    "topic `{topic}` is gone; create it again and start the process again, or name \
                     another in `log.kafka.topics`{without}"
                )));
            }
            _ if matches!(source, KafkaError::MessageConsumptionFatal(_)) => {
                return Err(failed(&format!("{doing}; the process must start again"), source));
            }
            _ => {}
        }
        if let Some(said) = self.watermarks.context().login_refused() {
            return Err(login_refused(&doing, &said));
        }
        if let Some(remedy) = remedy_of(&source) {
            return Err(refused(&doing, &source, remedy));
        }
        tracing::debug!(error = %source, topic, "Kafka follower");
        Ok(())
    }
}

impl Follower for KafkaFollower {
    fn poll(&mut self, wait: Duration) -> Result<Vec<Record>, LogError> {
        let mut records = Vec::new();
        if !self.begun {
            self.begin(wait)?;
            return Ok(records);
        }
        let (mut bytes, mut wait) = (0, wait);
        let deadline = Instant::now() + wait;
        while records.len() < self.config.poll_records && bytes < self.config.poll_kib * 1024 {
            let polled = match self.client.poll(wait) {
                None => break,
                Some(Ok(message)) => {
                    bytes += message.payload_len() + message.key_len();
                    Ok((record(&message), is_of_sweep(&message)))
                }
                Some(Err(error)) => Err(error),
            };
            match polled {
                Ok((record, is_of_sweep)) => {
                    wait = Duration::ZERO;
                    self.pass(record.partition, record.offset)?;
                    if !is_of_sweep {
                        records.push(record);
                    }
                }
                Err(KafkaError::PartitionEOF(partition)) => {
                    self.ended(partition);
                    // When the last partition has ended, the caller must not wait for nothing.
                    wait = match self.behind.is_empty() {
                        true => Duration::ZERO,
                        false => wait.min(deadline.saturating_duration_since(Instant::now())),
                    };
                }
                Err(error) => {
                    self.judge(error)?;
                    wait = wait.min(deadline.saturating_duration_since(Instant::now()));
                }
            }
        }
        Ok(records)
    }

    fn positions(&self) -> BTreeMap<i32, i64> {
        self.positions.clone()
    }

    fn has_caught_up(&self) -> bool {
        self.begun && self.behind.is_empty()
    }

    fn lag(&self) -> BTreeMap<i32, u64> {
        let told = self.client.context().ends.lock().unwrap_or_else(PoisonError::into_inner);
        let lag = self.positions.iter().map(|(partition, position)| {
            let end = match self.at_end.contains(partition) {
                true => None,
                false => told.get(partition).max(self.behind.get(partition)),
            };
            let lag = end.map_or(0, |end| end.saturating_sub(*position));
            (*partition, u64::try_from(lag).unwrap_or_default())
        });
        lag.collect()
    }
}
