//! Computes the histories that the inputs and their outcomes imply, and compares them with those on
//! the compacted topic.
//!
//! The plain rules are applied scope by scope in the order of the log, without the engine's code.
//! Where a rule leaves a choice (whether an agent was quick enough to overtake an answer, which
//! entry has the lowest weight), the committed outcomes tell which was made, and only whether it
//! was possible is checked.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use turnstream_schemas::{
    Action, EntryKey, Evicted, HandoverReason, HistoryEntry, RecalledVia, RecordedReason,
    RememberedTurns, Response, ScopeRecord, TurnId,
};

use super::hands::{ConversationsTopic, Hands};
use super::kcat::Read;
use super::outcomes::{Ended, Outcome, Place, parse};

/// The number of turn ids that a scope remembers.
const REMEMBERED: usize = 256;

/// The number of entries that are recalled as the latest: those of the eight latest utterances.
const RECENT: usize = 4;

/// The configuration of the engine.
pub(crate) struct Rules {
    /// Whether a scope is a user; otherwise it is a conversation.
    pub(crate) by_user: bool,
    /// The most entries of a scope.
    pub(crate) max_entries: usize,
    /// The topic of turns.
    pub(crate) topic: &'static str,
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Turn,
    Takeover,
    Release,
}

/// A turn or a directive as its sender wrote it.
#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    kind: Kind,
    conversation_id: Option<String>,
    user_id: Option<String>,
    turn_id: Option<String>,
    #[serde(default)]
    speaker: String,
    #[serde(default)]
    text: String,
    timestamp: Option<i64>,
    response_id: Option<String>,
}

/// A turn of a scope, and its outcome.
struct Played<'a> {
    ended: &'a Ended,
    said: Said,
    id: String,
    event_time: i64,
    /// Whether its id was that of an earlier turn.
    repeats: bool,
    /// Whether an agent says it, and it is no echo, or takes over.
    of_agent: bool,
}

/// One expected entry: the query, the answer and the turn that gave it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Entry {
    query: Option<String>,
    turn_id: String,
    event_time: i64,
    response: Option<String>,
    response_turn_id: Option<String>,
    passages: Vec<String>,
}

/// The expected history of a scope.
#[derive(Clone, Debug, Default, PartialEq)]
struct History {
    entries: BTreeMap<Place, Entry>,
    remembered_turns: RememberedTurns,
    turns: u64,
    evictions: u64,
    latest_event_time: i64,
    last_offset: i64,
    hands: Hands,
    /// The words of fragments, until the turn that they are merged into.
    fragments: Vec<String>,
}

/// Histories by scope.
#[derive(Debug, PartialEq)]
pub(crate) struct Histories(BTreeMap<String, History>);

impl Histories {
    /// Applies the outcomes in the order of their inputs, by the documented rules: an answer makes
    /// an entry with it, a superseded or held turn one without; an agent's words complete the
    /// latest entry without an answer, or else make their own; a repeat and an echo change no
    /// entry. Panics if an outcome is not one that its input may have.
    pub(crate) fn expected<'a>(
        outcomes: impl Iterator<Item = &'a Ended>,
        inputs: &BTreeMap<Place, Read>,
        rules: &Rules,
    ) -> Self {
        let mut in_order: Vec<_> = outcomes.collect();
        in_order.sort_by_key(|ended| ended.place);
        let mut scopes: BTreeMap<String, Vec<Played<'_>>> = BTreeMap::new();
        for ended in in_order {
            if matches!(ended.outcome, Outcome::DeadLetter) {
                continue;
            }
            let input = &inputs[&ended.place];
            let said: Said = parse(input);
            let scope = if rules.by_user { said.user_id.clone() } else { None };
            let scope = scope.or_else(|| said.conversation_id.clone()).expect("a scope");
            scopes.entry(scope).or_default().push(Played::of(ended, said, input, rules));
        }
        Self(scopes.into_iter().map(|(scope, turns)| (scope, History::of(turns, rules))).collect())
    }

    /// Checks that the changelog, as compaction leaves it, holds exactly these, and the topic of
    /// conversations every handover. Returns the number of handovers.
    pub(crate) fn check(&self, changelog: &Changelog, conversations: &ConversationsTopic) -> usize {
        assert!(changelog.wrong.is_empty(), "{:?}", changelog.wrong);
        let found = changelog.histories();
        assert_eq!(found.0.len(), self.0.len(), "scopes on the history topic");
        for (scope, expected) in &self.0 {
            let expected = History { hands: expected.hands.last(), ..expected.clone() };
            assert_eq!(found.0.get(scope), Some(&expected), "the history of {scope}");
        }
        conversations.check(self.0.iter().map(|(scope, history)| (scope, &history.hands)))
    }

    /// Returns the numbers of entries, and of evicted entries, over all scopes.
    pub(crate) fn sizes(&self) -> (usize, u64) {
        let entries = self.0.values().map(|history| history.entries.len()).sum();
        (entries, self.0.values().map(|history| history.evictions).sum())
    }
}

impl<'a> Played<'a> {
    fn of(ended: &'a Ended, said: Said, input: &Read, rules: &Rules) -> Self {
        let (partition, offset) = ended.place;
        let id = said.turn_id.clone().unwrap_or_else(|| format!("{partition}-{offset}"));
        let speaks = said.speaker == "system" && !echoes(&said, ended.place, rules);
        let of_agent = speaks || said.kind == Kind::Takeover;
        let event_time = said.timestamp.unwrap_or(input.time_ms);
        Self { ended, said, id, event_time, repeats: false, of_agent }
    }
}

/// Whether a turn names a response of ours to an earlier input of its partition.
fn echoes(said: &Said, (partition, offset): Place, rules: &Rules) -> bool {
    let named = said.response_id.as_deref().unwrap_or_default();
    let ours = named.strip_prefix(&format!("{}-{partition}-", rules.topic));
    ours.is_some_and(|at| at.parse::<i64>().is_ok_and(|at| at < offset))
}

impl History {
    fn of(mut turns: Vec<Played<'_>>, rules: &Rules) -> Self {
        let mut ids = BTreeSet::new();
        for turn in &mut turns {
            turn.repeats = !ids.insert(turn.id.clone());
        }
        assert!(ids.len() <= REMEMBERED, "a scope of this test is too long to remember its ids");
        let mut history = Self::default();
        let mut overtaken = None;
        for (at, turn) in turns.iter().enumerate() {
            if let Outcome::Recorded(recorded) = &turn.ended.outcome
                && let RecordedReason::MergedInto(last) = &recorded.reason
            {
                let next = turns.get(at + 1).map(|next| (&next.ended.outcome, &next.id));
                let goes_on = match next {
                    Some((Outcome::Recorded(next), _)) => next.reason == recorded.reason,
                    Some((Outcome::Response(_), id)) => id == last.as_str(),
                    _ => false,
                };
                assert!(goes_on, "{:?} is merged into {last}", turn.ended.place);
            }
            let mut later = turns[at + 1..].iter();
            let agent = later.find(|turn| turn.of_agent && !turn.repeats);
            history.apply(turn, agent.map(|agent| agent.id.as_str()), &mut overtaken, rules);
        }
        assert_eq!(overtaken, None, "an agent overtook, and then did not speak");
        history
    }

    /// Applies a turn. `agent` is the next agent to speak; `overtaken` is set from the first turn
    /// that an agent overtook until that agent's own.
    fn apply(
        &mut self,
        turn: &Played<'_>,
        agent: Option<&str>,
        overtaken: &mut Option<String>,
        rules: &Rules,
    ) {
        let Played { ended: Ended { place, outcome, .. }, said, id, .. } = turn;
        self.last_offset = place.1;
        let of_user = said.speaker == "user";
        assert_eq!(outcome.turn_id(), Some(id.as_str()), "{place:?}");
        match outcome {
            Outcome::Recorded(recorded)
                if matches!(recorded.reason, RecordedReason::MergedInto(_)) =>
            {
                assert!(
                    of_user && !turn.repeats && !self.hands.are_agents(),
                    "{place:?} was merged"
                );
                self.fragments.push(said.text.clone());
            }
            Outcome::Response(response) => {
                assert!(of_user && !turn.repeats, "{place:?} was answered");
                assert!(!self.hands.are_agents(), "{place:?} was answered while an agent held it");
                assert_eq!(*overtaken, None, "{place:?} was answered behind one overtaken");
                self.answer(turn, response, rules);
                if response.action == Some(Action::HandOff) {
                    self.hands.change(HandoverReason::HandOff, place.1);
                }
            }
            Outcome::Recorded(recorded) => match &recorded.reason {
                RecordedReason::System => {
                    let may = turn.of_agent && said.kind == Kind::Turn && !turn.repeats;
                    assert!(may, "{place:?} was recorded as an agent's");
                    assert!(overtaken.take().is_none_or(|by| by == *id), "{place:?}");
                    self.agent_speaks(turn, &recorded.evicted, rules);
                    self.hands.change(HandoverReason::AgentTurn, place.1);
                }
                RecordedReason::Takeover => {
                    let may = said.kind == Kind::Takeover && !turn.repeats;
                    assert!(may, "{place:?} was recorded as a takeover");
                    assert!(overtaken.take().is_none_or(|by| by == *id), "{place:?}");
                    self.hands.change(HandoverReason::Takeover, place.1);
                }
                RecordedReason::Release => {
                    let may = said.kind == Kind::Release && !turn.repeats;
                    assert!(may, "{place:?} was recorded as a release");
                    self.hands.change(HandoverReason::Release, place.1);
                }
                RecordedReason::Held => {
                    let may = of_user && !turn.repeats && self.hands.are_agents();
                    assert!(may, "{place:?} was held");
                    self.insert(*place, turn.asked(), &recorded.evicted, rules);
                }
                RecordedReason::Echo(response) => {
                    let may = said.speaker == "system" && !turn.of_agent && !turn.repeats;
                    assert!(may, "{place:?} was recorded as an echo");
                    assert_eq!(said.response_id.as_deref(), Some(response.as_str()), "{place:?}");
                }
                RecordedReason::SupersededBy(by) => {
                    assert!(of_user && !turn.repeats, "{place:?} was superseded");
                    assert!(!self.hands.are_agents(), "{place:?} was superseded while it was held");
                    assert_eq!(Some(by.as_str()), agent, "{place:?} was overtaken by");
                    *overtaken = Some(by.0.clone());
                    self.insert(*place, turn.asked(), &recorded.evicted, rules);
                }
                RecordedReason::DuplicateOf(earlier) => {
                    let may = turn.repeats && earlier.as_str() == id;
                    assert!(may, "{place:?} repeats {earlier}");
                    return;
                }
                reason => panic!("{place:?}: nobody sent what ends as {reason:?}"),
            },
            Outcome::DeadLetter => unreachable!("dead letters are in no scope"),
        }
        self.remembered_turns.push(&TurnId(id.clone()));
        self.turns += 1;
        if said.kind != Kind::Turn {
            return;
        }
        self.latest_event_time = self.latest_event_time.max(turn.event_time);
    }

    fn answer(&mut self, turn: &Played<'_>, response: &Response, rules: &Rules) {
        let place = turn.ended.place;
        self.check_recall(place, response);
        let used = response.evidence.iter().filter(|evidence| evidence.selected);
        self.fragments.push(turn.said.text.clone());
        let words = std::mem::take(&mut self.fragments).join(" ");
        let entry = Entry {
            query: Some(words),
            response: Some(response.text.clone()),
            response_turn_id: Some(format!("{}-{}-{}", rules.topic, place.0, place.1)),
            passages: used.map(|evidence| evidence.id.to_string()).collect(),
            ..turn.asked()
        };
        self.insert(place, entry, &response.evicted, rules);
    }

    /// Checks that a response recalls the latest entries of this very history, and of the others
    /// only such as are in it.
    fn check_recall(&self, place: Place, response: &Response) {
        let held: Vec<&str> = self.entries.values().map(|entry| entry.turn_id.as_str()).collect();
        let (older, recent) = held.split_at(held.len().saturating_sub(RECENT));
        let mut found = BTreeSet::new();
        for recalled in &response.history {
            let id = recalled.turn_id.as_str();
            if recalled.via == RecalledVia::Recent {
                found.insert(id);
            } else {
                assert!(older.contains(&id), "{place:?} recalls {id}, which its history lacks");
            }
        }
        let recent: BTreeSet<&str> = recent.iter().copied().collect();
        assert_eq!(found, recent, "{place:?}: the latest entries");
    }

    fn agent_speaks(&mut self, turn: &Played<'_>, evicted: &[Evicted], rules: &Rules) {
        let words = Some(turn.said.text.clone());
        let waiting = self.entries.values_mut().rev().find(|entry| entry.response.is_none());
        if let Some(entry) = waiting {
            entry.response = words;
            entry.response_turn_id = Some(turn.id.clone());
            assert!(evicted.is_empty(), "{:?} pushed something out", turn.ended.place);
            return;
        }
        let response_turn_id = Some(turn.id.clone());
        let entry = Entry { query: None, response: words, response_turn_id, ..turn.asked() };
        self.insert(turn.ended.place, entry, evicted, rules);
    }

    /// Adds an entry, and removes those that the outcome names as evicted: as many as there are too
    /// many, and never the new one.
    fn insert(&mut self, place: Place, entry: Entry, evicted: &[Evicted], rules: &Rules) {
        self.entries.insert(place, entry);
        let too_many = self.entries.len().saturating_sub(rules.max_entries);
        assert_eq!(evicted.len(), too_many, "{place:?}: entries pushed out");
        for gone in evicted {
            let of_turn = |(_, entry): &(&Place, &Entry)| entry.turn_id == gone.turn_id.as_str();
            let found = self.entries.iter().find(of_turn).map(|(at, _)| *at);
            let found = found.filter(|at| *at != place);
            let Some(at) = found else {
                panic!("{place:?} pushed out {}, which its history lacks", gone.turn_id)
            };
            self.entries.remove(&at);
            self.evictions += 1;
        }
    }
}

impl Played<'_> {
    /// Returns the entry of its words without an answer.
    fn asked(&self) -> Entry {
        Entry {
            query: Some(self.said.text.clone()),
            turn_id: self.id.clone(),
            event_time: self.event_time,
            ..Entry::default()
        }
    }
}

/// The history topic, folded to the last record of each key as compaction does.
#[derive(Default)]
pub(crate) struct Changelog {
    last: BTreeMap<EntryKey, Read>,
    /// Records that cannot follow the one before with the same key.
    wrong: Vec<String>,
}

impl Changelog {
    /// Adds the next record of the topic.
    pub(crate) fn add(&mut self, read: Read) {
        let key = serde_json::from_slice(read.key.as_deref().unwrap_or_default());
        let key: EntryKey = key.unwrap_or_else(|error| panic!("{error}: {read:?}"));
        let applied = |read: &Read| match key.entry {
            None => parse::<ScopeRecord>(read).last_applied_offset,
            Some(_) => 0,
        };
        if let Some(before) = self.last.get(&key) {
            let (earlier, later) = (applied(before), applied(&read));
            let same = before.partition == read.partition && before.offset < read.offset;
            if !same || (key.entry.is_none() && earlier >= later) {
                let (at, offset) = (read.partition, read.offset);
                let scope = &key.scope;
                self.wrong.push(format!(
                    "history {at}-{offset}: {scope}: input {later} was applied after {earlier}"
                ));
            }
        }
        self.last.insert(key, read);
    }

    /// Returns the records whose key is on two partitions, or whose scope's record goes back behind
    /// an earlier one.
    pub(crate) fn out_of_order(&self) -> &[String] {
        &self.wrong
    }

    fn histories(&self) -> Histories {
        let mut histories: BTreeMap<String, History> = BTreeMap::new();
        for (key, read) in self.last.iter().filter(|(_, read)| read.value.is_some()) {
            let scope = key.scope.as_str();
            let name = scope.strip_prefix("default/").expect("nobody names a tenant");
            let history = histories.entry(name.to_owned()).or_default();
            match key.entry {
                None => {
                    let record: ScopeRecord = parse(read);
                    history.last_offset = record.last_applied_offset;
                    history.turns = record.turns;
                    history.evictions = record.evictions;
                    history.hands = Hands::last_of(&record);
                    history.latest_event_time = record.latest_event_time.millis();
                    history.remembered_turns = record.remembered_turns;
                }
                Some(id) => {
                    let place = (id.partition, id.offset);
                    assert_eq!(read.partition, id.partition, "{scope}");
                    history.entries.insert(place, Entry::of(parse(read)));
                }
            }
        }
        Histories(histories)
    }
}

impl Entry {
    fn of(entry: HistoryEntry) -> Self {
        Self {
            query: entry.query,
            turn_id: entry.turn_id.0,
            event_time: entry.event_time.millis(),
            response: entry.response,
            response_turn_id: entry.response_turn_id.map(|id| id.0),
            passages: entry.passages.into_iter().map(|passage| passage.id.0).collect(),
        }
    }
}
