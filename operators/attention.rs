//! Computes attention: w_i = softmax(q_t^T W d_i) (DH-RAG eq 6).
//!
//! A text is two vectors side by side: its terms, each weighed by how rare it is among the texts that
//! share the attention (BM25), and an encoder's vector. W is one number for the terms; for the encoder's
//! vectors it is a number (the identity, scaled) or a trained matrix.

use turnstream_knowledge::terms::terms;
use turnstream_ports::model::encoder::Encoder;
use turnstream_ports::model::matrix::Matrix;

use crate::bm25::{Bag, Statistics};

/// A query or a text, ready to be compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    terms: Bag<String>,
    /// Of length 1; empty where the encoder knows nothing in the text.
    vector: Vec<f32>,
}

impl Compared {
    /// Takes a text with its vector; a vector of zeros counts as none.
    pub fn new(text: &str, vector: Option<&[f32]>) -> Self {
        let known = vector.filter(|vector| vector.iter().any(|number| *number != 0.0));
        Self {
            terms: terms(text).into_iter().collect(),
            vector: known.unwrap_or_default().to_vec(),
        }
    }

    /// Takes a text and encodes it at once; takes its words alone where the encoder fails.
    pub fn by(text: &str, encoder: Option<&dyn Encoder>) -> Self {
        let mut vector = Vec::new();
        let encoded = encoder.map(|encoder| encoder.encode(&[text], &mut vector));
        Self::new(text, encoded.and_then(Result::ok).map(|_| &*vector))
    }

    /// Returns the likeness in words of each text to this query, 0..=1, by BM25 among the texts.
    pub fn likeness_of_words(&self, texts: &[Self]) -> Vec<f64> {
        let statistics = Statistics::of(texts.iter().map(|text| &text.terms));
        texts.iter().map(|text| statistics.likeness(&self.terms, &text.terms)).collect()
    }

    /// Returns the encoder's vector; empty where the encoder knows nothing in the text.
    pub fn vector(&self) -> &[f32] {
        &self.vector
    }
}

/// The weights W.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// The weight of the likeness of words.
    words: f64,
    /// The weight of the likeness of words where the query has no vector.
    words_alone: f64,
    meaning: MeaningWeights,
}

#[derive(Clone, Debug, PartialEq)]
enum MeaningWeights {
    /// The identity, times a number.
    Scaled(f64),
    Trained(Matrix),
}

impl Attention {
    /// Makes attention with the identity for W: the likeness of words and that of vectors, the
    /// latter with the share `meaning_share`, 0..=1, divided by a temperature above 0.
    pub fn identity(temperature: f64, meaning_share: f64) -> Self {
        let words = (1.0 - meaning_share) / temperature;
        let meaning = MeaningWeights::Scaled(meaning_share / temperature);
        Self { words, words_alone: 1.0 / temperature, meaning }
    }

    /// Makes attention with trained weights: the weight of the likeness of words with vectors and
    /// without them, and the matrix for the vectors.
    pub fn trained(words: f64, words_alone: f64, matrix: Matrix) -> Self {
        Self { words, words_alone, meaning: MeaningWeights::Trained(matrix) }
    }

    /// Returns q^T W d of each text.
    pub fn logits(&self, query: &Compared, texts: &[Compared]) -> Vec<f64> {
        let asked = match &self.meaning {
            MeaningWeights::Scaled(by) => {
                query.vector.iter().map(|number| *by as f32 * number).collect()
            }
            MeaningWeights::Trained(matrix) if query.vector.len() == matrix.dimensions() => {
                matrix.through(&query.vector)
            }
            MeaningWeights::Trained(_) => Vec::new(),
        };
        let words = if asked.is_empty() { self.words_alone } else { self.words };
        let logit = |(text, likeness): (&Compared, f64)| {
            let products = asked.iter().zip(&text.vector);
            let meaning = products.map(|(a, b)| f64::from(a * b)).sum::<f64>();
            words * likeness + meaning
        };
        texts.iter().zip(query.likeness_of_words(texts)).map(logit).collect()
    }

    /// Returns the share of each text in the attention, 0..=1; the sum is 1.
    pub fn shares(&self, query: &Compared, texts: &[Compared]) -> Vec<f64> {
        softmax(self.logits(query, texts))
    }
}

fn softmax(mut logits: Vec<f64>) -> Vec<f64> {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    logits.iter_mut().for_each(|logit| *logit = (*logit - most).exp());
    let sum: f64 = logits.iter().sum();
    logits.iter_mut().for_each(|share| *share /= sum);
    logits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the likeness in words of two texts that consist of the same single word.
    fn alike() -> f64 {
        1.0 / 2.2_f64.sqrt()
    }

    fn text(text: &str, vector: [f32; 2]) -> Compared {
        Compared::new(text, Some(&vector))
    }

    fn near(found: &[f64], by_hand: &[f64]) {
        assert_eq!(found.len(), by_hand.len());
        let close = found.iter().zip(by_hand).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(close, "{found:?} is not {by_hand:?}");
    }

    #[test]
    fn the_identity_weighs_words_and_vectors() {
        let query = text("lake", [1.0, 0.0]);
        let texts = [text("lake", [0.0, 1.0]), text("violin", [0.6, 0.8])];
        let attention = Attention::identity(0.5, 0.25);
        near(&attention.logits(&query, &texts), &[1.5 * alike(), 0.25 * 0.6 / 0.5]);
        let (first, second) = ((1.5 * alike()).exp(), 0.3_f64.exp());
        let sum = first + second;
        near(&attention.shares(&query, &texts), &[first / sum, second / sum]);
        let by_words = Compared::new("lake", None);
        near(&attention.logits(&by_words, &texts), &[2.0 * alike(), 0.0]);
        assert!(attention.shares(&query, &[]).is_empty());
    }

    #[test]
    fn rare_words_count_most() {
        let texts = ["lake boat", "lake heron", "lake oar"].map(|text| Compared::new(text, None));
        let likenesses = Compared::new("lake heron", None).likeness_of_words(&texts);
        assert!(likenesses[1] > 2.0 * likenesses[0], "{likenesses:?}: all have the lake");
        assert!((likenesses[0] - likenesses[2]).abs() < 1e-12);
    }

    #[test]
    fn a_vector_of_zeros_says_nothing() {
        let attention = Attention::identity(1.0, 0.5);
        let silent = text("lake", [0.0, 0.0]);
        near(&attention.logits(&silent, &[text("lake", [1.0, 0.0])]), &[alike()]);
        near(&attention.logits(&text("lake", [1.0, 0.0]), &[silent]), &[0.5 * alike()]);
    }

    #[test]
    fn a_matrix_stands_between_query_and_text() {
        // By rows: the query's first number meets the text's second.
        let matrix = Matrix::new(2, vec![0.0, 3.0, 0.0, 0.0]).unwrap();
        let attention = Attention::trained(2.0, 5.0, matrix);
        let texts = [text("lake", [0.0, 1.0]), text("violin", [1.0, 0.0])];
        near(&attention.logits(&text("lake", [1.0, 0.0]), &texts), &[2.0 * alike() + 3.0, 0.0]);
        near(&attention.logits(&text("violin", [0.0, 1.0]), &texts), &[0.0, 2.0 * alike()]);
        let other_encoder = Compared::new("lake", Some(&[1.0, 0.0, 0.0]));
        near(&attention.logits(&other_encoder, &texts), &[5.0 * alike(), 0.0]);
        assert_eq!(Matrix::new(2, vec![1.0; 3]), None);
    }

    #[test]
    fn large_logits_make_finite_shares() {
        let attention = Attention::identity(0.001, 0.0);
        let query = Compared::new("lake", None);
        let shares = attention.shares(&query, &[query.clone(), Compared::new("violin", None)]);
        near(&shares, &[1.0, 0.0]);
    }
}
