//! The language models of a process, by their names in the configuration, and the files that record
//! or replay their answers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use turnstream_ports::model::Generate;

use crate::metrics::Metrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ModelError;
use super::answers::{Answers, AnswersError, Recording};
use super::budget::{AnswerCounts, Budget, ModelLimits};
use super::decoder::{self, LocalConfig};
use super::remote::{self, RemoteConfig};

/// `[language_models.NAME]`: a model that the prompted form of stages can ask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LanguageModelConfig {
    /// On a server with OpenAI's interface.
    Remote(RemoteConfig),
    /// In this process.
    Local(LocalConfig),
}

/// All language models, by name.
pub type LanguageModelsConfig = BTreeMap<String, LanguageModelConfig>;

/// Why language models cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LanguageModelError {
    /// A model on a server.
    #[error("language_models.{name}: {source}")]
    Remote {
        /// The name in the configuration.
        name: String,
        /// Why it cannot be used.
        source: remote::StartError,
    },
    /// A model in this process.
    #[error("language_models.{name}: {source}")]
    Local {
        /// The name in the configuration.
        name: String,
        /// Why it cannot be used.
        source: ModelError,
    },
}

/// The files that answers are read from and recorded to, and the limits of what is asked.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AnswerFiles {
    /// Read the answers of language models from FILE, which --record-answers wrote, and ask no
    /// model, unless --max-requests or --max-tokens allows it for what is not there.
    #[arg(long, value_name = "FILE")]
    pub answers: Option<PathBuf>,
    /// Write every answer of a language model to FILE, so that it can be read later in the model's
    /// place.
    #[arg(long, value_name = "FILE")]
    pub record_answers: Option<PathBuf>,
    /// Also write what the models were asked, people's words included: `turnstream explain
    /// --prompts` shows it.
    #[arg(long, requires = "record_answers")]
    pub record_prompts: bool,
    /// The limits of what models may be asked.
    #[command(flatten)]
    pub limits: ModelLimits,
    /// The counts of what they were asked.
    #[arg(skip)]
    pub counts: Arc<AnswerCounts>,
    /// Continue the file of `record_answers`, whose answers about inputs from this offset on are
    /// made again.
    #[arg(skip)]
    pub resumed_from: Option<i64>,
}

impl AnswerFiles {
    /// Opens the file for recorded answers, if one is configured.
    ///
    /// # Errors
    /// The file cannot be created or continued.
    pub fn recording(&self) -> Result<Option<Recording>, AnswersError> {
        let Some(path) = self.record_answers.as_deref() else { return Ok(None) };
        let recording = match self.resumed_from {
            None => Recording::create(path)?,
            Some(offset) => Recording::resume(path, offset)?,
        };
        Ok(Some(recording.with_prompts(self.record_prompts)))
    }
}

/// Starts models one by one, or replays their recorded answers; records their answers if
/// configured.
pub struct Starter<'a> {
    recorded: Option<Arc<Answers>>,
    recording: Option<Recording>,
    budget: Arc<Budget>,
    metrics: &'a Metrics,
}

impl<'a> Starter<'a> {
    /// Opens the files of answers.
    ///
    /// # Errors
    /// A file cannot be read or created.
    pub fn new(files: &AnswerFiles, metrics: &'a Metrics) -> Result<Self, AnswersError> {
        let recorded = files.answers.as_deref().map(Answers::read).transpose()?;
        let budget = Budget::new(files.limits, Arc::clone(&files.counts));
        Ok(Self { recorded, recording: files.recording()?, budget, metrics })
    }

    /// Starts the model named `name`. `None` if it is neither configured nor recorded.
    ///
    /// # Errors
    /// The model cannot be used.
    pub fn start(
        &self,
        name: &str,
        config: Option<&LanguageModelConfig>,
    ) -> Result<Option<Arc<Generate>>, LanguageModelError> {
        let asked = config.filter(|_| self.recorded.is_none() || self.budget.is_limited());
        let asked = asked.map(|config| start_one(name, config, self.metrics, &self.budget));
        let model = match (&self.recorded, asked.transpose()?) {
            (Some(recorded), asked) => recorded.of(name, asked, self.budget.counts()),
            (None, Some(asked)) => asked,
            (None, None) => return Ok(None),
        };
        let recording = self.recording.as_ref();
        Ok(Some(recording.map_or(Arc::clone(&model), |file| file.of(name, model))))
    }

    /// Returns the recording, which the caller must finish.
    pub fn into_recording(self) -> Option<Recording> {
        self.recording
    }
}

fn start_one(
    name: &str,
    config: &LanguageModelConfig,
    metrics: &Metrics,
    budget: &Arc<Budget>,
) -> Result<Arc<Generate>, LanguageModelError> {
    Ok(match config {
        LanguageModelConfig::Remote(config) => {
            let metrics = metrics.remote(name);
            let model = remote::start(name, config, metrics.clone())
                .map_err(|source| LanguageModelError::Remote { name: name.to_owned(), source })?;
            budget.of(
                model,
                Box::new(move || metrics.prompt_tokens.get() + metrics.completion_tokens.get()),
            )
        }
        LanguageModelConfig::Local(config) => {
            let metrics = metrics.decoder(name);
            let model = decoder::start(name, config, metrics.clone())
                .map_err(|source| LanguageModelError::Local { name: name.to_owned(), source })?;
            budget.of(
                model,
                Box::new(move || metrics.prompt_tokens.get() + metrics.answer_tokens.get()),
            )
        }
    })
}
