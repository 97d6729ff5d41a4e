//! Tests models as the program obtains and runs them. The first test that needs MiniLM pulls it, by
//! the program's own command, into a folder under `target/` where it stays.

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config as StockConfig};
use serde_json::Value;
use tokenizers::Tokenizer;
use turnstream_lab::bench;
use turnstream_models::bert::Bert;
use turnstream_ports::model::encoder::Encoder;

use crate::turnstream;

/// Returns the folder of MiniLM. Without a network the tests that need it say so and pass, except
/// in CI.
pub(crate) fn minilm() -> Option<PathBuf> {
    let pulled = turnstream(&["models", "pull", "minilm", "--json"]).output().expect("started");
    let line = String::from_utf8(pulled.stdout).expect("UTF-8");
    let pulled: Value = serde_json::from_str(&line).expect("one JSON object");
    let Some(folder) = pulled["folder"].as_str() else {
        assert!(std::env::var("CI").is_err(), "MiniLM cannot be pulled: {pulled}");
        eprintln!("SKIPPED: MiniLM cannot be pulled: {pulled}");
        return None;
    };
    Some(PathBuf::from(folder))
}

#[test]
fn minilm_computes_what_sentence_transformers_does() {
    if minilm().is_none() {
        return;
    }
    let checked = turnstream(&["models", "check", "minilm", "--json"]).output().expect("started");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let checked: Value = serde_json::from_slice(&checked.stdout).expect("one JSON object");
    assert_eq!(checked["passed"], true, "{checked}");
    assert!(checked["max_abs_diff"].as_f64().is_some_and(|most| most < 1e-5), "{checked}");
    let again = turnstream(&["models", "pull", "minilm", "--json"]).output().expect("started");
    let again: Value = serde_json::from_slice(&again.stdout).expect("one JSON object");
    assert_eq!(again["source"], "present");
    let listed = turnstream(&["models", "list", "--json"]).output().expect("started");
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("one JSON object");
    assert_eq!(listed["models"][0]["present"], true, "{listed}");
}

/// Returns the vector of one text by candle's own network: mean of the rows, length 1.
fn stock(model: &BertModel, tokenizer: &Tokenizer, text: &str) -> Vec<f32> {
    let tokens = tokenizer.encode(text, true).expect("tokens");
    let ids = Tensor::new(tokens.get_ids(), &Device::Cpu).and_then(|ids| ids.unsqueeze(0));
    let ids = ids.expect("a tensor");
    let rows = model.forward(&ids, &ids.zeros_like().expect("zeros"), None).expect("rows");
    let mean: Vec<f32> = rows.mean(1).and_then(|mean| mean.squeeze(0)?.to_vec1()).expect("a mean");
    let norm = mean.iter().map(|x| x * x).sum::<f32>().sqrt();
    mean.into_iter().map(|x| x / norm).collect()
}

#[test]
fn minilm_without_padding_is_candles_own_and_a_batch_is_its_texts() {
    let Some(folder) = minilm() else { return };
    let read = |name: &str| std::fs::read(Path::new(&folder).join(name)).expect(name);
    let config: StockConfig = serde_json::from_slice(&read("config.json")).expect("a config");
    let weights =
        VarBuilder::from_buffered_safetensors(read("model.safetensors"), DType::F32, &Device::Cpu);
    let model = BertModel::load(weights.expect("weights"), &config).expect("a model");
    let mut tokenizer = Tokenizer::from_bytes(read("tokenizer.json")).expect("a tokenizer");
    tokenizer.with_padding(None).with_truncation(None).expect("no truncation");
    let bert = Bert::open(&folder, "minilm").expect("opens");
    let texts: Vec<&str> =
        bench::FACTS.lines().take(8).chain(bench::UTTERANCES.lines().take(8)).collect();
    let mut together = Vec::new();
    let encoded = bert.encode(&texts, &mut together).expect("encodes");
    assert_eq!(encoded.cut, 0);
    for (text, vector) in texts.iter().zip(together.chunks_exact(bert.dimensions())) {
        let mut alone = Vec::new();
        bert.encode(&[text], &mut alone).expect("encodes");
        let theirs = stock(&model, &tokenizer, text);
        for ((together, alone), theirs) in vector.iter().zip(&alone).zip(&theirs) {
            assert!((together - alone).abs() < 1e-6, "{text}: {together} and {alone}");
            assert!((together - theirs).abs() < 1e-5, "{text}: {together} and {theirs}");
        }
    }
}

/// Replays one turn under a configuration.
fn replay(folder: &Path, config: &str) -> std::process::Output {
    std::fs::write(folder.join("turnstream.toml"), config).expect("a configuration");
    let turn = r#"{"conversation_id":"c","turn_id":"t","speaker":"user","text":"I drink coffee."}"#;
    std::fs::write(folder.join("log.jsonl"), format!("{turn}\n")).expect("a log");
    let [config, log, out] =
        ["turnstream.toml", "log.jsonl", "out.jsonl"].map(|name| folder.join(name));
    let path = |path: &Path| path.display().to_string();
    let (config, log, out) = (path(&config), path(&log), path(&out));
    let arguments = ["replay", &log, "--config", &config, "--out", &out, "--json"];
    turnstream(&arguments).output().expect("started")
}

#[test]
fn a_model_that_is_configured_is_started_or_named_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let elsewhere = format!("[models]\nembedder = \"minilm\"\ndirectory = {:?}\n", folder.path());
    let missing = replay(folder.path(), &elsewhere);
    assert_eq!(missing.status.code(), Some(2));
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(said.contains("turnstream models pull minilm"), "{said}");
    let unknown = replay(folder.path(), "[models]\nembedder = \"maxilm\"\n");
    assert_eq!(unknown.status.code(), Some(2));
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(said.contains("maxilm") && said.contains("none, minilm"), "{said}");
    if minilm().is_some() {
        let replayed = replay(folder.path(), "[models]\nembedder = \"minilm\"\nthreads = 1\n");
        assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    }
}
