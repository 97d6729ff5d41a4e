//! Recall finds the entries of the history from which a turn is answered (DH-RAG eq 5: what
//! hierarchical matching finds, and what the chains of thought hold).
//!
//! It is causal: it sees only entries of earlier inputs, since the turn's own entry does not exist
//! yet.

use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_schemas::RecalledVia;

use super::chains::Chains;
use super::clusters::Clusters;
use super::hierarchy::{Beam, descend};
use super::likeness::Signature;
use super::relevance::Relevance;

/// How entries from before the window are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecallMethod {
    /// Every entry is compared with the query.
    Flat,
    /// Category, summary, entry: only entries of the best categories and groups are compared.
    Hierarchy,
    /// All entries of the best chains of thought.
    Chains,
    /// The entries that hierarchy and chains find.
    #[default]
    All,
    /// No entry is found: only the window, the latest entries, is recalled.
    Recency,
}

/// `[history.recall]`: how the history is searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RecallConfig {
    /// How entries from before the window are found.
    pub method: RecallMethod,
    /// Entries recalled at most from before the window.
    pub max_entries: usize,
    /// Relevance below which an entry from before the window is not recalled, 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_relevance: f64,
    /// Categories that hierarchical matching descends into at most, from 1.
    #[schemars(range(min = 1))]
    pub max_categories: u32,
    /// Groups that it descends into at most, of all those categories, from 1.
    #[schemars(range(min = 1))]
    pub max_groups: u32,
    /// Chains of thought that are followed at most, from 1.
    #[schemars(range(min = 1))]
    pub max_chains: u32,
    /// The weight in an entry's score of each neighbour's relevance, 0..=1, beside its own, which has
    /// weight 1. The neighbours are the entries before and after it in its chain.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub neighbour_weight: f64,
    /// The share of vectors in an entry's relevance, where an encoder is configured, 0..=1; words have
    /// the rest.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub meaning_share: f64,
}

impl Default for RecallConfig {
    fn default() -> Self {
        Self {
            method: RecallMethod::default(),
            max_entries: 4,
            min_relevance: 0.1,
            max_categories: 3,
            max_groups: 8,
            max_chains: 4,
            neighbour_weight: 0.2,
            meaning_share: 0.2,
        }
    }
}

/// An entry that was found, by its offset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FoundEntry {
    /// Its offset.
    pub entry: i64,
    /// Relevance(q_i, q_t), 0..=1.
    pub relevance: f64,
    /// The score that ranks it, 0..=1: its relevance, or the weighted mean of that and its neighbours' in
    /// its chain.
    pub score: f64,
    /// How it was found.
    pub via: RecalledVia,
}

/// The entries that recall searches.
pub struct SearchedEntries<'e, T: Fn(i64) -> Option<&'e Signature>> {
    /// The clusters of the entries.
    pub clusters: &'e Clusters,
    /// Their chains.
    pub chains: &'e Chains,
    /// The offsets of the entries, oldest first.
    pub entries: &'e [i64],
    /// Gives the signature of an entry.
    pub text_of: T,
    /// Gives the relevance of an entry to the query.
    pub relevance: Relevance<'e>,
}

/// Returns the entries that a method finds for a query, by falling score; of equals the later
/// first.
pub fn find<'e, T: Fn(i64) -> Option<&'e Signature>>(
    searched: &SearchedEntries<'e, T>,
    config: &RecallConfig,
) -> Vec<FoundEntry> {
    let mut found = match config.method {
        RecallMethod::Flat => searched.each(searched.entries, RecalledVia::Relevance),
        RecallMethod::Hierarchy => searched.below(config),
        RecallMethod::Chains => searched.along(config),
        RecallMethod::All => searched.both(config),
        RecallMethod::Recency => Vec::new(),
    };
    found.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(b.entry.cmp(&a.entry)));
    found
}

impl<'e, T: Fn(i64) -> Option<&'e Signature>> SearchedEntries<'e, T> {
    fn each(&self, entries: &[i64], via: RecalledVia) -> Vec<FoundEntry> {
        let found = entries.iter().map(|entry| {
            let text = (self.text_of)(*entry);
            let relevance = text.map_or(0.0, |text| self.relevance.of(text));
            FoundEntry { entry: *entry, relevance, score: relevance, via }
        });
        found.collect()
    }

    /// Finds entries by hierarchical matching (eq 18–21).
    fn below(&self, config: &RecallConfig) -> Vec<FoundEntry> {
        let beam =
            Beam { categories: config.max_categories as usize, groups: config.max_groups as usize };
        let entries = descend(self.clusters, self.relevance.query(), beam, &self.text_of);
        self.each(&entries, RecalledVia::Cluster)
    }

    /// Returns the entries of the best chains. A chain is as good as its best entry (eq 23).
    fn along(&self, config: &RecallConfig) -> Vec<FoundEntry> {
        let mut chains: Vec<(f64, u32, Vec<FoundEntry>)> = Vec::new();
        for (number, entries) in self.chains.all() {
            let own = self.each(entries, RecalledVia::Chain);
            let best = own.iter().map(|found| found.relevance).fold(0.0, f64::max);
            if best > 0.0 {
                chains.push((best, number, own));
            }
        }
        chains.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        chains.truncate(config.max_chains as usize);
        let found = chains.into_iter().flat_map(|(_, _, chain)| chain);
        found.map(|found| self.among_neighbours(found, config)).collect()
    }

    /// Returns the entries that hierarchy and chains find, each once and scored with its
    /// neighbours.
    fn both(&self, config: &RecallConfig) -> Vec<FoundEntry> {
        let mut found = self.below(config);
        found.iter_mut().for_each(|found| *found = self.among_neighbours(*found, config));
        let below: FxHashSet<i64> = found.iter().map(|found| found.entry).collect();
        let along = self.along(config).into_iter();
        found.extend(along.filter(|found| !below.contains(&found.entry)));
        found
    }

    /// Scores an entry by its own relevance and that of its neighbours in its chain: they are about the
    /// same matter, perhaps in other words (eq 24).
    fn among_neighbours(&self, found: FoundEntry, config: &RecallConfig) -> FoundEntry {
        let (_, chain) = self.chains.of(found.entry).unwrap_or_default();
        let at = chain.iter().position(|entry| *entry == found.entry).unwrap_or_default();
        let relevance = |entry: &i64| {
            let text = (self.text_of)(*entry);
            text.map_or(0.0, |text| self.relevance.of(text))
        };
        let before = at.checked_sub(1).and_then(|at| chain.get(at)).map_or(0.0, relevance);
        let neighbours = before + chain.get(at + 1).map_or(0.0, relevance);
        let weight = config.neighbour_weight;
        let score = (found.relevance + weight * neighbours) / (1.0 + 2.0 * weight);
        FoundEntry { score, ..found }
    }
}

#[cfg(test)]
mod tests;
