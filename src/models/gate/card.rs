//! A gate's card: shape and vocabulary, its definitions of the need for knowledge, the training
//! data and the figures reached.

use serde::{Deserialize, Serialize};
use turnstream_formats::Need;
use turnstream_ports::model::encoder::Encoder;

use super::FORMAT_VERSION;
use super::network::{Initial, NetworkShape, parameters};
use super::ngrams::Ngrams;
use super::reading::{MARKS, Vocabulary};
use crate::static_table::StaticTable;

/// A gate's card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// Version of the layout.
    pub format: u32,
    /// The gate's name in records.
    pub name: String,
    /// The language it was trained on, by its BCP 47 primary tag.
    pub language: String,
    /// The encoder's shape.
    pub shape: NetworkShape,
    /// The tokens.
    pub vocabulary: Vocabulary,
    /// Fingerprint of the static table, if the gate uses one.
    pub table: Option<u64>,
    /// One definition of need per data set. Their classes are the columns of the output, in this
    /// order.
    pub definitions: Vec<Definition>,
    /// The n-grams of each definition's regression, in the same order; empty if the encoder decides
    /// alone.
    #[serde(default)]
    pub ngrams: Vec<Ngrams>,
    /// How the gate was trained.
    pub training: Training,
}

/// The need for knowledge as one data set defines it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// The data set, by the name of its format.
    pub name: String,
    /// The classes of its turns.
    pub classes: Vec<Need>,
    /// A turn needs knowledge if the need reaches this threshold, 0 to 1: of those whose F1 on the
    /// development split is within one standard error of the best, the one that takes the middle
    /// number of turns.
    pub threshold: f64,
    /// The threshold chosen by the F1 of [`Need::None`]: below it, no knowledge is needed. It finds
    /// [`Need::None`] if that class is rare.
    pub null_threshold: f64,
    /// The training split.
    pub trained_on: Split,
    /// The development split, for early stopping and the thresholds.
    pub developed_on: Split,
    /// Figures on the development split, which also chose the threshold.
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

/// How well the gate finds turns that need knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The share of true positives among predicted positives.
    pub precision: f64,
    /// The share of true positives among actual positives.
    pub recall: f64,
    /// The harmonic mean of precision and recall.
    pub f1: f64,
    /// Area under the ROC curve.
    pub auc: f64,
}

/// How a gate was trained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// The command's arguments, with file names.
    pub command: String,
    /// Names of the data's licences.
    pub licences: Vec<String>,
    /// Seeds all random draws.
    pub seed: u64,
    /// Passes over the training split.
    pub epochs: u32,
    /// The pass with the kept weights, from 1.
    pub best_epoch: u32,
    /// Threads.
    pub threads: usize,
    /// Duration in seconds.
    pub seconds: f64,
}

impl Definition {
    /// The probability that a turn needs knowledge, from the logits of this definition's classes and
    /// from that of its regression, if it has one: the logistic function of the mean of both.
    pub fn need(&self, classes: &[f32], regression: Option<f64>) -> f64 {
        let (mut none, mut needed) = (0.0, 0.0);
        let highest = classes.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for (need, logit) in self.classes.iter().zip(classes) {
            let share = f64::from(logit - highest).exp();
            *if *need == Need::None { &mut none } else { &mut needed } += share;
        }
        let encoder = (needed.max(f64::MIN_POSITIVE) / none.max(f64::MIN_POSITIVE)).ln();
        let logit = regression.map_or(encoder, |regression| f64::midpoint(encoder, regression));
        1.0 / (1.0 + (-logit).exp())
    }

    /// Maps a probability to a scale on which this definition's threshold is one half: piecewise
    /// linear, 0..0.5 below the threshold and 0.5..1 above. On that scale, definitions are
    /// comparable and share one threshold.
    pub fn on_scale(&self, probability: f64) -> f64 {
        on_scale(probability, self.threshold)
    }
}

/// Maps a probability to a scale on which a threshold is one half.
pub(super) fn on_scale(probability: f64, threshold: f64) -> f64 {
    if probability < threshold {
        0.5 * probability / threshold
    } else if threshold < 1.0 {
        0.5 + 0.5 * (probability - threshold) / (1.0 - threshold)
    } else {
        1.0
    }
}

impl Card {
    /// The number of output columns.
    pub fn outputs(&self) -> usize {
        self.definitions.iter().map(|definition| definition.classes.len()).sum()
    }

    /// Lists every parameter: name, shape and initial value.
    pub fn parameters(&self, table: Option<&StaticTable>) -> Vec<(String, Vec<usize>, Initial)> {
        let words = MARKS + self.vocabulary.tokens.len();
        parameters(&self.shape, words, table.map(Encoder::dimensions), self.outputs())
    }

    /// Checks the card of a file for consistency.
    pub(super) fn check(&self) -> Result<(), String> {
        let shape = &self.shape;
        if !(1..=FORMAT_VERSION).contains(&self.format) {
            return Err(format!("its format is {}", self.format));
        }
        if shape.heads == 0 || !shape.width.is_multiple_of(shape.heads) || shape.max_tokens == 0 {
            return Err("its heads and width do not fit each other".to_owned());
        }
        if self.definitions.is_empty() {
            return Err("it has no definitions".to_owned());
        }
        if !self.ngrams.is_empty() && self.ngrams.len() != self.definitions.len() {
            return Err("some of its definitions have n-grams and others none".to_owned());
        }
        for definition in &self.definitions {
            let threshold = definition.threshold;
            let null = definition.null_threshold;
            let is_within = |threshold: f64| threshold > 0.0 && threshold <= 1.0;
            if definition.classes.len() < 2 || !is_within(threshold) || !is_within(null) {
                return Err(format!("its definition `{}` is invalid", definition.name));
            }
        }
        Ok(())
    }
}
