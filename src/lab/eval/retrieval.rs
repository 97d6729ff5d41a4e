//! Measures retrieval: recall and reciprocal rank of the gold evidence of a data set.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub mod dstc;
pub mod kbp;
mod learned;

use turnstream_sources::documents::DocumentsError;

/// Why an evaluation failed.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}; check the path and its permissions", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A record does not have the format.
    #[error("{path}:{line}: {reason}; is --format right?", path = path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The problem.
        reason: String,
    },
    /// The file has no records with gold evidence.
    #[error("{path} has no record with gold evidence", path = path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
    },
    /// The documents failed.
    #[error(transparent)]
    Documents(#[from] DocumentsError),
    /// The temporary folder of the index cannot be created.
    #[error("cannot make a folder for the index: {0}; make room in the folder for temporary files")]
    Folder(#[source] std::io::Error),
    /// A search failed.
    #[error(transparent)]
    Search(#[from] turnstream_ports::documents::SearchError),
    /// The evaluated stage failed.
    #[error(transparent)]
    Stage(#[from] turnstream_schemas::Fault),
    /// An encoder failed.
    #[error(transparent)]
    Encode(#[from] turnstream_ports::model::encoder::EncodeError),
}

/// Fractions at three depths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct AtDepths {
    /// Among the first.
    #[serde(rename = "1")]
    pub one: f64,
    /// Among the first five.
    #[serde(rename = "5")]
    pub five: f64,
    /// Among the first ten.
    #[serde(rename = "10")]
    pub ten: f64,
}

/// Means over rankings with gold sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Ranked {
    /// The number of rankings.
    pub n: usize,
    /// The share of the gold set among the first k.
    pub recall: AtDepths,
    /// Whether any of the gold set is among the first k.
    pub hit: AtDepths,
    /// 1 ÷ the rank of the first gold item; 0 if none is found.
    pub mrr: f64,
}

impl Ranked {
    /// Computes the figures. Each ranking lists whether the item at each rank is gold, and the size
    /// of its gold set, at least 1.
    pub fn of(rankings: &[(Vec<bool>, usize)]) -> Self {
        let n = rankings.len();
        let mean = |value: &dyn Fn(&[bool], usize) -> f64| {
            let sum: f64 = rankings.iter().map(|(gold, all)| value(gold, *all)).sum();
            sum / n.max(1) as f64
        };
        let found = |gold: &[bool], k: usize| gold.iter().take(k).filter(|it| **it).count();
        let recall = |k| mean(&|gold, all| found(gold, k) as f64 / all.max(1) as f64);
        let hit = |k| mean(&|gold, _| f64::from(u8::from(found(gold, k) > 0)));
        Self {
            n,
            recall: AtDepths { one: recall(1), five: recall(5), ten: recall(10) },
            hit: AtDepths { one: hit(1), five: hit(5), ten: hit(10) },
            mrr: mean(&|gold, _| {
                gold.iter().position(|it| *it).map_or(0.0, |at| 1.0 / (at + 1) as f64)
            }),
        }
    }
}

/// Opens a plain or gzip file as text.
pub(super) fn open(path: &Path) -> Result<Box<dyn BufRead>, EvalError> {
    let file =
        File::open(path).map_err(|source| EvalError::Read { path: path.to_owned(), source })?;
    let gzip = path.extension().is_some_and(|extension| extension == "gz");
    Ok(if gzip {
        Box::new(BufReader::new(MultiGzDecoder::new(file)))
    } else {
        Box::new(BufReader::new(file))
    })
}

/// Reads the records of a JSON lines file.
pub(super) fn records<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, EvalError> {
    let mut records = Vec::new();
    for (at, line) in open(path)?.lines().enumerate() {
        let line = line.map_err(|source| EvalError::Read { path: path.to_owned(), source })?;
        if line.trim().is_empty() {
            continue;
        }
        records.push(serde_json::from_str(&line).map_err(|error| EvalError::Record {
            path: path.to_owned(),
            line: at as u64 + 1,
            reason: error.to_string(),
        })?);
    }
    Ok(records)
}

/// Reads the single record of a file.
pub(super) fn record<T: DeserializeOwned>(path: &Path) -> Result<T, EvalError> {
    let mut text = String::new();
    open(path)?
        .read_to_string(&mut text)
        .map_err(|source| EvalError::Read { path: path.to_owned(), source })?;
    serde_json::from_str(&text).map_err(|error| EvalError::Record {
        path: path.to_owned(),
        line: error.line() as u64,
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_counted_by_hand() {
        let rankings = [
            (vec![true, false, true, false, false, false], 4),
            (vec![false, false, false, false, false, true], 1),
            (vec![], 2),
        ];
        let figures = Ranked::of(&rankings);
        let near =
            |figure: f64, by_hand: f64| assert!((figure - by_hand).abs() < 1e-12, "{figure}");
        near(figures.recall.one, (0.25 + 0.0 + 0.0) / 3.0);
        near(figures.recall.five, (0.5 + 0.0 + 0.0) / 3.0);
        near(figures.recall.ten, (0.5 + 1.0 + 0.0) / 3.0);
        near(figures.hit.one, 1.0 / 3.0);
        near(figures.hit.ten, 2.0 / 3.0);
        near(figures.mrr, (1.0 + 1.0 / 6.0) / 3.0);
        assert_eq!(figures.n, 3);
    }
}
