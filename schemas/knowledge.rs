//! Changes of the knowledge while turns flow: the records of the compacted `knowledge` topic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The key of a record on the compacted `knowledge` topic: a source and a statement. Written as
/// compact JSON with normalised texts, so that equal keys are equal bytes.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct FactKey {
    /// The source that makes the statement.
    pub source: String,
    /// The concept that it is about, as the graph writes it: lower case, single spaces.
    pub head: String,
    /// The name of the relation, such as `UsedFor`.
    pub relation: String,
    /// The other concept, as the graph writes it.
    pub tail: String,
}

/// The value of a record on the `knowledge` topic: the source's present assertion about the statement.
///
/// A tombstone retracts the statement like `retracted`, but only until compaction of the log removes the
/// tombstone: a statement of the snapshot stays retracted only with `retracted`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FactValue {
    /// How strongly the source asserts the statement, not 0; below 0 it denies the statement. ConceptNet
    /// gives one ordinary assertion 1.
    pub weight: f32,
    /// Language of head and tail, such as `en`.
    pub language: String,
    /// Whether the statement is retracted, whatever the snapshot says; weight and language then have no
    /// meaning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub retracted: bool,
}

impl Default for FactValue {
    /// One ordinary English assertion.
    fn default() -> Self {
        Self { weight: 1.0, language: "en".to_owned(), retracted: false }
    }
}
