//! Which model had a part in a record.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What wrote a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelUsed {
    /// The generator's name. `realiser` and `none` are model-free.
    pub name: String,
    /// Hash of the prompt template, where a prompt was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_hash: Option<String>,
}
