//! Eviction: keep the top N entries by weight (DH-RAG eq 12–14), or forget all of them.

use std::cmp::Ordering;

use turnstream_schemas::{EntryId, EvictionReason};

/// An entry with the scores that decide whether it stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighted {
    /// The entry.
    pub id: EntryId,
    /// Relevance(q_i, q_t), 0..=1.
    pub relevance: f64,
    /// Recency(t_i), 0..=1.
    pub recency: f64,
    /// The importance of the entry, 0..=1, where importance has a share in the weight.
    pub importance: Option<f64>,
    /// α·relevance + (1 − α)·recency, 0..=1; where importance has a share β, (1 − β) times that sum plus
    /// β·importance.
    pub weight: f64,
}

impl Weighted {
    /// Weighs an entry: weight_i = α·Relevance(q_i, q_t) + (1 − α)·Recency(t_i) (eq 12).
    pub fn new(id: EntryId, relevance: f64, recency: f64, alpha: f64) -> Self {
        let weight = alpha * relevance + (1.0 - alpha) * recency;
        Self { id, relevance, recency, importance: None, weight }
    }

    /// Gives importance this share in the weight.
    pub fn with_importance(self, importance: f64, share: f64) -> Self {
        let weight = (1.0 - share) * self.weight + share * importance;
        Self { importance: Some(importance), weight, ..self }
    }
}

/// Returns the entries to evict, each with its rank from 1 and the reason, by rising rank: those
/// for which `too_old` holds, and those beyond the top `keep`. The entry just added, the first of
/// `first`, leaves only where `keep` is 0. All of `first` rank before others in their order, whatever
/// their weight; ties evict the lower offset.
pub fn evict(
    mut entries: Vec<Weighted>,
    keep: usize,
    first: &[EntryId],
    too_old: impl Fn(EntryId) -> bool,
) -> Vec<(Weighted, u32, EvictionReason)> {
    let newest = first.first().copied();
    let leaves_for_age = |entry: &Weighted| Some(entry.id) != newest && too_old(entry.id);
    if entries.iter().any(leaves_for_age) || keep >= entries.len() {
        entries.sort_unstable_by(|a, b| by_rank(a, b, first));
    } else {
        // Entries that stay need no order: sorting all of them took half the time of an update by words.
        entries.select_nth_unstable_by(keep, |a, b| by_rank(a, b, first));
        entries[keep..].sort_unstable_by(|a, b| by_rank(a, b, first));
    }
    // Entries that leave for their age do not count towards `keep`.
    let mut kept = 0;
    let ranked = entries.into_iter().zip(1_u32..).filter_map(|(entry, rank)| {
        if leaves_for_age(&entry) {
            return Some((entry, rank, EvictionReason::Age));
        }
        kept += 1;
        (kept > keep).then_some((entry, rank, EvictionReason::Capacity))
    });
    ranked.collect()
}

/// Returns all entries, each with its rank from 1, to be removed by a demand to forget.
pub fn forget(mut entries: Vec<Weighted>) -> Vec<(Weighted, u32, EvictionReason)> {
    entries.sort_unstable_by(|a, b| by_rank(a, b, &[]));
    entries.into_iter().zip(1..).map(|(entry, at)| (entry, at, EvictionReason::Forget)).collect()
}

/// Orders `first` as they are, then the others by falling weight; of equals the later one.
fn by_rank(a: &Weighted, b: &Weighted, first: &[EntryId]) -> Ordering {
    let place = |of: &Weighted| first.iter().position(|id| *id == of.id).unwrap_or(first.len());
    place(a).cmp(&place(b)).then(b.weight.total_cmp(&a.weight)).then(b.id.cmp(&a.id))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use turnstream_schemas::EventTime;

    use super::*;
    use crate::history::recency::recency;

    fn id(offset: i64) -> EntryId {
        EntryId { partition: 0, offset }
    }

    #[test]
    fn ties_evict_the_lower_offset_and_never_the_newest() {
        let entries = || (0..4).map(|offset| Weighted::new(id(offset), 0.0, 0.0, 0.5)).collect();
        let left = |keep| {
            let evicted = evict(entries(), keep, &[id(0)], |_| false);
            evicted.iter().map(|(entry, ..)| entry.id.offset).collect::<Vec<_>>()
        };
        assert_eq!(left(4), [] as [i64; 0]);
        assert_eq!(left(2), [2, 1], "the newest is entry 0 here, and stays");
        assert_eq!(left(1), [3, 2, 1]);
        assert_eq!(left(0), [0, 3, 2, 1], "nothing is kept where N is 0");
    }

    #[test]
    fn expired_entries_leave_first_and_do_not_use_capacity() {
        let weights = [0.1, 0.9, 0.5, 0.2];
        let entries = (0_i64..).zip(weights);
        let entries: Vec<Weighted> = entries
            .map(|(offset, weight)| Weighted::new(id(offset), weight, weight, 0.5))
            .collect();
        let left = |keep, newest| {
            let evicted = evict(entries.clone(), keep, &[id(newest)], |id| id.offset <= 1);
            let of = |(entry, rank, why): &(Weighted, u32, _)| (entry.id.offset, *rank, *why);
            evicted.iter().map(of).collect::<Vec<_>>()
        };
        let (age, capacity) = (EvictionReason::Age, EvictionReason::Capacity);
        assert_eq!(left(9, 3), [(1, 2, age), (0, 4, age)]);
        assert_eq!(left(1, 3), [(1, 2, age), (2, 3, capacity), (0, 4, age)]);
        assert_eq!(left(9, 1), [(0, 4, age)], "the newest stays however old it is");
    }

    #[test]
    fn all_that_is_forgotten_has_its_rank() {
        let entries = (0_i64..).zip([0.1, 0.9, 0.9]);
        let entries = entries.map(|(offset, weight)| Weighted::new(id(offset), 0.0, weight, 0.5));
        let left: Vec<_> = forget(entries.collect())
            .into_iter()
            .map(|(entry, rank, why)| (entry.id.offset, rank, why))
            .collect();
        let why = EvictionReason::Forget;
        assert_eq!(left, [(2, 1, why), (1, 2, why), (0, 3, why)]);
    }

    #[test]
    fn importance_has_its_share() {
        let plain = Weighted::new(id(1), 0.2, 0.6, 0.5);
        assert!((plain.weight - 0.4).abs() < 1e-12);
        assert!((plain.with_importance(1.0, 0.25).weight - 0.55).abs() < 1e-12);
        assert_eq!(plain.with_importance(1.0, 0.0).weight, plain.weight);
    }

    proptest! {
        /// Checks the rule of the paper and the design one entry at a time: an entry stays if it is
        /// the newest, or fewer than N − 1 others (the newest aside) beat it.
        #[test]
        fn eviction_is_the_plain_rule(
            entries in proptest::collection::vec((0..4_u8, 0..5_i64), 1..12),
            keep in 0..12_usize,
            alpha in prop_oneof![Just(0.0), Just(0.5), Just(1.0)],
        ) {
            let weighted: Vec<Weighted> = (0_i64..)
                .zip(&entries)
                .map(|(offset, (relevance, age))| {
                    let fresh = recency(EventTime(0), EventTime(-age * 1_000), 2);
                    Weighted::new(id(offset), f64::from(*relevance) / 4.0, fresh, alpha)
                })
                .collect();
            let newest = entries.len() as i64 - 1;

            let plain_weight = |offset: i64| {
                let (relevance, age) = entries[offset as usize];
                alpha * f64::from(relevance) / 4.0
                    + (1.0 - alpha) * 0.5_f64.powf(age as f64 / 2.0)
            };
            let stays = |offset: i64| {
                if offset == newest || keep == 0 {
                    return keep > 0;
                }
                let beaten_by = (0..newest).filter(|other| {
                    let (theirs, ours) = (plain_weight(*other), plain_weight(offset));
                    let equal = (theirs - ours).abs() < 1e-12;
                    if equal { *other > offset } else { theirs > ours }
                });
                beaten_by.count() < keep - 1
            };
            let expected: Vec<i64> = (0..=newest).filter(|offset| !stays(*offset)).collect();

            let mut found: Vec<i64> = evict(weighted, keep, &[id(newest)], |_| false)
                .iter()
                .map(|(entry, ..)| entry.id.offset)
                .collect();
            found.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}
