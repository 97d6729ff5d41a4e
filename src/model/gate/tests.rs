//! The shipped gate is whole, and what is no gate is refused by name.

use turnstream_formats::Need;
use turnstream_operators::gate::GateForm;
use turnstream_operators::gate::LearnedGateConfig;
use turnstream_operators::sources::SourceConfig;
use turnstream_schemas::{SourceKind, Speaker};

use super::*;

fn config(model: &str, definitions: &[&str]) -> GateConfig {
    let definitions = definitions.iter().map(|&name| name.to_owned()).collect();
    let learned = LearnedGateConfig { model: model.to_owned(), definitions };
    GateConfig { form: GateForm::Learned, learned, ..GateConfig::default() }
}

#[test]
fn the_shipped_gate_says_what_it_is_and_scores_by_each_definition() {
    let gate = Gate::shipped().unwrap();
    let card = gate.card();
    assert_eq!((gate.language(), card.shape.variant.name()), ("en", "contx"));
    assert_eq!(gate.definitions(), ["dstc11", "sgd", "topical-chat"]);
    // What may be shipped was what it learned from.
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
    // Nothing at all is scored, too.
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
    assert!((definition.score(&[0.25, 0.75]) - 0.75).abs() < 1e-6);
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
}

#[test]
fn a_configuration_that_the_gate_does_not_fit_is_refused() {
    let sources = Sources::default();
    let opened = |config: &GateConfig| configured(config, &sources);
    let none = GateConfig { form: GateForm::Lexical, ..GateConfig::default() };
    assert!(opened(&none).unwrap().is_none());
    assert!(opened(&config("shipped", &["sgd"])).unwrap().is_some());
    let refused = |config: &GateConfig| opened(config).err().unwrap().to_string();
    let message = refused(&config("shipped", &["ketod"]));
    assert!(message.contains("ketod") && message.contains("topical-chat"), "{message}");
    assert!(refused(&config("no such file", &[])).contains("no such file"));
    let later = GateConfig { after_retrieval: true, ..config("shipped", &[]) };
    assert!(refused(&later).contains("gate.after_retrieval = false"));

    let shipped = Gate::shipped().unwrap();
    let shape = network::NetworkShape {
        variant: network::Variant::ContxTimesKnow,
        ..shipped.card().shape.clone()
    };
    let card = Card { shape, ..shipped.card().clone() };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("knowing.zst");
    std::fs::write(&path, Gate::to_bytes(&card, shipped.network.parameters()).unwrap()).unwrap();
    let path = path.display().to_string();
    assert!(refused(&config(&path, &[])).contains("gate.after_retrieval = true"));
    let later = GateConfig { after_retrieval: true, ..config(&path, &[]) };
    assert!(opened(&later).unwrap().is_some());
}

#[test]
fn by_default_the_gate_is_opened_where_documents_or_tables_can_be_asked() {
    let of = |kinds: &[SourceKind]| {
        let named = |(at, kind): (usize, &SourceKind)| {
            let file = (*kind == SourceKind::Table).then(|| "rows.jsonl".into());
            (format!("s{at}"), SourceConfig { file, ..SourceConfig::of(*kind) })
        };
        Sources::new(&kinds.iter().enumerate().map(named).collect()).unwrap()
    };
    let is_there =
        |kinds: &[SourceKind]| configured(&GateConfig::default(), &of(kinds)).unwrap().is_some();
    assert!(!is_there(&[SourceKind::Graph, SourceKind::UserPersona]));
    assert!(is_there(&[SourceKind::Graph, SourceKind::Documents]));
    assert!(is_there(&[SourceKind::Table]));
}
