//! Statistics of histories: the numbers of entries, clusters and chains, and the sizes of their
//! records (as in DH-RAG's figures 4 and 5).

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Histories, Kept};

/// Statistics of histories.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Statistics {
    /// Number of histories.
    pub scopes: u64,
    /// Entries per history.
    pub entries: Distribution,
    /// Categories per history.
    pub categories: Distribution,
    /// Groups per history. Each group has one summary.
    pub groups: Distribution,
    /// Entries per category.
    pub entries_of_category: Distribution,
    /// Entries per group.
    pub entries_of_group: Distribution,
    /// Entries per chain of thought.
    pub entries_of_chain: Distribution,
    /// Mean bytes of an entry's record as JSON.
    pub bytes_of_entry: f64,
    /// Mean bytes of a scope's own record as JSON.
    pub bytes_of_scope: f64,
}

/// The distribution of a number.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// The mean, or 0 without numbers.
    pub mean: f64,
    /// The largest number.
    pub max: usize,
    /// How often each number occurs.
    pub counts: BTreeMap<usize, u64>,
}

impl Distribution {
    fn of(numbers: impl IntoIterator<Item = usize>) -> Self {
        let mut counts = BTreeMap::<usize, u64>::new();
        numbers.into_iter().for_each(|number| *counts.entry(number).or_default() += 1);
        let (mut sum, mut many) = (0, 0);
        for (number, times) in &counts {
            sum += *number as u64 * times;
            many += times;
        }
        let max = counts.last_key_value().map_or(0, |(most, _)| *most);
        Self { mean: mean(sum, many), max, counts }
    }
}

fn mean(sum: u64, many: u64) -> f64 {
    if many == 0 { 0.0 } else { sum as f64 / many as f64 }
}

impl Statistics {
    /// Computes the statistics of histories.
    ///
    /// # Errors
    /// A record cannot be written as JSON: a bug.
    pub fn of(histories: &Histories) -> Result<Self, serde_json::Error> {
        let kept: Vec<&Kept> = histories.iter().map(|(_, kept)| kept).collect();
        let categories = || kept.iter().flat_map(|kept| &kept.record.categories);
        let groups = || categories().flat_map(|category| &category.groups);
        let chains = kept.iter().flat_map(|kept| &kept.record.chains);
        let (mut of_entries, mut of_scopes) = (0, 0);
        for kept in &kept {
            of_scopes += serde_json::to_vec(&kept.record)?.len() as u64;
            for entry in kept.entries.values() {
                of_entries += serde_json::to_vec(entry)?.len() as u64;
            }
        }
        let entries: u64 = kept.iter().map(|kept| kept.entries.len() as u64).sum();
        Ok(Self {
            scopes: kept.len() as u64,
            entries: Distribution::of(kept.iter().map(|kept| kept.entries.len())),
            categories: Distribution::of(kept.iter().map(|kept| kept.record.categories.len())),
            groups: Distribution::of(kept.iter().map(|kept| {
                kept.record.categories.iter().map(|category| category.groups.len()).sum()
            })),
            entries_of_category: Distribution::of(
                categories()
                    .map(|category| category.groups.iter().map(|group| group.entries.len()).sum()),
            ),
            entries_of_group: Distribution::of(groups().map(|group| group.entries.len())),
            entries_of_chain: Distribution::of(chains.map(|chain| chain.entries.len())),
            bytes_of_entry: mean(of_entries, entries),
            bytes_of_scope: mean(of_scopes, kept.len() as u64),
        })
    }

    /// The distributions with their names.
    pub fn distributions(&self) -> [(&'static str, &Distribution); 6] {
        [
            ("entries of a history", &self.entries),
            ("categories of a history", &self.categories),
            ("groups of a history", &self.groups),
            ("entries of a category", &self.entries_of_category),
            ("entries of a group", &self.entries_of_group),
            ("entries of a chain", &self.entries_of_chain),
        ]
    }
}

#[cfg(test)]
mod tests {
    use turnstream_schemas::{
        CategoryRecord, ChainRecord, EntryKey, GroupRecord, HistoryChange, Scope, ScopeRecord,
    };

    use super::*;

    /// A scope with these categories, given by the sizes of their groups, and these chains.
    fn scope(name: &str, categories: &[&[usize]], chains: &[usize]) -> HistoryChange {
        let entries = |many: usize| (0..many as i64).collect();
        let group = |many: &usize| GroupRecord { id: 0, entries: entries(*many), summary: None };
        let category =
            |of: &&[usize]| CategoryRecord { id: 0, groups: of.iter().map(group).collect() };
        let chain = |many: &usize| ChainRecord { id: 0, entries: entries(*many) };
        let record = ScopeRecord {
            categories: categories.iter().map(category).collect(),
            chains: chains.iter().map(chain).collect(),
            ..ScopeRecord::default()
        };
        let key = EntryKey { scope: Scope::new(None, name), entry: None };
        HistoryChange::Scope { key, record: Box::new(record) }
    }

    #[test]
    fn distributions_are_those_counted_by_hand() {
        let mut histories = Histories::default();
        histories.take(scope("a", &[&[2, 1], &[4]], &[3, 4]));
        histories.take(scope("b", &[&[1]], &[1]));
        let statistics = Statistics::of(&histories).unwrap();
        let counts = |of: &Distribution| of.counts.clone().into_iter().collect::<Vec<_>>();
        assert_eq!(statistics.scopes, 2);
        assert_eq!(counts(&statistics.categories), [(1, 1), (2, 1)]);
        assert_eq!(counts(&statistics.groups), [(1, 1), (3, 1)]);
        assert_eq!(counts(&statistics.entries_of_category), [(1, 1), (3, 1), (4, 1)]);
        assert_eq!(counts(&statistics.entries_of_group), [(1, 2), (2, 1), (4, 1)]);
        assert_eq!(counts(&statistics.entries_of_chain), [(1, 1), (3, 1), (4, 1)]);
        assert!((statistics.entries_of_chain.mean - 8.0 / 3.0).abs() < 1e-9);
        assert_eq!((statistics.entries_of_group.max, statistics.entries.max), (4, 0));
        assert_eq!(statistics.bytes_of_entry, 0.0);
        assert!(statistics.bytes_of_scope > 50.0);
        assert_eq!(Statistics::of(&Histories::default()).unwrap(), Statistics::default());
    }
}
