//! Where the unified model's weights come from: the program itself, or a file.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of the shipped weights.
const SHIPPED_NAME: &str = "reader-en";

/// The source of the unified model's weights.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum UnifiedWeights {
    /// The weights inside the program, written `shipped`.
    #[default]
    Shipped,
    /// A GGUF file, or a folder with `model.safetensors`.
    Path(PathBuf),
}

impl UnifiedWeights {
    /// The shipped weights as the bytes of a GGUF file, and their name.
    pub(super) fn shipped() -> (&'static [u8], &'static str) {
        (turnstream_weights::UNIFIED, SHIPPED_NAME)
    }
}

impl From<String> for UnifiedWeights {
    fn from(text: String) -> Self {
        if text == "shipped" { Self::Shipped } else { Self::Path(PathBuf::from(text)) }
    }
}

impl From<UnifiedWeights> for String {
    fn from(weights: UnifiedWeights) -> Self {
        weights.to_string()
    }
}

impl FromStr for UnifiedWeights {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::from(text.to_owned()))
    }
}

impl fmt::Display for UnifiedWeights {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shipped => out.write_str("shipped"),
            Self::Path(path) => write!(out, "{}", path.display()),
        }
    }
}

impl JsonSchema for UnifiedWeights {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "UnifiedWeights".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1 })
    }
}
