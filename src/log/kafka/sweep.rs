//! The sweep: it ends transactions that a transactional id left open and the broker forgot. A
//! process that takes the id first writes, in transactions that it aborts, to every partition that
//! the id can have written to.
//!
//! When a process takes an id, the broker aborts the open transaction of the id, unless the
//! transaction's timeout has passed: the broker then believes that it has aborted it already. But
//! Kafka (4.3.1) writes no end marker to a partition without a leader at that moment ("likely
//! deleted already and hence can be skipped"), and after a crash of the only broker no partition
//! has a leader for some seconds. The records stay open on the partition, and the next end of a
//! transaction *of the same producer* there ends them as well: a commit would make visible what was
//! never committed. The same holds for the offsets of the group, which lie on a partition like any
//! other. A sweep without the offsets would remove the records while their inputs counted as
//! finished.
//!
//! The sweep comes before anything else under the id, at every start and whenever the producer is
//! replaced. Its records have a key and no value; readers that see one skip it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, DeliveryResult, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};

use super::super::{LogError, Topic};
use super::KafkaConfig;
use super::closing::ClosedInTime;
use super::errors::{self, failed};
use super::producer::{ABORT_SLICE, take_id};
use super::restore::{OutsideGroup, SETTLE, committed};
use super::topics::Fit;
use super::{offsets, outage};

/// The key of the records, since `history` accepts no record without a key.
const KEY: &[u8] = b"turnstream.sweep";

/// Whether a record belongs to a sweep. The broker may forget the end of a sweep too, and the next
/// commit of its id then makes its records visible.
pub(super) fn is_of_sweep(message: &BorrowedMessage<'_>) -> bool {
    message.key() == Some(KEY) && message.payload().is_none()
}

/// The most partitions of one transaction. Two thousand in one took 6 s on a busy machine, and the
/// timeout may be a second.
const AT_ONCE: usize = 100;

/// The longest single wait for deliveries.
const SLICE: Duration = Duration::from_millis(2);

/// How long the broker may take to report the stable ends, which only the count needs.
const LOOK: Duration = Duration::from_secs(5);

/// How long a stable end must stand still to show a forgotten transaction. A process at work has a
/// transaction open for milliseconds.
const STANDS: Duration = Duration::from_millis(500);

/// The number of partitions on which this process found a forgotten transaction.
static FOUND: AtomicU64 = AtomicU64::new(0);

/// Returns the number of partitions on which a sweep of this process found an open transaction that
/// the broker had forgotten.
pub(super) fn found() -> u64 {
    FOUND.load(Ordering::Relaxed)
}

/// The name of a topic, and a partition.
pub(super) type Place<'a> = (&'a str, i32);

/// The delivery reports of one transaction.
#[derive(Default)]
struct Arrivals(Mutex<Arrived>);

#[derive(Default)]
struct Arrived {
    offsets: Vec<SweptRecord>,
    failed: Option<KafkaError>,
}

impl Arrivals {
    fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Arrivals {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        outage::report_log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        outage::report_error(&error, reason);
    }
}

impl ProducerContext for Arrivals {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, place: usize) {
        let mut arrived = self.arrived();
        match result {
            Ok(message) => arrived.offsets.push((place, message.offset())),
            Err((error, _)) => {
                arrived.failed.get_or_insert_with(|| error.clone());
            }
        }
    }
}

/// Takes the transactional id within `wait`, fencing its earlier holder, and sweeps these topics,
/// each with its number of partitions. If they include a topic other than `views`, sweeps the
/// group's offsets too.
///
/// # Errors
///
/// [`LogError::Fenced`] if another process takes the id meanwhile, [`LogError::Refused`] if the
/// broker refuses, [`LogError::Kafka`] if it does not answer or a partition has no leader for
/// longer than a transaction may take.
pub(super) fn sweep(
    config: &KafkaConfig,
    topics: impl IntoIterator<Item = (Topic, i32)>,
    wait: Duration,
) -> Result<(), LogError> {
    let sweeper = Sweeper::new(config, wait)?;
    let mut places = Vec::new();
    let mut group = false;
    for (topic, partitions) in topics {
        // Only who serves turns commits offsets of the group.
        group |= !matches!(topic, Topic::Views | Topic::Turns | Topic::DeadLetters);
        places.extend((0..partitions).map(|partition| (config.topics.name(topic), partition)));
    }
    let mut found = 0;
    for (nth, places) in places.chunks(AT_ONCE).enumerate() {
        found += sweeper.sweep(places, group && nth == 0)?;
    }
    if found > 0 {
        FOUND.fetch_add(found as u64, Ordering::Relaxed);
        tracing::warn!(
            transactional_id = config.transactional_id,
            partitions = found,
            "a transaction of this id was still open on these partitions, though the broker had \
             given it up; it is aborted now, and its inputs are answered again"
        );
    }
    Ok(())
}

/// The topics, with their partitions, that a process that serves turns may write to.
pub(super) fn of_turns(fit: Fit) -> impl Iterator<Item = (Topic, i32)> {
    let written = Topic::OF_TURNS.into_iter().filter(|topic| *topic != Topic::Turns);
    let others = Topic::MAY_BE_MISSING.into_iter().filter(move |topic| fit.has(*topic));
    written.chain(others).map(move |topic| (topic, fit.partitions))
}

/// The index of a place, and the offset of a record there.
pub(super) type SweptRecord = (usize, i64);

/// Writes a record to each of some places and aborts the transaction.
pub(super) struct Sweeper<'a> {
    config: &'a KafkaConfig,
    client: ClosedInTime<BaseProducer<Arrivals>>,
    /// Reads committed records, outside of the group.
    reader: ClosedInTime<BaseConsumer<OutsideGroup>>,
}

impl<'a> Sweeper<'a> {
    /// Takes the transactional id within `wait`.
    pub(super) fn new(config: &'a KafkaConfig, wait: Duration) -> Result<Self, LogError> {
        let doing = "making the Kafka clients of a sweep from `log.kafka.client`";
        let failed = |source| failed(doing, source);
        let client = config.producer_settings(None).create_with_context(Arrivals::default());
        // Outside of the group: the broker checks no membership of a client without one.
        let reader = config.changelog_settings().create_with_context(OutsideGroup);
        let client = ClosedInTime::new(client.map_err(failed)?);
        let reader = ClosedInTime::new(reader.map_err(failed)?);
        let sweeper = Sweeper { config, client, reader };
        take_id(&*sweeper.client, config, wait)?;
        Ok(sweeper)
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.config.transaction_timeout_ms))
    }

    /// The longest wait in the middle of a transaction.
    fn moment(&self) -> Duration {
        self.timeout() / 4
    }

    /// Runs transactions until the end of one is written everywhere. Returns on how many of the
    /// places another transaction ended with it.
    pub(super) fn sweep(&self, places: &[Place<'_>], group: bool) -> Result<usize, LogError> {
        let give_up = Instant::now() + self.timeout();
        let (mut first, mut found) = (BTreeMap::new(), BTreeSet::new());
        for attempt in 1.. {
            let (held, written) = self.transact(places, group)?;
            written.iter().for_each(|(at, offset)| _ = first.entry(*at).or_insert(*offset));
            let not_passed = self.not_passed(places, &written);
            found.extend(held.into_iter().filter(|at| !not_passed.contains_key(at)));
            let is_unstable = group && !self.is_group_stable();
            // Readers that are held back below the sweep's first record wait for another process's
            // open transaction, or for a forgotten one that is not ended yet. Since the two look
            // alike, one more attempt follows.
            let is_ours =
                |at, end: Option<i64>| attempt == 1 || end.is_none_or(|end| end >= first[at]);
            let open = not_passed.iter().filter(|(at, end)| is_ours(at, **end));
            let open: Vec<_> = open.map(|(at, _)| places[*at]).collect();
            if open.is_empty() && (attempt > 1 || !is_unstable) {
                break;
            }
            if Instant::now() >= give_up {
                let id = &self.config.transactional_id;
                tracing::warn!(
                    transactional_id = id,
                    ?open,
                    "the end of a sweep is not written everywhere"
                );
                break;
            }
            tracing::info!(
                ?open,
                group = is_unstable,
                "sweeping again: the end of the sweep is not written everywhere"
            );
        }
        Ok(found.len())
    }

    /// Runs one transaction and aborts it. Returns the places where readers were held back below
    /// its records before it, and the records.
    fn transact(
        &self,
        places: &[Place<'_>],
        group: bool,
    ) -> Result<(Vec<usize>, Vec<SweptRecord>), LogError> {
        let before = self.stable_ends(places, LOOK);
        let deadline = Instant::now() + self.timeout();
        let filled = self.fill(places, group, deadline);
        let written = self.written();
        let mut held = Vec::new();
        if filled.is_ok() {
            let below = |(at, offset): &SweptRecord| before[*at].is_some_and(|end| end < *offset);
            held.extend(written.iter().filter(|sent| below(sent)).map(|(at, _)| *at));
            self.keep(&mut held, places, &before);
            if !held.is_empty() {
                std::thread::sleep(STANDS.min(self.moment()));
                self.keep(&mut held, places, &before);
            }
        }
        let usable = self.client.client().fatal_error().is_none();
        if usable && let Err(error) = self.abort(deadline) {
            return Err(filled.err().unwrap_or(error));
        }
        filled.map(|()| (held, written))
    }

    /// Waits for readers to pass the records of an aborted transaction. Returns the places where
    /// they have not, with their stable ends. Kafka writes an end marker in milliseconds, or never.
    pub(super) fn not_passed(
        &self,
        places: &[Place<'_>],
        written: &[SweptRecord],
    ) -> BTreeMap<usize, Option<i64>> {
        let deadline = Instant::now() + SETTLE.min(self.moment());
        loop {
            let ends = self.stable_ends(places, self.moment());
            let back = |(at, offset): &SweptRecord| ends[*at].is_none_or(|end| end <= *offset);
            let held = written.iter().filter(|sent| back(sent)).map(|(at, _)| (*at, ends[*at]));
            let held: BTreeMap<_, _> = held.collect();
            if held.is_empty() || Instant::now() >= deadline {
                return held;
            }
            std::thread::sleep(SLICE);
        }
    }

    /// Whether no open transaction can change the group's offset that a sweep writes.
    pub(super) fn is_group_stable(&self) -> bool {
        committed(&self.reader, self.config, 0).is_ok()
    }

    /// Takes the offsets of the delivered records.
    pub(super) fn written(&self) -> Vec<SweptRecord> {
        std::mem::take(&mut self.client.context().arrived().offsets)
    }

    /// Fills a transaction with a record for each place and, for a group, an offset that belongs to
    /// no input.
    pub(super) fn fill(
        &self,
        places: &[Place<'_>],
        group: bool,
        deadline: Instant,
    ) -> Result<(), LogError> {
        *self.client.context().arrived() = Arrived::default();
        let doing = "beginning a transaction that is aborted";
        self.client.begin_transaction().map_err(|source| self.failed(doing, deadline, source))?;
        for (at, (topic, partition)) in places.iter().enumerate() {
            let record: BaseRecord<'_, [u8], [u8], usize> =
                BaseRecord::with_opaque_to(topic, at).partition(*partition).key(KEY);
            self.client.send(record).map_err(|(source, _)| {
                let doing = format!("sweeping `{topic}`, partition {partition}");
                self.failed(&doing, deadline, source)
            })?;
        }
        // The loop ends, since a record that is not delivered within the transaction's timeout
        // fails.
        while self.client.in_flight_count() > 0 {
            // The client's own flush would stop lingering, but wait in slices of 100 ms.
            let _ = self.client.flush(Duration::ZERO);
            self.client.poll(SLICE);
        }
        if let Some(source) = self.client.context().arrived().failed.clone() {
            let topic = places.first().map_or("", |(topic, _)| *topic);
            let doing = format!("sweeping partitions, from `{topic}` on");
            return Err(self.failed(&doing, deadline, source));
        }
        if group { self.fill_offsets(deadline) } else { Ok(()) }
    }

    fn fill_offsets(&self, deadline: Instant) -> Result<(), LogError> {
        let doing = format!("sweeping the offsets of group `{}`", self.config.group_id);
        let failed = |source| self.failed(&doing, deadline, source);
        let group = self.reader.group_metadata().ok_or_else(|| {
            LogError::Refused("the Kafka client has no group; set `log.kafka.group_id`".into())
        })?;
        let mut list = TopicPartitionList::with_capacity(1);
        let turns = self.config.topics.name(Topic::Turns);
        list.add_partition_offset(turns, 0, Offset::Offset(0)).map_err(failed)?;
        let left = deadline.saturating_duration_since(Instant::now()).max(SLICE);
        let late = || Err(KafkaError::Global(RDKafkaErrorCode::OperationTimedOut));
        offsets::add(&self.client, list, group, left).unwrap_or_else(late).map_err(failed)
    }

    /// Aborts in short calls: the client waits until every delivery report is handled.
    pub(super) fn abort(&self, deadline: Instant) -> Result<(), LogError> {
        loop {
            match self.client.abort_transaction(ABORT_SLICE) {
                Ok(()) => return Ok(()),
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && Instant::now() < deadline =>
                {
                    self.client.poll(SLICE);
                }
                Err(source) => return Err(self.failed("aborting a sweep", deadline, source)),
            }
        }
    }

    /// Removes the places whose stable end has moved.
    fn keep(&self, held: &mut Vec<usize>, places: &[Place<'_>], before: &[Option<i64>]) {
        if !held.is_empty() {
            let now = self.stable_ends(places, self.moment());
            held.retain(|at| now[*at] == before[*at]);
        }
    }

    /// The stable end of each place; `None` if the broker does not report it.
    fn stable_ends(&self, places: &[Place<'_>], within: Duration) -> Vec<Option<i64>> {
        let mut list = TopicPartitionList::with_capacity(places.len());
        for (topic, partition) in places {
            // `End` in place of a timestamp asks for the end.
            let _ = list.add_partition_offset(topic, *partition, Offset::End);
        }
        let Ok(ends) = self.reader.offsets_for_times(list, within) else {
            return vec![None; places.len()];
        };
        let end = |(topic, partition): &Place<'_>| {
            let element = ends.find_partition(topic, *partition)?;
            match (element.error(), element.offset()) {
                (Ok(()), Offset::Offset(end)) => Some(end),
                _ => None,
            }
        };
        places.iter().map(end).collect()
    }

    /// The client decides whether an error ends the process.
    fn failed(&self, doing: &str, deadline: Instant, source: KafkaError) -> LogError {
        let first = self.client.client().fatal_error().map(|(code, _)| code);
        let is_fatal = matches!(&source, KafkaError::Transaction(error) if error.is_fatal());
        if first.is_none() && !is_fatal {
            return failed(doing, source);
        }
        errors::fatal(self.config, doing, first, Instant::now() >= deadline, source)
    }
}
