//! A log in files of JSON lines, for `replay`. It has one partition, 0, which is assigned once, and
//! ends with [`End`](super::Event::End).
//!
//! Inputs come from an iterator that the loader of a format makes. Outcomes arrive in any order and
//! are written in the order of their inputs: an outcome at or above the lowest pending input waits
//! until everything before it is written. Two replays of one file therefore give the same bytes,
//! whatever the number of workers.
//!
//! An interrupted replay resumes at the first input whose outcomes may not all be written: see
//! [`Checkpoint`]. It restores the histories of conversations that are under way there from the
//! file of history changes, which serves as the changelog. Files whose names end in `.gz` are read
//! and written compressed; a replay with compressed outputs cannot be resumed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use flate2::read::MultiGzDecoder;

use super::{LogError, Record, Topic};

mod changelog;
mod checkpoint;
mod consumer;
mod producer;
mod sink;
#[cfg(test)]
mod tests;

use changelog::Changelog;
pub use checkpoint::{BegunWith, Checkpoint, Prefix, ResumeError, crc32};
pub use consumer::JsonlConsumer;
pub use producer::JsonlProducer;

/// The only partition.
pub const PARTITION: i32 = 0;
/// The only generation of its assignment.
pub const GENERATION: u32 = 1;

/// Inputs in offset order, as a loader gives them. Offsets rise by one from 0, the partition is 0,
/// and the key names the conversation. The last record of a conversation is marked as such if the
/// loader knows it.
pub type Records = Box<dyn Iterator<Item = Result<Record, LogError>> + Send>;

/// The files that outcomes go to. Outcomes of a topic without a file are not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sinks {
    /// One response a line.
    pub responses: Option<PathBuf>,
    /// One recorded turn a line.
    pub recorded: Option<PathBuf>,
    /// One dead letter a line, with its bytes in base64.
    pub dead_letters: Option<PathBuf>,
    /// One history change a line. A checkpoint needs this file: histories are restored from it.
    pub history: Option<PathBuf>,
    /// The [`Checkpoint`], replaced whole at each commit.
    pub checkpoint: Option<PathBuf>,
}

impl Sinks {
    /// The topics that can be written, each with its file.
    fn files(&self) -> [(Topic, Option<&Path>); 4] {
        [
            (Topic::Responses, self.responses.as_deref()),
            (Topic::Recorded, self.recorded.as_deref()),
            (Topic::DeadLetters, self.dead_letters.as_deref()),
            (Topic::History, self.history.as_deref()),
        ]
    }
}

/// A summary of all inputs before an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// CRC-32 of these inputs.
    inputs: u32,
    /// Whether every conversation among them has ended.
    is_boundary: bool,
}

/// The marks of offsets that were read and not yet written out. The consumer inserts them and the
/// producer removes them.
type Marks = Arc<Mutex<BTreeMap<i64, Mark>>>;

/// A replay that has not yet changed any file.
pub struct Opening {
    consumer: JsonlConsumer,
    sinks: Sinks,
    checkpoint: Checkpoint,
    resumes: bool,
    marks: Marks,
}

impl Opening {
    /// Begins a replay from the first input.
    pub fn begin(records: Records, sinks: Sinks, begun_with: BegunWith) -> Self {
        let marks = Marks::default();
        let consumer = JsonlConsumer::new(records, Arc::clone(&marks));
        let checkpoint = Checkpoint { begun_with, ..Checkpoint::default() };
        Self { consumer, sinks, checkpoint, resumes: false, marks }
    }

    /// Resumes a replay where an earlier one stopped. Reads the inputs before that place and checks
    /// the files.
    ///
    /// # Errors
    /// There is no checkpoint, or the log, the files or `begun_with` are not those of that replay.
    pub fn resume(
        records: Records,
        sinks: Sinks,
        begun_with: &BegunWith,
    ) -> Result<Self, ResumeError> {
        let path = sinks.checkpoint.as_deref().unwrap_or(Path::new("-"));
        let checkpoint = Checkpoint::read(path)?;
        checkpoint.check_settings(begun_with)?;
        checkpoint.check_outputs(&sinks)?;
        let marks = Marks::default();
        let mut consumer = JsonlConsumer::new(records, Arc::clone(&marks));
        let changelog = sinks.history.clone().map(|path| Changelog {
            path,
            from: checkpoint.changelog_from,
            to: checkpoint.history.bytes,
        });
        consumer.pass(&checkpoint, changelog)?;
        Ok(Self { consumer, sinks, checkpoint, resumes: true, marks })
    }

    /// The offset of the first input that will be read.
    pub fn offset(&self) -> i64 {
        self.checkpoint.offset
    }

    /// Opens the files. Empties them, or cuts them to their length at the checkpoint.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn open(self) -> Result<(JsonlConsumer, JsonlProducer), LogError> {
        let Self { consumer, sinks, checkpoint, resumes, marks } = self;
        if let Some(path) = sinks.checkpoint.as_deref().filter(|_| !resumes) {
            // The checkpoint of another replay does not describe the files that begin here.
            if let Err(source) = std::fs::remove_file(path)
                && source.kind() != ErrorKind::NotFound
            {
                return Err(LogError::File { path: path.display().to_string(), source });
            }
        }
        Ok((consumer, JsonlProducer::open(&sinks, checkpoint, marks)?))
    }
}

/// Opens a file for reading by lines, decompressing it where its name ends in `.gz`.
pub fn reader(path: &Path) -> Result<Box<dyn BufRead + Send>, LogError> {
    let file = File::open(path)
        .map_err(|source| LogError::File { path: path.display().to_string(), source })?;
    Ok(if is_compressed(path) {
        Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file)))
    } else {
        Box::new(BufReader::with_capacity(1 << 16, file))
    })
}

/// Whether a file of this name is read and written compressed.
pub fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"))
}
