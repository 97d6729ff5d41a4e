//! Measures how well gates find the turns that need knowledge: the measures, the compared gates,
//! the table and the report with plots. `docs/gate.md` has the definitions and the figures.
//!
//! The evaluation runs outside the flow. A gate gives every labelled turn a score of its *need of
//! knowledge*; a measurement is about one class of one data set's labels ([`Positive`]). For the
//! class *null* the score is inverted: the prediction is null if the gate does not retrieve.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

pub mod drafts;
pub mod encoder;
pub mod figures;
pub mod gates;
pub mod groups;
pub mod instructed;
pub mod intervals;
pub mod learned;
pub mod report;
pub mod table;
#[cfg(test)]
mod tests;
pub mod tfidf;

use figures::{ClassFigures, Confusion, Scored};
use groups::{Group, by_domain, by_position};
use intervals::{FigureIntervals, intervals};
use turnstream_sources::knowledge::KnowledgeError;

use super::bootstrap::Conversations;
use super::plots::DrawError;
use super::retrieval::EvalError;
use crate::labelled::{LabelledError, LabelledTurn, Positive};

/// A gate under evaluation.
pub trait ScoresTurns {
    /// Returns the name in tables.
    fn name(&self) -> String;
    /// Returns the score from which the gate retrieves, 0..=1.
    fn threshold(&self) -> f64;
    /// Whether the scores use nothing that comes after the turn. A score that reads
    /// [`LabelledTurn::reply`] is not causal.
    fn is_causal(&self) -> bool {
        true
    }
    /// Returns how likely each turn needs knowledge, 0..=1, in the order of the turns. A slow gate
    /// calls `progress` about once per turn.
    ///
    /// # Errors
    /// [`GateError::Failed`] if the gate cannot score.
    fn scores(&self, turns: &[LabelledTurn], progress: &dyn Fn()) -> Result<Vec<f64>, GateError>;
}

/// Why a gate cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The turns cannot be read.
    #[error(transparent)]
    Labelled(#[from] LabelledError),
    /// The snippets to retrieve from cannot be read or searched.
    #[error(transparent)]
    Snippets(#[from] EvalError),
    /// The lexical gate's graph cannot be opened.
    #[error(transparent)]
    Knowledge(#[from] KnowledgeError),
    /// The training split has only one class.
    #[error(
        "{path} has turns of one class alone; give the training split, with labels",
        path = path.display()
    )]
    OneClass {
        /// The training split.
        path: PathBuf,
    },
    /// A trained gate cannot be read.
    #[error(transparent)]
    Trained(#[from] turnstream_models::gate::GateError),
    /// A gate failed, or did not return one score per turn.
    #[error("the gate {gate} cannot score the turns: {source}")]
    Failed {
        /// The gate.
        gate: String,
        /// The gate's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file of the report or the table cannot be written.
    #[error("cannot write {path}: {source}; check the folder and its permissions", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The report cannot be drawn.
    #[error(transparent)]
    Draw(#[from] DrawError),
    /// The page cannot be made.
    #[error("cannot make the report: {0}")]
    Page(#[from] minijinja::Error),
}

/// A gate's figures for one class of one data set's labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredGate {
    /// The gate.
    pub model: String,
    /// The class.
    pub positive: &'static str,
    /// Turns.
    pub n: usize,
    /// Conversations.
    pub conversations: usize,
    /// Turns of the class.
    pub positives: u64,
    /// The score of need from which the gate retrieves; below it, it predicts *null*.
    pub threshold: f64,
    /// Precision, recall, F1, AUC, false discovery rate.
    #[serde(flatten)]
    pub figures: ClassFigures,
    /// Right and wrong predictions.
    pub confusion: Confusion,
    /// The 95 % intervals of the figures.
    pub intervals: FigureIntervals,
    /// Whether the score uses nothing that comes after the turn.
    pub causal: bool,
    /// By the turn's position in its conversation.
    pub by_position: BTreeMap<u32, Group>,
    /// By domain, if the data set has domains.
    pub by_domain: BTreeMap<String, Group>,
}

/// Returns the class's score and prediction for each turn, from the scores of need.
pub fn scored(turns: &[LabelledTurn], need: &[f64], threshold: f64, positive: Positive) -> Scored {
    let turned = positive == Positive::Null;
    Scored {
        positive: turns.iter().map(|turn| positive.is_positive(turn.need)).collect(),
        predicted: need.iter().map(|need| (*need >= threshold) != turned).collect(),
        scores: need.iter().map(|need| if turned { 1.0 - need } else { *need }).collect(),
    }
}

/// Returns the threshold on the score of need with the class's best F1 on these turns, for
/// training; `None` if no turn has the class.
pub fn best_threshold(turns: &[LabelledTurn], need: &[f64], positive: Positive) -> Option<f64> {
    let Scored { positive: class, scores, .. } = scored(turns, need, 0.5, positive);
    let threshold = figures::best_f1(&class, &scores)?;
    Some(if positive == Positive::Null { 1.0 - threshold } else { threshold })
}

/// Scores turns with a gate.
///
/// # Errors
/// [`GateError::Failed`] if the gate fails, or does not return a number for every turn.
pub fn scores(
    gate: &dyn ScoresTurns,
    turns: &[LabelledTurn],
    progress: &dyn Fn(),
) -> Result<Vec<f64>, GateError> {
    let scores = gate.scores(turns, progress)?;
    if scores.len() == turns.len() && scores.iter().all(|score| score.is_finite()) {
        return Ok(scores);
    }
    let why = format!(
        "{} scores that are numbers for {} turns",
        scores.iter().filter(|score| score.is_finite()).count(),
        turns.len()
    );
    Err(GateError::Failed { gate: gate.name(), source: why.into() })
}

/// Returns the conversations of the turns, for resampling.
pub fn conversations(turns: &[LabelledTurn]) -> Conversations {
    Conversations::new(turns.iter().map(|turn| turn.conversation.as_str()))
}

/// Computes a gate's figures from its scores of need.
pub fn measured(
    gate: &dyn ScoresTurns,
    turns: &[LabelledTurn],
    scored: &Scored,
    (positive, threshold): (Positive, f64),
) -> MeasuredGate {
    let conversations = conversations(turns);
    let confusion = scored.confusion();
    MeasuredGate {
        model: gate.name(),
        positive: positive.name(),
        n: turns.len(),
        conversations: conversations.of().iter().max().map_or(0, |last| last + 1),
        positives: confusion.tp + confusion.missed,
        threshold,
        figures: scored.figures(),
        confusion,
        intervals: intervals(scored, &conversations),
        causal: gate.is_causal(),
        by_position: by_position(turns, scored),
        by_domain: by_domain(turns, scored),
    }
}
