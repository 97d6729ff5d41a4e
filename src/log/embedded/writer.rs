//! A writer to a compacted topic of the embedded log.

use turnstream_operators::partitioner::Partitioner;

use super::super::write::{Stretch, Writer, Written};
use super::super::{LogError, Topic};
use super::{EmbeddedLog, Message};

/// Writes keyed records; each is on disk when the call returns, where the log is in a directory.
pub struct EmbeddedWriter {
    log: EmbeddedLog,
    topic: Topic,
    written: Written,
}

impl EmbeddedWriter {
    pub(super) fn new(log: EmbeddedLog, topic: Topic) -> Self {
        Self { log, topic, written: Written::new() }
    }
}

impl Writer for EmbeddedWriter {
    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), LogError> {
        let partition = Partitioner::Murmur2.partition(key, self.log.partitions()).unwrap_or(0);
        let (key, value) = (Some(key.to_vec()), value.map(<[u8]>::to_vec));
        let message = Message { key, value, ..Message::default() };
        let offset = self.log.append(self.topic, partition, message)?;
        Stretch::note(&mut self.written, partition, offset);
        Ok(())
    }

    fn finish(&mut self) -> Result<Written, LogError> {
        Ok(std::mem::take(&mut self.written))
    }
}
