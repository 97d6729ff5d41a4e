//! The trait of everything that turns text into vectors: the static table, sentence encoders,
//! servers.
//!
//! An [`Encoder`] works while its caller waits. This suits commands (embedding a whole graph,
//! importing documents, evaluation), threads that may wait, and a worker whose encoder takes
//! microseconds. Elsewhere stages ask through the port [`Embed`](super::Embed), behind which the
//! runtime calls an encoder.

/// Turns texts into vectors whose cosine says how similar the texts' meanings are.
pub trait Encoder: Send + Sync {
    /// The name in configuration and records, such as `static` or `minilm`.
    fn name(&self) -> &str;

    /// Identifies the weights and the preparation of text. Vectors of different fingerprints must
    /// not be compared.
    fn fingerprint(&self) -> u64;

    /// Numbers per vector, at least 1.
    fn dimensions(&self) -> usize;

    /// Appends one vector per text to `vectors`, in order, with [`Self::dimensions`] finite numbers
    /// each and L2 norm 1. A text without any known token gives a vector of zeros. On an error
    /// `vectors` stays unchanged.
    ///
    /// # Errors
    /// The model failed on the texts as a whole.
    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError>;
}

/// Counts of one call of an encoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Tokens that the model processed.
    pub tokens: u64,
    /// Texts that were longer than the model accepts, and were cut.
    pub cut: u64,
}

/// Why an encoder failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("encoder `{encoder}`: {reason}")]
pub struct EncodeError {
    /// The encoder.
    pub encoder: String,
    /// The problem, with the remedy if there is one.
    pub reason: String,
}
