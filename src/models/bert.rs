//! Sentence encoders of the BERT family (Sentence-BERT, Reimers and Gurevych 2019): tokens,
//! network, pooling and L2 norm. candle reads the weights, and the crate tokenizers reads the
//! vocabulary.
//!
//! Sequences are not padded. A call computes on the caller's thread alone: two calls on two cores
//! are faster than one call on both (1.7 times, measured with MiniLM).

use std::path::Path;

use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};

use super::ModelError;
use super::folder::{BertShape, Folder, Pooling, SentenceShape, WEIGHTS};
use super::tokens::TextTokenizer;

pub(crate) mod kernels;
pub(crate) mod network;
pub(crate) mod quantised;

#[cfg(test)]
mod tests;

use network::{Batch, BertNetwork};

/// The most tokens that go through the network at once, except for a single longer text. With fewer
/// tokens the matrix products are slower; with more, their results no longer fit the processor's
/// cache.
const TOKENS_AT_ONCE: usize = 512;

/// A sentence encoder of the BERT family.
pub struct Bert {
    name: String,
    fingerprint: u64,
    tokenizer: TextTokenizer,
    network: BertNetwork,
    pooling: Pooling,
}

impl Bert {
    /// Opens a folder in the layout of sentence-transformers: `config.json`, `tokenizer.json` and
    /// `model.safetensors`, and optionally `modules.json` with the pooling's `config.json`, and
    /// `sentence_bert_config.json`. Records and metrics use `name`.
    ///
    /// # Errors
    /// A file is missing, damaged or unsupported.
    pub fn open(folder: &Path, name: impl Into<String>) -> Result<Self, ModelError> {
        let mut folder = Folder::new(folder);
        let shape = BertShape::read(&mut folder)?;
        let sentence = SentenceShape::read(&mut folder, shape.max_position_embeddings)?;
        let tokenizer = TextTokenizer::read(&mut folder, sentence.max_tokens)?;
        let weights = folder.read(WEIGHTS)?;
        let network = BertNetwork::read(&weights, &shape);
        let network = network.map_err(|reason| folder.refused(WEIGHTS, reason))?;
        let (name, pooling) = (name.into(), sentence.pooling);
        Ok(Self { name, fingerprint: folder.fingerprint(), tokenizer, network, pooling })
    }

    /// Runs the batch through the network and appends a vector for each text.
    fn finish(&self, batch: &mut Batch, vectors: &mut Vec<f32>) -> Result<(), String> {
        let rows = self.network.forward(batch)?;
        let width = self.network.width();
        for sequence in batch.sequences() {
            let start = vectors.len();
            let of = |row: usize| &rows[row * width..(row + 1) * width];
            vectors.extend_from_slice(of(sequence.start));
            let vector = &mut vectors[start..];
            if self.pooling == Pooling::Mean {
                for row in sequence.clone().skip(1) {
                    vector.iter_mut().zip(of(row)).for_each(|(sum, x)| *sum += x);
                }
            }
            // Mean and sum pooling differ only in length, and every vector is normalised to length
            // 1.
            let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
            if !norm.is_finite() {
                return Err("the network gave numbers that are not finite".to_owned());
            }
            vector.iter_mut().for_each(|x| *x /= norm.max(f32::MIN_POSITIVE));
        }
        batch.clear();
        Ok(())
    }

    fn encode_all(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, String> {
        let (mut encoded, mut batch) = (Encoded::default(), Batch::default());
        for text in texts {
            let tokens = self.tokenizer.text(text)?;
            if batch.tokens() > 0 && batch.tokens() + tokens.ids.len() > TOKENS_AT_ONCE {
                self.finish(&mut batch, vectors)?;
            }
            encoded.tokens += tokens.ids.len() as u64;
            encoded.cut += u64::from(tokens.cut);
            batch.push(&tokens.ids, &tokens.types);
        }
        if batch.tokens() > 0 {
            self.finish(&mut batch, vectors)?;
        }
        Ok(encoded)
    }
}

impl Encoder for Bert {
    fn name(&self) -> &str {
        &self.name
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn dimensions(&self) -> usize {
        self.network.width()
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        let before = vectors.len();
        self.encode_all(texts, vectors).map_err(|reason| {
            vectors.truncate(before);
            EncodeError { encoder: self.name.clone(), reason }
        })
    }
}
