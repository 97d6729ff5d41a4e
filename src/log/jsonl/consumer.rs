//! The consumer of a JSON-lines log.

use std::sync::PoisonError;
use std::time::Duration;

use rustc_hash::FxHashSet;

use super::super::{Assignment, Consumer, Event, LogError, Record, Restored, TakeChangelog};
use super::{Changelog, Checkpoint, GENERATION, Mark, Marks, PARTITION, Records, ResumeError};

/// The most records of one poll.
const POLL_RECORDS: usize = 500;
/// With more conversations than this under way at once, the file is assumed not to mark where
/// conversations end. It then has no boundaries.
const CONVERSATIONS_UNDER_WAY: usize = 1 << 16;

/// Reads the records of a loader.
pub struct JsonlConsumer {
    records: Records,
    position: Option<i64>,
    changelog: Option<Changelog>,
    assigned: bool,
    flowing: bool,
    ended: bool,
    /// An error of the iterator, kept until the records before it have been delivered.
    failed: Option<LogError>,
    under_way: Option<FxHashSet<Option<Vec<u8>>>>,
    inputs: crc32fast::Hasher,
    marks: Marks,
}

impl JsonlConsumer {
    pub(super) fn new(records: Records, marks: Marks) -> Self {
        Self {
            records,
            position: None,
            changelog: None,
            assigned: false,
            flowing: false,
            ended: false,
            failed: None,
            under_way: Some(FxHashSet::default()),
            inputs: crc32fast::Hasher::new(),
            marks,
        }
    }

    /// Reads past the inputs whose outcomes an earlier replay has written.
    pub(super) fn pass(
        &mut self,
        checkpoint: &Checkpoint,
        changelog: Option<Changelog>,
    ) -> Result<(), ResumeError> {
        let offset = checkpoint.offset;
        let other = |why: String| ResumeError::OtherInputs { offset, why };
        for passed in 0..offset {
            let record = self.records.next();
            let record = record.ok_or_else(|| other(format!("the log has {passed}")))??;
            self.read(&record);
        }
        if self.inputs.clone().finalize() != checkpoint.inputs {
            return Err(other("some of them differ".to_owned()));
        }
        (self.position, self.changelog) = (Some(offset), changelog);
        Ok(())
    }

    fn batch(&mut self) -> Vec<Record> {
        let mut batch = Vec::new();
        while batch.len() < POLL_RECORDS && !self.ended && self.failed.is_none() {
            match self.records.next() {
                None => self.ended = true,
                Some(Err(error)) => self.failed = Some(error),
                Some(Ok(record)) => {
                    let mark = self.read(&record);
                    let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
                    marks.insert(record.offset + 1, mark);
                    drop(marks);
                    batch.push(record);
                }
            }
        }
        batch
    }

    /// Adds a record to the summary, and returns the mark of the offset after it.
    fn read(&mut self, record: &Record) -> Mark {
        let Record { key, value, last_of_scope, .. } = record;
        for part in [key, value] {
            let part = part.as_deref().unwrap_or_default();
            self.inputs.update(&part.len().to_le_bytes());
            self.inputs.update(part);
        }
        self.inputs.update(&[u8::from(*last_of_scope)]);
        if let Some(under_way) = &mut self.under_way {
            if *last_of_scope {
                under_way.remove(key);
            } else {
                under_way.insert(key.clone());
            }
            if under_way.len() > CONVERSATIONS_UNDER_WAY {
                self.under_way = None;
            }
        }
        let is_boundary = self.under_way.as_ref().is_some_and(FxHashSet::is_empty);
        Mark { inputs: self.inputs.clone().finalize(), is_boundary }
    }
}

impl Consumer for JsonlConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Event, LogError> {
        if !self.assigned {
            self.assigned = true;
            let assignment = Assignment { partition: PARTITION, generation: GENERATION };
            return Ok(Event::Assigned(vec![assignment]));
        }
        if !self.flowing {
            // Only the caller can resume the partition, so no event can come before that.
            std::thread::sleep(wait);
            return Ok(Event::Records(Vec::new()));
        }
        let batch = self.batch();
        match self.failed.take() {
            Some(error) if batch.is_empty() => Err(error),
            failed => {
                self.failed = failed;
                Ok(if batch.is_empty() { Event::End } else { Event::Records(batch) })
            }
        }
    }

    fn pause(&mut self, partition: i32) -> Result<(), LogError> {
        if partition == PARTITION {
            self.flowing = false;
        }
        Ok(())
    }

    fn resume(&mut self, partition: i32) -> Result<(), LogError> {
        if partition == PARTITION {
            self.flowing = true;
        }
        Ok(())
    }

    /// Gives the position of the checkpoint and the histories of conversations under way there. The
    /// reading position does not move back.
    fn restore(&mut self, partition: i32, take: TakeChangelog<'_>) -> Result<Restored, LogError> {
        if partition != PARTITION {
            return Err(LogError::Stale { partitions: vec![partition] });
        }
        let mut restored = Restored { position: self.position, ..Restored::default() };
        if let Some(changelog) = &self.changelog {
            changelog.read(&mut |record| {
                let length = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len) as u64;
                restored.records += 1;
                restored.bytes += length(&record.key) + length(&record.value);
                take(record)
            })?;
        }
        Ok(restored)
    }

    fn release(&mut self) -> Result<(), LogError> {
        Ok(())
    }
}
