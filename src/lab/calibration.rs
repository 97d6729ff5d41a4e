//! Calibrates the consistency judge by logistic regression over cosines.

use turnstream_ports::model::calibration::Calibration;

/// Newton steps; two parameters need few.
const CALIBRATION_STEPS: usize = 25;

/// Fits the probability that a pair is right to its cosine (logistic regression). Right pairs and
/// wrong pairs have the same total weight. `None` if there are no right or no wrong pairs.
pub fn calibrated(pairs: &[(f64, bool)]) -> Option<Calibration> {
    let rights = pairs.iter().filter(|(_, right)| *right).count();
    let wrongs = pairs.len() - rights;
    if rights == 0 || wrongs == 0 {
        return None;
    }
    let weight = |right: bool| 0.5 / if right { rights } else { wrongs } as f64;
    let mut found = Calibration { slope: 1.0, offset: 0.0 };
    for _ in 0..CALIBRATION_STEPS {
        // The gradient and the upper half of the Hessian; a small term keeps it invertible if all
        // cosines are equal.
        let (mut by_slope, mut by_offset) = (1e-4 * found.slope, 0.0);
        let (mut square, mut cross, mut plain) = (1e-4, 0.0, 1e-9);
        for (cosine, right) in pairs {
            let (probability, weight) = (found.score(*cosine), weight(*right));
            let miss = weight * (probability - f64::from(u8::from(*right)));
            let curve = weight * probability * (1.0 - probability);
            by_slope += miss * cosine;
            by_offset += miss;
            square += curve * cosine * cosine;
            cross += curve * cosine;
            plain += curve;
        }
        let whole = square * plain - cross * cross;
        found.slope -= (plain * by_slope - cross * by_offset) / whole;
        found.offset -= (square * by_offset - cross * by_slope) / whole;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibrated_score_is_one_half_where_both_are_as_likely() {
        // Right pairs around 0.7, and three times as many wrong pairs around 0.3.
        let right = (0..30).map(|at| (0.7 + 0.02 * f64::from(at - 15), true));
        let wrong = (0..90).map(|at| (0.3 + 0.02 * f64::from(at / 3 - 15), false));
        let pairs: Vec<(f64, bool)> = right.chain(wrong).collect();
        let found = calibrated(&pairs).expect("both are there");
        assert!(found.slope > 5.0, "{found:?}");
        assert!((found.score(0.49) - 0.5).abs() < 0.05, "{found:?}");
        assert!(found.score(0.7) > 0.8 && found.score(0.3) < 0.2, "{found:?}");
        assert_eq!(calibrated(&pairs[..30]), None);
        // Indistinguishable pairs give a finite result.
        let same = calibrated(&[(0.5, true), (0.5, false)]).expect("both are there");
        assert!((same.score(0.5) - 0.5).abs() < 1e-3, "{same:?}");
        let apart = calibrated(&[(0.9, true), (0.1, false)]).expect("both are there");
        assert!(apart.score(0.9) > 0.8 && apart.slope.is_finite(), "{apart:?}");
    }
}
