//! Writing to a topic from outside of the engine: changes to the knowledge, say.

use std::collections::BTreeMap;

use serde::Serialize;
use turnstream_ports::partitioner::Partitioner;

use super::LogError;

/// Writes records, each certain on its own. Those of a partition lie there in the order in which
/// they were written.
pub trait Writer {
    /// How many partitions the topic has.
    fn partitions(&self) -> i32;

    /// Writes a record to a partition, or takes it on to be written; no value is a tombstone.
    ///
    /// # Errors
    ///
    /// This one or an earlier one cannot be written.
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

    /// Returns once every record is certain, and says where they lie.
    ///
    /// # Errors
    ///
    /// Some record is not there. Others may be.
    fn finish(&mut self) -> Result<Written, LogError>;
}

/// Where records were written, by partition.
pub type Written = BTreeMap<i32, Stretch>;

/// Records of one writer in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stretch {
    /// How many.
    pub records: u64,
    /// The offset of the first.
    pub first_offset: i64,
    /// The offset of the last; those of others may lie between.
    pub last_offset: i64,
}

impl Stretch {
    /// Notes one more record.
    pub(super) fn note(written: &mut Written, partition: i32, offset: i64) {
        let begun = Self { records: 0, first_offset: offset, last_offset: offset };
        let stretch = written.entry(partition).or_insert(begun);
        stretch.records += 1;
        stretch.last_offset = offset;
    }
}
