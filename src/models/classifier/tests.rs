use std::collections::HashMap;

use candle_core::{Device, Tensor};
use tempfile::TempDir;

use super::*;
use crate::folder::TOKENIZER;

/// A network whose weights follow from their names, and the outputs of transformers for it; see
/// `fixtures/reference.py`.
#[derive(Deserialize)]
struct Fixture {
    config: serde_json::Value,
    tokenizer: serde_json::Value,
    tensors: BTreeMap<String, Vec<usize>>,
    pairs: Vec<(String, String)>,
    scores: Vec<f32>,
}

const FIXTURES: [(&str, &str); 4] = [
    ("bert", include_str!("fixtures/bert.json")),
    ("deberta-v2", include_str!("fixtures/deberta-v2.json")),
    ("modernbert", include_str!("fixtures/modernbert.json")),
    ("xlm-roberta", include_str!("fixtures/xlm-roberta.json")),
];

fn weights(name: &str, shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let centre =
        if name.to_lowercase().contains("norm") && name.ends_with("weight") { 1.0 } else { 0.0 };
    let seed = u64::from(crc32fast::hash(name.as_bytes()));
    let number = |at: u64| {
        let state = (at + seed) * 2_654_435_761 % (1 << 32);
        let state = (state ^ (state >> 15)) * 2_246_822_519 % (1 << 32);
        let spread = (state ^ (state >> 13)) as f64 / f64::from(2.0_f32.powi(32)) - 0.5;
        (centre + spread * 0.6) as f32
    };
    let numbers: Vec<f32> = (0..count as u64).map(number).collect();
    Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap()
}

impl Fixture {
    fn of(text: &str) -> Self {
        serde_json::from_str(text).unwrap()
    }

    fn folder(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let tensors: HashMap<String, Tensor> =
            self.tensors.iter().map(|(name, shape)| (name.clone(), weights(name, shape))).collect();
        candle_core::safetensors::save(&tensors, folder.path().join(WEIGHTS)).unwrap();
        std::fs::write(folder.path().join(CONFIG), self.config.to_string()).unwrap();
        std::fs::write(folder.path().join(TOKENIZER), self.tokenizer.to_string()).unwrap();
        folder
    }
}

fn score(classifier: &Classifier, pairs: &[(&str, &str)]) -> (Vec<f32>, Encoded) {
    let mut scores = Vec::new();
    let encoded = classifier.score(pairs, &mut scores).unwrap();
    (scores, encoded)
}

fn open_error(fixture: &Fixture) -> String {
    let opened = Classifier::open(fixture.folder().path(), "tiny");
    opened.err().expect("refused").to_string()
}

#[test]
fn every_family_scores_as_transformers_does_alone_and_in_a_batch() {
    for (name, fixture) in FIXTURES {
        let fixture = Fixture::of(fixture);
        let folder = fixture.folder();
        let classifier = Classifier::open(folder.path(), name).unwrap();
        let pairs: Vec<(&str, &str)> =
            fixture.pairs.iter().map(|(first, second)| (first.as_str(), second.as_str())).collect();
        let (together, encoded) = score(&classifier, &pairs);
        assert_eq!((together.len(), encoded.cut), (pairs.len(), 0), "{name}");
        for ((pair, together), expected) in pairs.iter().zip(together).zip(&fixture.scores) {
            let alone = score(&classifier, &[*pair]).0[0];
            assert!(
                (together - expected).abs() < 1e-5,
                "{name} {pair:?}: {together}, not {expected}"
            );
            assert!((alone - together).abs() < 1e-6, "{name} {pair:?}: {alone} alone, {together}");
        }
    }
}

#[test]
fn a_pair_beyond_the_positions_is_cut_and_counted() {
    for (name, fixture) in FIXTURES {
        let fixture = Fixture::of(fixture);
        let folder = fixture.folder();
        let classifier = Classifier::open(folder.path(), name).unwrap();
        let long = "cat ".repeat(1_000);
        let (scores, encoded) = score(&classifier, &[("the cat", &long), ("the cat", "sleeps")]);
        assert_eq!((scores.len(), encoded.cut), (2, 1), "{name}");
    }
}

#[test]
fn a_classifier_with_unknown_labels_is_refused() {
    let mut fixture = Fixture::of(FIXTURES[3].1);
    fixture.config["id2label"] = serde_json::json!({ "0": "sad", "1": "glad" });
    let error = open_error(&fixture);
    assert!(error.contains("config.json") && error.contains("sad, glad"), "{error}");
    fixture.config["id2label"] = serde_json::json!({ "0": "entailment", "1": "ENTAILMENTS" });
    let error = open_error(&fixture);
    assert!(error.contains("model.safetensors"), "three outputs for two labels: {error}");
    fixture.config["model_type"] = serde_json::json!("t5");
    assert!(open_error(&fixture).contains("t5"));
}
