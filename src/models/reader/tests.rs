use serde::Deserialize;

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

/// Checks a reader against PyTorch's outputs: vectors, scores and intents within these distances.
fn check(reader: &Arc<AnswerReader>, [vectors_within, scores_within, intents_within]: [f32; 3]) {
    let reference: Reference =
        serde_json::from_str(include_str!("fixtures/readings.json")).expect("the fixture");
    let sections: Vec<Section> = reference
        .sections
        .into_iter()
        .map(|SectionTexts { title, sentences }| Section { title, sentences, taught: 0 })
        .collect();
    let backend = ReaderBackend(Arc::clone(reader));
    for turn in reference.turns {
        let ReferenceTurn { question, scores, intents, vector } = turn;
        let QuestionTexts { utterance, user_before, system_before } = question;
        let mut vectors = Vec::new();
        reader.encode(&[&utterance], &mut vectors).expect("a vector");
        close(&vectors, &vector, vectors_within);
        let question = Question { utterance, user_before, system_before };
        let request = ReadRequest { question, sections: sections.clone() };
        let (readings, encoded) = backend.run(&[request]).expect("a reading");
        let [reading] = &readings[..] else { panic!("{readings:?}") };
        for (found, expected) in reading.scores.iter().zip(&scores) {
            assert_eq!(found.len(), expected.len());
            close(found, expected, scores_within);
        }
        close(&reading.intents, &intents, intents_within);
        assert!((0.0..=1.0).contains(&reading.precision) && encoded.tokens > 0);
    }
}

#[test]
fn the_network_with_exact_products_reads_as_in_training() {
    let floats = |file: &SafeTensors<'_>| Ok(weights(file)?.in_floats());
    let reader = AnswerReader::from_bytes(turnstream_weights::READER, floats);
    check(&Arc::new(reader.expect("the reader")), [1e-4, 2e-3, 1e-3]);
}

#[test]
fn the_shipped_reader_reads_nearly_as_in_training() {
    // Wide enough for rows of 7 bits.
    check(&AnswerReader::shipped().expect("the reader"), [0.02, 0.3, 0.02]);
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
