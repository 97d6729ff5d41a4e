//! Refuses a stage's configuration: numbers out of range, and keys that need others. The stage's
//! own type of `form` limits its forms.

use turnstream_schemas::Stage;

/// Why a stage's configuration is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// A key needs another.
    #[error("{stage}.{key} needs {needs}")]
    Together {
        /// The stage.
        stage: Stage,
        /// The key.
        key: &'static str,
        /// The setting that it needs.
        needs: &'static str,
    },
    /// A number lies outside its range.
    #[error("{stage}.{key}: {value} is out of range; give {range}")]
    Range {
        /// The stage.
        stage: Stage,
        /// The key.
        key: &'static str,
        /// The number in the configuration.
        value: f64,
        /// The numbers that are allowed.
        range: &'static str,
    },
}

/// Checks that a share, weight or threshold lies in 0..=1.
///
/// # Errors
/// [`Refused::Range`], naming the key.
pub fn check_fraction(stage: Stage, key: &'static str, value: f64) -> Result<(), Refused> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(Refused::Range { stage, key, value, range: "a number from 0 to 1" })
    }
}

/// Checks that a bound lies in `1..=most`.
///
/// # Errors
/// [`Refused::Range`], naming the key.
pub fn check_bound(stage: Stage, key: &'static str, value: u32, most: u32) -> Result<(), Refused> {
    if (1..=most).contains(&value) {
        Ok(())
    } else {
        let range = "a whole number from 1 to the documented maximum";
        Err(Refused::Range { stage, key, value: f64::from(value), range })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused_by_key() {
        assert_eq!(check_fraction(Stage::Gate, "threshold", 1.0), Ok(()));
        for value in [-0.1, 1.1, f64::NAN] {
            let message = check_fraction(Stage::Gate, "threshold", value).unwrap_err().to_string();
            assert!(message.starts_with("gate.threshold: "), "{message}");
        }
        assert!(check_bound(Stage::Gate, "x", 0, 9).is_err());
        assert_eq!(check_bound(Stage::Gate, "x", 9, 9), Ok(()));
        assert!(check_bound(Stage::Gate, "x", 10, 9).is_err());
    }
}
