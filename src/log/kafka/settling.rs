//! What took effect of a transaction whose end a broker may have forgotten, and what is to be
//! committed again.
//!
//! Kafka acknowledges a commit once the coordinator of transactions has noted it; only then it
//! writes the end to each partition that the transaction wrote to. A broker that crashes in between
//! finds its note at its next start and, before it knows where partitions are led, writes the end to
//! some of them or to none ("can be skipped"). So a commit that was acknowledged may be undone by the
//! [sweep](super::sweep), wholly or in part. Whoever sent it still has it, and where its records lie:
//! once nothing is open any more, each of them is seen there or never will be.

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
use super::membership::{Committed, Membership};
use super::restore::{OutsideGroup, RETRY, SETTLE, committed};

/// How long one wait for a record takes.
const SLICE: Duration = Duration::from_millis(100);

/// For each partition that a transaction wrote to, the offset of one of its records there.
pub(super) type Places = BTreeMap<(Topic, i32), i64>;

/// A transaction that was sent to its end.
pub(super) struct Sent {
    transaction: Transaction,
    /// What was committed before of its partitions, as far as that was known.
    before: BTreeMap<i32, Committed>,
    /// Of each time that it, or what was missing of it, was sent.
    places: Vec<Places>,
    /// Whether the broker acknowledged it. Otherwise it may not have taken effect at all.
    pub(super) acknowledged: bool,
}

/// What did not take effect of a transaction.
#[derive(Default)]
pub(super) struct Missing {
    /// What is to be committed again.
    pub(super) transaction: Transaction,
    /// The positions in it whose partitions have been held all along. The others were lost meanwhile,
    /// and nobody has committed anything of them since.
    pub(super) held: Vec<Position>,
}

impl Sent {
    pub(super) fn new(
        transaction: &Transaction,
        before: BTreeMap<i32, Committed>,
        places: Places,
        acknowledged: bool,
    ) -> Self {
        Self { transaction: transaction.clone(), before, places: vec![places], acknowledged }
    }

    /// What was missing of it was sent to its end, to these places.
    pub(super) fn sent_again(&mut self, places: Places) {
        self.places.push(places);
    }

    /// Whether all that a transaction finishes is finished by this.
    pub(super) fn finishes(&self, transaction: &Transaction) -> bool {
        transaction.positions.iter().all(|position| self.transaction.positions.contains(position))
    }

    /// What did not take effect; `None` where nothing did, and nobody was told that it had. Asked once
    /// the sweep is done.
    ///
    /// What was lost meanwhile is its next owner's to do again, where nothing of it took effect. Where
    /// a part did, its history may hold what its offset does not know of, and nobody could go on from
    /// there: that is committed to its end too, unless somebody has committed something else since.
    ///
    /// # Errors
    ///
    /// [`LogError::Unsettled`] where another's transaction is in the way, [`LogError::Kafka`] where
    /// a broker does not answer: ask again.
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
            for topic in Topic::OF_TURNS {
                let places = places.iter().filter(|((of, _), _)| *of == topic);
                let places = places.map(|((_, partition), offset)| (*partition, *offset)).collect();
                let found = look(&reader, config, topic, places)?;
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

/// The partitions of a topic on which the record at the given offset is committed.
fn look(
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
        // Retention has deleted it: it was there for as long as anything is.
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
