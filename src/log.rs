//! The log: where inputs come from and where outcomes go.
//!
//! Three implementations keep the promises below: [`kafka`] through rdkafka, [`embedded`] (a
//! transactional log in memory, or in a directory on LMDB), and [`jsonl`] for files. The engine
//! knows only this trait pair: a [`Consumer`], owned by the consumer thread, and a [`Producer`],
//! owned by the committer.
//!
//! The claim rests on one rule: everything that an input caused and the position behind it are
//! in one [`Transaction`].

use std::time::Duration;

use turnstream_schemas::Header;

pub mod embedded;
pub mod jsonl;
pub mod kafka;

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
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// What polling brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Inputs, in offset order within each partition. Empty when nothing came in time.
    Records(Vec<Record>),
    /// These partitions are ours now, paused. Each must be [restored](Consumer::restore), then
    /// [resumed](Consumer::resume).
    Assigned(Vec<i32>),
    /// These partitions are another's now; what is finished and not yet committed is his to do.
    Revoked(Vec<i32>),
    /// No input will ever come again (files).
    End,
}

/// Where a partition stands, and the changelog up to there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The next offset to read; `None` where nothing was ever committed (then reading starts
    /// where the log is configured to).
    pub position: Option<i64>,
    /// The metadata committed with the position; empty where there is none.
    pub metadata: String,
    /// The changelog partition until its end, the last record per key, in offset order.
    pub changelog: Vec<Record>,
}

/// Reads inputs. Owned by one thread.
pub trait Consumer: Send {
    /// Waits at most `wait` for something to happen. Must be called at least every few seconds
    /// also while every partition is paused: it keeps the membership alive.
    fn poll(&mut self, wait: Duration) -> Result<Event, LogError>;

    /// Stops records of the partition from being polled, until resumed. Records that were
    /// already fetched are kept and come later.
    fn pause(&mut self, partition: i32) -> Result<(), LogError>;

    /// Lets records of the partition come again.
    fn resume(&mut self, partition: i32) -> Result<(), LogError>;

    /// Reads the committed position with its metadata and then the changelog partition until
    /// its end, seeing only committed records. Reading of inputs will begin at the position.
    fn restore(&mut self, partition: i32) -> Result<Restored, LogError>;
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
    /// The lowest offset whose input is not finished.
    pub offset: i64,
    /// ASCII, at most 4,096 bytes: the finished offsets above `offset`.
    pub metadata: String,
}

/// Outputs and positions that become visible together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// In order; order is kept per topic and partition.
    pub outputs: Vec<Output>,
    /// At most one per partition.
    pub positions: Vec<Position>,
}

/// Writes outcomes. Owned by one thread.
pub trait Producer: Send {
    /// Makes the whole transaction visible to readers of committed records, or nothing of it.
    /// After an error whose [`LogError::is_fatal`] is false nothing of it is visible and it may
    /// be tried again.
    fn commit(&mut self, transaction: &Transaction) -> Result<(), LogError>;
}

/// What can go wrong with a log. Messages name the topic, the file or the setting, and the
/// remedy.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file or directory of the log.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The storage of the embedded log.
    #[error("embedded log {path}: {source}")]
    Storage {
        /// The directory.
        path: String,
        /// What the storage said.
        source: heed::Error,
    },
    /// The Kafka client or broker.
    #[error("{doing}: {source}")]
    Kafka {
        /// What was being done, with topic, partition and remedy.
        doing: String,
        /// What the client said.
        source: rdkafka::error::KafkaError,
        /// Whether the process must stop: fenced, or the client is in a fatal state.
        fatal: bool,
    },
    /// The log refuses what was asked of it.
    #[error("{0}")]
    Refused(String),
}

impl LogError {
    /// Whether trying again is pointless: the process must stop and begin anew.
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Kafka { fatal, .. } => *fatal,
            Self::File { .. } | Self::Storage { .. } | Self::Refused(_) => true,
        }
    }
}
