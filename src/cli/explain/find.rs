//! Finds the wanted response in a file, on standard input or on a log.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use turnstream_console::{InputRefused, Usage};
use turnstream_engine::config::{Config, LogKind};
use turnstream_log::embedded::EmbeddedLog;
use turnstream_log::{Follower, LogError, Topic, kafka};
use turnstream_schemas::Response;

use super::ExplainArgs;

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
            Self::OfId(id) => format!("there is no response of the id `{id}`"),
            Self::ToTurn(turn) => format!("there is no response to the turn `{turn}`"),
            Self::OnLine(line) => format!("there is no line {line}"),
        };
        let remedy = "each response names its response_id, conversation_id and turn_id; an input \
                      that was recorded, or is a dead letter, has none";
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

    /// The wanted response. If several match, the latest.
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
        found.ok_or_else(|| wanted.missing().into())
    }

    /// Passes on every response of a file with its line. A topic gives none.
    pub(super) fn each(&self, mut take: impl FnMut(u64, Response)) -> Result<(), InputRefused> {
        let (lines, path): (Box<dyn BufRead>, _) = match self {
            Self::File(path) => {
                let refused = |error| InputRefused::new(format!("{}: {error}", path.display()), "");
                let file = File::open(path).map_err(refused)?;
                (Box::new(BufReader::new(file)), path.display().to_string())
            }
            Self::StandardInput => (Box::new(std::io::stdin().lock()), "standard input".to_owned()),
            Self::Embedded(_) | Self::Kafka(_) => return Ok(()),
        };
        for (line, at) in lines.lines().zip(1..) {
            let refused = |error: String| {
                let remedy = "responses are what `turnstream replay --out` writes, one a line";
                InputRefused::new(format!("{path}, line {at}: {error}"), remedy)
            };
            let line = line.map_err(|error| refused(error.to_string()))?;
            if line.trim().is_empty() {
                continue;
            }
            take(at, serde_json::from_str(&line).map_err(|error| refused(error.to_string()))?);
        }
        Ok(())
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
                tracing::warn!(partition, offset, "passed over: it is no response");
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
