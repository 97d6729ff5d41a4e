//! Files of labelled dialogues that tests write.

use std::path::PathBuf;

use tempfile::TempDir;

/// A folder with files, gone with it.
pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// A file with this text, each of its records on one line.
    pub(super) fn write(&self, name: &str, records: &[&str]) -> PathBuf {
        let path = self.0.path().join(name);
        let lines = records.iter().map(|record| format!("{}\n", record.replace('\n', " ")));
        std::fs::write(&path, lines.collect::<String>()).expect("written");
        path
    }
}
