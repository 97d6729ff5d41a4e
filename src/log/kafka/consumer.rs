//! The consumer of inputs, a member of the group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use turnstream_ports::panics::contain;
use turnstream_schemas::Header;
use turnstream_schemas::outcome::Bytes;

use super::super::{Consumer, Event, LogError, Record, Restored, Standing, TakeChangelog, Topic};
use super::KafkaConfig;
use super::ends::EndPoller;
use super::errors::{failed, fatal, login_refused, refused, remedy_of};
use super::membership::{MemberClient, identity};
use super::orphan_recovery::OrphanRecovery;
use super::recovery::Patience;
use super::rejoining::Rejoining;
use super::restore::Restorer;
use super::sweep;
use super::topics::Fit;

/// The timeout of a request that checks whether a broker answers.
const ASK: Duration = Duration::from_secs(1);

/// Reads inputs as a member of the group. The process leaves the group when both this consumer and
/// the producer are dropped. Drop the consumer last, so that the last commit still counts.
pub struct KafkaConsumer {
    pub(super) client: Arc<MemberClient>,
    config: KafkaConfig,
    fit: Fit,
    restorer: Option<Restorer>,
    /// Partitions that were restored and resumed, each with one above the last delivered offset.
    /// Records of other partitions, and records below that offset, are not delivered.
    flowing: BTreeMap<i32, i64>,
    /// The flowing partitions that the engine has paused.
    paused: BTreeSet<i32>,
    /// Created when the lag of paused partitions is first wanted.
    ends: OnceLock<EndPoller>,
    /// `Some` for a static member.
    orphan_recovery: Option<OrphanRecovery>,
    rejoining: Rejoining,
    patience: Patience,
}

impl KafkaConsumer {
    pub(super) fn new(client: Arc<MemberClient>, config: &KafkaConfig, fit: Fit) -> Self {
        Self {
            client,
            config: config.clone(),
            fit,
            restorer: None,
            flowing: BTreeMap::new(),
            paused: BTreeSet::new(),
            ends: OnceLock::new(),
            orphan_recovery: OrphanRecovery::new(config, fit.partitions),
            rejoining: Rejoining::default(),
            patience: Patience::new(config),
        }
    }

    /// The number of partitions that the topic of turns had when the group was joined.
    pub fn partitions(&self) -> i32 {
        self.fit.partitions
    }

    /// Whether a topic of [`Topic::MAY_BE_MISSING`] existed when the group was joined.
    pub fn has(&self, topic: Topic) -> bool {
        self.fit.has(topic)
    }

    /// Drains available records into a batch. Waits only for the first.
    fn batch(&mut self, wait: Duration) -> Result<Vec<Record>, LogError> {
        let mut records = Vec::new();
        let mut bytes = 0;
        let mut wait = wait;
        let mut again = 0;
        while records.len() < self.config.poll_records && bytes < self.config.poll_kib * 1024 {
            let Some(polled) = self.client.poll(wait) else { break };
            wait = Duration::ZERO;
            match polled {
                Ok(message) => {
                    // The record was fetched before the pause of an assignment took effect. A
                    // restoration seeks, so the record comes again.
                    let Some(next) = self.flowing.get_mut(&message.partition()) else { continue };
                    // The client has gone back. An input that is delivered twice would be answered
                    // twice.
                    if message.offset() < *next {
                        again += 1;
                        continue;
                    }
                    *next = message.offset() + 1;
                    bytes += message.payload_len() + message.key_len();
                    records.push(record(&message));
                }
                Err(error) => self.judge(error)?,
            }
        }
        if again > 0 {
            let topic = &self.config.topics.turns;
            tracing::warn!(topic, records = again, "the client read records again; skipping them");
        }
        Ok(records)
    }

    /// Ignores errors that the client recovers from itself, since its context has reported them.
    fn judge(&self, source: KafkaError) -> Result<(), LogError> {
        use RDKafkaErrorCode as Code;
        let topic = &self.config.topics.turns;
        let is_fatal = matches!(source, KafkaError::MessageConsumptionFatal(_));
        let gone = matches!(
            source.rdkafka_error_code(),
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition)
        );
        if gone {
            return Err(LogError::Refused(format!(
                "topic `{topic}` is gone; create it again, or set `log.kafka.topics.turns`"
            )));
        }
        let doing = format!("reading topic `{topic}` as group `{}`", self.config.group_id);
        if is_fatal {
            return Err(self.fatal(&doing, source));
        }
        if let Some(said) = self.client.context().login_refused() {
            return Err(login_refused(&doing, &said));
        }
        if let Some(remedy) = remedy_of(&source) {
            return Err(refused(&doing, &source, remedy));
        }
        tracing::debug!(error = %source, topic, "Kafka consumer");
        Ok(())
    }

    /// An error after which the process must stop.
    fn fatal(&self, doing: &str, source: KafkaError) -> LogError {
        let first = self.client.client().fatal_error().map(|(code, _)| code);
        let doing = format!("{doing}; the process must start again");
        fatal(&self.config, &doing, first, false, source)
    }

    /// Leaves the group to join it again, if partitions are orphaned and nothing else would make
    /// the group assign them, or if this member's identity has changed.
    fn maintain_membership(&mut self) -> Result<(), LogError> {
        if self.rejoining.is_leaving() {
            return self.join_again();
        }
        let membership = self.client.context();
        let group = &self.config.group_id;
        if self.rejoining.is_stuck(|| identity(&self.client).is_some()) {
            // If no broker answers, the member joins as soon as one does.
            let asked = self.client.fetch_metadata(Some(&self.config.topics.turns), ASK);
            if asked.is_ok() {
                let doing = format!("joining group `{group}` again, without success");
                let source = KafkaError::Rebalance(RDKafkaErrorCode::OperationTimedOut);
                return Err(LogError::Kafka { doing, source, fatal: true });
            }
        } else if membership.must_join_again(|| identity(&self.client)) {
            tracing::warn!(
                group,
                "the group expelled this member and readmitted it under a new id; leaving the \
                 group to join it again"
            );
            self.leave_to_join_again();
        } else if let Some(source) = membership.take_error() {
            tracing::warn!(group, error = %source, "a rebalance failed; leaving to join again");
            self.leave_to_join_again();
        } else if let Some(orphan_recovery) = &mut self.orphan_recovery {
            let ours = || Some((identity(&self.client)?.member(), membership.held()));
            if let Some(partitions) = orphan_recovery.leaves(ours) {
                tracing::warn!(
                    group,
                    group_instance_id = self.config.group_instance_id,
                    which = ?partitions,
                    "the group is stable, but these partitions have no owner; leaving the group to \
                     join it again, so that it assigns them"
                );
                self.leave_to_join_again();
            }
        }
        Ok(())
    }

    /// Has all held partitions revoked, as in a rebalance. The client leaves when they are
    /// released; polling continues meanwhile, and then joins again.
    pub(super) fn leave_to_join_again(&mut self) {
        self.rejoining.leaving();
        self.client.unsubscribe();
    }

    fn join_again(&mut self) -> Result<(), LogError> {
        let holds = || !self.client.context().held().is_empty();
        // A client that has left the group has no identity.
        if !self.rejoining.joins(holds, || identity(&self.client).is_none()) {
            return Ok(());
        }
        // The committer may have asked for it meanwhile, unaware that the member leaves already.
        self.client.context().joins_again();
        let turns = &self.config.topics.turns;
        tracing::info!(group = self.config.group_id, "joining the group again");
        let joined = self.client.subscribe(&[turns]);
        joined.map_err(|source| failed(&format!("subscribing to topic `{turns}` again"), source))
    }

    fn next_event(&mut self) -> Result<Option<Event>, LogError> {
        let event = self.client.context().next_event();
        if let Some(Event::Revoked(partitions) | Event::Lost(partitions)) = &event {
            for partition in partitions {
                self.flowing.remove(partition);
                self.paused.remove(partition);
            }
        }
        Ok(event)
    }

    fn set_flow(&mut self, partition: i32, flow: bool) -> Result<(), LogError> {
        let membership = self.client.context();
        if !membership.is_held(partition) {
            return Ok(());
        }
        let list = membership.list(&[partition]);
        let (done, doing) = if flow {
            (self.client.resume(&list), "resuming")
        } else {
            (self.client.pause(&list), "pausing")
        };
        done.map_err(|source| failed(&format!("{doing} partition {partition}"), source))
    }
}

impl Consumer for KafkaConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Event, LogError> {
        if let Some(event) = self.next_event()? {
            return Ok(event);
        }
        self.maintain_membership()?;
        let records = self.batch(wait)?;
        if records.is_empty()
            && let Some(event) = self.next_event()?
        {
            return Ok(event);
        }
        Ok(Event::Records(records))
    }

    fn pause(&mut self, partition: i32) -> Result<(), LogError> {
        self.paused.insert(partition);
        self.set_flow(partition, false)
    }

    fn resume(&mut self, partition: i32) -> Result<(), LogError> {
        if self.client.context().is_held(partition) {
            self.flowing.entry(partition).or_default();
            self.paused.remove(&partition);
        }
        self.set_flow(partition, true)
    }

    fn restore(
        &mut self,
        partition: i32,
        changelog: TakeChangelog<'_>,
    ) -> Result<Restored, LogError> {
        if !self.client.context().is_held(partition) {
            return Err(LogError::Stale { partitions: vec![partition] });
        }
        self.flowing.remove(&partition);
        let restorer = match &mut self.restorer {
            Some(restorer) => restorer,
            none => none.insert(Restorer::new(&self.config)?),
        };
        let membership = self.client.context();
        let others = self.flowing.keys().filter(|other| !self.paused.contains(other)).copied();
        let others: Vec<i32> = others.filter(|other| membership.is_held(*other)).collect();
        let doing = "holding other partitions back while restoring";
        let held_back = self.client.pause(&membership.list(&others));
        held_back.map_err(|source| failed(doing, source))?;
        let restored = restorer.restore(&self.client, partition, changelog);
        for other in others {
            self.set_flow(other, true)?;
        }
        if matches!(restored, Err(LogError::Kafka { .. })) {
            // Without an assignment, a client keeps asking the last known leader for
            // `metadata.max.age.ms` (15 minutes), even if that broker has left its list. A new
            // client asks the current leader.
            self.restorer = None;
        }
        match restored {
            Err(LogError::Kafka { doing, source, fatal: true }) => Err(self.fatal(&doing, source)),
            restored => self.patience.judge(restored),
        }
    }

    fn release(&mut self) -> Result<(), LogError> {
        let membership = self.client.context();
        let revoked = membership.take_revoked();
        if revoked.is_empty() {
            return Ok(());
        }
        self.client
            .incremental_unassign(&membership.list(&revoked))
            .map_err(|source| failed(&format!("releasing partitions {revoked:?}"), source))
    }

    fn standing(&self) -> Standing {
        let ends = match self.paused.is_empty() && self.ends.get().is_none() {
            true => BTreeMap::new(),
            false => self.ends.get_or_init(|| EndPoller::start(&self.config)).of(&self.paused),
        };
        let rejoins = self.rejoining.times();
        Standing { rejoins, swept: sweep::found(), ..self.client.context().standing(&ends) }
    }
}

impl Drop for KafkaConsumer {
    fn drop(&mut self) {
        self.client.context().leave();
        if let Err(error) = self.release() {
            tracing::warn!(%error, "leaving the group");
        }
    }
}

/// Converts a record of the client.
pub(super) fn record(message: &BorrowedMessage<'_>) -> Record {
    Record {
        partition: message.partition(),
        offset: message.offset(),
        time_ms: message.timestamp().to_millis(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers(message),
        last_of_scope: false,
        followed: false,
        answered: None,
    }
}

/// The headers of a record. The client library panics on a header whose name is not UTF-8; such a
/// header is left out.
fn headers(message: &BorrowedMessage<'_>) -> Vec<Header> {
    let Some(headers) = message.headers() else { return Vec::new() };
    let mut read = Vec::with_capacity(headers.count());
    for index in 0..headers.count() {
        let header = contain(|| headers.try_get(index));
        match header {
            Ok(Some(header)) => read.push(Header {
                name: header.key.to_owned(),
                value: header.value.map(|value| Bytes(value.to_vec())),
            }),
            Ok(None) => break,
            Err(_) => tracing::warn!(
                partition = message.partition(),
                offset = message.offset(),
                index,
                "a header whose name is not UTF-8 was left out"
            ),
        }
    }
    read
}
