//! Reads the committed outcomes from the log, and converts them to events.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use serde_json::{Map, Value, json};
use turnstream_log::{Follower, LogError, Record, Topic, letters};
use turnstream_schemas::{Directive, Turn, TurnsRecord};

use crate::access::DEFAULT_TENANT;
use crate::conversations::{ConversationEvent, ConversationKey, EventKind, KnownConversations};

/// How long a reader waits for records before it checks whether to stop.
const WAIT: Duration = Duration::from_millis(100);

/// Reads a topic of outcomes until `stop` is set. Does not remember records older than `since_ms`.
/// Drops `behind` once it has read what was committed at its start.
///
/// # Errors
/// The log refuses, or the client cannot go on.
pub(crate) fn follow(
    topic: Topic,
    mut follower: Box<dyn Follower>,
    (conversations, since_ms): (&KnownConversations, i64),
    stop: &AtomicBool,
    behind: Sender<()>,
) -> Result<(), LogError> {
    let mut behind = Some(behind);
    while !stop.load(Ordering::Relaxed) {
        if follower.has_caught_up() {
            drop(behind.take());
        }
        for record in follower.poll(WAIT)? {
            match event(topic, &record) {
                Some((key, partial)) if topic == Topic::Partials => {
                    conversations.pass_on(&key, partial);
                }
                Some((key, event)) if record.time_ms < Some(since_ms) => {
                    conversations.note_old(&key, &event);
                }
                Some((key, event)) => conversations.note(key, event),
                None => tracing::debug!(
                    topic = topic.name(),
                    offset = record.offset,
                    "skipped a record without a conversation"
                ),
            }
        }
    }
    Ok(())
}

/// Converts a record to an event; `None` if it names no conversation.
pub(crate) fn event(topic: Topic, record: &Record) -> Option<(ConversationKey, ConversationEvent)> {
    let (kind, value) = match topic {
        Topic::DeadLetters => (EventKind::DeadLetter, letter(record)?),
        topic => {
            let value: Map<String, Value> =
                serde_json::from_slice(record.value.as_deref()?).ok()?;
            let kind = match topic {
                Topic::Responses => EventKind::Response,
                Topic::Partials => EventKind::Partial,
                Topic::Conversations => EventKind::Conversation {
                    waits: value.get("holder").is_some_and(|holder| holder == "waiting"),
                },
                _ if value.get("reason").is_some_and(|reason| reason == "duplicate_of") => {
                    EventKind::Repeated
                }
                _ => EventKind::Recorded,
            };
            (kind, value)
        }
    };
    let text = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    let tenant = text("tenant_id").unwrap_or_else(|| DEFAULT_TENANT.to_owned());
    let key = (tenant, text("conversation_id")?);
    let turn_id = text("turn_id");
    let mut told = Map::new();
    if !matches!(kind, EventKind::Conversation { .. } | EventKind::Partial) {
        told.insert("outcome".to_owned(), kind.name().into());
    }
    told.extend(value);
    let id = format!("{}-{}-{}", topic.name(), record.partition, record.offset);
    Some((
        key,
        ConversationEvent { id, kind, turn_id, json: Value::Object(told).to_string().into() },
    ))
}

/// Returns a dead letter without its bytes; `None` if these name no conversation.
fn letter(record: &Record) -> Option<Map<String, Value>> {
    let Record { key, value, headers, .. } = record;
    let letter = letters::decode(key.as_deref(), value.as_deref(), headers).ok()?;
    let sent = std::str::from_utf8(value.as_deref()?).ok()?;
    let (tenant_id, conversation_id, turn_id) = match TurnsRecord::parse(sent) {
        Ok(TurnsRecord::Turn(Turn { tenant_id, conversation_id, turn_id, .. })) => {
            (tenant_id, conversation_id, turn_id)
        }
        Ok(TurnsRecord::Directive(Directive { tenant_id, conversation_id, turn_id, .. })) => {
            (tenant_id, conversation_id?, turn_id)
        }
        Err(_) => return None,
    };
    let turn_id = turn_id.unwrap_or_else(|| letter.input.turn_id());
    let Value::Object(mut told) = json!({
        "conversation_id": conversation_id,
        "turn_id": turn_id,
        "input": letter.input,
        "stage": letter.fault.stage,
        "kind": letter.fault.kind,
        "reason": letter.fault.reason,
    }) else {
        return None;
    };
    told.extend(tenant_id.map(|tenant| ("tenant_id".to_owned(), tenant.0.into())));
    Some(told)
}

#[cfg(test)]
mod tests {
    use turnstream_schemas::{DeadLetter, Fault, FaultKind, InputId, Stage, outcome::Bytes};

    use super::*;

    fn told(
        topic: Topic,
        record: &Record,
    ) -> Option<(ConversationKey, EventKind, Option<String>, Value)> {
        let (key, event) = event(topic, record)?;
        assert_eq!(event.id, format!("{}-3-9", topic.name()));
        Some((key, event.kind, event.turn_id, serde_json::from_str(&event.json).unwrap()))
    }

    fn record(value: &str) -> Record {
        Record {
            partition: 3,
            offset: 9,
            value: Some(value.as_bytes().to_vec()),
            ..Record::default()
        }
    }

    #[test]
    fn events_carry_their_records_unchanged() {
        let fixture = include_str!("../../tests/fixtures/records/v1/response.brief.json");
        let (key, kind, turn_id, value) = told(Topic::Responses, &record(fixture)).unwrap();
        let mut expected: Value = serde_json::from_str(fixture).unwrap();
        assert_eq!(key.1, expected["conversation_id"]);
        assert_eq!((kind, turn_id.as_deref()), (EventKind::Response, expected["turn_id"].as_str()));
        expected["outcome"] = "response".into();
        assert_eq!(value, expected);
        let repeated = include_str!("../../tests/fixtures/records/v1/recorded.duplicate_of.json");
        assert_eq!(told(Topic::Recorded, &record(repeated)).unwrap().1, EventKind::Repeated);
        let held = include_str!("../../tests/fixtures/records/v1/recorded.held.json");
        let (key, kind, _, value) = told(Topic::Recorded, &record(held)).unwrap();
        assert_eq!((key.0.as_str(), kind), ("default", EventKind::Recorded));
        assert_eq!((&value["outcome"], &value["reason"]), (&"recorded".into(), &"held".into()));
        let handed = include_str!("../../tests/fixtures/records/v1/conversation.json");
        let (key, kind, turn_id, value) = told(Topic::Conversations, &record(handed)).unwrap();
        assert_eq!(
            (key, kind, turn_id),
            (("harbour".into(), "c-7".into()), EventKind::Conversation { waits: true }, None)
        );
        assert_eq!(value["holder"], "waiting");
        let partial = r#"{"schema_version":1,"conversation_id":"c","turn_id":"t","text":"so far"}"#;
        let (key, kind, turn_id, value) = told(Topic::Partials, &record(partial)).unwrap();
        assert_eq!(
            (key.1.as_str(), kind, turn_id.as_deref()),
            ("c", EventKind::Partial, Some("t"))
        );
        assert_eq!(value, serde_json::from_str::<Value>(partial).unwrap());
        assert_eq!(told(Topic::Recorded, &record("{}")), None);
        assert_eq!(told(Topic::Responses, &Record::default()), None);
    }

    #[test]
    fn a_dead_letter_is_told_with_its_reason_and_without_its_bytes() {
        let letter = |value: &str| {
            let letter = DeadLetter {
                schema_version: 1,
                input: InputId { topic: "turns".to_owned(), partition: 3, offset: 4 },
                value: Some(Bytes(value.as_bytes().to_vec())),
                key: None,
                headers: Vec::new(),
                fault: Fault::new(Stage::Ingest, FaultKind::Invalid, "`text` is empty"),
                time: 7,
            };
            let output = letters::encode(&letter);
            Record { headers: output.headers, ..record(value) }
        };
        let turn = r#"{"conversation_id":"c","tenant_id":"t","speaker":"user","text":""}"#;
        let (key, kind, turn_id, value) = told(Topic::DeadLetters, &letter(turn)).unwrap();
        assert_eq!((key, kind), (("t".into(), "c".into()), EventKind::DeadLetter));
        assert_eq!(turn_id.as_deref(), Some("3-4"));
        assert_eq!(
            (&value["reason"], &value["stage"]),
            (&"`text` is empty".into(), &"ingest".into())
        );
        assert_eq!(value.get("value"), None);
        assert_eq!(told(Topic::DeadLetters, &letter("no turn")), None);
    }
}
