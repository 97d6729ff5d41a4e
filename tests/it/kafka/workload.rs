//! Makes 10,000 inputs: 9,900 turns of 1,000 conversations, made of a few words of our own, and 100
//! records that no engine can serve, of every kind.

use serde_json::{Value, json};

/// Conversations.
pub(crate) const CONVERSATIONS: usize = 1_000;
/// Turns that can be served.
pub(crate) const TURNS: usize = 9_900;
/// Records that cannot be served.
pub(crate) const INVALID: usize = 100;

/// Rounds of turns; the last is only for some conversations, so that there are [`TURNS`].
const ROUNDS: usize = 10;
/// The rounds in which a human agent speaks, in one of ten conversations.
const AGENT_ROUNDS: [usize; 2] = [4, 8];
/// The rounds in which that conversation is released.
const RELEASE_ROUNDS: [usize; 2] = [6, 9];
/// The round whose turn repeats the id of the one before, in one of fifty conversations.
const REPEATED_ROUND: usize = 6;

const THINGS: [&str; 24] = [
    "coffee",
    "a guitar",
    "my bicycle",
    "the garden",
    "a violin",
    "bread",
    "the library",
    "a kitten",
    "football",
    "the beach",
    "a camera",
    "chess",
    "honey",
    "the piano",
    "a tent",
    "rain",
    "my dog",
    "cheese",
    "a novel",
    "the museum",
    "tea",
    "a boat",
    "the market",
    "snow",
];

/// The sayings of users; `{}` stands for a thing.
pub(crate) const SAYINGS: [&str; 12] = [
    "What do people use {} for?",
    "I have been thinking about {} all day.",
    "Where would I find {}?",
    "My sister likes {} more than {} these days.",
    "Thanks!",
    "Do you know anything about {}?",
    "Why does everybody want {}?",
    "I could not sleep because of {}.",
    "Tell me how {} and {} go together.",
    "ok",
    "What happens if I forget {} at home?",
    "We went to see {} and came back late.",
];

/// The values of a field that the schema does not have.
pub(crate) const MOODS: [&str; 3] = ["calm", "curious", "tired"];

/// The sayings of agents.
pub(crate) const AGENT_SAYINGS: [&str; 3] = [
    "Hello, a person here: I can help you with {}.",
    "Let me look up {} for you, one moment.",
    "I have noted down {}; is there anything else?",
];

/// Returns the name of a conversation, which is also its key.
pub(crate) fn conversation(number: usize) -> String {
    format!("talk-{number:04}")
}

/// Returns the turns of a share of the rounds, interleaved over the conversations: key and value.
pub(crate) fn turns(rounds: std::ops::Range<usize>, now_ms: u64) -> Vec<(String, Value)> {
    let mut turns = Vec::new();
    for round in rounds {
        let talking =
            if round + 1 < ROUNDS { CONVERSATIONS } else { TURNS - CONVERSATIONS * round };
        for number in 0..talking {
            turns.push((conversation(number), turn(number, round, now_ms)));
        }
    }
    turns
}

/// All rounds.
pub(crate) const ALL_ROUNDS: std::ops::Range<usize> = 0..ROUNDS;

fn turn(number: usize, round: usize, now_ms: u64) -> Value {
    let of_agent = number % 10 == 3 && AGENT_ROUNDS.contains(&round);
    let releases = number % 10 == 3 && RELEASE_ROUNDS.contains(&round);
    let repeated = number % 50 == 7 && round == REPEATED_ROUND;
    let id = if repeated { round - 1 } else { round };
    let sayings: &[&str] = if of_agent { &AGENT_SAYINGS } else { &SAYINGS };
    let mut turn = json!({
        "conversation_id": conversation(number),
        "turn_id": format!("{number}.{id}"),
        "speaker": if of_agent { "system" } else { "user" },
        "text": say(sayings[(number * 5 + round * 7) % sayings.len()], number + 11 * round),
        // The schema does not have these two; they are carried.
        "mood": MOODS[number % MOODS.len()],
        "channel": { "round": round },
    });
    if releases {
        let turn = turn.as_object_mut().expect("an object");
        turn.retain(|field, _| field != "speaker" && field != "text");
        turn.insert("kind".to_owned(), "release".into());
    }
    if number.is_multiple_of(3) {
        turn["timestamp"] = json!(now_ms + round as u64);
    }
    if number % 4 == 1 {
        turn["metadata"] = json!({ "desk": number, "tags": ["kcat", "it"] });
    }
    if number % 5 == 2 {
        turn["user_id"] = json!(format!("user-{}", number / 5));
    }
    turn
}

/// Returns a saying with things in it.
pub(crate) fn say(saying: &str, seed: usize) -> String {
    let mut words = (0..).map(|place| THINGS[(seed + 7 * place) % THINGS.len()]);
    let mut said = String::new();
    for (place, part) in saying.split("{}").enumerate() {
        if place > 0 {
            said.push_str(words.next().unwrap_or_default());
        }
        said.push_str(part);
    }
    said
}

/// How records of a kind must be sent, so that their bytes arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// As lines among the others.
    Lines,
    /// As lines without a value, which kcat is told to send as tombstones.
    Tombstones,
    /// As files: no line can hold them.
    Files,
}

/// Records of one kind that cannot be served.
pub(crate) struct Invalid {
    /// Part of the reason in their dead letters.
    pub(crate) reason: &'static str,
    pub(crate) sent: Sent,
    /// Key and value.
    pub(crate) records: Vec<(String, Option<Vec<u8>>)>,
}

/// Returns [`INVALID`] records of every kind, under keys of conversations that go on.
pub(crate) fn invalid() -> Vec<Invalid> {
    let mut kinds = Vec::new();
    let mut kind = |reason, sent, count: usize, value: &dyn Fn(&str, usize) -> Vec<u8>| {
        let base: usize = kinds.iter().map(|kind: &Invalid| kind.records.len()).sum();
        let record = |at| {
            let key = conversation((base + at) * 9 % CONVERSATIONS);
            let value = (sent != Sent::Tombstones).then(|| value(&key, at));
            (key, value)
        };
        kinds.push(Invalid { reason, sent, records: (0..count).map(record).collect() });
    };
    let lines = Sent::Lines;
    kind("not UTF-8 from byte 3", Sent::Files, 8, &|_, at| {
        [&b"{\n\0\xff\xfe"[..], &[at as u8; 40], b"\r\n\x80\t"].concat()
    });
    kind("no value", Sent::Tombstones, 8, &|_, _| Vec::new());
    kind("not a turn", lines, 4, &|_, _| Vec::new());
    kind("not UTF-8 from byte", lines, 4, &|key, at| {
        let mut bytes = with(key, "text", json!(format!("caf\u{e9} {at}")));
        let start = bytes.iter().position(|byte| *byte == 0xc3).expect("an é");
        bytes.remove(start);
        bytes
    });
    kind("not a turn", lines, 8, &|_, at| format!("hello, is this {at}?").into_bytes());
    kind("not a turn", lines, 8, &|_, at| {
        ["[1,2]", "\"text\"", "7", "null", "true", "[]", "{}", "[{\"text\":1}]"][at % 8].into()
    });
    kind("invalid type", lines, 8, &|key, at| {
        with(key, ["text", "conversation_id", "turn_id", "metadata"][at % 4], json!(7 + at))
    });
    kind("missing field `conversation_id`", lines, 7, &|_, at| {
        format!(r#"{{"speaker":"user","text":"to nobody {at}"}}"#).into_bytes()
    });
    kind("`conversation_id` is empty", lines, 7, &|key, at| {
        with(key, "conversation_id", json!(" ".repeat(at)))
    });
    kind("more than 8192 (turns.max_text_bytes)", lines, 7, &|key, at| {
        with(key, "text", json!("long ".repeat(1_700 + at)))
    });
    kind("has the control character", lines, 8, &|key, at| {
        let character = char::from([7_u8, 0, 27, 127][at % 4]);
        with(key, ["text", "turn_id"][at % 2], json!(format!("ring{character}")))
    });
    kind("turns.max_timestamp_skew_seconds", lines, 7, &|key, at| {
        with(key, "timestamp", json!(["2999-01-01T00:00:00Z", "1999-12-31T23:59:59Z"][at % 2]))
    });
    kind("unknown variant `sing`", lines, 6, &|key, _| with(key, "kind", json!("sing")));
    kind("names neither a conversation nor a user", lines, 5, &|_, at| {
        format!(r#"{{"kind":"forget","mood":"{}"}}"#, MOODS[at % MOODS.len()]).into_bytes()
    });
    kind("schema_version 99 is newer", lines, 5, &|key, _| with(key, "schema_version", json!(99)));
    assert_eq!(kinds.iter().map(|kind| kind.records.len()).sum::<usize>(), INVALID);
    kinds
}

/// Returns a turn with one field that makes it invalid.
fn with(conversation: &str, field: &str, value: Value) -> Vec<u8> {
    let mut turn = json!({
        "conversation_id": conversation, "speaker": "user", "text": "Is anybody there?",
    });
    turn[field] = value;
    turn.to_string().into_bytes()
}
