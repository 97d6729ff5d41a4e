use turnstream_models::gate::card::Card;
use turnstream_models::gate::network::{NetworkShape, Variant};
use turnstream_operators::gate::GateForm;
use turnstream_operators::sources::SourceConfig;
use turnstream_schemas::SourceKind;

use super::*;

fn config(model: &str, definitions: &[&str]) -> GateConfig {
    let definitions = definitions.iter().map(|&name| name.to_owned()).collect();
    let learned = LearnedGateConfig { model: model.to_owned(), definitions };
    GateConfig { form: GateForm::Learned, learned, ..GateConfig::default() }
}

#[test]
fn a_configuration_that_the_gate_does_not_fit_is_refused() {
    let sources = Sources::default();
    let opened = |config: &GateConfig| gate(config, &sources);
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
    let shape = NetworkShape { variant: Variant::ContxTimesKnow, ..shipped.card().shape.clone() };
    let card = Card { shape, ..shipped.card().clone() };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("knowing.zst");
    std::fs::write(&path, Gate::to_bytes(&card, shipped.parameters()).unwrap()).unwrap();
    let path = path.display().to_string();
    assert!(refused(&config(&path, &[])).contains("gate.after_retrieval = true"));
    let later = GateConfig { after_retrieval: true, ..config(&path, &[]) };
    assert!(opened(&later).unwrap().is_some());
}

#[test]
fn by_source_the_gate_is_opened_where_documents_or_tables_can_be_asked() {
    let of = |kinds: &[SourceKind]| {
        let named = |(at, kind): (usize, &SourceKind)| {
            let file = (*kind == SourceKind::Table).then(|| "rows.jsonl".into());
            (format!("s{at}"), SourceConfig { file, ..SourceConfig::of(*kind) })
        };
        Sources::new(&kinds.iter().enumerate().map(named).collect()).unwrap()
    };
    let by_source = GateConfig { form: GateForm::BySource, ..GateConfig::default() };
    let is_there = |kinds: &[SourceKind]| gate(&by_source, &of(kinds)).unwrap().is_some();
    assert!(!is_there(&[SourceKind::Graph, SourceKind::UserPersona]));
    assert!(is_there(&[SourceKind::Graph, SourceKind::Documents]));
    assert!(is_there(&[SourceKind::Table]));
}

#[test]
fn weights_are_for_the_vectors_of_one_encoder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let matrix = Matrix::new(2, vec![1.0, 2.0, 3.0, 4.0]).unwrap();
    let card = attention::AttentionCard {
        format_version: attention::FORMAT_VERSION,
        encoder: "water".to_owned(),
        fingerprint: format!("{:016x}", 7),
        words: 2.0,
        words_alone: 5.0,
        trained_on: Vec::new(),
        questions: 3,
        licences: Vec::new(),
    };
    std::fs::write(&path, attention::to_bytes(&card, &matrix).unwrap()).unwrap();
    let found = Attention::trained(2.0, 5.0, matrix);

    let weights = Some(path);
    let config =
        IntegrationConfig { form: IntegrationForm::Learned, weights, ..Default::default() };
    let of = |encoder: Option<(String, u64)>| attention(&config, encoder.as_ref());
    assert_eq!(*of(Some(("water".to_owned(), 7))).unwrap().unwrap(), found);
    for other in [None, Some(("water".to_owned(), 8)), Some(("fire".to_owned(), 7))] {
        let message = of(other).unwrap_err().to_string();
        assert!(message.contains("water/0000000000000007"), "{message}");
    }
    let lexical = IntegrationConfig { form: IntegrationForm::Lexical, ..config.clone() };
    assert!(attention(&lexical, None).unwrap().is_none());
}
