//! The rows of the views, and their differences from the topic.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use turnstream_schemas::{ViewKey, ViewName};

/// The number of largest counts of each view in the metrics.
pub(super) const TOLD_TOP: usize = 5;

/// The rows, and which of them the topic does not have yet.
#[derive(Debug, Default)]
pub struct Rows {
    rows: BTreeMap<ViewKey, u64>,
    /// Keys whose value on the topic may differ, with that value.
    unpublished: BTreeMap<ViewKey, Option<u64>>,
    /// Sums over all partitions.
    totals: BTreeMap<(ViewName, Arc<str>), u64>,
    ranking: BTreeSet<(ViewName, Reverse<u64>, Arc<str>)>,
    sizes: BTreeMap<ViewName, Size>,
}

/// The size of a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Number of different keys.
    pub keys: u64,
    /// The sum of their counts.
    pub count: u64,
}

impl Rows {
    /// Notes a row that the topic has; `None` is a tombstone. Call it before any [`Self::set`].
    pub fn found(&mut self, key: ViewKey, count: Option<u64>) {
        match count {
            Some(_) => drop(self.unpublished.insert(key, count)),
            None => drop(self.unpublished.remove(&key)),
        }
    }

    /// Sets a row; `None` removes it.
    pub fn set(&mut self, key: ViewKey, count: Option<u64>) {
        let before = match count {
            Some(count) => self.rows.insert(key.clone(), count),
            None => self.rows.remove(&key),
        };
        self.sum(key.view, &key.key, before.unwrap_or(0), count.unwrap_or(0));
        // The topic still has the value that was found there or published last.
        self.unpublished.entry(key).or_insert(before);
    }

    fn sum(&mut self, view: ViewName, name: &str, before: u64, count: u64) {
        let name = Arc::<str>::from(name);
        let size = self.sizes.entry(view).or_default();
        size.count = size.count + count - before;
        let place = (view, Arc::clone(&name));
        let total = self.totals.get(&place).copied().unwrap_or(0);
        if total > 0 {
            self.ranking.remove(&(view, Reverse(total), Arc::clone(&name)));
            size.keys -= 1;
        }
        let total = total + count - before;
        if total > 0 {
            size.keys += 1;
            self.totals.insert(place, total);
            self.ranking.insert((view, Reverse(total), name));
        } else {
            self.totals.remove(&place);
        }
    }

    /// Takes a row that differs from the topic, with the value to write. The row counts as
    /// published from then on.
    pub fn next_difference(&mut self) -> Option<(ViewKey, Option<u64>)> {
        while let Some((key, on_topic)) = self.unpublished.pop_first() {
            let count = self.rows.get(&key).copied();
            if count != on_topic {
                return Some((key, count));
            }
        }
        None
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The size of each view, over all partitions.
    pub fn sizes(&self) -> BTreeMap<ViewName, Size> {
        let size = |view| (view, self.sizes.get(&view).copied().unwrap_or_default());
        ViewName::ALL.map(size).into()
    }

    /// The keys of a view with the largest counts over all partitions, in falling order. Equal
    /// counts are in the order of their keys.
    pub fn top(&self, view: ViewName) -> impl Iterator<Item = (&str, u64)> {
        let first = (view, Reverse(u64::MAX), Arc::from(""));
        let of_it = self.ranking.range(first..).take_while(move |(it, ..)| *it == view);
        of_it.map(|(_, Reverse(count), key)| (&**key, *count))
    }

    /// The five largest counts of each view.
    pub fn top_counts(&self) -> BTreeMap<ViewName, Vec<u64>> {
        let counts = |view| self.top(view).take(TOLD_TOP).map(|(_, count)| count).collect();
        ViewName::ALL.map(|view| (view, counts(view))).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(partition: i32, key: &str) -> ViewKey {
        ViewKey { view: ViewName::ConceptsAsked, partition, key: key.to_owned() }
    }

    fn differences(rows: &mut Rows) -> Vec<(String, Option<u64>)> {
        std::iter::from_fn(|| rows.next_difference()).map(|(key, it)| (key.key, it)).collect()
    }

    #[test]
    fn only_what_differs_from_the_topic_is_written() {
        let mut rows = Rows::default();
        for (name, count) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
            rows.found(key(0, name), Some(count));
        }
        rows.found(key(0, "d"), None);
        rows.set(key(0, "a"), Some(7));
        rows.set(key(0, "a"), Some(1));
        rows.set(key(0, "b"), Some(5));
        rows.set(key(0, "e"), Some(1));
        rows.set(key(0, "f"), Some(1));
        rows.set(key(0, "f"), None);
        let expected = [("b", Some(5)), ("c", None), ("e", Some(1))];
        let named = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(differences(&mut rows), named);
        assert_eq!(differences(&mut rows), []);
        rows.set(key(0, "b"), None);
        assert_eq!(differences(&mut rows), [("b".to_owned(), None)]);
    }

    #[test]
    fn totals_are_over_all_partitions() {
        let mut rows = Rows::default();
        for (partition, name, count) in
            [(0, "rain", 3), (1, "rain", 4), (0, "dog", 7), (1, "cat", 8), (1, "town", 1)]
        {
            rows.set(key(partition, name), Some(count));
        }
        rows.set(key(1, "town"), None);
        rows.set(key(0, "rain"), Some(5));
        let top: Vec<_> = rows.top(ViewName::ConceptsAsked).collect();
        assert_eq!(top, [("rain", 9), ("cat", 8), ("dog", 7)]);
        assert_eq!(rows.top(ViewName::ConceptsMissing).count(), 0);
        assert_eq!(rows.sizes()[&ViewName::ConceptsAsked], Size { keys: 3, count: 24 });
        assert_eq!(rows.top_counts()[&ViewName::ConceptsAsked], [9, 8, 7]);
        assert_eq!((rows.len(), rows.is_empty()), (4, false));
    }
}
