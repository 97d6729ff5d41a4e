//! Which form of a stage runs. Every deciding stage can be lexical (rules over words and the
//! graph), learned (a trained model) or prompted (a language model); some can be switched off, to
//! compare. The configuration chooses, and a form that a stage does not have is refused by name
//! before anything starts.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_schemas::Stage;

/// How a stage makes its decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// By documented rules over words and the graph; needs no model.
    #[default]
    Lexical,
    /// By a trained model.
    Learned,
    /// By a prompt to a language model.
    Prompted,
    /// Relevance alone: by the model that scores pairs of texts (`models.scorer`).
    Encoder,
    /// Not at all: the turn goes on as if the stage had found nothing, or left everything as it
    /// was.
    Off,
    /// The gate alone: by a trained model for documents and tables, by rules for the other sources.
    BySource,
    /// The gate alone: every turn is retrieved for.
    Always,
    /// The gate alone: no turn is retrieved for.
    Never,
    /// The gate alone: turns are retrieved for by chance, at a rate that is given. (RAGate's
    /// control.)
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
    /// [`Refused::Form`] for every form that is not among those it has.
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
        /// Whose configuration.
        stage: Stage,
        /// What was asked for.
        form: Form,
    },
    /// A key that asks for another.
    #[error("{stage}.{key} needs {needs}")]
    Together {
        /// Whose configuration.
        stage: Stage,
        /// Which key.
        key: &'static str,
        /// What must be set beside it.
        needs: &'static str,
    },
    /// A number lies outside its range.
    #[error("{stage}.{key}: {value} is out of range; give {range}")]
    Range {
        /// Whose configuration.
        stage: Stage,
        /// Which key.
        key: &'static str,
        /// What was given.
        value: f64,
        /// What may be given.
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
