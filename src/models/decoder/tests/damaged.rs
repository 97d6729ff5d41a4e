//! Unusable files: the error names the file and the problem, and nothing panics.

use std::fs;

use crate::metrics::DecoderMetrics;
use candle_core::quantized::GgmlDType;
use serde_json::{Value, json};

use super::tiny;
use crate::decoder::{LocalConfig, start};

fn error(config: &LocalConfig) -> String {
    match start("tiny", config, DecoderMetrics::unread()) {
        Ok(_) => panic!("{config:?} is refused"),
        Err(error) => error.to_string(),
    }
}

/// The error for a folder whose `config.json` has another value for a key.
fn with(name: &str, key: &str, value: Value) -> String {
    let (folder, config) = tiny::folder(name);
    let mut given = tiny::config(name);
    given[key] = value;
    fs::write(folder.path().join("config.json"), given.to_string()).unwrap();
    error(&config)
}

#[test]
fn what_a_configuration_says_that_is_not_known_is_refused_by_name() {
    for (name, key, value, said) in [
        ("llama", "model_type", json!("mamba"), "\"mamba\""),
        ("llama", "hidden_act", json!("relu"), "\"relu\""),
        ("llama", "rope_scaling", json!({ "rope_type": "yarn", "factor": 4.0 }), "\"yarn\""),
        ("llama", "rope_scaling", json!({ "rope_type": "llama3" }), "factor"),
        ("llama", "num_attention_heads", json!(3), "multiple"),
        ("llama", "hidden_size", json!(0), "0"),
        ("llama", "intermediate_size", json!(97), "blk.0.ffn_"),
        ("llama", "num_hidden_layers", json!(3), "blk.2."),
        ("llama", "num_hidden_layers", json!(1), "not known for this architecture"),
        ("qwen3", "model_type", json!("llama"), "blk.0.attn_"),
        ("llama", "mlp_bias", json!(true), "mlp_bias"),
    ] {
        let error = with(name, key, value);
        assert!(error.contains(said), "{key}: {error}");
    }
}

#[test]
fn files_that_are_missing_or_cut_are_named() {
    let missing = LocalConfig { path: tiny::nowhere(), ..LocalConfig::default() };
    assert!(error(&missing).contains("such.gguf"));

    let (folder, config) = tiny::folder("llama");
    for file in ["tokenizer.json", "model.safetensors", "config.json"] {
        let path = folder.path().join(file);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert!(error(&config).contains(file), "{file}: {}", error(&config));
        fs::remove_file(&path).unwrap();
        assert!(error(&config).contains(file), "{file}: {}", error(&config));
        fs::write(&path, whole).unwrap();
    }
    assert!(start("tiny", &config, DecoderMetrics::unread()).is_ok());

    let (_folder, config) = tiny::gguf("llama", GgmlDType::Q8_0);
    let whole = fs::read(&config.path).unwrap();
    for length in [0, 3, 40, 5_000, whole.len() / 2, whole.len() - 1] {
        fs::write(&config.path, &whole[..length]).unwrap();
        assert!(error(&config).contains("tiny.gguf"), "{length}");
    }
}

#[test]
fn an_adapter_over_a_gguf_file_is_to_be_merged_first() {
    let (_folder, config) = tiny::gguf("llama", GgmlDType::F32);
    let error = error(&LocalConfig { adapter: Some(tiny::nowhere()), ..config });
    assert!(error.contains("merge it before the model is converted to GGUF"), "{error}");
}

#[test]
fn a_configuration_out_of_range_is_refused_by_its_key() {
    let usual = LocalConfig { path: tiny::nowhere(), ..LocalConfig::default() };
    assert_eq!(usual.check(), Ok(()));
    assert_eq!(LocalConfig::default().check().unwrap_err().key, "path");
    type Change = fn(&mut LocalConfig);
    let wrong: [(&str, Change); 6] = [
        ("context_tokens", |config| config.context_tokens = 15),
        ("max_sequences", |config| config.max_sequences = 0),
        ("step_tokens", |config| config.step_tokens = 15),
        ("queue_requests", |config| config.queue_requests = 0),
        ("stop", |config| config.stop.push(String::new())),
        ("schema_bounds", |config| config.schema_bounds.items = 0),
    ];
    for (key, wrong) in wrong {
        let mut config = usual.clone();
        wrong(&mut config);
        assert_eq!(config.check().unwrap_err().key, key);
    }
}
