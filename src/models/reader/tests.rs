use safetensors::SafeTensors;
use serde::Deserialize;
use turnstream_ports::model::reader::Question;

use super::*;

/// PyTorch's outputs (`deploy/training/answers/reference.py`).
#[derive(Deserialize)]
struct Reference {
    sections: Vec<SectionTexts>,
    turns: Vec<ReferenceTurn>,
}

#[derive(Deserialize)]
struct SectionTexts {
    title: String,
    sentences: Vec<String>,
}

#[derive(Deserialize)]
struct QuestionTexts {
    utterance: String,
    user_before: Option<String>,
    system_before: Option<String>,
}

#[derive(Deserialize)]
struct ReferenceTurn {
    question: QuestionTexts,
    scores: Vec<Vec<f32>>,
    intents: [f32; 5],
    vector: Vec<f32>,
}

fn close(found: &[f32], expected: &[f32], within: f32) {
    assert!(found.len() >= expected.len());
    let far = found.iter().zip(expected).find(|(a, b)| (*a - *b).abs() > within);
    assert!(far.is_none(), "{found:?} is not {expected:?}");
}

const READINGS: [&str; 2] =
    [include_str!("fixtures/readings-en.json"), include_str!("fixtures/readings-zh.json")];

/// Checks a network against PyTorch's outputs: vectors, scores and intents within these distances.
fn check(
    network: &ReaderNetwork,
    readings: &str,
    [vectors_within, scores_within, intents_within]: [f32; 3],
) {
    let reference: Reference = serde_json::from_str(readings).expect("the fixture");
    let sections: Vec<Section> = reference
        .sections
        .into_iter()
        .map(|SectionTexts { title, sentences }| Section { title, sentences, taught: 0 })
        .collect();
    for turn in reference.turns {
        let ReferenceTurn { question, scores, intents, vector } = turn;
        let QuestionTexts { utterance, user_before, system_before } = question;
        let (mut vectors, mut encoded) = (Vec::new(), Encoded::default());
        network.vector(&utterance, &mut vectors, &mut encoded).expect("a vector");
        close(&vectors, &vector, vectors_within);
        let question = Question { utterance, user_before, system_before };
        let request = ReadRequest { question, sections: sections.clone() };
        let reading = network.read(&request, &mut encoded.tokens).expect("a reading");
        for (found, expected) in reading.scores.iter().zip(&scores) {
            assert_eq!(found.len(), expected.len());
            close(found, expected, scores_within);
        }
        close(&reading.intents, &intents, intents_within);
        assert!((0.0..=1.0).contains(&reading.precision) && encoded.tokens > 0);
    }
}

#[test]
fn the_networks_with_exact_products_read_as_in_training() {
    let floats = |file: &SafeTensors<'_>| Ok(weights(file)?.in_floats());
    for (files, readings) in [ENGLISH, CHINESE].into_iter().zip(READINGS) {
        let network = ReaderNetwork::from_bytes(files, floats).expect("the network");
        check(&network, readings, [1e-4, 2e-3, 1e-3]);
    }
}

#[test]
fn the_shipped_reader_reads_nearly_as_in_training_in_the_language_of_the_question() {
    let reader = AnswerReader::shipped().expect("the reader");
    for (is_chinese, readings) in [false, true].into_iter().zip(READINGS) {
        // Wide enough for rows of 7 bits.
        check(reader.network(is_chinese).expect("the network"), readings, [0.02, 0.3, 0.02]);
    }
}

#[test]
fn a_text_has_the_vector_of_its_language() {
    let reader = AnswerReader::shipped().expect("the reader");
    let texts = ["how long have i got", "灯不想要了，几天内能退", "iPhone 15"];
    let mut found = Vec::new();
    reader.encode(&texts, &mut found).expect("vectors");
    let (mut expected, mut encoded) = (Vec::new(), Encoded::default());
    for (text, is_chinese) in texts.into_iter().zip([false, true, false]) {
        let network = reader.network(is_chinese).expect("the network");
        network.vector(text, &mut expected, &mut encoded).expect("a vector");
    }
    assert_eq!(found, expected);
    let mut traditional = Vec::new();
    reader.encode(&["燈不想要了，幾天內能退"], &mut traditional).expect("a vector");
    let width = reader.dimensions();
    assert_eq!(traditional, found[width..2 * width]);
}

#[test]
fn a_question_without_a_word_is_read_in_the_language_of_the_turns_before() {
    let reader = AnswerReader::shipped().expect("the reader");
    for (is_chinese, system_before) in [(false, "Which one?"), (true, "哪一款？")] {
        let question = Question {
            utterance: "iPhone 15".to_owned(),
            system_before: Some(system_before.to_owned()),
            ..Question::default()
        };
        let request = ReadRequest { question, sections: Vec::new() };
        let found = reader.read(&request, &mut 0).expect("a reading");
        let network = reader.network(is_chinese).expect("the network");
        assert_eq!(found, network.read(&request, &mut 0).expect("a reading"), "{system_before}");
    }
}

#[test]
fn what_finds_no_room_has_no_score() {
    let reader = AnswerReader::shipped().expect("the reader");
    let long = Section {
        title: "Long".to_owned(),
        sentences: vec!["One more word. ".repeat(40); 9],
        taught: 0,
    };
    let question = Question {
        utterance: "what? ".repeat(200),
        user_before: Some("so ".repeat(500)),
        system_before: None,
    };
    let request = ReadRequest { question, sections: vec![long, Section::default()] };
    let (readings, _) = ReaderBackend(reader).run(&[request]).expect("a reading");
    assert!((1..9).contains(&readings[0].scores[0].len()), "{readings:?}");
    assert!(readings[0].scores[1].is_empty());
}
