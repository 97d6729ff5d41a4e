//! Defines evidence from the sources: one record for facts, documents, personas and rows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{EvidenceId, Score, SourceName};
use crate::turn::Speaker;

/// How DCRAG found a fact.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceSet {
    /// It joins a query to a topic: head ∈ E^Q and tail ∈ E^T, or the reverse.
    Foreseen,
    /// Its head or its tail is in E^Q ∪ E^T, and it is not foreseen.
    Unforeseen,
}

/// A fact of the graph in parts, so that a program need not parse its text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FactStatement {
    /// Head concept, as the graph writes it.
    pub head: String,
    /// Relation, such as `UsedFor`.
    pub relation: String,
    /// Tail concept, as the graph writes it.
    pub tail: String,
    /// Weight in the source; its absolute value where the fact is negated.
    pub weight: f32,
    /// Whether the statement does not hold (a negative weight or a `Not…` relation). Such a fact is
    /// never spoken as positive.
    pub negated: bool,
    /// The head with its capitals, as it is said, if a source of the user's own writes it with capitals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_name: Option<String>,
    /// The tail with its capitals, as it is said, if a source of the user's own writes it with capitals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail_name: Option<String>,
    /// The sentence that the source brings for the fact, if it brings one. It is said as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentence: Option<String>,
}

impl FactStatement {
    /// Returns head and tail as they are said: with their capitals, if they have any.
    pub fn names(&self) -> [&str; 2] {
        let named = [(&self.head_name, &self.head), (&self.tail_name, &self.tail)];
        named.map(|(name, text)| name.as_deref().unwrap_or(text))
    }
}

/// A passage of a document: a chunk, and how it was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentPassage {
    /// The document's id.
    pub document: String,
    /// The document's title; may be empty.
    pub title: String,
    /// The number of the chunk in the document, from 0.
    pub chunk: u32,
    /// Its BM25 score as a share of the highest that the query could reach, 0..=1, if words found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_words: Option<Score>,
    /// The cosine of the passage and the query, 0..=1, if meaning found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_meaning: Option<Score>,
}

/// A sentence of the turn's persona, and how it was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PersonaSentence {
    /// Whom it describes.
    pub describes: Speaker,
    /// Its place in the turn's `persona`, from 1.
    pub place: u32,
    /// The likeness of its words and the query's by BM25, 0..=1, if words found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_words: Option<Score>,
    /// The cosine of the sentence and the query, 0..=1, if meaning found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_meaning: Option<Score>,
    /// The knowledge that it was scored with, as the answer to sentence and query joined (PK-ICR); absent
    /// if it was scored alone. If present, `relevance` is the score of that pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<EvidenceId>,
}

/// A column of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Column {
    /// The column's name, in words.
    pub name: String,
    /// The row's value in this column, as people write it.
    pub value: String,
}

/// A row of a table, and how it was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TableRow {
    /// Its place in the table, from 1.
    pub place: u32,
    /// Its columns, in the table's order.
    pub columns: Vec<Column>,
    /// The likeness of its words and the query's by BM25, 0..=1.
    pub by_words: Score,
    /// The cosine of the row and the question, 0..=1, if meaning found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_meaning: Option<Score>,
    /// The row operation that the turn asks for, if this row is in its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<RowsAsked>,
    /// The cells of this row that the turn asks for by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<CellsAsked>,
}

/// The cells of a row that a turn asks for: it names the row, and the columns or nothing but the row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellsAsked {
    /// The names of the columns, in words; none where the turn names only the row.
    pub columns: Vec<String>,
    /// The share of cells found with as much certainty that were right on development data; 0..=1. 0 where
    /// only the reader can tell.
    pub precision: Score,
    /// The cosine of the utterance and the name of each of the row's columns, in their order; 0..=1. Empty
    /// where they have no vectors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_meaning: Vec<Score>,
    /// The part of the utterance that asks for something else; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<String>,
}

/// A row operation that a turn asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RowsAsked {
    /// The operation.
    pub operation: RowOperation,
    /// The name of the column that it uses, in words; absent where rows are listed or counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The part of the utterance that asks for something else; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<String>,
}

/// An operation on several rows of a table, which answers a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowOperation {
    /// The row with the most of a column.
    Most,
    /// The row with the least of a column.
    Least,
    /// The rows that the turn names, each with a column; where it compares them, the row that answers
    /// comes first.
    Compare,
    /// The rows whose value in a column is within an amount, or is yes.
    Filter,
    /// The rows of a kind.
    List,
    /// How many rows of a kind there are.
    Count,
}

/// A piece of evidence that the words of a response come from, for clients that show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Citation {
    /// The id of the evidence.
    pub id: EvidenceId,
    /// The source that it came from.
    pub source: SourceName,
    /// The document's title, if the evidence is a passage of a document that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

impl From<&Evidence> for Citation {
    fn from(evidence: &Evidence) -> Self {
        let title = evidence.document.as_ref().map(|document| document.title.clone());
        Self {
            id: evidence.id.clone(),
            source: evidence.source.clone(),
            title: title.filter(|title| !title.is_empty()),
        }
    }
}

/// One piece of evidence, with everything that the engine knows about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// The id of the evidence, stable across runs.
    pub id: EvidenceId,
    /// The source that it came from.
    pub source: SourceName,
    /// The evidence in words.
    pub text: String,
    /// For facts: whether it is foreseen or unforeseen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<EvidenceSet>,
    /// The fact, for facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fact: Option<FactStatement>,
    /// The passage, for documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<DocumentPassage>,
    /// The sentence, for personas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persona: Option<PersonaSentence>,
    /// The row, for tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<TableRow>,
    /// Relevance to the dialogue, 0..=1.
    pub relevance: Score,
    /// Consistency with the response, 0..=1, if it was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Score>,
    /// Its share of the attention among all evidence and history that the response could be made from,
    /// 0..=1, if it was weighed (DH-RAG eq 6). The sum of all shares is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<Score>,
    /// Whether the response was made from it. Selected evidence comes first, in the order of fact
    /// selection; evidence that did not fit the budget is not selected. A sentence of a persona is
    /// selected only if the model that wrote the response saw it.
    pub selected: bool,
}
