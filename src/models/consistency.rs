//! The judge of consistency that `turnstream train consistency` makes: a static table with a calibration.

use std::path::{Path, PathBuf};

use turnstream_ports::model::calibration::Calibration;

use super::static_table::{StaticTable, TableError};

/// Why there is no judge.
#[derive(Debug, thiserror::Error)]
pub enum ConsistencyError {
    /// The table cannot be used.
    #[error("consistency.table: {0}")]
    Table(#[from] TableError),
    /// It is a table for something else.
    #[error(
        "consistency.table: {} was not trained to judge; make one with `turnstream train consistency`",
        .0.display()
    )]
    NoJudge(PathBuf),
}

/// A table that was trained to judge, and its calibration.
///
/// # Errors
/// The file cannot be read, or is no table that was trained for it.
pub fn open(path: &Path) -> Result<(StaticTable, Calibration), ConsistencyError> {
    let table = StaticTable::open(path)?;
    let calibration = table.calibration();
    let calibration = calibration.ok_or_else(|| ConsistencyError::NoJudge(path.to_owned()))?;
    Ok((table, calibration))
}
