//! Checks that an encoder computes the same vectors as sentence-transformers, on fixed sentences.
//!
//! The sentences are our own: short and long, with known and unknown words, and one beyond the 256
//! tokens that MiniLM takes. `check/reference.py` made the vectors.

use serde::Serialize;

use turnstream_ports::model::encoder::{EncodeError, Encoder};

/// One sentence a line.
const SENTENCES: &str = include_str!("check/sentences.txt");
/// The vectors of sentence-transformers with MiniLM: little-endian f32, a row per sentence.
const MINILM: &[u8] = include_bytes!("check/minilm.f32");
/// The largest difference of a number in vectors of length 1.
pub const MAX_DIFFERENCE: f32 = 1e-5;
/// The least cosine between the two vectors of a sentence.
pub const MIN_COSINE: f32 = 0.999_99;

/// The result of a check, with the names that `turnstream models check --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The model's name.
    pub model: String,
    /// The number of compared sentences.
    pub sentences: usize,
    /// The largest difference between corresponding numbers of the vectors.
    pub max_abs_diff: f32,
    /// The least cosine between the two vectors of a sentence.
    pub min_cosine: f32,
    /// Whether both figures are within their bounds and long texts were cut.
    pub passed: bool,
}

/// Compares MiniLM with sentence-transformers, with the sentences as one batch.
///
/// # Errors
/// The encoder returned an error.
pub fn check(encoder: &dyn Encoder) -> Result<Checked, EncodeError> {
    let sentences: Vec<&str> = SENTENCES.lines().collect();
    let mut ours = Vec::new();
    let encoded = encoder.encode(&sentences, &mut ours)?;
    let expected: Vec<f32> =
        MINILM.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    if ours.len() != expected.len() {
        let reason = format!("{} numbers instead of {}", ours.len(), expected.len());
        return Err(EncodeError { encoder: encoder.name().to_owned(), reason });
    }
    let pairs = || ours.iter().zip(&expected);
    let max_abs_diff = pairs().map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max);
    let width = encoder.dimensions();
    let cosines = ours.chunks_exact(width).zip(expected.chunks_exact(width));
    let cosines = cosines.map(|(ours, theirs)| {
        ours.iter().zip(theirs).map(|(ours, theirs)| ours * theirs).sum::<f32>()
    });
    let min_cosine = cosines.fold(1.0, f32::min);
    let passed = max_abs_diff <= MAX_DIFFERENCE && min_cosine >= MIN_COSINE && encoded.cut == 1;
    let model = encoder.name().to_owned();
    Ok(Checked { model, sentences: sentences.len(), max_abs_diff, min_cosine, passed })
}
