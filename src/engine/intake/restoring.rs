//! Restoring: copies a changelog into the cache.

use turnstream_ports::cache::{CacheChange, CacheError, ScopeCache};
use turnstream_schemas::EntryKey;

use turnstream_log::{Assignment, LogError, Record};

/// Most records, and most bytes of their values, in one write to the cache. Larger batches write
/// the same pages less often and take more memory.
const RECORDS: usize = 4_096;
const BYTES: usize = 4 << 20;

/// Puts a changelog into the cache in batches.
pub(super) struct Restoring<'a> {
    cache: &'a dyn ScopeCache,
    assignment: Assignment,
    changes: Vec<CacheChange>,
    bytes: usize,
}

impl<'a> Restoring<'a> {
    /// Begins an empty copy for this generation of the assignment.
    pub(super) fn begin(
        cache: &'a dyn ScopeCache,
        assignment: Assignment,
    ) -> Result<Self, CacheError> {
        cache.begin(assignment.partition, assignment.generation)?;
        Ok(Self { cache, assignment, changes: Vec::new(), bytes: 0 })
    }

    /// Adds one record. Checks that the key is a history's; the value is parsed when its scope has
    /// a turn.
    pub(super) fn take(&mut self, record: Record) -> Result<(), LogError> {
        let Record { partition, offset, key, value, .. } = record;
        let key = serde_json::from_slice::<EntryKey>(key.as_deref().unwrap_or_default());
        let key = key.map_err(|error| {
            LogError::Refused(format!(
                "history topic, partition {partition}, offset {offset}: the key is not that of a \
                 history ({error}); the topic must hold nothing but this engine's histories"
            ))
        })?;
        self.bytes += value.as_ref().map_or(0, Vec::len);
        self.changes.push(CacheChange { key, value });
        if self.changes.len() >= RECORDS || self.bytes >= BYTES {
            self.finish()?;
        }
        Ok(())
    }

    /// Puts the records that are left.
    pub(super) fn finish(&mut self) -> Result<(), LogError> {
        let Assignment { partition, generation } = self.assignment;
        self.bytes = 0;
        let changes = std::mem::take(&mut self.changes);
        Ok(self.cache.put(partition, generation, changes)?)
    }
}

#[cfg(test)]
mod tests {
    use turnstream_ports::cache::MemoryCache;
    use turnstream_schemas::Scope;

    use super::*;

    fn record(offset: i64, key: &str, value: Option<&str>) -> Record {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let (key, value) = (Some(bytes(key)), value.map(bytes));
        Record { partition: 3, offset, key, value, ..Record::default() }
    }

    #[test]
    fn a_changelog_of_any_length_is_there_when_it_is_finished() {
        let cache = MemoryCache::default();
        let mut restoring =
            Restoring::begin(&cache, Assignment { partition: 3, generation: 2 }).unwrap();
        let count = 2 * RECORDS as i64 + 5;
        for offset in 0..count {
            let key = format!(r#"{{"scope":"default/c{}"}}"#, offset % 5_000);
            let value = offset.to_string();
            restoring.take(record(offset, &key, Some(&value))).unwrap();
        }
        restoring.take(record(count, r#"{"scope":"default/c7"}"#, None)).unwrap();
        restoring.finish().unwrap();
        assert_eq!(cache.len(3), 4_999);
        let of = |scope: &str| cache.load(3, 2, &Scope::new(None, scope)).unwrap().unwrap();
        assert_eq!(of("c9")[0].value, b"5009", "the last one");
        assert!(of("c7").is_empty());
    }

    #[test]
    fn a_record_that_is_not_ours_is_refused_with_its_place() {
        let cache = MemoryCache::default();
        let mut restoring =
            Restoring::begin(&cache, Assignment { partition: 3, generation: 1 }).unwrap();
        for key in ["", "k", "{}"] {
            let error = restoring.take(record(17, key, Some("{}"))).unwrap_err();
            assert!(error.is_fatal());
            let said = error.to_string();
            assert!(said.contains("history topic, partition 3, offset 17"), "{said}");
        }
    }
}
