//! The dependencies that the dataflows of a process share: the graph, the documents and the models
//! that the configuration names. A process opens them once, at its start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use turnstream_knowledge::phrasings::Phrasings;
use turnstream_knowledge::{Graph, Knowledge, LiveCounts};
use turnstream_log::Topic;
use turnstream_models::answers::Recording;
use turnstream_models::language::AnswerFiles;
use turnstream_operators::attention::Attention;
use turnstream_operators::awaited::Awaited;
use turnstream_operators::history::preparation::Preparing;
use turnstream_operators::history::sequence::Fragmenting;
use turnstream_operators::history::similarity::Similarity;
use turnstream_operators::history::{HistoryConfig, Keeping, ResponseSource, Rules};
use turnstream_operators::ingest::{AgentTurns, InputTopic, OnAgentReply};
use turnstream_operators::judge::Judge;
use turnstream_operators::prompted::ReadAlong;
use turnstream_operators::prompted::{Prompting, Prompts};
use turnstream_operators::sources::Sources;
use turnstream_operators::stage::{Clock, StageRunner};
use turnstream_operators::stage_context::StageContext;
use turnstream_operators::tables::Tables;
use turnstream_operators::timers::Timers;
use turnstream_ports::cache::{MemoryCache, ScopeCache};
use turnstream_ports::documents::SearchDocuments;
use turnstream_ports::model::gate::{LearnedGate, NeedJudge};
use turnstream_ports::model::reader::Read;
use turnstream_ports::model::unified::Unified;
use turnstream_ports::model::{Embed, LanguageModels, Score};

use crate::config::Config;
use crate::digests::Digests;
use crate::meaning::Meaning;
use crate::metrics::Metrics;
use crate::teaching::Teaching;

mod opening;
pub mod trained;

pub use opening::{DependencyError, Reach, Unusable};

use opening::{OpeningDependencies, implied};

/// The dependencies of a dataflow. All workers of a process share them.
#[derive(Clone)]
pub struct Dependencies {
    /// The configuration.
    pub config: Arc<Config>,
    /// The snapshot of the graph.
    pub graph: Arc<Graph>,
    /// The sources that turns can ask.
    pub sources: Arc<Sources>,
    /// The rows of the sources that are tables.
    pub tables: Arc<Tables>,
    /// The documents, if a store is configured.
    pub documents: Option<Arc<dyn SearchDocuments>>,
    /// The size of the live knowledge; the first worker writes it.
    pub live: Arc<LiveCounts>,
    /// The language models, by their names in the configuration.
    pub language_models: LanguageModels,
    /// The prompts of the stages in prompted form.
    pub prompts: Prompts,
    /// Receives partial responses while models write them; `None` disables them.
    pub read_along: Option<ReadAlong>,
    /// The encoder and the vectors that rank facts by meaning.
    pub meaning: Meaning,
    /// The trained gate, if the configured form asks one.
    pub gate: Option<Arc<dyn LearnedGate>>,
    /// The language model with an adapter of the gate, if configured.
    pub need_judge: Option<NeedJudge>,
    /// The trained judge of consistency, if configured.
    pub consistency: Option<Judge>,
    /// The trained weights of attention, if configured.
    pub attention: Option<Arc<Attention>>,
    /// The encoder behind a queue, if the configured one is too slow to be called in place.
    pub embed: Option<Arc<Embed>>,
    /// The scorer of pairs of texts, if configured.
    pub score: Option<Arc<Score>>,
    /// The reader's vectors of questions, if documents or tables are searched by them.
    pub questions: Option<Arc<Embed>>,
    /// The phrasings of the file; the `knowledge` topic changes them.
    pub phrasings: Phrasings,
    /// Finds what further phrasings lead to.
    pub teaching: Arc<Teaching>,
    /// The reader, if the decision asks it.
    pub reader: Option<Arc<Read>>,
    /// The unified model, if a stage asks it.
    pub unified: Option<Arc<Unified>>,
    /// Holds the histories of idle scopes. Changelogs are restored into it.
    pub cache: Arc<dyn ScopeCache>,
    /// The source of the responses that enter history.
    pub source: ResponseSource,
    /// Whether the committer writes the changes of histories.
    pub publish_changes: bool,
    /// Whether the committer writes the holders of conversations.
    pub publish_conversations: bool,
    /// Whether responses carry timings.
    pub timings: bool,
    /// The input topic.
    pub topic: InputTopic,
    /// Counts the answers to turns that had already ended in another way.
    pub late_answers: Arc<AtomicU64>,
    /// The metrics of the process.
    pub metrics: Metrics,
    /// The digests whose fingerprint responses carry; `None` if they carry none.
    pub made_by: Option<Arc<Digests>>,
}

impl Dependencies {
    /// Opens the dependencies of a live engine, without language models and with the cache of
    /// histories in memory.
    ///
    /// # Errors
    /// [`DependencyError::Unusable`], which lists every part that cannot be used with its key.
    pub fn new(config: &Config) -> Result<Self, DependencyError> {
        Self::counted(config, &Metrics::new(&config.metrics))
    }

    /// As [`Self::new`], with existing metrics.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn counted(config: &Config, metrics: &Metrics) -> Result<Self, DependencyError> {
        let mut opening = OpeningDependencies::new(config, metrics, Reach::Servers);
        let dependencies = opening.dependencies();
        opening.finish(dependencies)
    }

    /// As [`Self::counted`], with the language models that stages in prompted form name. Also
    /// returns the recording of their answers, if `files` asks for one.
    ///
    /// # Errors
    /// As for [`Self::new`], or a file of answers cannot be used.
    pub fn open(
        config: &Config,
        metrics: &Metrics,
        files: &AnswerFiles,
        reach: Reach,
    ) -> Result<(Self, Option<Recording>), DependencyError> {
        let mut opening = OpeningDependencies::new(config, metrics, reach);
        let (language_models, recording) = opening.language_models(files)?;
        let dependencies = opening.dependencies();
        let dependencies = opening.finish(dependencies)?;
        Ok((Self { language_models, ..dependencies }, recording))
    }

    /// Builds dependencies on an open graph, without models.
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
            read_along: None,
            meaning: Meaning::none(),
            gate: None,
            need_judge: None,
            consistency: None,
            attention: None,
            embed: None,
            score: None,
            questions: None,
            phrasings: Phrasings::default(),
            teaching: Arc::default(),
            reader: None,
            unified: None,
            cache: Arc::<MemoryCache>::default(),
            source: ResponseSource::Live,
            publish_changes: true,
            publish_conversations: true,
            timings: true,
            topic: Topic::Turns.name().into(),
            late_answers: Arc::default(),
            metrics,
            made_by: None,
        }
    }

    /// Returns the rules of `history`. In a replay, an agent's reply supersedes no answer and takes
    /// over no conversation.
    pub fn rules(&self) -> Rules {
        let turns = &self.config.turns;
        let (on_agent_reply, agent_turns) = match self.source {
            ResponseSource::Live => (turns.on_agent_reply, turns.agent_turns),
            ResponseSource::Recorded | ResponseSource::Generated => {
                (OnAgentReply::Answer, AgentTurns::Beside)
            }
        };
        Rules {
            config: self.config.history.clone(),
            similarity: self.similarity(),
            response_texts: Arc::new(self.config.decision.texts.response_texts()),
            on_agent_reply,
            agent_turns,
            handover: self.config.handover.clone(),
            fragmenting: Fragmenting {
                burst_ms: turns.burst_ms,
                max_text_bytes: turns.max_text_bytes,
            },
            source: self.source,
            publish_changes: self.publish_changes,
            observer: self.metrics.stage_observer(),
        }
    }

    /// Returns how histories compare texts: by an encoder that is called in place, by one that
    /// answers later, or by words.
    fn similarity(&self) -> Similarity {
        let awaited = self.embed.as_ref().filter(|_| self.config.history.preparation.enabled);
        match (&self.meaning.encoder, awaited.and(self.meaning.identity.as_ref())) {
            (Some(encoder), _) => Similarity::by_meaning(Arc::clone(encoder)),
            (None, Some((name, fingerprint))) => Similarity::by_awaited_meaning(name, *fingerprint),
            (None, None) => Similarity::by_words(),
        }
    }

    /// Returns the parts that `history` needs to keep idle scopes and to ask models before a
    /// recall.
    pub fn keeping(&self, context: &StageContext) -> Keeping {
        let StageContext { runner, prompting, embed, .. } = context.clone();
        let HistoryConfig { preparation, summaries, .. } = &self.config.history;
        let preparing = Preparing::new(embed, preparation, summaries, &prompting, &runner);
        let StageRunner { timers, awaited, .. } = runner;
        Keeping { cache: Arc::clone(&self.cache), timers, awaited, preparing }
    }

    /// The context of the stages on one worker.
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
            read_along: self.read_along.clone(),
            gate: self.gate.clone(),
            need_judge: self.need_judge.clone(),
            consistency: self.consistency.clone(),
            attention: self.attention.clone(),
            embed: self.embed.clone(),
            encoder: self.meaning.encoder.clone(),
            meaning: self.meaning.of_facts(),
            score: self.score.clone(),
            questions: self.questions.clone(),
            response_texts: Arc::new(self.config.decision.texts.response_texts()),
            reader: self.reader.clone(),
            unified: self.unified.clone(),
        }
    }

    /// Returns a function that counts one late answer.
    pub fn count_late_answers(&self) -> impl Fn() + 'static {
        let late = Arc::clone(&self.late_answers);
        let counted = self.metrics.outcomes().late_answers.clone();
        move || {
            late.fetch_add(1, Ordering::Relaxed);
            counted.inc();
        }
    }
}
