//! Writes temporary files of labelled dialogues, for tests.

use std::path::PathBuf;

use tempfile::TempDir;

/// A temporary folder with files.
pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// Writes a file with each record on one line.
    pub(super) fn write(&self, name: &str, records: &[&str]) -> PathBuf {
        let path = self.0.path().join(name);
        let lines = records.iter().map(|record| format!("{}\n", record.replace('\n', " ")));
        std::fs::write(&path, lines.collect::<String>()).expect("written");
        path
    }
}
