//! From inputs that ended to bytes for the log, and to what is counted about them.

use std::sync::Arc;

use serde::Serialize;
use turnstream_operators::flow::Finished;
use turnstream_operators::ingest::Original;
use turnstream_schemas::{HistoryChange, Outcome, Recorded, Response};

use crate::log::{Output, Topic, letters};
use crate::tally::Tally;

/// Inputs that ended together, as bytes. All of it goes into one transaction.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The inputs' partition.
    pub partition: i32,
    /// The generation they were read under.
    pub generation: u32,
    /// The inputs' offsets.
    pub offsets: Vec<i64>,
    /// What to write, in order.
    pub outputs: Vec<Output>,
    /// What to count once it is written.
    pub tally: Tally,
}

/// Writes inputs that ended as bytes. Recorded outcomes may be kept off the log.
pub fn encode(finished: Finished, publish_recorded: bool) -> Ended {
    let Finished { partition, generation, outcomes, changes } = finished;
    let mut tally = Tally::default();
    let mut offsets = Vec::with_capacity(outcomes.len());
    let mut outputs = Vec::with_capacity(outcomes.len() + changes.len());
    for (outcome, original) in outcomes {
        tally.count(&outcome);
        offsets.push(outcome.input().offset);
        outputs.extend(outcome_output(&outcome, &original, publish_recorded));
    }
    let input_offset = offsets.last().copied().unwrap_or_default();
    outputs.extend(changes.iter().map(|change| change_output(change, partition, input_offset)));
    Ended { partition, generation, offsets, outputs, tally }
}

fn outcome_output(
    outcome: &Outcome,
    original: &Arc<Original>,
    publish_recorded: bool,
) -> Option<Output> {
    match outcome {
        Outcome::Response(response) => Some(response_output(response, original)),
        Outcome::Recorded(recorded) => {
            publish_recorded.then(|| recorded_output(recorded, original))
        }
        Outcome::DeadLetter(letter) => Some(letters::encode(letter)),
    }
}

fn response_output(response: &Response, original: &Original) -> Output {
    Output {
        topic: Topic::Responses,
        partition: response.input.partition,
        input_offset: response.input.offset,
        key: key_or(original, response.conversation_id.as_str()),
        value: Some(json(response)),
        headers: original.headers.clone(),
    }
}

fn recorded_output(recorded: &Recorded, original: &Original) -> Output {
    Output {
        topic: Topic::Recorded,
        partition: recorded.input.partition,
        input_offset: recorded.input.offset,
        key: key_or(original, recorded.conversation_id.as_str()),
        value: Some(json(recorded)),
        headers: original.headers.clone(),
    }
}

fn change_output(change: &HistoryChange, partition: i32, input_offset: i64) -> Output {
    let value = match change {
        HistoryChange::Entry { entry, .. } => Some(json(entry)),
        HistoryChange::Scope { record, .. } => Some(json(record)),
        HistoryChange::Gone { .. } => None,
    };
    let key = Some(json(change.key()));
    Output { topic: Topic::History, partition, input_offset, key, value, headers: Vec::new() }
}

fn key_or(original: &Original, conversation: &str) -> Option<Vec<u8>> {
    Some(original.key.clone().unwrap_or_else(|| conversation.as_bytes().to_vec()))
}

/// Our records hold text keys and finite numbers only, so writing one to memory cannot fail.
fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_else(|error| unreachable!("a record of ours: {error}"))
}
