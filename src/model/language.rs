//! The language models of a process, by the names that the configuration gives them; and the files
//! of answers that are written beside them, or read in their place.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_operators::model::Generate;
use turnstream_operators::prompted::LanguageModels;

use super::ModelError;
use super::answers::{Answers, AnswersError, Recording};
use super::decoder::{self, LocalConfig};
use super::remote::{self, RemoteConfig};
use crate::config::Config;
use crate::metrics::Metrics;

/// `[language_models.NAME]`: a model that the prompted form of stages can ask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LanguageModelConfig {
    /// On a server with OpenAI's interface.
    Remote(RemoteConfig),
    /// In this process.
    Local(LocalConfig),
}

/// All of them, by name.
pub type LanguageModelsConfig = BTreeMap<String, LanguageModelConfig>;

/// Why language models cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LanguageModelError {
    /// One on a server.
    #[error("language_models.{name}: {source}")]
    Remote {
        /// Its name in the configuration.
        name: String,
        /// Why.
        source: remote::StartError,
    },
    /// One in this process.
    #[error("language_models.{name}: {source}")]
    Local {
        /// Its name in the configuration.
        name: String,
        /// Why.
        source: ModelError,
    },
    /// A stage asks one that is not configured.
    #[error(
        "no language model is called `{name}`, which {stage}.prompted.model names; add \
         [language_models.{name}]"
    )]
    Unknown {
        /// What was named.
        name: String,
        /// By which stage.
        stage: turnstream_schemas::Stage,
    },
    /// The files of answers.
    #[error(transparent)]
    Answers(#[from] AnswersError),
}

/// Where answers come from and go to.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AnswerFiles {
    /// Read the answers of language models from FILE, which --record-answers wrote, and ask nobody.
    #[arg(long, value_name = "FILE", conflicts_with = "record_answers")]
    pub answers: Option<PathBuf>,
    /// Write every answer of a language model to FILE, so that it can be read later in the model's
    /// place.
    #[arg(long, value_name = "FILE")]
    pub record_answers: Option<PathBuf>,
    /// Write what the models were asked beside their answers, people's words included: `turnstream
    /// explain --prompts` shows it.
    #[arg(long, requires = "record_answers")]
    pub record_prompts: bool,
}

/// The models that the stages in prompted form name, started; and the recording of their answers,
/// which is to be finished in the end.
///
/// # Errors
/// A model cannot be used, or a file of answers.
pub fn start(
    config: &Config,
    files: &AnswerFiles,
    metrics: &Metrics,
) -> Result<(LanguageModels, Option<Recording>), LanguageModelError> {
    let recorded = files.answers.as_deref().map(Answers::read).transpose()?;
    let recording = files.record_answers.as_deref().map(Recording::create).transpose()?;
    let recording = recording.map(|recording| recording.with_prompts(files.record_prompts));
    let mut models = LanguageModels::new();
    for (stage, prompted) in config.prompted() {
        let name = &prompted.model;
        if models.contains_key(name) {
            continue;
        }
        let model = match (&recorded, config.language_models.get(name)) {
            (Some(recorded), _) => recorded.of(name),
            (None, Some(model)) => start_one(name, model, metrics)?,
            (None, None) => return Err(LanguageModelError::Unknown { name: name.clone(), stage }),
        };
        let model = match &recording {
            Some(recording) => recording.of(name, model),
            None => model,
        };
        models.insert(name.clone(), model);
    }
    Ok((models, recording))
}

/// A model, and the recording of its answers, where there is to be one.
pub type Named = (Arc<Generate>, Option<Recording>);

/// One model, whatever stages name: for who asks beside the flow. `None` where it is not configured
/// and its answers are not recorded.
///
/// # Errors
/// The model cannot be used, or a file of answers.
pub fn start_named(
    name: &str,
    config: Option<&LanguageModelConfig>,
    files: &AnswerFiles,
    metrics: &Metrics,
) -> Result<Option<Named>, LanguageModelError> {
    let recorded = files.answers.as_deref().map(Answers::read).transpose()?;
    let model = match (&recorded, config) {
        (Some(recorded), _) => recorded.of(name),
        (None, Some(config)) => start_one(name, config, metrics)?,
        (None, None) => return Ok(None),
    };
    let recording = files.record_answers.as_deref().map(Recording::create).transpose()?;
    let model = recording.as_ref().map_or(Arc::clone(&model), |file| file.of(name, model));
    Ok(Some((model, recording)))
}

fn start_one(
    name: &str,
    config: &LanguageModelConfig,
    metrics: &Metrics,
) -> Result<Arc<Generate>, LanguageModelError> {
    match config {
        LanguageModelConfig::Remote(config) => remote::start(name, config, metrics.remote(name))
            .map_err(|source| LanguageModelError::Remote { name: name.to_owned(), source }),
        LanguageModelConfig::Local(config) => decoder::start(name, config, metrics.decoder(name))
            .map_err(|source| LanguageModelError::Local { name: name.to_owned(), source }),
    }
}
