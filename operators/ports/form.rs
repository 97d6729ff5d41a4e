//! The form of a stage. A deciding stage can be lexical (rules over words and the graph), learned (a
//! trained model) or prompted (a language model); some stages can be off, for comparison. The
//! configuration chooses the form. A form that a stage does not have is refused by name at start.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_schemas::Stage;

/// How a stage makes its decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// By documented rules over words and the graph, without a model.
    #[default]
    Lexical,
    /// By a trained model.
    Learned,
    /// By a prompt to a language model.
    Prompted,
    /// Relevance only: by the model that scores pairs of texts (`models.scorer`).
    Encoder,
    /// Not at all: the turn continues as if the stage had found nothing, or changed nothing.
    Off,
    /// The gate only: by a trained model for documents and tables, by rules for the other sources.
    BySource,
    /// The gate only: retrieves for every turn.
    Always,
    /// The gate only: retrieves for no turn.
    Never,
    /// The gate only: retrieves at random, at a configured rate (RAGate's control).
    Random,
}

impl Form {
    /// The form's name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lexical => "lexical",
            Self::Learned => "learned",
            Self::Prompted => "prompted",
            Self::Encoder => "encoder",
            Self::Off => "off",
            Self::BySource => "by_source",
            Self::Always => "always",
            Self::Never => "never",
            Self::Random => "random",
        }
    }

    /// Refuses a form that the stage does not have.
    ///
    /// # Errors
    /// [`Refused::Form`] for a form that is not among `forms`.
    pub fn is_one_of(self, forms: &[Self], stage: Stage) -> Result<(), Refused> {
        if forms.contains(&self) { Ok(()) } else { Err(Refused::Form { stage, form: self }) }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A stage's configuration that cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// The stage does not have this form.
    #[error("{stage}.form: {stage} has no {form} form; use form = \"lexical\"")]
    Form {
        /// The stage with this configuration.
        stage: Stage,
        /// The form in the configuration.
        form: Form,
    },
    /// A key needs another one.
    #[error("{stage}.{key} needs {needs}")]
    Together {
        /// The stage with this configuration.
        stage: Stage,
        /// The key.
        key: &'static str,
        /// The setting that it needs.
        needs: &'static str,
    },
    /// A number lies outside its range.
    #[error("{stage}.{key}: {value} is out of range; give {range}")]
    Range {
        /// The stage with this configuration.
        stage: Stage,
        /// The key.
        key: &'static str,
        /// The value in the configuration.
        value: f64,
        /// The allowed range.
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
    fn a_form_that_is_not_there_is_refused_by_name() {
        assert_eq!(Form::Lexical.is_one_of(&[Form::Lexical], Stage::Gate), Ok(()));
        for form in [Form::Learned, Form::Prompted, Form::Off] {
            let message = form.is_one_of(&[Form::Lexical], Stage::TopicPlanning);
            let message = message.unwrap_err().to_string();
            assert!(message.contains("topic_planning.form"), "{message}");
            assert!(message.contains(form.name()) && message.contains("lexical"), "{message}");
        }
    }

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
