//! How well a gate tells the turns that need knowledge: the measures, the gates that are compared,
//! the table of them and the report with plots. `docs/gate.md` has the definitions and the figures.
//!
//! Beside the flow. A gate gives every labelled turn a score of its *need of knowledge*; what is
//! measured is one class of one data set's labels ([`Positive`]). For the class *null* the score is
//! turned round: a turn is said to be null where the gate does not retrieve.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

pub mod figures;
pub mod gates;
pub mod groups;
pub mod intervals;
pub mod learned;
pub mod report;
pub mod table;
#[cfg(test)]
mod tests;
pub mod tfidf;

use figures::{Confusion, Figures, Scored};
use groups::{Group, by_domain, by_position};
use intervals::{Intervals, intervals};
use turnstream_sources::knowledge::KnowledgeError;

use super::bootstrap::Conversations;
use super::retrieval::EvalError;
use crate::labelled::{LabelledError, LabelledTurn, Positive};

/// A gate as an evaluation sees it.
pub trait ScoresTurns {
    /// What it is called in tables.
    fn name(&self) -> String;
    /// It retrieves where the score reaches this; 0..=1.
    fn threshold(&self) -> f64;
    /// Whether the scores rest on nothing that comes after the turn. A score that reads
    /// [`LabelledTurn::reply`] is not causal.
    fn is_causal(&self) -> bool {
        true
    }
    /// How likely each turn needs knowledge, 0..=1, in the order of the turns. `progress` is called
    /// once or so for every turn where scoring takes long.
    ///
    /// # Errors
    /// [`GateError::Failed`] where the gate cannot score.
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
    /// There is nothing to learn from.
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
    /// A gate gave no scores, or not one for each turn.
    #[error("the gate {gate} cannot score the turns: {source}")]
    Failed {
        /// The gate.
        gate: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file of the report or the table cannot be written.
    #[error("cannot write {path}: {source}; check the folder and its permissions", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The report cannot be drawn.
    #[error("cannot draw the report: {0}")]
    Draw(String),
}

/// A gate's figures for one class of one data set's labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
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
    /// The gate retrieves where the score of need reaches this; it says *null* where it does not.
    pub threshold: f64,
    /// Precision, recall, F1, AUC, false discovery rate.
    #[serde(flatten)]
    pub figures: Figures,
    /// What was right and what was wrong.
    pub confusion: Confusion,
    /// The 95 % intervals of the figures.
    pub intervals: Intervals,
    /// Whether the score rests on nothing that comes after the turn.
    pub causal: bool,
    /// By position of the turn in its conversation.
    pub by_position: BTreeMap<u32, Group>,
    /// By domain, where the data set tells one.
    pub by_domain: BTreeMap<String, Group>,
}

/// The class's score and decision for each turn, from the scores of need.
pub fn scored(turns: &[LabelledTurn], need: &[f64], threshold: f64, positive: Positive) -> Scored {
    let turned = positive == Positive::Null;
    Scored {
        positive: turns.iter().map(|turn| positive.is_positive(turn.need)).collect(),
        predicted: need.iter().map(|need| (*need >= threshold) != turned).collect(),
        scores: need.iter().map(|need| if turned { 1.0 - need } else { *need }).collect(),
    }
}

/// The threshold on the score of need that gives a class its best F1 on these turns: for the
/// training side. `None` where no turn is of the class.
pub fn best_threshold(turns: &[LabelledTurn], need: &[f64], positive: Positive) -> Option<f64> {
    let Scored { positive: class, scores, .. } = scored(turns, need, 0.5, positive);
    let threshold = figures::best_f1(&class, &scores)?;
    Some(if positive == Positive::Null { 1.0 - threshold } else { threshold })
}

/// Has a gate score turns.
///
/// # Errors
/// [`GateError::Failed`] where it cannot, or does not score every turn with a number.
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

/// The conversations that turns belong to, for resampling.
pub fn conversations(turns: &[LabelledTurn]) -> Conversations {
    Conversations::new(turns.iter().map(|turn| turn.conversation.as_str()))
}

/// A gate's figures from its scores of need.
pub fn measured(
    gate: &dyn ScoresTurns,
    turns: &[LabelledTurn],
    scored: &Scored,
    (positive, threshold): (Positive, f64),
) -> Measured {
    let conversations = conversations(turns);
    let confusion = scored.confusion();
    Measured {
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
