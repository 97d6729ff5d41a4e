//! The shipped gate is complete, and other files are refused by name.

use turnstream_formats::Need;
use turnstream_schemas::Speaker;

use super::*;

#[test]
fn the_shipped_gate_says_what_it_is_and_scores_by_each_definition() {
    let gate = Gate::shipped().unwrap();
    let card = gate.card();
    assert_eq!((gate.language(), card.shape.variant.name()), ("en", "contx"));
    assert_eq!(gate.definitions(), ["dstc11", "sgd", "topical-chat"]);
    // All training data may be redistributed.
    assert_eq!(card.training.licences, ["CDLA-Sharing-1.0", "CC BY-SA 4.0"]);
    let score = |text: &str| {
        let utterances = vec![(Speaker::User, text)];
        let reading = GateReading { utterances, knowledge: Vec::new(), response: None };
        gate.score(&reading).unwrap()
    };
    let asked = score("Is the hotel quiet at night, and do guests like the breakfast?");
    let thanked = score("Thanks a lot, goodbye!");
    assert!(asked["dstc11"] > 0.5 && thanked["dstc11"] < 0.5, "{asked:?} {thanked:?}");
    assert!(asked.values().chain(thanked.values()).all(|score| (0.0..=1.0).contains(score)));
    // The empty text gets a score, too.
    assert_eq!(score("").len(), 3);
}

#[test]
fn a_definition_s_own_threshold_is_one_half_on_the_common_scale() {
    let shipped = Gate::shipped().unwrap();
    let definition = Definition { threshold: 0.8, ..shipped.card().definitions[0].clone() };
    let near = |probability: f64, expected: f64| {
        let scaled = definition.on_scale(probability);
        assert!((scaled - expected).abs() < 1e-12, "{probability}: {scaled}");
    };
    near(0.0, 0.0);
    near(0.4, 0.25);
    near(0.8, 0.5);
    near(0.9, 0.75);
    near(1.0, 1.0);
    assert_eq!(definition.classes, [Need::None, Need::Unstructured]);
}

#[test]
fn the_mean_of_encoder_and_regression_decides() {
    let shipped = Gate::shipped().unwrap();
    let definition = |classes: &[Need]| Definition {
        classes: classes.to_vec(),
        ..shipped.card().definitions[0].clone()
    };
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
    let two = definition(&[Need::None, Need::Unstructured]);
    near(two.need(&[1.0, 3.0], None), 1.0 / (1.0 + (-2.0_f64).exp()));
    near(two.need(&[1.0, 3.0], Some(0.0)), 1.0 / (1.0 + (-1.0_f64).exp()));
    near(two.need(&[1.0, 3.0], Some(-2.0)), 0.5);
    near(two.need(&[1.0, 3.0], Some(6.0)), 1.0 / (1.0 + (-4.0_f64).exp()));
    // Two classes of equal logits that need knowledge are twice as likely as one.
    let three = definition(&[Need::None, Need::Structured, Need::Unstructured]);
    near(three.need(&[0.0, 0.0, 0.0], Some(2.0_f64.ln())), 2.0 / 3.0);
    // However sure one of them is, the need stays a number.
    assert!((0.0..1e-9).contains(&two.need(&[900.0, -900.0], None)));
}

#[test]
fn a_gate_of_the_first_layout_is_the_encoder_alone() {
    let shipped = Gate::shipped().unwrap();
    let mut card = serde_json::to_value(shipped.card()).unwrap();
    card["format"] = 1.into();
    card.as_object_mut().unwrap().remove("ngrams");
    let card: Card = serde_json::from_value(card).unwrap();
    let mut parameters = shipped.parameters().clone();
    parameters.retain(|name, _| !name.starts_with("ngrams."));
    let first = Gate::from_bytes(&Gate::to_bytes(&card, &parameters).unwrap(), "x").unwrap();
    let score = |gate: &Gate| {
        let utterances = vec![(Speaker::User, "Is the hotel quiet at night?")];
        let reading = GateReading { utterances, knowledge: Vec::new(), response: None };
        gate.score(&reading).unwrap()["sgd"]
    };
    assert!((score(&first) - score(&shipped)).abs() > 1e-6);
}

#[test]
fn what_is_no_gate_is_refused_with_the_reason() {
    let refused = |bytes: &[u8]| Gate::from_bytes(bytes, "x").unwrap_err().to_string();
    assert!(refused(b"nothing").contains("train gate"));
    let shipped = Gate::shipped().unwrap();
    let parameters = shipped.network.parameters();
    let another = Card { table: Some(1), ..shipped.card().clone() };
    let bytes = Gate::to_bytes(&another, parameters).unwrap();
    assert!(refused(&bytes).contains("another static table"));
    let later = Card { format: 99, ..shipped.card().clone() };
    assert!(refused(&Gate::to_bytes(&later, parameters).unwrap()).contains("format is 99"));
    let mut fewer = parameters.clone();
    fewer.remove("segments");
    let bytes = Gate::to_bytes(shipped.card(), &fewer).unwrap();
    assert!(refused(&bytes).contains("segments"));
    let none = Card { format: 0, ..shipped.card().clone() };
    assert!(refused(&Gate::to_bytes(&none, parameters).unwrap()).contains("format is 0"));
    let mut fewer = parameters.clone();
    fewer.remove("ngrams.sgd.idf");
    let bytes = Gate::to_bytes(shipped.card(), &fewer).unwrap();
    assert!(refused(&bytes).contains("it has no `ngrams.sgd.idf`"));
    let mut other = shipped.card().clone();
    other.ngrams.pop();
    let bytes = Gate::to_bytes(&other, parameters).unwrap();
    assert!(refused(&bytes).contains("some of its definitions have n-grams"));
    let mut other = shipped.card().clone();
    other.ngrams[1].words.pop();
    let bytes = Gate::to_bytes(&other, parameters).unwrap();
    assert!(refused(&bytes).contains("its regression of `sgd` is incomplete"));
}
