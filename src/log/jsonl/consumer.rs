//! Inputs from an iterator, as a log.

use std::sync::PoisonError;
use std::time::Duration;

use rustc_hash::FxHashSet;

use super::super::{Assignment, Consumer, Event, LogError, Record, Restored, TakeChangelog};
use super::{Boundaries, GENERATION, PARTITION, Records};

/// Records that one poll brings at most.
const POLL_RECORDS: usize = 500;
/// With more conversations than this under way at once, the file is taken to be one that does
/// not say where they end: then it has no boundaries.
const CONVERSATIONS_UNDER_WAY: usize = 1 << 16;

/// Reads what a loader gives.
pub struct JsonlConsumer {
    records: Records,
    position: Option<i64>,
    assigned: bool,
    flowing: bool,
    ended: bool,
    /// An error of the iterator, kept until the records before it were given.
    failed: Option<LogError>,
    under_way: Option<FxHashSet<Option<Vec<u8>>>>,
    boundaries: Boundaries,
}

impl JsonlConsumer {
    pub(super) fn new(records: Records, position: Option<i64>, boundaries: Boundaries) -> Self {
        Self {
            records,
            position,
            assigned: false,
            flowing: false,
            ended: false,
            failed: None,
            under_way: Some(FxHashSet::default()),
            boundaries,
        }
    }

    fn batch(&mut self) -> Vec<Record> {
        let mut batch = Vec::new();
        while batch.len() < POLL_RECORDS && !self.ended && self.failed.is_none() {
            match self.records.next() {
                None => self.ended = true,
                Some(Err(error)) => self.failed = Some(error),
                Some(Ok(record)) if self.position.is_some_and(|from| record.offset < from) => {}
                Some(Ok(record)) => {
                    self.note_boundary(&record);
                    batch.push(record);
                }
            }
        }
        batch
    }

    fn note_boundary(&mut self, record: &Record) {
        let Some(under_way) = &mut self.under_way else { return };
        if !record.last_of_scope {
            under_way.insert(record.key.clone());
        } else {
            under_way.remove(&record.key);
        }
        if under_way.is_empty() {
            let mut boundaries = self.boundaries.lock().unwrap_or_else(PoisonError::into_inner);
            boundaries.insert(record.offset + 1);
        } else if under_way.len() > CONVERSATIONS_UNDER_WAY {
            self.under_way = None;
        }
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
            // Only the caller can resume it, so nothing can happen before.
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

    /// Gives where the replay goes on. There is no changelog: no conversation is under way
    /// there. Reading does not go back.
    fn restore(&mut self, partition: i32, _: TakeChangelog<'_>) -> Result<Restored, LogError> {
        if partition != PARTITION {
            return Err(LogError::Stale { partitions: vec![partition] });
        }
        Ok(Restored { position: self.position, ..Restored::default() })
    }

    fn release(&mut self) -> Result<(), LogError> {
        Ok(())
    }
}
