//! A writer to a topic of the embedded log.

use super::super::write::{Stretch, TogetherWriter, Writer, Written};
use super::super::{LogError, Output, Topic};
use super::{EmbeddedLog, Message};

/// Writes records. In a directory, each record is on disk when the call returns.
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
    fn partitions(&self) -> i32 {
        self.log.partitions()
    }

    fn write_to(
        &mut self,
        partition: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<(), LogError> {
        let (key, value) = (key.map(<[u8]>::to_vec), value.map(<[u8]>::to_vec));
        let message = Message { key, value, ..Message::default() };
        let offset = self.log.append(self.topic, partition, message)?;
        Stretch::note(&mut self.written, partition, offset);
        Ok(())
    }

    fn finish(&mut self) -> Result<Written, LogError> {
        Ok(std::mem::take(&mut self.written))
    }
}

impl TogetherWriter for EmbeddedLog {
    fn write_together(&mut self, outputs: &[Output]) -> Result<(), LogError> {
        self.append_all(outputs)
    }
}
