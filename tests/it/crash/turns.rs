//! Writes what is said while processes crash: an endless script of many conversations at once, with
//! users, human agents who talk over the bot, take conversations over and release them, echoes of
//! responses that were seen, repeated ids, and records that no engine can serve.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::random::Random;
use super::service::{PARTITIONS, Service};
use crate::kafka::workload::{AGENT_SAYINGS, MOODS, SAYINGS, invalid, say};

/// Scopes that talk at the same time.
const OPEN: usize = 48;
/// Turns of a scope: few, or more than its history can hold.
const LENGTHS: [usize; 4] = [6, 20, 40, 90];
/// The most turns that one scope may send in a row, so that they wait for each other.
const BURST: usize = 6;
/// The `traceparent` of every third record.
pub(crate) const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A record to send.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) partition: i32,
    pub(crate) key: Vec<u8>,
    /// `None` for a tombstone.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) traced: bool,
    /// Why it cannot be served: part of the reason in its dead letter.
    pub(crate) unfit: Option<&'static str>,
}

/// The latest response of each scope that no turn has echoed yet, as a reader saw it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answered(Arc<Mutex<BTreeMap<String, (String, String)>>>);

impl Answered {
    /// Notes a response: its id and its words.
    pub(crate) fn note(&self, scope: &str, id: &str, text: &str) {
        self.lock().insert(scope.to_owned(), (id.to_owned(), text.to_owned()));
    }

    fn take(&self, scope: &str) -> Option<(String, String)> {
        self.lock().remove(scope)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A scope that talks.
struct Talk {
    number: usize,
    left: usize,
    said: usize,
    ids: Vec<String>,
    agent_ids: Vec<String>,
}

/// Draws the next turns.
pub(crate) struct TurnScript {
    service: &'static Service,
    random: Random,
    answered: Answered,
    open: Vec<Talk>,
    begun: usize,
    burst: (usize, usize),
    /// Reasons and values of records that are no turns.
    spoilt: Vec<(&'static str, Option<Vec<u8>>)>,
}

impl TurnScript {
    pub(crate) fn new(service: &'static Service, random: Random, answered: Answered) -> Self {
        let kinds = invalid();
        let of = |kind: crate::kafka::workload::Invalid| {
            let reason = kind.reason;
            kind.records.into_iter().map(move |(_, value)| (reason, value))
        };
        let spoilt = kinds.into_iter().flat_map(of).collect();
        let (open, begun, burst) = (Vec::new(), 0, (0, 0));
        Self { service, random, answered, open, begun, burst, spoilt }
    }

    /// Returns the next record.
    pub(crate) fn next(&mut self, now_ms: i64) -> Written {
        while self.open.len() < OPEN {
            let left = *self.random.pick(&LENGTHS);
            self.begun += 1;
            self.open.push(Talk::new(self.begun, left));
        }
        if self.burst.1 == 0 {
            self.burst = (self.random.below(OPEN), 1 + self.random.below(BURST));
        }
        self.burst.1 -= 1;
        let at = self.burst.0;
        let written = self.speak(at, now_ms);
        self.open[at].left -= 1;
        if self.open[at].left == 0 {
            self.open.swap_remove(at);
            self.burst.1 = 0;
        }
        written
    }

    /// Returns a release and one more user turn on each partition, of conversations with a history.
    pub(crate) fn last_words(&self) -> Vec<[Written; 2]> {
        let turn = |partition: i32| {
            // One of the first to talk.
            let number = usize::try_from(partition + PARTITIONS).expect("from 0");
            let mut talk = Talk::new(number, 1);
            let text = "And what else could one do with it?";
            let mut release = talk.directive(self.service, "release");
            release["turn_id"] = json!("over");
            let turn = talk.again(self.service, "user", text, "late");
            [release, turn].map(|record| {
                talk.written(self.service, Some(record.to_string().into_bytes()), None)
            })
        };
        (0..PARTITIONS).map(turn).collect()
    }

    fn speak(&mut self, at: usize, now_ms: i64) -> Written {
        let (random, talk, service) = (&mut self.random, &mut self.open[at], self.service);
        let drawn = random.below(100);
        if drawn < 6 {
            let (reason, value) = random.pick(&self.spoilt).clone();
            return talk.written(service, value, Some(reason));
        }
        let seed = random.below(10_000);
        let user = say(SAYINGS[seed % SAYINGS.len()], seed);
        let agent = say(AGENT_SAYINGS[seed % AGENT_SAYINGS.len()], seed);
        let echo = if drawn < 14 { self.answered.take(&talk.name(service)) } else { None };
        let mut turn = match drawn {
            31..33 => talk.directive(service, "takeover"),
            33..45 => talk.directive(service, "release"),
            6..14 if let Some((id, words)) = echo => {
                let mut turn = talk.turn(service, "system", &words);
                turn["response_id"] = json!(id);
                turn
            }
            14..18 => talk.agent_turn(service, &agent),
            18..20 => {
                let mut turn = talk.agent_turn(service, &agent);
                // The response id of another bot, which to us is an agent.
                turn["response_id"] = json!(format!("elsewhere-0-{seed}"));
                turn
            }
            20..24 if !talk.ids.is_empty() => {
                let id = random.pick(&talk.ids).clone();
                talk.again(service, "user", &user, &id)
            }
            24..26 if !talk.agent_ids.is_empty() => {
                let id = random.pick(&talk.agent_ids).clone();
                talk.again(service, "system", &agent, &id)
            }
            26..29 => {
                let mut turn = talk.turn(service, "user", &user);
                turn.as_object_mut().expect("an object").remove("turn_id");
                talk.ids.pop();
                turn
            }
            29..31 if service.by_user => {
                let mut turn = talk.turn(service, "user", &user);
                turn.as_object_mut().expect("an object").remove("user_id");
                talk.ids.pop();
                let value = turn.to_string().into_bytes();
                return talk.written(service, Some(value), Some("`user_id` is missing"));
            }
            _ => talk.turn(service, "user", &user),
        };
        if seed % 3 == 0 {
            // Not always in order, like the clocks of senders.
            turn["timestamp"] = json!(now_ms - (seed % 1_000) as i64);
        }
        talk.written(service, Some(turn.to_string().into_bytes()), None)
    }
}

impl Talk {
    fn new(number: usize, left: usize) -> Self {
        Self { number, left, said: 0, ids: Vec::new(), agent_ids: Vec::new() }
    }

    /// Returns the scope, which is also the records' key.
    fn name(&self, service: &Service) -> String {
        format!("{}-{:05}", if service.by_user { "user" } else { "talk" }, self.number)
    }

    fn partition(&self) -> i32 {
        i32::try_from(self.number).expect("not so many talks") % PARTITIONS
    }

    fn turn(&mut self, service: &Service, speaker: &str, text: &str) -> Value {
        let id = format!("{}.{}", self.number, self.said);
        self.ids.push(id.clone());
        self.again(service, speaker, text, &id)
    }

    fn agent_turn(&mut self, service: &Service, text: &str) -> Value {
        let turn = self.turn(service, "system", text);
        self.agent_ids.extend(self.ids.last().cloned());
        turn
    }

    /// Returns a record that takes over or releases.
    fn directive(&mut self, service: &Service, kind: &str) -> Value {
        let mut turn = self.turn(service, "system", "");
        let fields = turn.as_object_mut().expect("an object");
        fields.retain(|field, _| field != "speaker" && field != "text");
        if service.by_user {
            fields.remove("conversation_id");
        }
        fields.insert("kind".to_owned(), kind.into());
        turn
    }

    fn again(&mut self, service: &Service, speaker: &str, text: &str, id: &str) -> Value {
        self.said += 1;
        let name = self.name(service);
        let mut turn = json!({
            "turn_id": id, "speaker": speaker, "text": text,
            "mood": MOODS[self.said % MOODS.len()],
        });
        if service.by_user {
            // Several conversations of one user form one sequence.
            turn["user_id"] = json!(name);
            turn["conversation_id"] = json!(format!("{name}.{}", self.said % 3));
        } else {
            turn["conversation_id"] = json!(name);
        }
        if self.said.is_multiple_of(4) {
            turn["metadata"] = json!({ "desk": self.number });
        }
        turn
    }

    fn written(
        &self,
        service: &Service,
        value: Option<Vec<u8>>,
        unfit: Option<&'static str>,
    ) -> Written {
        let (key, partition) = (self.name(service).into_bytes(), self.partition());
        Written { partition, key, value, traced: self.said.is_multiple_of(3), unfit }
    }
}
