//! Judges consistency by a table that was trained for it: how near a response is to the responses
//! that such evidence leads to, whatever their words; 0 where numbers or denials contradict the
//! evidence.
//!
//! The nearness is the cosine of two vectors: that of the response, and that of the piece of evidence or of
//! its nearest sentence. A calibration turns the cosine into a score, which is one half where agreement and
//! disagreement are equally likely.

mod words;

use std::sync::Arc;

use turnstream_ports::model::calibration::Calibration;
use turnstream_ports::model::encoder::{EncodeError, Encoder};
use turnstream_schemas::Evidence;
use unicode_segmentation::UnicodeSegmentation;

pub use words::ResponseWords;

/// Judges consistency by a table. Clones share the table.
#[derive(Clone)]
pub struct Judge {
    encoder: Arc<dyn Encoder>,
    calibration: Calibration,
}

impl Judge {
    /// Judges by an encoder that takes microseconds, and its calibration.
    pub fn new(encoder: Arc<dyn Encoder>, calibration: Calibration) -> Self {
        Self { encoder, calibration }
    }

    /// Returns how well a response agrees with each piece of evidence, 0..=1.
    ///
    /// # Errors
    /// If the encoder fails.
    pub fn judge(&self, response: &str, evidence: &[&Evidence]) -> Result<Vec<f64>, EncodeError> {
        let words = ResponseWords::of(response);
        let mut texts = vec![response];
        let mut ends = Vec::with_capacity(evidence.len());
        for piece in evidence {
            texts.push(&piece.text);
            let sentences: Vec<&str> = piece.text.unicode_sentences().collect();
            // A row counts as one sentence, whatever punctuation its values have.
            if sentences.len() > 1 && piece.row.is_none() {
                texts.extend(sentences);
            }
            ends.push(texts.len());
        }
        let mut numbers = Vec::with_capacity(texts.len() * self.encoder.dimensions());
        self.encoder.encode(&texts, &mut numbers)?;
        let vectors: Vec<&[f32]> = numbers.chunks_exact(self.encoder.dimensions()).collect();
        let cosine = |of: &&[f32]| -> f64 {
            vectors[0].iter().zip(*of).map(|(a, b)| f64::from(a * b)).sum()
        };
        let begins = std::iter::once(1).chain(ends.iter().copied());
        let judged = evidence.iter().zip(begins.zip(&ends)).map(|(piece, (begin, end))| {
            if words.contradict(piece) {
                return 0.0;
            }
            let nearest = vectors[begin..*end].iter().map(cosine).fold(-1.0, f64::max);
            self.calibration.score(nearest)
        });
        Ok(judged.collect())
    }
}

#[cfg(test)]
mod tests {
    use turnstream_ports::model::encoder::Encoded;

    use super::*;
    use crate::testing::document;

    /// Two dimensions: whether a text is about sailing, and whether it is about bread.
    struct Tastes;

    impl Encoder for Tastes {
        fn name(&self) -> &str {
            "tastes"
        }

        fn fingerprint(&self) -> u64 {
            1
        }

        fn dimensions(&self) -> usize {
            2
        }

        fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
            for text in texts {
                vectors.extend(match (text.contains("sail"), text.contains("bread")) {
                    (true, false) => [1.0, 0.0],
                    (false, true) => [0.0, 1.0],
                    (true, true) => [0.6, 0.8],
                    (false, false) => [0.0, 0.0],
                });
            }
            Ok(Encoded::default())
        }
    }

    #[test]
    fn the_nearest_sentence_counts_and_what_contradicts_does_not_agree() {
        let judge = Judge::new(Arc::new(Tastes), Calibration { slope: 10.0, offset: -5.0 });
        let judged = |evidence: &[&str]| {
            let pieces: Vec<Evidence> =
                evidence.iter().map(|text| document("d", "d", text, 0.5)).collect();
            let pieces: Vec<&Evidence> = pieces.iter().collect();
            judge.judge("You can sail at 9.", &pieces).expect("scores")
        };
        let score = |cosine: f64| 1.0 / (1.0 + (-(10.0 * cosine - 5.0)).exp());
        let near = |scores: &[f64], cosines: &[f64]| {
            scores.len() == cosines.len()
                && scores.iter().zip(cosines).all(|(a, cosine)| (a - score(*cosine)).abs() < 1e-6)
        };
        let texts =
            ["Boats that sail.", "Fresh bread.", "Much bread. Many sail away.", "sail, bread"];
        let scores = judged(&texts);
        assert!(near(&scores, &[1.0, 0.0, 1.0, 0.6]), "{scores:?}");
        assert_eq!(judged(&["You cannot sail.", "You can sail at 10."]), [0.0, 0.0]);
        assert!(judged(&[]).is_empty());
    }
}
