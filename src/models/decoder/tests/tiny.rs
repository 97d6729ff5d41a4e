//! Tiny decoders whose weights follow from their names, as files of both kinds, with the outputs of
//! transformers for them; see `fixtures/reference.py`.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{self, Value as Entry};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::decoder::LocalConfig;
use crate::decoder::adapter::LowRankAdapter;
use crate::decoder::shape::Family;
use crate::decoder::weights::gguf_name;

/// The families, by the names of their configurations.
pub(crate) const ALL: [&str; 11] = [
    "llama", "llama3", "smallest", "wide", "mistral", "qwen2", "qwen3", "gemma", "gemma2",
    "gemma3", "phi3",
];

/// The outputs of transformers for all tiny decoders.
#[derive(Deserialize)]
pub(crate) struct DecoderReference {
    pub(crate) tokens: Vec<u32>,
    /// Numbers of tokens after which logits were taken.
    pub(crate) lengths: Vec<usize>,
    /// The tokens whose logits are listed.
    pub(crate) shown: Vec<usize>,
    #[serde(flatten)]
    pub(crate) of: BTreeMap<String, Figure>,
}

/// The outputs for one tiny decoder.
#[derive(Deserialize)]
pub(crate) struct Figure {
    tensors: BTreeMap<String, Vec<usize>>,
    /// A row for each length.
    pub(crate) logits: Vec<Vec<f32>>,
}

impl DecoderReference {
    pub(crate) fn read() -> Self {
        serde_json::from_str(include_str!("../fixtures/figures.json")).unwrap()
    }
}

/// The `config.json` of a tiny decoder.
pub(crate) fn config(name: &str) -> Value {
    let configs: Value = serde_json::from_str(include_str!("../fixtures/configs.json")).unwrap();
    configs[name].clone()
}

/// Numbers from -1 to 1: splitmix64 from the FNV-1a hash of the name.
fn uniform(name: &str, count: usize) -> Vec<f32> {
    let seed = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |seed, byte| {
        (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let number = |at: u64| {
        let z = seed.wrapping_add(at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (1..=count as u64).map(number).collect()
}

/// The weights that follow from a name.
pub(crate) fn weights(name: &str, shape: &[usize], is_gemma: bool) -> Tensor {
    let numbers = uniform(name, shape.iter().product());
    let (spread, centre) = match shape {
        [_, _] if name.contains("embed") => (1.0, 0.0),
        [_, columns] => ((3.0 / *columns as f64).sqrt() as f32, 0.0),
        _ if name.ends_with("bias") || is_gemma => (0.25, 0.0),
        _ => (0.25, 1.0),
    };
    let numbers: Vec<f32> = numbers.iter().map(|x| x * spread + centre).collect();
    Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap()
}

fn tensors(name: &str) -> HashMap<String, Tensor> {
    let is_gemma = name.starts_with("gemma");
    let figures = DecoderReference::read();
    let shapes = figures.of[name].tensors.iter();
    shapes.map(|(name, shape)| (name.clone(), weights(name, shape, is_gemma))).collect()
}

/// Writes a folder in the layout of transformers, and its configuration.
pub(crate) fn folder(name: &str) -> (TempDir, LocalConfig) {
    let folder = tempfile::tempdir().unwrap();
    let at = |file: &str| folder.path().join(file);
    candle_core::safetensors::save(&tensors(name), at("model.safetensors")).unwrap();
    std::fs::write(at("config.json"), config(name).to_string()).unwrap();
    std::fs::write(at("tokenizer.json"), tokenizer().to_string()).unwrap();
    let config = LocalConfig { path: folder.path().to_owned(), ..LocalConfig::default() };
    (folder, config)
}

/// A byte-level tokenizer of 256 bytes, some pairs of letters and control tokens: a few tokens
/// fewer than the tiny decoders have.
pub(crate) fn tokenizer() -> Value {
    let control = ["<s>", "<unused>", "</s>", "<|im_start|>", "<|im_end|>", "<think>"];
    let pairs = ["t h", "i n", "e r", "a n", "o n", "th e", "Ġ the", "Ġ a", "in g", "\" :"];
    let letters = letters();
    let merged = pairs.map(|pair| pair.replace(' ', ""));
    let all = control.iter().map(|token| (*token).to_owned()).chain(letters).chain(merged);
    let vocabulary: HashMap<String, usize> =
        all.enumerate().map(|(id, token)| (token, id)).collect();
    let added = control.iter().enumerate().map(|(id, content)| {
        json!({
            "id": id, "content": content, "special": *content != "<think>", "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false,
        })
    });
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    json!({
        "version": "1.0", "added_tokens": added.collect::<Vec<_>>(), "normalizer": null,
        "pre_tokenizer": bytes, "post_processor": null, "decoder": bytes,
        "model": { "type": "BPE", "vocab": vocabulary, "merges": pairs },
    })
}

/// The letters that stand for bytes, in byte order (GPT-2's).
fn letters() -> Vec<String> {
    let mut next = 256;
    let letter = |byte: u32| {
        let stands = matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        let after = next + 1;
        let letter = if stands { byte } else { std::mem::replace(&mut next, after) };
        char::from_u32(letter).unwrap().to_string()
    };
    (0..256).map(letter).collect()
}

/// The chat template of ChatML.
pub(crate) const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content | trim }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}\
    <|im_start|>assistant\n{% endif %}";

/// Writes a GGUF file of the same decoder, with all matrices in the form `held` and the tokenizer
/// inside.
pub(crate) fn gguf(name: &str, held: GgmlDType) -> (TempDir, LocalConfig) {
    gguf_of(&tensors(name), &config(name), &tokenizer(), held)
}

/// Writes a GGUF file of the model in a folder, with an adapter merged into its weights, as f32 and
/// with the tokenizer inside.
pub(crate) fn merged_gguf(model: &Path, adapter: &Path) -> (TempDir, LocalConfig) {
    let read = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(model.join(name)).unwrap()).unwrap()
    };
    let file = model.join("model.safetensors");
    let mut tensors = candle_core::safetensors::load(file, &Device::Cpu).unwrap();
    let mut adapter = LowRankAdapter::read(adapter).unwrap();
    for (name, tensor) in &mut tensors {
        *tensor = adapter.apply(name, tensor.clone()).unwrap();
    }
    adapter.finish().unwrap();
    gguf_of(&tensors, &read("config.json"), &read("tokenizer.json"), GgmlDType::F32)
}

/// Writes tensors under transformers' names, and what its JSON files say, as a GGUF file.
fn gguf_of(
    tensors: &HashMap<String, Tensor>,
    config: &Value,
    tokenizer: &Value,
    held: GgmlDType,
) -> (TempDir, LocalConfig) {
    let family = Family::of_config(config["model_type"].as_str().unwrap()).unwrap();
    let held = |name: &str, tensor: &Tensor| {
        let kind = if tensor.dims().len() == 2 { held } else { GgmlDType::F32 };
        let tensor = as_in_gguf(name, tensor, family, config);
        (gguf_name(name, family).unwrap(), QTensor::quantize(&tensor, kind).unwrap())
    };
    let mut tensors: Vec<(String, QTensor)> =
        tensors.iter().map(|(name, tensor)| held(name, tensor)).collect();
    if config["rope_parameters"]["rope_type"] == "llama3" {
        tensors.push(("rope_freqs.weight".to_owned(), llama3_factors()));
    }
    let mut metadata = metadata(config, family);
    metadata.extend(tokenizer_entries(tokenizer));
    let metadata: Vec<(&str, &Entry)> = metadata.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    gguf_file::write(&mut File::create(&path).unwrap(), &metadata, &tensors).unwrap();
    let config = LocalConfig { path, ..LocalConfig::default() };
    (folder, config)
}

/// Converts a tensor as llama.cpp does: the rows of a Llama's query and key heads change from
/// halves to neighbours, and Gemma's norms become factors.
fn as_in_gguf(name: &str, tensor: &Tensor, family: Family, config: &Value) -> Tensor {
    if family.is_gemma() && name.ends_with("norm.weight") {
        return (tensor + 1.0).unwrap();
    }
    let size = |key: &str| config[key].as_u64().unwrap() as usize;
    let heads = match name {
        _ if family != Family::Llama => return tensor.clone(),
        _ if name.contains("q_proj") => size("num_attention_heads"),
        _ if name.contains("k_proj") => size("num_key_value_heads"),
        _ => return tensor.clone(),
    };
    let rows = tensor.dims()[0];
    let rest: usize = tensor.dims()[1..].iter().product();
    let split = tensor.reshape((heads, 2, rows / heads / 2, rest)).unwrap();
    split.transpose(1, 2).unwrap().contiguous().unwrap().reshape(tensor.dims()).unwrap()
}

/// The factors that llama.cpp's converter writes for the scaling of the tiny Llama 3.
fn llama3_factors() -> QTensor {
    let factor = |pair: i32| {
        let wavelength = std::f64::consts::TAU * 500_000_f64.powf(f64::from(pair) / 8.0);
        let (low, high) = (64.0 / 1.0, 64.0 / 4.0);
        if wavelength < high {
            1.0
        } else if wavelength > low {
            8.0
        } else {
            let smooth = (64.0 / wavelength - 1.0) / (4.0 - 1.0);
            1.0 / ((1.0 - smooth) / 8.0 + smooth)
        }
    };
    let factors: Vec<f32> = (0..8).map(|pair| factor(pair) as f32).collect();
    let factors = Tensor::from_vec(factors, 8, &Device::Cpu).unwrap();
    QTensor::quantize(&factors, GgmlDType::F32).unwrap()
}

fn metadata(config: &Value, family: Family) -> Vec<(String, Entry)> {
    let architecture = match config["model_type"].as_str().unwrap() {
        "mistral" => "llama",
        "gemma3_text" => "gemma3",
        other => other,
    };
    let key = |key: &str| format!("{architecture}.{key}");
    let mut entries = vec![("general.architecture".to_owned(), text(architecture))];
    for (ours, theirs) in [
        ("embedding_length", "hidden_size"),
        ("block_count", "num_hidden_layers"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("context_length", "max_position_embeddings"),
        ("attention.key_length", "head_dim"),
        ("attention.sliding_window", "sliding_window"),
    ] {
        let unused = family == Family::Qwen2 && theirs == "sliding_window";
        if let Some(size) = config[theirs].as_u64().filter(|_| !unused) {
            entries.push((key(ours), Entry::U32(size as u32)));
        }
    }
    let theta = config["rope_parameters"]["rope_theta"].as_f64();
    for (ours, number) in [
        ("attention.layer_norm_rms_epsilon", config["rms_norm_eps"].as_f64()),
        ("rope.freq_base", theta.or(config["rope_theta"].as_f64())),
        ("rope.local.freq_base", config["rope_local_base_freq"].as_f64()),
        ("attn_logit_softcapping", config["attn_logit_softcapping"].as_f64()),
        ("final_logit_softcapping", config["final_logit_softcapping"].as_f64()),
    ] {
        entries.extend(number.map(|number| (key(ours), Entry::F32(number as f32))));
    }
    if let Some(share) = config["partial_rotary_factor"].as_f64() {
        let columns = (16.0 * share) as u32;
        entries.push((key("rope.dimension_count"), Entry::U32(columns)));
    }
    if family == Family::Gemma3 {
        entries.push((key("rope.scaling.type"), text("linear")));
        entries.push((key("rope.scaling.factor"), Entry::F32(8.0)));
    }
    entries
}

/// A byte-level tokenizer with the tokens `<s>` and `</s>` as GGUF entries.
fn tokenizer_entries(json: &Value) -> Vec<(String, Entry)> {
    let vocabulary = json["model"]["vocab"].as_object().unwrap();
    let mut tokens: Vec<(&String, u64)> =
        vocabulary.iter().map(|(token, id)| (token, id.as_u64().unwrap())).collect();
    tokens.sort_by_key(|(_, id)| *id);
    let added = json["added_tokens"].as_array().unwrap();
    let kind = |id: u64| {
        let added = added.iter().find(|token| token["id"] == id);
        Entry::I32(match added.map(|token| token["special"].as_bool().unwrap()) {
            Some(true) => 3,
            Some(false) => 4,
            None => 1,
        })
    };
    let types = tokens.iter().map(|(_, id)| kind(*id));
    // Old files have a text with a space, new ones a pair.
    let merge = |merge: &Value| match (merge[0].as_str(), merge[1].as_str()) {
        (Some(left), Some(right)) => Entry::String(format!("{left} {right}")),
        _ => text(merge.as_str().unwrap()),
    };
    let merges = json["model"]["merges"].as_array().unwrap().iter().map(merge);
    let id = |token: &str| Entry::U32(vocabulary[token].as_u64().unwrap() as u32);
    let key = |key: &str| format!("tokenizer.{key}");
    vec![
        (key("ggml.model"), text("gpt2")),
        (key("ggml.pre"), text("gpt-2")),
        (key("ggml.tokens"), Entry::Array(tokens.iter().map(|(token, _)| text(token)).collect())),
        (key("ggml.token_type"), Entry::Array(types.collect())),
        (key("ggml.merges"), Entry::Array(merges.collect())),
        (key("ggml.bos_token_id"), id("<s>")),
        (key("ggml.eos_token_id"), id("</s>")),
        (key("ggml.add_bos_token"), Entry::Bool(!json["post_processor"].is_null())),
        (key("chat_template"), text(CHATML)),
    ]
}

fn text(text: &str) -> Entry {
    Entry::String(text.to_owned())
}

/// A path that does not exist.
pub(crate) fn nowhere() -> PathBuf {
    PathBuf::from("there/is/no/such.gguf")
}
