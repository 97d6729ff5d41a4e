//! The transactional producer of the committer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::bindings as native;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header as KafkaHeader, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext, PurgeConfig};
use rdkafka::{Offset, TopicPartitionList};

use super::super::{LogError, Output, Position, Producer, Topic, Transaction};
use super::membership::Membership;
use super::{KafkaConfig, REQUEST_TIMEOUT, failed};

/// How long the client is waited for at once. It always takes the whole of it.
const SLICE: Duration = Duration::from_micros(500);

/// Commits outcomes with the positions behind them.
pub struct KafkaProducer {
    client: BaseProducer<Deliveries>,
    consumer: Arc<BaseConsumer<Membership>>,
    config: KafkaConfig,
}

/// Hears what became of each record sent.
#[derive(Default)]
struct Deliveries {
    /// The first failure since it was last taken.
    failure: Mutex<Option<KafkaError>>,
}

impl Deliveries {
    fn take_failure(&self) -> Option<KafkaError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ClientContext for Deliveries {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "Kafka producer");
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert_with(|| error.clone());
        }
    }
}

/// Who the consumer is in its group, as the broker checks it.
#[derive(PartialEq, Eq)]
struct Identity {
    member: Vec<u8>,
    generation: i32,
}

impl KafkaProducer {
    pub(super) fn initialise(
        consumer: Arc<BaseConsumer<Membership>>,
        config: &KafkaConfig,
    ) -> Result<Self, LogError> {
        let id = &config.transactional_id;
        let client: BaseProducer<Deliveries> = config
            .producer_settings()
            .create_with_context(Deliveries::default())
            .map_err(|source| failed("making the Kafka producer from `kafka.client`", source))?;
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        loop {
            match client.init_transactions(REQUEST_TIMEOUT) {
                Ok(()) => return Ok(Self { client, consumer, config: config.clone() }),
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && Instant::now() < deadline => {}
                Err(source) => {
                    let doing = format!(
                        "taking the transactional id `{id}`; the broker must be able to keep \
                         transactions (`transaction.state.log.*`) and the ACLs must allow it"
                    );
                    return Err(LogError::Kafka { doing, source, fatal: true });
                }
            }
        }
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
        if let Some(source) = self.client.context().take_failure() {
            return Err(self.delivery_failed(source));
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
        let mut record: BaseRecord<'_, [u8], [u8]> =
            BaseRecord::to(topic).partition(output.partition);
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
                return Err(self.judged(&doing, source));
            }
            record = back;
            self.client.poll(SLICE);
        }
    }

    /// Waits until every record was delivered or refused. The client's own flush waits in slices
    /// of 100 ms, which would be the latency of every commit.
    fn flush(&self, deadline: Instant) -> Result<(), LogError> {
        loop {
            match self.client.flush(Duration::ZERO) {
                Ok(()) => return Ok(()),
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
            let before = self.identity();
            let group = self.consumer.group_metadata().ok_or_else(|| {
                LogError::Refused("the Kafka consumer has no group; set `kafka.group_id`".into())
            })?;
            let same = before.is_some() && before == self.identity();
            self.check_held(positions)?;
            if same {
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

    fn check_held(&self, positions: &[Position]) -> Result<(), LogError> {
        let mut partitions = self.consumer.context().stale(positions);
        if self.consumer.assignment_lost() {
            // All are lost; the event that says so was not polled yet.
            partitions = positions.iter().map(|position| position.partition).collect();
            partitions.sort_unstable();
        }
        if partitions.is_empty() { Ok(()) } else { Err(LogError::Stale { partitions }) }
    }

    /// Who the consumer is, unless it has forgotten that.
    #[allow(unsafe_code)]
    fn identity(&self) -> Option<Identity> {
        // SAFETY: the client outlives the call, the metadata is ours until it is destroyed, and
        // the member id is a string that lives as long as the metadata.
        let identity = unsafe {
            let metadata =
                native::rd_kafka_consumer_group_metadata(self.consumer.client().native_ptr());
            if metadata.is_null() {
                return None;
            }
            let member = native::rd_kafka_consumer_group_metadata_member_id(metadata);
            let identity = Identity {
                member: std::ffi::CStr::from_ptr(member).to_bytes().to_vec(),
                generation: native::rd_kafka_consumer_group_metadata_generation_id(metadata),
            };
            native::rd_kafka_consumer_group_metadata_destroy(metadata);
            identity
        };
        (!identity.member.is_empty() && identity.generation >= 0).then_some(identity)
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

    fn delivery_failed(&self, source: KafkaError) -> LogError {
        let remedy = match source.rdkafka_error_code() {
            Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::InvalidMessageSize) => {
                "; it is larger than the topic's `max.message.bytes`, so raise that"
            }
            Some(RDKafkaErrorCode::UnknownPartition | RDKafkaErrorCode::UnknownTopicOrPartition) => {
                "; a topic is gone or has fewer partitions than the inputs"
            }
            Some(RDKafkaErrorCode::TopicAuthorizationFailed) => "; check the broker's ACLs",
            _ => return self.judged("delivering outcomes", source),
        };
        LogError::Kafka { doing: format!("delivering outcomes{remedy}"), source, fatal: true }
    }

    /// Whether an error ends the process is for the client to say.
    fn judged(&self, doing: &str, source: KafkaError) -> LogError {
        let fatal = self.client.client().fatal_error().is_some()
            || matches!(&source, KafkaError::Transaction(error) if error.is_fatal());
        let doing = match &source {
            _ if !fatal => doing.to_owned(),
            _ => format!(
                "{doing} under the transactional id `{}`; if another process has it, give every \
                 process its own",
                self.config.transactional_id
            ),
        };
        LogError::Kafka { doing, source, fatal }
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
                                 took effect; the process must start again"
                        .to_owned();
                    return Err(LogError::Kafka { doing, source, fatal: true });
                }
            }
        }
    }

    fn abort(&self) -> Result<(), LogError> {
        let deadline = Instant::now() + self.timeout();
        self.client.purge(PurgeConfig::default().queue().inflight());
        self.flush(deadline)?;
        self.client.context().take_failure();
        loop {
            match self.client.abort_transaction(self.timeout()) {
                Ok(()) => return Ok(()),
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && Instant::now() < deadline => {}
                Err(source) => {
                    let doing = "aborting a transaction; the process must start again".to_owned();
                    return Err(LogError::Kafka { doing, source, fatal: true });
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
        self.client.context().take_failure();
        self.client
            .begin_transaction()
            .map_err(|source| self.judged("beginning a transaction", source))?;
        let (error, open) = match self.fill(transaction, deadline) {
            Err(error) => (error, self.client.client().fatal_error().is_none()),
            Ok(()) => match self.end(deadline) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let open = !error.is_fatal();
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
