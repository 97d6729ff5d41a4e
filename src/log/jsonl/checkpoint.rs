//! The progress of a replay, in a file beside its outputs, and the checks before it resumes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::{LogError, Topic};
use super::{Sinks, is_compressed};

/// Everything besides the inputs that determines the outcomes of a replay, under the names that
/// users know: flags, tables of the configuration, versions.
pub type BegunWith = BTreeMap<String, String>;

/// The progress of a replay, with checksums that identify its files and its log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The flags, configuration and versions that the replay began with.
    pub begun_with: BegunWith,
    /// The files hold the outcomes of every input before this offset.
    pub offset: i64,
    /// CRC-32 of those inputs.
    pub inputs: u32,
    /// The byte of the file of history changes at the last boundary between conversations. The
    /// histories of conversations under way lie behind it.
    pub changelog_from: u64,
    /// The written prefix of the file of responses.
    pub responses: Prefix,
    /// The written prefix of the file of recorded turns.
    pub recorded: Prefix,
    /// The written prefix of the file of dead letters.
    pub dead_letters: Prefix,
    /// The written prefix of the file of history changes.
    pub history: Prefix,
}

/// The first bytes of an uncompressed file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefix {
    /// Their number.
    pub bytes: u64,
    /// Their CRC-32.
    pub crc32: u32,
}

/// Why a replay cannot resume. No file was changed.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// There is no checkpoint.
    #[error(
        "{path}: there is no such checkpoint, so there is nothing to resume; a replay that ran to \
         its end leaves none: start over without --resume"
    )]
    NoCheckpoint {
        /// Where the checkpoint was expected.
        path: String,
    },
    /// The file is no readable checkpoint.
    #[error("{path}: not a checkpoint of this version ({source}); start over without --resume")]
    NotACheckpoint {
        /// The file.
        path: String,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// Another configuration, flag or version would give other outcomes.
    #[error(
        "{what} is `{is}`, but the replay began with `{was}`; use that value again, or start over \
         without --resume"
    )]
    BegunOtherwise {
        /// The name of the flag, table or version.
        what: String,
        /// Its earlier value.
        was: String,
        /// Its present value.
        is: String,
    },
    /// The log is not the one that was replayed.
    #[error(
        "the first {offset} inputs are not those that were replayed: {why}; give the log that was \
         replayed, or start over without --resume"
    )]
    OtherInputs {
        /// How many inputs were replayed.
        offset: i64,
        /// The difference.
        why: String,
    },
    /// An output file is not the one that was written.
    #[error(
        "{path}: not the file that the replay wrote: {why}; name that file, or start over without \
         --resume"
    )]
    OtherOutput {
        /// The file.
        path: String,
        /// The difference.
        why: String,
    },
    /// A file cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Checkpoint {
    /// Reads the checkpoint.
    ///
    /// # Errors There is no checkpoint, or the file is not one.
    pub fn read(path: &Path) -> Result<Self, ResumeError> {
        let shown = || path.display().to_string();
        let text = match std::fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(ResumeError::NoCheckpoint { path: shown() });
            }
            other => other.map_err(|source| LogError::File { path: shown(), source })?,
        };
        serde_json::from_slice(&text)
            .map_err(|source| ResumeError::NotACheckpoint { path: shown(), source })
    }

    /// Checks that the replay began with the same settings.
    pub(super) fn check_settings(&self, begun_with: &BegunWith) -> Result<(), ResumeError> {
        let was = &self.begun_with;
        let nothing = || "nothing".to_owned();
        for what in was.keys().chain(begun_with.keys()) {
            let (was, is) = (was.get(what).cloned(), begun_with.get(what).cloned());
            if was != is {
                let (what, was) = (what.clone(), was.unwrap_or_else(nothing));
                return Err(ResumeError::BegunOtherwise {
                    what,
                    was,
                    is: is.unwrap_or_else(nothing),
                });
            }
        }
        Ok(())
    }

    /// Replaces the checkpoint file.
    pub(super) fn save(&self, path: &Path) -> Result<(), LogError> {
        let failed = |source| LogError::File { path: path.display().to_string(), source };
        let text = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        std::fs::write(&name, text).and_then(|()| std::fs::rename(&name, path)).map_err(failed)
    }

    /// The written prefix of the topic's file.
    pub(super) fn prefix_mut(&mut self, topic: Topic) -> Option<&mut Prefix> {
        match topic {
            Topic::Responses => Some(&mut self.responses),
            Topic::Recorded => Some(&mut self.recorded),
            Topic::DeadLetters => Some(&mut self.dead_letters),
            Topic::History => Some(&mut self.history),
            Topic::Turns
            | Topic::Traces
            | Topic::Conversations
            | Topic::Knowledge
            | Topic::Partials
            | Topic::Views => None,
        }
    }

    /// Checks that each file begins with the bytes that were written.
    pub(super) fn check_outputs(&self, sinks: &Sinks) -> Result<(), ResumeError> {
        let prefixes = [self.responses, self.recorded, self.dead_letters, self.history];
        for ((_, path), prefix) in sinks.files().into_iter().zip(prefixes) {
            let Some(path) = path else { continue };
            prefix.check(path)?;
        }
        Ok(())
    }
}

impl Prefix {
    /// Checks that the file begins with these bytes.
    fn check(self, path: &Path) -> Result<(), ResumeError> {
        let shown = || path.display().to_string();
        let other = |why: String| ResumeError::OtherOutput { path: shown(), why };
        let failed = |source| LogError::File { path: shown(), source };
        if is_compressed(path) {
            return Err(other("it is compressed, and such a file cannot be resumed".into()));
        }
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.bytes == 0 => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(other("it is not there".into()));
            }
            other => other.map_err(failed)?,
        };
        let length = file.metadata().map_err(failed)?.len();
        if length < self.bytes {
            let wrote = self.bytes;
            return Err(other(format!("it holds {length} bytes, and the replay wrote {wrote}")));
        }
        let file = BufReader::with_capacity(1 << 16, file).take(self.bytes);
        if crc32(file).map_err(failed)? != self.crc32 {
            return Err(other(format!("its first {} bytes differ", self.bytes)));
        }
        Ok(())
    }
}

/// The CRC-32 of everything that `read` gives.
///
/// # Errors
/// Errors of reading.
pub fn crc32(mut read: impl BufRead) -> std::io::Result<u32> {
    let mut checksum = crc32fast::Hasher::new();
    loop {
        let bytes = read.fill_buf()?;
        if bytes.is_empty() {
            return Ok(checksum.finalize());
        }
        checksum.update(bytes);
        let length = bytes.len();
        read.consume(length);
    }
}
