//! The checks of each section of the configuration.
//!
//! The schema already checks ranges that a struct declares. The checks here cover what is
//! documented in words and what needs more than one key. Messages never quote values: a value may
//! be a secret or come from the environment.

use std::net::SocketAddr;

use turnstream_knowledge::linking::LinkingConfig;
use turnstream_log::embedded::EmbeddedConfig;
use turnstream_log::kafka::{KafkaConfig, KafkaTopics, SettingProblem};
use turnstream_models::decoder::KeyProblem;
use turnstream_models::language::LanguageModelConfig;
use turnstream_models::remote::{Api, ConfigProblem};
use turnstream_models::{Embedder, ModelsConfig};
use turnstream_operators::consistency::ConsistencyForm;
use turnstream_operators::history::HistoryConfig;
use turnstream_operators::ingest::TurnsConfig;
use turnstream_operators::prompted::table_of;
use turnstream_operators::relevance::RelevanceForm;
use turnstream_operators::sources::{Sources, SourcesError};
use turnstream_operators::stage_config::StageConfig;
use turnstream_ports::refused::Refused;
use turnstream_ports::remedy::parted;
use turnstream_schemas::SourceKind;
use turnstream_sources::documents::DocumentsConfig;

use super::{Checks, Config, KnowledgeConfig, LogConfig, LogKind, RunConfig, Snapshot, Validate};
use crate::commit::CommitConfig;
use crate::metrics::MetricsConfig;
use crate::views::ViewsConfig;

#[cfg(test)]
mod tests;

impl Validate for Config {
    fn validate(&self, checks: &mut Checks) {
        checks.within("turns", |checks| self.turns.validate(checks));
        checks.within("history", |checks| self.history.validate(checks));
        for (stage, section) in self.stages() {
            checks.within(stage.name(), |checks| refused(checks, &section.check()));
        }
        checks.within("gate", |checks| {
            checks.within("linking", |checks| self.gate.linking.validate(checks));
        });
        checks.within("sources", |checks| sources(checks, self));
        checks.within("relevance", |checks| {
            let scores =
                self.relevance.form != RelevanceForm::Encoder || self.models.scorer.is_some();
            let remedy = "set models.scorer to the folder of one";
            checks.ensure(
                scores,
                "form",
                "no model for scoring pairs of texts is configured",
                remedy,
            );
        });
        checks.within("self_refinement", |checks| {
            let is_judged = self.consistency.form != ConsistencyForm::Off;
            let remedy = "set consistency.form, for instance \"lexical\"";
            let judged = self.self_refinement.steps == 0 || is_judged;
            checks.ensure(judged, "steps", "refinement needs a judge of consistency", remedy);
        });
        checks.within("knowledge", |checks| self.knowledge.validate(checks));
        for (name, model) in &self.language_models {
            checks.within("language_models", |checks| {
                checks.within(name, |checks| model.validate(checks));
            });
        }
        for (stage, prompted) in self.prompted() {
            checks.ensure(
                self.language_models.contains_key(&prompted.model),
                &format!("{}.prompted.model", table_of(stage)),
                "no language model has this name",
                "add [language_models.NAME]; docs/language-models.md has examples",
            );
        }
        checks.within("models", |checks| self.models.validate(checks));
        checks.within("documents", |checks| self.documents.validate(checks));
        checks.within("log", |checks| self.log.validate(checks));
        checks.within("commit", |checks| self.commit.validate(checks));
        checks.within("run", |checks| self.run.validate(checks));
        checks.within("metrics", |checks| self.metrics.validate(checks));
        checks.within("views", |checks| self.views.validate(checks));
        if let Err(refused) = self.gateway.check() {
            let (message, remedy) = parted(&refused.to_string());
            checks.problem("gateway", message, remedy);
        }
    }
}

/// Reports why a stage refuses its own section.
fn refused(checks: &mut Checks, checked: &Result<(), Refused>) {
    match checked {
        Ok(()) => {}
        Err(Refused::Together { key, needs, .. }) => {
            checks.problem(
                key,
                "it contradicts other keys of this section".to_owned(),
                format!("set {needs}"),
            );
        }
        Err(Refused::Range { key, range, .. }) => {
            checks.problem(key, format!("expected {range}"), "");
        }
    }
}

/// Reports sources that cannot be ordered, and missing documents.
fn sources(checks: &mut Checks, config: &Config) {
    if let Err(SourcesError { name, key, reason, remedy }) = Sources::new(&config.sources) {
        checks.within(&name, |checks| checks.problem(key, reason, remedy));
    }
    for (name, source) in &config.sources {
        let is_there = source.kind != SourceKind::Documents || config.documents.directory.is_some();
        checks.within(name, |checks| {
            checks.ensure(
                is_there,
                "kind",
                "no documents are configured",
                "set documents.directory to their folder",
            );
        });
    }
}

/// Reports a count below 1.
fn at_least_one(checks: &mut Checks, counts: &[(&str, usize)]) {
    for (key, count) in counts {
        checks.ensure(*count > 0, key, "expected an integer of at least 1", "");
    }
}

/// Reports a share outside 0..=1.
fn fraction(checks: &mut Checks, key: &str, share: f64) {
    checks.ensure((0.0..=1.0).contains(&share), key, "expected a number from 0 to 1", "");
}

impl Validate for TurnsConfig {
    fn validate(&self, checks: &mut Checks) {
        at_least_one(
            checks,
            &[
                ("max_text_bytes", self.max_text_bytes),
                ("max_id_bytes", self.max_id_bytes),
                ("max_record_bytes", self.max_record_bytes),
                ("max_in_flight_per_partition", self.max_in_flight_per_partition),
                ("max_in_flight", self.max_in_flight),
            ],
        );
        checks.ensure(
            self.max_record_bytes >= self.max_text_bytes,
            "max_record_bytes",
            "less than max_text_bytes: no record could hold so long a text",
            "raise it, or lower max_text_bytes",
        );
    }
}

impl Validate for HistoryConfig {
    fn validate(&self, checks: &mut Checks) {
        checks.ensure(
            self.max_entries <= Self::MOST_ENTRIES,
            "max_entries",
            "expected an integer from 0 to 100000",
            "",
        );
        fraction(checks, "alpha", self.alpha);
        fraction(checks, "importance_share", self.importance_share);
        checks.ensure(
            self.half_life_seconds > 0,
            "half_life_seconds",
            "expected an integer of at least 1",
            "with a very short half-life, recency has no effect",
        );
        checks.within("recall", |checks| {
            let recall = &self.recall;
            fraction(checks, "min_relevance", recall.min_relevance);
            fraction(checks, "neighbour_weight", recall.neighbour_weight);
            fraction(checks, "meaning_share", recall.meaning_share);
            at_least_one(
                checks,
                &[
                    ("max_categories", recall.max_categories as usize),
                    ("max_groups", recall.max_groups as usize),
                    ("max_chains", recall.max_chains as usize),
                ],
            );
        });
        checks.within("clusters", |checks| {
            fraction(checks, "category_likeness", self.clusters.category_likeness);
            fraction(checks, "group_likeness", self.clusters.group_likeness);
            let bounds = [
                ("max_categories", self.clusters.max_categories as usize),
                ("max_groups", self.clusters.max_groups as usize),
            ];
            at_least_one(checks, &bounds);
        });
        checks.within("summaries", |checks| refused(checks, &self.summaries.check()));
        checks.within("chains", |checks| {
            fraction(checks, "min_likeness", self.chains.min_likeness);
            let bounds = [
                ("max_entries", self.chains.max_entries as usize),
                ("max_open", self.chains.max_open as usize),
            ];
            at_least_one(checks, &bounds);
        });
    }
}

impl Validate for KnowledgeConfig {
    fn validate(&self, checks: &mut Checks) {
        if let Snapshot::File(path) = &self.snapshot {
            checks.ensure(
                path.is_file(),
                "snapshot",
                "there is no such file",
                "make one with `turnstream knowledge import`, or write \"pack\" for the English \
                 pack that the program carries",
            );
        }
        let some = self.max_live_changes > 0;
        checks.ensure(some, "max_live_changes", "expected an integer of at least 1", "");
    }
}

impl Validate for DocumentsConfig {
    fn validate(&self, checks: &mut Checks) {
        if let Some(directory) = &self.directory {
            checks.ensure(
                directory.join("data.mdb").is_file(),
                "directory",
                "there are no documents in this folder",
                "make them with `turnstream documents import`, or leave the key out",
            );
        }
        at_least_one(
            checks,
            &[
                ("map_size_mib", self.map_size_mib),
                ("trees.trees", self.trees.trees as usize),
                ("trees.oversampling", self.trees.oversampling as usize),
            ],
        );
    }
}

impl Validate for RunConfig {
    fn validate(&self, checks: &mut Checks) {
        checks.ensure(
            (1..=Self::MAX_WORKERS).contains(&self.workers),
            "workers",
            "expected an integer from 1 to 256",
            "use at most one worker per core",
        );
        at_least_one(checks, &[("cache_map_size_mib", self.cache_map_size_mib)]);
    }
}

/// Reports an invalid server address, if one is set.
fn address(checks: &mut Checks, key: &str, address: Option<&str>) {
    checks.ensure(
        address.is_none_or(|address| address.parse::<SocketAddr>().is_ok()),
        key,
        "expected an IP address and a port",
        "write it as \"127.0.0.1:9464\" or \"[::1]:9464\"",
    );
}

impl Validate for MetricsConfig {
    fn validate(&self, checks: &mut Checks) {
        address(checks, "address", self.address.as_deref());
        for (key, seconds, least) in [
            ("live_stall_seconds", self.live_stall_seconds, 10),
            ("ready_stall_seconds", self.ready_stall_seconds, 1),
        ] {
            let message = format!("expected an integer of at least {least}");
            checks.ensure(seconds >= least, key, &message, "");
        }
    }
}

impl Validate for LinkingConfig {
    fn validate(&self, checks: &mut Checks) {
        let words = (1..=5).contains(&self.max_words);
        checks.ensure(words, "max_words", "expected an integer from 1 to 5", "");
        fraction(checks, "min_informativeness", f64::from(self.min_informativeness));
        at_least_one(checks, &[("max_mentions", self.max_mentions)]);
    }
}

impl Validate for LogConfig {
    fn validate(&self, checks: &mut Checks) {
        match self.kind {
            LogKind::Kafka => checks.within("kafka", |checks| self.kafka.validate(checks)),
            LogKind::Embedded => {
                checks.ensure(
                    self.directory.as_ref().is_some_and(|path| !path.as_os_str().is_empty()),
                    "directory",
                    "missing; the embedded log lives in a directory",
                    "name one",
                );
                checks.within("embedded", |checks| self.embedded.validate(checks));
            }
        }
    }
}

impl Validate for KafkaConfig {
    fn validate(&self, checks: &mut Checks) {
        for SettingProblem { keys, message, remedy } in self.problems() {
            checks.problem_at(keys.iter().map(String::as_str), message, remedy);
        }
        // `problems` cannot check this, because `turnstream views` replaces one id by the other.
        checks.ensure(
            self.views_transactional_id != self.transactional_id,
            "views_transactional_id",
            "the same as transactional_id",
            "name another; a process that takes an id fences the one that has it",
        );
        checks.within("topics", |checks| self.topics.validate(checks));
    }
}

impl Validate for LanguageModelConfig {
    fn validate(&self, checks: &mut Checks) {
        match self {
            Self::Remote(config) => {
                if let Err(ConfigProblem { key, problem, remedy }) = config.check() {
                    checks.problem(key, problem, remedy);
                }
            }
            Self::Local(config) => {
                if let Err(KeyProblem { key, problem }) = config.check() {
                    let (message, remedy) = parted(&format!("it {problem}"));
                    checks.problem(key, message, remedy);
                }
            }
        }
    }
}

impl Validate for ModelsConfig {
    fn validate(&self, checks: &mut Checks) {
        if self.embedder != Embedder::Server {
            return;
        }
        checks.within("server", |checks| {
            if let Err(ConfigProblem { key, problem, remedy }) = self.server.check() {
                checks.problem(key, problem, remedy);
            }
            let embeds = self.server.api == Api::Embeddings;
            checks.ensure(
                embeds,
                "api",
                "an encoder must serve embeddings",
                "write \"embeddings\"",
            );
        });
    }
}

impl Validate for KafkaTopics {
    fn validate(&self, checks: &mut Checks) {
        let names = [
            ("turns", &self.turns),
            ("responses", &self.responses),
            ("recorded", &self.recorded),
            ("dead_letters", &self.dead_letters),
            ("history", &self.history),
            ("knowledge", &self.knowledge),
            ("views", &self.views),
        ];
        for (at, (key, name)) in names.iter().enumerate() {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            let fits = (1..=249).contains(&name.len()) && name.bytes().all(plain);
            checks.ensure(
                fits && !matches!(name.as_str(), "." | ".."),
                key,
                "expected a topic's name",
                "write 1 to 249 letters of ASCII, digits, dots, dashes and underscores",
            );
            if let Some((other, _)) = names[..at].iter().find(|(_, it)| it == name) {
                checks.problem(key, format!("the same topic as {other}"), "name another topic");
            }
        }
    }
}

impl Validate for EmbeddedConfig {
    fn validate(&self, checks: &mut Checks) {
        let partitions = usize::try_from(self.partitions).unwrap_or(0);
        at_least_one(
            checks,
            &[
                ("partitions", partitions),
                ("poll_records", self.poll_records),
                ("map_size_mib", self.map_size_mib),
            ],
        );
    }
}

impl Validate for ViewsConfig {
    fn validate(&self, checks: &mut Checks) {
        address(checks, "metrics_address", self.metrics_address.as_deref());
        at_least_one(
            checks,
            &[
                ("max_batch_records", self.max_batch_records),
                ("max_rows", self.max_rows),
                ("max_statements", self.max_statements),
                ("max_entries", self.max_entries),
            ],
        );
    }
}

impl Validate for CommitConfig {
    fn validate(&self, checks: &mut Checks) {
        at_least_one(checks, &[("max_outcomes", self.max_outcomes)]);
    }
}
