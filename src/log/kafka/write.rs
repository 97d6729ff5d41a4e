//! A writer to a topic: idempotent, and certain on all copies.
//!
//! Several processes may [`write()`] to the topic of knowledge, each record for itself. One process
//! [`publish`]es views: it writes in transactions, whose id fences the process before it, so that
//! two never write in turn what the other one takes for its own.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};

use super::super::write::{Stretch, Writer, Written};
use super::super::{LogError, Topic};
use super::errors::{self, failed};
use super::membership::Membership;
use super::producer::{ABORT_SLICE, take_id};
use super::sweep::sweep;
use super::{KafkaConfig, REQUEST_TIMEOUT, outage, shared_settings, topics};

/// How long one wait for deliveries takes.
const SLICE: Duration = Duration::from_millis(2);

/// Writes records to a topic.
pub struct KafkaWriter {
    client: BaseProducer<Deliveries>,
    topic: String,
    partitions: i32,
    transactions: Option<Transactions>,
}

/// Of a writer whose records between two [`finish`](Writer::finish)es are seen together.
struct Transactions {
    /// Whose transactional id is ours.
    config: KafkaConfig,
    /// Whether one was begun and not ended.
    open: bool,
}

/// What became of the records.
#[derive(Default)]
struct Deliveries(Mutex<Delivered>);

#[derive(Default)]
struct Delivered {
    written: Written,
    failed: Option<KafkaError>,
}

impl Deliveries {
    fn delivered(&self) -> MutexGuard<'_, Delivered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        outage::logged(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        outage::heard(&error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        let mut delivered = self.delivered();
        match result {
            Ok(message) => {
                Stretch::note(&mut delivered.written, message.partition(), message.offset());
            }
            Err((error, _)) => {
                delivered.failed.get_or_insert_with(|| error.clone());
            }
        }
    }
}

/// Opens a topic to write to it. It is checked first, and made where it is missing and the
/// configuration says so.
///
/// # Errors
///
/// [`LogError::Refused`] where the settings or the topic are not fit, with what to change;
/// [`LogError::Kafka`] where the broker cannot be reached or refuses.
pub fn write(config: &KafkaConfig, topic: Topic) -> Result<KafkaWriter, LogError> {
    let mut settings = shared_settings(config);
    settings
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("message.timeout.ms", REQUEST_TIMEOUT.as_millis().to_string())
        .set("queue.buffering.max.kbytes", config.send_queue_kib.to_string());
    open(config, topic, &settings)
}

/// Opens a topic to be its only writer, in transactions under `log.kafka.views_transactional_id`:
/// whoever had that id is fenced, and what it left open is aborted. What is written between two
/// [`finish`](Writer::finish)es is seen whole or not at all. An error ends the writer.
///
/// # Errors
///
/// As [`write()`]; and later [`LogError::Fenced`] where another process takes the id.
pub fn publish(config: &KafkaConfig, topic: Topic) -> Result<KafkaWriter, LogError> {
    let transactional_id = config.views_transactional_id.clone();
    let config = KafkaConfig { transactional_id, ..config.clone() };
    let mut writer = open(&config, topic, &config.producer_settings(None))?;
    sweep(&config, [(topic, writer.partitions)], REQUEST_TIMEOUT)?;
    take_id(&writer.client, &config, REQUEST_TIMEOUT)?;
    writer.transactions = Some(Transactions { config, open: false });
    Ok(writer)
}

fn open(
    config: &KafkaConfig,
    wanted: Topic,
    settings: &ClientConfig,
) -> Result<KafkaWriter, LogError> {
    config.check()?;
    let topic = config.topics.name(wanted);
    let asking: BaseConsumer<Membership> = config
        .uncommitted_settings()
        .create_with_context(Membership::new(topic))
        .map_err(|source| failed("making a Kafka consumer from `log.kafka.client`", source))?;
    let partitions = topics::fit_alone(&asking, config, wanted)?;
    let client = settings
        .create_with_context(Deliveries::default())
        .map_err(|source| failed("making a Kafka producer from `log.kafka.client`", source))?;
    Ok(KafkaWriter { client, topic: topic.to_owned(), partitions, transactions: None })
}

impl KafkaWriter {
    /// The first failure, if any.
    fn check(&self) -> Result<(), LogError> {
        match self.client.context().delivered().failed.clone() {
            None => Ok(()),
            Some(source) => Err(self.failed(source)),
        }
    }

    fn failed(&self, source: KafkaError) -> LogError {
        let doing = format!(
            "writing to topic `{}`; some records may be there already, and writing all of them \
             again does no harm",
            self.topic
        );
        let first = self.client.client().fatal_error().map(|(code, _)| code);
        let is_fatal = first.is_some()
            || matches!(&source, KafkaError::Transaction(error) if error.is_fatal());
        match &self.transactions {
            Some(of) if is_fatal => errors::fatal(&of.config, &doing, first, false, source),
            _ => failed(&doing, source),
        }
    }

    /// Begins a transaction where there are transactions and none is open.
    fn begin(&mut self) -> Result<(), LogError> {
        let Some(Transactions { open: open @ false, .. }) = &mut self.transactions else {
            return Ok(());
        };
        *open = true;
        self.client.begin_transaction().map_err(|source| self.failed(source))
    }

    /// Ends the open transaction, if any. Everything was delivered.
    fn commit(&mut self) -> Result<(), LogError> {
        let Some(Transactions { open: open @ true, config }) = &mut self.transactions else {
            return Ok(());
        };
        let timeout = Duration::from_millis(u64::from(config.transaction_timeout_ms));
        let deadline = Instant::now() + timeout;
        *open = false;
        loop {
            match self.client.commit_transaction(timeout) {
                Ok(()) => return Ok(()),
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && Instant::now() < deadline => {}
                Err(source) => return Err(self.uncommitted(source, deadline)),
            }
        }
    }

    /// Why a transaction was not committed. A broker may answer who is being fenced with an error
    /// that says nothing; where the transaction is to be aborted, what it says to that is asked for.
    fn uncommitted(&self, source: KafkaError, deadline: Instant) -> LogError {
        let aborts =
            matches!(&source, KafkaError::Transaction(error) if error.txn_requires_abort());
        if !aborts {
            return self.failed(source);
        }
        loop {
            match self.client.abort_transaction(ABORT_SLICE) {
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && Instant::now() < deadline =>
                {
                    // The client waits for us to hear of every record.
                    self.client.poll(SLICE);
                }
                Err(KafkaError::Transaction(error)) if error.is_fatal() => {
                    return self.failed(KafkaError::Transaction(error));
                }
                _ => break,
            }
        }
        self.failed(source)
    }
}

impl Writer for KafkaWriter {
    fn partitions(&self) -> i32 {
        self.partitions
    }

    fn write_to(
        &mut self,
        partition: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<(), LogError> {
        self.check()?;
        self.begin()?;
        let mut record = BaseRecord::<[u8], [u8]>::to(&self.topic).partition(partition);
        (record.key, record.payload) = (key, value);
        loop {
            record = match self.client.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(Code::QueueFull), back)) => back,
                Err((source, _)) => return Err(self.failed(source)),
            };
            self.client.poll(SLICE);
        }
        self.client.poll(Duration::ZERO);
        Ok(())
    }

    fn finish(&mut self) -> Result<Written, LogError> {
        // Ends by itself: what is not delivered in time has failed.
        while self.client.in_flight_count() > 0 {
            // The client's own flush would let it linger no longer, and wait in slices of 100 ms.
            let _ = self.client.flush(Duration::ZERO);
            self.client.poll(SLICE);
        }
        self.check()?;
        self.commit()?;
        Ok(std::mem::take(&mut self.client.context().delivered().written))
    }
}
