//! Reads histories from the compacted topic, or from the changes that a replay wrote, and shows
//! them. The engine builds its memory from the same records, so a history is shown as the next turn
//! finds it.

use std::collections::BTreeMap;

use turnstream_operators::history::similarity::Similarity;
use turnstream_operators::history::{Database, HistoryConfig};
use turnstream_ports::cache::Cached;
use turnstream_schemas::{
    EntryId, EntryKey, Evicted, HistoryChange, HistoryEntry, Scope, ScopeRecord,
};

use turnstream_log::{Record, evictions};

pub mod import;
pub mod rebase;
mod shown;
mod statistics;

pub use shown::{Shown, tree};
pub use statistics::{Distribution, Statistics};

/// One scope's history, as read from its records.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The entries that the history holds.
    pub entries: BTreeMap<EntryId, HistoryEntry>,
    /// The scope's own record.
    pub record: ScopeRecord,
    /// The evicted entries, in order, as far as the log still has their records: compaction removes
    /// them in time.
    pub left: Vec<Left>,
}

/// An evicted entry.
#[derive(Clone, Debug)]
pub struct Left {
    /// Its id.
    pub id: EntryId,
    /// The entry, if it was read before its eviction.
    pub entry: Option<HistoryEntry>,
    /// The reason and the weights.
    pub evicted: Evicted,
}

/// The histories of many scopes, built change by change.
#[derive(Clone, Debug, Default)]
pub struct Histories(BTreeMap<Scope, Kept>);

impl Histories {
    /// Applies a change.
    pub fn take(&mut self, change: HistoryChange) {
        let kept = self.0.entry(change.key().scope.clone()).or_default();
        match change {
            HistoryChange::Scope { record, .. } => kept.record = *record,
            HistoryChange::Entry { key, entry } => {
                let id = key.entry.unwrap_or_else(|| entry.input.entry_id());
                kept.entries.insert(id, *entry);
            }
            HistoryChange::Gone { key, evicted } => {
                let Some(id) = key.entry else { return };
                let entry = kept.entries.remove(&id);
                let left = evicted.map(|evicted| Left { id, entry, evicted: *evicted });
                kept.left.extend(left);
            }
        }
    }

    /// The scopes, each with its history.
    pub fn iter(&self) -> impl Iterator<Item = (&Scope, &Kept)> {
        self.0.iter()
    }

    /// The history of a scope.
    pub fn of(&self, scope: &Scope) -> Option<&Kept> {
        self.0.get(scope)
    }

    /// The changes that rebuild these histories, scope by scope: first the scope's own record, then
    /// its entries in order.
    pub fn changes(&self) -> impl Iterator<Item = HistoryChange> {
        self.0.iter().flat_map(|(scope, kept)| {
            let key = |entry| EntryKey { scope: scope.clone(), entry };
            let record = Box::new(kept.record.clone());
            let own = HistoryChange::Scope { key: key(None), record };
            let entries = kept.entries.iter().map(move |(id, entry)| HistoryChange::Entry {
                key: key(Some(*id)),
                entry: Box::new(entry.clone()),
            });
            std::iter::once(own).chain(entries)
        })
    }
}

impl Kept {
    /// The history as the engine holds it in memory.
    ///
    /// # Errors
    /// A record is not one of the engine's.
    pub fn database(
        &self,
        config: &HistoryConfig,
        similarity: &Similarity,
    ) -> Result<Database, serde_json::Error> {
        let mut database = Database::default();
        let own = Cached { entry: None, value: serde_json::to_vec(&self.record)? };
        database.restore(&own, similarity)?;
        for (id, entry) in &self.entries {
            let record = Cached { entry: Some(*id), value: serde_json::to_vec(entry)? };
            database.restore(&record, similarity)?;
        }
        database.restored(config);
        Ok(database)
    }
}

/// Parses a record of the history topic.
///
/// # Errors
/// The record is not a change of a history.
pub fn change(record: &Record) -> Result<HistoryChange, serde_json::Error> {
    let key: EntryKey = serde_json::from_slice(record.key.as_deref().unwrap_or_default())?;
    Ok(match (&record.value, key.entry) {
        (Some(value), Some(_)) => {
            HistoryChange::Entry { key, entry: Box::new(serde_json::from_slice(value)?) }
        }
        (Some(value), None) => {
            HistoryChange::Scope { key, record: Box::new(serde_json::from_slice(value)?) }
        }
        (None, _) => {
            let evicted = evictions::decode(&record.headers).map(Box::new);
            HistoryChange::Gone { key, evicted }
        }
    })
}

#[cfg(test)]
mod tests;
