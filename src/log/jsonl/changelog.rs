//! The histories of conversations that are under way where a replay resumes.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;

use turnstream_schemas::HistoryChange;

use super::super::{LogError, Record, TakeChangelog};
use super::PARTITION;

/// A range of bytes in a file of history changes.
pub(super) struct Changelog {
    pub(super) path: PathBuf,
    /// The offset of the first byte.
    pub(super) from: u64,
    /// The offset after the last byte.
    pub(super) to: u64,
}

impl Changelog {
    /// Passes each change on as a record of a changelog.
    pub(super) fn read(&self, take: TakeChangelog<'_>) -> Result<(), LogError> {
        let failed = |source| LogError::File { path: self.path.display().to_string(), source };
        let mut file = File::open(&self.path).map_err(failed)?;
        file.seek(SeekFrom::Start(self.from)).map_err(failed)?;
        let part = BufReader::new(file.take(self.to.saturating_sub(self.from)));
        for (offset, line) in (0..).zip(part.lines()) {
            let change = serde_json::from_str(&line.map_err(failed)?).map_err(|error| {
                let path = self.path.display();
                LogError::Refused(format!(
                    "{path}: not a change of a history after byte {}: {error}; start over without \
                     --resume",
                    self.from
                ))
            })?;
            let (key, value) = parts(&change).map_err(|error| failed(error.into()))?;
            take(Record { partition: PARTITION, offset, key, value, ..Record::default() })?;
        }
        Ok(())
    }
}

/// Key and value of a record.
type KeyAndValue = (Option<Vec<u8>>, Option<Vec<u8>>);

/// The key and value that a change has on a changelog.
fn parts(change: &HistoryChange) -> serde_json::Result<KeyAndValue> {
    let value = match change {
        HistoryChange::Entry { entry, .. } => Some(serde_json::to_vec(entry)?),
        HistoryChange::Scope { record, .. } => Some(serde_json::to_vec(record)?),
        HistoryChange::Gone { .. } => None,
    };
    Ok((Some(serde_json::to_vec(change.key())?), value))
}
