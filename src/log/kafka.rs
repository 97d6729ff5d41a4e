//! Kafka through rdkafka.
//!
//! A process has one [`KafkaConsumer`], owned by the consumer thread, and one [`KafkaProducer`],
//! owned by the committer; [`connect`] makes both. [`follow`] opens a topic that is read
//! whole, as every process does with that of knowledge; [`write()`] and [`publish`] write to one. What keeps the claim of exactly once:
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
//! - What the broker left open of a transaction that it gave up is aborted before anything else is
//!   done under its id (`kafka/sweep.rs`): the next commit under the id would be its own.
//! - A rebalance only assigns and pauses. Revoked partitions stay assigned until the engine
//!   releases them, outside any callback; meanwhile librdkafka keeps the heartbeat and holds the
//!   process's other partitions back.
//! - A client that cannot go on is made anew, in place (`kafka/recovery.rs`): the next one takes
//!   the transactional id, and what a broker forgot of the latest transaction is committed again
//!   (`kafka/settling.rs`).
//! - A static member that finds partitions nobody's while its group stands still leaves it in the
//!   same way, and joins again (`kafka/mending.rs`).
//!
//! What errors of the client lead to is in `kafka/errors.rs`; what topics must be like in
//! `kafka/topics.rs`; what is told of brokers that fail in `kafka/outage.rs`.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};

use super::{LogError, Topic};

mod alone;
mod asking;
mod checks;
mod closing;
mod config;
mod consumer;
mod ends;
mod errors;
mod features;
mod follow;
mod looks;
mod membership;
mod mending;
mod outage;
mod producer;
mod recovery;
mod rejoining;
mod restore;
mod settling;
mod sweep;
#[cfg(test)]
mod tests;
mod topics;
pub mod transactions;
mod write;

pub use alone::{Unserved, unserved};
pub use asking::ask;
pub use checks::SettingProblem;
pub use config::{ClientSettings, KafkaConfig, KafkaTopics};
pub use consumer::KafkaConsumer;
pub use follow::{KafkaFollower, follow};
pub use recovery::KafkaProducer;
pub use write::{KafkaWriter, publish, write};

use closing::ClosedInTime;
use errors::failed;
use membership::{Member, Membership};

/// How long a request to the broker may take where nothing else bounds it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The setting for how long the client waits at most before it tries a broker again.
const RECONNECT: &str = "reconnect.backoff.max.ms";

/// Joins the group and takes the transactional id. The transaction that an earlier process of
/// this id left open is aborted first, also where the broker forgot it, and the process fenced.
///
/// # Errors
///
/// [`LogError::Refused`] where the settings or the topics are not fit, with what to change;
/// [`LogError::Kafka`] where the broker cannot be reached or refuses.
pub fn connect(config: &KafkaConfig) -> Result<(KafkaConsumer, KafkaProducer), LogError> {
    Outside::new(config)?.join(config)
}

/// A client that has not joined its group yet, and what the topics are like.
struct Outside {
    client: Arc<Member>,
    fit: topics::Fit,
}

impl Outside {
    fn new(config: &KafkaConfig) -> Result<Self, LogError> {
        config.check()?;
        let client: BaseConsumer<Membership> = config
            .consumer_settings()
            .create_with_context(Membership::new(config.topics.name(Topic::Turns)))
            .map_err(|source| {
                failed("making the Kafka consumer from `log.kafka.client`", source)
            })?;
        let client = Arc::new(ClosedInTime::new(client));
        let fit = topics::fit(&client, config)?;
        Ok(Self { client, fit })
    }

    fn join(self, config: &KafkaConfig) -> Result<(KafkaConsumer, KafkaProducer), LogError> {
        let Self { client, fit } = self;
        let turns = config.topics.name(Topic::Turns);
        let producer =
            KafkaProducer::initialise(Arc::clone(&client), config, fit, REQUEST_TIMEOUT)?;
        client
            .subscribe(&[turns])
            .map_err(|source| failed(&format!("subscribing to topic `{turns}`"), source))?;
        Ok((KafkaConsumer::new(client, config, fit.partitions), producer))
    }
}

/// Settings that consumer and producer share.
fn shared_settings(config: &KafkaConfig) -> ClientConfig {
    let mut settings = ClientConfig::new();
    for (key, value) in &config.client.0 {
        settings.set(key, value);
    }
    settings.set("bootstrap.servers", &config.bootstrap_servers);
    // The client's own ten seconds would come on top of every outage.
    if !config.client.0.contains_key(RECONNECT) {
        settings.set(RECONNECT, "1000");
    }
    settings
}
