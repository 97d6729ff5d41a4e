//! Names the model that wrote a response or made a decision.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The model or generator that wrote a response or made a decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelUsed {
    /// The name of the model or generator. `realiser` and `none` use no model.
    pub name: String,
    /// Hash of the prompt's template, if a prompt was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_hash: Option<String>,
}
