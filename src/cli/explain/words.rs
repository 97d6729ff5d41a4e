//! The turns of a response's conversation, as far as they can be read: responses name turns by
//! their ids.

use turnstream_console::InputRefused;
use turnstream_explain::Spoken;
use turnstream_formats::LoggedItem;
use turnstream_log::embedded::{EmbeddedLog, Isolation};
use turnstream_log::{LogError, Record, Topic};
use turnstream_schemas::{InputId, Response, Turn};

use super::ExplainArgs;
use super::find::Source;

/// Records per read.
const READ_RECORDS: usize = 256;

/// Reads the embedded log, the log that was replayed, and the other responses of a file.
pub(super) fn of(
    source: &Source,
    args: &ExplainArgs,
    response: &Response,
) -> anyhow::Result<Spoken> {
    let mut spoken = Spoken::default();
    if let Source::Embedded(log) = source {
        conversation(
            log,
            response.input.partition,
            response.conversation_id.as_str(),
            &mut spoken,
        )?;
    }
    if let Some(path) = &args.log {
        let refused = |error: turnstream_formats::FormatError| {
            InputRefused::new(error.to_string(), "").caused_by(error)
        };
        let items = turnstream_formats::open(args.format, path).map_err(refused)?;
        // An unreadable item was not an input.
        for (item, offset) in items.filter_map(Result::ok).zip(0..) {
            let turn = match item {
                LoggedItem::Turn(logged) => Some(logged.turn),
                LoggedItem::Raw { bytes, .. } => serde_json::from_slice(&bytes).ok(),
            };
            let of_it = |turn: &Turn| turn.conversation_id == response.conversation_id;
            if let Some(turn) = turn.filter(of_it) {
                note(turn, 0, offset, &mut spoken);
            }
        }
    }
    if let Source::File(_) = source {
        source.each(|_, other| {
            if other.conversation_id == response.conversation_id {
                spoken.note_response(&other);
            }
        })?;
    }
    Ok(spoken)
}

/// Notes the turns of a conversation in a partition of an embedded log. Returns their number.
pub(crate) fn conversation(
    log: &EmbeddedLog,
    partition: i32,
    conversation: &str,
    spoken: &mut Spoken,
) -> Result<u64, LogError> {
    let mut turns = 0;
    each(log, Topic::Turns, partition, |record| {
        let turn = serde_json::from_slice::<Turn>(record.value.as_deref().unwrap_or_default());
        if let Ok(turn) = turn
            && turn.conversation_id.as_str() == conversation
        {
            turns += 1;
            note(turn, partition, record.offset, spoken);
        }
    })?;
    each(log, Topic::Responses, partition, |record| {
        let response = serde_json::from_slice(record.value.as_deref().unwrap_or_default());
        let response = response
            .ok()
            .filter(|response: &Response| response.conversation_id.as_str() == conversation);
        if let Some(response) = response {
            spoken.note_response(&response);
        }
    })?;
    Ok(turns)
}

/// Notes a turn. A turn without an id is named by its coordinates.
fn note(mut turn: Turn, partition: i32, offset: i64, spoken: &mut Spoken) {
    let place = InputId { topic: String::new(), partition, offset };
    turn.turn_id.get_or_insert_with(|| place.turn_id());
    spoken.note_turn(&turn);
}

fn each(
    log: &EmbeddedLog,
    topic: Topic,
    partition: i32,
    mut take: impl FnMut(&Record),
) -> Result<(), LogError> {
    let mut next = 0;
    loop {
        let read = log.read(topic, partition, next, READ_RECORDS, Isolation::ReadCommitted)?;
        let Some(last) = read.last() else { return Ok(()) };
        next = last.offset + 1;
        read.iter().for_each(&mut take);
    }
}
