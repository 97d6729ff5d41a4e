//! Opening what the configuration names: all of it, so that everything that is wrong is told at once, by its
//! key. `turnstream validate` comes here as `run`, `replay` and `chat` do, so that it passes nothing that
//! they refuse.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::sync::Arc;

use serde_json::{Map, Value};
use turnstream_models::answers::{AnswersError, Recording};
use turnstream_models::language::{AnswerFiles, LanguageModelConfig, LanguageModelError, Starter};
use turnstream_models::remote::{RemoteEmbedder, StartError};
use turnstream_models::{Embedder, ModelError, Runtime, decoder};
use turnstream_operators::generation::GenerationForm;
use turnstream_operators::integration::Attention;
use turnstream_operators::prompted::{Prompts, table_of};
use turnstream_operators::relevance::RelevanceForm;
use turnstream_operators::source_planning::SourcePlanningForm;
use turnstream_operators::sources::{SourceConfig, Sources};
use turnstream_operators::tables::{Row, Table, Tables};
use turnstream_ports::documents::SearchDocuments;
use turnstream_ports::model::LanguageModels;
use turnstream_ports::model::encoder::Encoder;
use turnstream_ports::model::gate::LearnedGate;
use turnstream_ports::remedy::parted;
use turnstream_schemas::SourceKind;
use turnstream_sources::documents::{self, Documents};
use turnstream_sources::{knowledge, tables};

use super::Parts;
use super::trained::{self, TrainedGateError};
use crate::config::Config;
use crate::meaning::Meaning;
use crate::metrics::Metrics;

/// Whether servers are asked while parts are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nobody is asked: files of this machine are read, of local language models only what says what
    /// they are. What was opened so is not fit to serve.
    Here,
    /// Servers are asked where something has to be known of them, and everything is ready to serve.
    Servers,
}

/// Something that the configuration names and that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The names of the keys from the root.
    pub keys: Vec<String>,
    /// What is wrong.
    pub message: String,
    /// What to do about it; may be empty.
    pub remedy: String,
    /// Whether the configuration or a file of this machine is at fault; otherwise it is a server, or the
    /// system, and may be gone the next time.
    pub is_lasting: bool,
}

impl Display for Unusable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.keys.join("."), self.message)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(out, "; {}", self.remedy) }
    }
}

/// Why a dataflow has not what it needs.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    /// Everything that cannot be used, at least one.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Unusable(Vec<Unusable>),
    /// The files of answers.
    #[error(transparent)]
    Answers(#[from] AnswersError),
}

/// The sources where none are configured: the graph, the sentences that turns bring about their users,
/// and the documents, where there are any.
pub(super) fn implied(documents: bool) -> Sources {
    let mut kinds = vec![("graph", SourceKind::Graph), ("persona", SourceKind::UserPersona)];
    kinds.extend(documents.then_some((documents::SOURCE, SourceKind::Documents)));
    let config = kinds.into_iter().map(|(name, kind)| (name.to_owned(), SourceConfig::of(kind)));
    // They depend on nothing, and are one of each kind.
    Sources::new(&config.collect()).unwrap_or_default()
}

/// Whether a stage asks the unified model: planning or relevance, or generation where a table can be
/// asked, since it words rows.
fn asks_unified(config: &Config, sources: &Sources) -> bool {
    let Config { source_planning, relevance, generation, .. } = config;
    let has_table = sources.iter().any(|source| source.config.kind == SourceKind::Table);
    source_planning.form == SourcePlanningForm::Learned
        || relevance.form == RelevanceForm::Learned
        || (generation.form == GenerationForm::Learned && has_table)
}

/// Opens one part after the other, and notes what cannot be used.
pub(super) struct OpeningParts<'a> {
    config: &'a Config,
    metrics: &'a Metrics,
    reach: Reach,
    found: Vec<Unusable>,
}

impl<'a> OpeningParts<'a> {
    pub(super) fn new(config: &'a Config, metrics: &'a Metrics, reach: Reach) -> Self {
        Self { config, metrics, reach, found: Vec::new() }
    }

    /// What was opened, if everything was.
    pub(super) fn finish<T>(self, opened: Option<T>) -> Result<T, PartsError> {
        opened.filter(|_| self.found.is_empty()).ok_or(PartsError::Unusable(self.found))
    }

    /// Notes a problem with a key. The error's own remedy comes before this one.
    fn note(&mut self, keys: &[&str], error: impl Display, remedy: &str) {
        let said = error.to_string();
        let begins = format!("{}: ", keys.join("."));
        let (message, told) = parted(said.strip_prefix(&begins).unwrap_or(&said));
        let remedy = if told.is_empty() { remedy.to_owned() } else { told };
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        self.found.push(Unusable { keys, message, remedy, is_lasting: true });
    }

    /// What was opened; what was not is noted.
    fn take<T, E: Display>(
        &mut self,
        keys: &[&str],
        opened: Result<T, E>,
        remedy: &str,
    ) -> Option<T> {
        opened.map_err(|error| self.note(keys, error, remedy)).ok()
    }

    /// The same of a model.
    fn take_model<T>(&mut self, key: &str, opened: Result<T, ModelError>) -> Option<T> {
        let error = match opened {
            Ok(opened) => return Some(opened),
            Err(error) => error,
        };
        match error {
            ModelError::Server(error) => self.note_server(&["models", "server"], &error),
            ModelError::NoFolder => self.note(&["models", "directory"], error, ""),
            ModelError::Threads(_) => {
                self.note(&["models", "threads"], error, "");
                self.passes();
            }
            error => {
                let remedy = "name a model that is there; `turnstream models list` shows some";
                self.note(&["models", key], error, remedy);
            }
        }
        None
    }

    fn note_server(&mut self, table: &[&str], error: &StartError) {
        let keys: Vec<&str> = table.iter().copied().chain(error.key()).collect();
        self.note(&keys, error, "");
        if matches!(error, StartError::NoEmbedding(_) | StartError::Threads(_)) {
            self.passes();
        }
    }

    /// What was just noted may be gone the next time.
    fn passes(&mut self) {
        if let Some(last) = self.found.last_mut() {
            last.is_lasting = false;
        }
    }

    /// Everything but language models. What depends on a part that cannot be used is left out.
    pub(super) fn parts(&mut self) -> Option<Parts> {
        let (config, metrics) = (self.config, self.metrics);
        let snapshot = &["knowledge", "snapshot"];
        let graph = knowledge::open(&config.knowledge.snapshot.to_string());
        let remedy = "name a snapshot that `turnstream knowledge import` wrote, or write \"pack\"";
        let graph = self.take(snapshot, graph, remedy).map(Arc::new);
        let prompts = self.prompts();
        let sources = self.sources();
        let tables = self.tables();
        let judge = trained::configured_judge(&config.consistency);
        let remedy = "name a table that `turnstream train consistency` made";
        let consistency = self.take(&["consistency", "table"], judge, remedy);
        let documents = self.documents();
        let runtime = Runtime::new(&config.models, metrics.models());
        let score = self.take_model("scorer", runtime.score());
        let gate = sources.as_ref().and_then(|sources| self.gate(sources));
        let unified = sources.as_ref().and_then(|sources| {
            let asks = asks_unified(config, sources).then_some(&config.models.unified);
            self.take_model("unified", asks.map(|weights| runtime.unified(weights)).transpose())
        });
        let encoder = self.encoder();
        let embed =
            encoder.clone().and_then(|encoder| self.take_model("embedder", runtime.embed(encoder)));
        let meaning = graph.as_ref().zip(encoder.as_ref()).and_then(|(graph, encoder)| {
            let remedy = "make them anew with `turnstream knowledge embed`";
            self.take(snapshot, Meaning::open(config, graph, encoder.as_ref()), remedy)
        });
        let attention = self.attention(meaning.as_ref());
        if let (Some(Some(documents)), Some(meaning)) = (&documents, &meaning) {
            self.check_encoder(documents, meaning);
        }
        let documents = documents?.map(|documents| Arc::new(documents) as Arc<dyn SearchDocuments>);
        Some(Parts {
            sources: Arc::new(sources?),
            tables: Arc::new(tables),
            documents,
            gate: gate?,
            consistency: consistency?,
            attention: attention?,
            meaning: meaning?,
            embed: embed?,
            score: score?,
            unified: unified?,
            prompts: prompts?,
            metrics: metrics.clone(),
            ..Parts::with_graph(config.clone(), graph?)
        })
    }

    /// The language models that stages in prompted form name, and the recording of their answers.
    pub(super) fn language_models(
        &mut self,
        files: &AnswerFiles,
    ) -> Result<(LanguageModels, Option<Recording>), AnswersError> {
        let starter = Starter::new(files, self.metrics.models())?;
        let (mut models, mut tried) = (LanguageModels::new(), BTreeSet::new());
        for (stage, prompted) in self.config.prompted() {
            let name = &prompted.model;
            if !tried.insert(name) {
                continue;
            }
            let config = self.config.language_models.get(name);
            if let (Reach::Here, Some(LanguageModelConfig::Local(config))) = (self.reach, config) {
                let checked = decoder::check(config);
                self.take(&["language_models", name, "path"], checked, NO_LOCAL_MODEL);
                continue;
            }
            match starter.start(name, config) {
                Ok(Some(model)) => drop(models.insert(name.clone(), model)),
                Ok(None) => {
                    let table: Vec<&str> = table_of(stage).split('.').collect();
                    let keys = [&table[..], &["prompted", "model"]].concat();
                    self.note(
                        &keys,
                        "no language model has this name",
                        "add [language_models.NAME]",
                    );
                }
                Err(LanguageModelError::Remote { source, .. }) => {
                    self.note_server(&["language_models", name], &source);
                }
                Err(LanguageModelError::Local { source, .. }) => {
                    self.note(&["language_models", name, "path"], source, NO_LOCAL_MODEL);
                }
            }
        }
        Ok((models, starter.into_recording()))
    }

    /// The prompts of the stages in prompted form.
    fn prompts(&mut self) -> Option<Prompts> {
        let (mut prompts, before) = (Prompts::default(), self.found.len());
        for (stage, prompted) in self.config.prompted() {
            let read = |path: &str| std::fs::read_to_string(path);
            let table: Vec<&str> = table_of(stage).split('.').collect();
            let keys = [&table[..], &["prompted", "prompt"]].concat();
            let loaded = prompts.add(stage, prompted.prompt.as_deref(), read);
            self.take(&keys, loaded, "`turnstream prompts show` writes one to begin with");
        }
        (self.found.len() == before).then_some(prompts)
    }

    fn sources(&mut self) -> Option<Sources> {
        let config = &self.config.sources;
        if config.is_empty() {
            return Some(implied(self.config.documents.directory.is_some()));
        }
        let sources = Sources::new(config);
        sources
            .map_err(|error| {
                let keys = ["sources", &error.name, error.key];
                self.note(&keys, &error.reason, error.remedy);
            })
            .ok()
    }

    /// The rows of all tables that can be read.
    fn tables(&mut self) -> Tables {
        let mut tables = Tables::new();
        for (name, source) in &self.config.sources {
            let Some(file) = &source.file else { continue };
            let keys = ["sources", name, "file"];
            let remedy = "name a file with one JSON object a line, a row each";
            let rows = self.take(&keys, tables::rows(name, file, row), remedy);
            if let Some(rows) = rows {
                tracing::info!(source = name.as_str(), rows = rows.len(), "a table is read");
                tables.insert(name.as_str().into(), Arc::new(Table::new(rows)));
            }
        }
        tables
    }

    fn gate(&mut self, sources: &Sources) -> Option<Option<Arc<dyn LearnedGate>>> {
        let opened = trained::gate(&self.config.gate, sources);
        let key = match &opened {
            Err(TrainedGateError::Definition { .. }) => "definitions",
            _ => "model",
        };
        let remedy = "name a gate that `turnstream train gate` made, or write \"shipped\"";
        self.take(&["gate", "learned", key], opened, remedy)
    }

    fn documents(&mut self) -> Option<Option<Documents>> {
        let config = &self.config.documents;
        let Some(folder) = &config.directory else { return Some(None) };
        let opened = Documents::open(folder, config);
        self.take(&["documents", "directory"], opened, "").map(Some)
    }

    /// The encoder of the configuration. One on a server is asked last, and not where something is
    /// wrong here: it may take its time.
    fn encoder(&mut self) -> Option<Option<Arc<dyn Encoder>>> {
        let config = &self.config.models;
        if !self.found.is_empty() {
            self.reach = Reach::Here;
        }
        if config.embedder == Embedder::Server && self.reach == Reach::Here {
            let checked = RemoteEmbedder::check("embedder", &config.server);
            return self.take_model("embedder", checked.map(|()| None).map_err(ModelError::Server));
        }
        let opened =
            turnstream_models::encoder_counted(config, self.metrics.models().remote("embedder"));
        self.take_model("embedder", opened)
    }

    /// Whether it is known whose vectors there will be.
    fn knows_encoder(&self) -> bool {
        self.reach == Reach::Servers || self.config.models.embedder != Embedder::Server
    }

    fn attention(&mut self, meaning: Option<&Meaning>) -> Option<Option<Arc<Attention>>> {
        let config = &self.config.integration;
        let opened = match meaning {
            Some(meaning) if self.knows_encoder() => {
                trained::attention(config, meaning.identity.as_ref())
            }
            _ => trained::attention_for_any(config),
        };
        let remedy = "name a file that `turnstream train integration` made";
        self.take(&["integration", "weights"], opened, remedy)
    }

    /// Holds the vectors of documents against the encoder.
    fn check_encoder(&mut self, documents: &Documents, meaning: &Meaning) {
        match (&meaning.identity, &documents.extent().encoder) {
            (Some((name, fingerprint)), _) => {
                let fits = documents.check_encoder(name, *fingerprint);
                self.take(&["documents", "directory"], fits, "");
            }
            (None, Some(stored)) if self.knows_encoder() => tracing::warn!(
                encoder = stored.name,
                "the documents have vectors, and models.embedder is \"none\": they are searched by \
                 words alone"
            ),
            (None, _) => {}
        }
    }
}

/// What mends a model of this process that cannot be read.
const NO_LOCAL_MODEL: &str = "name a GGUF file, or a folder with a model";

/// A row, where a column of it says anything.
fn row(values: &Map<String, Value>) -> Option<Row> {
    Some(Row::of(values)).filter(|row| !row.columns.is_empty())
}
