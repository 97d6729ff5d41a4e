//! Answers by a schema: even random weights give a valid answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use turnstream_ports::model::{CallError, GenerateRequest};

use crate::metrics::DecoderMetrics;
use candle_core::quantized::GgmlDType;
use serde_json::Value;

use super::answers::{ask, begin, request};
use super::tiny;
use crate::decoder::{LocalConfig, SchemaBounds, start};

/// The stages' schemas, schemas of records, and small ones of other kinds.
const SCHEMAS: [(&str, &str); 11] = [
    ("answer-gate", include_str!("../../../../schemas/json/answer-gate.schema.json")),
    ("answer-queries", include_str!("../../../../schemas/json/answer-queries.schema.json")),
    ("answer-topics", include_str!("../../../../schemas/json/answer-topics.schema.json")),
    ("answer-revision", include_str!("../../../../schemas/json/answer-revision.schema.json")),
    ("answer-selection", include_str!("../../../../schemas/json/answer-selection.schema.json")),
    ("queries", include_str!("../../../../schemas/json/queries.schema.json")),
    ("topics", include_str!("../../../../schemas/json/topics.schema.json")),
    ("demand", include_str!("../../../../schemas/json/demand.schema.json")),
    ("evidence", include_str!("../../../../schemas/json/evidence.schema.json")),
    (
        "gate",
        r#"{"type": "object", "properties": {"retrieve": {"type": "boolean"},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1}},
            "required": ["retrieve", "confidence"]}"#,
    ),
    (
        "selection",
        r#"{"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1, "maximum": 12}}"#,
    ),
];

/// Tightens a schema so that random weights finish soon. Answers that it allows, the original
/// allows.
fn shorter(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(object) => {
            for (bound, most) in [("maxLength", 4), ("maxItems", 2)] {
                if object.get(bound).and_then(Value::as_u64).is_some_and(|allowed| allowed > most) {
                    object.insert(bound.to_owned(), most.into());
                }
            }
            object.values_mut().for_each(|value| *value = shorter(value.take()));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = shorter(value.take())),
        _ => {}
    }
    schema
}

#[test]
fn a_model_that_knows_nothing_gives_valid_answers() {
    let (_folder, config) = tiny::gguf("smallest", GgmlDType::Q8_0);
    let config = LocalConfig {
        schema_bounds: SchemaBounds { text_characters: 4, items: 1, numbers: 1_000 },
        max_sequences: 32,
        ..config
    };
    let model = start("tiny", &config, DecoderMetrics::unread()).unwrap();
    for (name, schema) in SCHEMAS {
        let parsed: Value = serde_json::from_str(schema).unwrap();
        let validator = jsonschema::validator_for(&parsed).unwrap();
        let schema: Arc<str> = shorter(parsed.clone()).to_string().into();
        let asked = (0..100).map(|seed| {
            let warm = GenerateRequest {
                system: String::new(),
                schema: Some(Arc::clone(&schema)),
                max_tokens: 900,
                temperature: 1.0,
                seed,
                ..request("?")
            };
            begin(&*model, warm)
        });
        let asked: Vec<_> = asked.collect();
        let mut different = BTreeSet::new();
        for (seed, asked) in asked.into_iter().enumerate() {
            let answer = asked.wait().unwrap_or_else(|e| panic!("{name}, {seed}: {e}"));
            let value: Value = serde_json::from_str(&answer.text)
                .unwrap_or_else(|e| panic!("{name}, {seed}: {e}: {}", answer.text));
            let error = validator.validate(&value).err();
            assert!(error.is_none(), "{name}, {seed}: {error:?}: {value}");
            different.insert(answer.text);
        }
        // The gate's answer is yes or no.
        let least = if name == "answer-gate" { 2 } else { 6 };
        assert!(different.len() >= least, "{name}: {different:?}");
    }
}

#[test]
fn an_incomplete_answer_and_an_invalid_schema_are_errors() {
    let (_folder, config) = tiny::gguf("wide", GgmlDType::Q8_0);
    let model = start("tiny", &config, DecoderMetrics::unread()).unwrap();
    let by = |schema: &str, max_tokens| {
        let asked = GenerateRequest {
            schema: Some(schema.into()),
            max_tokens,
            ..request("What do you say?")
        };
        ask(&*model, asked)
    };
    let said = |result: Result<_, CallError>| result.err().map(|error| error.to_string());
    let cut = said(by(SCHEMAS[1].1, 5)).unwrap();
    assert!(cut.contains('5') && cut.contains("not yet complete"), "{cut}");
    assert!(said(by("{", 5)).unwrap().contains("schema"));
    assert!(said(by("[]", 5)).unwrap().contains("schema"));
    assert!(said(by(r#"{"type": "string", "maxLength": -1}"#, 5)).unwrap().contains("schema"));
}
