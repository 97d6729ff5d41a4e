//! Reads the consistency judge that `turnstream train consistency` writes: a static table with a
//! calibration.

use std::path::{Path, PathBuf};

use turnstream_ports::model::calibration::Calibration;

use super::static_table::{StaticTable, TableError};

/// Why the judge cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConsistencyError {
    /// The table cannot be used.
    #[error("consistency.table: {0}")]
    Table(#[from] TableError),
    /// The table was trained for another purpose.
    #[error(
        "consistency.table: {} was not trained to judge; make one with `turnstream train consistency`",
        .0.display()
    )]
    NoJudge(PathBuf),
}

/// Reads a table that was trained to judge, and its calibration.
///
/// # Errors
/// The file cannot be read, or is not such a table.
pub fn open(path: &Path) -> Result<(StaticTable, Calibration), ConsistencyError> {
    let table = StaticTable::open(path)?;
    let calibration = table.calibration();
    let calibration = calibration.ok_or_else(|| ConsistencyError::NoJudge(path.to_owned()))?;
    Ok((table, calibration))
}
