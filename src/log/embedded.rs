//! The embedded log: topics, partitions, transactions and consumer groups with the semantics of
//! Kafka as far as the engine needs them, in this process. The default of `demo`, and the bed of
//! tests and of the crash simulation.
//!
//! - A transaction is begun, gets outputs, gets positions, and ends in a commit or an abort;
//!   [`Producer::commit`](super::Producer::commit) takes these steps in one, and
//!   [`EmbeddedProducer::begin`] one at a time, so that a test can crash between them. Its end
//!   takes one offset as a control record in every partition that it wrote to, as in Kafka:
//!   offsets rise, not always by one.
//! - Readers of committed records ([`Isolation::ReadCommitted`]) see nothing at or above the
//!   first record of the oldest open transaction of a partition, and nothing aborted.
//! - A group gives its partitions to its members evenly, and cooperatively: a partition moves
//!   when its holder has released it. Who is [expelled](EmbeddedLog::expel), as by a session
//!   that ran out, loses all at once and joins anew at the next poll.
//! - A producer is fenced twice: by its transactional id (a newer producer of that id aborts
//!   what the older left open) and by its consumer's assignments.
//! - All topics have the same number of partitions, for ever; that of knowledge too.
//!
//! Deterministic: no clock, no thread and no random order; the appender gives a record its time,
//! and a poll that may not wait reads no clock. What is stored where is in `embedded/state.rs`; whether it
//! survives the process is the storage's matter: `memory` does not, `directory` does.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_ports::partitioner::Partitioner;
use turnstream_schemas::Header;

use super::{LogError, Record, Start, Topic};

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

use state::State;

/// Bounds of an embedded log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmbeddedConfig {
    /// Partitions of every topic, 1 or more. A directory keeps the number it was made with.
    pub partitions: i32,
    /// Where a group begins that never committed.
    pub start: Start,
    /// Records that one poll brings at most, 1 or more.
    pub poll_records: usize,
    /// Compact a partition of `history` or `knowledge` once so many records, and as many as its last
    /// compaction left, were written to it since; 0 never compacts by itself.
    pub compact_after_records: u64,
    /// The most that a directory can hold, in MiB. Only address space is taken in advance.
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
    /// Those that are certain: not aborted, and before every open transaction.
    ReadCommitted,
    /// All, also those of open and aborted transactions.
    ReadUncommitted,
}

/// A record to append from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Key, where there is one.
    pub key: Option<Vec<u8>>,
    /// Value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Headers, in order.
    pub headers: Vec<Header>,
    /// The log's time: milliseconds since 1970, as the appender says.
    pub time_ms: Option<i64>,
}

/// A handle on an embedded log. Clones are handles on the same log.
#[derive(Clone)]
pub struct EmbeddedLog {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Told at every change, for polls that wait.
    changed: Condvar,
    config: EmbeddedConfig,
}

impl EmbeddedLog {
    /// A log that lives as long as its handles.
    pub fn in_memory(config: &EmbeddedConfig) -> Result<Self, LogError> {
        Self::on(Box::new(memory::Memory::default()), config)
    }

    /// The log in this directory, made where it is not there. Only one process, and one log
    /// within it, can have a directory open. Every append and every commit is on disk when it
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
        let state = Mutex::new(State::load(storage, config.partitions)?);
        let shared = Shared { state, changed: Condvar::new(), config: config.clone() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Appends a record, certain at once, and gives its offset.
    pub fn append(&self, topic: Topic, partition: i32, message: Message) -> Result<i64, LogError> {
        let mut state = self.state();
        let offset = state.append(topic, partition, message)?;
        self.compact_if_due(&mut state, topic, partition)?;
        drop(state);
        self.shared.changed.notify_all();
        Ok(offset)
    }

    /// Appends a record to the partition of its key: [`partition_of`]; without a key to
    /// partition 0. Gives partition and offset.
    pub fn append_by_key(&self, topic: Topic, message: Message) -> Result<(i32, i64), LogError> {
        let partition = match &message.key {
            Some(key) => partition_of(key, self.shared.config.partitions),
            None => 0,
        };
        Ok((partition, self.append(topic, partition, message)?))
    }

    /// Appends records to the partition of a key, so that no reader sees one of them and not the
    /// others. Gives the partition and the offsets.
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

    /// Takes one offset as a control record does: nobody ever reads it. Gives the offset.
    pub fn append_control(&self, topic: Topic, partition: i32) -> Result<i64, LogError> {
        self.state().append_control(topic, partition)
    }

    /// At most `max` records from `from_offset` on that this isolation lets see.
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

    /// The offset at which the oldest open transaction began, or the end.
    pub fn stable_end(&self, topic: Topic, partition: i32) -> i64 {
        self.state().stable_end((topic, partition))
    }

    /// What the group committed of the partition last, if anything.
    pub fn committed(&self, group: &str, partition: i32) -> Result<Option<Committed>, LogError> {
        self.state().committed(group, partition)
    }

    /// Keeps only the last committed record per key in the certain part of the topic, and no
    /// tombstones (Kafka keeps those for a while); records without a key stay. Gives the number
    /// of records removed. The offsets that stay do not change.
    pub fn compact(&self, topic: Topic) -> Result<usize, LogError> {
        let mut state = self.state();
        let mut removed = 0;
        for partition in 0..self.shared.config.partitions {
            removed += state.compact((topic, partition))?;
        }
        Ok(removed)
    }

    /// No record will come to the topic any more: a consumer that has read everything gets
    /// [`Event::End`](super::Event::End). Not kept by a directory.
    pub fn seal(&self, topic: Topic) {
        self.state().seal(topic);
        self.shared.changed.notify_all();
    }

    /// A new member of the group, reading the topic.
    pub fn consumer(&self, group: &str, topic: Topic) -> Result<EmbeddedConsumer, LogError> {
        EmbeddedConsumer::join(self.clone(), group, topic)
    }

    /// A producer that commits for the consumer. Fences every earlier producer of this
    /// transactional id and aborts what they left open.
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

    /// Writes keyed records to a compacted topic, by Kafka's own rule for partitions.
    pub fn writer(&self, topic: Topic) -> EmbeddedWriter {
        EmbeddedWriter::new(self.clone(), topic)
    }

    /// Partitions of every topic.
    pub fn partitions(&self) -> i32 {
        self.shared.config.partitions
    }

    /// Ends the member's membership as a session that ran out does: it loses its partitions at
    /// once, and learns of it at its next poll. Does nothing where it is not a member.
    pub fn expel(&self, group: &str, member: u64) {
        self.state().expel(group, member);
        self.shared.changed.notify_all();
    }

    /// Aborts what producers of this transactional id left open, as the passing of its timeout
    /// does. The producer itself, if it lives, finds its transaction aborted.
    pub fn abort_open(&self, transactional_id: &str) -> Result<(), LogError> {
        self.state().abort_open(transactional_id)?;
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Gives up what producers of this transactional id left open and marks it nowhere, as Kafka's
    /// broker may after a crash: readers wait at it, and on each partition the next end of a
    /// transaction of the same id is its own as well. Whoever takes the id begins by aborting it.
    /// Gives how many transactions there were.
    pub fn forget_open(&self, transactional_id: &str) -> Result<usize, LogError> {
        self.state().forget_open(transactional_id)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compact_if_due(
        &self,
        state: &mut State,
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

/// The partition of a key, where librdkafka and so kcat put it ([`Partitioner::Crc32`]); of an
/// empty one 0. Java clients use murmur2 and put it elsewhere.
pub fn partition_of(key: &[u8], partitions: i32) -> i32 {
    Partitioner::Crc32.partition(key, partitions).unwrap_or(0)
}
