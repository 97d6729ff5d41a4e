//! Computes the null-positive rank test (PK-ICR section 3.3 and appendix B): the rank of the bare
//! dialogue D among the questions P_i + D, given the knowledge.
//!
//! D should rank directly below the questions with a right sentence: that is rank 0. Ranking above
//! a right sentence is −1; each wrong sentence above D adds one. *Non-triviality* is the mean
//! distance from rank 0; smaller is better.

use std::collections::BTreeMap;

use serde::Serialize;

/// Returns the rank of the bare dialogue among the sentences, each with its score and whether it is
/// right. A score equal to the bare one counts against the scorer: as below it for a right
/// sentence, as above it for a wrong one.
pub fn adjusted_rank(sentences: &[(f64, bool)], bare: f64) -> i64 {
    let above = |(score, right): &&(f64, bool)| *score > bare || (*score == bare && !*right);
    let right = sentences.iter().filter(|(_, right)| *right).count();
    sentences.iter().filter(above).count() as i64 - right as i64
}

/// Non-triviality in all five variants, 0 and above.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NonTriviality {
    /// −T: the mean distance from rank 0 (eq 9).
    pub t: f64,
    /// −T₊: the mean distance of ranks 0 and above (eq 10); 0 if there are none.
    pub t_positive: f64,
    /// −T₋: the mean distance of ranks 0 and below (eq 11); 0 if there are none.
    pub t_negative: f64,
    /// −T²: the mean square of the distance (eq 12).
    pub t_squared: f64,
    /// −T weighted (eq 13). The paper defines no weights; here a rank weighs 1 ÷ (1 + |r|), so that
    /// a few distant ranks do not dominate.
    pub t_weighted: f64,
    /// n_r: the count of each rank.
    pub ranks: BTreeMap<i64, u64>,
}

impl NonTriviality {
    /// Computes the variants from the ranks of all cases.
    pub fn of(ranks: impl IntoIterator<Item = i64>) -> Self {
        let mut counts = BTreeMap::<i64, u64>::new();
        ranks.into_iter().for_each(|rank| *counts.entry(rank).or_default() += 1);
        let mean = |distance: fn(f64) -> f64, weight: fn(i64) -> f64| {
            let (mut sum, mut weights) = (0.0, 0.0);
            for (rank, count) in &counts {
                let weight = weight(*rank) * *count as f64;
                sum += weight * distance(rank.abs() as f64);
                weights += weight;
            }
            if weights > 0.0 { sum / weights } else { 0.0 }
        };
        Self {
            t: mean(|far| far, |_| 1.0),
            t_positive: mean(|far| far, |rank| f64::from(u8::from(rank >= 0))),
            t_negative: mean(|far| far, |rank| f64::from(u8::from(rank <= 0))),
            t_squared: mean(|far| far * far, |_| 1.0),
            t_weighted: mean(|far| far, |rank| 1.0 / (1.0 + rank.abs() as f64)),
            ranks: counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_from_right_below_the_right_sentence() {
        let sentences = |right: f64| [(0.5, false), (right, true), (0.3, false), (0.1, false)];
        assert_eq!(adjusted_rank(&sentences(0.9), 0.6), 0, "between right and wrong");
        assert_eq!(adjusted_rank(&sentences(0.9), 0.95), -1, "above the right one");
        assert_eq!(adjusted_rank(&sentences(0.9), 0.4), 1, "below one that is wrong");
        assert_eq!(adjusted_rank(&sentences(0.9), 0.0), 3, "below all");
        let two = [(0.9, true), (0.2, true), (0.1, false)];
        assert_eq!(adjusted_rank(&two, 1.0), -2, "above two that are right");
        assert_eq!(adjusted_rank(&[(0.5, true), (0.5, false)], 0.5), 0, "ties: one each way");
        assert_eq!(adjusted_rank(&[(0.5, true)], 0.5), -1, "a tie counts against the scorer");
    }

    #[test]
    fn the_five_variants_are_those_counted_by_hand() {
        let found = NonTriviality::of([-1, 0, 0, 2, 3]);
        let near = |found: f64, by_hand: f64| {
            assert!((found - by_hand).abs() < 1e-12, "{found} is not {by_hand}");
        };
        near(found.t, 6.0 / 5.0);
        near(found.t_positive, 5.0 / 4.0);
        near(found.t_negative, 1.0 / 3.0);
        near(found.t_squared, 14.0 / 5.0);
        let (sum, weights) = (0.5 + 2.0 / 3.0 + 3.0 / 4.0, 0.5 + 1.0 + 1.0 + 1.0 / 3.0 + 1.0 / 4.0);
        near(found.t_weighted, sum / weights);
        assert_eq!(found.ranks.into_iter().collect::<Vec<_>>(), [(-1, 1), (0, 2), (2, 1), (3, 1)]);
        assert_eq!(NonTriviality::of([]), NonTriviality::default());
        near(NonTriviality::of([-1, -2]).t_positive, 0.0);
    }
}
