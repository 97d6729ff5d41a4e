//! Encodes finished inputs for the log, and counts them.

use std::sync::Arc;

use serde::Serialize;
use turnstream_log::{Output, Topic, evictions, letters};
use turnstream_operators::flow::{Finished, Original};
use turnstream_schemas::{ConversationId, HistoryChange, InputId, Outcome, UserId};

use crate::tally::Tally;

/// Inputs that ended together, encoded. One transaction holds all of it.
#[derive(Clone, Debug)]
pub struct EncodedBatch {
    /// The inputs' partition.
    pub partition: i32,
    /// The generation under which they were read.
    pub generation: u32,
    /// The inputs' offsets.
    pub offsets: Vec<i64>,
    /// What to write, in order.
    pub outputs: Vec<Output>,
    /// What to count once the outputs are committed.
    pub tally: Tally,
}

/// Encodes finished inputs. Without `publish_recorded`, recorded turns are not written.
pub fn encode(finished: Finished, publish_recorded: bool) -> EncodedBatch {
    let Finished { partition, generation, outcomes, changes } = finished;
    let mut tally = Tally::default();
    let mut offsets = Vec::with_capacity(outcomes.len());
    let mut outputs = Vec::with_capacity(outcomes.len() + changes.len());
    let mut headers = Vec::new();
    for (outcome, original) in outcomes {
        headers.clone_from(&original.headers);
        tally.count(&outcome);
        offsets.push(outcome.input().offset);
        outputs.extend(outcome_output(&outcome, &original, publish_recorded));
    }
    // The last input of the group caused all changes.
    let caused = Output {
        topic: Topic::History,
        partition,
        input_offset: offsets.last().copied().unwrap_or_default(),
        key: None,
        value: None,
        headers,
    };
    outputs.extend(changes.iter().map(|change| change_output(change, caused.clone())));
    EncodedBatch { partition, generation, offsets, outputs, tally }
}

fn outcome_output(
    outcome: &Outcome,
    original: &Arc<Original>,
    publish_recorded: bool,
) -> Option<Output> {
    match outcome {
        Outcome::Response(response) => {
            let (input, conversation) = (&response.input, response.conversation_id.as_str());
            Some(answer_output(Topic::Responses, (input, Some(conversation)), response, original))
        }
        Outcome::Recorded(recorded) => publish_recorded.then(|| {
            let conversation = recorded.conversation_id.as_ref().map(ConversationId::as_str);
            // A demand to forget a user has a user and no conversation.
            let id = conversation.or(recorded.user_id.as_ref().map(UserId::as_str));
            answer_output(Topic::Recorded, (&recorded.input, id), recorded, original)
        }),
        Outcome::DeadLetter(letter) => Some(letters::encode(letter)),
    }
}

/// A record about an input, on the input's partition and with its key and headers.
fn answer_output(
    topic: Topic,
    (input, id): (&InputId, Option<&str>),
    record: &impl Serialize,
    original: &Original,
) -> Output {
    Output {
        topic,
        partition: input.partition,
        input_offset: input.offset,
        key: original.key.clone().or_else(|| id.map(|id| id.as_bytes().to_vec())),
        value: Some(json(record)),
        headers: original.headers.clone(),
    }
}

fn change_output(change: &HistoryChange, caused: Output) -> Output {
    let mut headers = caused.headers;
    let value = match change {
        HistoryChange::Entry { entry, .. } => Some(json(entry)),
        HistoryChange::Scope { record, .. } => Some(json(record)),
        HistoryChange::Gone { evicted, .. } => {
            headers.extend(evicted.as_deref().map(evictions::encode));
            None
        }
    };
    Output { key: Some(json(change.key())), value, headers, ..caused }
}

/// Our records have only text keys and finite numbers, so encoding them in memory cannot fail.
fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_else(|error| unreachable!("a record of ours: {error}"))
}

#[cfg(test)]
mod tests {
    use turnstream_operators::ingest::dead_letter;
    use turnstream_schemas::outcome::Bytes;
    use turnstream_schemas::{
        EntryKey, Evicted, EvictionReason, Fault, FaultKind, Header, Recorded, RecordedReason,
        Scope, Score, Stage,
    };

    use super::*;

    #[test]
    fn headers_go_from_an_input_to_all_its_outputs() {
        let traceparent = Header {
            name: "traceparent".to_owned(),
            value: Some(Bytes(b"00-4bf9-00f0-01".to_vec())),
        };
        let original =
            Arc::new(Original { headers: vec![traceparent.clone()], ..Original::default() });
        let input = |offset| InputId { topic: "turns".to_owned(), partition: 3, offset };
        let fault = Fault::new(Stage::Generation, FaultKind::Error, "no such luck");
        let recorded = Recorded {
            schema_version: 1,
            input: input(8),
            tenant_id: None,
            conversation_id: Some("c".into()),
            user_id: None,
            turn_id: "t".into(),
            reason: RecordedReason::System,
            evicted: Vec::new(),
            metadata: serde_json::Map::new(),
            extra: serde_json::Map::new(),
        };
        let key = EntryKey { scope: Scope::new(None, "c"), entry: None };
        let evicted = Evicted {
            turn_id: "t0".into(),
            relevance: Score::new(0.25),
            recency: Score::new(0.75),
            importance: None,
            weight: Score::new(0.5),
            rank: 7,
            reason: EvictionReason::Capacity,
        };
        let finished = Finished {
            partition: 3,
            generation: 1,
            outcomes: vec![
                (dead_letter(input(7), &original, fault), Arc::clone(&original)),
                (Outcome::Recorded(Box::new(recorded)), Arc::clone(&original)),
            ],
            changes: vec![HistoryChange::Gone { key, evicted: Some(Box::new(evicted.clone())) }],
        };
        let ended = encode(finished.clone(), true);
        assert_eq!(ended.offsets, [7, 8]);
        let topics: Vec<_> = ended.outputs.iter().map(|output| output.topic).collect();
        assert_eq!(topics, [Topic::DeadLetters, Topic::Recorded, Topic::History]);
        for output in &ended.outputs {
            assert_eq!(output.headers[0], traceparent, "{:?}", output.topic);
            assert_eq!(output.partition, 3);
        }
        assert_eq!(ended.outputs[2].key.as_deref(), Some(&br#"{"scope":"default/c"}"#[..]));
        assert_eq!(evictions::decode(&ended.outputs[2].headers), Some(evicted), "and why");
        assert_eq!(encode(finished, false).outputs.len(), 2, "recorded outcomes may stay off");
    }
}
