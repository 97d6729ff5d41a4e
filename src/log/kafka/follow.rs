//! A follower of a topic: a consumer that is assigned every partition, in no group.
//!
//! The client tells of the end of a partition without its offset, once it stands there with
//! everything before it fetched, marks of transactions and aborted records included. So nothing
//! is read before the high watermarks, as they were when the topic was opened, have settled: then
//! the first end that is told of lies not before them. A transaction still open below them is
//! waited for, as it hides what others committed behind it.

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
use super::errors::{failed, login_refused, refused, remedy_of};
use super::membership::Membership;
use super::restore::change;
use super::sweep::is_of_sweep;
use super::topics::without;
use super::{KafkaConfig, REQUEST_TIMEOUT, outage, topics};

/// How long one question for the ends of partitions waits.
const SLICE: Duration = Duration::from_secs(2);
/// How long to wait before the ends are asked for again.
const RETRY: Duration = Duration::from_millis(50);
/// How often it is told that a transaction is waited for.
const TELL: Duration = Duration::from_secs(5);

/// Reads every partition of a topic.
pub struct KafkaFollower {
    config: KafkaConfig,
    topic: Topic,
    client: ClosedInTime<BaseConsumer<Following>>,
    /// Whom a broker tells why it refuses us.
    watermarks: ClosedInTime<BaseConsumer<Membership>>,
    /// The next offset of each partition.
    positions: BTreeMap<i32, i64>,
    /// The ends of partitions when the topic was opened, of those not reached yet.
    behind: BTreeMap<i32, i64>,
    /// Partitions that stand at their end, as far as the client was told.
    at_end: BTreeSet<i32>,
    /// Whether reading has begun.
    begun: bool,
    /// When it was told last that a transaction is waited for.
    told: Instant,
}

/// Keeps the ends that the client's statistics tell of.
struct Following {
    topic: String,
    ends: Mutex<BTreeMap<i32, i64>>,
}

impl ClientContext for Following {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        outage::logged(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        outage::heard(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        outage::stands(&statistics);
        let partitions = statistics.topics.get(&self.topic).map(|topic| &topic.partitions);
        let known =
            partitions.into_iter().flatten().filter(|(at, of)| **at >= 0 && of.ls_offset >= 0);
        let ends = known.map(|(at, of)| (*at, of.ls_offset)).collect();
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = ends;
    }
}

impl ConsumerContext for Following {}

/// Opens a topic and follows it from its oldest record. It is checked first, and made where it is
/// missing and the configuration says so.
///
/// # Errors
///
/// [`LogError::Refused`] where the settings or the topic are not fit, with what to change;
/// [`LogError::Kafka`] where the broker cannot be reached or refuses.
pub fn follow(config: &KafkaConfig, wanted: Topic) -> Result<KafkaFollower, LogError> {
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
    let client = reader(config, topic).map_err(making)?;
    let positions: BTreeMap<i32, i64> = (0..partitions).map(|partition| (partition, 0)).collect();
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let ends = loop {
        match ends(&watermarks, topic, &positions) {
            Ok(ends) if ends.len() == positions.len() => break ends,
            Ok(_) if Instant::now() < deadline => {}
            Ok(_) => return Err(slow_ends(topic, Code::LeaderNotAvailable)),
            Err(source) if Instant::now() >= deadline => {
                return Err(failed(&asking(topic), source));
            }
            Err(_) => {}
        }
        std::thread::sleep(RETRY);
    };
    let behind = ends.into_iter().filter(|(_, end)| *end > 0).collect();
    Ok(KafkaFollower {
        config: config.clone(),
        topic: wanted,
        client,
        watermarks,
        positions,
        behind,
        at_end: BTreeSet::new(),
        begun: false,
        told: Instant::now(),
    })
}

fn reader(
    config: &KafkaConfig,
    topic: &str,
) -> Result<ClosedInTime<BaseConsumer<Following>>, KafkaError> {
    let following = Following { topic: topic.to_owned(), ends: Mutex::default() };
    config.follower_settings().create_with_context(following).map(ClosedInTime::new)
}

fn asking(topic: &str) -> String {
    format!("asking for the ends of `{topic}`")
}

fn slow_ends(topic: &str, code: Code) -> LogError {
    failed(&asking(topic), KafkaError::OffsetFetch(code))
}

/// The ends of partitions as this client is told them: high watermarks, or for readers of
/// committed records the first offsets that are not certain.
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

    /// Begins to read once everything below the ends is certain.
    fn begin(&mut self, wait: Duration) -> Result<(), LogError> {
        let settled = match ends(&self.client, self.topic(), &self.positions) {
            Ok(settled) => settled,
            Err(source) => {
                // Said also of a partition whose leader left the client's list of brokers. Then a new
                // client knows better; and whether the topic is gone, reading it tells.
                if source.rdkafka_error_code() != Some(Code::UnknownPartition) {
                    self.judge(source)?;
                }
                let making = |source| failed(&asking(self.topic()), source);
                self.client = reader(&self.config, self.topic()).map_err(making)?;
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
                    "a transaction is open there, and what is behind it is waited for; \
                     `turnstream transactions` shows and ends it"
                );
            }
            std::thread::sleep(wait.min(RETRY));
            return Ok(());
        }
        let doing = format!("reading topic `{}`", self.topic());
        let mut list = TopicPartitionList::with_capacity(self.positions.len());
        for partition in self.positions.keys() {
            list.add_partition_offset(self.topic(), *partition, Offset::Beginning)
                .map_err(|source| failed(&doing, source))?;
        }
        self.client.assign(&list).map_err(|source| failed(&doing, source))?;
        self.begun = true;
        Ok(())
    }

    /// Notes that a partition stands at its end.
    fn ended(&mut self, partition: i32) {
        self.at_end.insert(partition);
        if let (Some(end), Some(position)) =
            (self.behind.remove(&partition), self.positions.get_mut(&partition))
        {
            *position = (*position).max(end);
        }
    }

    /// Moves on over a record.
    fn pass(&mut self, partition: i32, offset: i64) -> Result<(), LogError> {
        self.at_end.remove(&partition);
        let topic = self.config.topics.name(self.topic);
        let Some(position) = self.positions.get_mut(&partition) else { return Ok(()) };
        if offset < *position {
            return Err(LogError::Refused(format!(
                "topic `{topic}`, partition {partition}: offset {offset} comes after offset {}; \
                 the topic was made anew, or its end was lost, and what was learned from it is \
                 not what it holds now: start the process again",
                *position - 1
            )));
        }
        *position = offset + 1;
        if self.behind.get(&partition).is_some_and(|end| offset + 1 >= *end) {
            self.behind.remove(&partition);
        }
        Ok(())
    }

    /// Errors that the client mends by itself are passed over: its context has heard of them.
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
                    Ok((change(&message), is_of_sweep(&message)))
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
                    // Who waits for the last of them is not to wait for nothing.
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
