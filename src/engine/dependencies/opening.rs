//! Opens everything that the configuration names. Collects all problems, each with its key, instead
//! of stopping at the first. `turnstream validate` uses the same code as `run`, `replay` and
//! `chat`, so that it accepts nothing that they refuse.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::sync::Arc;

use serde_json::{Map, Value};
use turnstream_knowledge::phrasings::Phrasings;
use turnstream_models::answers::{AnswersError, Recording};
use turnstream_models::language::{AnswerFiles, LanguageModelConfig, LanguageModelError, Starter};
use turnstream_models::reader::AnswerReader;
use turnstream_models::remote::{RemoteEmbedder, StartError};
use turnstream_models::{Embedder, ModelError, Runtime, decoder};
use turnstream_operators::attention::Attention;
use turnstream_operators::decision::DecisionForm;
use turnstream_operators::gate::{AdapterGateConfig, GateConfig, GateForm};
use turnstream_operators::generation::GenerationForm;
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
use turnstream_sources::{knowledge, phrasings, tables};

use super::Dependencies;
use super::trained::{self, TrainedGateError};
use crate::config::Config;
use crate::digests::Digests;
use crate::meaning::Meaning;
use crate::metrics::Metrics;
use crate::teaching::Teaching;

/// Whether opening contacts servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Contacts no server, and reads files of this machine, but not the weights of language models.
    /// The opened dependencies cannot serve turns.
    Here,
    /// Contacts a server if opening needs its answer. The opened dependencies can serve turns.
    Servers,
}

/// A configured part that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The path of the key: names from the root of the configuration.
    pub keys: Vec<String>,
    /// The problem.
    pub message: String,
    /// The remedy; may be empty.
    pub remedy: String,
    /// Whether the configuration or a file of this machine is at fault. Otherwise a server or the
    /// system is, and another start may succeed.
    pub is_lasting: bool,
}

impl Display for Unusable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.keys.join("."), self.message)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(out, "; {}", self.remedy) }
    }
}

/// Why the dependencies cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DependencyError {
    /// Every part that cannot be used; at least one.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Unusable(Vec<Unusable>),
    /// A file of recorded answers cannot be used.
    #[error(transparent)]
    Answers(#[from] AnswersError),
}

/// The sources if none are configured: the graph, the sentences that turns bring about their users,
/// and the documents if a store is configured.
pub(super) fn implied(documents: bool) -> Sources {
    let mut kinds = vec![("graph", SourceKind::Graph), ("persona", SourceKind::UserPersona)];
    kinds.extend(documents.then_some((documents::SOURCE, SourceKind::Documents)));
    let config = kinds.into_iter().map(|(name, kind)| (name.to_owned(), SourceConfig::of(kind)));
    // This never fails: no source depends on another, and each is of another kind.
    Sources::new(&config.collect()).unwrap_or_default()
}

/// Whether a stage asks the unified model: planning, relevance, or generation. Generation asks it
/// only about rows, and so only if there is a table.
fn asks_unified(config: &Config, sources: &Sources) -> bool {
    let Config { source_planning, relevance, generation, .. } = config;
    let has_table = sources.iter().any(|source| source.config.kind == SourceKind::Table);
    source_planning.form == SourcePlanningForm::Learned
        || relevance.form == RelevanceForm::Learned
        || (generation.form == GenerationForm::Learned && has_table)
}

/// Whether documents have vectors by the reader.
fn is_by_reader(documents: Option<&Documents>) -> bool {
    documents.is_some_and(SearchDocuments::are_by_reader)
}

/// Opens the dependencies one by one, and notes those that cannot be used.
pub(super) struct OpeningDependencies<'a> {
    config: &'a Config,
    metrics: &'a Metrics,
    reach: Reach,
    found: Vec<Unusable>,
}

impl<'a> OpeningDependencies<'a> {
    pub(super) fn new(config: &'a Config, metrics: &'a Metrics, reach: Reach) -> Self {
        Self { config, metrics, reach, found: Vec::new() }
    }

    /// Returns what was opened if no problem was noted; otherwise all problems.
    pub(super) fn finish<T>(self, opened: Option<T>) -> Result<T, DependencyError> {
        opened.filter(|_| self.found.is_empty()).ok_or(DependencyError::Unusable(self.found))
    }

    /// Notes a problem with a key. `remedy` counts only if the error's message has none.
    fn note(&mut self, keys: &[&str], error: impl Display, remedy: &str) {
        let said = error.to_string();
        let begins = format!("{}: ", keys.join("."));
        let (message, told) = parted(said.strip_prefix(&begins).unwrap_or(&said));
        let remedy = if told.is_empty() { remedy.to_owned() } else { told };
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        self.found.push(Unusable { keys, message, remedy, is_lasting: true });
    }

    /// Returns the opened part, or notes why it cannot be used.
    fn take<T, E: Display>(
        &mut self,
        keys: &[&str],
        opened: Result<T, E>,
        remedy: &str,
    ) -> Option<T> {
        opened.map_err(|error| self.note(keys, error, remedy)).ok()
    }

    /// As [`Self::take`], for a model.
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
                let remedy = "name an existing model; `turnstream models list` shows some";
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

    /// Marks the last noted problem as one that another start may not meet.
    fn passes(&mut self) {
        if let Some(last) = self.found.last_mut() {
            last.is_lasting = false;
        }
    }

    /// Opens everything but language models. Skips what depends on a part that cannot be used.
    pub(super) fn dependencies(&mut self) -> Option<Dependencies> {
        let (config, metrics) = (self.config, self.metrics);
        let snapshot = &["knowledge", "snapshot"];
        let graph = knowledge::open(&config.knowledge.snapshot.to_string());
        let remedy = "name a snapshot that `turnstream knowledge import` wrote, or write \"pack\"";
        let graph = self.take(snapshot, graph, remedy).map(Arc::new);
        let prompts = self.prompts();
        let sources = self.sources();
        let tables = self.tables();
        let judge = trained::configured_judge(&config.consistency);
        let remedy = "name a table that `turnstream train consistency` wrote";
        let consistency = self.take(&["consistency", "table"], judge, remedy);
        let documents = self.documents();
        let runtime = Runtime::new(&config.models, metrics.models());
        let score = self.take_model("scorer", runtime.score());
        let gate = sources.as_ref().and_then(|sources| self.gate(sources));
        let AdapterGateConfig { model, directory, .. } = &config.gate.adapter;
        let judge = model.as_ref().zip(directory.as_ref());
        let judge = judge.filter(|_| config.gate.form == GateForm::Adapter);
        let judge = judge.map(|(model, directory)| runtime.judge(model, directory)).transpose();
        let need_judge = self.take(&["gate", "adapter"], judge, "");
        if matches!(gate, Some(Some(_))) || matches!(need_judge, Some(Some(_))) {
            warn_of_threshold(&config.gate);
        }
        let unified = sources.as_ref().and_then(|sources| {
            let asks = asks_unified(config, sources).then_some(&config.models.unified);
            self.take_model("unified", asks.map(|weights| runtime.unified(weights)).transpose())
        });
        let encoder = self.encoder();
        let embed =
            encoder.clone().and_then(|encoder| self.take_model("embedder", runtime.embed(encoder)));
        let meaning = graph.as_ref().zip(encoder.as_ref()).and_then(|(graph, encoder)| {
            let remedy = "make the vectors again with `turnstream knowledge embed`";
            self.take(snapshot, Meaning::open(config, graph, encoder.as_ref()), remedy)
        });
        let attention = self.attention(meaning.as_ref());
        let by_reader = documents.as_ref().is_some_and(|it| is_by_reader(it.as_ref()));
        let documents = documents.map(|documents| documents.map(Arc::new));
        let tables = Arc::new(tables);
        let teaching = sources.as_ref().map(|sources| {
            let documents = documents.clone().flatten();
            Teaching::new(sources, documents, Arc::clone(&tables), config.models.threads())
        });
        let phrasings = teaching.as_ref().and_then(|teaching| self.phrasings(teaching));
        let is_asked = by_reader || tables.values().any(|table| table.has_vectors());
        let questions = is_asked.then(|| runtime.questions()).transpose();
        let questions = self.take_model("embedder", questions);
        let decides = config.decision.form == DecisionForm::Learned;
        let reads = sources.as_ref().is_some_and(|it| decides && it.have_texts());
        let reader = self.take_model("embedder", reads.then(|| runtime.read()).transpose());
        if let (Some(Some(documents)), Some(meaning)) = (&documents, &meaning)
            && !(by_reader && config.models.embedder.leaves_questions())
        {
            self.check_encoder(documents, meaning);
        }
        let documents = documents?.map(|documents| documents as Arc<dyn SearchDocuments>);
        let (graph, prompts) = (graph?, prompts?);
        let made_by = Digests::new(config, &prompts, graph.version());
        metrics.vitals().made_by(&made_by.fingerprint);
        Some(Dependencies {
            made_by: Some(Arc::new(made_by)),
            sources: Arc::new(sources?),
            tables,
            documents,
            gate: gate?,
            need_judge: need_judge?,
            consistency: consistency?,
            attention: attention?,
            meaning: meaning?,
            embed: embed?,
            score: score?,
            questions: questions?,
            teaching: Arc::new(teaching?),
            phrasings: phrasings?,
            reader: reader?,
            unified: unified?,
            prompts,
            metrics: metrics.clone(),
            ..Dependencies::with_graph(config.clone(), graph)
        })
    }

    /// Opens the language models that stages in prompted form name, and the recording of their
    /// answers.
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

    /// Loads the prompts of the stages in prompted form.
    fn prompts(&mut self) -> Option<Prompts> {
        let (mut prompts, before) = (Prompts::default(), self.found.len());
        for (stage, prompted) in self.config.prompted() {
            let read = |path: &str| std::fs::read_to_string(path);
            let table: Vec<&str> = table_of(stage).split('.').collect();
            let keys = [&table[..], &["prompted", "prompt"]].concat();
            let loaded = prompts.add(stage, prompted.prompt.as_deref(), read);
            self.take(&keys, loaded, "begin with one that `turnstream prompts show` prints");
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

    /// Reads the tables. One that cannot be read is noted and left out.
    fn tables(&mut self) -> Tables {
        let mut tables = Tables::new();
        for (name, source) in &self.config.sources {
            let Some(file) = &source.file else { continue };
            let keys = ["sources", name, "file"];
            let remedy = "name a file with one row a line, as a JSON object";
            let rows = self.take(&keys, tables::rows(name, file, row), remedy);
            if let Some(rows) = rows {
                tracing::info!(source = name.as_str(), rows = rows.len(), "read a table");
                let few = rows.len() <= self.config.table_retrieval.max_encoded_rows as usize;
                let is_encoded = few && self.config.models.embedder.leaves_questions();
                let table = Table::new(rows);
                let table = if is_encoded { self.with_vectors(table) } else { Some(table) };
                tables.extend(table.map(|table| (name.as_str().into(), Arc::new(table))));
            }
        }
        tables
    }

    /// Reads the phrasings of the file and finds what they lead to.
    fn phrasings(&mut self, teaching: &Teaching) -> Option<Phrasings> {
        let Some(file) = &self.config.teaching.phrasings else { return Some(Phrasings::default()) };
        let keys = ["teaching", "phrasings"];
        let read = phrasings::phrasings(file);
        let lines = self.take(&keys, read, "name a file with a phrasing a line")?;
        let taught = lines.into_iter().map(|(line, taught)| (line.text, Some(taught)));
        let changes = self.take(&keys, teaching.changes(taught.collect()), "")?;
        Some(Phrasings::new(changes.into_iter().filter_map(|change| change.phrasing).collect()))
    }

    /// Gives a table's rows vectors by the reader.
    fn with_vectors(&mut self, table: Table) -> Option<Table> {
        let reader = self.take_model("embedder", AnswerReader::shipped())?;
        self.take(&["models", "embedder"], table.with_vectors(&*reader), "")
    }

    fn gate(&mut self, sources: &Sources) -> Option<Option<Arc<dyn LearnedGate>>> {
        let opened = trained::gate(&self.config.gate, sources);
        let key = match &opened {
            Err(TrainedGateError::Definition { .. }) => "definitions",
            _ => "model",
        };
        let remedy = "name a gate that `turnstream train gate` wrote, or \"shipped\"";
        self.take(&["gate", "learned", key], opened, remedy)
    }

    fn documents(&mut self) -> Option<Option<Documents>> {
        let config = &self.config.documents;
        let Some(folder) = &config.directory else { return Some(None) };
        let opened = Documents::open(folder, config);
        self.take(&["documents", "directory"], opened, "").map(Some)
    }

    /// Opens the configured encoder. A server may be slow to answer, so it is contacted only if no
    /// problem was noted before.
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

    /// Whether the encoder's identity is known: a server's is not until the server answers.
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
        let remedy = "name a file that `turnstream train integration` wrote";
        self.take(&["integration", "weights"], opened, remedy)
    }

    /// Checks that the configured encoder made the vectors of the documents.
    fn check_encoder(&mut self, documents: &Documents, meaning: &Meaning) {
        match (&meaning.identity, &documents.extent().encoder) {
            (Some((name, fingerprint)), _) => {
                let fits = documents.check_encoder(name, *fingerprint);
                self.take(&["documents", "directory"], fits, "");
            }
            (None, Some(stored)) if self.knows_encoder() => tracing::warn!(
                encoder = stored.name,
                "the documents have vectors, but models.embedder is \"none\": the search uses \
                 words alone"
            ),
            (None, _) => {}
        }
    }
}

/// Warns of a gate that goes by the threshold of the data that it was trained on.
fn warn_of_threshold(config: &GateConfig) {
    if config.threshold == GateConfig::default().threshold {
        tracing::warn!(
            threshold = config.threshold,
            "gate.threshold is the one of the data that the gate was trained on: choose yours on \
             labelled turns, with `turnstream eval gate --threshold-from`"
        );
    }
}

/// The remedy for a language model of this process that cannot be read.
const NO_LOCAL_MODEL: &str = "name a GGUF file, or a folder with a model";

/// Makes a row of a line's values; `None` if no column has a value.
fn row(values: &Map<String, Value>) -> Option<Row> {
    Some(Row::of(values)).filter(|row| !row.columns.is_empty())
}
