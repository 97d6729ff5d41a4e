//! One client's transactions: a transaction is committed, aborted, or its client is at an end and
//! must be made anew (`kafka/recovery.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{Consumer as _, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header as KafkaHeader, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};

use super::super::{LogError, Output, Position, Topic, Transaction};
use super::closing::ClosedInTime;
use super::config::KafkaTopics;
use super::errors::{self, failed, refused, remedy_of};
use super::membership::{Identity, Member, identity};
use super::settling::Places;
use super::{KafkaConfig, outage};

/// How long the client is waited for at once. It always takes the whole of it.
const SLICE: Duration = Duration::from_micros(500);

/// How long one call of an abort may take before deliveries are heard again.
pub(super) const ABORT_SLICE: Duration = Duration::from_millis(20);

/// Events that wait to be heard where a transaction is about to be committed, at most: deliveries are
/// heard already.
const EVENTS: usize = 16;

/// A client that commits outcomes with the positions behind them.
pub(super) struct TransactionalClient {
    client: ClosedInTime<BaseProducer<Deliveries>>,
    consumer: Arc<Member>,
    config: KafkaConfig,
    /// How many transactions were begun.
    number: usize,
    /// When the latest of them outlives its timeout.
    deadline: Instant,
}

/// Why a transaction was not committed.
pub(super) struct Uncommitted {
    /// What went wrong. After a fatal one the client is at an end.
    pub(super) error: LogError,
    /// Whether the transaction may be visible all the same.
    pub(super) is_unknown: bool,
}

/// Hears what became of each record sent. Of records that an abort purged that may be long after
/// it, so each carries the number of its transaction.
struct Deliveries {
    topics: KafkaTopics,
    delivered: Mutex<Delivered>,
    /// A connection that stood is gone.
    lost: AtomicBool,
}

/// What became of the records of one transaction.
#[derive(Default)]
struct Delivered {
    number: usize,
    /// The first failure.
    failure: Option<KafkaError>,
    places: Places,
}

impl Deliveries {
    fn delivered(&self) -> MutexGuard<'_, Delivered> {
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Deliveries {
    /// A connection that breaks with little under way is no error to the client, and only logged.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // In the words of librdkafka 2.12. One that is sought in vain was never ours.
        if facility == "FAIL" && message.contains("in state UP") {
            self.lost.store(true, Ordering::SeqCst);
        }
        outage::logged(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        outage::heard(&error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let mut delivered = self.delivered();
        if delivered.number != number {
            return;
        }
        match result {
            Ok(message) => {
                if let Some(topic) = self.topics.of(message.topic()) {
                    delivered.places.insert((topic, message.partition()), message.offset());
                }
            }
            Err((error, _)) => {
                delivered.failure.get_or_insert_with(|| error.clone());
            }
        }
    }
}

/// Takes the transactional id: whoever had it is fenced, and what it left open is aborted, where
/// the broker knows of it; what it forgot is for [`sweep`](super::sweep::sweep), which comes first.
/// Within `wait`; where an error is not fatal, it may be called again and goes on.
pub(super) fn take_id<C: ProducerContext>(
    client: &BaseProducer<C>,
    config: &KafkaConfig,
    wait: Duration,
) -> Result<(), LogError> {
    let deadline = Instant::now() + wait;
    let doing = format!(
        "taking the transactional id `{}`; the broker must be able to keep transactions \
         (`transaction.state.log.*`)",
        config.transactional_id
    );
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).max(ABORT_SLICE);
        match client.init_transactions(left) {
            Ok(()) => return Ok(()),
            Err(KafkaError::Transaction(error)) if error.is_retriable() => {
                if Instant::now() >= deadline {
                    return Err(failed(&doing, KafkaError::Transaction(error)));
                }
            }
            Err(source) => {
                let first = client.client().fatal_error().map(|(code, _)| code);
                return Err(errors::fatal(config, &doing, first, false, source));
            }
        }
    }
}

impl TransactionalClient {
    /// A client whose id is not [taken](Self::take_id) yet.
    pub(super) fn new(
        consumer: Arc<Member>,
        config: &KafkaConfig,
        accepted_bytes: Option<usize>,
    ) -> Result<Self, LogError> {
        let client: BaseProducer<Deliveries> = config
            .producer_settings(accepted_bytes)
            .create_with_context(Deliveries {
                topics: config.topics.clone(),
                delivered: Mutex::default(),
                lost: AtomicBool::new(false),
            })
            .map_err(|source| {
                failed("making the Kafka producer from `log.kafka.client`", source)
            })?;
        let client = ClosedInTime::new(client);
        Ok(Self { client, consumer, config: config.clone(), number: 0, deadline: Instant::now() })
    }

    /// Takes the transactional id within `wait`, as [`take_id`] does.
    pub(super) fn take_id(&self, wait: Duration) -> Result<(), LogError> {
        take_id(&self.client, &self.config, wait)
    }

    /// Whether a broker went away that this client was connected to. It may have forgotten the end
    /// of the latest transaction; if so, that of the next one ends it as well, in part.
    pub(super) fn has_lost_a_broker(&self) -> bool {
        // Each call hears of one event; what is logged comes in its place among deliveries.
        (0..EVENTS).for_each(|_| self.client.poll(Duration::ZERO));
        self.client.context().lost.load(Ordering::SeqCst)
    }

    /// Where the records of the latest transaction lie.
    pub(super) fn places(&self) -> Places {
        self.client.context().delivered().places.clone()
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.config.transaction_timeout_ms))
    }

    /// Everything up to the commit itself; after an error the transaction must be aborted.
    fn fill(
        &self,
        transaction: &Transaction,
        held: &[Position],
        deadline: Instant,
    ) -> Result<(), LogError> {
        for output in &transaction.outputs {
            self.send(output, deadline)?;
        }
        self.flush(deadline)?;
        let failure = self.client.context().delivered().failure.clone();
        if let Some(source) = failure {
            return Err(self.not_delivered("delivering outcomes", source));
        }
        let group = self.group_of(held, deadline)?;
        let list = self.offsets(&transaction.positions)?;
        let left = deadline.saturating_duration_since(Instant::now()).max(SLICE);
        match self.client.send_offsets_to_transaction(&list, &group, left) {
            Ok(()) => Ok(()),
            // The group refuses this member: in the middle of a rebalance, or because it was
            // expelled. Which, the next events tell; tried again, the check above knows.
            Err(source) => {
                let group = &self.config.group_id;
                Err(self.judged(&format!("adding the offsets of group `{group}`"), source))
            }
        }
    }

    fn send(&self, output: &Output, deadline: Instant) -> Result<(), LogError> {
        let topic = self.config.topics.name(output.topic);
        let mut record: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(topic, self.number).partition(output.partition);
        record.key = output.key.as_deref();
        record.payload = output.value.as_deref();
        if !output.headers.is_empty() {
            let headers = OwnedHeaders::new_with_capacity(output.headers.len());
            record.headers = Some(output.headers.iter().fold(headers, |headers, header| {
                let value = header.value.as_ref().map(|value| value.0.as_slice());
                headers.insert(KafkaHeader { key: &header.name, value })
            }));
        }
        loop {
            let (source, back) = match self.client.send(record) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            let full = source.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull);
            if !full || Instant::now() >= deadline {
                let doing = format!(
                    "sending the outcome of input {}-{} to `{topic}`, partition {}",
                    output.partition, output.input_offset, output.partition
                );
                return Err(self.not_delivered(&doing, source));
            }
            record = back;
            self.client.poll(SLICE);
        }
    }

    /// Waits until every record was delivered or refused, and what became of it was heard. The
    /// client's own flush waits in slices of 100 ms, which would be the latency of every commit,
    /// and not for the hearing.
    fn flush(&self, deadline: Instant) -> Result<(), LogError> {
        loop {
            match self.client.flush(Duration::ZERO) {
                Ok(()) if self.client.in_flight_count() == 0 => return Ok(()),
                Ok(()) => self.client.poll(Duration::ZERO),
                Err(source) if Instant::now() >= deadline => {
                    return Err(self.judged("waiting for records to be delivered", source));
                }
                Err(_) => self.client.poll(SLICE),
            }
        }
    }

    /// The group's metadata of a member that is whole, and holds all partitions of the positions
    /// under their generations, at one and the same moment. Waits where the member is changing.
    fn group_of(
        &self,
        positions: &[Position],
        deadline: Instant,
    ) -> Result<ConsumerGroupMetadata, LogError> {
        loop {
            let before = identity(&self.consumer);
            let group = self.consumer.group_metadata().ok_or_else(|| {
                LogError::Refused(
                    "the Kafka consumer has no group; set `log.kafka.group_id`".into(),
                )
            })?;
            let same = before.filter(|before| identity(&self.consumer).as_ref() == Some(before));
            self.check_held(positions)?;
            if let Some(identity) = same {
                self.check_assigned_to(&identity, positions)?;
                return Ok(group);
            }
            if Instant::now() >= deadline {
                return Err(failed(
                    &format!("waiting for group `{}` to rebalance", self.config.group_id),
                    KafkaError::Rebalance(RDKafkaErrorCode::OperationTimedOut),
                ));
            }
            std::thread::sleep(SLICE);
        }
    }

    /// The broker expelled us, and we joined again, while a rebalance was in progress: then the
    /// client says of no partition that it is lost, and holds what may be another's for long. The
    /// broker would take our commits, since it knows us again. So what was done is dropped, and the
    /// member leaves the group to join it as who it is.
    fn check_assigned_to(
        &self,
        identity: &Identity,
        positions: &[Position],
    ) -> Result<(), LogError> {
        let membership = self.consumer.context();
        let partitions = membership.assigned_to_another(identity, positions);
        if partitions.is_empty() {
            return Ok(());
        }
        membership.ask_to_join_again();
        Err(LogError::Stale { partitions })
    }

    fn check_held(&self, positions: &[Position]) -> Result<(), LogError> {
        let mut partitions = self.consumer.context().stale(positions);
        if self.consumer.assignment_lost() {
            // All are lost; the event that says so was not polled yet.
            partitions = positions.iter().map(|position| position.partition).collect();
            partitions.sort_unstable();
        }
        if partitions.is_empty() { Ok(()) } else { Err(LogError::Stale { partitions }) }
    }

    fn offsets(&self, positions: &[Position]) -> Result<TopicPartitionList, LogError> {
        let turns = self.config.topics.name(Topic::Turns);
        let mut list = TopicPartitionList::with_capacity(positions.len());
        for position in positions {
            let mut element = list.add_partition(turns, position.partition);
            element.set_offset(Offset::Offset(position.offset)).map_err(|source| {
                failed(&format!("committing offset {} of `{turns}`", position.offset), source)
            })?;
            // Even when it is empty: a committed one must not outlive its offset.
            if !position.metadata.is_empty() {
                element.set_metadata(&position.metadata);
            }
        }
        Ok(list)
    }

    /// A record was refused; what would be refused again ends the process.
    fn not_delivered(&self, doing: &str, source: KafkaError) -> LogError {
        use RDKafkaErrorCode as Code;
        let remedy = match source.rdkafka_error_code() {
            Some(Code::MessageSizeTooLarge | Code::InvalidMessageSize) => {
                "a record is too large; raise `message.max.bytes` under `log.kafka.client` and \
                 `max.message.bytes` of the topics"
            }
            Some(Code::UnknownPartition | Code::UnknownTopic | Code::UnknownTopicOrPartition) => {
                "a topic is gone or has fewer partitions than the inputs; create it again"
            }
            _ => return self.judged(doing, source),
        };
        refused(doing, &source, remedy)
    }

    /// Whether an error ends the process is for the client to say.
    fn judged(&self, doing: &str, source: KafkaError) -> LogError {
        let is_fatal = self.client.client().fatal_error().is_some()
            || matches!(&source, KafkaError::Transaction(error) if error.is_fatal());
        if is_fatal {
            return self.fatal(doing, source);
        }
        match remedy_of(&source) {
            Some(remedy) => refused(doing, &source, remedy),
            None => LogError::Kafka { doing: doing.to_owned(), source, fatal: false },
        }
    }

    /// An error after which the process must stop.
    fn fatal(&self, doing: &str, source: KafkaError) -> LogError {
        let first = self.client.client().fatal_error().map(|(code, _)| code);
        let outlived = Instant::now() >= self.deadline;
        errors::fatal(&self.config, doing, first, outlived, source)
    }

    /// Commits what was filled in. Once this was begun only its success is certain: the client
    /// says of the other ends whether the transaction can still be aborted.
    fn end(&self, deadline: Instant) -> Result<(), LogError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).max(SLICE);
            match self.client.commit_transaction(left) {
                Ok(()) => return Ok(()),
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && Instant::now() < deadline => {}
                Err(KafkaError::Transaction(error)) if error.txn_requires_abort() => {
                    let source = KafkaError::Transaction(error);
                    return Err(self.judged("committing a transaction", source));
                }
                Err(source) => {
                    let doing = "committing a transaction, of which it is not known whether it \
                                 took effect";
                    return Err(self.fatal(doing, source));
                }
            }
        }
    }

    /// Aborts. What still waits to be sent is purged by the client itself: purged from here it
    /// would leave a gap in the numbers by which the broker knows repeated records, and the next
    /// transaction would fail. The client waits for us to hear of every record, hence the short
    /// calls, each of which goes on where the one before stopped.
    fn abort(&self) -> Result<(), LogError> {
        let deadline = Instant::now() + self.timeout();
        loop {
            match self.client.abort_transaction(ABORT_SLICE) {
                Ok(()) => return Ok(()),
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && Instant::now() < deadline =>
                {
                    self.client.poll(SLICE);
                }
                Err(source) => {
                    return Err(self.fatal("aborting a transaction", source));
                }
            }
        }
    }

    /// Commits a transaction that [keeps its promises](Transaction::check), while the partitions of
    /// these of its positions are held.
    pub(super) fn commit(
        &mut self,
        transaction: &Transaction,
        held: &[Position],
    ) -> Result<(), Uncommitted> {
        let known = |error| Uncommitted { error, is_unknown: false };
        self.check_held(held).map_err(known)?;
        let deadline = Instant::now() + self.timeout();
        self.deadline = deadline;
        self.number += 1;
        *self.client.context().delivered() =
            Delivered { number: self.number, ..Delivered::default() };
        let begun = self.client.begin_transaction();
        begun.map_err(|source| known(self.judged("beginning a transaction", source)))?;
        let (error, open, ending) = match self.fill(transaction, held, deadline) {
            // Also what is refused is aborted, so that readers need not wait for the timeout.
            Err(error) => (error, self.client.client().fatal_error().is_none(), false),
            Ok(()) if self.has_lost_a_broker() => {
                let source = KafkaError::Global(RDKafkaErrorCode::BrokerTransportFailure);
                let doing = "committing a transaction, before which a broker was lost".to_owned();
                (LogError::Kafka { doing, source, fatal: true }, false, false)
            }
            Ok(()) => match self.end(deadline) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let refused = matches!(error, LogError::Refused(_));
                    let usable = self.client.client().fatal_error().is_none();
                    let open = !error.is_fatal() || (refused && usable);
                    (error, open, true)
                }
            },
        };
        if !open {
            return Err(Uncommitted { error, is_unknown: ending });
        }
        match self.abort() {
            // The broker's clock may have run out too. Then it aborted the transaction by itself, under an
            // epoch that fences this client as if another process had come.
            Ok(()) if Instant::now() >= deadline => match error {
                LogError::Kafka { doing, source, .. } => {
                    Err(known(LogError::Kafka { doing, source, fatal: true }))
                }
                error => Err(known(error)),
            },
            Ok(()) => Err(known(error)),
            Err(worse) => {
                tracing::warn!(%error, "a transaction failed, and could not be aborted");
                Err(Uncommitted { error: worse, is_unknown: ending })
            }
        }
    }
}
