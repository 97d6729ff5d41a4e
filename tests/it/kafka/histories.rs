//! The histories that the inputs and their outcomes imply, beside those on the compacted topic.

use std::collections::BTreeMap;

use serde_json::Value;
use turnstream_schemas::{EntryKey, HistoryEntry, RecordedReason, ScopeRecord};

use super::checks::{Ended, Outcome, Outputs, Place, parse};
use super::kcat::Read;

/// One expected entry: what was said, the answer and whose turn the answer is.
#[derive(Clone, Debug, Default, PartialEq)]
struct Entry {
    query: Option<String>,
    turn_id: String,
    response: Option<String>,
    response_turn_id: Option<String>,
    passages: Vec<String>,
}

/// What a conversation is expected to have left.
#[derive(Clone, Debug, Default, PartialEq)]
struct History {
    entries: BTreeMap<Place, Entry>,
    turn_ids: Vec<String>,
    last_offset: i64,
}

/// Histories by conversation.
#[derive(Debug, PartialEq)]
pub struct Histories(BTreeMap<String, History>);

impl Histories {
    /// Plays the outcomes through in the order of their inputs, by the rules as they are written
    /// down: an answer makes an entry with it, a superseded turn one without; an agent's words
    /// complete the latest entry without an answer, else make their own; a repeat changes nothing.
    pub fn expected(outputs: &Outputs) -> Self {
        let mut in_order: Vec<_> = outputs.all().collect();
        in_order.sort_by_key(|ended| ended.place);
        let mut histories: BTreeMap<String, History> = BTreeMap::new();
        for (at, Ended { place, outcome, .. }) in in_order.iter().copied().enumerate() {
            let Some(conversation) = outcome.conversation() else { continue };
            let turn: Value = parse(outputs.input(*place));
            let said = turn["text"].as_str().expect("a text").to_owned();
            let id = turn["turn_id"].as_str().expect("a turn id").to_owned();
            let history = histories.entry(conversation.to_owned()).or_default();
            history.last_offset = place.1;
            let repeats = history.turn_ids.contains(&id);
            let of_user = turn["speaker"] == "user";
            let asked =
                Entry { query: Some(said.clone()), turn_id: id.clone(), ..Entry::default() };
            match outcome {
                Outcome::Response(response) => {
                    assert!(of_user && !repeats, "{place:?} was answered");
                    let used = response.evidence.iter().filter(|evidence| evidence.selected);
                    let entry = Entry {
                        response: Some(response.text.clone()),
                        response_turn_id: Some(format!("turns-{}-{}", place.0, place.1)),
                        passages: used.map(|evidence| evidence.id.to_string()).collect(),
                        ..asked
                    };
                    history.entries.insert(*place, entry);
                }
                Outcome::Recorded(recorded) => match &recorded.reason {
                    RecordedReason::System => {
                        assert!(!of_user && !repeats, "{place:?} was recorded as an agent's");
                        history.agent_speaks(*place, said, &id);
                    }
                    RecordedReason::SupersededBy(agent) => {
                        assert!(of_user && !repeats, "{place:?} was superseded");
                        let next = next_agent_turn(outputs, conversation, &in_order[at + 1..]);
                        assert_eq!(Some(agent.as_str()), next.as_deref(), "{place:?}");
                        history.entries.insert(*place, asked);
                    }
                    RecordedReason::DuplicateOf(earlier) => {
                        assert!(repeats && earlier.as_str() == id, "{place:?} repeats {earlier}");
                        continue;
                    }
                    reason => panic!("{place:?}: nobody sent what ends as {reason:?}"),
                },
                Outcome::DeadLetter => {}
            }
            history.turn_ids.push(id);
        }
        Self(histories)
    }

    /// The topic, folded to the last record of each key as compaction does, holds just these.
    pub fn check(&self, topic: &[Read]) {
        let found = Self::folded(topic);
        assert_eq!(found.0.len(), self.0.len(), "conversations on the history topic");
        for (conversation, expected) in &self.0 {
            let found = found.0.get(conversation);
            assert_eq!(found, Some(expected), "the history of {conversation}");
        }
    }

    fn folded(topic: &[Read]) -> Self {
        let mut last: BTreeMap<EntryKey, &Read> = BTreeMap::new();
        for read in topic {
            let key = serde_json::from_slice(read.key.as_deref().unwrap_or_default());
            let key: EntryKey = key.unwrap_or_else(|error| panic!("{error}: {read:?}"));
            let before = last.insert(key, read);
            let same = before.is_none_or(|before| {
                before.partition == read.partition && before.offset < read.offset
            });
            assert!(same, "a key is on two partitions: {before:?} and {read:?}");
        }
        let mut histories: BTreeMap<String, History> = BTreeMap::new();
        for (key, read) in last.into_iter().filter(|(_, read)| read.value.is_some()) {
            let scope = key.scope.as_str();
            let conversation = scope.strip_prefix("default/").expect("nobody names a tenant");
            let history = histories.entry(conversation.to_owned()).or_default();
            match key.entry {
                None => {
                    let record: ScopeRecord = parse(read);
                    assert_eq!(record.turns, record.recent_turn_ids.len() as u64, "{scope}");
                    history.last_offset = record.last_applied_offset;
                    history.turn_ids = record.recent_turn_ids.into_iter().map(|id| id.0).collect();
                }
                Some(id) => {
                    let place = (id.partition, id.offset);
                    assert_eq!(read.partition, id.partition, "{scope}");
                    history.entries.insert(place, Entry::of(parse(read)));
                }
            }
        }
        Self(histories)
    }
}

impl History {
    fn agent_speaks(&mut self, place: Place, said: String, id: &str) {
        let waiting = self.entries.values_mut().rev().find(|entry| entry.response.is_none());
        let own = Entry { turn_id: id.to_owned(), ..Entry::default() };
        let entry = match waiting {
            Some(entry) => entry,
            None => self.entries.entry(place).or_insert(own),
        };
        entry.response = Some(said);
        entry.response_turn_id = Some(id.to_owned());
    }
}

impl Entry {
    fn of(entry: HistoryEntry) -> Self {
        Self {
            query: entry.query,
            turn_id: entry.turn_id.0,
            response: entry.response,
            response_turn_id: entry.response_turn_id.map(|id| id.0),
            passages: entry.passages.into_iter().map(|passage| passage.id.0).collect(),
        }
    }
}

/// The id of the conversation's next turn of an agent that is no repeat.
fn next_agent_turn(outputs: &Outputs, conversation: &str, later: &[&Ended]) -> Option<String> {
    let of_it = later.iter().filter(|ended| ended.outcome.conversation() == Some(conversation));
    let turns = of_it.map(|ended| parse::<Value>(outputs.input(ended.place)));
    turns
        .filter(|turn| turn["speaker"] == "system")
        .find_map(|turn| turn["turn_id"].as_str().map(str::to_owned))
}
