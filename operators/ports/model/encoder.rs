//! The trait of everything that turns text into vectors: the static table, sentence encoders,
//! servers.
//!
//! An [`Encoder`] works while its caller waits. This suits commands (embedding a whole graph,
//! importing documents, evaluation), threads that may wait, and a worker whose encoder takes
//! microseconds. Elsewhere stages ask through the port [`Embed`](super::Embed); the runtime behind
//! it calls an encoder.

use std::sync::{Mutex, PoisonError};

/// The number of texts that a thread takes at once.
const CHUNK: usize = 256;

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

/// Encodes texts on several threads: one vector per text, in order. Each thread calls `done` with
/// the number of further texts that it has encoded.
///
/// # Errors
/// The model failed on some of the texts.
pub fn encode_all(
    encoder: &dyn Encoder,
    texts: &[&str],
    threads: usize,
    done: &(dyn Fn(usize) + Sync),
) -> Result<Vec<f32>, EncodeError> {
    let mut vectors = vec![0.0; texts.len() * encoder.dimensions()];
    let chunks = texts.chunks(CHUNK).zip(vectors.chunks_mut(CHUNK * encoder.dimensions()));
    let chunks = Mutex::new(chunks);
    let encode = || {
        let mut encoded = Vec::new();
        loop {
            // Recovers from poisoning: a thread that panicked has already taken its chunk, so the
            // others may go on.
            let next = chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((texts, into)) = next else { return Ok(()) };
            encoded.clear();
            encoder.encode(texts, &mut encoded)?;
            into.copy_from_slice(&encoded);
            done(texts.len());
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(encode)).collect();
        let own = encode();
        others.into_iter().fold(own, |ended, other| {
            let panicked = EncodeError {
                encoder: encoder.name().to_owned(),
                reason: "it panicked; the log says where".to_owned(),
            };
            ended.and(other.join().unwrap_or(Err(panicked)))
        })
    })?;
    Ok(vectors)
}
