//! What everything that turns text into vectors has in common: the static table, sentence
//! encoders, servers.
//!
//! An [`Encoder`] works while its caller waits. That is right for commands (embedding a whole
//! graph, importing documents, evaluation), for threads that may wait, and on a worker for an
//! encoder that takes microseconds; elsewhere stages ask through the port
//! [`Embed`](super::Embed), behind which the runtime calls an encoder.

use std::sync::{Mutex, PoisonError};

/// Texts that a thread takes at once.
const CHUNK: usize = 256;

/// Turns texts into vectors, whose cosine then says how alike the texts' meanings are.
pub trait Encoder: Send + Sync {
    /// The name that configuration and records give it, such as `static` or `minilm`.
    fn name(&self) -> &str;

    /// Tells its weights and its way of preparing text from every other: vectors that were made
    /// under another fingerprint must not be compared with its own.
    fn fingerprint(&self) -> u64;

    /// Numbers per vector, at least 1.
    fn dimensions(&self) -> usize;

    /// Appends one vector per text to `vectors`, in order, [`Self::dimensions`] finite numbers
    /// each, of L2 norm 1; a text in which nothing is known gives a vector of zeros. On an error
    /// `vectors` is as it was.
    ///
    /// # Errors
    /// The model failed on the texts as a whole.
    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError>;
}

/// What an encoder did with some texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Tokens that the model worked on.
    pub tokens: u64,
    /// Texts that were longer than the model takes, and were cut.
    pub cut: u64,
}

/// Why an encoder gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("encoder `{encoder}`: {reason}")]
pub struct EncodeError {
    /// Which one.
    pub encoder: String,
    /// What happened, and the remedy where there is one.
    pub reason: String,
}

/// Encodes texts on several threads: one vector per text, in order. `done` is told how many texts
/// more are done, from whichever thread.
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
            // A thread that panicked took its chunk along, so the others may go on.
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
                reason: "it panicked; the log has the place".to_owned(),
            };
            ended.and(other.join().unwrap_or(Err(panicked)))
        })
    })?;
    Ok(vectors)
}
