//! The transactions of one client. A transaction is committed or aborted, or else its client must be
//! replaced (`kafka/recovery.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{Consumer as _, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header as KafkaHeader, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};

use turnstream_schemas::Header;

use super::super::{LogError, Output, Position, Transaction};
use super::closing::ClosedInTime;
use super::config::KafkaTopics;
use super::errors::{self, failed, refused, remedy_of};
use super::membership::{Identity, MemberClient, identity};
use super::settling::Places;
use super::{KafkaConfig, offsets, outage};

/// How long to sleep before checking again what no event announces.
const SLICE: Duration = Duration::from_micros(500);

/// The longest call of an abort.
pub(super) const ABORT_SLICE: Duration = Duration::from_millis(20);

/// The most events that can be pending when a transaction is about to be committed: its delivery
/// reports were handled already.
const EVENTS: usize = 16;

/// A client that commits outcomes and positions. The client's own thread handles its events as they
/// come, because a poll never returns before its time is over and busy-waits in its last
/// millisecond.
pub(super) struct TransactionalClient {
    client: ClosedInTime<ThreadedProducer<Deliveries>>,
    consumer: Arc<MemberClient>,
    config: KafkaConfig,
    /// How many transactions have begun.
    number: usize,
    /// When the latest transaction outlives its timeout.
    deadline: Instant,
}

/// Why a transaction was not committed.
pub(super) struct Uncommitted {
    /// The error. After a fatal one, the client cannot be used any more.
    pub(super) error: LogError,
    /// Whether the transaction may be visible nevertheless.
    pub(super) is_unknown: bool,
}

/// Handles the delivery report of each record. The report of a record that an abort purged may come
/// long after the abort, so each record carries the number of its transaction.
struct Deliveries {
    topics: KafkaTopics,
    delivered: Mutex<Delivered>,
    /// Wakes the committer when every report of its transaction was handled.
    reported: Condvar,
    /// Whether an established connection was lost.
    lost: AtomicBool,
}

/// The delivery reports of one transaction.
#[derive(Default)]
struct Delivered {
    number: usize,
    /// How many records the transaction has, and how many of their reports were handled.
    sent: usize,
    reported: usize,
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
    /// The client reports no error for a connection that breaks while idle, but logs it.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // In the words of librdkafka 2.12. A failed connection attempt does not count.
        if facility == "FAIL" && message.contains("in state UP") {
            self.lost.store(true, Ordering::SeqCst);
        }
        outage::report_log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        outage::report_error(&error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let mut delivered = self.delivered();
        if delivered.number != number {
            return;
        }
        delivered.reported += 1;
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
        if delivered.reported == delivered.sent {
            self.reported.notify_all();
        }
    }
}

/// Converts headers for the client; `None` if there are none.
pub(super) fn kafka_headers(headers: &[Header]) -> Option<OwnedHeaders> {
    let begun = OwnedHeaders::new_with_capacity(headers.len());
    let filled = headers.iter().fold(begun, |filled, header| {
        let value = header.value.as_ref().map(|value| value.0.as_slice());
        filled.insert(KafkaHeader { key: &header.name, value })
    });
    (!headers.is_empty()).then_some(filled)
}

/// Takes the transactional id, which fences its earlier holder and aborts that one's open
/// transaction, if the broker knows of it. For one that the broker forgot, call
/// [`sweep`](super::sweep::sweep) first. Takes at most `wait`; after a non-fatal error, another
/// call continues.
pub(super) fn take_id<C: ProducerContext>(
    client: &impl Producer<C>,
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
    /// A client that has not yet [taken](Self::take_id) its id.
    pub(super) fn new(
        consumer: Arc<MemberClient>,
        config: &KafkaConfig,
        accepted_bytes: Option<usize>,
    ) -> Result<Self, LogError> {
        let client: ThreadedProducer<Deliveries> = config
            .producer_settings(accepted_bytes)
            .create_with_context(Deliveries {
                topics: config.topics.clone(),
                delivered: Mutex::default(),
                reported: Condvar::new(),
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
        take_id(&*self.client, &self.config, wait)
    }

    /// Whether this client has lost a broker that it was connected to. That broker may have
    /// forgotten the end of the latest transaction. The end of the next transaction would then also
    /// end parts of the latest.
    pub(super) fn has_lost_a_broker(&self) -> bool {
        // The client's thread handled what came before the latest delivery report. Each call here
        // handles one event.
        (0..EVENTS).for_each(|_| self.client.poll(Duration::ZERO));
        self.client.context().lost.load(Ordering::SeqCst)
    }

    /// The offsets of the latest transaction's records.
    pub(super) fn places(&self) -> Places {
        self.client.context().delivered().places.clone()
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.config.transaction_timeout_ms))
    }

    /// All steps before the commit. After an error the transaction must be aborted.
    fn fill(
        &self,
        transaction: &Transaction,
        held: &[Position],
        deadline: Instant,
    ) -> Result<(), LogError> {
        for output in &transaction.outputs {
            self.send(output, deadline)?;
        }
        self.delivered(deadline)?;
        let failure = self.client.context().delivered().failure.clone();
        if let Some(source) = failure {
            return Err(self.not_delivered("delivering outcomes", source));
        }
        let group = self.group_of(held, deadline)?;
        let list = offsets::list(&self.config, &transaction.positions)?;
        let left = deadline.saturating_duration_since(Instant::now()).max(SLICE);
        let doing = || format!("adding the offsets of group `{}`", self.config.group_id);
        match offsets::add(&self.client, list, group, left) {
            Some(Ok(())) => Ok(()),
            // The group refuses this member: a rebalance is in progress, or it was expelled. The
            // next events show which, and the check above then knows at the next attempt.
            Some(Err(source)) => Err(self.judged(&doing(), source)),
            None => {
                let source = KafkaError::Global(RDKafkaErrorCode::OperationTimedOut);
                Err(LogError::Kafka { doing: doing(), source, fatal: true })
            }
        }
    }

    fn send(&self, output: &Output, deadline: Instant) -> Result<(), LogError> {
        let topic = self.config.topics.name(output.topic);
        let mut record: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(topic, self.number).partition(output.partition);
        record.key = output.key.as_deref();
        record.payload = output.value.as_deref();
        record.headers = kafka_headers(&output.headers);
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
            std::thread::sleep(SLICE);
        }
    }

    /// Waits until every record is delivered or refused and its report is handled.
    fn delivered(&self, deadline: Instant) -> Result<(), LogError> {
        // Tells the client to send what lingers, and waits for nothing.
        let _ = self.client.flush(Duration::ZERO);
        let context = self.client.context();
        let left = deadline.saturating_duration_since(Instant::now());
        let (delivered, waited) = context
            .reported
            .wait_timeout_while(context.delivered(), left, |it| it.reported < it.sent)
            .unwrap_or_else(PoisonError::into_inner);
        drop(delivered);
        if !waited.timed_out() {
            return Ok(());
        }
        let late = self.client.flush(Duration::ZERO);
        late.map_err(|source| self.judged("waiting for records to be delivered", source))
    }

    /// The group metadata of a member that has a complete identity and at the same time holds all
    /// partitions of the positions under their generations. Waits while the identity changes.
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

    /// Handles a member that was expelled and joined again while a rebalance was in progress. The
    /// client then reports no partition as lost and may long hold partitions of other members. The
    /// broker would accept our commits, since it knows the new id. The outcomes are therefore
    /// dropped, and the member leaves the group to join it again.
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
            // All partitions are lost; the event was not polled yet.
            partitions = positions.iter().map(|position| position.partition).collect();
            partitions.sort_unstable();
        }
        if partitions.is_empty() { Ok(()) } else { Err(LogError::Stale { partitions }) }
    }

    /// The error of a record that was refused. It ends the process if the broker would refuse
    /// again.
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

    /// The client decides whether an error ends the process.
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

    /// Commits the filled transaction. From here on only success is certain; for errors, the client
    /// says whether the transaction can still be aborted.
    fn end(&self, deadline: Instant) -> Result<(), LogError> {
        // The client frees a record shortly after its report was handled. A commit that finds one
        // not freed yet would wait in slices of 100 ms.
        while self.client.flush(Duration::ZERO).is_err() && Instant::now() < deadline {
            std::thread::sleep(SLICE);
        }
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
                    let doing = "committing a transaction, which may or may not have taken effect";
                    return Err(self.fatal(doing, source));
                }
            }
        }
    }

    /// Aborts the transaction. The client itself purges unsent records: purging them here would
    /// leave a gap in the sequence numbers by which the broker recognises repeated records, and the
    /// next transaction would fail. The client waits until every delivery report is handled, so the
    /// calls are short; each continues the one before.
    fn abort(&self) -> Result<(), LogError> {
        let deadline = Instant::now() + self.timeout();
        loop {
            match self.client.abort_transaction(ABORT_SLICE) {
                Ok(()) => return Ok(()),
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && Instant::now() < deadline =>
                {
                    std::thread::sleep(SLICE);
                }
                Err(source) => {
                    return Err(self.fatal("aborting a transaction", source));
                }
            }
        }
    }

    /// Commits a transaction that [keeps the rules of its fields](Transaction::check), if the
    /// partitions of the `held` positions are held.
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
        *self.client.context().delivered() = Delivered {
            number: self.number,
            sent: transaction.outputs.len(),
            ..Delivered::default()
        };
        let begun = self.client.begin_transaction();
        begun.map_err(|source| known(self.judged("beginning a transaction", source)))?;
        let (error, open, ending) = match self.fill(transaction, held, deadline) {
            // Abort also after a refusal, so that readers need not wait for the timeout.
            Err(error) => {
                let usable = self.client.client().fatal_error().is_none()
                    && !matches!(error, LogError::Kafka { fatal: true, .. });
                (error, usable, false)
            }
            Ok(()) if self.has_lost_a_broker() => {
                let source = KafkaError::Global(RDKafkaErrorCode::BrokerTransportFailure);
                let doing = "committing a transaction after the loss of a broker".to_owned();
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
            // If the broker's timeout has passed too, the broker has fenced this client by a new epoch.
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
