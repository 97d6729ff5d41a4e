//! How much of a long conversation history gives back: recall of the turns that answer a question,
//! what of them survives where not all is kept, and whether what is recalled has the topic of the
//! turn. `docs/history.md` has the definitions and the figures.
//!
//! Beside the flow. The engine's own [`Database`](turnstream_operators::history::Database) hears a
//! conversation turn by turn and is asked where the question stands: causal by construction.

use std::path::PathBuf;

pub mod attending;
pub mod evidence;
pub mod held;
pub mod material;
pub mod table;
#[cfg(test)]
mod tests;
pub mod topics;

use serde::Serialize;
use turnstream_formats::{Format, FormatError};

use crate::eval::bootstrap::percentiles;

/// Why history cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum HistoryEvalError {
    /// The data set asks nothing of a history.
    #[error("{format} asks nothing of a history; these do: locomo, topiocqa, turns")]
    Format {
        /// The data set.
        format: Format,
    },
    /// The file cannot be read, or a dialogue in it cannot.
    #[error(transparent)]
    Read(#[from] FormatError),
    /// A line of our own format is no turn, or asks amiss.
    #[error("{path}:{line}: {reason}; mend the line, or name the right --format", path = path.display())]
    Turn {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// Nothing is asked in the file.
    #[error(
        "{path} asks nothing of a history as {format}; docs/history.md says what a question is",
        path = path.display()
    )]
    Nothing {
        /// The file.
        path: PathBuf,
        /// What it was read as.
        format: Format,
    },
    /// The table cannot be written.
    #[error("cannot write {path}: {source}; check the folder and its permissions", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// How many utterances may be held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity {
    /// All.
    All,
    /// So many.
    Utterances(usize),
    /// This share of the conversation's, 0..=1.
    Share(f64),
}

impl Capacity {
    /// Entries that may be held in a conversation of so many utterances; an entry holds two. `None`
    /// for all.
    pub fn entries(self, utterances: usize) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Utterances(held) => Some(held / 2),
            Self::Share(share) => Some((utterances as f64 * share) as usize / 2),
        }
    }
}

/// How much more one gives than another on the same questions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The difference of the means.
    pub by: f64,
    /// Its 95 % interval over paired resamples.
    pub interval: [f64; 2],
}

/// The difference of two paired lists of figures, `drawn` being what a bootstrap resamples.
/// `None` where there are fewer than two to draw.
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
