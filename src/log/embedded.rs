//! The embedded log: topics, partitions, transactions and consumer groups inside this process, with
//! those semantics of Kafka that the engine needs. `demo` uses it by default; tests and the crash
//! simulation run on it.
//!
//! - A transaction begins, receives outputs and positions, and ends in a commit or an abort.
//!   [`Producer::commit`](super::Producer::commit) takes all steps at once;
//!   [`EmbeddedProducer::begin`] takes one at a time, so that a test can crash between them. The
//!   end of a transaction takes one offset, as a control record, in every partition that the
//!   transaction wrote to. As in Kafka, offsets therefore rise, but not always by one.
//! - Readers of committed records ([`Isolation::ReadCommitted`]) see no aborted record, and nothing
//!   at or above the first record of a partition's oldest open transaction.
//! - A group spreads its partitions evenly over its members and rebalances cooperatively: a
//!   partition moves when its holder has released it. A member that is
//!   [expelled](EmbeddedLog::expel), as after a session timeout, loses all its partitions at once
//!   and joins again at its next poll.
//! - Two things fence a producer: its transactional id (a newer producer of the same id aborts what
//!   the older one left open) and the assignments of its consumer.
//! - All topics, also that of knowledge, have the same number of partitions, which never changes.
//!
//! The log is deterministic. It uses no clock, thread or random order: the appender gives a record
//! its time, and a poll with a zero wait reads no clock. `embedded/state.rs` lists the keys and
//! their values. The storage decides whether the log survives the process: in `directory` it does,
//! in `memory` it does not.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_ports::partitioner::Partitioner;
use turnstream_schemas::Header;

use super::{LogError, Output, Record, Start, Topic};

mod codec;
mod compaction;
mod consumer;
mod directory;
mod follower;
mod forgotten;
mod group;
mod memory;
mod producer;
mod state;
#[cfg(test)]
mod tests;
mod writer;

pub use consumer::EmbeddedConsumer;
pub use follower::EmbeddedFollower;
pub use producer::{EmbeddedProducer, OpenTransaction};
pub use state::Committed;
pub use writer::EmbeddedWriter;

use state::{Batch, LogState};

/// Bounds of an embedded log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmbeddedConfig {
    /// Partitions of every topic, 1 or more. A directory keeps the number that it was created with.
    #[schemars(range(min = 1))]
    pub partitions: i32,
    /// Where a group starts to read if it has never committed.
    pub start: Start,
    /// The most records of one poll, 1 or more.
    #[schemars(range(min = 1))]
    pub poll_records: usize,
    /// Compact a partition of `history` or `knowledge` when at least so many records, and as many
    /// as its last compaction left, were written to it since; 0 disables automatic compaction.
    pub compact_after_records: u64,
    /// The largest size of a directory, in MiB. Only address space is reserved in advance.
    #[schemars(range(min = 1))]
    pub map_size_mib: usize,
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        Self {
            partitions: 8,
            start: Start::Earliest,
            poll_records: 500,
            compact_after_records: 100_000,
            map_size_mib: 64 * 1024,
        }
    }
}

/// Which records a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Records that can no longer change: not aborted, and before every open transaction.
    ReadCommitted,
    /// All records, including those of open and aborted transactions.
    ReadUncommitted,
}

/// A record to append outside of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Key, if the record has one.
    pub key: Option<Vec<u8>>,
    /// Value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Headers, in order.
    pub headers: Vec<Header>,
    /// The log's time that the appender sets, in milliseconds since 1970.
    pub time_ms: Option<i64>,
}

/// A handle on an embedded log. Clones are handles on the same log.
#[derive(Clone)]
pub struct EmbeddedLog {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<LogState>,
    /// Notified at every change, to wake polls that wait.
    changed: Condvar,
    config: EmbeddedConfig,
}

impl EmbeddedLog {
    /// A log that lives as long as its handles.
    pub fn in_memory(config: &EmbeddedConfig) -> Result<Self, LogError> {
        Self::on(Box::new(memory::Memory::default()), config)
    }

    /// The log in this directory, which is created if it is missing. Only one process, and only one
    /// log within it, can have a directory open. Every append and every commit is on disk when it
    /// returns.
    pub fn in_directory(path: &Path, config: &EmbeddedConfig) -> Result<Self, LogError> {
        let storage = directory::Directory::open(path, config.map_size_mib)?;
        Self::on(Box::new(storage), config)
    }

    fn on(storage: Box<dyn state::Storage>, config: &EmbeddedConfig) -> Result<Self, LogError> {
        if config.partitions < 1 || config.poll_records < 1 {
            return Err(LogError::Refused(
                "`log.embedded.partitions` and `log.embedded.poll_records` must be at least 1"
                    .to_owned(),
            ));
        }
        let state = Mutex::new(LogState::load(storage, config.partitions)?);
        let shared = Shared { state, changed: Condvar::new(), config: config.clone() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Appends a record, which is committed at once, and returns its offset.
    pub fn append(&self, topic: Topic, partition: i32, message: Message) -> Result<i64, LogError> {
        let mut state = self.state();
        let offset = state.append(topic, partition, message)?;
        self.compact_if_due(&mut state, topic, partition)?;
        drop(state);
        self.shared.changed.notify_all();
        Ok(offset)
    }

    /// Appends a record to the partition of its key ([`partition_of`]), or to partition 0 if it has
    /// no key. Returns the partition and the offset.
    pub fn append_by_key(&self, topic: Topic, message: Message) -> Result<(i32, i64), LogError> {
        let partition = match &message.key {
            Some(key) => partition_of(key, self.shared.config.partitions),
            None => 0,
        };
        Ok((partition, self.append(topic, partition, message)?))
    }

    /// Appends records to the partition of a key such that every reader sees all of them or none.
    /// Returns the partition and the offsets.
    pub fn append_together(
        &self,
        topic: Topic,
        key: &[u8],
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<(i32, Vec<i64>), LogError> {
        let partition = partition_of(key, self.shared.config.partitions);
        let mut state = self.state();
        let offsets = messages.into_iter().map(|message| {
            let message = Message { key: Some(key.to_vec()), ..message };
            state.append(topic, partition, message)
        });
        let offsets = offsets.collect::<Result<_, _>>()?;
        self.compact_if_due(&mut state, topic, partition)?;
        drop(state);
        self.shared.changed.notify_all();
        Ok((partition, offsets))
    }

    /// Appends records to topics such that every reader sees all of them or none. They are
    /// committed when the call returns, and on disk if the log is in a directory.
    pub fn append_all(&self, outputs: &[Output]) -> Result<(), LogError> {
        let mut state = self.state();
        for output in outputs {
            state.check_place((output.topic, output.partition))?;
        }
        let mut batch = Batch::new();
        let number = state.stage_begin(&mut batch, "appended together");
        state.stage_outputs(&mut batch, number, outputs)?;
        state.stage_commit(&mut batch, number)?;
        state.write(batch)?;
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Takes one offset, as a control record does, without a readable record. Returns the offset.
    pub fn append_control(&self, topic: Topic, partition: i32) -> Result<i64, LogError> {
        self.state().append_control(topic, partition)
    }

    /// Returns at most `max` records from `from_offset` on that the isolation shows.
    pub fn read(
        &self,
        topic: Topic,
        partition: i32,
        from_offset: i64,
        max: usize,
        isolation: Isolation,
    ) -> Result<Vec<Record>, LogError> {
        Ok(self.state().read((topic, partition), from_offset, max, isolation)?.0)
    }

    /// One above the last offset of the partition, control records included.
    pub fn end(&self, topic: Topic, partition: i32) -> i64 {
        self.state().end((topic, partition))
    }

    /// The stable end: the offset at which the oldest open transaction began, or the end.
    pub fn stable_end(&self, topic: Topic, partition: i32) -> i64 {
        self.state().stable_end((topic, partition))
    }

    /// The last committed offset of the group for the partition, if any.
    pub fn committed(&self, group: &str, partition: i32) -> Result<Option<Committed>, LogError> {
        self.state().committed(group, partition)
    }

    /// Below the stable end, keeps only the last committed record per key, and no tombstones (Kafka
    /// keeps those for a while). Records without a key stay. Returns the number of removed records.
    /// The remaining records keep their offsets.
    pub fn compact(&self, topic: Topic) -> Result<usize, LogError> {
        let mut state = self.state();
        let mut removed = 0;
        for partition in 0..self.shared.config.partitions {
            removed += state.compact((topic, partition))?;
        }
        Ok(removed)
    }

    /// Declares that the topic is complete: a consumer that has read all of it gets
    /// [`Event::End`](super::Event::End). A directory does not store the seal.
    pub fn seal(&self, topic: Topic) {
        self.state().seal(topic);
        self.shared.changed.notify_all();
    }

    /// Joins the group as a new member that reads the topic.
    pub fn consumer(&self, group: &str, topic: Topic) -> Result<EmbeddedConsumer, LogError> {
        EmbeddedConsumer::join(self.clone(), group, topic)
    }

    /// A producer that commits for the consumer. Fences every earlier producer of this
    /// transactional id and aborts the transactions that they left open.
    pub fn producer(
        &self,
        consumer: &EmbeddedConsumer,
        transactional_id: &str,
    ) -> Result<EmbeddedProducer, LogError> {
        EmbeddedProducer::initialise(self.clone(), consumer, transactional_id)
    }

    /// Follows a compacted topic from its beginning.
    pub fn follower(&self, topic: Topic) -> EmbeddedFollower {
        EmbeddedFollower::open(self.clone(), topic)
    }

    /// Writes keyed records to a compacted topic, partitioned as Kafka's own clients do (murmur2).
    pub fn writer(&self, topic: Topic) -> EmbeddedWriter {
        EmbeddedWriter::new(self.clone(), topic)
    }

    /// The number of partitions of every topic.
    pub fn partitions(&self) -> i32 {
        self.shared.config.partitions
    }

    /// Ends a membership as a session timeout does: the member loses its partitions at once and
    /// learns of the loss at its next poll. Does nothing if there is no such member.
    pub fn expel(&self, group: &str, member: u64) {
        self.state().expel(group, member);
        self.shared.changed.notify_all();
    }

    /// Aborts the open transactions of this transactional id, as a transaction timeout does. A
    /// producer that is still alive finds its transaction aborted.
    pub fn abort_open(&self, transactional_id: &str) -> Result<(), LogError> {
        self.state().abort_open(transactional_id)?;
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Gives up the open transactions of this transactional id without writing an end marker, as
    /// Kafka's broker may after a crash. Readers keep waiting at them. On each partition, the next
    /// transaction of the same id also ends the forgotten one. A producer that takes the id
    /// therefore first aborts them. Returns the number of transactions.
    pub fn forget_open(&self, transactional_id: &str) -> Result<usize, LogError> {
        self.state().forget_open(transactional_id)
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compact_if_due(
        &self,
        state: &mut LogState,
        topic: Topic,
        partition: i32,
    ) -> Result<(), LogError> {
        let after = self.shared.config.compact_after_records;
        if topic.is_compacted() && after > 0 && state.compaction_due((topic, partition), after) {
            state.compact((topic, partition))?;
        }
        Ok(())
    }
}

/// The partition of a key as librdkafka, and so kcat, computes it ([`Partitioner::Crc32`]); 0 for
/// an empty key. Java clients use murmur2 and choose another partition.
pub fn partition_of(key: &[u8], partitions: i32) -> i32 {
    Partitioner::Crc32.partition(key, partitions).unwrap_or(0)
}
