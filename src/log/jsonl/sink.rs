//! A file of outcomes.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::LogError;
use super::{Prefix, is_compressed};

/// A file to which lines are appended.
pub(super) struct Sink {
    path: PathBuf,
    form: Form,
    bytes: u64,
    checksum: crc32fast::Hasher,
}

enum Form {
    Plain(BufWriter<Box<dyn Write + Send>>),
    Compressed(GzEncoder<BufWriter<File>>),
}

impl Sink {
    /// Opens the file, which begins with the bytes of `keep`, and cuts it to them. An empty `keep`
    /// empties the file.
    pub(super) fn open(path: &Path, keep: Prefix) -> Result<Self, LogError> {
        let failed = |source| LogError::File { path: path.display().to_string(), source };
        let mut options = OpenOptions::new();
        let mut file =
            options.create(true).truncate(false).write(true).open(path).map_err(failed)?;
        // A device such as /dev/null has no length, and a pipe no place.
        if file.metadata().map_err(failed)?.is_file() {
            file.set_len(keep.bytes).map_err(failed)?;
            file.seek(SeekFrom::Start(keep.bytes)).map_err(failed)?;
        }
        let form = if is_compressed(path) {
            let file = BufWriter::with_capacity(1 << 16, file);
            Form::Compressed(GzEncoder::new(file, Compression::default()))
        } else {
            Form::Plain(BufWriter::with_capacity(1 << 16, Box::new(file)))
        };
        let checksum = crc32fast::Hasher::new_with_initial(keep.crc32);
        Ok(Self { path: path.to_owned(), form, bytes: keep.bytes, checksum })
    }

    /// Writes to a stream other than a file; `name` appears in messages.
    pub(super) fn stream(name: &str, stream: Box<dyn Write + Send>) -> Self {
        let form = Form::Plain(BufWriter::with_capacity(1 << 16, stream));
        Self { path: name.into(), form, bytes: 0, checksum: crc32fast::Hasher::new() }
    }

    /// The length and checksum of all lines so far.
    pub(super) fn prefix(&self) -> Prefix {
        Prefix { bytes: self.bytes, crc32: self.checksum.clone().finalize() }
    }

    pub(super) fn write(&mut self, line: &[u8]) -> Result<(), LogError> {
        let written = match &mut self.form {
            Form::Plain(file) => file.write_all(line).and_then(|()| file.write_all(b"\n")),
            Form::Compressed(file) => file.write_all(line).and_then(|()| file.write_all(b"\n")),
        };
        self.bytes += line.len() as u64 + 1;
        self.checksum.update(line);
        self.checksum.update(b"\n");
        written.map_err(|source| self.failed(source))
    }

    /// Hands plain lines to the operating system. Compressed lines follow only when the sink is
    /// finished.
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
