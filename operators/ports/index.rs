//! What stages need of a vector index: search. Nothing here knows arroy; the wiring supplies an
//! implementation. Searching is quick and does not block, so it needs no reply.

/// A vector that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The item, as it was put into the index.
    pub item: u32,
    /// Cosine similarity to the query, −1..=1.
    pub similarity: f32,
}

/// Searches vectors by cosine similarity.
pub trait Search: Send + Sync {
    /// Numbers per vector.
    fn dimensions(&self) -> usize;

    /// The `limit` items most similar to the query (as many numbers as [`Self::dimensions`]), by
    /// falling similarity, ties by item; among `candidates` only, where given (rising, unique).
    fn search(
        &self,
        query: &[f32],
        limit: usize,
        candidates: Option<&[u32]>,
    ) -> Result<Vec<Found>, SearchError>;
}

/// Why a search gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The query does not fit the index.
    #[error(
        "the query has {received} dimensions, the index {expected}: was it built by another encoder?"
    )]
    Dimensions {
        /// What the index holds.
        expected: usize,
        /// What the query has.
        received: usize,
    },
    /// The index could not be read.
    #[error("index {index}: {reason}")]
    Unreadable {
        /// Which index.
        index: String,
        /// What happened, and the remedy.
        reason: String,
    },
}
