//! What a response was made by: which program, configuration, prompts, models and knowledge.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of the engine that decides what is said.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FingerprintPart {
    /// The version of the program.
    Version,
    /// The weights and the graph that ship inside the program.
    Weights,
    /// The effective configuration, without what decides only where and how fast it is answered.
    Configuration,
    /// The prompts of the stages in prompted form.
    Prompts,
    /// Which models are configured, and the files that they are in; language models by their configuration
    /// alone.
    Models,
    /// The files of the graph, of tables and of phrasings. Not the documents, which change while turns flow:
    /// the evidence names their versions.
    Knowledge,
}

impl FingerprintPart {
    /// All parts.
    pub const ALL: [Self; 6] = [
        Self::Version,
        Self::Weights,
        Self::Configuration,
        Self::Prompts,
        Self::Models,
        Self::Knowledge,
    ];

    /// The name in records and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Weights => "weights",
            Self::Configuration => "configuration",
            Self::Prompts => "prompts",
            Self::Models => "models",
            Self::Knowledge => "knowledge",
        }
    }
}

/// What a response was made by. Where two responses have the same one, the same turn after the same history
/// was given the same answer, but for what a model on a server says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fingerprint {
    /// The digest of all parts: 16 hexadecimal digits.
    pub digest: String,
    /// The digest of each part by itself, and the version as it is. Absent in a brief record.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<FingerprintPart, String>,
}

impl Fingerprint {
    /// The fingerprint without its parts.
    pub fn brief(&self) -> Self {
        Self { digest: self.digest.clone(), parts: BTreeMap::new() }
    }
}
