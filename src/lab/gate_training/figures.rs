//! Computes figures of scores on the development split.

use turnstream_models::gate::card::Figures;

use crate::eval::gate::figures::auc;

/// Sorts scores with their labels, highest first.
fn falling(told: &[(f64, bool)]) -> Vec<(f64, bool)> {
    let mut told = told.to_vec();
    told.sort_by(|a, b| b.0.total_cmp(&a.0));
    told
}

/// Returns the threshold within 0..1 that is nearest to one half and has an F1 within one standard
/// error of the best (the rule of one standard error, Breiman et al. 1984): on few turns, the
/// position of the very best is due to chance. One half if no turn needs knowledge.
pub fn best_threshold(told: &[(f64, bool)]) -> f64 {
    let told = falling(told);
    let positives = told.iter().filter(|(_, positive)| *positive).count();
    let mut right = 0_usize;
    // The F1 of each threshold between two different scores, with both scores.
    let mut spans: Vec<(f64, f64, f64)> = Vec::new();
    for (at, (score, positive)) in told.iter().enumerate() {
        right += usize::from(*positive);
        let next = told.get(at + 1).map_or(0.0, |(next, _)| *next);
        if next < *score {
            let f1 = 2.0 * right as f64 / (at + 1 + positives) as f64;
            spans.push((next, *score, f1));
        }
    }
    let best = spans.iter().map(|(_, _, f1)| *f1).fold(0.0, f64::max);
    let error = (best * (1.0 - best) / positives.max(1) as f64).sqrt();
    let good = spans.iter().filter(|(_, _, f1)| *f1 >= best - error && best > 0.0);
    // A span around one half has the distance 0; any other span counts by its middle.
    let nearest = good.map(|(from, to, _)| match *from < 0.5 && 0.5 <= *to {
        true => 0.5,
        false => f64::midpoint(*from, *to),
    });
    let away = |threshold: &f64| (threshold - 0.5).abs();
    let nearest = nearest.min_by(|a, b| away(a).total_cmp(&away(b)));
    nearest.unwrap_or(0.5).clamp(0.001, 0.999)
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
    fn the_threshold_is_the_one_nearest_to_one_half_that_is_as_good_as_the_best() {
        // 200 turns: scores of those that need knowledge fall from the first number over a range of
        // 0.297, scores of the others fall from the second.
        let told = |from: f64, wrong: f64| -> Vec<(f64, bool)> {
            let right = (0..100).map(|at| (from - 0.003 * f64::from(at), true));
            let others = (0..99).map(|at| (0.2 - 0.002 * f64::from(at), false));
            right.chain(others).chain([(wrong, false)]).collect()
        };
        // Any threshold between 0.603 and 0.2 separates all; one half is among them.
        assert_eq!(best_threshold(&told(0.9, 0.1)), 0.5);
        // All turns that need knowledge score below one half; so does the nearest threshold of
        // equal quality.
        let low = best_threshold(&told(0.45, 0.1));
        assert!((low - 0.2115).abs() < 1e-9, "{low}");
        // The best F1 is 0.913 with an error of 0.028; a threshold of one half finds nothing.
        let found = figures(&told(0.45, 0.1), low).f1;
        assert!((0.885..0.913).contains(&found), "{found}");
        assert_eq!(best_threshold(&[(0.3, false)]), 0.5);
    }
}
