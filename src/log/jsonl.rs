//! JSON lines: a log in files, for `replay`. It has one partition, 0, assigned once, and comes to
//! an [`End`](super::Event::End).
//!
//! Inputs come from an iterator, which a loader of some format makes. Outcomes come in any order
//! and are written in the order of their inputs: what lies at or above the lowest pending input
//! is kept until everything before it is written, so that two replays of one file give the same
//! bytes however many workers ran.
//!
//! A replay that was cut short goes on at the input before which it has written everything: see
//! [`Checkpoint`]. The histories of conversations that are under way there are restored from the
//! file of their changes, as a log's changelog is. Files whose names end in `.gz` are read and
//! written compressed; compressed outputs cannot be gone on with.

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

/// Inputs in offset order, as a loader gives them: offsets rise by one from 0, the partition is 0,
/// the key names the conversation, and the last record of a conversation says so, where the loader
/// knows.
pub type Records = Box<dyn Iterator<Item = Result<Record, LogError>> + Send>;

/// The files that outcomes go to. What has no file is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sinks {
    /// One response a line.
    pub responses: Option<PathBuf>,
    /// One recorded turn a line.
    pub recorded: Option<PathBuf>,
    /// One dead letter a line, with its bytes in base64.
    pub dead_letters: Option<PathBuf>,
    /// One history change a line. Has to be there with a checkpoint: histories are restored from it.
    pub history: Option<PathBuf>,
    /// Holds the [`Checkpoint`], replaced whole at each commit.
    pub checkpoint: Option<PathBuf>,
}

impl Sinks {
    /// The topics that can be written, and the file of each.
    fn files(&self) -> [(Topic, Option<&Path>); 4] {
        [
            (Topic::Responses, self.responses.as_deref()),
            (Topic::Recorded, self.recorded.as_deref()),
            (Topic::DeadLetters, self.dead_letters.as_deref()),
            (Topic::History, self.history.as_deref()),
        ]
    }
}

/// What lies before an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// CRC-32 of all inputs.
    inputs: u32,
    /// Whether every conversation has ended.
    is_boundary: bool,
}

/// The marks of offsets that were read and not yet written out; the consumer makes them, the
/// producer uses them.
type Marks = Arc<Mutex<BTreeMap<i64, Mark>>>;

/// A replay whose files were not touched yet.
pub struct Opening {
    consumer: JsonlConsumer,
    sinks: Sinks,
    checkpoint: Checkpoint,
    resumes: bool,
    marks: Marks,
}

impl Opening {
    /// From the beginning.
    pub fn begin(records: Records, sinks: Sinks, begun_with: BegunWith) -> Self {
        let marks = Marks::default();
        let consumer = JsonlConsumer::new(records, Arc::clone(&marks));
        let checkpoint = Checkpoint { begun_with, ..Checkpoint::default() };
        Self { consumer, sinks, checkpoint, resumes: false, marks }
    }

    /// Where an earlier replay got to. Reads the inputs before that, and what the files hold.
    ///
    /// # Errors
    /// There is no such place, or log, files or `begun_with` are not those of that replay.
    pub fn resume(
        records: Records,
        sinks: Sinks,
        begun_with: &BegunWith,
    ) -> Result<Self, ResumeError> {
        let path = sinks.checkpoint.as_deref().unwrap_or(Path::new("-"));
        let checkpoint = Checkpoint::read(path, begun_with)?;
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

    /// The first input that will be read.
    pub fn offset(&self) -> i64 {
        self.checkpoint.offset
    }

    /// Opens the files: empties them, or cuts them to what they held where the replay goes on.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn open(self) -> Result<(JsonlConsumer, JsonlProducer), LogError> {
        let Self { consumer, sinks, checkpoint, resumes, marks } = self;
        if let Some(path) = sinks.checkpoint.as_deref().filter(|_| !resumes) {
            // That of another replay says nothing of these files from here on.
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
