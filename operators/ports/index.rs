//! The port to a vector index: search. The wiring supplies an implementation; nothing here knows
//! arroy. A search is quick and does not block, so it needs no reply.

/// A vector that a search found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The item that was put into the index.
    pub item: u32,
    /// Cosine similarity to the query, −1..=1.
    pub similarity: f32,
}

/// Searches vectors by cosine similarity.
pub trait Search: Send + Sync {
    /// Numbers per vector.
    fn dimensions(&self) -> usize;

    /// Returns the `limit` items most similar to the query, which has [`Self::dimensions`] numbers.
    /// Ordered by falling similarity, ties by item. If `candidates` is given (rising, unique), only
    /// those.
    fn search(
        &self,
        query: &[f32],
        limit: usize,
        candidates: Option<&[u32]>,
    ) -> Result<Vec<Found>, SearchError>;
}

/// Why a search failed.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The query does not fit the index.
    #[error(
        "the query has {received} dimensions, the index {expected}: was it built by another encoder?"
    )]
    Dimensions {
        /// Dimensions of the index.
        expected: usize,
        /// Dimensions of the query.
        received: usize,
    },
    /// The index could not be read.
    #[error("index {index}: {reason}")]
    Unreadable {
        /// The index.
        index: String,
        /// The problem and the remedy.
        reason: String,
    },
}
