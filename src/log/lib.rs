//! The log: inputs come from it and outcomes go to it.
//!
//! Three implementations keep the promises below: [`kafka`] through rdkafka, [`embedded`] (a
//! transactional log in memory, or in a directory on LMDB), and [`jsonl`] for files. The engine
//! knows only these traits. The consumer thread owns a [`Consumer`], the committer owns a
//! [`Producer`], and the thread of the knowledge feed owns a [`Follower`] of the topic of
//! knowledge. `turnstream views` has its own followers and a [`Writer`](write::Writer).
//!
//! Exactly-once rests on three rules. Every implementation keeps them, and `conformance.rs` tests
//! them on each one:
//!
//! 1. Everything that an input caused and the position after that input are in one [`Transaction`].
//!    Readers of committed records see all of a transaction or nothing.
//! 2. The log takes a position only from the current holder of the partition, under the generation
//!    of its latest assignment. It refuses work of an older generation with
//!    [`LogError::Stale`].
//! 3. A partition is [restored](Consumer::restore) from committed records only, and only after
//!    every transaction that an earlier owner left open has ended.
//!
//! The events of a partition, in order:
//!
//! ```text
//!  Assigned ──▶ restore ──▶ resume ──▶ Records … ──┬─▶ Revoked ──▶ commit what is done ──▶ release
//!  (paused)                   ▲   pause │          └─▶ Lost: drop everything, commit nothing
//!                             └─────────┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rdkafka::error::KafkaError;
use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_ports::cache::CacheError;
use turnstream_schemas::{Header, TurnId};

pub mod deliver;
pub mod embedded;
mod ends;
pub mod evictions;
pub mod follow;
pub mod jsonl;
pub mod kafka;
pub mod letters;
mod topic;
pub mod write;

#[cfg(test)]
mod conformance;

pub use ends::Ends;
pub use follow::Follower;
pub use topic::Topic;

/// The longest metadata that a position may carry, in bytes of ASCII: the broker's default of
/// `offset.metadata.max.bytes`.
pub const METADATA_LIMIT_BYTES: usize = 4_096;

/// Where reading of a partition starts if the group has never committed an offset for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// At the oldest record that still exists.
    #[default]
    Earliest,
    /// At the end of the partition at the time of its restoration.
    Latest,
}

/// A record as read from the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Partition, from 0.
    pub partition: i32,
    /// Offset within the partition, from 0. Offsets rise, not always by one.
    pub offset: i64,
    /// The log's time of the record, in milliseconds since 1970; `None` if the log keeps no time.
    pub time_ms: Option<i64>,
    /// Key, if the record has one.
    pub key: Option<Vec<u8>>,
    /// Value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Headers, in order.
    pub headers: Vec<Header>,
    /// Whether this is the last record of its scope: the scope's state may be dropped when the
    /// record is finished. Only the JSON-lines log knows this.
    pub last_of_scope: bool,
    /// Whether the next record of its scope continues its utterance. Only the JSON-lines log knows
    /// this, and only on request.
    pub followed: bool,
    /// The id and the words of the answer to the user, if the record is an answered turn. Only a
    /// replay of a service's log knows this.
    pub answered: Option<(TurnId, String)>,
}

/// A partition that this consumer now holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Assignment {
    /// Partition, from 0.
    pub partition: i32,
    /// How often this consumer was assigned the partition, counting this assignment: from 1.
    pub generation: u32,
}

/// The result of a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Inputs, in offset order within each partition. Empty if the wait passed without any.
    Records(Vec<Record>),
    /// This consumer now holds these partitions, paused. The caller must
    /// [restore](Consumer::restore) each, then [resume](Consumer::resume) it.
    Assigned(Vec<Assignment>),
    /// The group moves these partitions to another member. This consumer still holds them, paused,
    /// until it [releases](Consumer::release) them. The caller commits the work that is done and
    /// then releases them. The other members wait, so this time must be bounded; the next owner
    /// does the rest of the work.
    Revoked(Vec<i32>),
    /// This consumer has lost these partitions, and another may already hold them. The caller drops
    /// all work that is not committed: the next owner does it again. The log refuses a commit for
    /// these partitions.
    Lost(Vec<i32>),
    /// No more inputs will come (end of a file, or a sealed embedded log).
    End,
}

/// The consumer's view of its membership and lag, for metrics and health. It is read without asking
/// the broker, so it may be some seconds old.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether the consumer is a member of its group while no rebalance runs; `None` if unknown.
    pub is_member: Option<bool>,
    /// Records between the read position and the end of each partition for which both are known.
    pub lag: BTreeMap<i32, u64>,
    /// The known ends of partitions: the offset that the next record of each will have.
    pub ends: BTreeMap<i32, i64>,
    /// How often the consumer left its group and joined again, so that the group assigns partitions
    /// that no member held.
    pub rejoins: u64,
    /// On how many partitions, since the process started, the sweep found and aborted an open
    /// transaction of an earlier process of the same name that the broker had given up.
    pub swept: u64,
}

/// The state of a partition after its restoration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The next offset to read. `None` if nothing was ever committed: reading then starts at the
    /// configured [`Start`].
    pub position: Option<i64>,
    /// The metadata committed with the position; empty if there is none.
    pub metadata: String,
    /// Records that the changelog held.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// Receives a changelog record by record. An error ends the restoration, which returns it.
pub type TakeChangelog<'a> = &'a mut dyn FnMut(Record) -> Result<(), LogError>;

/// Reads inputs. One thread owns it.
pub trait Consumer: Send {
    /// Waits at most `wait` for the next event and returns it. Events come in the order in which
    /// they happened. Records of a partition come in bounded batches, each offset once per
    /// restoration, and only between its resumption and its pause, revocation or loss.
    ///
    /// The caller must poll at least every few seconds, even while every partition is paused:
    /// polling keeps the membership alive. If no event comes, the call takes the whole `wait`, so
    /// `wait` should be short while a partition waits to be resumed. A zero `wait` reads no clock.
    ///
    /// # Errors
    ///
    /// Only errors that another poll cannot recover from. Broken connections are made again
    /// silently.
    fn poll(&mut self, wait: Duration) -> Result<Event, LogError>;

    /// Stops the delivery of the partition's records until it is resumed, without losing any.
    /// Ignores a partition that this consumer does not hold, since a rebalance may overtake the
    /// call.
    fn pause(&mut self, partition: i32) -> Result<(), LogError>;

    /// Lets the partition's records be delivered again. Ignores a partition that is revoked or that
    /// this consumer does not hold.
    fn resume(&mut self, partition: i32) -> Result<(), LogError>;

    /// Reads the committed position with its metadata, then the changelog partition up to its end.
    /// Sees committed records only, and all that were committed before the call. Passes every
    /// record of the changelog to `changelog` in offset order, tombstones included, without headers
    /// and time; records that compaction removed are missing. Holds no records in memory. Reading
    /// of inputs then starts at the position. The caller may restore a paused partition again, to
    /// start anew after an aborted transaction.
    ///
    /// The call serves no other partition, but keeps the membership alive as long as `changelog`
    /// returns within seconds.
    ///
    /// # Errors
    ///
    /// [`LogError::Unsettled`] while an open transaction may still change the result: try again.
    /// [`LogError::Stale`] if this consumer does not hold the partition, or no longer: poll.
    /// [`LogError::Refused`] if the changelog has records but the group has no committed position.
    /// Another non-fatal error if the log did not answer in time: try again. After an error,
    /// `changelog` may have received some of the records.
    fn restore(
        &mut self,
        partition: i32,
        changelog: TakeChangelog<'_>,
    ) -> Result<Restored, LogError>;

    /// Gives back every partition that was revoked and is not yet released, if any.
    fn release(&mut self) -> Result<(), LogError>;

    /// The last known membership and lag. Never waits.
    fn standing(&self) -> Standing {
        Standing::default()
    }
}

/// A record to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The topic to write to.
    pub topic: Topic,
    /// The partition of the input that caused this output. The output goes to the same partition
    /// number.
    pub partition: i32,
    /// The offset of the input that caused it.
    pub input_offset: i64,
    /// Key.
    pub key: Option<Vec<u8>>,
    /// Value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Headers: those of the input first.
    pub headers: Vec<Header>,
}

/// The offset from which a partition would be read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Partition of the input topic.
    pub partition: i32,
    /// The [assignment](Assignment::generation) under which the position was computed.
    pub generation: u32,
    /// The lowest offset whose input is still pending.
    pub offset: i64,
    /// ASCII, at most [`METADATA_LIMIT_BYTES`]: the finished offsets above `offset`.
    pub metadata: String,
}

/// Outputs and positions that become visible together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// In order. The log keeps the order within each topic and partition.
    pub outputs: Vec<Output>,
    /// At most one per partition, and exactly one for each partition that has outputs: the
    /// position's generation fences the outputs.
    pub positions: Vec<Position>,
}

impl Transaction {
    /// Checks that the outputs and positions keep the rules of their fields.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        let mut partitions = BTreeSet::new();
        for position in &self.positions {
            if !partitions.insert(position.partition) {
                return Err(LogError::Refused(format!(
                    "a transaction has two positions of partition {}",
                    position.partition
                )));
            }
            if !position.metadata.is_ascii() || position.metadata.len() > METADATA_LIMIT_BYTES {
                return Err(LogError::Refused(format!(
                    "the metadata of partition {} at offset {} is {} bytes long; it must be \
                     ASCII and at most {METADATA_LIMIT_BYTES}",
                    position.partition,
                    position.offset,
                    position.metadata.len()
                )));
            }
        }
        match self.outputs.iter().find(|output| !partitions.contains(&output.partition)) {
            None => Ok(()),
            Some(output) => Err(LogError::Refused(format!(
                "a transaction has an output of input {}-{} and no position of that partition",
                output.partition, output.input_offset
            ))),
        }
    }
}

/// Writes outcomes. One thread owns it.
pub trait Producer: Send {
    /// Makes the whole transaction visible to readers of committed records, or none of it. Returns
    /// when the result is certain. An empty transaction only settles earlier transactions whose
    /// result is still in doubt.
    ///
    /// # Errors
    ///
    /// If [`LogError::is_fatal`] is false, the caller may try again and nothing becomes visible
    /// twice. After [`LogError::Stale`] it must first drop the outcomes of the partitions that the
    /// error names: another owner has written or will write theirs. After a fatal error the
    /// transaction may be visible or not; only a restoration in a new process shows which.
    fn commit(&mut self, transaction: &Transaction) -> Result<(), LogError>;

    /// Whether readers see every change of a history, rather than only the last one per key. If so,
    /// the written changes must not depend on how outcomes are divided into transactions.
    fn keeps_every_change(&self) -> bool {
        false
    }
}

/// Errors of a log. Messages name the topic, file or setting, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file or directory of the log.
    #[error("{path}: {source}")]
    File {
        /// The path, with the line if it is known.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The storage of the embedded log.
    #[error("embedded log {path}: {source}; {remedy}")]
    Storage {
        /// The directory.
        path: String,
        /// The error of the storage library.
        source: heed::Error,
        /// The remedy for the user.
        remedy: &'static str,
    },
    /// The Kafka client or broker.
    #[error("{doing}: {source}")]
    Kafka {
        /// The operation, with topic, partition and remedy.
        doing: String,
        /// The error of the client.
        source: KafkaError,
        /// Whether the process must stop: it was fenced, or the client is in a fatal state.
        fatal: bool,
    },
    /// Another member holds these partitions, or they were assigned anew since the work was done.
    #[error(
        "the work for partitions {partitions:?} belongs to an older assignment of them; drop it and \
         poll"
    )]
    Stale {
        /// The partitions, in rising order.
        partitions: Vec<i32>,
    },
    /// An open transaction of another process may still change the requested state.
    #[error(
        "{what}: another transaction is still open; it ends when its owner starts again or when its \
         timeout passes"
    )]
    Unsettled {
        /// Topic and partition.
        what: String,
    },
    /// Another process uses the same name, and the log now accepts only that process.
    #[error(
        "another process took over the {name} `{id}`; give every process its own, and look for \
         the other process before you start this one again: they would fence each other in turn"
    )]
    Fenced {
        /// The kind of name.
        name: &'static str,
        /// The name.
        id: String,
    },
    /// The log refuses the request and would refuse it again (topics, permissions, credentials,
    /// limits), or the log holds data that must not be there.
    #[error("{0}")]
    Refused(String),
    /// The cache refused a record of the changelog.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

impl LogError {
    /// Whether trying again is pointless, so that the process must stop.
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Kafka { fatal, .. } => *fatal,
            Self::Stale { .. } | Self::Unsettled { .. } => false,
            Self::File { .. }
            | Self::Storage { .. }
            | Self::Fenced { .. }
            | Self::Refused(_)
            | Self::Cache(_) => true,
        }
    }

    /// Whether the Kafka client could not be created from its settings.
    pub fn is_of_settings(&self) -> bool {
        let Self::Kafka { source, .. } = self else { return false };
        matches!(source, KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_))
    }
}

/// Passes the records of a changelog on and counts them.
pub(crate) struct CountedChangelog<'a> {
    partition: i32,
    position: Option<i64>,
    changelog: TakeChangelog<'a>,
    records: u64,
    bytes: u64,
    /// Keys whose last record is no tombstone. Kept only if there is no position.
    left: FxHashSet<Vec<u8>>,
}

impl<'a> CountedChangelog<'a> {
    pub(crate) fn new(partition: i32, position: Option<i64>, changelog: TakeChangelog<'a>) -> Self {
        let left = FxHashSet::default();
        Self { partition, position, changelog, records: 0, bytes: 0, left }
    }

    /// Records and bytes so far.
    pub(crate) fn passed(&self) -> (u64, u64) {
        (self.records, self.bytes)
    }

    pub(crate) fn pass(&mut self, record: Record) -> Result<(), LogError> {
        let key = record.key.as_deref().unwrap_or_default();
        let value = record.value.as_ref();
        self.records += 1;
        self.bytes += (key.len() + value.map_or(0, Vec::len)) as u64;
        match (self.position, value) {
            (Some(_), _) => {}
            (None, Some(_)) => drop(self.left.insert(key.to_vec())),
            (None, None) => drop(self.left.remove(key)),
        }
        (self.changelog)(record)
    }

    /// Refuses a changelog that has records but no committed position. The offsets of the group are
    /// gone (offsets expire, and a group may be renamed), and starting anew would answer every
    /// input again.
    pub(crate) fn finish(self, metadata: String, group: &str) -> Result<Restored, LogError> {
        let Self { partition, position, records, bytes, left, .. } = self;
        if !left.is_empty() {
            return Err(LogError::Refused(format!(
                "partition {partition}: the changelog holds {} records, yet group `{group}` has \
                 no committed offset there; either name the group that wrote it, or set the \
                 group's offset by hand, or empty the changelog to start over",
                left.len()
            )));
        }
        Ok(Restored { position, metadata, records, bytes })
    }
}
