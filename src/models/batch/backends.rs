//! The backends of the runtime: encoders and classifiers.

use std::sync::Arc;

use turnstream_ports::model::Embedding;
use turnstream_ports::model::encoder::{Encoded, Encoder};

use super::Backend;
use crate::classifier::Classifier;

/// Estimated bytes per token, for English word pieces. A wrong estimate only makes batches smaller
/// or larger.
const BYTES_PER_TOKEN: usize = 4;
/// Special tokens around a text.
const AROUND: usize = 2;

/// An encoder behind the port `Embed`.
pub struct Embeds(pub Arc<dyn Encoder>);

/// Estimates the tokens of a text.
fn tokens_of(text: &str) -> usize {
    text.len() / BYTES_PER_TOKEN + AROUND
}

impl Backend for Embeds {
    type Item = String;
    type Output = Embedding;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn tokens(&self, text: &String) -> usize {
        tokens_of(text)
    }

    fn run(&self, texts: &[String]) -> Result<(Vec<Embedding>, Encoded), String> {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut vectors = Vec::new();
        let encoded = self.0.encode(&texts, &mut vectors).map_err(|error| error.reason)?;
        let embeddings = vectors.chunks_exact(self.0.dimensions()).map(Embedding::from);
        Ok((embeddings.collect(), encoded))
    }
}

/// A classifier behind the port `Score`.
pub struct Scores(pub Classifier);

impl Backend for Scores {
    type Item = (String, String);
    type Output = f32;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn tokens(&self, (first, second): &(String, String)) -> usize {
        tokens_of(first) + tokens_of(second)
    }

    fn run(&self, pairs: &[(String, String)]) -> Result<(Vec<f32>, Encoded), String> {
        let pairs: Vec<(&str, &str)> =
            pairs.iter().map(|(first, second)| (first.as_str(), second.as_str())).collect();
        let mut scores = Vec::new();
        let encoded = self.0.score(&pairs, &mut scores)?;
        Ok((scores, encoded))
    }
}
