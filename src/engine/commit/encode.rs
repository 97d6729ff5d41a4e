//! Encodes finished inputs for the log, and counts them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_log::{Output, Topic, evictions, letters};
use turnstream_operators::flow::{Finished, Original};
use turnstream_schemas::{
    BriefResponse, ConversationId, Fingerprint, HistoryChange, InputId, Outcome, UserId,
};

use crate::tally::Tally;

/// How responses are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResponsesConfig {
    /// Where the trace of a response goes: what was recalled, demanded, found and selected.
    /// `topic`: to the topic `traces`, while `responses` has the brief response that clients need
    /// (as `inline` if Kafka has no such topic); `inline`: to `responses` itself; `off`: nowhere,
    /// so that `turnstream explain` and `turnstream views` lack it. `replay` and `chat` are always
    /// `inline`.
    pub trace: TracePlace,
}

/// The destination of traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TracePlace {
    /// To a topic of traces.
    #[default]
    Topic,
    /// Into the response.
    Inline,
    /// Nowhere.
    Off,
}

/// Which parts of outcomes are written.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The fingerprint that responses carry.
    pub fingerprint: Option<Arc<Fingerprint>>,
    /// The destination of traces.
    pub trace: TracePlace,
    /// Whether recorded turns are written.
    pub recorded: bool,
    /// Whether changes of hands are written.
    pub conversations: bool,
}

/// Inputs that ended together, encoded. One transaction holds all of it.
#[derive(Clone, Debug)]
pub struct EncodedBatch {
    /// The inputs' partition.
    pub partition: i32,
    /// The generation under which they were read.
    pub generation: u32,
    /// The inputs' offsets.
    pub offsets: Vec<i64>,
    /// The outputs, in order.
    pub outputs: Vec<Output>,
    /// The counts to add once the outputs are committed.
    pub tally: Tally,
}

/// Encodes finished inputs.
pub fn encode(finished: Finished, publication: &Publication) -> EncodedBatch {
    let Finished { partition, generation, outcomes, changes, conversations } = finished;
    let mut tally = Tally::default();
    let mut offsets = Vec::with_capacity(outcomes.len());
    let mut outputs = Vec::with_capacity(outcomes.len() + changes.len());
    let mut headers = Vec::new();
    for (mut outcome, original) in outcomes {
        if let Outcome::Response(response) = &mut outcome {
            response.fingerprint = publication.fingerprint.as_deref().cloned();
        }
        headers.clone_from(&original.headers);
        tally.count(&outcome);
        offsets.push(outcome.input().offset);
        write_outcome(&outcome, &original, publication, &mut outputs);
    }
    tally.count_handovers(&conversations);
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
    let changed_hands = conversations.iter().filter(|_| publication.conversations);
    outputs.extend(changed_hands.map(|record| Output {
        topic: Topic::Conversations,
        key: Some(record.scope.as_str().as_bytes().to_vec()),
        value: Some(json(record)),
        ..caused.clone()
    }));
    EncodedBatch { partition, generation, offsets, outputs, tally }
}

fn write_outcome(
    outcome: &Outcome,
    original: &Original,
    publication: &Publication,
    outputs: &mut Vec<Output>,
) {
    match outcome {
        Outcome::Response(response) => {
            let of = (&response.input, Some(response.conversation_id.as_str()));
            if publication.trace == TracePlace::Inline {
                outputs.push(answer_output(Topic::Responses, of, response, original));
                return;
            }
            let brief = BriefResponse::from(&**response);
            outputs.push(answer_output(Topic::Responses, of, &brief, original));
            if publication.trace == TracePlace::Topic {
                outputs.push(answer_output(Topic::Traces, of, response, original));
            }
        }
        Outcome::Recorded(recorded) if publication.recorded => {
            let conversation = recorded.conversation_id.as_ref().map(ConversationId::as_str);
            // A demand to forget a user has a user and no conversation.
            let id = conversation.or(recorded.user_id.as_ref().map(UserId::as_str));
            outputs.push(answer_output(Topic::Recorded, (&recorded.input, id), recorded, original));
        }
        Outcome::Recorded(_) => {}
        Outcome::DeadLetter(letter) => outputs.push(letters::encode(letter)),
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
        Response, Scope, Score, Stage,
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
        let fixture = include_str!("../../../tests/fixtures/records/v1/conversation.json");
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
            conversations: vec![serde_json::from_str(fixture).unwrap()],
        };
        let publication = Publication {
            fingerprint: None,
            trace: TracePlace::Topic,
            recorded: true,
            conversations: true,
        };
        let ended = encode(finished.clone(), &publication);
        assert_eq!(ended.offsets, [7, 8]);
        let topics: Vec<_> = ended.outputs.iter().map(|output| output.topic).collect();
        assert_eq!(
            topics,
            [Topic::DeadLetters, Topic::Recorded, Topic::History, Topic::Conversations]
        );
        for output in &ended.outputs {
            assert_eq!(output.headers[0], traceparent, "{:?}", output.topic);
            assert_eq!(output.partition, 3);
        }
        assert_eq!(ended.outputs[2].key.as_deref(), Some(&br#"{"scope":"default/c"}"#[..]));
        assert_eq!(evictions::decode(&ended.outputs[2].headers), Some(evicted), "and why");
        assert_eq!(ended.outputs[3].key.as_deref(), Some(&b"harbour/c-7"[..]), "the scope");
        let less = Publication { recorded: false, conversations: false, ..publication };
        assert_eq!(encode(finished, &less).outputs.len(), 2, "both may stay off");
    }

    #[test]
    fn how_a_response_came_about_goes_where_it_is_wanted() {
        let fixture = include_str!("../../../tests/fixtures/records/v1/response.json");
        let whole: Response = serde_json::from_str(fixture).unwrap();
        let whole = Response { brief: false, ..whole };
        let written = |trace| {
            let finished = Finished {
                partition: whole.input.partition,
                generation: 1,
                outcomes: vec![(Outcome::Response(Box::new(whole.clone())), Arc::default())],
                changes: Vec::new(),
                conversations: Vec::new(),
            };
            let fingerprint = whole.fingerprint.clone().map(Arc::new);
            let publication =
                Publication { fingerprint, trace, recorded: true, conversations: true };
            let ended = encode(finished, &publication);
            assert_eq!((ended.offsets.len(), ended.tally.responses), (1, 1));
            let outputs = ended.outputs.into_iter();
            let read = |output: Output| {
                assert_eq!(output.key.as_deref(), Some(whole.conversation_id.as_str().as_bytes()));
                let response: Response = serde_json::from_slice(&output.value.unwrap()).unwrap();
                (output.topic, response)
            };
            outputs.map(read).collect::<Vec<_>>()
        };
        assert_eq!(written(TracePlace::Inline), [(Topic::Responses, whole.clone())]);
        let both = written(TracePlace::Topic);
        let [(Topic::Responses, brief), (Topic::Traces, trace)] = &both[..] else {
            panic!("{both:?}")
        };
        assert_eq!(trace, &whole);
        let made_by = whole.fingerprint.as_ref().expect("the fixture has all");
        assert_eq!(brief.fingerprint, Some(made_by.brief()));
        assert!(brief.brief && brief.evidence.is_empty() && brief.demand == Default::default());
        let same = |of: &Response| {
            let Response { text, citations, action, degraded, metadata, extra, .. } = of.clone();
            (of.response_id.clone(), text, citations, action, degraded, metadata, extra)
        };
        assert_eq!(same(brief), same(&whole));
        assert_eq!(written(TracePlace::Off), [(Topic::Responses, brief.clone())]);
    }
}
