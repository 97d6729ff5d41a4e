//! The judge of consistency that `turnstream train consistency` makes: a static table with a calibration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnstream_operators::consistency::ConsistencyForm;
use turnstream_operators::consistency::{Calibration, ConsistencyConfig, Judge};

use super::static_table::{StaticTable, TableError};

/// Steps of Newton's method, which needs few for two numbers.
const CALIBRATION_STEPS: usize = 25;

/// Why there is no judge.
#[derive(Debug, thiserror::Error)]
pub enum ConsistencyError {
    /// The table cannot be used.
    #[error("consistency.table: {0}")]
    Table(#[from] TableError),
    /// It is a table for something else.
    #[error(
        "consistency.table: {} was not trained to judge; make one with `turnstream train consistency`",
        .0.display()
    )]
    NoJudge(PathBuf),
}

/// The judge that the configuration names; `None` where the stage is not learned.
///
/// # Errors
/// Its table cannot be used.
pub fn configured(config: &ConsistencyConfig) -> Result<Option<Judge>, ConsistencyError> {
    match &config.table {
        Some(path) if config.form == ConsistencyForm::Learned => open(path).map(Some),
        _ => Ok(None),
    }
}

/// The judge of a table.
///
/// # Errors
/// The file cannot be read, or is no table that was trained for it.
pub fn open(path: &Path) -> Result<Judge, ConsistencyError> {
    let table = StaticTable::open(path)?;
    let calibration = table.calibration();
    let calibration = calibration.ok_or_else(|| ConsistencyError::NoJudge(path.to_owned()))?;
    Ok(Judge::new(Arc::new(table), calibration))
}

/// What makes of a cosine the probability that a pair is right, right and wrong ones having the same weight in
/// all (logistic regression); `None` where there are none of either.
pub fn calibrated(pairs: &[(f64, bool)]) -> Option<Calibration> {
    let rights = pairs.iter().filter(|(_, right)| *right).count();
    let wrongs = pairs.len() - rights;
    if rights == 0 || wrongs == 0 {
        return None;
    }
    let weight = |right: bool| 0.5 / if right { rights } else { wrongs } as f64;
    let mut found = Calibration { slope: 1.0, offset: 0.0 };
    for _ in 0..CALIBRATION_STEPS {
        // The gradient and the upper half of the curvature; a little is added where cosines are all alike.
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
        // Right ones around 0.7, wrong ones around 0.3, three times as many of these.
        let right = (0..30).map(|at| (0.7 + 0.02 * f64::from(at - 15), true));
        let wrong = (0..90).map(|at| (0.3 + 0.02 * f64::from(at / 3 - 15), false));
        let pairs: Vec<(f64, bool)> = right.chain(wrong).collect();
        let found = calibrated(&pairs).expect("both are there");
        assert!(found.slope > 5.0, "{found:?}");
        assert!((found.score(0.49) - 0.5).abs() < 0.05, "{found:?}");
        assert!(found.score(0.7) > 0.8 && found.score(0.3) < 0.2, "{found:?}");
        assert_eq!(calibrated(&pairs[..30]), None);
        // One that cannot be told stays finite.
        let same = calibrated(&[(0.5, true), (0.5, false)]).expect("both are there");
        assert!((same.score(0.5) - 0.5).abs() < 1e-3, "{same:?}");
        let apart = calibrated(&[(0.9, true), (0.1, false)]).expect("both are there");
        assert!(apart.score(0.9) > 0.8 && apart.slope.is_finite(), "{apart:?}");
    }
}
