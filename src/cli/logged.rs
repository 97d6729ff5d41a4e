//! Reads the inputs and responses of a service from its log. Writes nothing and joins no group.
//!
//! Reads partitions one after the other, each from its oldest record or from a given time up to an
//! end that is fixed before, so that two reads to the same ends give the same records.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};
use turnstream_console::load_config;
use turnstream_engine::config::Config;
use turnstream_log::embedded::{EmbeddedLog, Isolation};
use turnstream_log::kafka::{self, KafkaConfig, KafkaFollower};
use turnstream_log::{Follower, LogError, Record, Topic, jsonl};
use turnstream_schemas::{InputId, Response, TurnId};

use crate::history::{directory, opened};

mod part;

pub(crate) use part::{LogEnds, LoggedPart, moment};

/// How long one poll of a topic waits.
const POLL: Duration = Duration::from_millis(100);
/// Records per read of an embedded log.
const AT_ONCE: usize = 500;

/// The log of a service.
#[derive(Clone)]
pub(crate) struct ServiceLog {
    source: LogSource,
    turns: String,
}

/// The place of a log.
#[derive(Clone)]
pub(crate) enum LogSource {
    /// On brokers.
    Kafka(Box<KafkaConfig>),
    /// In a directory, which no other process has open.
    Embedded(EmbeddedLog),
}

impl LogSource {
    /// Opens the log in a directory, else that of a configuration.
    ///
    /// # Errors
    /// The directory of an embedded log cannot be opened.
    pub(crate) fn open(data: Option<&Path>, config: &Config) -> Result<Self, LogError> {
        Ok(match directory(data, config) {
            None => Self::Kafka(Box::new(config.log.kafka.clone())),
            Some(directory) => Self::Embedded(opened(directory, config)?),
        })
    }

    /// Follows a topic from its oldest record on.
    ///
    /// # Errors
    /// The log cannot be reached, or refuses.
    pub(crate) fn follower(&self, topic: Topic) -> Result<Box<dyn Follower>, LogError> {
        Ok(match self {
            Self::Kafka(config) => Box::new(kafka::follow(config, topic)?),
            Self::Embedded(log) => Box::new(log.follower(topic)),
        })
    }
}

impl ServiceLog {
    /// Opens the log that a configuration names.
    ///
    /// # Errors
    /// The configuration is wrong, or the directory of an embedded log cannot be opened.
    pub(crate) fn open(config: &Path) -> anyhow::Result<Self> {
        let mut config: Config = load_config(Some(config))?.value;
        // A command that only reads creates no topics.
        config.log.kafka.create_topics = false;
        let source = LogSource::open(None, &config)?;
        let turns = match &source {
            LogSource::Kafka(kafka) => kafka.topics.name(Topic::Turns),
            LogSource::Embedded(_) => Topic::Turns.name(),
        };
        Ok(Self { turns: turns.to_owned(), source })
    }

    /// The name of the topic of turns.
    pub(crate) fn turns_topic(&self) -> &str {
        &self.turns
    }

    /// Returns the current ends of the partitions of turns.
    ///
    /// # Errors
    /// The log cannot be reached.
    pub(crate) fn ends(&self) -> Result<LogEnds, LogError> {
        Ok(LogEnds(match &self.source {
            LogSource::Kafka(config) => kafka::ends_of(config, Topic::Turns)?,
            LogSource::Embedded(log) => {
                (0..log.partitions()).map(|of| (of, log.end(Topic::Turns, of))).collect()
            }
        }))
    }

    /// Returns the committed records of a partition, in the order of their offsets.
    fn records(
        &self,
        topic: Topic,
        partition: i32,
        since_ms: Option<i64>,
    ) -> Result<PartitionRecords, LogError> {
        let source = match &self.source {
            LogSource::Kafka(config) => PartitionSource::Kafka(Box::new(kafka::follow_partition(
                config, topic, partition, since_ms,
            )?)),
            LogSource::Embedded(log) => {
                PartitionSource::Embedded { log: log.clone(), topic, partition, next: 0 }
            }
        };
        Ok(PartitionRecords { source, read: VecDeque::new() })
    }

    /// Returns the inputs before these ends, as a replay takes them. With `answers`, each answered
    /// turn carries what was said to the user, and echoes of it are left out. Errors are items.
    pub(crate) fn inputs(
        &self,
        part: &LoggedPart,
        answers: bool,
        ends: LogEnds,
    ) -> impl Iterator<Item = Result<Record, LogError>> + Send + use<> {
        let (log, part) = (self.clone(), part.clone());
        let inputs = ends.0.into_iter().flat_map(move |(partition, end)| {
            let read = PartitionInputs::open(&log, (partition, end), &part, answers);
            let (read, failed) = match read {
                Ok(read) => (Some(read), None),
                Err(error) => (None, Some(Err(error))),
            };
            failed.into_iter().chain(read.into_iter().flatten())
        });
        inputs.scan(0, |next, input| {
            let offset = *next;
            *next += i64::from(input.is_ok());
            Some(input.map(|input| Record { partition: jsonl::PARTITION, offset, ..input }))
        })
    }

    /// Returns partition and offset of every selected input before these ends.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) fn meant(
        &self,
        part: &LoggedPart,
        ends: &LogEnds,
    ) -> Result<HashSet<(i32, i64)>, LogError> {
        let mut meant = HashSet::new();
        for (partition, end) in &ends.0 {
            for input in PartitionInputs::open(self, (*partition, *end), part, false)? {
                let Record { partition, offset, .. } = input?;
                meant.insert((partition, offset));
            }
        }
        Ok(meant)
    }

    /// Passes on every committed response, with its trace if that is on the log.
    ///
    /// # Errors
    /// The log cannot be read, or a record is not a response.
    pub(crate) fn each_response(
        &self,
        part: &LoggedPart,
        mut take: impl FnMut(Response),
    ) -> anyhow::Result<()> {
        let traced = match &self.source {
            LogSource::Kafka(config) => {
                kafka::follow_if_there(config, Topic::Traces, part.since_ms())?.is_some()
            }
            LogSource::Embedded(_) => true,
        };
        let topics = [traced.then_some(Topic::Traces), Some(Topic::Responses)];
        for partition in self.ends()?.0.into_keys() {
            // The topic of responses adds only those without a trace, from a time when there were
            // none.
            let mut taken = HashSet::new();
            for topic in topics.into_iter().flatten() {
                for record in self.records(topic, partition, part.since_ms())? {
                    let record = record?;
                    let response: Response = parsed(&record, topic)?;
                    let is_meant = part.has(Some(response.conversation_id.as_str()));
                    if is_meant && taken.insert(response.input.offset) {
                        take(response);
                    }
                }
            }
        }
        Ok(())
    }
}

fn parsed<T: serde::de::DeserializeOwned>(record: &Record, topic: Topic) -> Result<T, LogError> {
    serde_json::from_slice(record.value.as_deref().unwrap_or_default()).map_err(|error| {
        let place = format!("{}[{}]@{}", topic.name(), record.partition, record.offset);
        LogError::Refused(format!("{place}: {error}; only this engine may write there"))
    })
}

/// The committed records of one partition.
struct PartitionRecords {
    source: PartitionSource,
    read: VecDeque<Record>,
}

enum PartitionSource {
    Kafka(Box<KafkaFollower>),
    Embedded { log: EmbeddedLog, topic: Topic, partition: i32, next: i64 },
}

impl PartitionRecords {
    /// Reads more records. Returns `false` at the end.
    fn fill(&mut self) -> Result<bool, LogError> {
        match &mut self.source {
            PartitionSource::Kafka(follower) => {
                while self.read.is_empty() && !follower.has_caught_up() {
                    self.read.extend(follower.poll(POLL)?);
                }
            }
            PartitionSource::Embedded { log, topic, partition, next } => {
                let isolation = Isolation::ReadCommitted;
                self.read.extend(log.read(*topic, *partition, *next, AT_ONCE, isolation)?);
                *next = self.read.back().map_or(*next, |last| last.offset + 1);
            }
        }
        Ok(!self.read.is_empty())
    }
}

impl Iterator for PartitionRecords {
    type Item = Result<Record, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.read.is_empty() {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        self.read.pop_front().map(Ok)
    }
}

/// The inputs of one partition.
struct PartitionInputs {
    turns: PartitionRecords,
    /// The offset to stop at.
    end: i64,
    part: LoggedPart,
    topic: String,
    /// The id and words of each response, by the offset of its turn; `None` if they are not wanted.
    said: Option<HashMap<i64, (TurnId, String)>>,
}

impl PartitionInputs {
    fn open(
        log: &ServiceLog,
        (partition, end): (i32, i64),
        part: &LoggedPart,
        answers: bool,
    ) -> Result<Self, LogError> {
        let since = part.since_ms();
        let said = answers.then(|| -> Result<_, LogError> {
            let mut said = HashMap::new();
            for record in log.records(Topic::Responses, partition, since)? {
                let record = record?;
                let response: Response = parsed(&record, Topic::Responses)?;
                if part.has(Some(response.conversation_id.as_str())) {
                    let turn_id = TurnId(response.response_id.0);
                    said.insert(response.input.offset, (turn_id, response.text));
                }
            }
            Ok(said)
        });
        Ok(Self {
            turns: log.records(Topic::Turns, partition, since)?,
            end,
            part: part.clone(),
            topic: log.turns_topic().to_owned(),
            said: said.transpose()?,
        })
    }

    /// Converts a record to an input of a replay; `None` if it is left out.
    fn input(&mut self, record: Record) -> Option<Record> {
        if !self.part.has_place(&record) {
            return None;
        }
        let object = record.value.as_deref().map(serde_json::from_slice::<Map<String, Value>>);
        let Some(Ok(mut turn)) = object else {
            // Ingest reports what is wrong with it.
            return self.part.has(None).then_some(record);
        };
        if !self.part.has(turn.get("conversation_id").and_then(Value::as_str)) {
            return None;
        }
        let is_echo = turn.get("speaker").is_some_and(|speaker| speaker == "system")
            && turn.get("response_id").is_some_and(|id| !id.is_null());
        if self.said.is_some() && is_echo {
            return None;
        }
        let input = InputId {
            topic: self.topic.clone(),
            partition: record.partition,
            offset: record.offset,
        };
        let is_named = turn.get("turn_id").is_some_and(|id| !id.is_null());
        if !is_named {
            turn.insert("turn_id".to_owned(), input.turn_id().0.into());
        }
        let answered = self.said.as_mut().and_then(|said| said.remove(&record.offset));
        let value = match is_named {
            true => record.value,
            false => serde_json::to_vec(&turn).ok(),
        };
        Some(Record { value, answered, ..record })
    }
}

impl Iterator for PartitionInputs {
    type Item = Result<Record, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.turns.next()? {
                Err(error) => return Some(Err(error)),
                Ok(record) if record.offset >= self.end => return None,
                Ok(record) => match self.input(record) {
                    Some(input) => return Some(Ok(input)),
                    None => continue,
                },
            }
        }
    }
}
