//! The port to documents: searching chunks by words or by meaning, and reading them. The wiring
//! supplies an implementation; stages do not know how documents are stored. A search is quick and
//! does not block, so it needs no reply.

use std::sync::Arc;

pub use crate::index::SearchError;

/// A piece of a document that is short enough to be evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// `document#ordinal`, which is stable while the document has at least that many chunks.
    pub id: String,
    /// The document's id.
    pub document: String,
    /// The document's title; may be empty.
    pub title: String,
    /// The chunk's place in the document, from 0.
    pub ordinal: u32,
    /// Its words.
    pub text: Arc<str>,
}

/// A chunk that a search found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FoundChunk {
    /// The chunk's number in its store, which is never reused for another text.
    pub chunk: u32,
    /// How well the chunk fits the query, 0..=1. By words: BM25's score as a share of the highest
    /// that the query's terms could reach. By meaning: the cosine, or 0 if it is negative.
    pub score: f64,
}

/// Searches the chunks of documents.
pub trait SearchDocuments: Send + Sync {
    /// The name of the source in plans and evidence.
    fn source(&self) -> &str;

    /// Returns the `limit` chunks with the highest BM25 scores for the words of `text`, computed
    /// over a chunk's title and text together. Ordered by falling score, ties by number. If
    /// `within` is given (chunk numbers, rising), only those chunks.
    ///
    /// # Errors
    /// The index cannot be read.
    fn by_words(
        &self,
        text: &str,
        within: Option<&[u32]>,
        limit: usize,
    ) -> Result<Vec<FoundChunk>, SearchError>;

    /// Numbers per vector; `None` if the chunks were imported without an encoder.
    fn dimensions(&self) -> Option<usize>;

    /// Whether the reader made the vectors. Queries then need the reader's vectors of questions.
    fn are_by_reader(&self) -> bool {
        false
    }

    /// Returns the `limit` chunks whose vectors are most similar to `query`, ordered as in
    /// [`Self::by_words`].
    ///
    /// # Errors
    /// There are no vectors, the query has other dimensions, or the index cannot be read.
    fn by_meaning(
        &self,
        query: &[f32],
        within: Option<&[u32]>,
        limit: usize,
    ) -> Result<Vec<FoundChunk>, SearchError>;

    /// Returns the chunks of the documents whose titles the text names, as rising unique numbers.
    fn named_in(&self, text: &str) -> Vec<u32>;

    /// Returns a chunk by its number; `None` if it was removed.
    ///
    /// # Errors
    /// The store cannot be read.
    fn chunk(&self, number: u32) -> Result<Option<Chunk>, SearchError>;
}
