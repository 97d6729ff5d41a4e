//! Trains the baseline for learned gates: logistic regression over TF-IDF of the last utterance
//! alone, by [`logistic`], on the training split of the data set that it is scored on.
//!
//! Cross-validation on the training split chooses the penalty and the threshold: three times, the
//! model is trained on two thirds of the conversations and scores the rest. The strength with the
//! best AUC over all these scores is kept, with the threshold of the best F1. The n-grams and their
//! idf come from the whole training split, without its labels. The scored split is never used.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub mod logistic;

use logistic::Logistic;
use turnstream_models::gate::ngrams::{NgramRegression, Sparse, Vectoriser};

use super::{GateError, ScoresTurns, best_threshold, conversations, figures};
use crate::labelled::{LabelledTurn, Positive};

/// Inverse strengths of the penalty to try, the strongest penalty first.
pub const STRENGTHS: [f64; 6] = [0.03, 0.1, 0.3, 1.0, 3.0, 10.0];
/// The fewest training texts that contain an n-gram of the baseline.
pub const LEAST_TEXTS: u32 = 2;
const PARTS: usize = 3;

/// The baseline with the threshold of one class.
#[derive(Clone)]
pub struct TfIdf {
    learned: Arc<NgramRegression>,
    threshold: f64,
}

/// A training, which can return a gate with the threshold of each class.
pub struct TrainedRegression {
    learned: Arc<NgramRegression>,
    /// The chosen inverse strength of the penalty.
    pub strength: f64,
    /// By class: the threshold of the best F1 on the held-out parts.
    thresholds: BTreeMap<Positive, f64>,
}

impl TrainedRegression {
    /// Makes the gate for one class of the training split's labels.
    pub fn gate(&self, positive: Positive) -> TfIdf {
        let threshold = self.thresholds.get(&positive).copied().unwrap_or(0.5);
        TfIdf { learned: Arc::clone(&self.learned), threshold }
    }

    /// Returns the regression.
    pub fn regression(&self) -> NgramRegression {
        (*self.learned).clone()
    }
}

/// Trains the baseline on labelled turns, over the n-grams of at least `least_texts` of them. Errors
/// name `path`; `progress` is called after every fit.
///
/// # Errors
/// [`GateError::OneClass`] if all turns have the same class.
pub fn train(
    turns: &[LabelledTurn],
    positives: &[Positive],
    least_texts: u32,
    path: &Path,
    progress: &dyn Fn(),
) -> Result<TrainedRegression, GateError> {
    let need: Vec<bool> = turns.iter().map(|turn| !Positive::Null.is_positive(turn.need)).collect();
    if need.iter().all(|yes| *yes) || !need.contains(&true) {
        return Err(GateError::OneClass { path: path.to_owned() });
    }
    let vectoriser = Vectoriser::fit(turns.iter().map(LabelledTurn::last), least_texts);
    let rows = vectoriser.rows(turns.iter().map(LabelledTurn::last));
    let (strength, held_out) = choose(turns, &rows, &need, progress);
    let all: Vec<usize> = (0..rows.len()).collect();
    let model = Logistic::zero(rows.width()).fit(&rows, &need, &all, strength);
    progress();
    let thresholds = positives
        .iter()
        .filter_map(|class| Some((*class, best_threshold(turns, &held_out, *class)?)))
        .collect();
    Ok(TrainedRegression { learned: Arc::new(model.regression(vectoriser)), strength, thresholds })
}

/// Chooses the strength with the best AUC on the held-out parts, and returns their scores.
fn choose(
    turns: &[LabelledTurn],
    rows: &Sparse,
    need: &[bool],
    progress: &dyn Fn(),
) -> (f64, Vec<f64>) {
    let conversations = conversations(turns);
    let mut held_out = STRENGTHS.map(|_| vec![0.0; rows.len()]);
    for part in 0..PARTS {
        let (out, learned): (Vec<usize>, Vec<usize>) =
            (0..rows.len()).partition(|at| conversations.of()[*at] % PARTS == part);
        // A weaker penalty starts from the solution of the stronger one.
        let mut model = Logistic::zero(rows.width());
        for (strength, scores) in STRENGTHS.into_iter().zip(&mut held_out) {
            model = model.fit(rows, need, &learned, strength);
            for (at, likely) in out.iter().zip(model.likely(rows, &out)) {
                scores[*at] = likely;
            }
            progress();
        }
    }
    let mut best = (f64::NEG_INFINITY, STRENGTHS[0], Vec::new());
    for (strength, scores) in STRENGTHS.into_iter().zip(held_out) {
        let auc = figures::auc(need, &scores).unwrap_or(0.0);
        if auc > best.0 {
            best = (auc, strength, scores);
        }
    }
    (best.1, best.2)
}

impl ScoresTurns for TfIdf {
    fn name(&self) -> String {
        "tfidf".to_owned()
    }

    fn threshold(&self) -> f64 {
        self.threshold
    }

    fn scores(&self, turns: &[LabelledTurn], _: &dyn Fn()) -> Result<Vec<f64>, GateError> {
        let logit = |turn: &LabelledTurn| self.learned.logit(turn.last());
        Ok(turns.iter().map(|turn| 1.0 / (1.0 + (-logit(turn)).exp())).collect())
    }
}
