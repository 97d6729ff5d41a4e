//! Compaction by key: below the stable end of a partition, only the last record of each key stays,
//! and no tombstone.

use std::collections::BTreeMap;

use super::super::LogError;
use super::codec::{self, Stored, TopicPartition};
use super::state::{Batch, LogState};

impl LogState {
    /// Whether at least `after` records, and at least as many as the last compaction left, were
    /// written since that compaction.
    pub(super) fn compaction_due(&self, place: TopicPartition, after: u64) -> bool {
        let (written, left) = self.since_compaction.get(&place).copied().unwrap_or_default();
        written >= after && written >= left
    }

    /// Removes superseded records, tombstones and aborted records. Returns their number.
    pub(super) fn compact(&mut self, place: TopicPartition) -> Result<usize, LogError> {
        let mut last: BTreeMap<Vec<u8>, (i64, bool)> = BTreeMap::new();
        let mut remove = Vec::new();
        let mut left = 0;
        self.scan_records(place, self.stable_end(place), &mut |offset, certain, value| {
            if !certain {
                remove.push(offset);
                return Ok(());
            }
            let message = Stored::decode(value)?.message;
            let Some(key) = message.key else {
                left += 1;
                return Ok(());
            };
            if let Some((earlier, _)) = last.insert(key, (offset, message.value.is_none())) {
                remove.push(earlier);
            }
            Ok(())
        })?;
        for (offset, tombstone) in last.into_values() {
            if tombstone {
                remove.push(offset);
            } else {
                left += 1;
            }
        }
        let batch: Batch =
            remove.iter().map(|offset| (codec::record_key(place, *offset), None)).collect();
        self.write(batch)?;
        self.since_compaction.insert(place, (0, left));
        Ok(remove.len())
    }
}
