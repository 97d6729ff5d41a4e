//! Reads the rows of sources of kind `table` when the process starts: one JSON object a line, or a CSV
//! file.

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
    #[error(
        "{file}:{line}: {reason}; a row is a JSON object with values by column, on one line, or, in a \
         .csv file, has as many fields as the first line names columns"
    )]
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
    if file.extension().is_some_and(|it| it.eq_ignore_ascii_case("csv")) {
        return of_csv(File::open(file).map_err(unreadable)?, file, read);
    }
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

/// Reads a CSV file, whose values are texts as they stand there; an empty field is no value.
fn of_csv<R>(
    content: File,
    file: &Path,
    read: impl Fn(&Map<String, Value>) -> Option<R>,
) -> Result<Vec<R>, TableError> {
    let wrong = |line: u64, reason: String| {
        let line = usize::try_from(line).unwrap_or_default();
        TableError::Row { file: file.to_owned(), line, reason }
    };
    let broken = |error: csv::Error| {
        wrong(error.position().map_or(1, csv::Position::line), error.to_string())
    };
    let mut content = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(content);
    let names: Vec<String> = content.headers().map_err(broken)?.iter().map(named).collect();
    let mut rows = Vec::new();
    for record in content.records() {
        let record = record.map_err(broken)?;
        let fields = names.iter().zip(&record).filter(|(_, value)| !value.is_empty());
        let values: Map<String, Value> =
            fields.map(|(name, value)| (name.clone(), Value::from(value))).collect();
        let line = record.position().map_or(1, csv::Position::line);
        let nothing = || wrong(line, "no column has a value".to_owned());
        rows.push(read(&values).ok_or_else(nothing)?);
    }
    Ok(rows)
}

/// Returns the name of a column; the first one may follow the mark of a file in UTF-8.
fn named(header: &str) -> String {
    header.trim_start_matches('\u{feff}').trim().to_owned()
}

#[cfg(test)]
mod tests;
