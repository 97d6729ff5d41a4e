//! Generates the records that people and programs put on the topic of turns, and the expected
//! outcome of each.

use std::collections::BTreeMap;
use std::fmt;

use fastrand::Rng;
use serde_json::{Value, json};
use turnstream_log::Topic;
use turnstream_log::embedded::{EmbeddedLog, Message};
use turnstream_schemas::{Header, outcome::Bytes};

/// The log's time at virtual time 0: a day in 2023.
pub(crate) const START_MS: i64 = 1_700_000_000_000;

/// An input on the log.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) header: Option<Header>,
    /// `None` if it is neither a turn nor a directive. Its expected outcome is then a dead letter.
    pub(crate) turn: Option<Said>,
}

impl fmt::Debug for Sent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "input {}-{} ({:?})", self.partition, self.offset, self.turn)
    }
}

/// A turn that can be served, or a directive.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    /// Its scope, as the changelog names it.
    pub(crate) scope: String,
    /// `None` in a directive about a user.
    pub(crate) conversation: Option<String>,
    pub(crate) turn_id: String,
    pub(crate) text: String,
    pub(crate) time_ms: i64,
    pub(crate) speaker: By,
}

/// The speaker of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum By {
    User,
    Agent,
    /// An earlier response of ours that another program said to the user, by its response id.
    Echo(String),
    /// No speaker: a directive.
    Forget,
    Takeover,
    Release,
}

/// Generates inputs.
pub(crate) struct Workload {
    pub(crate) partitions: i32,
    /// Scopes per partition.
    scopes: i32,
    /// Whether all conversations of a user are one scope.
    by_user: bool,
    /// Percentages of agents' turns, demands to forget, takeovers and releases, and unfit records.
    agents: u32,
    forgets: u32,
    handovers: u32,
    unfit: u32,
    sent: Vec<Sent>,
    /// The index in `sent` of each input.
    places: BTreeMap<(i32, i64), usize>,
}

/// Words after which the engine hands a conversation off.
pub(crate) const ASKS_FOR_PERSON: &str = "can I talk to someone please";

const TEXTS: [&str; 7] = [
    ASKS_FOR_PERSON,
    "why does my dog bark",
    "I cannot sleep after coffee",
    "what is an umbrella for",
    "hello",
    "and what else",
    "tell me about the kitchen",
];

impl Workload {
    pub(crate) fn new(rng: &mut Rng, partitions: i32, by_user: bool) -> Self {
        Self {
            partitions,
            scopes: rng.i32(1..=3),
            by_user,
            agents: rng.u32(0..40),
            forgets: rng.u32(0..8),
            handovers: rng.u32(0..12),
            unfit: rng.u32(0..20),
            sent: Vec::new(),
            places: BTreeMap::new(),
        }
    }

    /// Returns everything that was sent, in order.
    pub(crate) fn sent(&self) -> &[Sent] {
        &self.sent
    }

    /// Returns an input, if it was sent.
    pub(crate) fn at(&self, place: (i32, i64)) -> Option<&Sent> {
        self.places.get(&place).map(|at| &self.sent[*at])
    }

    /// Sends an input to some partition.
    pub(crate) fn send(&mut self, rng: &mut Rng, log: &EmbeddedLog, now_ms: u64) {
        let partition = rng.i32(0..self.partitions);
        let time_ms = START_MS + now_ms as i64;
        let unfit = rng.u32(0..100) < self.unfit;
        let (turn, value) = if unfit {
            (None, unfit_value(rng))
        } else {
            let (said, value) = self.turn(rng, partition, time_ms);
            (Some(said), Some(value.to_string().into_bytes()))
        };
        let header = rng.bool().then(|| Header {
            name: "traceparent".to_owned(),
            value: Some(Bytes(rng.u32(..).to_be_bytes().to_vec())),
        });
        self.append(log, partition, time_ms, (turn, value, header));
    }

    /// Sends a user's turn of a new scope to the partition.
    pub(crate) fn send_fresh(&mut self, log: &EmbeddedLog, partition: i32, now_ms: u64) {
        self.send_of(log, (partition, &format!("fresh-{partition}")), "hello again", now_ms);
    }

    /// Sends a user's turn of a conversation that is its own scope.
    pub(crate) fn send_of(
        &mut self,
        log: &EmbeddedLog,
        (partition, conversation): (i32, &str),
        text: &str,
        now_ms: u64,
    ) {
        let time_ms = START_MS + now_ms as i64;
        let turn_id = format!("turn-{}", self.sent.len());
        let value = json!({
            "conversation_id": conversation, "user_id": conversation, "turn_id": turn_id,
            "speaker": "user", "text": text,
        });
        let said = Said {
            scope: format!("default/{conversation}"),
            conversation: Some(conversation.to_owned()),
            turn_id,
            text: text.to_owned(),
            time_ms,
            speaker: By::User,
        };
        let value = Some(value.to_string().into_bytes());
        self.append(log, partition, time_ms, (Some(said), value, None));
    }

    fn append(
        &mut self,
        log: &EmbeddedLog,
        partition: i32,
        time_ms: i64,
        (mut turn, value, header): (Option<Said>, Option<Vec<u8>>, Option<Header>),
    ) {
        let key = turn.as_ref().map(|said| said.scope.clone().into_bytes());
        let message = Message {
            key: key.clone(),
            value: value.clone(),
            headers: header.iter().cloned().collect(),
            time_ms: Some(time_ms),
        };
        let offset = log.append(Topic::Turns, partition, message).expect("appended");
        // A turn without an id is named by its coordinates.
        if let Some(said) = &mut turn
            && said.turn_id.is_empty()
        {
            said.turn_id = format!("{partition}-{offset}");
        }
        self.places.insert((partition, offset), self.sent.len());
        self.sent.push(Sent { partition, offset, key, value, header, turn });
    }

    fn turn(&self, rng: &mut Rng, partition: i32, time_ms: i64) -> (Said, Value) {
        let number = self.sent.len();
        let of = rng.i32(0..self.scopes);
        let scope = format!("{partition}-{of}");
        let conversation =
            if self.by_user { format!("{scope}-{}", rng.u8(0..3)) } else { scope.clone() };
        let mut turn_id = match rng.u8(0..10) {
            0 => String::new(),
            1 => self.earlier_id(rng, &scope).unwrap_or_default(),
            _ => format!("turn-{number}"),
        };
        if rng.u32(0..100) < self.forgets {
            return self.directive(By::Forget, scope, turn_id, time_ms);
        }
        if rng.u32(0..100) < self.handovers {
            let kind = if rng.u8(0..3) == 0 { By::Takeover } else { By::Release };
            return self.directive(kind, scope, turn_id, time_ms);
        }
        let speaker = match rng.u32(0..100) {
            at if at >= self.agents => By::User,
            at if at % 4 == 0 => self.echo(rng, partition),
            _ => By::Agent,
        };
        let text = format!("{} {number}", TEXTS[rng.usize(0..TEXTS.len())]);
        // Event times are out of order on purpose: recency uses event time.
        let said_ms = rng.bool().then(|| time_ms - rng.i64(0..600_000));
        let mut value = json!({
            "conversation_id": conversation,
            "user_id": scope,
            "speaker": if speaker == By::User { "user" } else { "system" },
            "text": text,
        });
        if !turn_id.is_empty() {
            value["turn_id"] = turn_id.clone().into();
        }
        if let Some(said_ms) = said_ms {
            value["timestamp"] = said_ms.into();
        }
        let speaker = match speaker {
            By::Echo(response_id) => {
                value["response_id"] = response_id.clone().into();
                self.if_ours(partition, response_id)
            }
            speaker => speaker,
        };
        turn_id.shrink_to_fit();
        let said = Said {
            scope: format!("default/{scope}"),
            conversation: Some(conversation),
            turn_id,
            text,
            time_ms: said_ms.unwrap_or(time_ms),
            speaker,
        };
        (said, value)
    }

    /// Returns a directive about the whole scope.
    fn directive(&self, of: By, scope: String, turn_id: String, time_ms: i64) -> (Said, Value) {
        let named = if self.by_user { "user_id" } else { "conversation_id" };
        let kind = match of {
            By::Takeover => "takeover",
            By::Release => "release",
            _ => "forget",
        };
        let mut value = json!({ "kind": kind, named: scope });
        if !turn_id.is_empty() {
            value["turn_id"] = turn_id.clone().into();
        }
        let said = Said {
            scope: format!("default/{scope}"),
            conversation: (!self.by_user).then_some(scope),
            turn_id,
            text: String::new(),
            time_ms,
            speaker: of,
        };
        (said, value)
    }

    /// Returns the id of an earlier turn of the scope, for a repeat.
    fn earlier_id(&self, rng: &mut Rng, scope: &str) -> Option<String> {
        let scope = format!("default/{scope}");
        let turns = self.sent.iter().filter_map(|sent| sent.turn.as_ref());
        let ids: Vec<_> =
            turns.filter(|said| said.scope == scope).map(|said| &said.turn_id).collect();
        rng.choice(ids).cloned()
    }

    /// Returns an echo of the response to some earlier input, of any partition.
    fn echo(&self, rng: &mut Rng, partition: i32) -> By {
        match rng.choice(&self.sent) {
            Some(sent) => By::Echo(format!("turns-{}-{}", sent.partition, sent.offset)),
            None => By::Echo(format!("turns-{partition}-0")),
        }
    }

    /// Returns an echo if the response id names an earlier input of the turn's own partition, and
    /// otherwise an agent.
    fn if_ours(&self, partition: i32, response_id: String) -> By {
        let of_it = self.sent.iter().filter(|sent| sent.partition == partition);
        let mut ids = of_it.map(|sent| format!("turns-{}-{}", sent.partition, sent.offset));
        if ids.any(|id| id == response_id) { By::Echo(response_id) } else { By::Agent }
    }
}

/// Returns a value that is not a turn.
fn unfit_value(rng: &mut Rng) -> Option<Vec<u8>> {
    let far = json!({
        "conversation_id": "c", "user_id": "u", "speaker": "user", "text": "hi",
        "timestamp": START_MS * 2,
    });
    let values = [
        None,
        Some(b"{\"conversation_id\":".to_vec()),
        Some(vec![0xff, 0xfe, rng.u8(..)]),
        Some(br#"{"conversation_id":"c","user_id":"u","speaker":"nobody","text":"x"}"#.to_vec()),
        Some(br#"{"conversation_id":"c","user_id":"u","speaker":"user","text":""}"#.to_vec()),
        Some(br#"{"speaker":"user","user_id":"u","text":"whose?"}"#.to_vec()),
        Some(br#"{"kind":"forget","tenant_id":"t"}"#.to_vec()),
        Some(far.to_string().into_bytes()),
    ];
    rng.choice(values).expect("some")
}
