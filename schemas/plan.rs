//! Defines a plan: the sources that a turn asks, in order (UniMS-RAG).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::SourceName;
use crate::stages::Stage;
use crate::turn::Speaker;

/// Sources in the order of asking. The empty plan is NULL: no knowledge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Plan(pub Vec<SourceName>);

/// The kind of a source, which decides the operator that asks it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// The graph of facts that `[knowledge]` names.
    Graph,
    /// The rows of the file that `file` names.
    Table,
    /// Sentences that describe the user.
    UserPersona,
    /// Sentences that describe the one who answers.
    BotPersona,
    /// The documents that `[documents]` names.
    Documents,
}

impl SourceKind {
    /// Returns its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Graph => "graph",
            Self::Table => "table",
            Self::UserPersona => "user_persona",
            Self::BotPersona => "bot_persona",
            Self::Documents => "documents",
        }
    }

    /// Returns the operator that asks it.
    pub fn stage(self) -> Stage {
        match self {
            Self::Graph => Stage::FactRetrieval,
            Self::Table => Stage::TableRetrieval,
            Self::UserPersona | Self::BotPersona => Stage::PersonaRetrieval,
            Self::Documents => Stage::DocumentRetrieval,
        }
    }

    /// Returns the party that a persona describes; `None` for other kinds.
    pub fn describes(self) -> Option<Speaker> {
        match self {
            Self::UserPersona => Some(Speaker::User),
            Self::BotPersona => Some(Speaker::System),
            Self::Graph | Self::Table | Self::Documents => None,
        }
    }
}
