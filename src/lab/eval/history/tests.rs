//! Tests on conversations of our own, with figures counted by hand.

use std::io::Write as _;
use std::path::Path;

use turnstream_operators::history::HistoryConfig;
use turnstream_operators::history::similarity::Similarity;
use turnstream_schemas::{EventTime, Speaker};

use super::evidence::{Measure, Outcomes};
use super::held::{Eviction, Held, Keeping, Method, utterances};
use super::material::{Conversation, Gold, Question, Step, Utterance, read};
use super::table::{Shown, Variant, markdown, of_evidence, of_topics};
use super::*;
use crate::eval::bootstrap::Conversations;

/// Four exchanges with turn ids `u1`, `s1`, …
const SAID: [(&str, &str); 4] = [
    ("My parcel is late.", "Which parcel?"),
    ("I keep bees in the garden.", "How many hives?"),
    ("My violin needs a string.", "Which one broke?"),
    ("The train was full.", "On Monday again?"),
];

fn said(id: &str, speaker: Speaker, text: &str, place: usize, topic: Option<&str>) -> Step {
    Step::Said(Utterance {
        id: id.into(),
        speaker,
        text: text.to_owned(),
        time: EventTime(place as i64 * 1_000),
        topic: topic.map(str::to_owned),
    })
}

pub(in crate::eval) fn exchanges(of: &[(&str, &str)]) -> Vec<Step> {
    let exchange = |(number, (user, system)): (usize, &(&str, &str))| {
        let (asked, answered) = (format!("u{}", number + 1), format!("s{}", number + 1));
        [
            said(&asked, Speaker::User, user, 2 * number, None),
            said(&answered, Speaker::System, system, 2 * number + 1, None),
        ]
    };
    of.iter().enumerate().flat_map(exchange).collect()
}

pub(in crate::eval) fn asked(text: &str, category: &str, evidence: &[&str]) -> Step {
    Step::Asked(Question {
        text: text.to_owned(),
        category: Some(category.to_owned()),
        gold: Gold::Evidence(evidence.iter().map(|id| (*id).to_owned()).collect()),
    })
}

pub(in crate::eval) fn talk() -> Vec<Conversation> {
    let questions = [
        asked("How are the bees?", "1", &["u2"]),
        asked("Did the parcel come by train?", "5", &["u1", "s4", "nowhere"]),
        asked("Who sings?", "1", &["D8:6; D9:17"]),
    ];
    let steps = exchanges(&SAID).into_iter().chain(questions).collect();
    vec![Conversation { id: "a".to_owned(), steps }]
}

fn measure(method: Method, capacity: Capacity, eviction: Eviction) -> Measure {
    Measure {
        config: HistoryConfig::default(),
        similarity: Similarity::by_words(),
        reconstruct: false,
        attending: None,
        k: vec![1, 2, 4, 6],
        capacity,
        eviction,
        method,
        seed: 1,
    }
}

fn outcomes(measure: &Measure, of: &[Conversation]) -> Outcomes {
    evidence::ask(measure, of, &|| {})
}

#[test]
fn an_utterance_is_one_unit_and_an_entry_of_two_counts_two() {
    let by = |method| outcomes(&measure(method, Capacity::All, Eviction::None), &talk());
    let latest = by(Method::Recency);
    let recalls: Vec<&[f64]> = latest.questions.iter().map(|it| it.recall.as_slice()).collect();
    // The ranking is exchanges 4, 3, 2: none fits into one utterance, and all three fit into six.
    assert_eq!(recalls, [[0.0, 0.0, 0.0, 1.0], [0.0, 0.5, 0.5, 0.5]]);
    for method in [Method::Bm25, Method::Flat, Method::Hierarchy, Method::Chains, Method::All] {
        let found = by(method);
        let recalls: Vec<&[f64]> = found.questions.iter().map(|it| it.recall.as_slice()).collect();
        assert_eq!(recalls, [[0.0, 1.0, 1.0, 1.0], [0.0, 0.5, 1.0, 1.0]], "{}", method.name());
        assert_eq!((found.skipped, found.malformed), (1, 2));
        assert!(found.questions.iter().all(|outcome| outcome.survival == 1.0));
    }
}

#[test]
fn figures_are_means_over_questions() {
    let k = [1, 2, 4, 6];
    let measured = outcomes(&measure(Method::Bm25, Capacity::All, Eviction::None), &talk());
    let measured = measured.measured(&k, true);
    let all = &measured.figures;
    assert_eq!(all.n, 2);
    assert_eq!(all.recall, [(1, 0.0), (2, 0.75), (4, 1.0), (6, 1.0)].into());
    assert_eq!(all.full, [(1, 0.0), (2, 0.5), (4, 1.0), (6, 1.0)].into());
    assert_eq!(measured.by_category["5"].recall[&2], 0.5);
    let answerable = measured.answerable.as_ref().expect("LoCoMo");
    assert_eq!((answerable.n, answerable.recall[&2]), (1, 1.0));
    assert_eq!((measured.questions_skipped, measured.malformed_evidence), (1, 2));
    assert_eq!(measured.intervals.recall[&2], [0.5, 1.0]);
    assert_eq!(measured.intervals.survival, Some([1.0, 1.0]));
    let json = serde_json::to_value(&measured).expect("JSON");
    assert_eq!(json["recall"]["2"], 0.75, "{json}");
    assert_eq!(json["by_category"]["1"]["full"]["4"], 1.0);
}

#[test]
fn what_does_not_fit_leaves() {
    let four = Capacity::Utterances(4);
    let latest = outcomes(&measure(Method::Bm25, four, Eviction::Recency), &talk());
    let survival: Vec<f64> = latest.figures_of(None);
    assert_eq!(survival, [0.0, 0.5], "exchanges 3 and 4 are held");
    assert_eq!(latest.figures_of(Some(2)), [0.0, 0.5]);
    assert_eq!(
        outcomes(&measure(Method::Bm25, Capacity::Share(0.5), Eviction::Recency), &talk()),
        latest,
        "half of eight utterances"
    );
    // By relevance alone: "train" and "bees" have no word in common, so the older of the two equals
    // is evicted.
    let mut rule = measure(Method::Flat, four, Eviction::Rule);
    rule.config.alpha = 1.0;
    rule.config.importance_share = 0.0;
    assert_eq!(outcomes(&rule, &talk()).figures_of(None), [0.0, 0.5]);
    let mut steps = exchanges(&[SAID[0], SAID[1], SAID[2], ("The bees were in the train.", "Oh.")]);
    steps.push(asked("How are the bees?", "1", &["u2"]));
    let bees = [Conversation { id: "b".to_owned(), steps }];
    let why = "the violin leaves: the older bees are relevant to the bees in the train";
    assert_eq!(outcomes(&rule, &bees).figures_of(None), [1.0], "{why}");
    let recency = Measure { eviction: Eviction::Recency, ..rule };
    assert_eq!(outcomes(&recency, &bees).figures_of(None), [0.0]);
}

#[test]
fn random_eviction_spares_the_newest_and_draws_the_others_alike() {
    let drawn = |seed| {
        let random = measure(Method::Flat, Capacity::Utterances(4), Eviction::Random);
        outcomes(&Measure { seed, ..random }, &talk())
    };
    assert_eq!(drawn(3), drawn(3), "the same seed");
    let survivals: Vec<Vec<f64>> = (0..400).map(|seed| drawn(seed).figures_of(None)).collect();
    assert!(survivals.iter().all(|survival| survival[1] >= 0.5), "exchange 4 is the newest");
    // Exchange 2 must survive two draws of one out of two.
    let second = survivals.iter().filter(|survival| survival[0] == 1.0).count();
    assert!((second as f64 / 400.0 - 0.25).abs() < 0.07, "{second} of 400");
}

#[test]
fn recall_after_random_eviction_finds_nothing_that_left() {
    for seed in 0..20 {
        let keeping = Keeping {
            config: HistoryConfig::default(),
            similarity: Similarity::by_words(),
            reconstruct: false,
            attending: None,
            eviction: Eviction::Random,
            method: Method::Flat,
            capacity: Some(2),
            seed,
        };
        let mut held = Held::new(&keeping);
        for step in exchanges(&SAID) {
            let Step::Said(said) = step else { continue };
            held.hear(&said);
        }
        let ranked = held.ask();
        assert_eq!(ranked.entries().len(), 2);
        let mut recalled = ranked.recall("bees, parcel, violin or train?");
        recalled.sort_unstable();
        assert_eq!(recalled, [0, 1]);
    }
}

#[test]
fn entries_are_those_of_a_replay() {
    let keeping = Keeping {
        config: HistoryConfig::default(),
        similarity: Similarity::by_words(),
        reconstruct: false,
        attending: None,
        eviction: Eviction::None,
        method: Method::Recency,
        capacity: None,
        seed: 1,
    };
    let mut held = Held::new(&keeping);
    let sides = [Speaker::User, Speaker::User, Speaker::System, Speaker::System, Speaker::System];
    for (place, speaker) in sides.into_iter().enumerate() {
        let Step::Said(said) = said(&place.to_string(), speaker, "Well.", place, None) else {
            unreachable!("it is said");
        };
        held.hear(&said);
    }
    let ids = |entry| utterances(entry).map(|id| id.as_str()).collect::<Vec<_>>().join("+");
    let entries: Vec<String> = held.entries().map(ids).collect();
    assert_eq!(entries, ["0+3", "1+2", "4"], "a reply completes the latest that lacks one");
}

#[test]
fn a_question_knows_nothing_of_what_follows() {
    let mut steps = exchanges(&SAID[..1]);
    steps.push(asked("How are the bees?", "1", &["u2"]));
    steps.extend(exchanges(&SAID).into_iter().skip(2).take(2));
    steps.push(asked("How are the bees?", "1", &["u2"]));
    let of = [Conversation { id: "c".to_owned(), steps }];
    let found = outcomes(&measure(Method::All, Capacity::All, Eviction::None), &of);
    assert_eq!((found.questions.len(), found.skipped, found.malformed), (1, 1, 1));
    assert_eq!(found.questions[0].recall, [0.0, 1.0, 1.0, 1.0]);
}

#[test]
fn a_question_is_completed_where_that_is_asked_for() {
    let mut steps = exchanges(&[SAID[0], SAID[1], ("Do they sting?", "No.")]);
    steps.push(asked("And are they loud?", "1", &["s2"]));
    let of = [Conversation { id: "d".to_owned(), steps }];
    let plain = measure(Method::Flat, Capacity::All, Eviction::None);
    let recall = |reconstruct| {
        outcomes(&Measure { reconstruct, ..plain.clone() }, &of).questions[0].recall.clone()
    };
    // Only completion tells what "they" means: the bees, which sting.
    assert_eq!(recall(false), [0.0, 0.0, 1.0, 1.0], "of equals the later first");
    assert_eq!(recall(true), [0.0, 1.0, 1.0, 1.0]);
}

fn topical() -> Vec<Conversation> {
    let questions = [
        ("Where is the mill?", "By the river.", "mill"),
        ("Who built the mill?", "A miller.", "mill"),
        ("What is a violin made of?", "Spruce.", "violin"),
        ("When did the mill burn?", "In 1890.", "mill"),
        ("How large was the mill?", "Three floors.", "mill"),
        ("Who sings tenor?", "He does.", "tenor"),
    ];
    let mut steps = Vec::new();
    for (number, (question, answer, topic)) in questions.into_iter().enumerate() {
        if number >= 3 {
            let gold = Gold::Topic(topic.to_owned());
            steps.push(Step::Asked(Question { text: question.to_owned(), category: None, gold }));
        }
        let (asked, answered) = (format!("q{number}"), format!("a{number}"));
        steps.push(said(&asked, Speaker::User, question, number, Some(topic)));
        steps.push(said(&answered, Speaker::System, answer, number, None));
    }
    vec![Conversation { id: "e".to_owned(), steps }]
}

#[test]
fn topics_are_those_of_what_was_recalled() {
    let by = |method| {
        let measure = measure(method, Capacity::All, Eviction::None);
        topics::ask(&measure, &topical(), &|| {})
    };
    let two_thirds = 2.0 / 3.0;
    let latest = by(Method::Recency);
    let precision: Vec<[f64; 2]> = latest.iter().map(|it| it.precision).collect();
    assert_eq!(precision, [[0.0, two_thirds], [1.0, two_thirds], [0.0, 0.0]]);
    let seen: Vec<(bool, bool)> = latest.iter().map(|it| (it.seen, it.returns)).collect();
    assert_eq!(seen, [(true, true), (true, false), (false, false)]);
    for method in [Method::Bm25, Method::Flat] {
        let precision: Vec<[f64; 2]> = by(method).iter().map(|it| it.precision).collect();
        assert_eq!(precision, [[1.0, two_thirds], [1.0, 1.0], [0.0, 0.0]], "{}", method.name());
    }
    let measured = topics::measured(&latest);
    assert_eq!((measured.n, measured.on_seen.n, measured.on_return.n), (3, 2, 1));
    assert!((measured.topic_precision.precision[&1] - 1.0 / 3.0).abs() < 1e-12);
    assert_eq!(measured.on_return.precision[&1], 0.0);
    let json = serde_json::to_value(&measured).expect("JSON");
    assert_eq!(json["on_seen"]["1"], 0.5, "{json}");
}

#[test]
fn differences_are_paired() {
    let drawn = Conversations::new(0..100);
    let theirs: Vec<f64> = (0..100).map(|at| f64::from(at % 2)).collect();
    let ours: Vec<f64> = theirs.iter().map(|value| value + 0.25).collect();
    let difference = difference(&ours, &theirs, &drawn).expect("many");
    assert_eq!(difference, Difference { by: 0.25, interval: [0.25, 0.25] });
    assert_eq!(super::difference(&[1.0], &[0.0], &Conversations::new([0])), None);
}

#[test]
fn the_table_has_every_way_and_what_it_gives_over_its_control() {
    let variant = |name: &str, shown| Variant {
        name: name.to_owned(),
        config: HistoryConfig::default(),
        similarity: Similarity::by_words(),
        reconstruct: false,
        attending: None,
        shown,
    };
    let variants = [
        variant("", Shown::Everywhere),
        variant("other words", Shown::Recalled),
        variant("other rule", Shown::Kept),
    ];
    let sections = of_evidence("a.jsonl", &talk(), &variants, &|| {});
    let names = |at: usize| -> Vec<&str> {
        sections[at].rows.iter().map(|row| row.name.as_str()).collect()
    };
    let ways = ["BM25", "latest first", "all", "flat", "hierarchy", "chains", "all, other words"];
    assert_eq!(names(0), ways);
    assert_eq!(names(1), ["random eviction", "recency only", "rule", "rule, other rule"]);
    // Ten utterances hold everything, so BM25 and recency both find it: there are eight.
    let over = |at: usize| sections[0].rows[at].over.clone();
    let by: Vec<_> = over(1).iter().flatten().map(|difference| difference.by).collect();
    assert_eq!(by, [0.0, 0.0], "over BM25 and over the default");
    assert!(over(0)[0].is_none() && over(0)[1].is_some(), "{:?}", over(0));
    assert!(over(2)[0].is_some() && over(2)[1].is_none(), "{:?}", over(2));
    let survival = sections[1].rows[1].figures[0].value;
    assert_eq!(survival, Some(0.25), "a quarter of eight utterances is the last exchange");
    let page = markdown(&sections);
    assert!(page.contains("2 questions of 1 conversations in `a.jsonl`; 1 more skipped"), "{page}");
    assert!(page.contains("| recency only | 0.250 [0.000, 0.500] |"), "{page}");

    let sections = of_topics("b.jsonl", &topical(), &variants[..2], &|| {});
    assert_eq!(sections[0].rows.len(), 7);
    assert!(markdown(&sections).contains("3 turns of 1 conversations"));
    let told = sections[0].rows.iter().map(|row| row.over.iter().flatten().count());
    assert_eq!(told.collect::<Vec<_>>()[2], 0, "the default over itself");
}

fn written(lines: &[serde_json::Value]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    for line in lines {
        writeln!(file, "{line}").expect("written");
    }
    file
}

#[test]
fn turns_with_evidence_ask_at_their_place() {
    let turn = |id: &str, speaker: &str, metadata: serde_json::Value| {
        serde_json::json!({ "conversation_id": "c", "turn_id": id, "speaker": speaker,
            "text": format!("{id} is said."), "metadata": metadata })
    };
    let none = serde_json::json!({});
    let file = written(&[
        turn("1", "user", none.clone()),
        turn("2", "system", none.clone()),
        turn("3", "user", serde_json::json!({ "evidence": ["1"], "category": 2 })),
        turn("4", "user", serde_json::json!({ "evidence": ["2"], "probe": true })),
    ]);
    let conversations = read(Format::Turns, file.path()).expect("it reads");
    let outline: Vec<String> = conversations[0]
        .steps
        .iter()
        .map(|step| match step {
            Step::Said(said) => said.id.to_string(),
            Step::Asked(question) => format!("{}?{:?}", question.text, question.category),
        })
        .collect();
    assert_eq!(outline, ["1", "2", "3 is said.?Some(\"2\")", "3", "4 is said.?None"]);

    let refused = |metadata, speaker| {
        let file = written(&[turn("1", speaker, metadata)]);
        read(Format::Turns, file.path()).expect_err("refused").to_string()
    };
    let amiss = refused(serde_json::json!({ "evidence": "1" }), "user");
    assert!(amiss.contains(":1: metadata.evidence is not a list of turn ids"), "{amiss}");
    let amiss = refused(serde_json::json!({ "evidence": ["1"] }), "system");
    assert!(amiss.contains("only user turns ask questions; fix the line"), "{amiss}");
    assert!(refused(none, "user").contains("has no questions about a history in the format turns"));
    let other = read(Format::Sgd, file.path()).expect_err("refused").to_string();
    assert!(other.contains("sgd has no questions about a history; use locomo"), "{other}");
}

#[test]
fn locomo_asks_at_the_end_of_each_conversation() {
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/formats/locomo.jsonl");
    let conversations = read(Format::Locomo, &fixture).expect("it reads");
    let questions: Vec<Vec<&Question>> = conversations
        .iter()
        .map(|conversation| conversation.steps.iter().filter_map(Step::question).collect())
        .collect();
    assert_eq!(questions.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(questions[0][0].gold, Gold::Evidence(vec!["D1:1".to_owned()]));
    assert_eq!(questions[0][0].category.as_deref(), Some("1"));
    assert!(matches!(conversations[0].steps.last(), Some(Step::Asked(_))));
}

#[test]
fn topiocqa_asks_from_the_fourth_question_on() {
    let turn = |number: usize| {
        serde_json::json!({ "turn": number, "question": format!("Question {number}?"),
            "answer": "So it is.", "topic": if number == 5 { "" } else { "mill" } })
    };
    let turns: Vec<_> = (1..=6).map(turn).collect();
    let file = written(&[serde_json::json!({ "conversation": 7, "turns": turns })]);
    let conversations = read(Format::Topiocqa, file.path()).expect("it reads");
    let asked: Vec<&str> = conversations[0]
        .steps
        .iter()
        .filter_map(Step::question)
        .map(|question| question.text.as_str())
        .collect();
    assert_eq!(asked, ["Question 4?", "Question 6?"], "5 has no topic");
}
