//! Additions to entries after their insertion: vectors of an encoder that does not answer at once,
//! and summaries that a language model writes.

use std::sync::Arc;

use turnstream_schemas::{GroupSummary, HistoryChange, Scope};

use super::{Database, InCache, Remembering, changed};
use crate::history::hierarchy::central;
use crate::history::likeness::Vector;
use crate::history::preparation::Grouped;
use crate::history::similarity::{Similarity, text_of};

impl Database {
    /// Returns the offsets and texts of entries that have no vector of the current encoder, the
    /// latest first, `most` at most.
    pub fn without_vectors(&self, similarity: &Similarity, most: usize) -> Vec<(i64, String)> {
        let lacking = self.entries.iter().rev();
        let lacking = lacking.filter(|(_, held)| !similarity.has_vector(&held.entry));
        lacking.filter_map(|(at, held)| Some((*at, text_of(&held.entry)?))).take(most).collect()
    }

    /// Returns the group that a language model should summarise next, of those with at least
    /// `least` entries. The model is shown at most `most` of them: the most central one and the
    /// latest.
    pub fn to_be_summarised(&self, least: usize, most: usize) -> Option<Grouped> {
        let number = self.clusters.to_be_summarised(least)?;
        let group = self.clusters.group(number)?;
        let first = central(group, |at| self.text_of(at));
        let latest = group.members().filter(|at| Some(*at) != first).collect::<Vec<_>>();
        let latest = latest.into_iter().rev().take(most.saturating_sub(1));
        let shown = first.into_iter().chain(latest).filter_map(|at| self.entries.get(&at));
        let shown = shown.map(|held| [held.entry.query.clone(), held.entry.response.clone()]);
        let entries = u32::try_from(group.members().count()).unwrap_or(u32::MAX);
        Some(Grouped { group: number, entries, shown: shown.collect() })
    }

    /// Sets the summary that a language model wrote of a group. Does nothing where the group is gone.
    pub fn set_summary(&mut self, group: u32, summary: GroupSummary) {
        self.clusters.summarise(group, summary);
        self.changed = true;
    }

    /// Sets the vector of an entry and moves the entry to the group and the chain that it is now
    /// most like. Returns `None` if the entry is gone.
    pub fn set_vector(
        &mut self,
        scope: &Scope,
        at: i64,
        vector: &Vector,
        rules: &Remembering<'_>,
    ) -> Option<HistoryChange> {
        self.leave(at);
        let held = self.entries.get_mut(&at)?;
        let mut entry = (*held.entry).clone();
        entry.vector = rules.similarity.kept(vector);
        held.text = rules.similarity.of_entry(&entry);
        held.entry = Arc::new(entry);
        if held.cached == InCache::Same {
            held.cached = InCache::Older;
        }
        let change = changed(scope, &held.entry);
        self.join(at, rules.config);
        self.changed = true;
        Some(change)
    }
}
