//! Encoders called by whoever may wait: commands, and the threads behind the port.

use std::sync::{Mutex, PoisonError};

pub use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};

/// Texts that a thread takes at once.
const CHUNK: usize = 256;

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
