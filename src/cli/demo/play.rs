//! Plays conversations against an engine as people would: each waits for the answer to its turn,
//! and the others go on meanwhile, so that conversations interleave on the log.

use std::time::{Duration, Instant};

use anyhow::Context;
use turnstream_engine::serve::Summary;
use turnstream_explain::Spoken;
use turnstream_log::embedded::Message;
use turnstream_schemas::{InputId, Outcome, ResponseId, Speaker, Turn};

use super::script::{Conversation, ScriptLine};
use crate::served::Served;

/// A record that went through the engine, with its outcome.
pub(super) struct Heard {
    /// The record's bytes.
    pub(super) bytes: Vec<u8>,
    /// The turn, if the record is one.
    pub(super) turn: Option<Turn>,
    /// Its outcome.
    pub(super) outcome: Outcome,
}

impl Heard {
    /// Notes the turn and its response.
    pub(super) fn note_in(&self, spoken: &mut Spoken) {
        if let Some(turn) = &self.turn {
            spoken.note_turn(turn);
        }
        if let Outcome::Response(response) = &self.outcome {
            spoken.note_response(response);
        }
    }
}

/// The result of playing conversations.
pub(super) struct Played {
    /// Per conversation, in the order of its lines.
    pub(super) heard: Vec<Vec<Heard>>,
    /// The counts of the engine.
    pub(super) summary: Summary,
    /// From the first turn to the last outcome.
    pub(super) time: Duration,
}

/// A record that was appended and has not ended yet.
struct Appended {
    conversation: usize,
    record: Record,
    input: InputId,
}

/// A record to append.
#[derive(Clone)]
struct Record {
    bytes: Vec<u8>,
    turn: Option<Turn>,
}

/// Plays conversations to their ends, then ends the engine.
pub(super) fn play(conversations: &[Conversation], mut served: Served) -> anyhow::Result<Played> {
    let started = Instant::now();
    let mut heard: Vec<Vec<Heard>> = conversations.iter().map(|_| Vec::new()).collect();
    let rounds = conversations.iter().map(|conversation| conversation.steps.len()).max();
    for round in 0..rounds.unwrap_or_default() {
        let mut appended = Vec::new();
        for (place, conversation) in conversations.iter().enumerate() {
            let Some(step) = conversation.steps.get(round) else { continue };
            if step.len() > 1 {
                // Turns that come at once must find the engine idle. Otherwise it might see one of
                // them before the others.
                settle(&mut served, &mut appended, &mut heard)?;
            }
            let records = step.iter().map(|line| record(line, &heard[place]));
            let records = records.collect::<anyhow::Result<Vec<_>>>()?;
            let inputs = served.append(conversation.name, records.iter().map(message))?;
            appended.extend(records.into_iter().zip(inputs).map(|(record, input)| Appended {
                conversation: place,
                record,
                input,
            }));
        }
        settle(&mut served, &mut appended, &mut heard)?;
    }
    let time = started.elapsed();
    Ok(Played { heard, summary: served.end()?, time })
}

/// Waits for the outcomes of all appended records.
fn settle(
    served: &mut Served,
    appended: &mut Vec<Appended>,
    heard: &mut [Vec<Heard>],
) -> anyhow::Result<()> {
    for Appended { conversation, record, input } in appended.drain(..) {
        let outcome = served.outcome(&input)?;
        let Record { bytes, turn } = record;
        heard[conversation].push(Heard { bytes, turn, outcome });
    }
    Ok(())
}

/// The record of a line. An echo gets the id and the words of the answer.
fn record(line: &ScriptLine, heard: &[Heard]) -> anyhow::Result<Record> {
    let bytes = line.json.as_bytes().to_vec();
    let Some(mut turn) = line.turn.clone() else { return Ok(Record { bytes, turn: None }) };
    let Some(echoed) = turn.response_id.take().filter(|_| turn.speaker == Speaker::System) else {
        return Ok(Record { bytes, turn: Some(turn) });
    };
    let (id, words) =
        answer_to(&echoed, heard).with_context(|| format!("no answer to {echoed}"))?;
    turn.response_id = Some(id);
    turn.text = words;
    Ok(Record { bytes: serde_json::to_vec(&turn)?, turn: Some(turn) })
}

fn answer_to(turn: &ResponseId, heard: &[Heard]) -> Option<(ResponseId, String)> {
    heard.iter().find_map(|heard| match &heard.outcome {
        Outcome::Response(response) if response.turn_id.as_str() == turn.as_str() => {
            Some((response.response_id.clone(), response.text.clone()))
        }
        _ => None,
    })
}

/// A record as a client sends it. Its time on the log is the time of the turn.
fn message(record: &Record) -> Message {
    let said = record.turn.as_ref().and_then(|turn| turn.timestamp);
    Message {
        value: Some(record.bytes.clone()),
        time_ms: said.map(|time| time.millis()),
        ..Message::default()
    }
}
