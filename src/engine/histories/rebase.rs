//! Rebases a history for another log, where the offsets of its inputs belong to other turns.
//!
//! The engine knows an entry by partition and offset of its input, orders entries by offset, and
//! refuses an input that is not behind the last one applied. Entries therefore get negative offsets
//! in their order: the latest −1, the one before it −2. Every future turn comes after them, and no
//! turn has the coordinates of an entry.

use std::collections::BTreeMap;

use turnstream_schemas::{
    CategoryRecord, ChainRecord, EntryId, EntryKey, GroupRecord, HistoryChange, HistoryEntry,
    SCHEMA_VERSION, Scope, ScopeRecord, TurnId,
};

use super::Kept;

/// The entries of a history cannot be ordered: they come from more than one partition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the history of `{scope}` mixes inputs of partitions {one} and {other}")]
pub struct NoOrder {
    /// The scope of the history.
    pub scope: Scope,
    /// A partition of its entries.
    pub one: i32,
    /// Another partition of its entries.
    pub other: i32,
}

/// The changes that build a history on a partition of a log: its entries, oldest first, then the
/// scope's own record, which names `applied` as the last applied input.
///
/// # Errors
/// The entries cannot be ordered.
pub fn rebased(
    scope: &Scope,
    kept: &Kept,
    (partition, applied): (i32, i64),
) -> Result<Vec<HistoryChange>, NoOrder> {
    let mut ids = kept.entries.keys();
    if let (Some(first), Some(last)) = (ids.next(), ids.next_back())
        && first.partition != last.partition
    {
        let (one, other) = (first.partition, last.partition);
        return Err(NoOrder { scope: scope.clone(), one, other });
    }
    let many = kept.entries.len() as i64;
    let to: BTreeMap<EntryId, i64> = kept.entries.keys().copied().zip(-many..0).collect();
    let key = |entry| EntryKey { scope: scope.clone(), entry };
    let entries = kept.entries.iter().zip(-many..0).map(|((id, entry), offset)| {
        let now = EntryId { partition, offset };
        HistoryChange::Entry { key: key(Some(now)), entry: Box::new(moved(entry, *id, now)) }
    });
    let record = Box::new(record(kept, &to, applied));
    Ok(entries.chain([HistoryChange::Scope { key: key(None), record }]).collect())
}

fn moved(entry: &HistoryEntry, from: EntryId, to: EntryId) -> HistoryEntry {
    let mut entry = entry.clone();
    // A turn without an id is named by its coordinates.
    if entry.turn_id.as_str() == from.to_string() {
        entry.turn_id = TurnId(to.to_string());
    }
    (entry.input.partition, entry.input.offset) = (to.partition, to.offset);
    entry
}

fn record(kept: &Kept, to: &BTreeMap<EntryId, i64>, applied: i64) -> ScopeRecord {
    let by_offset: BTreeMap<i64, i64> = to.iter().map(|(id, to)| (id.offset, *to)).collect();
    // Clusters keep no place for entries that are gone.
    let entries = |of: &[i64]| of.iter().filter_map(|at| by_offset.get(at).copied()).collect();
    let group = |group: &GroupRecord| {
        let entries: Vec<i64> = entries(&group.entries);
        (!entries.is_empty()).then_some(GroupRecord {
            id: group.id,
            entries,
            summary: group.summary.clone(),
        })
    };
    let category = |category: &CategoryRecord| {
        let groups: Vec<GroupRecord> = category.groups.iter().filter_map(group).collect();
        (!groups.is_empty()).then_some(CategoryRecord { id: category.id, groups })
    };
    let chain = |chain: &ChainRecord| {
        let entries: Vec<i64> = entries(&chain.entries);
        (!entries.is_empty()).then_some(ChainRecord { id: chain.id, entries })
    };
    let record = &kept.record;
    let seen = kept.entries.values().map(|entry| entry.event_time);
    ScopeRecord {
        schema_version: SCHEMA_VERSION,
        last_applied_offset: applied,
        latest_event_time: seen.fold(record.latest_event_time, Ord::max),
        categories: record.categories.iter().filter_map(category).collect(),
        chains: record.chains.iter().filter_map(chain).collect(),
        ..record.clone()
    }
}
