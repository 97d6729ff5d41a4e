//! One file of outcomes.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::LogError;
use super::is_compressed;

/// A file that lines are appended to.
pub(super) struct Sink {
    path: PathBuf,
    form: Form,
    /// Bytes of lines so far, not compressed.
    pub(super) bytes: u64,
}

enum Form {
    Plain(BufWriter<File>),
    Compressed(GzEncoder<BufWriter<File>>),
}

impl Sink {
    /// Opens the file with its first `keep` bytes; none empties it.
    pub(super) fn open(path: &Path, keep: Option<u64>) -> Result<Self, LogError> {
        let failed = |source| LogError::File { path: path.display().to_string(), source };
        if keep.is_some() && is_compressed(path) {
            return Err(LogError::Refused(format!(
                "{}: a compressed file cannot be gone on with; name one without .gz, or begin \
                 anew",
                path.display()
            )));
        }
        let keep = keep.unwrap_or(0);
        let mut options = OpenOptions::new();
        let mut file =
            options.create(true).truncate(false).write(true).open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length < keep {
            return Err(LogError::Refused(format!(
                "{}: holds {length} bytes, and the checkpoint says {keep}; it is not the file of \
                 that replay, so begin anew",
                path.display()
            )));
        }
        file.set_len(keep).map_err(failed)?;
        file.seek(SeekFrom::Start(keep)).map_err(failed)?;
        let writer = BufWriter::with_capacity(1 << 16, file);
        let form = if is_compressed(path) {
            Form::Compressed(GzEncoder::new(writer, Compression::default()))
        } else {
            Form::Plain(writer)
        };
        Ok(Self { path: path.to_owned(), form, bytes: keep })
    }

    pub(super) fn write(&mut self, line: &[u8]) -> Result<(), LogError> {
        let written = match &mut self.form {
            Form::Plain(file) => file.write_all(line).and_then(|()| file.write_all(b"\n")),
            Form::Compressed(file) => file.write_all(line).and_then(|()| file.write_all(b"\n")),
        };
        self.bytes += line.len() as u64 + 1;
        written.map_err(|source| self.failed(source))
    }

    /// Hands plain lines to the system; compressed ones only when it is finished.
    pub(super) fn flush(&mut self) -> Result<(), LogError> {
        match &mut self.form {
            Form::Plain(file) => file.flush().map_err(|source| self.failed(source)),
            Form::Compressed(_) => Ok(()),
        }
    }

    pub(super) fn finish(&mut self) -> Result<(), LogError> {
        let finished = match &mut self.form {
            Form::Plain(file) => file.flush(),
            Form::Compressed(file) => file.try_finish().and_then(|()| file.get_mut().flush()),
        };
        finished.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: std::io::Error) -> LogError {
        LogError::File { path: self.path.display().to_string(), source }
    }
}
