//! Tests on figures counted by hand, and of reading KBP and FoCus.

use std::io::Write;

use turnstream_ports::model::encoder::Encoded;

use super::*;

fn case(dialogue: &str, gold: (usize, usize)) -> PersonaCase {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    PersonaCase {
        conversation: gold.0,
        dialogue: dialogue.to_owned(),
        persona: texts(&["I keep a telescope.", "I collect stamps."]),
        knowledge: texts(&["The telescope shows a comet.", "The stamps show birds in autumn."]),
        gold_persona: vec![gold.0],
        gold_knowledge: vec![gold.1],
    }
}

const BY_WORDS: Scoring<'_> = Scoring { encoder: None, word_share: 1.0, threshold: 0.0 };

/// The dialogue alone finds what it names; a persona alone finds the same for every dialogue.
#[test]
fn figures_are_those_counted_by_hand() {
    let cases = [case("Birds in autumn?", (1, 1)), case("Is there a comet?", (0, 0))];
    let figures = evaluate(&cases, &BY_WORDS).unwrap();
    assert_eq!(figures.n, 2);
    assert_eq!(figures.knowledge.dialogue.value, 1.0);
    assert_eq!(figures.knowledge.both.value, 1.0);
    assert_eq!(figures.knowledge.persona.value, 0.5, "the telescope, which is rarer among words");
    assert_eq!(figures.persona.both.value, 1.0);
    assert_eq!(figures.accepted, figures.persona.both);
    let unlike = evaluate(&cases, &Scoring { threshold: 1.0, ..BY_WORDS }).unwrap();
    assert_eq!(unlike.accepted.value, 0.0, "nothing is so alike");
    // A sentence adds a word that no knowledge contains, so the bare dialogue is more similar to
    // both.
    assert_eq!(figures.null_positive.ranks.into_iter().collect::<Vec<_>>(), [(-1, 2)]);
    assert_eq!((figures.null_positive.t, figures.null_positive.t_positive), (1.0, 0.0));
}

/// An encoder with one direction for the sky and another for everything else.
struct Sky;

impl Encoder for Sky {
    fn name(&self) -> &str {
        "sky"
    }

    fn fingerprint(&self) -> u64 {
        1
    }

    fn dimensions(&self) -> usize {
        2
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        let sky = |text: &str| ["telescope", "comet", "stars"].iter().any(|it| text.contains(it));
        vectors.extend(texts.iter().flat_map(|it| if sky(it) { [1.0, 0.0] } else { [0.0, 1.0] }));
        Ok(Encoded::default())
    }
}

#[test]
fn an_encoder_finds_what_words_do_not() {
    let cases = [case("What of the stars?", (0, 0))];
    let knowledge = |scoring| evaluate(&cases, &scoring).unwrap().knowledge.dialogue.value;
    let sky = Scoring { encoder: Some(&Sky), word_share: 0.0, threshold: 0.0 };
    assert_eq!(knowledge(sky), 1.0);
    let cases = [case("What of the stars?", (1, 1))];
    let other = evaluate(&cases, &sky).unwrap();
    assert_eq!(other.knowledge.dialogue.value, 0.0);
}

#[test]
fn replies_that_used_both_are_cases() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let record = serde_json::json!({
        "persona": { "B0": "我 喜欢 茶", "B1": "我 养 猫" },
        "persona_kg": { "B0": { "K0": "茶 来自 山区" }, "B1": { "K0": "猫 爱 睡觉", "K1": "猫 怕 水" } },
        "conversation": [
            { "U": "你好", "S": "你好", "P-K": [] },
            { "U": "你 有 宠物 吗", "S": "有", "P-K": [["B1"]] },
            { "U": "它 洗澡 吗", "S": "不", "P-K": [["B1"], ["B1-K1"]] },
        ],
    });
    writeln!(file, "{record}").unwrap();
    let cases = kbp::read(file.path()).unwrap();
    let [case] = &cases[..] else { panic!("{cases:?}") };
    assert_eq!(
        (case.dialogue.as_str(), &*case.persona),
        ("它洗澡吗", &["我喜欢茶", "我养猫"].map(String::from)[..])
    );
    assert_eq!((&*case.gold_persona, &*case.gold_knowledge), (&[1][..], &[2][..]));
    assert_eq!(case.knowledge[2], "猫怕水");

    let nothing = tempfile::NamedTempFile::new().unwrap();
    let refused = kbp::read(nothing.path()).unwrap_err().to_string();
    assert!(refused.contains("no record with gold evidence"), "{refused}");
}

/// A file in FoCus's format: two turns of a dialogue, the second without a persona.
#[test]
fn turns_of_focus_are_cases() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let candidates = ["The tower is old.", "The tower has 300 steps."];
    let said = ["What is this?", "A tower.", "Can I climb it?", "Yes, by 300 steps."];
    let record = serde_json::json!({ "data": [{
        "dialogID": "ABC", "landmark_link": "a tower", "knowledge": candidates,
        "persona": ["I like stairs.", "I fear heights."],
        "utterance": [
            { "dialogue1": said[..2], "persona_grounding": [false, false],
              "persona_candidate": ["x"], "knowledge_candidates": candidates,
              "knowledge_answer_index": 0 },
            { "dialogue2": said, "persona_grounding": [true, false],
              "knowledge_candidates": candidates, "knowledge_answer_index": 1 },
        ],
    }] });
    write!(file, "{record:#}").unwrap();
    let cases = focus::read(file.path()).unwrap();
    let [none, stairs] = &cases[..] else { panic!("{cases:?}") };
    assert_eq!((&*none.dialogue, &*none.gold_persona), ("What is this?", &[][..]));
    assert_eq!((&*stairs.dialogue, &*stairs.gold_persona), ("Can I climb it?", &[0][..]));
    assert_eq!((&*stairs.gold_knowledge, &*stairs.knowledge[1]), (&[1][..], candidates[1]));
    assert_eq!(stairs.persona, ["I like stairs.", "I fear heights."]);

    let figures = evaluate(&cases, &Scoring { threshold: 0.9, ..BY_WORDS }).unwrap();
    assert_eq!((figures.n, figures.null_positive.ranks.values().sum::<u64>()), (2, 1));
    assert_eq!(figures.accepted.value, 0.5, "rightly none, and wrongly none");

    std::fs::write(file.path(), "{\"data\": [{}]}").unwrap();
    let refused = focus::read(file.path()).unwrap_err().to_string();
    assert!(refused.contains("missing field `persona`"), "{refused}");
}
