//! Forgetting: every entry of the scope leaves at once.
//!
//! What the scope goes on by stays: how far its inputs were applied, its latest event time, how
//! many turns it had and evictions, the numbers that were given to clusters and chains, and the ids
//! of its last turns. Of what was said these tell nothing, and a turn that is sent again under an id
//! from before is a duplicate still: otherwise the words that were forgotten would come back.

use turnstream_schemas::{EntryId, EntryKey, Evicted, HistoryChange, Scope};

use super::{Database, Remembering};
use crate::history::eviction;

/// What an insertion did, or forgetting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// Changes to publish, in order.
    pub changes: Vec<HistoryChange>,
    /// Entries that left.
    pub evicted: Vec<Evicted>,
}

impl Database {
    /// Lets every entry go. Each is weighed as for eviction, by its recency and what it is worth:
    /// there is no query that it could be relevant to.
    pub fn forget(&mut self, scope: &Scope, rules: &Remembering<'_>) -> Update {
        let nothing = rules.similarity.of_query("");
        let leaving = eviction::forget(self.weighted(&nothing, rules.config));
        self.changed |= !leaving.is_empty();
        Update::of(scope, self.part_with(leaving))
    }
}

impl Update {
    /// The tombstones of entries that left.
    pub(super) fn of(scope: &Scope, evicted: Vec<(EntryId, Evicted)>) -> Self {
        let gone = |(id, evicted): &(EntryId, Evicted)| HistoryChange::Gone {
            key: EntryKey { scope: scope.clone(), entry: Some(*id) },
            evicted: Some(Box::new(evicted.clone())),
        };
        let changes = evicted.iter().map(gone).collect();
        Self { changes, evicted: evicted.into_iter().map(|(_, evicted)| evicted).collect() }
    }
}
