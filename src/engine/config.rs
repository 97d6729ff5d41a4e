//! The configuration: one strict tree, composed of the config struct in each operator's file.
//!
//! A TOML file has a table per part of the engine. Flags override the file, and the file overrides
//! the defaults, which are a working configuration. Strings may name variables of the environment,
//! as `${NAME}` or `${NAME:default}`. Problems are reported all at once with file, line, key and
//! remedy: see [`read`]. `turnstream validate --print` writes the documentation of the structs
//! above each key.
//!
//! Fields declare ranges with `#[schemars(range(…))]`, and the schema checks them. [`Validate`]
//! checks what needs more than one key.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_gateway::GatewayConfig;
use turnstream_log::embedded::EmbeddedConfig;
use turnstream_log::kafka::KafkaConfig;
use turnstream_models::ModelsConfig;
use turnstream_models::language::LanguageModelsConfig;
use turnstream_operators::consistency::ConsistencyConfig;
use turnstream_operators::cross_revision::CrossRevisionConfig;
use turnstream_operators::decision::DecisionConfig;
use turnstream_operators::document_retrieval::DocumentRetrievalConfig;
use turnstream_operators::embedding::EmbeddingConfig;
use turnstream_operators::fact_retrieval::FactRetrievalConfig;
use turnstream_operators::fact_selection::FactSelectionConfig;
use turnstream_operators::gate::GateConfig;
use turnstream_operators::generation::GenerationConfig;
use turnstream_operators::history::HistoryConfig;
use turnstream_operators::history::handover::HandoverConfig;
use turnstream_operators::ingest::TurnsConfig;
use turnstream_operators::integration::IntegrationConfig;
use turnstream_operators::persona_retrieval::PersonaRetrievalConfig;
use turnstream_operators::prompted::PromptedConfig;
use turnstream_operators::query_production::QueryProductionConfig;
use turnstream_operators::relevance::RelevanceConfig;
use turnstream_operators::self_refinement::SelfRefinementConfig;
use turnstream_operators::source_planning::SourcePlanningConfig;
use turnstream_operators::sources::SourcesConfig;
use turnstream_operators::stage_config::StageConfig;
use turnstream_operators::table_retrieval::TableRetrievalConfig;
use turnstream_operators::topic_planning::TopicPlanningConfig;
use turnstream_schemas::Stage;
use turnstream_sources::documents::DocumentsConfig;
use turnstream_sources::phrasings::TeachingConfig;

use crate::commit::{CommitConfig, ResponsesConfig, TracePlace};
use crate::metrics::MetricsConfig;
use crate::views::ViewsConfig;

mod checks;
mod document;
mod interpolate;
mod load;
mod print;
mod problem;
mod schema;
mod shape;
#[cfg(test)]
mod tests;

pub use load::{Checks, Loaded, Validate, load, read};
pub use print::PrintError;
pub use problem::{ConfigError, KeyPath, Problem};

/// The configuration of turnstream.
///
/// Every key may be left out; the values in `deploy/config/turnstream.toml` then hold. Strings may
/// name variables of the environment: `${NAME}` must be set, `${NAME:default}` need not be, and
/// `$$` is a dollar sign. A string that names a variable may stand for a number or for true or
/// false. `turnstream validate --config FILE` says what is wrong with a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What counts as a turn, and how many may be in flight.
    pub turns: TurnsConfig,
    /// How conversations change hands between the engine and people.
    pub handover: HandoverConfig,
    /// How much of a conversation is remembered, and what is recalled.
    pub history: HistoryConfig,
    /// Whether a turn asks for knowledge at all.
    pub gate: GateConfig,
    /// The dialogue as a vector.
    pub embedding: EmbeddingConfig,
    /// Which sources a turn asks.
    pub source_planning: SourcePlanningConfig,
    /// Which concepts are asked for.
    pub query_production: QueryProductionConfig,
    /// Which topics the conversation maintains or extends.
    pub topic_planning: TopicPlanningConfig,
    /// How queries and topics repair each other.
    pub cross_revision: CrossRevisionConfig,
    /// Which facts of the graph are candidates.
    pub fact_retrieval: FactRetrievalConfig,
    /// Which rows of tables are candidates.
    pub table_retrieval: TableRetrievalConfig,
    /// Which sentences of personas are candidates.
    pub persona_retrieval: PersonaRetrievalConfig,
    /// Which passages of the documents are candidates.
    pub document_retrieval: DocumentRetrievalConfig,
    /// How relevant each candidate is, by one judge for all sources.
    pub relevance: RelevanceConfig,
    /// Which candidates a response may be made of.
    pub fact_selection: FactSelectionConfig,
    /// What a response does: answer, ask, decline, hand over to a person, or be social.
    pub decision: DecisionConfig,
    /// How evidence and history are weighed together.
    pub integration: IntegrationConfig,
    /// How a response is put into words.
    pub generation: GenerationConfig,
    /// How well a response agrees with each piece of evidence that it was made from.
    pub consistency: ConsistencyConfig,
    /// How a response is made anew from better evidence.
    pub self_refinement: SelfRefinementConfig,
    /// The sources that turns can ask, by name; `docs/sources.md` has examples.
    pub sources: SourcesConfig,
    /// Which graph of facts is asked.
    pub knowledge: KnowledgeConfig,
    /// Which models there are, and how much they may take.
    pub models: ModelsConfig,
    /// The language models that stages in prompted form can ask, by name; `docs/language-models.md`
    /// has examples.
    pub language_models: LanguageModelsConfig,
    /// Which documents are asked, in addition to the graph.
    pub documents: DocumentsConfig,
    /// The phrasings that a company's staff taught.
    pub teaching: TeachingConfig,
    /// Where turns come from and outcomes go.
    pub log: LogConfig,
    /// Which parts of responses are published, and where.
    pub responses: ResponsesConfig,
    /// How often outcomes become visible.
    pub commit: CommitConfig,
    /// How the process runs.
    pub run: RunConfig,
    /// Where metrics and health are served.
    pub metrics: MetricsConfig,
    /// The counts over responses, histories and knowledge (`turnstream views`).
    pub views: ViewsConfig,
    /// HTTP in front of the topics (`turnstream gateway`).
    pub gateway: GatewayConfig,
}

impl Config {
    /// Changes what a replay into files has to have otherwise: it commits at once, keeps the path of
    /// a turn in its response, and takes logged turns of any age.
    pub fn set_for_replay(&mut self) {
        self.commit.interval_ms = 0;
        self.responses.trace = TracePlace::Inline;
        self.turns.max_timestamp_skew_seconds = 0;
    }

    /// The sections of the stages that turns pass through, in the order of the sections.
    pub fn stages(&self) -> [(Stage, &dyn StageConfig); 17] {
        [
            (Stage::Gate, &self.gate),
            (Stage::Embedding, &self.embedding),
            (Stage::SourcePlanning, &self.source_planning),
            (Stage::QueryProduction, &self.query_production),
            (Stage::TopicPlanning, &self.topic_planning),
            (Stage::CrossRevision, &self.cross_revision),
            (Stage::FactRetrieval, &self.fact_retrieval),
            (Stage::TableRetrieval, &self.table_retrieval),
            (Stage::PersonaRetrieval, &self.persona_retrieval),
            (Stage::DocumentRetrieval, &self.document_retrieval),
            (Stage::Relevance, &self.relevance),
            (Stage::FactSelection, &self.fact_selection),
            (Stage::Decision, &self.decision),
            (Stage::Integration, &self.integration),
            (Stage::Generation, &self.generation),
            (Stage::Consistency, &self.consistency),
            (Stage::SelfRefinement, &self.self_refinement),
        ]
    }

    /// The stages in prompted form, each with its configuration.
    pub fn prompted(&self) -> impl Iterator<Item = (Stage, &PromptedConfig)> {
        let summaries: (_, &dyn StageConfig) = (Stage::History, &self.history.summaries);
        let stages = self.stages().into_iter().chain([summaries]);
        stages.filter_map(|(stage, section)| Some((stage, section.prompted()?)))
    }
}

/// Which graph of facts is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KnowledgeConfig {
    /// `"pack"` for the English pack that the program carries, or the path of a snapshot that
    /// `turnstream knowledge import` wrote. Relative paths start at the working directory.
    pub snapshot: Snapshot,
    /// Whether `turnstream run` follows the log's topic of knowledge and uses its changes
    /// (`turnstream knowledge put` and `delete`) beside the snapshot while turns flow. The topic
    /// must exist.
    pub live: bool,
    /// The most statements that may differ from the snapshot, 1 or more; each is held in memory by
    /// every worker. With more the process stops: import them into a new snapshot.
    #[schemars(range(min = 1))]
    pub max_live_changes: u64,
}

impl Default for KnowledgeConfig {
    fn default() -> Self {
        Self { snapshot: Snapshot::default(), live: true, max_live_changes: 1_000_000 }
    }
}

/// Where the graph comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Snapshot {
    /// The pack that the program carries, written `pack`.
    #[default]
    Pack,
    /// A snapshot file.
    File(PathBuf),
}

impl From<String> for Snapshot {
    fn from(text: String) -> Self {
        if text == "pack" { Self::Pack } else { Self::File(PathBuf::from(text)) }
    }
}

impl From<Snapshot> for String {
    fn from(snapshot: Snapshot) -> Self {
        snapshot.to_string()
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pack => out.write_str("pack"),
            Self::File(path) => write!(out, "{}", path.display()),
        }
    }
}

impl JsonSchema for Snapshot {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Snapshot".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1 })
    }
}

/// Where turns come from and outcomes go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// `kafka`, or `embedded` for a log in a directory of this machine that needs no broker.
    pub kind: LogKind,
    /// The directory of the embedded log, created if it is missing; required if `kind` is
    /// `embedded`. Relative paths start at the working directory.
    pub directory: Option<PathBuf>,
    /// How to reach Kafka, and the bounds of its client; used if `kind` is `kafka`. Set security by
    /// librdkafka's names, and secrets through the environment:
    ///
    /// ```toml
    /// [log.kafka.client]
    /// "security.protocol" = "sasl_ssl"
    /// "sasl.mechanism" = "SCRAM-SHA-512"
    /// "sasl.username" = "turnstream"
    /// "sasl.password" = "${KAFKA_PASSWORD}"
    /// ```
    pub kafka: KafkaConfig,
    /// Bounds of the embedded log; used if `kind` is `embedded`.
    pub embedded: EmbeddedConfig,
}

/// The kind of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogKind {
    /// Apache Kafka.
    #[default]
    Kafka,
    /// A directory on this machine.
    Embedded,
}

/// How the process runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Workers of the dataflow in this process, 1 to 256: one thread each, over which scopes are
    /// spread. More processes in the same consumer group scale further. `--workers` overrides it.
    #[schemars(range(min = 1, max = Self::MAX_WORKERS))]
    pub workers: u32,
    /// The folder in which this process creates its own folder for the histories of idle scopes: a
    /// copy of the history topic's partitions that it serves, made at every assignment and deleted
    /// after it. It must be on a local disk, not in memory (`tmpfs`). The default is `histories` in
    /// `$TURNSTREAM_CACHE`, else in turnstream's folder in the user's cache folder; if that is not
    /// writable, in a folder of the user's among the system's temporary files.
    pub cache_directory: Option<PathBuf>,
    /// The largest size of one partition's histories there, in MiB, 1 or more. Only address space
    /// is reserved in advance.
    #[schemars(range(min = 1))]
    pub cache_map_size_mib: usize,
    /// Milliseconds after SIGTERM or SIGINT in which turns in flight may still end. Then the
    /// process commits those that have ended and stops; the next start answers the others. The
    /// supervisor must wait longer before it kills the process: this time and one transaction
    /// (`log.kafka.transaction_timeout_ms`).
    pub drain_at_most_ms: u64,
}

impl RunConfig {
    /// Most workers in a process.
    pub const MAX_WORKERS: u32 = 256;
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            workers: 1,
            cache_directory: None,
            cache_map_size_mib: 16 * 1024,
            drain_at_most_ms: 15_000,
        }
    }
}
