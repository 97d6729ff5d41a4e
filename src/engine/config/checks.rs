//! The checks of each section of the configuration.
//!
//! The schema already checks ranges, which the types declare. The checks here cover what needs more
//! than one key, or a look outside of the file. Messages never quote values: a value may
//! be a secret or come from the environment.

use std::net::SocketAddr;

use turnstream_log::kafka::{KafkaConfig, KafkaTopics, SettingProblem};
use turnstream_models::decoder::KeyProblem;
use turnstream_models::language::LanguageModelConfig;
use turnstream_models::remote::{Api, ConfigProblem};
use turnstream_models::{Embedder, ModelsConfig};
use turnstream_operators::consistency::ConsistencyForm;
use turnstream_operators::ingest::TurnsConfig;
use turnstream_operators::prompted::table_of;
use turnstream_operators::relevance::RelevanceForm;
use turnstream_operators::sources::{Sources, SourcesError};
use turnstream_ports::refused::Refused;
use turnstream_ports::remedy::parted;
use turnstream_schemas::SourceKind;
use turnstream_sources::documents::DocumentsConfig;

use super::{Checks, Config, KnowledgeConfig, LogConfig, LogKind, Snapshot, Validate};
use crate::metrics::MetricsConfig;
use crate::views::ViewsConfig;

#[cfg(test)]
mod tests;

impl Validate for Config {
    fn validate(&self, checks: &mut Checks) {
        checks.within("turns", |checks| self.turns.validate(checks));
        for (stage, section) in self.stages() {
            checks.within(stage.name(), |checks| refused(checks, &section.check()));
        }
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
    if let Err(Refused { key, needs, .. }) = checked {
        checks.problem(
            key,
            "it contradicts other keys of this section".to_owned(),
            format!("set {needs}"),
        );
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

impl Validate for TurnsConfig {
    fn validate(&self, checks: &mut Checks) {
        checks.ensure(
            self.max_record_bytes >= self.max_text_bytes,
            "max_record_bytes",
            "less than max_text_bytes: no record could hold so long a text",
            "raise it, or lower max_text_bytes",
        );
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

impl Validate for ViewsConfig {
    fn validate(&self, checks: &mut Checks) {
        address(checks, "metrics_address", self.metrics_address.as_deref());
    }
}
