//! The log: where inputs come from and where outcomes go.
//!
//! Three implementations keep the promises below: [`kafka`] through rdkafka, [`embedded`] (a
//! transactional log in memory, or in a directory on LMDB), and [`jsonl`] for files. The engine
//! knows only these traits: a [`Consumer`], owned by the consumer thread, a [`Producer`], owned by
//! the committer, and a [`Follower`] of the topic of knowledge, owned by the thread that learns.
//! `turnstream views` has followers of its own, and a [`Writer`](write::Writer).
//!
//! The claim rests on three rules, which every implementation keeps and `conformance.rs`
//! tests on each of them:
//!
//! 1. Everything that an input caused and the position behind it are in one [`Transaction`],
//!    which readers of committed records see whole or not at all.
//! 2. A position is taken only from whoever holds its partition now, under the generation of
//!    its latest assignment. Whatever was made under an older one is refused as
//!    [`LogError::Stale`].
//! 3. A partition is [restored](Consumer::restore) from committed records only, and only once
//!    no transaction that an earlier owner left open can still change them.
//!
//! The life of a partition, as its events tell it:
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
use turnstream_schemas::Header;

pub mod embedded;
mod ends;
pub mod evictions;
pub mod follow;
pub mod jsonl;
pub mod kafka;
pub mod letters;
pub mod write;

#[cfg(test)]
mod conformance;

pub use ends::Ends;
pub use follow::Follower;

/// The longest metadata that a position may carry, in bytes of ASCII (the broker's default of
/// `offset.metadata.max.bytes`).
pub const METADATA_LIMIT_BYTES: usize = 4_096;

/// What a topic is for. The names on the log are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Inputs.
    Turns,
    /// Answers.
    Responses,
    /// Inputs that were recorded and not answered.
    Recorded,
    /// Inputs that could not be served.
    DeadLetters,
    /// The changelog of histories, compacted by key.
    History,
    /// Changes to the knowledge, compacted by key. It has a number of partitions of its own.
    Knowledge,
    /// What responses, histories and knowledge amount to, compacted by key. Only `turnstream
    /// views` has to do with it; its number of partitions is its own as well.
    Views,
}

impl Topic {
    /// All topics.
    pub const ALL: [Self; 7] = [
        Self::Turns,
        Self::Responses,
        Self::Recorded,
        Self::DeadLetters,
        Self::History,
        Self::Knowledge,
        Self::Views,
    ];

    /// The topics of inputs and their outcomes: all have the same partitions.
    pub const OF_TURNS: [Self; 5] =
        [Self::Turns, Self::Responses, Self::Recorded, Self::DeadLetters, Self::History];

    /// Whether of each key only the last record is kept.
    pub fn is_compacted(self) -> bool {
        matches!(self, Self::History | Self::Knowledge | Self::Views)
    }

    /// The topic's name where none is configured, and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::Responses => "responses",
            Self::Recorded => "recorded",
            Self::DeadLetters => "dead-letters",
            Self::History => "history",
            Self::Knowledge => "knowledge",
            Self::Views => "views",
        }
    }
}

/// Where reading begins in a partition of which nothing was ever committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// At the oldest record that is still there.
    #[default]
    Earliest,
    /// At the end as it is when the partition is restored.
    Latest,
}

/// A record that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Partition, from 0.
    pub partition: i32,
    /// Offset within the partition, from 0; rising, not always by one.
    pub offset: i64,
    /// The log's time of the record: milliseconds since 1970. `None` where the log has none.
    pub time_ms: Option<i64>,
    /// Key, where there is one.
    pub key: Option<Vec<u8>>,
    /// Value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Headers, in order.
    pub headers: Vec<Header>,
    /// The last record of its scope: its state may be dropped once it is finished. Only files
    /// know this.
    pub last_of_scope: bool,
}

/// A partition that is ours now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Assignment {
    /// Partition, from 0.
    pub partition: i32,
    /// How often this consumer was assigned the partition, this time included: from 1.
    pub generation: u32,
}

/// What polling brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Inputs, in offset order within each partition. Empty when nothing came in time.
    Records(Vec<Record>),
    /// These partitions are ours now, paused. Each must be [restored](Consumer::restore), then
    /// [resumed](Consumer::resume).
    Assigned(Vec<Assignment>),
    /// Another shall have these partitions. They are still ours, paused, until
    /// [released](Consumer::release): commit what is done, then release them. Others wait for
    /// that, so it must be bounded; what is not done by then is the next owner's to do.
    Revoked(Vec<i32>),
    /// These partitions are no longer ours, and may be another's already. Whatever
    /// is not committed is to be done by who has them next: drop it. A commit of theirs is refused.
    Lost(Vec<i32>),
    /// No input will ever come again (files, and a sealed embedded log).
    End,
}

/// What a consumer knows of its own standing without asking anybody, for metrics and health.
/// May be some seconds old.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether it is a member of its group and no rebalance is going on; `None` where that is
    /// not known.
    pub is_member: Option<bool>,
    /// For each partition where both are known: records between what was read of it and its end.
    pub lag: BTreeMap<i32, u64>,
    /// The end of each partition of which it is known: the offset that its next record will have.
    pub ends: BTreeMap<i32, i64>,
    /// How often it left its group and joined again, so that partitions which were nobody's were
    /// given on.
    pub rejoins: u64,
    /// On how many partitions, since the process started, a transaction of an earlier process of its
    /// name was found open that the log had given up, and was aborted.
    pub swept: u64,
}

/// Where a partition stands, after its changelog was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The next offset to read; `None` where nothing was ever committed (then reading starts
    /// where the log is configured to).
    pub position: Option<i64>,
    /// The metadata committed with the position; empty where there is none.
    pub metadata: String,
    /// Records of the changelog that were given.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// Takes a changelog in, record by record. An error ends the restoration, and is what it gives.
pub type TakeChangelog<'a> = &'a mut dyn FnMut(Record) -> Result<(), LogError>;

/// Reads inputs. Owned by one thread.
pub trait Consumer: Send {
    /// Waits at most `wait` for something to happen, and gives the first thing that did. Events
    /// come in the order they happened; records of a partition come only between its resumption
    /// and its pause, revocation or loss, each offset once per restoration, in bounded batches.
    ///
    /// Must be called at least every few seconds also while every partition is paused: it keeps
    /// the membership alive. With nothing to give it takes the whole `wait`, so let `wait` be
    /// short while a partition waits to be resumed. A zero `wait` reads no clock.
    ///
    /// # Errors
    ///
    /// Only what polling again cannot mend: connections that broke are made again silently.
    fn poll(&mut self, wait: Duration) -> Result<Event, LogError>;

    /// Stops records of the partition from being polled, until resumed; none is lost. A
    /// partition that is not ours is left alone, since a rebalance may overtake the call.
    fn pause(&mut self, partition: i32) -> Result<(), LogError>;

    /// Lets records of the partition come again. One that is not ours, or revoked, is left
    /// alone.
    fn resume(&mut self, partition: i32) -> Result<(), LogError>;

    /// Reads the committed position with its metadata and then the changelog partition until
    /// its end, seeing only committed records, and everything that any transaction committed
    /// before the call. Gives every record of the changelog to `changelog`, in offset order,
    /// tombstones among them, headers and time left out; what compaction removed is not there.
    /// Nothing is held in memory. Reading of inputs begins at the position. May be called again
    /// on a paused partition, to begin anew after an aborted transaction.
    ///
    /// Other partitions are not served meanwhile, yet the membership is kept alive, as long as
    /// `changelog` returns within seconds.
    ///
    /// # Errors
    ///
    /// [`LogError::Unsettled`] while a transaction that somebody left open may still change the
    /// answer: try again. [`LogError::Stale`] where the partition is not ours (any more): poll.
    /// [`LogError::Refused`] where a changelog stands without a committed position. Another that
    /// is not fatal, where the log did not answer in time: try again. After an error some records
    /// may have been given.
    fn restore(
        &mut self,
        partition: i32,
        changelog: TakeChangelog<'_>,
    ) -> Result<Restored, LogError>;

    /// Gives back every partition that was revoked and not yet given back. Does nothing where
    /// there is none.
    fn release(&mut self) -> Result<(), LogError>;

    /// Where it stands, as far as it knows. Never waits.
    fn standing(&self) -> Standing {
        Standing::default()
    }
}

/// A record to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Where to.
    pub topic: Topic,
    /// The partition of the input that caused it; outputs lie on the same partition number.
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

/// Where reading of a partition would begin again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Partition of the input topic.
    pub partition: i32,
    /// The [assignment](Assignment::generation) under which it was worked out.
    pub generation: u32,
    /// The lowest offset whose input is not finished.
    pub offset: i64,
    /// ASCII, at most [`METADATA_LIMIT_BYTES`]: the finished offsets above `offset`.
    pub metadata: String,
}

/// Outputs and positions that become visible together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// In order; order is kept per topic and partition.
    pub outputs: Vec<Output>,
    /// At most one per partition, and one for every partition that has outputs: it is what
    /// fences them.
    pub positions: Vec<Position>,
}

impl Transaction {
    /// Whether the transaction keeps what its fields promise.
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

/// Writes outcomes. Owned by one thread.
pub trait Producer: Send {
    /// Makes the whole transaction visible to readers of committed records, or nothing of it.
    /// An empty transaction only makes certain what of those before it may be in doubt. Returns once
    /// it is certain which.
    ///
    /// # Errors
    ///
    /// After an error whose [`LogError::is_fatal`] is false it may be tried again, and nothing
    /// becomes visible twice; after [`LogError::Stale`] only without the partitions that it names,
    /// whose outcomes must be dropped: another's are visible or will be. After a fatal error it may be visible or not: only
    /// restoring in a new process tells.
    fn commit(&mut self, transaction: &Transaction) -> Result<(), LogError>;

    /// Whether readers see every change of a history, and not only the last one per key. Then
    /// what is written must not depend on where one transaction ends and the next begins.
    fn keeps_every_change(&self) -> bool {
        false
    }
}

/// What can go wrong with a log. Messages name the topic, the file or the setting, and the
/// remedy.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file or directory of the log.
    #[error("{path}: {source}")]
    File {
        /// Which, with the line where one is known.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The storage of the embedded log.
    #[error("embedded log {path}: {source}; {remedy}")]
    Storage {
        /// The directory.
        path: String,
        /// What the storage said.
        source: heed::Error,
        /// What would mend it.
        remedy: &'static str,
    },
    /// The Kafka client or broker.
    #[error("{doing}: {source}")]
    Kafka {
        /// What was being done, with topic, partition and remedy.
        doing: String,
        /// What the client said.
        source: KafkaError,
        /// Whether the process must stop: fenced, or the client is in a fatal state.
        fatal: bool,
    },
    /// These partitions are another's, or were assigned anew since the work was done.
    #[error(
        "partitions {partitions:?} are no longer held under the generation the work was done \
         under; drop it and poll"
    )]
    Stale {
        /// Which, in rising order.
        partitions: Vec<i32>,
    },
    /// A transaction that somebody left open may still change what was asked for.
    #[error(
        "{what}: a transaction is still open there; it ends when its owner starts again or when \
         its timeout passes"
    )]
    Unsettled {
        /// Topic and partition.
        what: String,
    },
    /// Another process goes by our name, and the log listens to that one now.
    #[error(
        "another process took over the {name} `{id}`; give every process its own, and look for \
         the other one before this one is started again: they would fence each other in turn"
    )]
    Fenced {
        /// What kind of name it is.
        name: &'static str,
        /// The name.
        id: String,
    },
    /// The log refuses what was asked of it, and would refuse it again: topics, permissions,
    /// credentials, limits. Or it holds what it must not.
    #[error("{0}")]
    Refused(String),
    /// The cache would not take a changelog.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

impl LogError {
    /// Whether trying again is pointless: the process must stop.
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

    /// Whether the Kafka client could not be made from its settings.
    pub fn is_of_settings(&self) -> bool {
        let Self::Kafka { source, .. } = self else { return false };
        matches!(source, KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_))
    }
}

/// Passes a changelog on, and counts it.
pub(crate) struct Passing<'a> {
    partition: i32,
    position: Option<i64>,
    changelog: TakeChangelog<'a>,
    records: u64,
    bytes: u64,
    /// Without a position: the keys whose last record is no tombstone.
    left: FxHashSet<Vec<u8>>,
}

impl<'a> Passing<'a> {
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

    /// Refuses a changelog without a position: the offsets of the group are gone (they expire,
    /// and a group may be renamed), and beginning anew would answer every input again.
    pub(crate) fn finish(self, metadata: String, group: &str) -> Result<Restored, LogError> {
        let Self { partition, position, records, bytes, left, .. } = self;
        if !left.is_empty() {
            return Err(LogError::Refused(format!(
                "partition {partition}: the changelog holds {} records, yet group `{group}` has \
                 no committed offset there; either name the group that wrote it, or set the \
                 group's offset by hand, or empty the changelog to begin anew",
                left.len()
            )));
        }
        Ok(Restored { position, metadata, records, bytes })
    }
}
