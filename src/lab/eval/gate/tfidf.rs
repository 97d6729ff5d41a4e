//! The baseline that a learned gate has to beat: logistic regression over TF-IDF of the last
//! utterance alone ([`features`], [`logistic`]). It learns from one data set and scores that one.
//!
//! The strength of the penalty and the threshold are chosen on the training split: three times, the
//! model learns from two thirds of its conversations and scores the rest; the strength of the best
//! AUC over all these scores is kept, and the threshold of the best F1. The n-grams and their idf
//! are taken from the whole training split, without its labels. Never looked at: what is scored.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub mod features;
pub mod logistic;

use features::{Sparse, Vectoriser};
use logistic::Logistic;

use super::{GateError, ScoresTurns, best_threshold, conversations, figures};
use crate::labelled::{LabelledTurn, Positive};

/// Inverse strengths of the penalty that are tried, strongest first.
pub const STRENGTHS: [f64; 6] = [0.03, 0.1, 0.3, 1.0, 3.0, 10.0];
const PARTS: usize = 3;

/// What was learned.
struct Learned {
    vectoriser: Vectoriser,
    model: Logistic,
}

/// The baseline, with the threshold of one class.
#[derive(Clone)]
pub struct TfIdf {
    learned: Arc<Learned>,
    threshold: f64,
}

/// A training that may give a threshold for each class.
pub struct Trained {
    learned: Arc<Learned>,
    /// The inverse strength of the penalty that was chosen.
    pub strength: f64,
    /// By class: the threshold of the best F1 on the parts held out.
    thresholds: BTreeMap<Positive, f64>,
}

impl Trained {
    /// The gate for one class of the training split's labels.
    pub fn gate(&self, positive: Positive) -> TfIdf {
        let threshold = self.thresholds.get(&positive).copied().unwrap_or(0.5);
        TfIdf { learned: Arc::clone(&self.learned), threshold }
    }
}

/// Learns which turns need knowledge. `path` is named where it cannot, and `progress` is called
/// after every fit.
///
/// # Errors
/// [`GateError::OneClass`] where all turns are alike.
pub fn train(
    turns: &[LabelledTurn],
    positives: &[Positive],
    path: &Path,
    progress: &dyn Fn(),
) -> Result<Trained, GateError> {
    let need: Vec<bool> = turns.iter().map(|turn| !Positive::Null.is_positive(turn.need)).collect();
    if need.iter().all(|yes| *yes) || !need.contains(&true) {
        return Err(GateError::OneClass { path: path.to_owned() });
    }
    let vectoriser = Vectoriser::fit(turns.iter().map(LabelledTurn::last));
    let rows = vectoriser.rows(turns.iter().map(LabelledTurn::last));
    let (strength, held_out) = choose(turns, &rows, &need, progress);
    let all: Vec<usize> = (0..rows.len()).collect();
    let model = Logistic::zero(rows.width()).fit(&rows, &need, &all, strength);
    progress();
    let thresholds = positives
        .iter()
        .filter_map(|class| Some((*class, best_threshold(turns, &held_out, *class)?)))
        .collect();
    Ok(Trained { learned: Arc::new(Learned { vectoriser, model }), strength, thresholds })
}

/// The strength of the best AUC on the parts held out, and the scores there.
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
        // A weaker penalty begins where the stronger one ended.
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
        let rows = self.learned.vectoriser.rows(turns.iter().map(LabelledTurn::last));
        let all: Vec<usize> = (0..rows.len()).collect();
        Ok(self.learned.model.likely(&rows, &all))
    }
}
