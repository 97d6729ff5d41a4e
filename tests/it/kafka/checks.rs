//! Checks what must hold of the topics once everything has ended.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::hands::ConversationsTopic;
use super::histories::{Changelog, Histories, Rules};
use super::kcat::{Read, read_all};
use super::outcomes::{
    Conservation, Ended, OUTCOMES, Outcome, Place, TRACES, complete, out_of_order, parse,
};
use super::workload::Invalid;
use crate::broker::Broker;

/// The number of responses that are validated against the published schema.
const VALIDATED: usize = 200;

/// Every topic as kcat reads it.
pub(crate) struct Outputs {
    inputs: BTreeMap<Place, Read>,
    /// By topic, in the order within its partitions.
    outcomes: Vec<(&'static str, Vec<Ended>)>,
    history: Vec<Read>,
    conversations: Vec<Read>,
}

impl Outputs {
    /// Reads all topics to their ends.
    pub(crate) fn read(broker: &Broker) -> Self {
        let inputs = read_all(broker, "turns");
        let inputs = inputs.into_iter().map(|read| ((read.partition, read.offset), read)).collect();
        let ended = |topic: &'static str| -> Vec<Ended> {
            let read = read_all(broker, topic).into_iter();
            read.map(|read| Ended::of(topic, read)).collect()
        };
        let mut outcomes = OUTCOMES.map(|topic| (topic, ended(topic)));
        complete(&mut outcomes[0].1, ended(TRACES));
        Self {
            inputs,
            outcomes: outcomes.into(),
            history: read_all(broker, "history"),
            conversations: read_all(broker, "conversations"),
        }
    }

    /// Returns the partition of a conversation's turns.
    pub(crate) fn partition_of(&self, conversation: &str) -> Option<i32> {
        let keyed = |read: &&Read| read.key.as_deref() == Some(conversation.as_bytes());
        self.inputs.values().find(keyed).map(|read| read.partition)
    }

    /// Checks everything that must hold.
    pub(crate) fn check(&self, invalid: &[Invalid], turns: usize, unfit: usize) {
        assert_eq!(self.inputs.len(), turns + unfit, "records on the topic of turns");
        self.check_conservation();
        self.check_order();
        self.check_dead_letters(invalid, unfit);
        self.check_carried();
        self.check_records();
        let mut changelog = Changelog::default();
        for read in &self.history {
            changelog.add(read.clone());
        }
        let rules = Rules { by_user: false, max_entries: 64, topic: "turns" };
        let mut conversations = ConversationsTopic::default();
        self.conversations.iter().for_each(|read| conversations.add(read));
        let histories = Histories::expected(self.all(), &self.inputs, &rules);
        let changes = histories.check(&changelog, &conversations);
        assert!(changes > 300, "only {changes} changes of hands");
    }

    /// Returns every outcome with its input's place.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Ended> {
        self.outcomes.iter().flat_map(|(_, ended)| ended)
    }

    /// Checks that each input has exactly one outcome, on the partition of its number.
    fn check_conservation(&self) {
        for Ended { place, read, .. } in self.all() {
            assert_eq!(place.0, read.partition, "an outcome is on its input's partition number");
        }
        let ended = self.all().map(|ended| ended.place);
        let found = Conservation::of(self.inputs.keys().copied(), ended);
        assert!(found.doubled.is_empty(), "inputs with more than one outcome: {found:?}");
        assert!(found.lost.is_empty(), "inputs without an outcome: {found:?}");
        assert!(found.unknown.is_empty(), "outcomes of inputs that never were: {found:?}");
    }

    /// Checks that in each topic the outcomes of a conversation are in the order of its inputs.
    fn check_order(&self) {
        for (topic, ended) in &self.outcomes {
            let wrong = out_of_order(ended.iter(), Outcome::conversation);
            assert!(wrong.is_empty(), "{topic}: {wrong:?}");
        }
    }

    /// Checks that exactly the unfit inputs are dead letters: bytes and key as they came, and the
    /// reason.
    fn check_dead_letters(&self, invalid: &[Invalid], unfit: usize) {
        let reasons: BTreeMap<_, _> = invalid
            .iter()
            .flat_map(|kind| kind.records.iter().map(|record| (record.clone(), kind.reason)))
            .collect();
        let as_sent = |read: &Read| {
            let key = read.key.clone().unwrap_or_default();
            (String::from_utf8(key).expect("our keys are text"), read.value.clone())
        };
        let sent = self.inputs.values().filter(|read| reasons.contains_key(&as_sent(read)));
        assert_eq!(sent.count(), unfit, "unfit records on the topic of turns");
        let mut letters = 0;
        for Ended { place, read, outcome } in self.all() {
            let input = &self.inputs[place];
            let expected = reasons.get(&as_sent(input));
            let is_letter = matches!(outcome, Outcome::DeadLetter);
            assert_eq!(is_letter, expected.is_some(), "{place:?}: {:?}", read.headers);
            let Some(expected) = expected else { continue };
            letters += 1;
            assert_eq!((&read.key, &read.value), (&input.key, &input.value), "{place:?}");
            let reason = &read.headers["turnstream.reason"];
            assert!(reason.contains(expected), "{place:?}: `{expected}` is not in `{reason}`");
            assert_eq!(read.headers["turnstream.stage"], "ingest");
            assert_eq!(read.headers["turnstream.topic"], "turns");
        }
        assert_eq!(letters, unfit);
    }

    /// Checks that headers, keys, metadata and unknown fields are on every outcome as they came.
    fn check_carried(&self) {
        let mut traced = BTreeSet::new();
        for Ended { place, read, outcome } in self.all() {
            let input = &self.inputs[place];
            assert_eq!(read.key, input.key, "{place:?}");
            for (name, value) in &input.headers {
                assert_eq!(read.headers.get(name), Some(value), "{place:?}: header {name}");
                traced.insert(outcome.name());
            }
            let Some(record) = outcome.json() else { continue };
            let turn: Value = parse(input);
            for field in ["conversation_id", "turn_id", "user_id", "metadata"] {
                assert_eq!(record.get(field), turn.get(field), "{place:?}: {field}");
            }
            for field in ["mood", "channel"] {
                let extra = record.get("extra").and_then(|extra| extra.get(field));
                assert_eq!(extra, turn.get(field), "{place:?}: {field}");
            }
        }
        let everywhere = ["dead letter", "recorded", "response"].into();
        assert_eq!(traced, everywhere, "outcomes with a header to carry");
    }

    /// Checks that responses answer user turns from earlier turns of their conversation, and are as
    /// published.
    fn check_records(&self) {
        let schema = turnstream_schemas::published::find("response").expect("it is published");
        let schema = serde_json::from_str(&schema.text()).expect("JSON");
        let schema = jsonschema::validator_for(&schema).expect("a schema");
        let mut validated = 0;
        let (mut grounded, mut remembered) = (0, 0);
        let offsets = self.offsets_of_turns();
        for (at, Ended { place, read, outcome }) in self.all().enumerate() {
            let Outcome::Response(response) = outcome else { continue };
            assert_eq!(response.response_id.as_str(), format!("turns-{}-{}", place.0, place.1));
            assert!(!response.text.trim().is_empty(), "{place:?}: nothing is said");
            assert!(response.degraded.is_empty(), "{place:?}: {:?}", response.degraded);
            for recalled in &response.history {
                let conversation = response.conversation_id.as_str();
                let earlier = offsets.get(&(conversation, recalled.turn_id.as_str()));
                let earlier = earlier.unwrap_or_else(|| {
                    panic!("{place:?} recalls {}, which {conversation} lacks", recalled.turn_id)
                });
                assert!(*earlier < place.1, "{place:?} recalls offset {earlier}");
            }
            grounded += usize::from(!response.evidence.is_empty());
            remembered += usize::from(!response.history.is_empty());
            if at % 37 == 0 && validated < VALIDATED {
                validated += 1;
                let record: Value = parse(read);
                let errors: Vec<_> = schema.iter_errors(&record).map(|e| e.to_string()).collect();
                assert!(errors.is_empty(), "{place:?}: {errors:?}");
            }
        }
        assert_eq!(validated, VALIDATED, "responses that were validated");
        assert!(grounded > 1_000, "only {grounded} responses rest on facts");
        assert!(remembered > 5_000, "only {remembered} responses recall anything");
    }

    /// Returns the first offset of every turn id of a conversation.
    fn offsets_of_turns(&self) -> BTreeMap<(&str, &str), i64> {
        let mut offsets = BTreeMap::new();
        for Ended { place: (_, offset), outcome, .. } in self.all() {
            if let (Some(conversation), Some(turn)) = (outcome.conversation(), outcome.turn_id()) {
                let first = offsets.entry((conversation, turn)).or_insert(*offset);
                *first = (*first).min(*offset);
            }
        }
        offsets
    }

    /// Checks what came since `before`: answers to the late turns and nothing else, each with
    /// history.
    pub(crate) fn check_late(&self, before: &Self, late: usize) {
        let at = |ended: &Ended| (ended.outcome.name(), ended.read.partition, ended.read.offset);
        let old: BTreeSet<_> = before.all().map(at).collect();
        let new: Vec<_> = self.all().filter(|ended| !old.contains(&at(ended))).collect();
        assert_eq!(new.len(), late, "outcomes since the restart");
        for Ended { place, outcome, .. } in new {
            let Outcome::Response(response) = outcome else { panic!("{place:?} was not answered") };
            assert_eq!(response.turn_id.as_str(), "late");
            assert!(!response.history.is_empty(), "{place:?}: its history was not restored");
        }
    }

    /// Prints the rate by the broker's clock, for people who read the output.
    pub(crate) fn print_rate(&self) {
        let came = self.inputs.values().map(|read| read.time_ms).min().unwrap_or_default();
        let ended = self.all().map(|ended| ended.read.time_ms).max().unwrap_or_default();
        let seconds = (ended - came) as f64 / 1_000.0;
        let rate = self.inputs.len() as f64 / seconds;
        eprintln!(
            "{} inputs in {seconds:.1} s with a restart in between: {rate:.0}/s",
            self.inputs.len()
        );
        for (topic, ended) in &self.outcomes {
            eprintln!("  {topic}: {}", ended.len());
        }
    }
}
