//! Removes every entry of the scope at once, on a demand to forget.
//!
//! The scope keeps what it needs to go on: how far its inputs were applied, its latest event time, its
//! counts of turns and evictions, the next numbers of clusters and chains, and the ids of its last turns.
//! None of these contains the words of the conversation. Because the ids stay, a turn that is sent again
//! is still a duplicate; otherwise forgotten words would come back.

use turnstream_schemas::{EntryId, EntryKey, Evicted, HistoryChange, Scope};

use super::{Database, Remembering};
use crate::history::eviction;

/// The result of an insertion, or of forgetting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// Changes to publish, in order.
    pub changes: Vec<HistoryChange>,
    /// Entries that left.
    pub evicted: Vec<Evicted>,
}

impl Database {
    /// Removes every entry. Each is weighed as for eviction, but by recency and importance only: there is no
    /// query that it could be relevant to.
    pub fn forget(&mut self, scope: &Scope, rules: &Remembering<'_>) -> Update {
        let nothing = rules.similarity.of_query("");
        let leaving = eviction::forget(self.weighted(&nothing, rules.config));
        self.changed |= !leaving.is_empty();
        Update::of(scope, self.part_with(leaving))
    }
}

impl Update {
    /// Makes the update for entries that left: a tombstone for each.
    pub(super) fn of(scope: &Scope, evicted: Vec<(EntryId, Evicted)>) -> Self {
        let gone = |(id, evicted): &(EntryId, Evicted)| HistoryChange::Gone {
            key: EntryKey { scope: scope.clone(), entry: Some(*id) },
            evicted: Some(Box::new(evicted.clone())),
        };
        let changes = evicted.iter().map(gone).collect();
        Self { changes, evicted: evicted.into_iter().map(|(_, evicted)| evicted).collect() }
    }
}
