//! Compares the log with the expected outcomes. The oracle knows the inputs, the rules and the form
//! of the records, and nothing else of the engine.

use std::collections::{BTreeMap, BTreeSet};

use turnstream_engine::config::Config;
use turnstream_log::embedded::{EmbeddedLog, Isolation};
use turnstream_log::{Record, Topic, letters};
use turnstream_operators::stage::OnFailure;
use turnstream_schemas::{
    Action, BriefResponse, ConversationRecord, EntryKey, Handover, HistoryEntry, Outcome,
    RecordedReason, Response, ScopeRecord, Stage,
};

use crate::history::History;
use crate::workload::{ASKS_FOR_PERSON, Said, Sent, Workload};

/// The topics of outcomes.
const OUTCOMES: [Topic; 3] = [Topic::Responses, Topic::Recorded, Topic::DeadLetters];

/// An input's coordinates.
type Place = (i32, i64);

/// Reads the log as it grows.
#[derive(Default)]
pub(crate) struct Oracle {
    /// The next offset to read of each partition of each topic.
    next: BTreeMap<(Topic, i32), i64>,
    ended: BTreeMap<Place, (Outcome, Record)>,
    /// The last input of each scope whose outcome is visible.
    last: BTreeMap<String, i64>,
}

impl Oracle {
    /// Returns the number of inputs with an outcome that readers of committed records see.
    pub(crate) fn ended(&self) -> usize {
        self.ended.len()
    }

    /// Returns the outcome of an input.
    pub(crate) fn outcome(&self, place: Place) -> Option<&Outcome> {
        self.ended.get(&place).map(|(outcome, _)| outcome)
    }

    /// Reads the records that became visible since the last call: at most the writes of one
    /// committer call.
    pub(crate) fn observe(&mut self, log: &EmbeddedLog, workload: &Workload) {
        let mut seen = Vec::new();
        for partition in 0..workload.partitions {
            // An open transaction of a dead process may block one topic and not the others.
            let settled = |topic| log.stable_end(topic, partition) == log.end(topic, partition);
            if OUTCOMES.into_iter().chain([Topic::Traces]).all(settled) {
                OUTCOMES
                    .into_iter()
                    .for_each(|topic| seen.extend(self.read(log, workload, (topic, partition))));
                self.complete(log, partition, &seen);
            }
        }
        self.check_order(workload, &seen);
    }

    /// Reads the new records of a partition. A scope's outcomes lie there in the order of its
    /// inputs.
    fn read(
        &mut self,
        log: &EmbeddedLog,
        workload: &Workload,
        (topic, partition): (Topic, i32),
    ) -> Vec<Place> {
        let next = self.next.entry((topic, partition)).or_default();
        let read = log.read(topic, partition, *next, usize::MAX, Isolation::ReadCommitted);
        let (mut seen, mut last) = (Vec::new(), BTreeMap::new());
        for record in read.expect("read") {
            *next = record.offset + 1;
            let outcome = outcome(topic, &record);
            let place = (outcome.input().partition, outcome.input().offset);
            if let Some(said) = turn_of(workload, place) {
                let before = last.insert(said.scope.clone(), place.1);
                let rises = before.is_none_or(|before| before < place.1);
                assert!(rises, "{topic:?}: {place:?} lies behind {before:?} of its scope");
            }
            let before = self.ended.insert(place, (outcome, record));
            let after = &self.ended[&place];
            assert!(before.is_none(), "{place:?} ended twice: as {before:?} and {after:?}");
            seen.push(place);
        }
        seen
    }

    /// Replaces brief responses by new traces. Each of them has one, which became visible with it
    /// and says the same.
    fn complete(&mut self, log: &EmbeddedLog, partition: i32, seen: &[Place]) {
        let next = self.next.entry((Topic::Traces, partition)).or_default();
        let read = log.read(Topic::Traces, partition, *next, usize::MAX, Isolation::ReadCommitted);
        for record in read.expect("read") {
            *next = record.offset + 1;
            let trace: Response = serde_json::from_slice(record.value.as_deref().expect("a value"))
                .expect("a response");
            let place = (trace.input.partition, trace.input.offset);
            let Some((Outcome::Response(response), brief)) = self.ended.get_mut(&place) else {
                panic!("no response to {place:?}, and its trace is there");
            };
            assert!(response.brief, "{place:?} is traced twice, or left whole");
            let expected = serde_json::to_vec(&BriefResponse::from(&trace)).expect("JSON");
            assert_eq!(brief.value, Some(expected), "{place:?}");
            assert_eq!((&brief.key, &brief.headers), (&record.key, &record.headers), "{place:?}");
            **response = trace;
        }
        let untraced = seen.iter().find(
            |place| matches!(&self.ended[*place].0, Outcome::Response(response) if response.brief),
        );
        assert!(untraced.is_none(), "no trace of {untraced:?}");
    }

    /// Checks that all newly seen inputs of a scope come after those seen before. A superseded turn
    /// becomes visible together with the agent's turn, and a fragment with the one that it is merged into.
    fn check_order(&mut self, workload: &Workload, seen: &[Place]) {
        let mut latest: BTreeMap<&str, i64> = BTreeMap::new();
        for place in seen {
            let Some(said) = turn_of(workload, *place) else { continue };
            let last = self.last.get(&said.scope);
            assert!(
                last.is_none_or(|last| *last < place.1),
                "{place:?} ended after {last:?} of its scope"
            );
            let of_it = latest.entry(&said.scope).or_insert(place.1);
            *of_it = place.1.max(*of_it);
        }
        for place in seen {
            let (Outcome::Recorded(recorded), _) = &self.ended[place] else { continue };
            let (RecordedReason::SupersededBy(by) | RecordedReason::MergedInto(by)) =
                &recorded.reason
            else {
                continue;
            };
            let Some(said) = turn_of(workload, *place) else { continue };
            let together = seen.iter().filter(|other| other.1 > place.1).any(|other| {
                let other = turn_of(workload, *other);
                other.is_some_and(|it| it.scope == said.scope && it.turn_id == by.as_str())
            });
            assert!(together, "{place:?}: {:?}, which is not there", recorded.reason);
        }
        self.last.extend(latest.into_iter().map(|(scope, at)| (scope.to_owned(), at)));
    }

    /// Checks that all expected outcomes arrived and no others, and that the histories follow from
    /// them.
    pub(crate) fn check(&self, log: &EmbeddedLog, workload: &Workload, config: &Config) {
        let sent: BTreeMap<Place, &Sent> =
            workload.sent().iter().map(|sent| ((sent.partition, sent.offset), sent)).collect();
        let lost: Vec<_> = sent.keys().filter(|place| !self.ended.contains_key(place)).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        let unknown: Vec<_> = self.ended.keys().filter(|place| !sent.contains_key(place)).collect();
        assert!(unknown.is_empty(), "nobody sent: {unknown:?}");

        let mut scopes: BTreeMap<&str, Vec<(&Sent, &Said)>> = BTreeMap::new();
        for (place, sent) in &sent {
            let (outcome, record) = &self.ended[place];
            let words = self.words(workload, sent);
            check_payload((sent, &words), outcome, record, config);
            if let Some(said) = &sent.turn {
                scopes.entry(&said.scope).or_default().push((sent, said));
            }
        }
        let mut expected = BTreeMap::new();
        for (scope, inputs) in scopes {
            let outcomes: Vec<(&Said, &Outcome)> = inputs
                .iter()
                .map(|(sent, said)| (*said, &self.ended[&(sent.partition, sent.offset)].0))
                .collect();
            let mut history = History::default();
            for (at, (input, (_, outcome))) in inputs.iter().zip(&outcomes).enumerate() {
                history.apply(*input, outcome, &outcomes[at + 1..], config);
            }
            history.record.schema_version = turnstream_schemas::SCHEMA_VERSION;
            expected.insert(scope.to_owned(), history);
        }
        check_histories(log, workload, &expected);
        check_hands(log, workload, &expected);
    }
}

impl Oracle {
    /// Returns the words of a turn, after those of the fragments that are merged into it.
    fn words(&self, workload: &Workload, sent: &Sent) -> String {
        let Some(said) = &sent.turn else { return String::new() };
        let is_fragment = |outcome: &Outcome| match outcome {
            Outcome::Recorded(recorded) => {
                recorded.reason == RecordedReason::MergedInto(said.turn_id.as_str().into())
            }
            _ => false,
        };
        let before = self.ended.range((sent.partition, 0)..(sent.partition, sent.offset));
        let before = before.filter(|(_, (outcome, _))| is_fragment(outcome));
        let before = before.filter_map(|(place, _)| turn_of(workload, *place));
        let before = before.filter(|fragment| fragment.scope == said.scope);
        let texts: Vec<&str> = before.chain([said]).map(|of| of.text.as_str()).collect();
        texts.join(" ")
    }
}

/// Returns the turn of an input that the workload sent; `None` if it is not a turn.
fn turn_of(workload: &Workload, place: Place) -> Option<&Said> {
    workload.at(place).unwrap_or_else(|| panic!("nobody sent {place:?}")).turn.as_ref()
}

fn outcome(topic: Topic, record: &Record) -> Outcome {
    let value = || record.value.as_deref().expect("outcomes have values");
    match topic {
        Topic::Responses => Outcome::Response(serde_json::from_slice(value()).expect("a response")),
        Topic::Recorded => Outcome::Recorded(serde_json::from_slice(value()).expect("recorded")),
        _ => {
            let Record { key, value, headers, .. } = record;
            let letter = letters::decode(key.as_deref(), value.as_deref(), headers);
            Outcome::DeadLetter(Box::new(letter.expect("a dead letter")))
        }
    }
}

/// Checks the fields that every kind of outcome takes from its input.
fn check_payload(
    (sent, words): (&Sent, &str),
    outcome: &Outcome,
    record: &Record,
    config: &Config,
) {
    let came: Vec<_> = sent.header.iter().cloned().collect();
    assert_eq!(record.headers[..came.len()], came, "headers of {outcome:?}");
    assert_eq!(record.partition, sent.partition, "{outcome:?}");
    let said = match (&sent.turn, outcome) {
        (None, Outcome::DeadLetter(letter)) => {
            assert_eq!(letter.fault.stage, Stage::Ingest, "{letter:?}");
            assert_eq!((&record.key, &record.value), (&sent.key, &sent.value), "as it came");
            return;
        }
        (None, _) => panic!("{sent:?} is no turn, and ended as {outcome:?}"),
        (Some(said), _) => said,
    };
    assert_eq!(record.key, sent.key, "{outcome:?}");
    match outcome {
        Outcome::Response(response) => {
            let id = format!("turns-{}-{}", sent.partition, sent.offset);
            assert_eq!(response.response_id.as_str(), id);
            assert_eq!(response.turn_id.as_str(), said.turn_id);
            assert_eq!(Some(response.conversation_id.as_str()), said.conversation.as_deref());
            let degraded = response.is_without(Stage::Generation);
            let hands_off = response.action == Some(Action::HandOff);
            assert_eq!(hands_off, words.contains(ASKS_FOR_PERSON), "{response:?}");
            let answers = hands_off || response.text.starts_with(&format!("{words}? "));
            let may_degrade = config.generation.on_failure == OnFailure::Degrade;
            assert!(answers != degraded && (may_degrade || !degraded), "{said:?}: {response:?}");
        }
        Outcome::Recorded(recorded) => {
            assert_eq!(recorded.turn_id.as_str(), said.turn_id);
            let conversation = recorded.conversation_id.as_ref().map(|id| id.as_str());
            assert_eq!(conversation, said.conversation.as_deref());
        }
        Outcome::DeadLetter(letter) => {
            let degrades = config.generation.on_failure == OnFailure::Degrade;
            assert!(letter.fault.stage == Stage::Generation && !degrades, "{letter:?}");
            let reason = &letter.fault.reason;
            // The scripted model quotes the user's words, and fragments may begin alike.
            let quoted = config.turns.burst_ms > 0 && reason.contains("starts again");
            let by_model = reason.starts_with("model `") || quoted;
            assert!(by_model, "nothing fails here but a model: {letter:?}");
            assert_eq!(record.value, sent.value, "as it came");
        }
    }
}

/// Checks that the changelog, folded to the last record of each key, has exactly the expected
/// records.
fn check_histories(log: &EmbeddedLog, workload: &Workload, expected: &BTreeMap<String, History>) {
    let mut found: BTreeMap<EntryKey, Record> = BTreeMap::new();
    for partition in 0..workload.partitions {
        let all = log.read(Topic::History, partition, 0, usize::MAX, Isolation::ReadCommitted);
        for record in all.expect("read") {
            let key = serde_json::from_slice(record.key.as_deref().expect("keys")).expect("a key");
            found.insert(key, record);
        }
    }
    found.retain(|_, record| record.value.is_some());
    let keys: BTreeSet<EntryKey> = found.keys().cloned().collect();
    let mut wanted = BTreeSet::new();
    for (scope, history) in expected {
        let key = |entry| EntryKey {
            scope: serde_json::from_value(scope.clone().into()).expect("a scope"),
            entry,
        };
        let value = |entry| {
            let record =
                found.get(&key(entry)).unwrap_or_else(|| panic!("{scope}: {entry:?} is missing"));
            record.value.as_deref().expect("kept above")
        };
        let record: ScopeRecord = serde_json::from_slice(value(None)).expect("a scope record");
        assert_eq!(record, history.record, "the record of {scope}");
        wanted.insert(key(None));
        for (id, entry) in &history.entries {
            let found: HistoryEntry = serde_json::from_slice(value(Some(*id))).expect("an entry");
            assert_eq!(&found, entry, "an entry of {scope}");
            wanted.insert(key(Some(*id)));
        }
    }
    assert_eq!(keys, wanted, "the keys on the changelog");
}

/// Checks that every handover that the inputs imply was written once, in order, and no other.
fn check_hands(log: &EmbeddedLog, workload: &Workload, expected: &BTreeMap<String, History>) {
    let mut found: BTreeMap<String, Vec<Handover>> = BTreeMap::new();
    for partition in 0..workload.partitions {
        let topic = Topic::Conversations;
        let all = log.read(topic, partition, 0, usize::MAX, Isolation::ReadCommitted);
        for record in all.expect("read") {
            let value = record.value.as_deref().expect("a value");
            let of: ConversationRecord = serde_json::from_slice(value).expect("a conversation");
            assert_eq!(record.key.as_deref(), Some(of.scope.as_str().as_bytes()));
            assert_eq!(of.handover.since.partition, partition, "{of:?}");
            found.entry(of.scope.to_string()).or_default().push(of.handover);
        }
    }
    let wanted = expected.iter().filter(|(_, history)| !history.handovers.is_empty());
    let wanted = wanted.map(|(scope, history)| (scope.clone(), history.handovers.clone()));
    assert_eq!(found, wanted.collect(), "changes of hands");
}
