//! Ingest converts bytes of the log to turns and directives, or to dead letters with the reason.
//!
//! It is the first stage of the flow. Key: none. State: none. It decides only whether the engine can
//! serve an input. It never repairs an input, and never interprets the text of a turn.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::operate::FrontierInterest;
use turnstream_ports::panics::at_work;
use turnstream_ports::partitioner::Partitioner;
use turnstream_schemas::outcome::Bytes;
use turnstream_schemas::{
    DeadLetter, Directive, EventTime, Fault, FaultKind, InputId, Outcome, RequestId,
    SCHEMA_VERSION, Scope, ScopeKind, Speaker, Stage, Turn, TurnId, TurnsRecord,
};

use crate::flow::{Epoch, Finished, Original};

mod reading;

use reading::{check_partition, parsed};

/// What an agent's turn does to a response that is still being made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnAgentReply {
    /// The earlier unanswered user turns of the scope end as recorded, superseded.
    #[default]
    Supersede,
    /// They are still answered, and the agent's turn waits until then.
    Answer,
}

/// What an agent's turn means for the turns after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentTurns {
    /// The agent holds the conversation from then on.
    #[default]
    TakeOver,
    /// The agent speaks beside the engine, which goes on answering.
    Beside,
}

/// `[turns]`: what counts as a turn, and how many may be in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TurnsConfig {
    /// Which turns share one order and one history: those of a `conversation` (tenant and
    /// conversation) or of a `user` (tenant and user; every turn must then name its user, and the
    /// log's key must keep a user on one partition).
    pub scope: ScopeKind,
    /// What an agent's turn does to a response that is still being made: `supersede` or `answer`.
    /// A takeover does the same. Replays always use `answer`.
    pub on_agent_reply: OnAgentReply,
    /// What an agent's turn (a system turn that is no echo of ours) means for the turns after it.
    /// With `take_over` the agent holds the conversation, and the engine answers no turn of it
    /// until it is released (see `handover`); with `beside` it goes on answering. Replays always
    /// use `beside`: the system turns of a log may be anybody's. The directives `takeover` and
    /// `release` count in both cases.
    pub agent_turns: AgentTurns,
    /// Milliseconds within which user turns of a scope follow each other, by their timestamps, to
    /// be one utterance ("hi", "my parcel", "is late"): the earlier ones end as recorded, merged
    /// into the last, which is answered with the words of all. The engine waits that long for the
    /// next one before it answers, so 1500 is usual and 0, the default, waits for none. At most 16
    /// turns are one utterance, and together no longer than `max_text_bytes`. A replay does not
    /// wait and goes by the timestamps alone: a turn without one is a whole utterance.
    #[schemars(range(max = 60000))]
    pub burst_ms: u64,
    /// The most bytes of an utterance, from 1; a longer one becomes a dead letter.
    #[schemars(range(min = 1))]
    pub max_text_bytes: usize,
    /// The most bytes of an id, from 1; a longer one becomes a dead letter.
    #[schemars(range(min = 1))]
    pub max_id_bytes: usize,
    /// The most bytes of a whole record, from 1; a longer one becomes a dead letter without being
    /// parsed.
    #[schemars(range(min = 1))]
    pub max_record_bytes: usize,
    /// The most seconds between a turn's timestamp and the log's time; a turn beyond that becomes a
    /// dead letter, because one turn dated 2999 would take all recency from the others. Replays are
    /// exempt. 0 turns the check off.
    pub max_timestamp_skew_seconds: u64,
    /// How the clients that write turns choose the partition of a key: `murmur2` (Kafka's own
    /// clients), `crc32` (librdkafka, kcat and tools built on them) or `unchecked`. Unless unchecked,
    /// a keyed turn on a partition other than its key's becomes a dead letter: if two kinds of clients
    /// wrote one conversation, it would be split in two. Replays check nothing.
    pub partitioner: Partitioner,
    /// The most inputs of one partition in flight, including those that wait, from 1; beyond that
    /// the partition pauses, and records fetched ahead are fetched again. One poll may exceed it.
    /// It also bounds the set of finished offsets, which a commit carries in 4 KB: from about 1,500
    /// on the set may not fit, and finished inputs then wait until the lowest input in flight has
    /// ended.
    #[schemars(range(min = 1))]
    pub max_in_flight_per_partition: usize,
    /// The most inputs of the whole process in flight, from 1; beyond that nothing more is read, and after
    /// 0.2 seconds all partitions pause.
    #[schemars(range(min = 1))]
    pub max_in_flight: usize,
}

impl Default for TurnsConfig {
    fn default() -> Self {
        Self {
            scope: ScopeKind::Conversation,
            on_agent_reply: OnAgentReply::Supersede,
            agent_turns: AgentTurns::TakeOver,
            burst_ms: 0,
            max_text_bytes: 8_192,
            max_id_bytes: 256,
            max_record_bytes: 262_144,
            max_timestamp_skew_seconds: 86_400,
            partitioner: Partitioner::Unchecked,
            max_in_flight_per_partition: 1_200,
            max_in_flight: 8_000,
        }
    }
}

/// A message from the log to the dataflow.
#[derive(Clone, Debug)]
pub enum Input {
    /// An input record.
    Record(InputRecord),
    /// The partition is now assigned to this process under this generation; its histories are in the
    /// cache.
    Assigned {
        /// The partition.
        partition: i32,
        /// How often the partition has been assigned to this process, from 1.
        generation: u32,
    },
    /// The partition now belongs to another process; its state is dropped.
    Revoked {
        /// The partition.
        partition: i32,
    },
}

/// A record as read from the log.
#[derive(Clone, Debug, Default)]
pub struct InputRecord {
    /// Partition, from 0.
    pub partition: i32,
    /// The generation of the partition's assignment.
    pub generation: u32,
    /// Offset.
    pub offset: i64,
    /// The value, key, headers and time.
    pub original: Original,
    /// Whether this is the last record of its scope. The scope's history is dropped once it is finished.
    pub last_of_scope: bool,
    /// Whether the next record of the scope continues this utterance, as far as the log knows.
    pub followed: bool,
    /// The id and the words of the response that the user was given, if the log knows it.
    pub answered: Option<(TurnId, String)>,
}

/// A turn that can be served.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArrivedTurn {
    /// The attempt to serve the input.
    pub request: RequestId,
    /// The input.
    pub input: InputId,
    /// The scope it belongs to.
    pub scope: Scope,
    /// The turn as it was parsed.
    pub turn: Turn,
    /// Its id, never absent.
    pub turn_id: TurnId,
    /// When it was said: its own timestamp, else the log's time, else one second per offset.
    pub event_time: EventTime,
    /// The original record.
    pub original: Arc<Original>,
    /// Whether this is the last record of its scope.
    pub last_of_scope: bool,
    /// Whether the next record of the scope continues this utterance, as far as the log knows.
    pub followed: bool,
    /// The id and the words of the response that the user was given, if the log knows it.
    pub answered: Option<(TurnId, String)>,
}

/// A directive that can be served.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArrivedDirective {
    /// The attempt to serve the input.
    pub request: RequestId,
    /// The input.
    pub input: InputId,
    /// The scope that it is about.
    pub scope: Scope,
    /// The directive as it was parsed.
    pub directive: Directive,
    /// Its id, never absent.
    pub turn_id: TurnId,
    /// When it was given, determined as for a turn.
    pub event_time: EventTime,
    /// The original record.
    pub original: Arc<Original>,
    /// Whether this is the last record of its scope.
    pub last_of_scope: bool,
}

/// What `history` receives. It is exchanged between workers once, by scope.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Arrived {
    /// A turn.
    Turn(Box<ArrivedTurn>),
    /// A directive. It keeps its place in the order of the scope like any other input.
    Directive(Box<ArrivedDirective>),
    /// The last turn of a scope was refused. `history` may drop the scope once it is idle.
    Ended {
        /// The scope's partition.
        partition: i32,
        /// The scope.
        scope: Scope,
    },
    /// Tells every worker that the partition begins anew under this generation.
    Assigned {
        /// The worker that receives it.
        worker: u64,
        /// The partition.
        partition: i32,
        /// Its generation.
        generation: u32,
    },
    /// Tells every worker to drop the partition's state.
    Revoked {
        /// The worker that receives it.
        worker: u64,
        /// The partition.
        partition: i32,
    },
}

impl InputRecord {
    fn request(&self) -> RequestId {
        let Self { partition, generation, offset, .. } = *self;
        RequestId { partition, generation, offset }
    }
}

impl Arrived {
    /// Returns the request, if this is an input.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Self::Turn(turn) => Some(turn.request),
            Self::Directive(directive) => Some(directive.request),
            Self::Ended { .. } | Self::Assigned { .. } | Self::Revoked { .. } => None,
        }
    }

    /// Returns the value by which the exchange routes it. Its low bits are well mixed, because
    /// timely routes by them.
    pub fn route(&self) -> u64 {
        match self {
            Self::Turn(turn) => route(turn.request.partition, &turn.scope),
            Self::Directive(of) => route(of.request.partition, &of.scope),
            Self::Ended { partition, scope } => route(*partition, scope),
            Self::Assigned { worker, .. } | Self::Revoked { worker, .. } => *worker,
        }
    }
}

fn route(partition: i32, scope: &Scope) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = rustc_hash::FxHasher::default();
    (partition, scope).hash(&mut hasher);
    let hash = hasher.finish();
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash ^ (hash >> 29)
}

/// The topic that inputs come from.
#[derive(Clone, Debug)]
pub struct InputTopic {
    /// Its name, for the coordinates of inputs.
    pub name: Arc<str>,
    /// How many partitions it has. If `None`, ingest does not compare keys with partitions.
    pub partitions: Option<i32>,
}

impl<Name: Into<Arc<str>>> From<Name> for InputTopic {
    /// Makes a topic of which only the name is known, so that ingest does not compare keys with
    /// partitions.
    fn from(name: Name) -> Self {
        Self { name: name.into(), partitions: None }
    }
}

/// Reads inputs. Returns (what `history` receives, dead letters).
pub fn ingest<'scope>(
    inputs: StreamVec<'scope, Epoch, Input>,
    config: TurnsConfig,
    topic: InputTopic,
) -> (StreamVec<'scope, Epoch, Arrived>, StreamVec<'scope, Epoch, Finished>) {
    let scope = inputs.scope();
    let workers = scope.peers() as u64;
    let mut builder = OperatorBuilder::new(Stage::Ingest.name().to_owned(), scope);
    let mut input = builder.new_input(inputs, Pipeline);
    builder.set_notify_for(0, FrontierInterest::Never);
    let (arrived, arrived_stream) = builder.new_output();
    let (refused, refused_stream) = builder.new_output();
    let (mut arrived, mut refused) = (OutputBuilder::from(arrived), OutputBuilder::from(refused));

    builder.build(move |_| {
        move |_| {
            let (mut arrived, mut refused) = (arrived.activate(), refused.activate());
            input.for_each(|capability, inputs| {
                let mut arrived = arrived.session(&capability);
                let mut refused = refused.session(&capability);
                for input in inputs.drain(..) {
                    match input {
                        Input::Record(record) => {
                            let ended = ended_scope(&record, &config);
                            match at_work(record.request(), || read(record, &config, &topic)) {
                                Ok(record) => arrived.give(record),
                                Err(finished) => {
                                    refused.give(*finished);
                                    ended.into_iter().for_each(|ended| arrived.give(ended));
                                }
                            }
                        }
                        Input::Assigned { partition, generation } => {
                            for worker in 0..workers {
                                arrived.give(Arrived::Assigned { worker, partition, generation });
                            }
                        }
                        Input::Revoked { partition } => {
                            for worker in 0..workers {
                                arrived.give(Arrived::Revoked { worker, partition });
                            }
                        }
                    }
                }
            });
        }
    });
    (arrived_stream, refused_stream)
}

/// Reads one record. Returns what `history` receives, or the dead letter.
fn read(
    record: InputRecord,
    config: &TurnsConfig,
    topic: &InputTopic,
) -> Result<Arrived, Box<Finished>> {
    let request = record.request();
    let InputRecord { partition, offset, original, last_of_scope, followed, answered, .. } = record;
    let input = InputId { topic: topic.name.as_ref().to_owned(), partition, offset };
    let original = Arc::new(original);
    let read = parsed(&original, config).and_then(|read| {
        check_partition(partition, &original, config.partitioner, topic.partitions)?;
        Ok(read)
    });
    let turn_id = |own: &Option<TurnId>| own.clone().unwrap_or_else(|| input.turn_id());
    let event_time = |own: Option<EventTime>| {
        let time = own.or(original.time_ms.map(EventTime));
        time.unwrap_or(EventTime(offset.saturating_mul(1_000)))
    };
    match read {
        Ok((TurnsRecord::Turn(turn), scope)) => Ok(Arrived::Turn(Box::new(ArrivedTurn {
            request,
            scope,
            turn_id: turn_id(&turn.turn_id),
            event_time: event_time(turn.timestamp),
            turn,
            input,
            original,
            last_of_scope,
            followed,
            answered,
        }))),
        Ok((TurnsRecord::Directive(directive), scope)) => {
            Ok(Arrived::Directive(Box::new(ArrivedDirective {
                request,
                scope,
                turn_id: turn_id(&directive.turn_id),
                event_time: event_time(directive.timestamp),
                directive,
                input,
                original,
                last_of_scope,
            })))
        }
        Err(reason) => {
            let fault = Fault::new(Stage::Ingest, FaultKind::Invalid, reason.to_string());
            let letter = dead_letter(input, &original, fault);
            Err(Box::new(Finished::single(request, letter, original)))
        }
    }
}

/// The result of [`peek`]: what ingest will read from a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peeked {
    /// The scope that it belongs to.
    pub scope: Scope,
    /// For a user turn: its own time, if it has one.
    pub said_at: Option<EventTime>,
}

/// Looks at a record before it is ingested. Returns `None` if ingest will refuse it.
pub fn peek(original: &Original, config: &TurnsConfig) -> Option<Peeked> {
    let (record, scope) = parsed(original, config).ok()?;
    let said_at = match record {
        TurnsRecord::Turn(turn) if turn.speaker == Speaker::User => turn.timestamp,
        TurnsRecord::Turn(_) | TurnsRecord::Directive(_) => None,
    };
    Some(Peeked { scope, said_at })
}

/// Returns the message to `history` if the record is the last of its scope and is refused. `None`
/// if the record does not name its scope.
fn ended_scope(record: &InputRecord, config: &TurnsConfig) -> Option<Arrived> {
    if !record.last_of_scope {
        return None;
    }
    let text = std::str::from_utf8(record.original.value.as_deref()?).ok()?;
    let scope = TurnsRecord::parse(text).ok()?.scope(config.scope)?;
    Some(Arrived::Ended { partition: record.partition, scope })
}

/// Makes a dead letter for an input, with its unchanged bytes.
pub fn dead_letter(input: InputId, original: &Original, fault: Fault) -> Outcome {
    Outcome::DeadLetter(Box::new(DeadLetter {
        schema_version: SCHEMA_VERSION,
        input,
        value: original.value.clone().map(Bytes),
        key: original.key.clone().map(Bytes),
        headers: original.headers.clone(),
        fault,
        time: original.time_ms.unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests;
