//! Defines the fingerprint of a response: the digests of the program, configuration, prompts,
//! models and knowledge that made it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of the engine that determines what responses say.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FingerprintPart {
    /// The version of the program.
    Version,
    /// The weights and the graph that ship inside the program.
    Weights,
    /// The effective configuration, without the keys that decide only where and how fast turns are
    /// answered.
    Configuration,
    /// The prompts of the stages in prompted form.
    Prompts,
    /// The configured models and their files; of language models, the configuration alone.
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

    /// Returns the name in records and metrics.
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

/// The digests of what made a response. Under equal fingerprints the same turn after the same
/// history gets the same answer, except for the answers of models on servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fingerprint {
    /// The digest of all parts: 16 hexadecimal digits.
    pub digest: String,
    /// The digest of each part, and the version as plain text. Absent in a brief record.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<FingerprintPart, String>,
}

impl Fingerprint {
    /// Returns the fingerprint without its parts.
    pub fn brief(&self) -> Self {
        Self { digest: self.digest.clone(), parts: BTreeMap::new() }
    }
}
