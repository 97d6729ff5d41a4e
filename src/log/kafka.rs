//! Kafka through rdkafka.
//!
//! A process has one [`KafkaConsumer`], owned by the consumer thread, and one [`KafkaProducer`],
//! owned by the committer; [`connect`] makes both. What keeps the claim of exactly once:
//!
//! - Offsets are committed only inside the producer's transactions, with the metadata of the
//!   consumer's group as it is at that moment; a plain commit would erase what travels with
//!   them.
//! - The broker refuses a member that it expelled, yet not one that has forgotten who it is
//!   (after some errors librdkafka has neither a member id nor a generation, and then the broker
//!   checks nothing). So the committer reads its identity before and after it fetches the
//!   metadata and goes on only where it is whole and the same, and only with partitions that the
//!   consumer still holds under the same generation. Expelled in the middle of a rebalance, the
//!   client also joins again as a new member that the broker trusts, and still holds what it was
//!   given before; so a partition counts only for the member that it was assigned to.
//! - A partition is restored as of one moment: the committed offset is the same before and after
//!   its changelog is read, up to the high watermark as it stood after the committed offset was
//!   stable. A transaction still open there is waited for: a dead process may have left it open
//!   below records that a later owner committed.
//! - A rebalance only assigns and pauses. Revoked partitions stay assigned until the engine
//!   releases them, outside any callback; meanwhile librdkafka keeps the heartbeat and holds the
//!   process's other partitions back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::{LogError, Topic};

mod config;
mod consumer;
mod membership;
mod producer;
mod restore;
#[cfg(test)]
mod tests;

pub use config::{ClientSettings, KafkaConfig, KafkaTopics};
pub use consumer::KafkaConsumer;
pub use producer::KafkaProducer;

use membership::Membership;

/// How long a request to the broker may take where nothing else bounds it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Joins the group and takes the transactional id. The transaction that an earlier process of
/// this id left open is aborted first, and the process fenced.
///
/// # Errors
///
/// [`LogError::Refused`] where the settings or the topics are not fit, with what to change;
/// [`LogError::Kafka`] where the broker cannot be reached or refuses.
pub fn connect(config: &KafkaConfig) -> Result<(KafkaConsumer, KafkaProducer), LogError> {
    config.check()?;
    let turns = config.topics.name(Topic::Turns);
    let client: BaseConsumer<Membership> = config
        .consumer_settings()
        .create_with_context(Membership::new(turns))
        .map_err(|source| failed("making the Kafka consumer from `kafka.client`", source))?;
    let client = Arc::new(client);
    check_topics(&client, config)?;
    let producer = KafkaProducer::initialise(Arc::clone(&client), config)?;
    client
        .subscribe(&[turns])
        .map_err(|source| failed(&format!("subscribing to topic `{turns}`"), source))?;
    Ok((KafkaConsumer::new(client, config), producer))
}

/// All topics must be there with the same number of partitions: the outcome of an input lies on
/// the partition of the input's number.
fn check_topics(client: &BaseConsumer<Membership>, config: &KafkaConfig) -> Result<(), LogError> {
    let mut expected = None;
    for topic in Topic::ALL {
        let name = config.topics.name(topic);
        let found = partition_count(client, name, config)?;
        match expected {
            None => expected = Some((name, found)),
            Some((_, count)) if count == found => {}
            Some((first, count)) => {
                return Err(LogError::Refused(format!(
                    "topic `{name}` has {found} partitions and `{first}` has {count}; create \
                     them with the same number"
                )));
            }
        }
    }
    Ok(())
}

fn partition_count(
    client: &BaseConsumer<Membership>,
    name: &str,
    config: &KafkaConfig,
) -> Result<usize, LogError> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    loop {
        let metadata = client.fetch_metadata(Some(name), REQUEST_TIMEOUT).map_err(|source| {
            failed(&format!("asking {} for topic `{name}`", config.bootstrap_servers), source)
        })?;
        let topic = metadata.topics().iter().find(|topic| topic.name() == name);
        let error = topic.and_then(|topic| topic.error()).map(RDKafkaErrorCode::from);
        match (topic, error) {
            (Some(topic), None) => return Ok(topic.partitions().len()),
            // A topic that was just made.
            (_, Some(RDKafkaErrorCode::LeaderNotAvailable)) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(100));
            }
            (_, error) => {
                let why = error.map_or_else(|| "it is not there".to_owned(), |e| e.to_string());
                return Err(LogError::Refused(format!(
                    "topic `{name}` at {}: {why}; create it (`deploy/kafka/topics` does), or set \
                     `kafka.topics`",
                    config.bootstrap_servers
                )));
            }
        }
    }
}

/// An error that trying again may mend.
fn failed(doing: &str, source: KafkaError) -> LogError {
    let fatal = matches!(
        source,
        KafkaError::ClientConfig(..)
            | KafkaError::ClientCreation(_)
            | KafkaError::MessageConsumptionFatal(_)
    );
    LogError::Kafka { doing: doing.to_owned(), source, fatal }
}

/// Settings that consumer and producer share.
fn shared_settings(config: &KafkaConfig) -> ClientConfig {
    let mut settings = ClientConfig::new();
    for (key, value) in &config.client.0 {
        settings.set(key, value);
    }
    settings.set("bootstrap.servers", &config.bootstrap_servers);
    settings
}
