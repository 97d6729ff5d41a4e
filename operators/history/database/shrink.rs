//! Keeps the top N entries after each update (DH-RAG eq 13 and 14).

use rustc_hash::FxHashSet;
use turnstream_schemas::{EntryId, Evicted, EvictionReason, HistoryEntry, Score};

use super::{Database, Held, InCache};
use crate::history::HistoryConfig;
use crate::history::eviction::{Weighted, evict};
use crate::history::likeness::Signature;

impl Database {
    /// Evicts the entries that are too old or beyond the top N (eq 13 and 14).
    pub(super) fn shrink(
        &mut self,
        newest: EntryId,
        query: &Signature,
        config: &HistoryConfig,
    ) -> Vec<(EntryId, Evicted)> {
        let old = self.too_old(config);
        if self.entries.len() <= config.max_entries && old.is_empty() {
            return Vec::new();
        }
        let first = self.stays(newest, config);
        let leaving = evict(self.weighted(query, config), config.max_entries, &first, |id| {
            old.contains(&id.offset)
        });
        self.part_with(leaving)
    }

    /// Returns the entries that stay whatever their weight: the newest, and with it those of the
    /// dialogue's window, the latest first, but no more than half of the top N. Without them the dialogue
    /// would have gaps once a history is full: "and the red one?" weighs nothing.
    fn stays(&self, newest: EntryId, config: &HistoryConfig) -> Vec<EntryId> {
        let mut utterances = 0;
        let latest = self.entries.values().rev().take_while(|held| {
            let fits = utterances < config.window_utterances;
            let HistoryEntry { query, response, .. } = &*held.entry;
            utterances += usize::from(query.is_some()) + usize::from(response.is_some());
            fits
        });
        let others = latest.map(Held::id).filter(|id| *id != newest);
        std::iter::once(newest).chain(others).take((config.max_entries / 2).max(1)).collect()
    }

    /// Removes these entries, each given with its rank and the reason.
    pub(super) fn part_with(
        &mut self,
        leaving: Vec<(Weighted, u32, EvictionReason)>,
    ) -> Vec<(EntryId, Evicted)> {
        let mut evicted = Vec::new();
        for (Weighted { id, relevance, recency, importance, weight }, rank, reason) in leaving {
            self.leave(id.offset);
            let Some(held) = self.entries.remove(&id.offset) else { continue };
            self.statistics.remove(&held.text.terms);
            self.record.evictions += 1;
            self.record.evictions_by_reason.count(reason);
            if held.cached != InCache::No {
                self.gone.push(id);
            }
            let gone = Evicted {
                turn_id: held.entry.turn_id.clone(),
                relevance: Score::new(relevance),
                recency: Score::new(recency),
                importance: importance.map(Score::new),
                weight: Score::new(weight),
                rank,
                reason,
            };
            evicted.push((id, gone));
        }
        evicted
    }

    /// Returns the offsets of the entries older than `max_age_seconds`.
    fn too_old(&self, config: &HistoryConfig) -> FxHashSet<i64> {
        if config.max_age_seconds == 0 {
            return FxHashSet::default();
        }
        let limit_ms = i64::try_from(config.max_age_seconds.saturating_mul(1_000));
        let oldest = self.now().millis().saturating_sub(limit_ms.unwrap_or(i64::MAX));
        let old = self.entries.iter().filter(|(_, held)| held.entry.event_time.millis() < oldest);
        old.map(|(at, _)| *at).collect()
    }
}
