//! A writer to the topic of knowledge: idempotent, and certain on all copies.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use turnstream_operators::partitioner::Partitioner;

use super::super::write::{Stretch, Writer, Written};
use super::super::{LogError, Topic};
use super::errors::failed;
use super::membership::Membership;
use super::{KafkaConfig, REQUEST_TIMEOUT, shared_settings, topics};

/// How long one wait for deliveries takes.
const SLICE: Duration = Duration::from_millis(2);

/// Writes changes to the knowledge.
pub struct KafkaWriter {
    client: BaseProducer<Deliveries>,
    topic: String,
    partitions: i32,
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
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "Kafka client");
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

/// Opens the topic of knowledge to write to it. It is checked first, and made where it is missing
/// and the configuration says so.
///
/// # Errors
///
/// [`LogError::Refused`] where the settings or the topic are not fit, with what to change;
/// [`LogError::Kafka`] where the broker cannot be reached or refuses.
pub fn write(config: &KafkaConfig) -> Result<KafkaWriter, LogError> {
    config.check()?;
    let topic = config.topics.name(Topic::Knowledge);
    let asking: BaseConsumer<Membership> = config
        .uncommitted_settings()
        .create_with_context(Membership::new(topic))
        .map_err(|source| failed("making a Kafka consumer from `kafka.client`", source))?;
    let partitions = topics::fit_knowledge(&asking, config)?;
    let client = shared_settings(config)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("message.timeout.ms", REQUEST_TIMEOUT.as_millis().to_string())
        .set("queue.buffering.max.kbytes", config.send_queue_kib.to_string())
        .create_with_context(Deliveries::default())
        .map_err(|source| failed("making a Kafka producer from `kafka.client`", source))?;
    Ok(KafkaWriter { client, topic: topic.to_owned(), partitions })
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
        failed(&doing, source)
    }
}

impl Writer for KafkaWriter {
    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), LogError> {
        self.check()?;
        let partition = Partitioner::Murmur2.partition(key, self.partitions).unwrap_or(0);
        let record = BaseRecord::<[u8], [u8]>::to(&self.topic).partition(partition).key(key);
        let mut record = match value {
            Some(value) => record.payload(value),
            None => record,
        };
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
        Ok(std::mem::take(&mut self.client.context().delivered().written))
    }
}
