//! Finds the wanted response in a file, on standard input or on a log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use turnstream_console::{InputRefused, Usage};
use turnstream_engine::config::{Config, LogKind};
use turnstream_log::embedded::EmbeddedLog;
use turnstream_log::{Follower, LogError, Topic, kafka};
use turnstream_schemas::Response;

use super::ExplainArgs;
use crate::responses::each_response;

/// How long one poll of a topic waits.
const POLL: Duration = Duration::from_millis(100);

/// The place of the responses.
pub(super) enum Source {
    /// A file with one response a line.
    File(PathBuf),
    /// Standard input.
    StandardInput,
    /// An embedded log.
    Embedded(EmbeddedLog),
    /// Kafka.
    Kafka(Box<kafka::KafkaConfig>),
}

/// The wanted response.
pub(super) enum Wanted<'a> {
    Latest,
    OfId(&'a str),
    /// By conversation and turn, separated by a slash.
    ToTurn(&'a str),
    /// By line, from 1.
    OnLine(u64),
}

impl<'a> Wanted<'a> {
    pub(super) fn of(args: &'a ExplainArgs) -> Self {
        match (&args.response, &args.turn, args.line) {
            (Some(id), ..) => Self::OfId(id),
            (_, Some(turn), _) => Self::ToTurn(turn),
            (_, _, Some(line)) => Self::OnLine(line),
            _ => Self::Latest,
        }
    }

    fn is(&self, response: &Response, line: u64) -> bool {
        match self {
            Self::Latest => true,
            Self::OfId(id) => response.response_id.as_str() == *id,
            Self::ToTurn(turn) => {
                format!("{}/{}", response.conversation_id, response.turn_id) == *turn
            }
            Self::OnLine(wanted) => line == *wanted,
        }
    }

    fn missing(&self) -> Usage {
        let what = match self {
            Self::Latest => "there are no responses".to_owned(),
            Self::OfId(id) => format!("there is no response with the id `{id}`"),
            Self::ToTurn(turn) => format!("there is no response to the turn `{turn}`"),
            Self::OnLine(line) => format!("there is no line {line}"),
        };
        let remedy = "each response names its response_id, conversation_id and turn_id; an input \
                      that was recorded, or is a dead letter, has no response";
        Usage::new(what, remedy)
    }
}

impl Source {
    /// The place that the arguments name.
    pub(super) fn of(args: &ExplainArgs, config: &Config) -> Result<Self, LogError> {
        if let Some(path) = &args.responses {
            let is_input = path.as_path() == Path::new("-");
            return Ok(if is_input { Self::StandardInput } else { Self::File(path.clone()) });
        }
        let directory = match (&args.data, config.log.kind) {
            (Some(data), _) => Some(data),
            (None, LogKind::Embedded) => config.log.directory.as_ref(),
            (None, LogKind::Kafka) => None,
        };
        let Some(directory) = directory else {
            return Ok(Self::Kafka(Box::new(config.log.kafka.clone())));
        };
        if !directory.is_dir() {
            // Opening a missing directory would create it.
            let path = directory.display().to_string();
            return Err(LogError::File { path, source: std::io::ErrorKind::NotFound.into() });
        }
        Ok(Self::Embedded(EmbeddedLog::in_directory(directory, &config.log.embedded)?))
    }

    /// Returns the wanted response, with its trace if there is one. If several match, the latest.
    ///
    /// # Errors
    /// There is none, or the responses cannot be read.
    pub(super) fn find(&self, wanted: &Wanted<'_>) -> anyhow::Result<Response> {
        let mut found = None;
        match self {
            Self::Embedded(log) => {
                latest(&mut log.follower(Topic::Responses), wanted, &mut found)?;
            }
            Self::Kafka(config) => {
                latest(&mut kafka::follow(config, Topic::Responses)?, wanted, &mut found)?;
            }
            Self::File(_) | Self::StandardInput => self.each(|line, response| {
                if wanted.is(&response, line) {
                    found = Some(response);
                }
            })?,
        }
        let found = found.ok_or_else(|| wanted.missing())?;
        if !found.brief {
            return Ok(found);
        }
        let (mut trace, id) = (None, found.response_id.as_str());
        match self {
            Self::Embedded(log) => {
                latest(&mut log.follower(Topic::Traces), &Wanted::OfId(id), &mut trace)?;
            }
            Self::Kafka(config) => {
                if let Some(mut traces) = kafka::follow_if_there(config, Topic::Traces, None)? {
                    latest(&mut traces, &Wanted::OfId(id), &mut trace)?;
                }
            }
            Self::File(_) | Self::StandardInput => {}
        }
        Ok(trace.unwrap_or(found))
    }

    /// Passes on every response of a file with its line. A topic gives none.
    pub(super) fn each(&self, take: impl FnMut(u64, Response)) -> Result<(), InputRefused> {
        match self {
            Self::File(path) => each_response(path, take),
            Self::StandardInput => each_response(Path::new("-"), take),
            Self::Embedded(_) | Self::Kafka(_) => Ok(()),
        }
    }
}

/// The latest wanted response of a topic, by the log's time and then by offset.
fn latest(
    topic: &mut dyn Follower,
    wanted: &Wanted<'_>,
    found: &mut Option<Response>,
) -> Result<(), LogError> {
    let mut latest = None;
    loop {
        for record in topic.poll(POLL)? {
            let value = record.value.as_deref().unwrap_or_default();
            let Ok(response) = serde_json::from_slice::<Response>(value) else {
                let (partition, offset) = (record.partition, record.offset);
                tracing::warn!(partition, offset, "a record is not a response; skipped");
                continue;
            };
            let place = Some((record.time_ms, record.partition, record.offset));
            if place > latest && wanted.is(&response, 0) {
                (latest, *found) = (place, Some(response));
            }
        }
        if topic.has_caught_up() {
            return Ok(());
        }
    }
}
