//! How well scores tell turns that need knowledge, on the development split.

use super::super::card::Figures;

/// Scores with whether each turn needs knowledge, the highest first.
fn falling(told: &[(f64, bool)]) -> Vec<(f64, bool)> {
    let mut told = told.to_vec();
    told.sort_by(|a, b| b.0.total_cmp(&a.0));
    told
}

/// The threshold of the best F1: the middle between two scores that are told apart, within 0..1.
pub fn best_threshold(told: &[(f64, bool)]) -> f64 {
    let told = falling(told);
    let positives = told.iter().filter(|(_, positive)| *positive).count();
    let (mut right, mut best) = (0_usize, (0.0, 0.5));
    for (at, (score, positive)) in told.iter().enumerate() {
        right += usize::from(*positive);
        let next = told.get(at + 1).map_or(0.0, |(next, _)| *next);
        if next == *score {
            continue;
        }
        let f1 = 2.0 * right as f64 / (at + 1 + positives) as f64;
        if f1 > best.0 {
            best = (f1, f64::midpoint(*score, next));
        }
    }
    best.1.clamp(0.001, 0.999)
}

/// Precision, recall and F1 at a threshold, and the area under the ROC curve, ties counted half.
pub fn figures(told: &[(f64, bool)], threshold: f64) -> Figures {
    let positives = told.iter().filter(|(_, positive)| *positive).count() as f64;
    let taken = told.iter().filter(|(score, _)| *score >= threshold);
    let (mut right, mut all) = (0.0, 0.0);
    taken.for_each(|(_, positive)| {
        all += 1.0;
        right += f64::from(u8::from(*positive));
    });
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    Figures {
        precision: share(right, all),
        recall: share(right, positives),
        f1: share(2.0 * right, all + positives),
        auc: area(told),
    }
}

/// The chance that a turn that needs knowledge has a higher score than one that does not.
fn area(told: &[(f64, bool)]) -> f64 {
    let told = falling(told);
    let (mut above, mut wins, mut at) = (0.0, 0.0, 0);
    let mut negatives = 0.0;
    while at < told.len() {
        let alike = told[at..].iter().take_while(|(score, _)| *score == told[at].0).count();
        let right = told[at..at + alike].iter().filter(|(_, positive)| *positive).count() as f64;
        let wrong = alike as f64 - right;
        wins += wrong * (above + right / 2.0);
        above += right;
        negatives += wrong;
        at += alike;
    }
    if above * negatives > 0.0 { wins / (above * negatives) } else { 0.5 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_counted_by_hand() {
        let told = [(0.9, true), (0.8, false), (0.7, true), (0.7, false), (0.2, false)];
        // Of the six pairs the first positive wins three, the second one and a half.
        let found = figures(&told, 0.75);
        assert_eq!((found.precision, found.recall, found.f1), (0.5, 0.5, 0.5));
        assert!((found.auc - 4.5 / 6.0).abs() < 1e-12);
        // Down to 0.7 both are found, and two that are not: F1 is 2/3, as of the first alone.
        assert!((best_threshold(&told) - 0.85).abs() < 1e-12);
        let always = [(0.6, true), (0.5, true), (0.4, false)];
        assert!((best_threshold(&always) - 0.45).abs() < 1e-12);
        assert_eq!(figures(&[(0.5, true)], 0.5).auc, 0.5);
    }
}
