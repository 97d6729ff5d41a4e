//! The member of the group that reads the inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use turnstream_ports::panics::contain;
use turnstream_schemas::Header;
use turnstream_schemas::outcome::Bytes;

use super::super::{Consumer, Event, LogError, Record, Restored, Standing, TakeChangelog};
use super::KafkaConfig;
use super::ends::Ends;
use super::errors::{failed, fatal, login_refused, refused, remedy_of};
use super::membership::{Member, identity};
use super::mending::Mending;
use super::recovery::Patience;
use super::rejoining::Rejoining;
use super::restore::Restorer;
use super::sweep;

/// How long a broker may take to say that it is there.
const ASK: Duration = Duration::from_secs(1);

/// Reads inputs as one member of the group. The process leaves the group when both this and the
/// producer are dropped; drop this one last, so that the last commit still counts.
pub struct KafkaConsumer {
    pub(super) client: Arc<Member>,
    config: KafkaConfig,
    partitions: i32,
    restorer: Option<Restorer>,
    /// Partitions that were restored and resumed, each with what lies above the last offset given:
    /// records of others are not given, nor any again.
    flowing: BTreeMap<i32, i64>,
    /// Those of them that the engine paused.
    paused: BTreeSet<i32>,
    /// Made when somebody asks how far behind they are.
    ends: OnceLock<Ends>,
    /// Of a static member.
    mending: Option<Mending>,
    rejoining: Rejoining,
    patience: Patience,
}

impl KafkaConsumer {
    pub(super) fn new(client: Arc<Member>, config: &KafkaConfig, partitions: i32) -> Self {
        Self {
            client,
            config: config.clone(),
            partitions,
            restorer: None,
            flowing: BTreeMap::new(),
            paused: BTreeSet::new(),
            ends: OnceLock::new(),
            mending: Mending::new(config, partitions),
            rejoining: Rejoining::default(),
            patience: Patience::new(config),
        }
    }

    /// How many partitions the topic of turns had when the group was joined.
    pub fn partitions(&self) -> i32 {
        self.partitions
    }

    /// Drains what is there into a batch, waiting only for the first.
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
                    // Fetched before the pause of an assignment took hold: restoring seeks.
                    let Some(next) = self.flowing.get_mut(&message.partition()) else { continue };
                    // The client went back. Given again it would be answered again.
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
            tracing::warn!(topic, records = again, "the client read again, which is passed over");
        }
        Ok(records)
    }

    /// Errors that the client mends by itself are passed over: its context has heard of them.
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

    /// Leaves the group and joins again where nothing else would have it give on partitions that
    /// are nobody's, or where this member is not who it was.
    fn look_after_group(&mut self) -> Result<(), LogError> {
        if self.rejoining.is_leaving() {
            return self.join_again();
        }
        let membership = self.client.context();
        let group = &self.config.group_id;
        if self.rejoining.is_stuck(|| identity(&self.client).is_some()) {
            // Not where no broker answers: then it joins once one does.
            let asked = self.client.fetch_metadata(Some(&self.config.topics.turns), ASK);
            if asked.is_ok() {
                let doing = format!("joining group `{group}` again, in vain");
                let source = KafkaError::Rebalance(RDKafkaErrorCode::OperationTimedOut);
                return Err(LogError::Kafka { doing, source, fatal: true });
            }
        } else if membership.must_join_again(|| identity(&self.client)) {
            tracing::warn!(
                group,
                "the group expelled this member and took it in again; leaving it to join as who \
                 it is now"
            );
            self.leave_to_join_again();
        } else if let Some(source) = membership.take_error() {
            tracing::warn!(group, error = %source, "a rebalance failed; leaving to join again");
            self.leave_to_join_again();
        } else if let Some(mending) = &mut self.mending {
            let ours = || Some((identity(&self.client)?.member(), membership.held()));
            if let Some(partitions) = mending.leaves(ours) {
                tracing::warn!(
                    group,
                    group_instance_id = self.config.group_instance_id,
                    which = ?partitions,
                    "the group stands still and gave these partitions to nobody; leaving it to \
                     join again, so that it shares them out"
                );
                self.leave_to_join_again();
            }
        }
        Ok(())
    }

    /// Has everything that is held revoked, as in any rebalance. Once it is released the client
    /// leaves; polling goes on meanwhile, and joins again.
    pub(super) fn leave_to_join_again(&mut self) {
        self.rejoining.leaving();
        self.client.unsubscribe();
    }

    fn join_again(&mut self) -> Result<(), LogError> {
        let holds = || !self.client.context().held().is_empty();
        // Who has left forgets who it was.
        if !self.rejoining.joins(holds, || identity(&self.client).is_none()) {
            return Ok(());
        }
        // Asked for meanwhile by who did not know that it leaves already.
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
        self.look_after_group()?;
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
            // Made anew: a client that is assigned nothing goes on asking whom it knew to lead for
            // `metadata.max.age.ms`, 15 minutes, where that broker left its list meanwhile.
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
            false => self.ends.get_or_init(|| Ends::start(&self.config)).of(&self.paused),
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

/// A record of ours from one of the client's.
pub(super) fn record(message: &BorrowedMessage<'_>) -> Record {
    Record {
        partition: message.partition(),
        offset: message.offset(),
        time_ms: message.timestamp().to_millis(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers(message),
        last_of_scope: false,
    }
}

/// The client library panics on a header whose name is not UTF-8. Such a header is left out.
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
