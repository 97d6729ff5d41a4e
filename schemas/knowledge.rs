//! Changes to the knowledge while turns flow: the records of the compacted `knowledge` topic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The key of a record on the compacted `knowledge` topic: which statement, of whom. Written as
/// compact JSON, texts normalised, so that equal keys are equal bytes.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct FactKey {
    /// Who says so.
    pub source: String,
    /// What it is about, as the graph writes it: lower case, single spaces.
    pub head: String,
    /// The name of the relation, such as `UsedFor`.
    pub relation: String,
    /// The other end, as the graph writes it.
    pub tail: String,
}

/// The value of a record on the `knowledge` topic: what the source says of the statement from
/// now on.
///
/// A tombstone takes the statement back like `retracted`, until the log's compaction forgets the
/// tombstone: of a statement that the snapshot holds, only `retracted` stays taken back for good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FactValue {
    /// How strongly, other than 0; below 0 the statement is denied. ConceptNet gives one
    /// ordinary assertion 1.
    pub weight: f32,
    /// Language of head and tail, such as `en`.
    pub language: String,
    /// The statement is taken back, whatever the snapshot says; weight and language say nothing
    /// then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub retracted: bool,
}

impl Default for FactValue {
    /// One ordinary English assertion.
    fn default() -> Self {
        Self { weight: 1.0, language: "en".to_owned(), retracted: false }
    }
}
