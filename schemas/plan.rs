//! Which sources a turn asks, in which order (UniMS-RAG).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::SourceName;

/// Sources in the order they are asked. Empty is the NULL plan: no knowledge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Plan(pub Vec<SourceName>);
