//! Measures history in long conversations: the recall of the turns that answer a question, how many
//! of them survive eviction, and whether recalled entries have the topic of the turn.
//! `docs/history.md` has the definitions and the figures.
//!
//! The evaluation runs outside the flow. The engine's own
//! [`Database`](turnstream_operators::history::Database) receives a conversation turn by turn, and
//! is queried at the place of the question, so the measure is causal by construction.

use std::path::PathBuf;

pub mod attending;
pub mod evidence;
pub mod held;
pub mod material;
pub mod table;
#[cfg(test)]
pub(super) mod tests;
pub mod topics;

use serde::Serialize;
use turnstream_formats::{Format, FormatError};

use crate::eval::bootstrap::percentiles;

/// Why history cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum HistoryEvalError {
    /// The data set has no questions about a history.
    #[error("{format} has no questions about a history; use locomo, topiocqa or turns")]
    Format {
        /// The data set.
        format: Format,
    },
    /// The file, or a dialogue in it, cannot be read.
    #[error(transparent)]
    Read(#[from] FormatError),
    /// A line of our own format is not a turn, or its question is invalid.
    #[error(
        "{path}:{line}: {reason}; fix the line, or name the right --format",
        path = path.display()
    )]
    Turn {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The problem.
        reason: String,
    },
    /// The file contains no questions.
    #[error(
        "{path} has no questions about a history in the format {format}; docs/history.md \
         defines them",
        path = path.display()
    )]
    Nothing {
        /// The file.
        path: PathBuf,
        /// The format that it was read as.
        format: Format,
    },
    /// The table cannot be written.
    #[error("cannot write {path}: {source}; check the folder and its permissions", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// How many utterances a history may hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity {
    /// All utterances.
    All,
    /// A number of utterances.
    Utterances(usize),
    /// A share of the conversation's utterances, 0..=1.
    Share(f64),
}

impl Capacity {
    /// Returns the entries that a conversation of `utterances` utterances may hold; an entry holds
    /// two utterances. `None` for all.
    pub fn entries(self, utterances: usize) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Utterances(held) => Some(held / 2),
            Self::Share(share) => Some((utterances as f64 * share) as usize / 2),
        }
    }
}

/// The difference between two ways on the same questions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The difference of the means.
    pub by: f64,
    /// The 95 % interval over paired resamples.
    pub interval: [f64; 2],
}

/// Returns the difference of two paired lists of figures; the bootstrap resamples `drawn`. `None`
/// if there are fewer than two items to draw.
pub fn difference(
    ours: &[f64],
    theirs: &[f64],
    drawn: &super::bootstrap::Conversations,
) -> Option<Difference> {
    let by: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours - theirs).collect();
    let of = drawn.of();
    let means = drawn.resamples(|times| {
        let (mut sum, mut count) = (0.0, 0.0);
        for (difference, of) in by.iter().zip(of) {
            sum += difference * f64::from(times[*of]);
            count += f64::from(times[*of]);
        }
        sum / f64::max(count, 1.0)
    });
    let interval = percentiles(means)?;
    Some(Difference { by: by.iter().sum::<f64>() / by.len() as f64, interval })
}
