//! Implements the ports of `turnstream_ports::model`: obtains models and runs them. Operators and
//! this crate do not depend on each other, and nothing here trains.
//!
//! [`encoder()`] opens the configured encoder, whose callers wait while it computes; [`Runtime`]
//! runs models behind the stages' asynchronous ports. [`registry`] lists the models that the
//! program can obtain, [`pull`] obtains them, and [`check`] compares an encoder with the reference
//! implementation.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use turnstream_ports::cache_folder::{CACHE_VARIABLE, cache_folder};
use turnstream_ports::model::encoder::Encoder;
use turnstream_ports::model::gate::{GateInputs, NeedJudge};
use turnstream_ports::model::reader::{READER, Read};
use turnstream_ports::model::unified::Unified;
use turnstream_ports::model::{Embed, Score};

use crate::metrics::{Metrics, RemoteMetrics, Task};

pub mod answers;
pub mod attention;
pub mod batch;
pub mod bert;
pub mod budget;
pub mod check;
pub mod classifier;
pub mod consistency;
pub mod decoder;
mod folder;
pub mod gate;
pub mod language;
pub mod metrics;
pub mod probe;
pub mod pull;
pub mod reader;
pub mod registry;
pub mod remote;
pub mod static_table;
mod tokens;
pub mod unified;
mod word_pieces;

use batch::backends::{Embeds, Scores};
use batch::gathering::Bounds;
use batch::{Batched, Limits, Threads};
use bert::Bert;
use classifier::Classifier;
use decoder::Quantize;
use gate::instructed::{self, InstructedCard, InstructedGate};
use reader::{AnswerReader, ReaderBackend};
use registry::KnownModel;
use remote::{Api, RemoteConfig, RemoteEmbedder};
use static_table::{StaticTable, TableError};
use unified::{UnifiedModel, UnifiedWeights};

/// `[models]`: the models, and the resources that they may take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelsConfig {
    /// The folder that `turnstream models pull` puts models into, a folder each. If not set,
    /// `models` in `$TURNSTREAM_CACHE`, else in turnstream's folder in the user's cache folder.
    pub directory: Option<PathBuf>,
    /// The encoder of texts: `"static"` (the table inside the program, English), `"reader"` (the
    /// reader inside the program, English), `"none"`, `"minilm"` (all-MiniLM-L6-v2, English;
    /// obtained by `turnstream models pull minilm`), `"server"` (the model of `models.server`), the
    /// path of a folder with a BERT in the layout of sentence-transformers, or of a static table
    /// that `turnstream models distil` made. Facts are ranked by it if they have vectors by it
    /// (`turnstream knowledge embed`), else by the table inside the program.
    pub embedder: Embedder,
    /// The scorer of pairs of texts (a re-ranker, or NLI): the path of a folder with a BERT,
    /// DeBERTa-v2, ModernBERT or XLM-RoBERTa for sequence classification in the layout of
    /// transformers. Without it pairs are not scored.
    pub scorer: Option<PathBuf>,
    /// The unified model, which plans sources, judges evidence and words rows of tables if a
    /// stage's form is `learned`: `"shipped"` for the one inside the program, or the path of a GGUF
    /// file that `deploy/training/train export` wrote.
    pub unified: UnifiedWeights,
    /// The server whose model `embedder = "server"` asks: the keys of a language model on a server,
    /// with `api = "embeddings"`.
    pub server: RemoteConfig,
    /// Threads that models work on, 1 to 256, each with a batch of its own. If not set, as many as
    /// the machine has cores.
    #[schemars(range(min = 1, max = 256))]
    pub threads: Option<u32>,
    /// Requests that may wait for a model, from 1. A stage that finds the queue full holds its
    /// turn and asks again, while the log is read no further than `turns.max_in_flight`.
    #[schemars(range(min = 1))]
    pub queue_requests: usize,
    /// Most tokens of a batch, from 1, estimated as one for four bytes of text; a request with more
    /// is a batch of its own.
    #[schemars(range(min = 1))]
    pub batch_tokens: usize,
    /// Most texts of a batch, from 1, likewise.
    #[schemars(range(min = 1))]
    pub batch_sequences: usize,
    /// Milliseconds that a request waits for others while a thread is idle. While none is idle, it
    /// waits anyway, and others gather.
    pub batch_wait_ms: u64,
    /// Most texts with vectors, pairs with scores, and questions with answers of the unified model
    /// that are remembered; the least used are dropped. A vector of MiniLM takes 1.5 kB. 0 for
    /// none.
    pub cache_entries: usize,
}

impl Default for ModelsConfig {
    fn default() -> Self {
        Self {
            directory: None,
            embedder: Embedder::default(),
            scorer: None,
            unified: UnifiedWeights::default(),
            server: RemoteConfig { api: Api::Embeddings, ..RemoteConfig::default() },
            threads: None,
            queue_requests: 256,
            batch_tokens: 1_024,
            batch_sequences: 64,
            batch_wait_ms: 2,
            cache_entries: 10_000,
        }
    }
}

impl ModelsConfig {
    /// The folder of models.
    ///
    /// # Errors
    /// The configuration names no folder, and the user has no cache folder.
    pub fn folder(&self) -> Result<PathBuf, ModelError> {
        let fallback = || cache_folder().map(|cache| cache.join("models"));
        self.directory.clone().or_else(fallback).ok_or(ModelError::NoFolder)
    }

    /// The bounds of the runtime.
    pub fn limits(&self) -> Limits {
        let batch = Bounds {
            tokens: self.batch_tokens,
            texts: self.batch_sequences,
            wait: Duration::from_millis(self.batch_wait_ms),
        };
        Limits { queue: self.queue_requests, batch, remembered: self.cache_entries }
    }

    /// Opens the encoder with a name, or in a folder, regardless of `embedder`, and returns its
    /// folder if it has one.
    ///
    /// # Errors
    /// The encoder is missing or cannot be used; the error says what to do.
    pub fn named(&self, name: &str) -> Result<(Option<PathBuf>, Arc<dyn Encoder>), ModelError> {
        let embedder = Embedder::from(name.to_owned());
        let folder = match &embedder {
            Embedder::None | Embedder::Static | Embedder::Reader | Embedder::Server => None,
            Embedder::Known(model) => Some(self.folder()?.join(model.name)),
            Embedder::Path(folder) => Some(folder.clone()),
        };
        let named = encoder(&Self { embedder, ..self.clone() })?;
        Ok((folder, named.ok_or_else(|| no_such_model(Path::new(name)))?))
    }

    /// The number of inference threads, at least 1.
    pub fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.map_or_else(cores, |threads| threads.max(1) as usize)
    }
}

/// The encoder that turns texts into vectors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Embedder {
    /// No encoder, written `none`.
    None,
    /// The table inside the program, written `static`.
    #[default]
    Static,
    /// The reader inside the program, written `reader`.
    Reader,
    /// A model of the registry, written by its name.
    Known(&'static KnownModel),
    /// A model on a server, written `server`.
    Server,
    /// A folder in the layout of sentence-transformers, or the file of a static table.
    Path(PathBuf),
}

impl Embedder {
    /// Whether the encoder takes microseconds and is called on the spot: a static table.
    pub fn is_in_place(&self) -> bool {
        match self {
            Self::Static => true,
            Self::Path(path) => path.is_file(),
            Self::None | Self::Reader | Self::Known(_) | Self::Server => false,
        }
    }
}

impl Embedder {
    /// Whether the reader makes the vectors of questions beside it. Every other encoder, for which
    /// a turn waits, searches all sources itself.
    pub fn leaves_questions(&self) -> bool {
        *self == Self::None || self.is_in_place()
    }
}

impl From<String> for Embedder {
    fn from(text: String) -> Self {
        match registry::find(&text) {
            Some(model) => Self::Known(model),
            None if text == "none" => Self::None,
            None if text == "static" => Self::Static,
            None if text == READER => Self::Reader,
            None if text == "server" => Self::Server,
            None => Self::Path(PathBuf::from(text)),
        }
    }
}

impl From<Embedder> for String {
    fn from(embedder: Embedder) -> Self {
        embedder.to_string()
    }
}

impl fmt::Display for Embedder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("none"),
            Self::Static => out.write_str("static"),
            Self::Reader => out.write_str(READER),
            Self::Server => out.write_str("server"),
            Self::Known(model) => out.write_str(model.name),
            Self::Path(path) => write!(out, "{}", path.display()),
        }
    }
}

impl JsonSchema for Embedder {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Embedder".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1 })
    }
}

/// Why a model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The model was not pulled, or only in part.
    #[error("model `{model}` is not in {folder}; run `turnstream models pull {model}`", folder = folder.display())]
    Missing {
        /// The model's name.
        model: &'static str,
        /// The expected folder.
        folder: PathBuf,
    },
    /// The folder does not exist.
    #[error(
        "there is no folder {folder}; name a folder with a model, or one of {known}",
        folder = folder.display()
    )]
    NoSuchModel {
        /// The configured folder.
        folder: PathBuf,
        /// The names of the registry.
        known: String,
    },
    /// No folder of models is configured or known.
    #[error("no folder for models: set models.directory, or {CACHE_VARIABLE} to a folder")]
    NoFolder,
    /// A file cannot be read.
    #[error("cannot read {path}: {source}; check the path and its permissions", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The static table cannot be used.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The encoder's server cannot be used.
    #[error("models.server: {0}")]
    Server(#[from] remote::StartError),
    /// The system cannot start the inference threads.
    #[error(
        "cannot start the threads of models: {0}; lower models.threads, or raise the system's limit"
    )]
    Threads(std::io::Error),
    /// A file is damaged or unsupported.
    #[error("{path}: {reason}", path = path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// Opens the configured encoder; `None` if the configuration names none.
///
/// # Errors
/// The model is missing or cannot be used; the error says what to do.
pub fn encoder(config: &ModelsConfig) -> Result<Option<Arc<dyn Encoder>>, ModelError> {
    encoder_counted(config, RemoteMetrics::unread())
}

/// As [`encoder()`], with metrics for an encoder on a server.
///
/// # Errors
/// As for [`encoder()`].
pub fn encoder_counted(
    config: &ModelsConfig,
    metrics: RemoteMetrics,
) -> Result<Option<Arc<dyn Encoder>>, ModelError> {
    Ok(match &config.embedder {
        Embedder::None => None,
        Embedder::Static => Some(StaticTable::shipped()?),
        Embedder::Reader => Some(AnswerReader::shipped()?),
        Embedder::Known(model) => Some(Arc::new(known(model, &config.folder()?)?)),
        Embedder::Server => {
            Some(Arc::new(RemoteEmbedder::start("embedder", &config.server, metrics)?))
        }
        Embedder::Path(file) if file.is_file() => Some(Arc::new(StaticTable::open(file)?)),
        Embedder::Path(folder) => {
            if !folder.is_dir() {
                return Err(no_such_model(folder));
            }
            Some(Arc::new(Bert::open(folder, name_of(folder))?))
        }
    })
}

fn no_such_model(folder: &Path) -> ModelError {
    let known = registry::MODELS.iter().map(|model| model.name);
    let known = ["static", READER, "none"]
        .into_iter()
        .chain(known)
        .chain(["server"])
        .collect::<Vec<_>>()
        .join(", ");
    ModelError::NoSuchModel { folder: folder.to_owned(), known }
}

/// Starts models on shared inference threads, behind the ports of the stages.
pub struct Runtime<'a> {
    config: &'a ModelsConfig,
    threads: Threads,
    metrics: &'a Metrics,
}

impl<'a> Runtime<'a> {
    /// Plans as many threads as configured; they start with the models.
    pub fn new(config: &'a ModelsConfig, metrics: &'a Metrics) -> Self {
        Self { config, threads: Threads::new(config.threads()), metrics }
    }

    /// Puts the encoder that [`encoder()`] opened behind the port `Embed`. A static table is called
    /// on the caller's thread.
    ///
    /// # Errors
    /// The system cannot start the threads.
    pub fn embed(
        &self,
        encoder: Option<Arc<dyn Encoder>>,
    ) -> Result<Option<Arc<Embed>>, ModelError> {
        let encoder = encoder.filter(|_| !self.config.embedder.is_in_place());
        encoder.map(|encoder| self.behind_a_queue(encoder)).transpose()
    }

    /// Puts the reader's vectors behind the port `Embed`.
    ///
    /// # Errors
    /// The weights are damaged, or the system cannot start the threads.
    pub fn questions(&self) -> Result<Arc<Embed>, ModelError> {
        self.behind_a_queue(AnswerReader::shipped()?)
    }

    fn behind_a_queue(&self, encoder: Arc<dyn Encoder>) -> Result<Arc<Embed>, ModelError> {
        let counted = self.metrics.model(Task::Embed).clone();
        let embed = Batched::start(Embeds(encoder), self.config.limits(), &self.threads, counted);
        Ok(Arc::new(embed.map_err(ModelError::Threads)?))
    }

    /// Opens the configured scorer of pairs, if there is one.
    ///
    /// # Errors
    /// The model is missing or cannot be used; the error says what to do.
    pub fn score(&self) -> Result<Option<Arc<Score>>, ModelError> {
        let Some(folder) = &self.config.scorer else { return Ok(None) };
        let counted = self.metrics.model(Task::Score).clone();
        let scores = Scores(Classifier::open(folder, name_of(folder))?);
        let score = Batched::start(scores, self.config.limits(), &self.threads, counted);
        Ok(Some(Arc::new(score.map_err(ModelError::Threads)?)))
    }

    /// Starts the reader inside the program, which chooses the sentence that answers.
    ///
    /// # Errors
    /// Its weights are damaged, or the system cannot start the threads.
    pub fn read(&self) -> Result<Arc<Read>, ModelError> {
        let counted = self.metrics.model(Task::Read).clone();
        let reads = ReaderBackend(AnswerReader::shipped()?);
        let read = Batched::start(reads, self.config.limits(), &self.threads, counted);
        Ok(Arc::new(read.map_err(ModelError::Threads)?))
    }

    /// Starts the language model with an adapter that decides about turns: the model of a folder or
    /// GGUF file, and the folder of the adapter's card.
    ///
    /// # Errors
    /// A file is missing or cannot be used, the adapter reads more than the dialogue, or the system
    /// cannot start the threads.
    pub fn judge(&self, model: &Path, adapter: &Path) -> Result<NeedJudge, ModelError> {
        let counted = self.metrics.model(Task::Judge).clone();
        let gate = InstructedGate::open(model, adapter, Quantize::Q8Zero)?;
        let InstructedCard { inputs, language, definition, .. } = gate.card().clone();
        if inputs != GateInputs::Contx {
            let reason = format!(
                "it reads {}; before retrieval there is the dialogue alone, so train one with contx",
                inputs.name()
            );
            return Err(ModelError::Refused { path: adapter.join(instructed::CARD), reason });
        }
        let model = Batched::start(gate, self.config.limits(), &self.threads, counted);
        let model = Arc::new(model.map_err(ModelError::Threads)?);
        Ok(NeedJudge { model, language, definition })
    }

    /// Starts the unified model with these weights: it plans sources, judges evidence and words
    /// responses.
    ///
    /// # Errors
    /// The weights are missing or cannot be used; the error says what to do.
    pub fn unified(&self, weights: &UnifiedWeights) -> Result<Arc<Unified>, ModelError> {
        let counted = self.metrics.model(Task::Unify).clone();
        let model = UnifiedModel::open(weights)?;
        let unified = Batched::start(model, self.config.limits(), &self.threads, counted);
        Ok(Arc::new(unified.map_err(ModelError::Threads)?))
    }
}

/// The folder's name, for records.
fn name_of(folder: &Path) -> String {
    folder.file_name().map_or_else(String::new, |name| name.display().to_string())
}

/// Opens a model of the registry from the folder of models.
///
/// # Errors
/// The model was not pulled, or a file is damaged.
pub fn known(model: &'static KnownModel, folder: &Path) -> Result<Bert, ModelError> {
    let folder = folder.join(model.name);
    if !model.is_there(&folder) {
        return Err(ModelError::Missing { model: model.name, folder });
    }
    Bert::open(&folder, model.name)
}
