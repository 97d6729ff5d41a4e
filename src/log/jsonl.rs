//! JSON lines: a log in files, for `replay`. It has one partition, 0, assigned once, and comes to
//! an [`End`](super::Event::End).
//!
//! Inputs come from an iterator, which a loader of some format makes. Outcomes come in any order
//! and are written in the order of their inputs: what lies at or above the lowest pending input
//! is kept until everything before it is written, so that two replays of one file give the same
//! bytes however many workers ran.
//!
//! A replay that was cut short goes on at the last boundary between conversations that it has
//! written everything before: see [`Written`]. Files whose names end in `.gz` are read and
//! written compressed; compressed outputs cannot be gone on with.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Serialize};

use super::{LogError, Record};

mod consumer;
mod producer;
mod sink;
#[cfg(test)]
mod tests;

pub use consumer::JsonlConsumer;
pub use producer::JsonlProducer;

/// The only partition.
pub const PARTITION: i32 = 0;
/// The only generation of its assignment.
pub const GENERATION: u32 = 1;

/// Inputs in offset order, as a loader gives them: offsets rise, the partition is 0, the key
/// names the conversation, and the last record of a conversation says so.
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
    /// One history change a line.
    pub history: Option<PathBuf>,
    /// Holds the [`Written`] of the last boundary, replaced whole at each.
    pub checkpoint: Option<PathBuf>,
}

/// How far a replay got: up to a boundary between conversations, and how long each file was
/// then. To go on, give it to [`open`] with the same inputs and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// Every input before this offset has its outcomes in the files, and no conversation is
    /// under way.
    pub offset: i64,
    /// Bytes of responses, not compressed.
    pub responses: u64,
    /// Bytes of recorded turns.
    pub recorded: u64,
    /// Bytes of dead letters.
    pub dead_letters: u64,
    /// Bytes of history changes.
    pub history: u64,
}

impl Written {
    /// Reads a checkpoint file; `None` where there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, LogError> {
        let file = |source| LogError::File { path: path.display().to_string(), source };
        let text = match std::fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(file)?,
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            LogError::Refused(format!(
                "{}: not a checkpoint of a replay ({error}); remove it to begin anew",
                path.display()
            ))
        })
    }
}

/// Offsets at which no conversation is under way; the consumer finds them, the producer uses
/// them.
type Boundaries = Arc<Mutex<BTreeSet<i64>>>;

/// Opens the log: from the beginning, emptying the files, or where an earlier replay got to,
/// cutting the files to what they held then.
pub fn open(
    records: Records,
    sinks: &Sinks,
    resume: Option<&Written>,
) -> Result<(JsonlConsumer, JsonlProducer), LogError> {
    let boundaries = Boundaries::default();
    let producer = JsonlProducer::open(sinks, resume, Arc::clone(&boundaries))?;
    let consumer = JsonlConsumer::new(records, resume.map(|written| written.offset), boundaries);
    Ok((consumer, producer))
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

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"))
}
