//! Figures that can be counted by hand, and KBP's records as cases.

use std::io::Write;

use turnstream_operators::model::encoder::Encoded;

use super::*;

fn case(dialogue: &str, gold: (usize, usize)) -> Case {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Case {
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
    // A sentence brings a word that no knowledge has: the bare dialogue is more like either.
    assert_eq!(figures.null_positive.ranks.into_iter().collect::<Vec<_>>(), [(-1, 2)]);
    assert_eq!((figures.null_positive.t, figures.null_positive.t_positive), (1.0, 0.0));
}

/// Knows one direction for the sky and another for everything else.
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
