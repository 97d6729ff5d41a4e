//! Defines the changes of the knowledge while turns flow: the records of the compacted `knowledge`
//! topic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Action;

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
    /// The sentence that says the statement, as it is, in place of words made from head, relation and
    /// tail; one line of at most 1,024 bytes of UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentence: Option<String>,
    /// The head with its capitals, as it is said; the same text as in the key but for its case. Absent if
    /// it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_name: Option<String>,
    /// The tail with its capitals, as it is said; the same text as in the key but for its case. Absent if
    /// it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail_name: Option<String>,
    /// Whether the statement is retracted, whatever the snapshot says; the other fields then have no
    /// meaning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub retracted: bool,
}

impl Default for FactValue {
    /// Returns one ordinary English assertion.
    fn default() -> Self {
        Self {
            weight: 1.0,
            language: "en".to_owned(),
            sentence: None,
            head_name: None,
            tail_name: None,
            retracted: false,
        }
    }
}

/// The key of a phrasing on the compacted `knowledge` topic: a text as customers write it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhrasingKey {
    /// The text, without white space around it.
    pub phrasing: String,
}

/// The value of a phrasing on the `knowledge` topic: what answers it, or what the response does.
///
/// A tombstone withdraws the phrasing like `withdrawn`, but only until compaction of the log removes the
/// tombstone: a phrasing of the file `teaching.phrasings` stays withdrawn only with `withdrawn`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PhrasingValue {
    /// The section (`page.md#heading`) or the row (`row:ID`) that answers; only with `answer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gold: Option<String>,
    /// What the response does.
    pub action: Action,
    /// Whether the phrasing is withdrawn; the other fields then have no meaning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
}

impl Default for PhrasingValue {
    fn default() -> Self {
        Self { gold: None, action: Action::Answer, withdrawn: false }
    }
}
