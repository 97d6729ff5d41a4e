//! Shared test material, and tests of all measures together.

use std::collections::BTreeSet;
use std::io::Write;

use turnstream_formats::Format;
use turnstream_knowledge::{Graph, ImportedFact};
use turnstream_schemas::{InputId, Speaker, Turn};

use super::material::{Answer, Log};
use super::{Beside, measure};

/// Responses and references of our own.
pub(super) const ENGLISH: [(&str, &str); 7] = [
    (
        "The kettle, at 1,500 watts, boils in 3.5 minutes.",
        "A kettle of 1,500 watts boils water in 3.5 minutes!",
    ),
    (
        "I'd say: bring an umbrella - it's raining...",
        "I would bring an umbrella; it's raining again.",
    ),
    ("Café “Luna” opens at 7:30 — naïve, isn’t it?", "Café “Luna” opens at 8:00, isn’t it?"),
    ("", "Nobody said a word."),
    ("yes yes yes yes", "yes, the bread is in the oven"),
    (
        "Tom &amp; Ann paid $20 (10-12 people) <skipped>for R&D.",
        "Tom & Ann paid $20 for 10-12 people, R&D included.",
    ),
    ("Sleep well.", "Sleep well."),
];

/// Responses and references in Chinese.
pub(super) const CHINESE: [(&str, &str); 4] = [
    ("北京的故宫很大，要走一整天。", "故宫很大，逛一天才够。"),
    ("门票60元，wifi免费！", "门票是60元，有WiFi吗？"),
    ("“好的”……我们走吧", "好的，我们走。"),
    ("", "不知道"),
];

pub(super) fn near(figure: f64, expected: f64) {
    assert!((figure - expected).abs() < 1e-9, "{figure} is not {expected}");
}

/// Makes an empty response to a turn.
pub(super) fn answer(conversation: &str, turn: &str) -> Answer {
    Answer {
        input: InputId { topic: "log".to_owned(), partition: 0, offset: 0 },
        tenant_id: None,
        conversation_id: conversation.into(),
        turn_id: turn.into(),
        text: String::new(),
        evidence: Vec::new(),
        facts: BTreeSet::new(),
        confidence: None,
    }
}

/// Makes a log of (conversation, speaker, text).
pub(super) fn log(said: &[(&str, &str, &str)]) -> Log {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    for (conversation, speaker, text) in said {
        let speaker = if *speaker == "user" { Speaker::User } else { Speaker::System };
        let turn = Turn::new(conversation, speaker, text);
        writeln!(file, "{}", serde_json::to_string(&turn).expect("JSON")).expect("written");
    }
    Log::read(Format::Turns, file.path()).expect("a log")
}

#[test]
fn a_selected_fact_that_the_reply_rests_on_is_counted() {
    let fact = |head: &str, tail: &str| {
        let source = "a".to_owned();
        ImportedFact { source, ..ImportedFact::new(head, "RelatedTo", tail, 1.0) }
    };
    let graph = Graph::from_facts([fact("coffee", "cup"), fact("coffee", "bean")]);
    let log = log(&[
        ("a", "user", "Coffee, please."),
        ("a", "system", "Which beans, and which cup?"),
        ("a", "user", "Coffee!"),
        ("a", "system", "At once."),
        ("b", "user", "Coffee?"),
    ]);
    let selected = |turn: &str, conversation: &str, tails: &[&str]| {
        let tuple = |tail: &&str| ["coffee", "RelatedTo", tail].map(str::to_owned);
        Answer { facts: tails.iter().map(tuple).collect(), ..answer(conversation, turn) }
    };
    let measured = |tails: &[&str]| {
        // The second reply rests on no fact, and the last turn has no reply.
        let answers = [
            selected("0-0", "a", tails),
            selected("0-2", "a", &["cup"]),
            selected("0-4", "b", &[]),
        ];
        let places = log.places(&answers).expect("places");
        let beside = Beside { log: &log, places: &places, graph: graph.view() };
        measure(&answers, Some(&beside)).reference_facts
    };
    assert_eq!(measured(&["cup", "kettle"]), Some(0.5));
    assert_eq!(measured(&["cup", "bean"]), Some(1.0));
    assert_eq!(measured(&[]), Some(0.0));
}
