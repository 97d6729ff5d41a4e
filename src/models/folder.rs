//! Reads a model's folder in the layout of sentence-transformers and transformers, and refuses
//! unsupported settings by name.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::ModelError;

/// The weights' file.
pub(super) const WEIGHTS: &str = "model.safetensors";
/// The tokenizer's file.
pub(super) const TOKENIZER: &str = "tokenizer.json";
/// The network's shape.
pub(super) const CONFIG: &str = "config.json";

/// A model's folder.
pub(super) struct Folder {
    path: PathBuf,
    /// Hashes everything that was read, for the fingerprint.
    read: Sha256,
}

impl Folder {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), read: Sha256::new() }
    }

    /// The path of a file in the folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads a file.
    pub(super) fn read(&mut self, name: &str) -> Result<Vec<u8>, ModelError> {
        let path = self.path(name);
        let bytes = std::fs::read(&path)
            .map_err(|source| ModelError::Read { path: path.clone(), source })?;
        self.read.update((bytes.len() as u64).to_le_bytes());
        self.read.update(&bytes);
        Ok(bytes)
    }

    /// Reads a JSON file.
    pub(super) fn json<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, ModelError> {
        let bytes = self.read(name)?;
        serde_json::from_slice(&bytes).map_err(|error| self.refused(name, error.to_string()))
    }

    /// Reads a JSON file that may be missing.
    pub(super) fn json_if_there<T: DeserializeOwned>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, ModelError> {
        if self.path(name).exists() { self.json(name).map(Some) } else { Ok(None) }
    }

    /// Refuses a damaged or unsupported file.
    pub(super) fn refused(&self, name: &str, reason: impl Into<String>) -> ModelError {
        ModelError::Refused { path: self.path(name), reason: reason.into() }
    }

    /// A hash of everything that was read, which identifies the model.
    pub(super) fn fingerprint(self) -> u64 {
        let digest = self.read.finalize();
        u64::from_be_bytes(std::array::from_fn(|at| digest[at]))
    }
}

/// The shape of a BERT, from `config.json`, with the defaults of transformers.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct BertShape {
    pub(super) model_type: String,
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
    pub(super) num_hidden_layers: usize,
    pub(super) num_attention_heads: usize,
    pub(super) intermediate_size: usize,
    pub(super) max_position_embeddings: usize,
    #[serde(default = "gelu")]
    hidden_act: String,
    #[serde(default = "two")]
    pub(super) type_vocab_size: usize,
    #[serde(default = "epsilon")]
    pub(super) layer_norm_eps: f32,
    #[serde(default = "absolute")]
    position_embedding_type: String,
}

fn gelu() -> String {
    "gelu".to_owned()
}

fn two() -> usize {
    2
}

fn epsilon() -> f32 {
    1e-12
}

fn absolute() -> String {
    "absolute".to_owned()
}

impl BertShape {
    /// Reads and checks the shape.
    pub(super) fn read(folder: &mut Folder) -> Result<Self, ModelError> {
        let shape: Self = folder.json(CONFIG)?;
        let Self { model_type, hidden_act, position_embedding_type, .. } = &shape;
        let (width, heads) = (shape.hidden_size, shape.num_attention_heads);
        let refusal = if model_type != "bert" {
            format!("model_type is {model_type:?}; only \"bert\" is read here")
        } else if hidden_act != "gelu" {
            format!("hidden_act is {hidden_act:?}; only \"gelu\" is known")
        } else if position_embedding_type != "absolute" {
            format!(
                "position_embedding_type is {position_embedding_type:?}; only \"absolute\" is known"
            )
        } else if heads == 0 || width == 0 || !width.is_multiple_of(heads) {
            format!("hidden_size {width} is not a multiple of num_attention_heads {heads}")
        } else if shape.max_position_embeddings < 3 || shape.type_vocab_size == 0 {
            "there are no positions or no token types".to_owned()
        } else {
            return Ok(shape);
        };
        Err(folder.refused(CONFIG, refusal))
    }
}

/// How the vectors of a text's tokens become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pooling {
    /// The mean of all vectors.
    Mean,
    /// The first vector.
    First,
}

/// The steps after the network, from the files of sentence-transformers.
pub(super) struct SentenceShape {
    pub(super) pooling: Pooling,
    /// The most tokens of a text, including the special ones.
    pub(super) max_tokens: usize,
}

#[derive(Deserialize)]
struct Module {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct PoolingFile {
    /// Newer files name the mode.
    pooling_mode: Option<String>,
    /// Older files have a switch for each mode.
    #[serde(flatten)]
    switches: serde_json::Map<String, serde_json::Value>,
}

impl PoolingFile {
    /// The active modes, by the names of newer files.
    fn modes(&self) -> Vec<&str> {
        let switched = self.switches.iter().filter(|(_, on)| on.as_bool() == Some(true));
        let switched = switched.filter_map(|(key, _)| key.strip_prefix("pooling_mode_"));
        let switched = switched.map(|mode| match mode {
            "cls_token" => "cls",
            "mean_tokens" => "mean",
            "max_tokens" => "max",
            other => other,
        });
        self.pooling_mode.as_deref().into_iter().chain(switched).collect()
    }
}

#[derive(Deserialize)]
struct SentenceFile {
    max_seq_length: Option<usize>,
}

impl SentenceShape {
    /// Reads and checks the files, for a network that takes `positions` tokens. Without the files
    /// of sentence-transformers, pooling is the mean, as in that library.
    pub(super) fn read(folder: &mut Folder, positions: usize) -> Result<Self, ModelError> {
        const MODULES: &str = "modules.json";
        let modules: Vec<Module> = folder.json_if_there(MODULES)?.unwrap_or_default();
        let mut pooling = Pooling::Mean;
        for Module { path, kind } in &modules {
            match kind.rsplit('.').next().unwrap_or(kind) {
                "Transformer" | "Normalize" => {}
                "Pooling" => {
                    let name = format!("{path}/{CONFIG}");
                    let file: PoolingFile = folder.json(&name)?;
                    pooling = match file.modes().as_slice() {
                        ["mean"] => Pooling::Mean,
                        ["cls"] => Pooling::First,
                        modes => {
                            let modes = modes.join(" and ");
                            let reason = format!("pooling by {modes:?}; known are mean and cls");
                            return Err(folder.refused(&name, reason));
                        }
                    };
                }
                other => {
                    let reason =
                        format!("a module {other:?}; known are Transformer, Pooling and Normalize");
                    return Err(folder.refused(MODULES, reason));
                }
            }
        }
        let sentence: Option<SentenceFile> = folder.json_if_there("sentence_bert_config.json")?;
        let max_tokens = sentence.and_then(|file| file.max_seq_length).unwrap_or(positions);
        Ok(Self { pooling, max_tokens: max_tokens.clamp(3, positions) })
    }
}
