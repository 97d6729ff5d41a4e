//! A writer to a topic, idempotent, with acknowledgement by all in-sync replicas.
//!
//! Several processes may [`write()`] to the topic of knowledge, each record independently. One
//! process [`publish`]es views, and one [`redrive`]s dead letters. Both write in transactions, and
//! their transactional id fences the earlier process. Two processes therefore never overwrite each
//! other's counts in turn, and no dead letter is sent again twice.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};

use turnstream_schemas::Header;

use super::super::write::{Stretch, TogetherWriter, Writer, Written};
use super::super::{LogError, Output, Topic};
use super::config::KafkaTopics;
use super::errors::{self, failed};
use super::membership::Membership;
use super::producer::{ABORT_SLICE, kafka_headers, take_id};
use super::sweep::sweep;
use super::{KafkaConfig, REQUEST_TIMEOUT, outage, shared_settings, topics};

/// The longest single wait for deliveries.
const SLICE: Duration = Duration::from_millis(2);

/// Writes records to a topic.
pub struct KafkaWriter {
    client: BaseProducer<WriterContext>,
    topics: KafkaTopics,
    topic: Topic,
    partitions: i32,
    transactions: Option<Transactions>,
}

/// The transactions of a writer whose records between two [`finish`](Writer::finish)es become
/// visible together.
struct Transactions {
    /// Has the transactional id of this writer.
    config: KafkaConfig,
    /// Whether a transaction is open.
    open: bool,
}

/// The delivery reports of the records.
#[derive(Default)]
struct WriterContext(Mutex<DeliveryReports>);

#[derive(Default)]
struct DeliveryReports {
    written: Written,
    failed: Option<KafkaError>,
}

impl WriterContext {
    fn delivered(&self) -> MutexGuard<'_, DeliveryReports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for WriterContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        outage::report_log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        outage::report_error(&error, reason);
    }
}

impl ProducerContext for WriterContext {
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

/// Opens a topic to write to it. Checks the topic first, and creates it if it is missing and the
/// configuration says so.
///
/// # Errors
///
/// [`LogError::Refused`] if the settings or the topic are unfit, with what to change;
/// [`LogError::Kafka`] if the broker cannot be reached or refuses.
pub fn write(config: &KafkaConfig, topic: Topic) -> Result<KafkaWriter, LogError> {
    let mut settings = shared_settings(config);
    settings
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("message.timeout.ms", REQUEST_TIMEOUT.as_millis().to_string())
        .set("queue.buffering.max.kbytes", config.send_queue_kib.to_string());
    open(config, topic, &settings)
}

/// Opens a topic as its only writer, in transactions under `log.kafka.views_transactional_id`. This
/// fences the earlier holder of that id and aborts its open transactions. Readers see all records
/// between two [`finish`](Writer::finish)es or none. An error ends the writer.
///
/// # Errors
///
/// As [`write()`]; and later [`LogError::Fenced`] if another process takes the id.
pub fn publish(config: &KafkaConfig, topic: Topic) -> Result<KafkaWriter, LogError> {
    let transactional_id = config.views_transactional_id.clone();
    let config = KafkaConfig { transactional_id, ..config.clone() };
    let mut writer = open(&config, topic, &config.producer_settings(None))?;
    sweep(&config, [(topic, writer.partitions)], REQUEST_TIMEOUT)?;
    take_id(&writer.client, &config, REQUEST_TIMEOUT)?;
    writer.transactions = Some(Transactions { config, open: false });
    Ok(writer)
}

/// Opens the topics of turns and dead letters to write to both in transactions, under the group's
/// id with `-redrive` appended. This fences the earlier holder of that id and aborts its open
/// transactions.
///
/// # Errors
///
/// As [`publish`].
pub fn redrive(config: &KafkaConfig) -> Result<KafkaWriter, LogError> {
    let transactional_id = format!("{}-redrive", config.group_id);
    let config = KafkaConfig { transactional_id, ..config.clone() };
    let mut writer = open(&config, Topic::Turns, &config.producer_settings(None))?;
    let written = [Topic::Turns, Topic::DeadLetters].map(|topic| (topic, writer.partitions));
    sweep(&config, written, REQUEST_TIMEOUT)?;
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
        .create_with_context(WriterContext::default())
        .map_err(|source| failed("making a Kafka producer from `log.kafka.client`", source))?;
    let (topics, transactions) = (config.topics.clone(), None);
    Ok(KafkaWriter { client, topics, topic: wanted, partitions, transactions })
}

impl KafkaWriter {
    /// The first failed delivery, if any.
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
            self.topics.name(self.topic)
        );
        let first = self.client.client().fatal_error().map(|(code, _)| code);
        let is_fatal = first.is_some()
            || matches!(&source, KafkaError::Transaction(error) if error.is_fatal());
        match &self.transactions {
            Some(of) if is_fatal => errors::fatal(&of.config, &doing, first, false, source),
            _ => failed(&doing, source),
        }
    }

    /// Begins a transaction if this writer uses transactions and none is open.
    fn begin(&mut self) -> Result<(), LogError> {
        let Some(Transactions { open: open @ false, .. }) = &mut self.transactions else {
            return Ok(());
        };
        *open = true;
        self.client.begin_transaction().map_err(|source| self.failed(source))
    }

    /// Commits the open transaction, if any, after all records were delivered.
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

    /// The error of a transaction that was not committed. The broker may answer a client that is
    /// being fenced with an error that does not say so. If the transaction must be aborted, the
    /// answer to the abort tells.
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
                    // The client waits until every delivery report is handled.
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

    /// Queues a record, in the open transaction if this writer uses transactions.
    fn send(
        &mut self,
        (topic, partition): (Topic, i32),
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header],
    ) -> Result<(), LogError> {
        self.check()?;
        self.begin()?;
        let topic = self.topics.name(topic);
        let mut record = BaseRecord::<[u8], [u8]>::to(topic).partition(partition);
        (record.key, record.payload, record.headers) = (key, value, kafka_headers(headers));
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

    /// Waits until every record is delivered, and commits.
    fn flush(&mut self) -> Result<Written, LogError> {
        // The loop ends, since a record that is not delivered in time fails.
        while self.client.in_flight_count() > 0 {
            // The client's own flush would stop lingering, but wait in slices of 100 ms.
            let _ = self.client.flush(Duration::ZERO);
            self.client.poll(SLICE);
        }
        self.check()?;
        self.commit()?;
        Ok(std::mem::take(&mut self.client.context().delivered().written))
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
        self.send((self.topic, partition), key, value, &[])
    }

    fn finish(&mut self) -> Result<Written, LogError> {
        self.flush()
    }
}

impl TogetherWriter for KafkaWriter {
    fn write_together(&mut self, outputs: &[Output]) -> Result<(), LogError> {
        for output in outputs {
            let Output { topic, partition, key, value, headers, .. } = output;
            self.send((*topic, *partition), key.as_deref(), value.as_deref(), headers)?;
        }
        self.flush().map(|_| ())
    }
}
