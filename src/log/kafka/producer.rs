//! The transactional producer of the committer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header as KafkaHeader, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};

use super::super::{LogError, Output, Position, Producer, Topic, Transaction};
use super::errors::{self, failed, refused, remedy_of};
use super::membership::{Identity, Membership, identity};
use super::{KafkaConfig, REQUEST_TIMEOUT};

/// How long the client is waited for at once. It always takes the whole of it.
const SLICE: Duration = Duration::from_micros(500);

/// How long one call of an abort may take before deliveries are heard again.
pub(super) const ABORT_SLICE: Duration = Duration::from_millis(20);

/// Commits outcomes with the positions behind them.
pub struct KafkaProducer {
    client: BaseProducer<Deliveries>,
    consumer: Arc<BaseConsumer<Membership>>,
    config: KafkaConfig,
    /// How many transactions were begun.
    number: usize,
    /// When the latest of them outlives its timeout.
    deadline: Instant,
}

/// Hears what became of each record sent. Of records that an abort purged that may be long after
/// it, so each carries the number of its transaction.
#[derive(Default)]
struct Deliveries {
    /// The latest transaction of which a record failed, and its first failure.
    failure: Mutex<Option<(usize, KafkaError)>>,
}

impl Deliveries {
    fn failure_of(&self, number: usize) -> Option<KafkaError> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.as_ref().filter(|(of, _)| *of == number).map(|(_, error)| error.clone())
    }
}

impl ClientContext for Deliveries {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "Kafka producer");
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        if let Err((error, _)) = result {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            if failure.as_ref().is_none_or(|(of, _)| *of < number) {
                *failure = Some((number, error.clone()));
            }
        }
    }
}

/// Takes the transactional id: whoever had it is fenced, and what it left open is aborted.
pub(super) fn take_id<C: ProducerContext>(
    client: &BaseProducer<C>,
    config: &KafkaConfig,
) -> Result<(), LogError> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    loop {
        match client.init_transactions(REQUEST_TIMEOUT) {
            Ok(()) => return Ok(()),
            Err(KafkaError::Transaction(error))
                if error.is_retriable() && Instant::now() < deadline => {}
            Err(source) => {
                let doing = format!(
                    "taking the transactional id `{}`; the broker must be able to keep \
                     transactions (`transaction.state.log.*`)",
                    config.transactional_id
                );
                let first = client.client().fatal_error().map(|(code, _)| code);
                return Err(errors::fatal(config, &doing, first, false, source));
            }
        }
    }
}

impl KafkaProducer {
    pub(super) fn initialise(
        consumer: Arc<BaseConsumer<Membership>>,
        config: &KafkaConfig,
        accepted_bytes: Option<usize>,
    ) -> Result<Self, LogError> {
        let client: BaseProducer<Deliveries> = config
            .producer_settings(accepted_bytes)
            .create_with_context(Deliveries::default())
            .map_err(|source| failed("making the Kafka producer from `kafka.client`", source))?;
        take_id(&client, config)?;
        Ok(Self { client, consumer, config: config.clone(), number: 0, deadline: Instant::now() })
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.config.transaction_timeout_ms))
    }

    /// Everything up to the commit itself; after an error the transaction must be aborted.
    fn fill(&self, transaction: &Transaction, deadline: Instant) -> Result<(), LogError> {
        for output in &transaction.outputs {
            self.send(output, deadline)?;
        }
        self.flush(deadline)?;
        if let Some(source) = self.client.context().failure_of(self.number) {
            return Err(self.not_delivered("delivering outcomes", source));
        }
        let group = self.group_of(&transaction.positions, deadline)?;
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
                LogError::Refused("the Kafka consumer has no group; set `kafka.group_id`".into())
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
    /// broker would take our commits, since it knows us again.
    fn check_assigned_to(
        &self,
        identity: &Identity,
        positions: &[Position],
    ) -> Result<(), LogError> {
        let partitions = self.consumer.context().assigned_to_another(identity, positions);
        if partitions.is_empty() {
            return Ok(());
        }
        let group = &self.config.group_id;
        Err(LogError::Kafka {
            doing: format!(
                "committing for partitions {partitions:?}, which group `{group}` gave us before it \
                 expelled us and took us in again; the process must start again"
            ),
            source: KafkaError::Rebalance(RDKafkaErrorCode::AssignmentLost),
            fatal: true,
        })
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
                "a record is too large; raise `message.max.bytes` under `kafka.client` and \
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
                                 took effect; the process must start again";
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
                    let doing = "aborting a transaction; the process must start again";
                    return Err(self.fatal(doing, source));
                }
            }
        }
    }
}

impl Producer for KafkaProducer {
    fn commit(&mut self, transaction: &Transaction) -> Result<(), LogError> {
        transaction.check()?;
        if transaction.positions.is_empty() {
            return Ok(());
        }
        self.check_held(&transaction.positions)?;
        let deadline = Instant::now() + self.timeout();
        self.deadline = deadline;
        self.number += 1;
        self.client
            .begin_transaction()
            .map_err(|source| self.judged("beginning a transaction", source))?;
        let (error, open) = match self.fill(transaction, deadline) {
            // Also what is refused is aborted, so that readers need not wait for the timeout.
            Err(error) => (error, self.client.client().fatal_error().is_none()),
            Ok(()) => match self.end(deadline) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let refused = matches!(error, LogError::Refused(_));
                    let usable = self.client.client().fatal_error().is_none();
                    let open = !error.is_fatal() || (refused && usable);
                    (error, open)
                }
            },
        };
        if open && let Err(worse) = self.abort() {
            tracing::error!(%error, "a transaction failed, and could not be aborted");
            return Err(worse);
        }
        Err(error)
    }
}
