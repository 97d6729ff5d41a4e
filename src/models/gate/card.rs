//! What a gate says of itself: its shape and vocabulary, which definitions of need it decides by,
//! what it was trained on and what it reached there.

use serde::{Deserialize, Serialize};
use turnstream_formats::Need;
use turnstream_ports::model::encoder::Encoder;

use super::FORMAT_VERSION;
use super::network::{Initial, NetworkShape, parameters};
use super::reading::{MARKS, Vocabulary};
use crate::static_table::StaticTable;

/// A gate's card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// Version of the layout.
    pub format: u32,
    /// What it calls itself in records.
    pub name: String,
    /// The language it was trained on, by its BCP 47 primary tag.
    pub language: String,
    /// The encoder.
    pub shape: NetworkShape,
    /// Its tokens.
    pub vocabulary: Vocabulary,
    /// Fingerprint of the static table that it rests on, where it does.
    pub table: Option<u64>,
    /// What need is, a data set each; its classes are as many columns of the output, in this
    /// order.
    pub definitions: Vec<Definition>,
    /// How it was made.
    pub training: Training,
}

/// What a data set calls the need for knowledge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// The data set, by its format's name.
    pub name: String,
    /// The classes that its turns are of.
    pub classes: Vec<Need>,
    /// The probability of any class but [`Need::None`] from which on a turn needs knowledge, 0..1:
    /// the one nearest to one half with an F1 on the development split within one standard error of the best.
    pub threshold: f64,
    /// The same by the F1 of [`Need::None`]: below it, none is needed. Where none is the rare
    /// class, this is what finds it.
    pub null_threshold: f64,
    /// What it was trained on.
    pub trained_on: Split,
    /// What it was stopped by, and the threshold chosen on.
    pub developed_on: Split,
    /// Figures on that, and so chosen by it.
    pub development: Option<Figures>,
}

/// Labelled turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// The file's name.
    pub file: String,
    /// Turns.
    pub turns: u64,
    /// Those that need knowledge.
    pub positives: u64,
}

/// How well turns that need knowledge were told.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Of those told to need it, the share that does.
    pub precision: f64,
    /// Of those that need it, the share told to.
    pub recall: f64,
    /// Their harmonic mean.
    pub f1: f64,
    /// Area under the ROC curve.
    pub auc: f64,
}

/// How a gate was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// The command's arguments, files by their names.
    pub command: String,
    /// Licences of the data, a name each.
    pub licences: Vec<String>,
    /// Seeds everything that was drawn.
    pub seed: u64,
    /// Passes over the training split.
    pub epochs: u32,
    /// The pass whose weights were kept, from 1.
    pub best_epoch: u32,
    /// Threads.
    pub threads: usize,
    /// Seconds it took.
    pub seconds: f64,
}

impl Definition {
    /// The probability that a turn needs knowledge, of those of its classes.
    pub fn score(&self, classes: &[f32]) -> f64 {
        let none = self.classes.iter().position(|need| *need == Need::None);
        none.map_or(1.0, |none| 1.0 - f64::from(classes[none]))
    }

    /// A probability on the scale on which this definition's threshold is one half: below it
    /// stretched or shrunk to 0..0.5, above it to 0.5..1. So that several definitions can be
    /// compared, and one threshold does for all.
    pub fn on_scale(&self, probability: f64) -> f64 {
        let threshold = self.threshold;
        if probability < threshold {
            0.5 * probability / threshold
        } else if threshold < 1.0 {
            0.5 + 0.5 * (probability - threshold) / (1.0 - threshold)
        } else {
            1.0
        }
    }
}

impl Card {
    /// Columns of the output.
    pub fn outputs(&self) -> usize {
        self.definitions.iter().map(|definition| definition.classes.len()).sum()
    }

    /// Every parameter: name, shape, beginning.
    pub fn parameters(&self, table: Option<&StaticTable>) -> Vec<(String, Vec<usize>, Initial)> {
        let words = MARKS + self.vocabulary.tokens.len();
        parameters(&self.shape, words, table.map(Encoder::dimensions), self.outputs())
    }

    /// Checks what a file could say wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        let shape = &self.shape;
        if self.format != FORMAT_VERSION {
            return Err(format!("its format is {}", self.format));
        }
        if shape.heads == 0 || !shape.width.is_multiple_of(shape.heads) || shape.max_tokens == 0 {
            return Err("its heads and width do not fit each other".to_owned());
        }
        if self.definitions.is_empty() {
            return Err("it decides by no definition".to_owned());
        }
        for definition in &self.definitions {
            let threshold = definition.threshold;
            let null = definition.null_threshold;
            let is_within = |threshold: f64| threshold > 0.0 && threshold <= 1.0;
            if definition.classes.len() < 2 || !is_within(threshold) || !is_within(null) {
                return Err(format!("its definition `{}` is none", definition.name));
            }
        }
        Ok(())
    }
}
