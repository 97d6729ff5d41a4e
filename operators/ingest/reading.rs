//! Parses a record into a turn or a directive, with its scope, or returns why it is refused.

use turnstream_ports::partitioner::Partitioner;
use turnstream_schemas::{Directive, EventTime, NoScope, SCHEMA_VERSION, Scope, Turn, TurnsRecord};

use super::TurnsConfig;
use crate::flow::Original;

/// Why an input cannot be served.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the record has no value; a turn is a JSON object")]
    NoValue,
    #[error("the record has {bytes} bytes, more than turns.max_record_bytes = {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("not UTF-8 from byte {0} on; send JSON in UTF-8")]
    NotUtf8(usize),
    #[error("not a turn: {0}")]
    NotATurn(serde_json::Error),
    #[error("schema_version {0} is newer than {SCHEMA_VERSION}; upgrade the engine first")]
    TooNew(u32),
    #[error("schema_version 0 does not exist; the first version is 1")]
    NoVersion,
    #[error(
        "the record names neither a conversation nor a user; give it a `conversation_id`, or a \
         `user_id` where turns.scope is \"user\""
    )]
    AboutNothing,
    #[error(
        "turns.scope = \"conversation\": each conversation of a user has its own history; send one \
         such record for each of them, with its `conversation_id` (to forget, `turnstream history \
         forget --user` does so)"
    )]
    UserOfConversations,
    #[error(
        "turns.scope = \"user\": a user has one history, which does not tell conversations apart; \
         for all of it, send `user_id` without `conversation_id`"
    )]
    ConversationOfUser,
    #[error("`{0}` is empty; leave it out or give it a value")]
    Empty(&'static str),
    #[error("`{field}` has {bytes} bytes, more than {limit} (turns.{key})")]
    TooLong { field: &'static str, bytes: usize, limit: usize, key: &'static str },
    #[error("`{field}` has the control character U+{character:04X} at byte {byte}; remove it")]
    ControlCharacter { field: &'static str, character: u32, byte: usize },
    #[error("`user_id` is missing; turns.scope = \"user\" needs it")]
    NoUser,
    #[error(
        "`timestamp` is {seconds} s from the log's time, more than \
         turns.max_timestamp_skew_seconds = {limit}"
    )]
    Skewed { seconds: u64, limit: u64 },
    #[error(
        "the turn is on partition {found}, but turns.partitioner = \"{}\" places its key on \
         partition {expected} of {partitions}; make every client that writes turns use this \
         partitioner, or set turns.partitioner to the one that they use", partitioner.name()
    )]
    Misplaced { found: i32, expected: i32, partitions: i32, partitioner: Partitioner },
}

/// Parses and checks a record's value.
pub(super) fn parsed(
    original: &Original,
    config: &TurnsConfig,
) -> Result<(TurnsRecord, Scope), Refusal> {
    let bytes = original.value.as_deref().ok_or(Refusal::NoValue)?;
    if bytes.len() > config.max_record_bytes {
        return Err(Refusal::TooLarge { bytes: bytes.len(), limit: config.max_record_bytes });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| Refusal::NotUtf8(error.valid_up_to()))?;
    let record = TurnsRecord::parse(text).map_err(Refusal::NotATurn)?;
    let scope = match &record {
        TurnsRecord::Turn(turn) => scope_of_turn(turn, original, config)?,
        TurnsRecord::Directive(of) => scope_of_directive(of, original, config)?,
    };
    Ok((record, scope))
}

fn scope_of_turn(turn: &Turn, original: &Original, config: &TurnsConfig) -> Result<Scope, Refusal> {
    check_version(turn.schema_version)?;
    let ids = [
        ("conversation_id", Some(turn.conversation_id.as_str())),
        ("tenant_id", turn.tenant_id.as_ref().map(|id| id.as_str())),
        ("user_id", turn.user_id.as_ref().map(|id| id.as_str())),
        ("turn_id", turn.turn_id.as_ref().map(|id| id.as_str())),
        ("response_id", turn.response_id.as_ref().map(|id| id.as_str())),
    ];
    check_ids(&ids, config)?;
    check_text("text", &turn.text, config.max_text_bytes, "max_text_bytes")?;
    check_characters("text", &turn.text, |character| matches!(character, '\n' | '\r' | '\t'))?;
    check_skew(turn.timestamp, original, config.max_timestamp_skew_seconds)?;
    turn.scope(config.scope).ok_or(Refusal::NoUser)
}

fn scope_of_directive(
    directive: &Directive,
    original: &Original,
    config: &TurnsConfig,
) -> Result<Scope, Refusal> {
    check_version(directive.schema_version)?;
    let ids = [
        ("conversation_id", directive.conversation_id.as_ref().map(|id| id.as_str())),
        ("tenant_id", directive.tenant_id.as_ref().map(|id| id.as_str())),
        ("user_id", directive.user_id.as_ref().map(|id| id.as_str())),
        ("turn_id", directive.turn_id.as_ref().map(|id| id.as_str())),
    ];
    check_ids(&ids, config)?;
    check_skew(directive.timestamp, original, config.max_timestamp_skew_seconds)?;
    directive.scope(config.scope).map_err(|named| match named {
        NoScope::Nothing => Refusal::AboutNothing,
        NoScope::UserOfConversations => Refusal::UserOfConversations,
        NoScope::ConversationOfUser => Refusal::ConversationOfUser,
    })
}

fn check_version(version: u32) -> Result<(), Refusal> {
    match version {
        0 => Err(Refusal::NoVersion),
        version if version > SCHEMA_VERSION => Err(Refusal::TooNew(version)),
        _ => Ok(()),
    }
}

fn check_ids(ids: &[(&'static str, Option<&str>)], config: &TurnsConfig) -> Result<(), Refusal> {
    for (field, id) in ids {
        if let Some(id) = id {
            check_text(field, id, config.max_id_bytes, "max_id_bytes")?;
            check_characters(field, id, |_| false)?;
        }
    }
    Ok(())
}

fn check_text(
    field: &'static str,
    text: &str,
    limit: usize,
    key: &'static str,
) -> Result<(), Refusal> {
    if text.trim().is_empty() {
        return Err(Refusal::Empty(field));
    }
    if text.len() > limit {
        return Err(Refusal::TooLong { field, bytes: text.len(), limit, key });
    }
    Ok(())
}

fn check_characters(
    field: &'static str,
    text: &str,
    allowed: impl Fn(char) -> bool,
) -> Result<(), Refusal> {
    match text.char_indices().find(|(_, character)| character.is_control() && !allowed(*character))
    {
        Some((byte, character)) => {
            Err(Refusal::ControlCharacter { field, character: character.into(), byte })
        }
        None => Ok(()),
    }
}

fn check_skew(
    timestamp: Option<EventTime>,
    original: &Original,
    limit: u64,
) -> Result<(), Refusal> {
    let (Some(said), Some(logged)) = (timestamp, original.time_ms) else { return Ok(()) };
    let seconds = said.millis().abs_diff(logged) / 1_000;
    if limit > 0 && seconds > limit {
        return Err(Refusal::Skewed { seconds, limit });
    }
    Ok(())
}

/// Checks that a keyed record lies on the partition of its key. Without a key, any partition is fine.
pub(super) fn check_partition(
    found: i32,
    original: &Original,
    partitioner: Partitioner,
    partitions: Option<i32>,
) -> Result<(), Refusal> {
    let (Some(key), Some(partitions)) = (&original.key, partitions) else { return Ok(()) };
    match partitioner.partition(key, partitions) {
        Some(expected) if expected != found => {
            Err(Refusal::Misplaced { found, expected, partitions, partitioner })
        }
        _ => Ok(()),
    }
}
