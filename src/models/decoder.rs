//! Language models in this process: decoder-only transformers of the Llama, Qwen2, Qwen3, Gemma and
//! Phi-3 families, behind the port that all stages use.
//!
//! The model's own chat `template` turns a request into a prompt, and its `vocabulary` turns the
//! prompt into tokens. The `engine` runs the tokens of several requests through one `network`
//! together and keeps the common beginnings of prompts (`prefixes`). `sampling` chooses the next
//! token among those that a schema's `constraint` allows.
//!
//! The network is our own, on candle's kernels for quantised products: candle's decoders neither
//! batch prompts of different lengths nor cut their caches.

use std::path::PathBuf;
use std::sync::Arc;

use turnstream_ports::model::Generate;
use turnstream_schemas::ConfidenceKind;

use crate::metrics::DecoderMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ModelError;

mod adapter;
pub(super) mod cache;
mod constraint;
mod device;
mod engine;
pub(super) mod files;
mod ggml_tokenizer;
mod kernels;
pub(super) mod network;
pub(super) mod prefixes;
mod products;
mod rope;
mod sampling;
mod sequence;
mod shape;
mod template;
mod text;
pub(super) mod vocabulary;
mod weights;

#[cfg(test)]
pub(super) mod tests;

pub use constraint::SchemaBounds;
pub use device::ProductsOn;
pub use sampling::SamplingConfig;
pub use weights::Quantize;

/// The most bytes that an average token of a prompt can have. Longer prompts are refused before
/// they are tokenised.
const CHARS_PER_TOKEN: usize = 64;

/// A language model in this process. The threads that its products share with all other models
/// are as many as the machine has cores, or as `CANDLE_NUM_THREADS` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LocalConfig {
    /// A GGUF file, or a folder in the layout of transformers: `config.json`, `tokenizer.json` and
    /// `model.safetensors`, in parts or whole. A `tokenizer.json`, `tokenizer_config.json` and
    /// `generation_config.json` beside a GGUF file are read as well.
    pub path: PathBuf,
    /// A folder with a LoRA adapter as peft saves it (`adapter_config.json`,
    /// `adapter_model.safetensors`), which is added to the weights when they are loaded; only over
    /// safetensors.
    pub adapter: Option<PathBuf>,
    /// How weights in safetensors are held: `"none"` as f32, which is exact and slow, or `"q8_0"`.
    /// Those of a GGUF file stay as they are.
    pub quantize: Quantize,
    /// The device that computes the products with the weights: `"cpu"`, or `"cuda"` for an NVIDIA
    /// GPU, which then holds the weights. `"cuda"` needs a program built with `--features cuda`.
    pub products_on: ProductsOn,
    /// Most tokens of a prompt and its answer, from 16; if the model was trained for fewer, those.
    /// A request that may need more is refused.
    #[schemars(range(min = 16))]
    pub context_tokens: usize,
    /// Requests that are worked on at once, from 1. Each holds keys and values of up to
    /// `context_tokens` tokens.
    #[schemars(range(min = 1))]
    pub max_sequences: usize,
    /// Most tokens of one step of all requests, at least twice `max_sequences`: it bounds how much
    /// of their prompts a step reads.
    #[schemars(range(min = 2))]
    pub step_tokens: usize,
    /// Requests that may wait, from 1. A stage that finds the queue full holds its turn and asks
    /// again.
    #[schemars(range(min = 1))]
    pub queue_requests: usize,
    /// Bytes of keys and values that are kept for prompts that begin alike; the least recently used
    /// are dropped. 0 keeps none.
    pub cache_bytes: usize,
    /// How tokens are drawn if a stage's temperature is above 0.
    pub sampling: SamplingConfig,
    /// Texts that end an answer and are not part of it, if no schema is asked for.
    pub stop: Vec<String>,
    /// Bounds of an answer by a JSON Schema where the schema has none.
    pub schema_bounds: SchemaBounds,
    /// Whether a model that can think before it answers does so, if its template leaves the choice.
    pub thinking: bool,
    /// The measure of the model's confidence: `"lowest_logit"` or `"lowest_log_probability"` of the
    /// tokens that it chose.
    pub confidence: Surest,
    /// A file with a Jinja chat template, instead of the model's own.
    pub chat_template: Option<PathBuf>,
}

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            adapter: None,
            quantize: Quantize::default(),
            products_on: ProductsOn::default(),
            context_tokens: 4_096,
            max_sequences: 8,
            step_tokens: 256,
            queue_requests: 256,
            cache_bytes: 512 << 20,
            sampling: SamplingConfig::default(),
            stop: Vec::new(),
            schema_bounds: SchemaBounds::default(),
            thinking: false,
            confidence: Surest::default(),
            chat_template: None,
        }
    }
}

/// A key of a local model's configuration with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} {problem}")]
pub struct KeyProblem {
    /// The key; `table.key` within a table.
    pub key: &'static str,
    /// The problem, and a value that would work.
    pub problem: String,
}

impl KeyProblem {
    fn new(key: &'static str, problem: String) -> Self {
        Self { key, problem }
    }
}

impl LocalConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn check(&self) -> Result<(), KeyProblem> {
        let problem = |key, problem| Err(KeyProblem::new(key, problem));
        let Self { context_tokens, max_sequences, step_tokens, .. } = *self;
        if self.path.as_os_str().is_empty() {
            problem("path", "is missing: name a GGUF file, or a folder with a model".to_owned())
        } else if context_tokens < 16 {
            problem("context_tokens", format!("is {context_tokens}; it is at least 16"))
        } else if max_sequences == 0 {
            problem("max_sequences", "is 0; it is at least 1".to_owned())
        } else if step_tokens < 2 * max_sequences {
            let least = 2 * max_sequences;
            let range = format!("is {step_tokens}; it is at least twice max_sequences, {least}");
            problem("step_tokens", range)
        } else if self.queue_requests == 0 {
            problem("queue_requests", "is 0; it is at least 1".to_owned())
        } else if self.schema_bounds.has_zero() {
            problem("schema_bounds", "has a 0; each bound is at least 1".to_owned())
        } else if self.stop.iter().any(String::is_empty) {
            problem("stop", "holds an empty text, which would end every answer".to_owned())
        } else {
            self.products_on.check()?;
            self.sampling.check()
        }
    }

    /// The most tokens of a prompt and its answer, for a model trained with `positions` positions.
    fn context(&self, positions: usize) -> usize {
        self.context_tokens.min(positions)
    }
}

/// The measure of a model's confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Surest {
    /// The lowest logit among the chosen tokens, as in RAGate.
    #[default]
    LowestLogit,
    /// The lowest log-probability among them.
    LowestLogProbability,
}

impl Surest {
    fn kind(self) -> ConfidenceKind {
        match self {
            Self::LowestLogit => ConfidenceKind::LowestLogit,
            Self::LowestLogProbability => ConfidenceKind::LowestLogProbability,
        }
    }
}

/// Checks the model's files without reading the weights.
///
/// # Errors
/// A file is missing or unsupported.
pub fn check(config: &LocalConfig) -> Result<(), ModelError> {
    files::check(config)
}

/// Reads a model and starts its thread. Records and metrics use `name`.
///
/// # Errors
/// A file is missing, damaged or unsupported.
pub fn start(
    name: &str,
    config: &LocalConfig,
    metrics: DecoderMetrics,
) -> Result<Arc<Generate>, ModelError> {
    check(config)?;
    let opened = files::open(config)?;
    let decoder = engine::Decoder::start(name, opened, config.clone(), metrics);
    Ok(Arc::new(decoder.map_err(ModelError::Threads)?))
}
