//! Writing to a topic from outside the engine, such as changes to the knowledge.

use std::collections::BTreeMap;

use serde::Serialize;
use turnstream_ports::partitioner::Partitioner;

use super::{LogError, Output};

/// Writes records outside of transactions, each independently of the others. Records of a partition
/// keep the order in which they were written.
pub trait Writer: Send {
    /// How many partitions the topic has.
    fn partitions(&self) -> i32;

    /// Writes a record to a partition, or queues it; no value is a tombstone.
    ///
    /// # Errors
    ///
    /// This record or an earlier one cannot be written.
    fn write_to(
        &mut self,
        partition: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<(), LogError>;

    /// Writes a record to the partition of its key.
    ///
    /// # Errors
    ///
    /// As [`Self::write_to`].
    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), LogError> {
        let partition = Partitioner::Murmur2.partition(key, self.partitions()).unwrap_or(0);
        self.write_to(partition, Some(key), value)
    }

    /// Waits until every record is certain to be on the log, and returns their offsets.
    ///
    /// # Errors
    ///
    /// At least one record was not written. Others may have been.
    fn finish(&mut self) -> Result<Written, LogError>;
}

/// Writes records to several topics.
pub trait TogetherWriter: Send {
    /// Writes these records so that readers of committed records see all of them or none. Returns
    /// once that is certain.
    ///
    /// # Errors
    ///
    /// No record is visible. If the log does not tell the result, all are visible or none is.
    fn write_together(&mut self, outputs: &[Output]) -> Result<(), LogError>;
}

/// The offsets of written records, by partition.
pub type Written = BTreeMap<i32, Stretch>;

/// The records that one writer has written to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stretch {
    /// Number of records.
    pub records: u64,
    /// Offset of the first record.
    pub first_offset: i64,
    /// Offset of the last record. Records of other writers may lie between.
    pub last_offset: i64,
}

impl Stretch {
    /// Counts one more record.
    pub(super) fn note(written: &mut Written, partition: i32, offset: i64) {
        let begun = Self { records: 0, first_offset: offset, last_offset: offset };
        let stretch = written.entry(partition).or_insert(begun);
        stretch.records += 1;
        stretch.last_offset = offset;
    }
}
