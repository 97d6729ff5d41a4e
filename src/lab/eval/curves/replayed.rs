//! Replays conversations of a data set through the whole flow, in this process and as often as
//! there are configurations to measure. The replies of the data set enter the history.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use tempfile::NamedTempFile;
use turnstream_engine::config::Config;
use turnstream_engine::dependencies::{Dependencies, DependencyError, Reach};
use turnstream_engine::metrics::Metrics;
use turnstream_engine::serve::{EngineError, serve};
use turnstream_formats::{Format, FormatError, LoggedItem};
use turnstream_log::jsonl::{self, BegunWith, Opening, Records, Sinks};
use turnstream_log::{Ends, LogError, Record};
use turnstream_models::language::AnswerFiles;
use turnstream_operators::history::ResponseSource;
use turnstream_schemas::{ConversationId, Turn};
use turnstream_sources::knowledge::KnowledgeError;

use crate::eval::generation::GenerationError;
use crate::eval::generation::material::{self, Answer, Log};

/// Why conversations cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The data set cannot be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A temporary file cannot be written or read.
    #[error("a temporary file: {0}; is there room for it?")]
    File(#[from] io::Error),
    /// The configuration names something that cannot be opened.
    #[error(transparent)]
    Dependencies(#[from] DependencyError),
    /// A graph cannot be opened.
    #[error(transparent)]
    Knowledge(#[from] KnowledgeError),
    /// The outcomes cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The flow failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The responses cannot be read.
    #[error(transparent)]
    Responses(#[from] GenerationError),
}

/// Conversations of a data set, as a log of turns that can be replayed.
pub struct ReplayLog {
    log: NamedTempFile,
    /// How many there are.
    pub count: usize,
}

impl ReplayLog {
    /// Reads a data set and takes `most` of its conversations, evenly spread; all if not given.
    /// Dialogues that cannot be read are reported and left out.
    ///
    /// # Errors
    /// The file as a whole cannot be read.
    pub fn read(format: Format, path: &Path, most: Option<usize>) -> Result<Self, ReplayError> {
        let mut conversations: Vec<Vec<Turn>> = Vec::new();
        let mut places = BTreeMap::<ConversationId, usize>::new();
        for item in turnstream_formats::open(format, path)? {
            let turn = match item {
                Ok(LoggedItem::Turn(logged)) => logged.turn,
                Ok(LoggedItem::Raw { line, bytes }) => match serde_json::from_slice(&bytes) {
                    Ok(turn) => turn,
                    Err(error) => {
                        tracing::warn!(line, %error, "not a turn; left out");
                        continue;
                    }
                },
                Err(error) if error.ends() => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(%error, "left out");
                    continue;
                }
            };
            let next = conversations.len();
            let place = *places.entry(turn.conversation_id.clone()).or_insert(next);
            if place == next {
                conversations.push(Vec::new());
            }
            conversations[place].push(turn);
        }
        let all = conversations.len();
        let count = most.unwrap_or(all).min(all);
        let log = NamedTempFile::new()?;
        let mut lines = BufWriter::new(log.as_file());
        for turn in (0..count).flat_map(|at| &conversations[at * all / count]) {
            serde_json::to_writer(&mut lines, turn).map_err(io::Error::from)?;
            lines.write_all(b"\n")?;
        }
        lines.flush()?;
        drop(lines);
        Ok(Self { log, count })
    }

    /// Returns the conversations as the log that responses are measured against.
    ///
    /// # Errors
    /// The temporary file cannot be read.
    pub fn log(&self) -> Result<Log, ReplayError> {
        Ok(Log::read(Format::Turns, self.log.path())?)
    }

    /// Returns the responses of a configuration.
    ///
    /// # Errors
    /// What the configuration names cannot be opened, or the flow fails.
    pub fn responses(&self, config: &Config) -> Result<Vec<Answer>, ReplayError> {
        let mut config = config.clone();
        config.set_for_replay();
        let metrics = Metrics::new(&config.metrics);
        let (dependencies, _) =
            Dependencies::open(&config, &metrics, &AnswerFiles::default(), Reach::Servers)?;
        let dependencies = Dependencies {
            publish_changes: false,
            publish_conversations: false,
            source: ResponseSource::Recorded,
            ..dependencies
        };
        let out = NamedTempFile::new()?;
        let sinks = Sinks { responses: Some(out.path().to_owned()), ..Sinks::default() };
        let opening = Opening::begin(self.records()?, sinks, BegunWith::default());
        let (consumer, producer) = opening.open()?;
        let workers = config.run.workers as usize;
        serve(Ends::new(consumer, producer), &dependencies, workers, &AtomicBool::new(false))?;
        Ok(material::answers(out.path())?)
    }

    fn records(&self) -> Result<Records, ReplayError> {
        let lines = BufReader::new(self.log.reopen()?).split(b'\n');
        let record = |(offset, line): (usize, io::Result<Vec<u8>>)| {
            let value = line.map_err(|error| LogError::Refused(error.to_string()))?;
            let (partition, offset) = (jsonl::PARTITION, offset as i64);
            Ok(Record { partition, offset, value: Some(value), ..Record::default() })
        };
        Ok(Box::new(lines.enumerate().map(record)))
    }
}
