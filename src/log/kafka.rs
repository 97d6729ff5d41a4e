//! The Kafka log, through rdkafka.
//!
//! A process has one [`KafkaConsumer`], owned by the consumer thread, and one [`KafkaProducer`],
//! owned by the committer; [`connect`] makes both. [`follow`] reads a whole topic, as every process
//! reads the topic of knowledge. [`write()`] and [`publish`] write to a topic. Exactly-once rests
//! on these rules:
//!
//! - Offsets are committed only in transactions of the producer, with the current metadata of the
//!   consumer's group. A plain commit would erase the ledger in the metadata of an offset.
//! - The broker refuses a member that it expelled, but not a member without an identity: after some
//!   errors librdkafka has neither a member id nor a generation, and the broker then checks
//!   nothing. The committer therefore reads the identity before and after it fetches the metadata.
//!   It continues only if the identity is complete and unchanged and the consumer still holds the
//!   partitions under the same generation. A client that is expelled in the middle of a rebalance
//!   joins again as a new member that the broker trusts, while it still holds its earlier
//!   partitions. A partition therefore counts only for the member id that it was assigned to.
//! - A partition is restored to one point in time. The committed offset is the same before and
//!   after the changelog is read, and the changelog is read up to the high watermark of the time
//!   when the committed offset was stable. The restoration waits for open transactions, which a
//!   dead process may have left below the records of a later owner.
//! - Before anything else happens under a transactional id, the sweep aborts what the broker left
//!   open of a transaction that it gave up (`kafka/sweep.rs`). Otherwise the next commit under the
//!   id would commit those records too.
//! - A rebalance callback only assigns and pauses. Revoked partitions stay assigned until the
//!   engine releases them, outside of any callback. Meanwhile librdkafka sends heartbeats and
//!   delivers nothing of the process's other partitions.
//! - A client that cannot continue is replaced in place (`kafka/recovery.rs`). The next client
//!   takes the transactional id and commits again what a broker forgot of the latest transaction
//!   (`kafka/settling.rs`).
//! - A static member that sees partitions without an owner in a stable group leaves the group and
//!   joins again (`kafka/orphan_recovery.rs`).
//!
//! `kafka/errors.rs` maps errors of the client to actions, `kafka/topics.rs` checks the topics, and
//! `kafka/outage.rs` reports failing brokers.

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
mod deliver;
mod ends;
mod errors;
mod features;
mod follow;
mod group_snapshots;
mod membership;
mod offsets;
mod orphan_recovery;
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
pub use deliver::{KafkaDelivery, deliver};
pub use follow::{KafkaFollower, ends_of, follow, follow_if_there, follow_partition, follow_since};
pub use recovery::KafkaProducer;
pub use write::{KafkaWriter, publish, redrive, write};

use closing::ClosedInTime;
use errors::failed;
use membership::{MemberClient, Membership};

/// Default timeout of a request to the broker.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The client setting for the longest wait before it reconnects to a broker.
const RECONNECT: &str = "reconnect.backoff.max.ms";

/// Joins the group and takes the transactional id. This fences an earlier process of the id and
/// aborts its open transaction, also if the broker forgot that transaction.
///
/// # Errors
///
/// [`LogError::Refused`] if the settings or the topics are unfit, with what to change;
/// [`LogError::Kafka`] if the broker cannot be reached or refuses.
pub fn connect(config: &KafkaConfig) -> Result<(KafkaConsumer, KafkaProducer), LogError> {
    Outside::new(config)?.join(config)
}

/// A client that has not yet joined its group, and the checked topics.
struct Outside {
    client: Arc<MemberClient>,
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
        Ok((KafkaConsumer::new(client, config, fit), producer))
    }
}

/// The settings that consumer and producer share.
fn shared_settings(config: &KafkaConfig) -> ClientConfig {
    let mut settings = ClientConfig::new();
    for (key, value) in &config.client.0 {
        settings.set(key, value);
    }
    settings.set("bootstrap.servers", &config.bootstrap_servers);
    // The client's default of ten seconds would prolong every outage.
    if !config.client.0.contains_key(RECONNECT) {
        settings.set(RECONNECT, "1000");
    }
    settings
}
