use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config as StockConfig};
use serde_json::json;
use tempfile::TempDir;

use super::*;

const WORDS: [&str; 12] =
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "dog", "sees", "a", "red", "ball", "today"];
const WIDTH: usize = 48;
const WIDE: usize = 80;
const LAYERS: usize = 2;
const POSITIONS: usize = 12;

fn config() -> serde_json::Value {
    json!({
        "model_type": "bert", "vocab_size": WORDS.len(), "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS, "num_attention_heads": 4, "intermediate_size": WIDE,
        "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2, "initializer_range": 0.02, "layer_norm_eps": 1e-12,
        "pad_token_id": 0, "position_embedding_type": "absolute",
    })
}

/// A tokenizer of whole words. Like real models' files, it was saved with its own truncation and
/// padding.
fn tokenizer() -> serde_json::Value {
    let vocabulary: HashMap<&str, usize> =
        WORDS.iter().enumerate().map(|(id, word)| (*word, id)).collect();
    let special = |word: &str, id: usize| {
        json!({ "id": id, "content": word, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true })
    };
    json!({
        "version": "1.0",
        "truncation": { "direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0 },
        "padding": { "strategy": { "Fixed": 9 }, "direction": "Right", "pad_to_multiple_of": null,
                     "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]" },
        "added_tokens": [special("[PAD]", 0), special("[UNK]", 1), special("[CLS]", 2), special("[SEP]", 3)],
        "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": { "type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2] },
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]" },
    })
}

/// Pseudo-random weights by the names of a checkpoint.
fn weights() -> HashMap<String, Tensor> {
    let mut random = fastrand::Rng::with_seed(11);
    let mut tensors = HashMap::new();
    let mut add = |name: String, shape: &[usize], centre: f32| {
        let count = shape.iter().product();
        let numbers: Vec<f32> = (0..count).map(|_| centre + random.f32() - 0.5).collect();
        tensors.insert(name, Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap());
    };
    add("embeddings.word_embeddings.weight".into(), &[WORDS.len(), WIDTH], 0.0);
    add("embeddings.position_embeddings.weight".into(), &[POSITIONS, WIDTH], 0.0);
    add("embeddings.token_type_embeddings.weight".into(), &[2, WIDTH], 0.0);
    let mut pair = |name: String, weight: &[usize], centre: f32| {
        add(format!("{name}.weight"), weight, centre);
        add(format!("{name}.bias"), &weight[..1], 0.0);
    };
    pair("embeddings.LayerNorm".into(), &[WIDTH], 1.0);
    for layer in 0..LAYERS {
        let at = format!("encoder.layer.{layer}");
        for of in ["query", "key", "value"] {
            pair(format!("{at}.attention.self.{of}"), &[WIDTH, WIDTH], 0.0);
        }
        pair(format!("{at}.attention.output.dense"), &[WIDTH, WIDTH], 0.0);
        pair(format!("{at}.attention.output.LayerNorm"), &[WIDTH], 1.0);
        pair(format!("{at}.intermediate.dense"), &[WIDE, WIDTH], 0.0);
        pair(format!("{at}.output.dense"), &[WIDTH, WIDE], 0.0);
        pair(format!("{at}.output.LayerNorm"), &[WIDTH], 1.0);
    }
    tensors
}

fn write(folder: &Path, name: &str, value: &serde_json::Value) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, value.to_string()).unwrap();
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "config.json", &config());
    write(folder.path(), "tokenizer.json", &tokenizer());
    candle_core::safetensors::save(&weights(), folder.path().join(WEIGHTS)).unwrap();
    folder
}

fn set_pooling(folder: &Path, pooling: &serde_json::Value) {
    let module = |at: usize, path: &str, kind: &str| json!({ "idx": at, "name": at, "path": path, "type": kind });
    let modules = json!([
        module(0, "", "sentence_transformers.models.Transformer"),
        module(1, "1_Pooling", "sentence_transformers.models.Pooling"),
        module(2, "2_Normalize", "sentence_transformers.models.Normalize"),
    ]);
    write(folder, "modules.json", &modules);
    write(folder, "1_Pooling/config.json", pooling);
}

fn encode(bert: &Bert, texts: &[&str]) -> (Vec<Vec<f32>>, Encoded) {
    let mut vectors = Vec::new();
    let encoded = bert.encode(texts, &mut vectors).unwrap();
    (vectors.chunks_exact(WIDTH).map(<[f32]>::to_vec).collect(), encoded)
}

/// The last layer's rows of candle's own BERT, for one sequence.
fn stock(words: &[&str]) -> Vec<Vec<f32>> {
    let config: StockConfig = serde_json::from_value(config()).unwrap();
    let weights = VarBuilder::from_tensors(weights(), DType::F32, &Device::Cpu);
    let model = BertModel::load(weights, &config).unwrap();
    let id = |word: &&str| WORDS.iter().position(|it| it == word).unwrap() as u32;
    let ids: Vec<u32> = words.iter().map(id).collect();
    let ids = Tensor::new(&ids[..], &Device::Cpu).unwrap().unsqueeze(0).unwrap();
    let rows = model.forward(&ids, &ids.zeros_like().unwrap(), None).unwrap();
    rows.squeeze(0).unwrap().to_vec2().unwrap()
}

fn unit(sums: Vec<f32>) -> Vec<f32> {
    let norm = sums.iter().map(|x| x * x).sum::<f32>().sqrt();
    sums.into_iter().map(|x| x / norm).collect()
}

fn assert_near(ours: &[f32], theirs: &[f32]) {
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert!((ours - theirs).abs() < 1e-5, "{ours} and {theirs}");
    }
}

#[test]
fn a_batch_without_padding_gives_what_candle_gives_for_each_text() {
    let folder = folder();
    let bert = Bert::open(folder.path(), "tiny").unwrap();
    let (vectors, encoded) =
        encode(&bert, &["the cat sees a red ball", "dog", "a dog sees the cat today"]);
    let sequences: [&[&str]; 3] = [
        &["[CLS]", "the", "cat", "sees", "a", "red", "ball", "[SEP]"],
        &["[CLS]", "dog", "[SEP]"],
        &["[CLS]", "a", "dog", "sees", "the", "cat", "today", "[SEP]"],
    ];
    for (vector, words) in vectors.iter().zip(sequences) {
        let rows = stock(words);
        let mean = (0..WIDTH).map(|at| rows.iter().map(|row| row[at]).sum()).collect();
        assert_near(vector, &unit(mean));
    }
    assert_eq!((vectors.len(), encoded), (3, Encoded { tokens: 19, cut: 0 }));
    set_pooling(folder.path(), &json!({ "pooling_mode_cls_token": true }));
    let first = Bert::open(folder.path(), "tiny").unwrap();
    let (vectors, _) = encode(&first, &["the cat sees a red ball"]);
    assert_near(&vectors[0], &unit(stock(sequences[0])[0].clone()));
    assert_ne!(first.fingerprint(), bert.fingerprint());
}

#[test]
fn a_text_is_cut_at_the_models_bound_and_counted() {
    let folder = folder();
    write(folder.path(), "sentence_bert_config.json", &json!({ "max_seq_length": 6 }));
    let bert = Bert::open(folder.path(), "tiny").unwrap();
    let endless = "cat ".repeat(100_000);
    let (vectors, encoded) = encode(&bert, &["cat cat cat cat", &endless, "cat cat cat cat cat"]);
    assert_eq!(encoded, Encoded { tokens: 18, cut: 2 });
    assert_near(&vectors[0], &vectors[1]);
    assert_near(&vectors[0], &vectors[2]);
}

#[test]
fn texts_over_several_passes_give_what_each_gives_alone() {
    let folder = folder();
    let bert = Bert::open(folder.path(), "tiny").unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let text = |_| {
        let words = (0..random.usize(0..12)).map(|_| WORDS[random.usize(4..WORDS.len())]);
        words.collect::<Vec<_>>().join(" ")
    };
    let texts: Vec<String> = (0..200).map(text).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (together, encoded) = encode(&bert, &texts);
    assert!(encoded.tokens > 2 * TOKENS_AT_ONCE as u64, "{encoded:?}");
    for (text, vector) in texts.iter().zip(&together) {
        assert_near(vector, &encode(&bert, &[text]).0[0]);
    }
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let refused = |change: &dyn Fn(&Path)| {
        let folder = folder();
        change(folder.path());
        Bert::open(folder.path(), "tiny").err().expect("refused").to_string()
    };
    let with = |key: &str, value: serde_json::Value| {
        let mut config = config();
        config[key] = value;
        refused(&move |folder| write(folder, "config.json", &config))
    };
    assert!(with("model_type", json!("gpt2")).contains("gpt2"));
    assert!(with("hidden_act", json!("relu")).contains("relu"));
    assert!(with("num_attention_heads", json!(5)).contains("num_attention_heads 5"));
    assert!(with("intermediate_size", json!(81)).contains("intermediate.dense.weight"));
    assert!(with("num_hidden_layers", json!(3)).contains("encoder.layer.2"));
    let pooling = json!({ "pooling_mode_max_tokens": true });
    assert!(refused(&|folder| set_pooling(folder, &pooling)).contains("max"));
    let remove = |folder: &Path| std::fs::remove_file(folder.join(WEIGHTS)).unwrap();
    assert!(refused(&remove).contains("model.safetensors"));
}
