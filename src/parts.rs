//! What the dataflow is built from: the graph, the documents and the models that the configuration
//! names, opened once and shared by all workers of a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use turnstream_operators::awaited::Awaited;
use turnstream_operators::consistency::Judge;
use turnstream_operators::documents::SearchDocuments;
use turnstream_operators::form::Form;
use turnstream_operators::gate::learned::LearnedGate;
use turnstream_operators::history::cache::{MemoryCache, ScopeCache};
use turnstream_operators::history::preparation::{Preparing, SummariesConfig};
use turnstream_operators::history::similarity::Similarity;
use turnstream_operators::history::{Keeping, ResponseSource, Rules};
use turnstream_operators::ingest::{InputTopic, OnAgentReply};
use turnstream_operators::integration::Attention;
use turnstream_operators::knowledge::{Graph, Knowledge, LiveCounts};
use turnstream_operators::model::unified::Unified;
use turnstream_operators::model::{Embed, Listener, Score};
use turnstream_operators::prompted::{LanguageModels, PromptError, Prompts};
use turnstream_operators::resources::Resources;
use turnstream_operators::sources::{SourceConfig, SourceKind, Sources, SourcesError};
use turnstream_operators::stage::{Clock, OnFailure};
use turnstream_operators::tables::Tables;
use turnstream_operators::timers::Timers;
use turnstream_schemas::Stage;

use crate::config::Config;
use crate::documents::{self, Documents, DocumentsError};
use crate::knowledge::{self, KnowledgeError};
use crate::log::Topic;
use crate::meaning::{Meaning, MeaningError};
use crate::metrics::Metrics;
use crate::model::answers::Recording;
use crate::model::attention::AttentionError;
use crate::model::consistency::ConsistencyError;
use crate::model::gate::GateError;
use crate::model::language::{self, AnswerFiles, LanguageModelError};
use crate::model::{self, ModelError, Started};
use crate::tables::{self, TableError};

/// What a dataflow is built from: shared by all workers of a process.
#[derive(Clone)]
pub struct Parts {
    /// The configuration.
    pub config: Arc<Config>,
    /// The graph.
    pub graph: Arc<Graph>,
    /// The sources that turns can ask.
    pub sources: Arc<Sources>,
    /// The rows of those that are tables.
    pub tables: Arc<Tables>,
    /// The documents, where there are any.
    pub documents: Option<Arc<dyn SearchDocuments>>,
    /// How far the live knowledge differs from the graph; counted by the first worker.
    pub live: Arc<LiveCounts>,
    /// The language models, by their names in the configuration.
    pub language_models: LanguageModels,
    /// The prompts of the stages in prompted form.
    pub prompts: Prompts,
    /// Is told of responses as they are written, where somebody reads along.
    pub listener: Option<Listener>,
    /// What facts are ranked by in meaning.
    pub meaning: Meaning,
    /// The trained gate, where the gate is learned.
    pub gate: Option<Arc<dyn LearnedGate>>,
    /// The trained judge of consistency, where it is configured.
    pub consistency: Option<Judge>,
    /// Trained weights of attention, where they are configured.
    pub attention: Option<Arc<Attention>>,
    /// What turns texts into vectors, where it is configured.
    pub embed: Option<Arc<Embed>>,
    /// What scores pairs of texts, where it is configured.
    pub score: Option<Arc<Score>>,
    /// The unified model, where it is configured.
    pub unified: Option<Arc<Unified>>,
    /// Where the histories of idle scopes lie, and a changelog is restored to.
    pub cache: Arc<dyn ScopeCache>,
    /// Whose words enter history.
    pub source: ResponseSource,
    /// Whether history changes are committed.
    pub publish_changes: bool,
    /// Whether responses carry timings.
    pub timings: bool,
    /// The input topic.
    pub topic: InputTopic,
    /// Answers that came for turns that had ended otherwise.
    pub late_answers: Arc<AtomicU64>,
    /// What is counted and observed, for who watches the process.
    pub metrics: Metrics,
}

/// Why a dataflow has not what it needs.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    /// The graph cannot be opened.
    #[error(transparent)]
    Knowledge(#[from] KnowledgeError),
    /// A model cannot be used.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The trained gate cannot be used.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The sources have no order.
    #[error(transparent)]
    Sources(#[from] SourcesError),
    /// The judge of consistency cannot be used.
    #[error(transparent)]
    Consistency(#[from] ConsistencyError),
    /// Trained weights of attention cannot be used.
    #[error(transparent)]
    Attention(#[from] AttentionError),
    /// A prompt cannot be used.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// Facts cannot be ranked by meaning.
    #[error(transparent)]
    Meaning(#[from] MeaningError),
}

/// Why the sources that are configured cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum SourcesUnusable {
    /// The documents.
    #[error(transparent)]
    Documents(#[from] DocumentsError),
    /// The rows of a table.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// The sources where none are configured: the graph, the sentences that turns bring about their users,
/// and the documents, where there are any.
fn implied(documents: bool) -> Sources {
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
    [source_planning.form, relevance.form].contains(&Form::Learned)
        || (generation.form == Form::Learned && has_table)
}

impl Parts {
    /// The parts of a live engine: the graph and the models that the configuration names, the
    /// English words, the cache of histories in memory, and everything published.
    ///
    /// # Errors
    /// The graph or a model cannot be opened.
    pub fn new(config: Config) -> Result<Self, PartsError> {
        let metrics = Metrics::new(&config.metrics);
        Self::counted(config, metrics)
    }

    /// The same, counted in metrics that are there already.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn counted(config: Config, metrics: Metrics) -> Result<Self, PartsError> {
        let graph = Arc::new(knowledge::open(&config.knowledge.snapshot.to_string())?);
        let encoder = model::encoder_counted(&config.models, metrics.remote("embedder"))?;
        let meaning = Meaning::open(&config, &graph, encoder.as_ref())?;
        let prompts = config.prompts()?;
        let sources = match config.sources.is_empty() {
            true => implied(config.documents.directory.is_some()),
            false => Sources::new(&config.sources)?,
        };
        let weights = asks_unified(&config, &sources).then_some(&config.models.unified);
        let Started { embed, score, unified } =
            model::start(&config.models, encoder, weights, &metrics)?;
        let gate = model::gate::configured(&config.gate, &sources)?;
        let consistency = model::consistency::configured(&config.consistency)?;
        let attention =
            model::attention::configured(&config.integration, meaning.identity.as_ref())?;
        Ok(Self {
            sources: Arc::new(sources),
            gate,
            consistency,
            attention,
            meaning,
            embed,
            score,
            unified,
            prompts,
            metrics,
            ..Self::with_graph(config, graph)
        })
    }

    /// The same with a graph that is there already, and without models.
    pub fn with_graph(config: Config, graph: Arc<Graph>) -> Self {
        let metrics = Metrics::new(&config.metrics);
        Self {
            config: Arc::new(config),
            graph,
            sources: Arc::new(implied(false)),
            tables: Arc::default(),
            documents: None,
            live: Arc::default(),
            language_models: LanguageModels::new(),
            prompts: Prompts::default(),
            listener: None,
            meaning: Meaning::none(),
            gate: None,
            consistency: None,
            attention: None,
            embed: None,
            score: None,
            unified: None,
            cache: Arc::<MemoryCache>::default(),
            source: ResponseSource::Live,
            publish_changes: true,
            timings: true,
            topic: Topic::Turns.name().into(),
            late_answers: Arc::default(),
            metrics,
        }
    }

    /// The same with the language models that the stages in prompted form name; and the recording
    /// of their answers, where there is to be one.
    ///
    /// # Errors
    /// A model cannot be used, or a file of answers.
    pub fn with_language_models(
        mut self,
        files: &AnswerFiles,
    ) -> Result<(Self, Option<Recording>), LanguageModelError> {
        let (models, recording) = language::start(&self.config, files, &self.metrics)?;
        self.language_models = models;
        Ok((self, recording))
    }

    /// The same with what the sources hold that the configuration names: the rows of its tables, and the
    /// documents, where it names any.
    ///
    /// # Errors
    /// They cannot be opened.
    pub fn with_sources(mut self) -> Result<Self, SourcesUnusable> {
        self = self.with_documents()?;
        self.tables = Arc::new(tables::open(&self.config.sources)?);
        Ok(self)
    }

    fn with_documents(mut self) -> Result<Self, DocumentsError> {
        let config = &self.config.documents;
        if let Some(folder) = &config.directory {
            let documents = Documents::open(folder, config)?;
            match (&self.meaning.identity, &documents.extent().encoder) {
                (Some((name, fingerprint)), _) => documents.check_encoder(name, *fingerprint)?,
                (None, Some(stored)) => tracing::warn!(
                    encoder = stored.name,
                    "the documents have vectors, and models.embedder is \"none\": they are \
                     searched by words alone"
                ),
                (None, None) => {}
            }
            self.documents = Some(Arc::new(documents));
        }
        Ok(self)
    }

    /// What `history` goes by. A replay always answers, whoever speaks meanwhile.
    pub fn rules(&self) -> Rules {
        let on_agent_reply = match self.source {
            ResponseSource::Live => self.config.turns.on_agent_reply,
            ResponseSource::Recorded | ResponseSource::Generated => OnAgentReply::Answer,
        };
        Rules {
            config: self.config.history.clone(),
            similarity: self.similarity(),
            on_agent_reply,
            source: self.source,
            publish_changes: self.publish_changes,
            observer: self.metrics.stage_observer(),
        }
    }

    /// What histories are compared by: an encoder that is called in place, one that has to be waited
    /// for, or words.
    fn similarity(&self) -> Similarity {
        let awaited = self.embed.as_ref().filter(|_| self.config.history.preparation.enabled);
        match (&self.meaning.encoder, awaited.and(self.meaning.identity.as_ref())) {
            (Some(encoder), _) => Similarity::by_meaning(Arc::clone(encoder)),
            (None, Some((name, fingerprint))) => Similarity::by_awaited_meaning(name, *fingerprint),
            (None, None) => Similarity::by_words(),
        }
    }

    /// Where scopes stay that are idle.
    pub fn keeping(&self, means: &Resources) -> Keeping {
        let (timers, awaited) = (means.timers.clone(), means.awaited.clone());
        let config = &self.config.history.preparation;
        let embed = self.embed.clone().filter(|_| config.enabled);
        let SummariesConfig { form, prompted, .. } = &self.config.history.summaries;
        let summaries = means.asking(Stage::History, *form, prompted, OnFailure::Degrade);
        let preparing = (embed.is_some() || summaries.is_some()).then(|| Preparing {
            embed,
            summaries,
            call: config.call.clone(),
            shell: means.shell(OnFailure::Degrade),
            timers: timers.clone(),
            awaited: awaited.clone(),
        });
        Keeping { cache: Arc::clone(&self.cache), timers, awaited, preparing }
    }

    /// What the deciding stages of one worker share.
    pub fn means(&self, knowledge: Knowledge, clock: Clock, timers: Timers) -> Resources {
        Resources {
            knowledge,
            sources: Arc::clone(&self.sources),
            tables: Arc::clone(&self.tables),
            documents: self.documents.clone(),
            clock,
            observer: self.metrics.stage_observer(),
            timers,
            awaited: Awaited::default(),
            language_models: self.language_models.clone(),
            prompts: self.prompts.clone(),
            listener: self.listener.clone(),
            gate: self.gate.clone(),
            consistency: self.consistency.clone(),
            attention: self.attention.clone(),
            embed: self.embed.clone(),
            encoder: self.meaning.encoder.clone(),
            meaning: self.meaning.of_facts(),
            score: self.score.clone(),
            unified: self.unified.clone(),
        }
    }

    /// Counts a late answer.
    pub fn count_late_answers(&self) -> impl Fn() + 'static {
        let late = Arc::clone(&self.late_answers);
        let counted = self.metrics.outcomes().late_answers.clone();
        move || {
            late.fetch_add(1, Ordering::Relaxed);
            counted.inc();
        }
    }
}
