//! Cross-encoders and classifiers of pairs: a passage against a query, or a hypothesis against a
//! premise (NLI). Both texts go through one network together, and the output becomes a number from
//! 0 to 1.
//!
//! `config.json` gives the meaning of the output. A model with one label gives relevance: the
//! sigmoid of the logit. A model with several labels does NLI: the score is the softmax probability
//! of the label named entailment.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use turnstream_ports::model::encoder::Encoded;

use super::ModelError;
use super::folder::{CONFIG, Folder, WEIGHTS};
use super::tokens::{TextTokenizer, TextTokens};

mod bert;
mod stock;
#[cfg(test)]
mod tests;

/// The most tokens of a pair, also for models that take more: the cost of attention grows with
/// their square.
const MAX_TOKENS: usize = 512;

/// Scores pairs of texts from 0 to 1.
pub struct Classifier {
    name: String,
    tokenizer: TextTokenizer,
    network: Box<dyn Logits>,
    meaning: Meaning,
}

/// A network with one output per label.
trait Logits: Send + Sync {
    /// Returns the outputs of each sequence, in order.
    fn logits(&self, sequences: &[TextTokens]) -> Result<Vec<Vec<f32>>, String>;
}

/// The meaning of the outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// One output: the logit of being relevant.
    Relevance,
    /// One output per label; the index of entailment.
    Entailment(usize),
}

/// The fields of `config.json` that all families share.
#[derive(Deserialize)]
struct Shape {
    model_type: String,
    max_position_embeddings: usize,
    #[serde(default)]
    pad_token_id: usize,
    #[serde(default)]
    id2label: BTreeMap<usize, String>,
}

impl Classifier {
    /// Opens a folder in the layout of transformers: `config.json`, `tokenizer.json` and
    /// `model.safetensors` of a BERT, DeBERTa-v2 or -v3, ModernBERT or XLM-RoBERTa for sequence
    /// classification. Records and metrics use `name`.
    ///
    /// # Errors
    /// A file is missing, damaged or unsupported.
    pub fn open(folder: &Path, name: impl Into<String>) -> Result<Self, ModelError> {
        let mut folder = Folder::new(folder);
        let shape: Shape = folder.json(CONFIG)?;
        let meaning = Meaning::of(&shape.id2label);
        let meaning = meaning.map_err(|reason| folder.refused(CONFIG, reason))?;
        let labels = shape.id2label.len();
        let network: Result<Box<dyn Logits>, String> = match shape.model_type.as_str() {
            "bert" => bert::open(&mut folder, labels)?.map(|it| Box::new(it) as _),
            "deberta-v2" | "modernbert" | "xlm-roberta" => {
                stock::open(&mut folder, &shape.model_type, labels)?.map(|it| Box::new(it) as _)
            }
            other => {
                let reason = format!(
                    "model_type is {other:?}; known are bert, deberta-v2, modernbert and xlm-roberta"
                );
                return Err(folder.refused(CONFIG, reason));
            }
        };
        let network = network.map_err(|reason| folder.refused(WEIGHTS, reason))?;
        // RoBERTa's positions begin after the padding token's id.
        let before = if shape.model_type == "xlm-roberta" { shape.pad_token_id + 1 } else { 0 };
        let most = shape.max_position_embeddings.saturating_sub(before).clamp(5, MAX_TOKENS);
        let tokenizer = TextTokenizer::read(&mut folder, most)?;
        Ok(Self { name: name.into(), tokenizer, network, meaning })
    }

    /// The name in configuration and records.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Appends a score from 0 to 1 for each pair, in order. A pair that is too long loses the ends
    /// of its longer text. After an error, `scores` is unchanged.
    ///
    /// # Errors
    /// The model failed on the whole batch.
    pub fn score(&self, pairs: &[(&str, &str)], scores: &mut Vec<f32>) -> Result<Encoded, String> {
        let sequences: Vec<TextTokens> = pairs
            .iter()
            .map(|(first, second)| self.tokenizer.pair(first, second))
            .collect::<Result<_, _>>()?;
        let mut scored = Encoded::default();
        for tokens in &sequences {
            scored.tokens += tokens.ids.len() as u64;
            scored.cut += u64::from(tokens.cut);
        }
        let logits = self.network.logits(&sequences)?;
        let made: Vec<f32> = logits.iter().map(|logits| self.meaning.read(logits)).collect();
        if made.iter().any(|score| !score.is_finite()) {
            return Err("the network gave numbers that are not finite".to_owned());
        }
        scores.extend(made);
        Ok(scored)
    }
}

impl Meaning {
    fn of(labels: &BTreeMap<usize, String>) -> Result<Self, String> {
        if labels.len() == 1 {
            return Ok(Self::Relevance);
        }
        let entailment = labels.values().position(|label| label.eq_ignore_ascii_case("entailment"));
        entailment.map(Self::Entailment).ok_or_else(|| {
            let names: Vec<&str> = labels.values().map(String::as_str).collect();
            format!(
                "id2label has neither one label nor one named entailment, but {}",
                names.join(", ")
            )
        })
    }

    fn read(self, logits: &[f32]) -> f32 {
        match self {
            Self::Relevance => 1.0 / (1.0 + (-logits[0]).exp()),
            Self::Entailment(at) => {
                let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let total: f32 = logits.iter().map(|logit| (logit - highest).exp()).sum();
                (logits[at] - highest).exp() / total
            }
        }
    }
}
