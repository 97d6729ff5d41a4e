//! Computes figures of scores on the development split.

use turnstream_models::gate::card::Figures;

use crate::eval::gate::figures::auc;

/// Sorts scores with their labels, highest first.
fn falling(told: &[(f64, bool)]) -> Vec<(f64, bool)> {
    let mut told = told.to_vec();
    told.sort_by(|a, b| b.0.total_cmp(&a.0));
    told
}

/// Returns the threshold within 0..1 that, of those whose F1 is within one standard error of the best
/// (the rule of one standard error, Breiman et al. 1984), takes the middle number of turns: on few
/// turns, the position of the very best is due to chance, and for turns of another kind than these a
/// threshold at an end of the good ones may be a bad one. One half if no turn needs knowledge.
pub fn best_threshold(told: &[(f64, bool)]) -> f64 {
    let told = falling(told);
    let positives = told.iter().filter(|(_, positive)| *positive).count();
    let mut right = 0_usize;
    // Thresholds between two different scores: how many turns each takes, its F1, and its place.
    let mut thresholds: Vec<(usize, f64, f64)> = Vec::new();
    for (at, (score, positive)) in told.iter().enumerate() {
        right += usize::from(*positive);
        let next = told.get(at + 1).map_or(0.0, |(next, _)| *next);
        if next < *score {
            let f1 = 2.0 * right as f64 / (at + 1 + positives) as f64;
            thresholds.push((at + 1, f1, f64::midpoint(next, *score)));
        }
    }
    let best = thresholds.iter().map(|(_, f1, _)| *f1).fold(0.0, f64::max);
    let error = (best * (1.0 - best) / positives.max(1) as f64).sqrt();
    thresholds.retain(|(_, f1, _)| *f1 >= best - error && best > 0.0);
    let (Some((fewest, ..)), Some((most, ..))) = (thresholds.first(), thresholds.last()) else {
        return 0.5;
    };
    let middle = usize::midpoint(*fewest, *most);
    let nearest = thresholds.iter().min_by_key(|(taken, ..)| taken.abs_diff(middle));
    nearest.map_or(0.5, |(.., threshold)| threshold.clamp(0.001, 0.999))
}

/// Returns precision, recall and F1 at a threshold, and the area under the ROC curve, with ties
/// counted half.
pub fn figures(told: &[(f64, bool)], threshold: f64) -> Figures {
    let positives = told.iter().filter(|(_, positive)| *positive).count() as f64;
    let taken = told.iter().filter(|(score, _)| *score >= threshold);
    let (mut right, mut all) = (0.0, 0.0);
    taken.for_each(|(_, positive)| {
        all += 1.0;
        right += f64::from(u8::from(*positive));
    });
    let (scores, positive): (Vec<f64>, Vec<bool>) = told.iter().copied().unzip();
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    Figures {
        precision: share(right, all),
        recall: share(right, positives),
        f1: share(2.0 * right, all + positives),
        auc: auc(&positive, &scores).unwrap_or(0.5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_counted_by_hand() {
        let told = [(0.9, true), (0.8, false), (0.7, true), (0.7, false), (0.2, false)];
        // Of six pairs, the first positive wins three and the second one and a half.
        let found = figures(&told, 0.75);
        assert_eq!((found.precision, found.recall, found.f1), (0.5, 0.5, 0.5));
        assert!((found.auc - 4.5 / 6.0).abs() < 1e-12);
        assert_eq!(figures(&[(0.5, true)], 0.5).auc, 0.5);
    }

    #[test]
    fn the_threshold_takes_the_middle_number_of_turns_of_those_that_are_as_good_as_the_best() {
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        // Any threshold between 0.2 and 0.8 separates all.
        near(best_threshold(&[(0.9, true), (0.8, true), (0.2, false), (0.1, false)]), 0.5);
        // 200 turns: the scores of the hundred that need knowledge fall from 0.9 to 0.306, and of the
        // others one has 0.5 and the next 0.2, 0.198 and so on. The best F1 is 0.995, of 101 turns, with
        // an error of 0.007: those of 100 and of 102 turns are as good.
        let right = (0..100).map(|at| (0.9 - 0.006 * f64::from(at), true));
        let others = (0..99).map(|at| (0.2 - 0.002 * f64::from(at), false));
        let told: Vec<(f64, bool)> = right.chain(others).chain([(0.5, false)]).collect();
        near(best_threshold(&told), 0.253);
        // With 20 turns between them, of which every other one needs knowledge, the best F1 is 0.957, of
        // 120 turns, with an error of 0.019: those of 99 to 124 turns are as good, and 111 is the middle.
        let more = (0..20).map(|at| (0.3 - 0.004 * f64::from(at), at % 2 == 0));
        let told: Vec<(f64, bool)> = told.into_iter().chain(more).collect();
        near(best_threshold(&told), 0.262);
        near(best_threshold(&[(0.3, false)]), 0.5);
    }
}
