//! What stages need of documents: to search their chunks by words and by meaning, and to read
//! them. Nothing here knows how they are stored; the wiring supplies an implementation.
//! Searching is quick and does not block, so it needs no reply.

use std::sync::Arc;

pub use crate::index::SearchError;

/// A piece of a document that is short enough to be evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// `document#ordinal`: stable as long as the document has that many chunks.
    pub id: String,
    /// The document's id.
    pub document: String,
    /// The document's title; may be empty.
    pub title: String,
    /// Which chunk of the document it is, from 0.
    pub ordinal: u32,
    /// Its words.
    pub text: Arc<str>,
}

/// A chunk that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FoundChunk {
    /// The chunk's number in its store: never given to another text.
    pub chunk: u32,
    /// How well it fits the query, 0..=1. By words: the share of the most that BM25 could give to
    /// the query's terms. By meaning: the cosine, 0 where it is negative.
    pub score: f64,
}

/// Searches the chunks of documents.
pub trait SearchDocuments: Send + Sync {
    /// The name of the source in plans and evidence.
    fn source(&self) -> &str;

    /// The `limit` chunks that BM25 gives most for the words of `text`, title and text of a chunk
    /// taken together, by falling score, ties by number; among `within` only, where given (chunk
    /// numbers, rising).
    ///
    /// # Errors
    /// The index cannot be read.
    fn by_words(
        &self,
        text: &str,
        within: Option<&[u32]>,
        limit: usize,
    ) -> Result<Vec<FoundChunk>, SearchError>;

    /// Numbers per vector, where chunks have vectors; `None` where they were imported without an
    /// encoder.
    fn dimensions(&self) -> Option<usize>;

    /// The `limit` chunks whose vectors are most like `query`, as [`Self::by_words`] orders them.
    ///
    /// # Errors
    /// There are no vectors, the query has other dimensions, or the index cannot be read.
    fn by_meaning(
        &self,
        query: &[f32],
        within: Option<&[u32]>,
        limit: usize,
    ) -> Result<Vec<FoundChunk>, SearchError>;

    /// The chunks of the documents whose titles a text names: numbers, rising, unique.
    fn named_in(&self, text: &str) -> Vec<u32>;

    /// A chunk by its number; `None` where it is gone.
    ///
    /// # Errors
    /// The store cannot be read.
    fn chunk(&self, number: u32) -> Result<Option<Chunk>, SearchError>;
}
