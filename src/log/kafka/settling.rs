//! Determines which parts of a transaction took effect, if a broker may have forgotten its end, and
//! which must be committed again.
//!
//! Kafka acknowledges a commit when the transaction coordinator has stored it; only then it writes
//! the end marker to each partition of the transaction. A broker that crashes in between finds the
//! stored commit at its next start. Before it knows the leaders of partitions, it then writes the
//! marker to some of them or to none ("can be skipped"). The [sweep](super::sweep) may therefore
//! undo an acknowledged commit, wholly or in part. The sender still has the transaction and the
//! offsets of its records. When no transaction is open any more, each record is visible at its
//! offset or never will be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use super::super::{LogError, Position, Topic, Transaction};
use super::KafkaConfig;
use super::closing::ClosedInTime;
use super::errors::failed;
use super::membership::{CommittedOffset, Membership};
use super::restore::{OutsideGroup, RETRY, SETTLE, committed};

/// The longest single wait for a record.
const SLICE: Duration = Duration::from_millis(100);

/// For each partition that a transaction wrote to, the offset of one of its records there.
pub(super) type Places = BTreeMap<(Topic, i32), i64>;

/// A transaction whose commit was requested.
pub(super) struct Sent {
    transaction: Transaction,
    /// The committed offsets of its partitions before it, as far as they are known.
    before: BTreeMap<i32, CommittedOffset>,
    /// The offsets of its records, for each time that it or its missing part was sent.
    places: Vec<Places>,
    /// Whether the broker acknowledged the commit. Otherwise it may not have taken effect at all.
    pub(super) acknowledged: bool,
}

/// The part of a transaction that did not take effect.
#[derive(Default)]
pub(super) struct Missing {
    /// The transaction to commit again.
    pub(super) transaction: Transaction,
    /// Those of its positions whose partitions were held all along. The other partitions were lost
    /// meanwhile, and no member has committed anything for them since.
    pub(super) held: Vec<Position>,
}

impl Sent {
    pub(super) fn new(
        transaction: &Transaction,
        before: BTreeMap<i32, CommittedOffset>,
        places: Places,
        acknowledged: bool,
    ) -> Self {
        Self { transaction: transaction.clone(), before, places: vec![places], acknowledged }
    }

    /// Records that the missing part was sent, with the offsets of its records.
    pub(super) fn sent_again(&mut self, places: Places) {
        self.places.push(places);
    }

    /// Whether this transaction has all the positions of another one.
    pub(super) fn finishes(&self, transaction: &Transaction) -> bool {
        transaction.positions.iter().all(|position| self.transaction.positions.contains(position))
    }

    /// The part that did not take effect. `None` if nothing took effect and the commit was never
    /// acknowledged. Call this after the sweep.
    ///
    /// If a partition was lost meanwhile and nothing of it took effect, its next owner does the
    /// work again. If a part took effect, the history may be ahead of the offset, and no owner
    /// could continue from there: the rest is committed too, unless another member has committed
    /// for the partition since.
    ///
    /// # Errors
    ///
    /// [`LogError::Unsettled`] if another process's transaction is open there, [`LogError::Kafka`]
    /// if a broker does not answer: ask again.
    pub(super) fn missing(
        &self,
        config: &KafkaConfig,
        membership: &Membership,
    ) -> Result<Option<Missing>, LogError> {
        let doing = "making the reader of what took effect";
        let reader = config.restorer_settings().create_with_context(OutsideGroup);
        let reader = ClosedInTime::new(reader.map_err(|source| failed(doing, source))?);
        let mut seen = BTreeSet::new();
        for places in &self.places {
            for topic in Topic::OF_TURNS.into_iter().chain(Topic::MAY_BE_MISSING) {
                let places = places.iter().filter(|((of, _), _)| *of == topic);
                let places = places.map(|((_, partition), offset)| (*partition, *offset)).collect();
                let found = committed_at(&reader, config, topic, places)?;
                seen.extend(found.into_iter().map(|partition| (topic, partition)));
            }
        }
        let Transaction { outputs, positions } = &self.transaction;
        let stale = membership.stale(positions);
        let (mut stand, mut gone) = (BTreeSet::new(), BTreeSet::new());
        for position in positions {
            let partition = position.partition;
            let committed = committed(&reader, config, partition)?;
            let stands = committed == (Some(position.offset), position.metadata.clone());
            let visible = stands || seen.iter().any(|(_, at)| *at == partition);
            let is_untouched = stands || self.before.get(&partition) == Some(&committed);
            if stands {
                stand.insert(partition);
            }
            if stale.contains(&partition) && !(visible && is_untouched) {
                gone.insert(partition);
            }
        }
        if !self.acknowledged && seen.is_empty() && stand.is_empty() {
            return Ok(None);
        }
        let outputs: Vec<_> = outputs
            .iter()
            .filter(|it| !seen.contains(&(it.topic, it.partition)))
            .filter(|it| !gone.contains(&it.partition))
            .cloned()
            .collect();
        let written: BTreeSet<i32> = outputs.iter().map(|output| output.partition).collect();
        let positions: Vec<_> = positions
            .iter()
            .filter(|it| !gone.contains(&it.partition))
            .filter(|it| !stand.contains(&it.partition) || written.contains(&it.partition))
            .cloned()
            .collect();
        let held = positions.iter().filter(|it| !stale.contains(&it.partition)).cloned().collect();
        Ok(Some(Missing { transaction: Transaction { outputs, positions }, held }))
    }
}

/// The partitions of a topic whose record at the given offset is committed.
fn committed_at(
    reader: &BaseConsumer<OutsideGroup>,
    config: &KafkaConfig,
    topic: Topic,
    mut places: BTreeMap<i32, i64>,
) -> Result<BTreeSet<i32>, LogError> {
    let name = config.topics.name(topic);
    let doing = format!("reading what took effect from `{name}`");
    let failed = |source| failed(&doing, source);
    let deadline = Instant::now() + SETTLE;
    let mut list = TopicPartitionList::with_capacity(places.len());
    let mut seen = BTreeSet::new();
    for (partition, offset) in &places {
        let first = loop {
            let (first, settled) =
                reader.fetch_watermarks(name, *partition, SETTLE).map_err(failed)?;
            if settled > *offset {
                break first;
            }
            if Instant::now() >= deadline {
                let what = format!("`{name}`, partition {partition}");
                return Err(LogError::Unsettled { what });
            }
            std::thread::sleep(RETRY);
        };
        // Retention has deleted the record, so it had been visible.
        if first > *offset {
            seen.insert(*partition);
            continue;
        }
        list.add_partition_offset(name, *partition, Offset::Offset(*offset)).map_err(failed)?;
    }
    places.retain(|partition, _| !seen.contains(partition));
    reader.assign(&list).map_err(failed)?;
    while !places.is_empty() {
        match reader.poll(SLICE) {
            Some(Ok(message)) => {
                let offset = places.remove(&message.partition());
                if offset == Some(message.offset()) {
                    seen.insert(message.partition());
                }
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                places.remove(&partition);
            }
            _ if Instant::now() >= deadline => {
                let late = RDKafkaErrorCode::OperationTimedOut;
                return Err(failed(KafkaError::MessageConsumption(late)));
            }
            _ => {}
        }
    }
    reader.unassign().map_err(failed)?;
    Ok(seen)
}
