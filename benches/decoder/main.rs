//! Measures language models in this process: tokens per second of a decoder with 33 million
//! weights, and the time that keeping the beginnings of prompts saves.
//!
//! This is no criterion program, since requests go through the model's queue as those of stages do.
//! The weights are drawn at random: the amount of computation does not depend on them. `compare.py`
//! measures PyTorch on the same shape.

#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use turnstream_models::decoder::{LocalConfig, start};
use turnstream_models::metrics::DecoderMetrics;
use turnstream_ports::model::{Generate, GenerateRequest, reply};
use turnstream_schemas::Stage;

const WIDTH: usize = 512;
const LAYERS: usize = 8;
const HEADS: usize = 8;
const KEY_HEADS: usize = 4;
const WIDE: usize = 1_536;
const TOKENS: usize = 16_384;
/// Tokens of a prompt.
const PROMPT: usize = 512;
/// Tokens of an answer.
const ANSWER: usize = 64;
/// The number of rounds; each figure is their median.
const ROUNDS: usize = 5;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    println!("threads of products: {}", candle_core::utils::get_num_threads());
    for (held, name) in [(GgmlDType::Q8_0, "Q8_0"), (GgmlDType::Q4K, "Q4_K")] {
        let path = folder.path().join(format!("{name}.gguf"));
        write(&path, held);
        let config =
            LocalConfig { path, context_tokens: 4_096, cache_bytes: 0, ..LocalConfig::default() };
        for conversations in [1, 8] {
            rates(name, &config, conversations);
        }
        if held == GgmlDType::Q8_0 {
            turns(&config);
        }
    }
}

/// Prints tokens per second of prompts and of answers, for `conversations` at once.
fn rates(name: &str, config: &LocalConfig, conversations: usize) {
    let model = start("bench", config, DecoderMetrics::unread()).expect("a model");
    let prompts: Vec<String> = (0..conversations).map(|at| text(PROMPT, at)).collect();
    let ask = |max_tokens| median(|| all(&model, &prompts, max_tokens));
    // Ask once before measuring, so that weights are packed.
    all(&model, &prompts, 1);
    let (first, whole) = (ask(1), ask(1 + ANSWER));
    let prefill = (conversations * PROMPT) as f64 / first.as_secs_f64();
    let decode = (conversations * ANSWER) as f64 / (whole - first).as_secs_f64();
    println!(
        "{name}, {conversations} at once, {PROMPT} tokens each: prefill {prefill:.0}/s, \
         decode {decode:.0}/s"
    );
}

/// Prints how long ten turns of a conversation take with and without kept beginnings of prompts.
fn turns(config: &LocalConfig) {
    let conversation = |cache_bytes| {
        let config = LocalConfig { cache_bytes, ..config.clone() };
        let metrics = DecoderMetrics::unread();
        let model = start("bench", &config, metrics.clone()).expect("a model");
        all(&model, &[text(16, 99)], 1);
        let mut history = String::new();
        let started = Instant::now();
        for turn in 0..10 {
            history.push_str(&text(120, turn));
            // The facts of a turn follow the history.
            let prompt = format!("{history}{}", text(80, 100 + turn));
            all(&model, &[prompt], 16);
        }
        (started.elapsed(), metrics.prompt_tokens.get(), metrics.kept_tokens.get())
    };
    let (without, tokens, _) = conversation(0);
    let (with, _, kept) = conversation(512 << 20);
    println!(
        "ten turns: {:.2} s without, {:.2} s with what is kept, {:.2} times as fast; {kept} of \
         {tokens} prompt tokens were kept",
        without.as_secs_f64(),
        with.as_secs_f64(),
        without.as_secs_f64() / with.as_secs_f64()
    );
}

/// Asks all prompts at once, and returns the time until all are answered.
fn all(model: &Arc<Generate>, prompts: &[String], max_tokens: usize) -> Duration {
    let started = Instant::now();
    let asked: Vec<_> = prompts
        .iter()
        .map(|prompt| {
            let request = GenerateRequest {
                stage: Stage::Generation,
                system: String::new(),
                prompt: prompt.clone(),
                max_tokens: max_tokens as u32,
                temperature: 0.0,
                schema: None,
                seed: 0,
                listener: None,
                origin: None,
            };
            let (reply, asked) = reply();
            assert!(model.ask(request, reply).is_ok(), "the queue has room");
            asked
        })
        .collect();
    asked.into_iter().for_each(|asked| drop(asked.wait().expect("an answer")));
    started.elapsed()
}

fn median(mut measure: impl FnMut() -> Duration) -> Duration {
    let mut measured: Vec<Duration> = (0..ROUNDS).map(|_| measure()).collect();
    measured.sort();
    measured[ROUNDS / 2]
}

/// Returns a text of `tokens` letters, each of which is a token.
fn text(tokens: usize, seed: usize) -> String {
    let mut random = fastrand::Rng::with_seed(seed as u64);
    (0..tokens).map(|_| random.alphabetic()).collect()
}

/// Writes a decoder with random weights and a letter for each of its tokens.
fn write(path: &Path, held: GgmlDType) {
    let mut random = fastrand::Rng::with_seed(33);
    let mut tensors: Vec<(String, QTensor)> = Vec::new();
    let mut add = |name: String, shape: &[usize], held: GgmlDType| {
        let count = shape.iter().product();
        let spread = (3.0 / WIDTH as f32).sqrt();
        let is_norm = shape.len() == 1;
        let number = |_| if is_norm { 1.0 } else { (random.f32() * 2.0 - 1.0) * spread };
        let numbers: Vec<f32> = (0..count).map(number).collect();
        let tensor = Tensor::from_vec(numbers, shape, &Device::Cpu).expect("a tensor");
        tensors.push((name, QTensor::quantize(&tensor, held).expect("quantised")));
    };
    let (queries, keys) = (WIDTH, WIDTH / HEADS * KEY_HEADS);
    add("token_embd.weight".to_owned(), &[TOKENS, WIDTH], held);
    add("output_norm.weight".to_owned(), &[WIDTH], GgmlDType::F32);
    for layer in 0..LAYERS {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        add(name("attn_norm"), &[WIDTH], GgmlDType::F32);
        add(name("ffn_norm"), &[WIDTH], GgmlDType::F32);
        add(name("attn_q"), &[queries, WIDTH], held);
        add(name("attn_k"), &[keys, WIDTH], held);
        add(name("attn_v"), &[keys, WIDTH], held);
        add(name("attn_output"), &[WIDTH, queries], held);
        add(name("ffn_gate"), &[WIDE, WIDTH], held);
        add(name("ffn_up"), &[WIDE, WIDTH], held);
        add(name("ffn_down"), &[WIDTH, WIDE], held);
    }
    let weights: usize = tensors.iter().map(|(_, tensor)| tensor.shape().elem_count()).sum();
    println!("{held:?}: {:.1} million weights", weights as f64 / 1e6);
    let metadata = metadata();
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let mut file = std::fs::File::create(path).expect("a file");
    gguf_file::write(&mut file, &metadata, &tensors).expect("written");
}

fn metadata() -> HashMap<String, Value> {
    let letter = |id: usize| {
        let printable = char::from_u32(33 + id as u32).filter(|_| id < 94);
        printable.map_or_else(|| format!("token{id}"), String::from)
    };
    let text = |text: &str| Value::String(text.to_owned());
    let size = |size: usize| Value::U32(size as u32);
    let entries = [
        ("general.architecture", text("llama")),
        ("llama.embedding_length", size(WIDTH)),
        ("llama.block_count", size(LAYERS)),
        ("llama.feed_forward_length", size(WIDE)),
        ("llama.attention.head_count", size(HEADS)),
        ("llama.attention.head_count_kv", size(KEY_HEADS)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("llama.context_length", size(4_096)),
        ("llama.rope.dimension_count", size(WIDTH / HEADS)),
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("gpt-2")),
        ("tokenizer.ggml.merges", Value::Array(Vec::new())),
        (
            "tokenizer.ggml.tokens",
            Value::Array((0..TOKENS).map(|id| Value::String(letter(id))).collect()),
        ),
        ("tokenizer.ggml.eos_token_id", size(TOKENS - 1)),
        ("tokenizer.chat_template", text("{{ messages[0].content }}")),
    ];
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
