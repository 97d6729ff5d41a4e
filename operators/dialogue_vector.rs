//! Makes the vector of a dialogue from the vectors of its latest utterances, each weighted by
//! recency.
//!
//! [`embedding`](crate::embedding) gives it to turns; [`meaning`](crate::meaning) compares facts with it.

use std::sync::Arc;

use turnstream_ports::model::Embedding;
use turnstream_ports::model::encoder::Encoder;
use turnstream_ports::model::reader::BEFORE_SHARE;
use turnstream_schemas::{Fault, FaultKind, Stage};

use crate::flow::{Embedded, TurnContext};
use crate::salience::Recency;

/// Which utterances of a dialogue count, and how much.
#[derive(Clone, Copy, Debug)]
pub struct LatestUtterances {
    /// The number of latest utterances, including the current one; 1..=64.
    pub count: u32,
    /// The weight of each by its age.
    pub recency: Recency,
}

impl LatestUtterances {
    /// Returns the utterances of a dialogue whose weight is above 0, oldest first, each with its
    /// weight.
    pub fn of(self, context: &TurnContext) -> impl Iterator<Item = (f64, &str)> {
        let dialogue = &context.dialogue;
        let first = dialogue.len().saturating_sub(self.count as usize);
        let weighed = (first..dialogue.len()).map(move |at| (self.recency.of(dialogue, at), at));
        weighed
            .filter(|(weight, _)| *weight > 0.0)
            .map(|(weight, at)| (weight, &*dialogue[at].text))
    }
}

/// Embeds a dialogue by an encoder that is called in place. Returns `None` if the encoder knows no word
/// of it.
///
/// # Errors
/// The encoder failed.
pub fn embed(
    context: &TurnContext,
    encoder: &dyn Encoder,
    latest: LatestUtterances,
) -> Result<Option<Embedded>, Fault> {
    let (weights, texts): (Vec<f64>, Vec<&str>) = latest.of(context).unzip();
    let mut numbers = Vec::with_capacity(texts.len() * encoder.dimensions());
    let encoded = encoder.encode(&texts, &mut numbers);
    encoded.map_err(|error| Fault::new(Stage::Embedding, FaultKind::Error, error.to_string()))?;
    let vectors: Vec<&[f32]> = numbers.chunks_exact(encoder.dimensions()).collect();
    Ok(embedded(&vectors, weights.into_iter()))
}

/// Makes the vectors of a dialogue from those of its utterances, the current one last.
pub fn embedded<V: AsRef<[f32]>>(
    vectors: &[V],
    weights: impl Iterator<Item = f64>,
) -> Option<Embedded> {
    let dialogue = weighted_mean(vectors, weights)?;
    let current = vectors.get(vectors.len().checked_sub(1)?..)?;
    Some(Embedded { dialogue, utterance: weighted_mean(current, std::iter::once(1.0)) })
}

/// Returns the vector of a question: that of its utterance, plus a share of those of the turns
/// before.
pub(crate) fn of_question(vectors: &[Embedding]) -> Option<Embedding> {
    let weights = (0..vectors.len()).map(|at| if at == 0 { 1.0 } else { BEFORE_SHARE.into() });
    weighted_mean(vectors, weights)
}

/// Returns the direction of the weighted sum, as a vector of length 1; `None` if the sum has no
/// direction.
fn weighted_mean<V: AsRef<[f32]>>(
    vectors: &[V],
    weights: impl Iterator<Item = f64>,
) -> Option<Embedding> {
    let mut sum = vec![0.0_f32; vectors.first()?.as_ref().len()];
    for (vector, weight) in vectors.iter().zip(weights) {
        let numbers = sum.iter_mut().zip(vector.as_ref());
        numbers.for_each(|(sum, number)| *sum += weight as f32 * number);
    }
    let length = sum.iter().map(|number| number * number).sum::<f32>().sqrt();
    if !(length.is_finite() && length > 0.0) {
        return None;
    }
    sum.iter_mut().for_each(|number| *number /= length);
    Some(Arc::from(sum))
}
