//! Defines the knowledge that a turn demands (DCRAG): queries, topics, and the changes of cross
//! revision.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{Score, TurnId};

/// A range of bytes in the UTF-8 text of an utterance.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// Returns the part of the text that the span covers; `None` if it does not fit the text.
    pub fn of(self, text: &str) -> Option<&str> {
        text.get(self.start as usize..self.end as usize)
    }
}

/// How a concept was found for words of an utterance; surer ways come first.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// The utterance names it, lemma for lemma.
    #[default]
    Exact,
    /// By the lemma index: without function words, or as one word instead of two.
    Lemmas,
    /// By character n-grams: it is spelt similarly.
    Ngrams,
}

impl Via {
    /// Whether the utterance names the concept lemma for lemma.
    pub fn is_exact(&self) -> bool {
        *self == Self::Exact
    }
}

/// E^EQ: a concept that the history names (DCRAG eq 2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplicitQuery {
    /// The concept, as the graph writes it.
    pub concept: String,
    /// The turn whose utterance names it.
    pub turn: TurnId,
    /// The place in that utterance.
    pub span: Span,
    /// Informativeness times recency times the similarity of the words to the concept, 0..=1.
    pub weight: Score,
    /// How it was found; left out if the utterance names it.
    #[serde(default, skip_serializing_if = "Via::is_exact")]
    pub via: Via,
    /// The similarity of the words to the concept, 0..=1; left out if the utterance names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub similarity: Option<Score>,
}

/// E^IQ: a concept that the history does not name but points to (DCRAG eq 2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImplicitQuery {
    /// The concept, as the graph writes it.
    pub concept: String,
    /// The explicit concepts that point to it; empty if it was found by meaning.
    pub because: Vec<String>,
    /// How strongly they point to it, 0..=1.
    pub weight: Score,
    /// The likeness in meaning of its fact and the dialogue, 0..=1, if it was found by meaning
    /// because the dialogue names no concept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub similarity: Option<Score>,
}

/// E^Q: the queries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Queries {
    /// E^EQ, by falling weight.
    pub explicit: Vec<ExplicitQuery>,
    /// E^IQ, by falling weight.
    pub implicit: Vec<ImplicitQuery>,
}

/// A topic of the next response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Topic {
    /// The concept, as the graph writes it.
    pub concept: String,
    /// The salience of a maintained topic, or how well an extended topic is reached; 0..=1.
    pub weight: Score,
    /// The maintained topics from which an extended topic was reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<String>,
}

/// E^T: the topics of the next response (DCRAG eq 4).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Topics {
    /// E^MT: topics kept from the latest turns, by falling weight.
    pub maintained: Vec<Topic>,
    /// E^ET: new topics, reached from maintained ones, by falling weight.
    pub extended: Vec<Topic>,
}

/// The short texts of DCRAG's think steps (eq 1 and 3).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Thoughts {
    /// What the user seems to want to know.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub queries: String,
    /// Where the conversation seems to go.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub topics: String,
    /// What the language model thought before it wrote the response, if it thinks first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub generation: String,
}

/// What cross revision did to a concept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RevisionKind {
    /// Removed it.
    Drop,
    /// Added it.
    Add,
    /// Moved it from one list to another.
    Move,
    /// Moved it before others.
    Prefer,
}

/// One change of cross revision, and why (DCRAG eq 5, 6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Revision {
    /// The kind of change.
    pub kind: RevisionKind,
    /// The changed concept, as `list: concept`, such as `extended: tea`.
    pub what: String,
    /// The reason.
    pub why: String,
}

/// The knowledge that a turn demands, after cross revision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Demand {
    /// E^Q.
    pub queries: Queries,
    /// E^T.
    pub topics: Topics,
    /// The thoughts behind queries, topics and response.
    #[serde(default)]
    pub thoughts: Thoughts,
    /// The changes of cross revision.
    #[serde(default)]
    pub revisions: Vec<Revision>,
    /// Demands without a fact: content words of the current utterance that the graph does not have,
    /// then demanded concepts for which no fact was found. Normalised, each once, at most as many as
    /// the configuration allows; words of at most 48 bytes and without digits, never the whole
    /// utterance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl Demand {
    /// Returns every concept of E^Q, explicit first.
    pub fn query_concepts(&self) -> impl Iterator<Item = &str> {
        let explicit = self.queries.explicit.iter().map(|query| query.concept.as_str());
        explicit.chain(self.queries.implicit.iter().map(|query| query.concept.as_str()))
    }

    /// Returns every concept of E^T, maintained first.
    pub fn topic_concepts(&self) -> impl Iterator<Item = &str> {
        let maintained = self.topics.maintained.iter();
        maintained.chain(&self.topics.extended).map(|topic| topic.concept.as_str())
    }
}
