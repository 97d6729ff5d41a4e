//! Reads the rows of sources of kind `table`, one JSON object a line, when the process starts.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// Why a table's rows cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file cannot be read.
    #[error("sources.{name}.file: {file} cannot be read: {source}")]
    Read {
        /// The source's name.
        name: String,
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line is not a valid row.
    #[error("{file}:{line}: {reason}; a row is a JSON object with values by column, on one line")]
    Row {
        /// The file.
        file: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with the line.
        reason: String,
    },
}

/// Reads the rows of a source's file. `read` converts the values of a line to a row; empty lines
/// are skipped.
///
/// # Errors
/// The file cannot be read, or `read` refuses a line.
pub fn rows<R>(
    name: &str,
    file: &Path,
    read: impl Fn(&Map<String, Value>) -> Option<R>,
) -> Result<Vec<R>, TableError> {
    let unreadable = |source| {
        let (name, file) = (name.to_owned(), file.to_owned());
        TableError::Read { name, file, source }
    };
    let lines = BufReader::new(File::open(file).map_err(unreadable)?).lines();
    let mut rows = Vec::new();
    for (at, line) in lines.enumerate() {
        let line = line.map_err(unreadable)?;
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |reason: String| {
            let (file, line) = (file.to_owned(), at + 1);
            TableError::Row { file, line, reason }
        };
        let values: Map<String, Value> =
            serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))?;
        let nothing = || wrong("no column has a text, a number, true or false".to_owned());
        rows.push(read(&values).ok_or_else(nothing)?);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests;
