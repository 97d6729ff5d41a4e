//! What the dataflow is built from: the graph, the documents and the models that the configuration
//! names, opened once and shared by all workers of a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use turnstream_knowledge::{Graph, Knowledge, LiveCounts};
use turnstream_log::Topic;
use turnstream_models::answers::Recording;
use turnstream_models::language::AnswerFiles;
use turnstream_operators::awaited::Awaited;
use turnstream_operators::consistency::Judge;
use turnstream_operators::history::preparation::Preparing;
use turnstream_operators::history::similarity::Similarity;
use turnstream_operators::history::{HistoryConfig, Keeping, ResponseSource, Rules};
use turnstream_operators::ingest::{InputTopic, OnAgentReply};
use turnstream_operators::integration::Attention;
use turnstream_operators::prompted::{Prompting, Prompts};
use turnstream_operators::sources::Sources;
use turnstream_operators::stage::{Clock, StageRunner};
use turnstream_operators::stage_context::StageContext;
use turnstream_operators::tables::Tables;
use turnstream_operators::timers::Timers;
use turnstream_ports::cache::{MemoryCache, ScopeCache};
use turnstream_ports::documents::SearchDocuments;
use turnstream_ports::model::gate::LearnedGate;
use turnstream_ports::model::unified::Unified;
use turnstream_ports::model::{Embed, LanguageModels, Listener, Score};

use crate::config::Config;
use crate::meaning::Meaning;
use crate::metrics::Metrics;

mod opening;
pub mod trained;

pub use opening::{PartsError, Reach, Unusable};

use opening::{OpeningParts, implied};

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

impl Parts {
    /// The parts of a live engine: everything that the configuration names but language models, the
    /// English words, the cache of histories in memory, and everything published.
    ///
    /// # Errors
    /// Everything that cannot be opened, by its key.
    pub fn new(config: &Config) -> Result<Self, PartsError> {
        Self::counted(config, &Metrics::new(&config.metrics))
    }

    /// The same, counted in metrics that are there already.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn counted(config: &Config, metrics: &Metrics) -> Result<Self, PartsError> {
        let mut opening = OpeningParts::new(config, metrics, Reach::Servers);
        let parts = opening.parts();
        opening.finish(parts)
    }

    /// The same with the language models that the stages in prompted form name; and the recording
    /// of their answers, where there is to be one.
    ///
    /// # Errors
    /// Everything that cannot be opened, by its key; or a file of answers.
    pub fn open(
        config: &Config,
        metrics: &Metrics,
        files: &AnswerFiles,
        reach: Reach,
    ) -> Result<(Self, Option<Recording>), PartsError> {
        let mut opening = OpeningParts::new(config, metrics, reach);
        let (language_models, recording) = opening.language_models(files)?;
        let parts = opening.parts();
        let parts = opening.finish(parts)?;
        Ok((Self { language_models, ..parts }, recording))
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
    pub fn keeping(&self, context: &StageContext) -> Keeping {
        let StageContext { runner, prompting, embed, .. } = context.clone();
        let HistoryConfig { preparation, summaries, .. } = &self.config.history;
        let preparing = Preparing::new(embed, preparation, summaries, &prompting, &runner);
        let StageRunner { timers, awaited, .. } = runner;
        Keeping { cache: Arc::clone(&self.cache), timers, awaited, preparing }
    }

    /// What the stages of one worker are made from.
    pub fn stage_context(
        &self,
        knowledge: Knowledge,
        clock: Clock,
        timers: Timers,
    ) -> StageContext {
        let (observer, awaited) = (self.metrics.stage_observer(), Awaited::default());
        StageContext {
            runner: StageRunner { clock, observer, timers, awaited },
            knowledge,
            sources: Arc::clone(&self.sources),
            tables: Arc::clone(&self.tables),
            documents: self.documents.clone(),
            prompting: Prompting {
                language_models: self.language_models.clone(),
                prompts: self.prompts.clone(),
            },
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
