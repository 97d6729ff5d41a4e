//! A gate that is a causal language model with a low-rank adapter (RAGate-PEFT). It reads an
//! instruction with a dialogue, and the probabilities of the two answers after it say whether
//! knowledge is needed. `deploy/training` trains adapters.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnstream_ports::model::encoder::Encoded;
use turnstream_ports::model::gate::{ANSWER_FOLLOWS, GateInputs, NeedPrompt};

use super::card::on_scale;
use crate::ModelError;
use crate::batch::Backend;
use crate::decoder::network::{DecoderNetwork, Piece};
use crate::decoder::vocabulary::{DecoderVocabulary, Prompt};
use crate::decoder::{LocalConfig, Quantize, files};

/// The name of the card in the adapter's folder.
pub const CARD: &str = "gate.json";

/// Estimated bytes per token.
const BYTES_PER_TOKEN: usize = 4;

/// What an adapter was trained for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstructedCard {
    /// The texts that the prompt has.
    pub inputs: GateInputs,
    /// The language of the dialogues, as a BCP 47 primary tag.
    pub language: String,
    /// The definition of need, by the name of its data set.
    pub definition: String,
    /// The answers for a turn that needs knowledge and for one that does not.
    pub answers: [String; 2],
    /// The probability at which a turn needs knowledge, 0..=1.
    #[serde(default = "half")]
    pub threshold: f64,
    /// The unified model whose drafts are the responses in the prompts: `shipped`, or a path.
    /// `None` if they are the data set's replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drafts: Option<String>,
}

fn half() -> f64 {
    0.5
}

/// A language model with an adapter, as a gate.
pub struct InstructedGate {
    name: String,
    card: InstructedCard,
    network: DecoderNetwork,
    vocabulary: Arc<DecoderVocabulary>,
    /// The first tokens of the answers.
    answers: [u32; 2],
}

impl InstructedGate {
    /// Opens the gate of a folder with a card, over a model. The folder has an adapter for a model in
    /// safetensors; without one, the model is taken as it is, since the adapter was merged into it.
    ///
    /// # Errors
    /// A file cannot be read, or the parts do not fit each other.
    pub fn open(model: &Path, folder: &Path, quantize: Quantize) -> Result<Self, ModelError> {
        let card = Self::card_of(folder)?;
        let adapter = folder.join(files::ADAPTER_WEIGHTS).exists().then(|| folder.to_owned());
        let config =
            LocalConfig { path: model.to_owned(), adapter, quantize, ..LocalConfig::default() };
        let (network, vocabulary) = files::open_parts(&config)?;
        let refused = |reason| ModelError::Refused { path: folder.join(CARD), reason };
        let answers = first_tokens(&card.answers, &vocabulary).map_err(refused)?;
        let name = folder.file_name().map_or_else(String::new, |name| name.display().to_string());
        Ok(Self { name, card, network, vocabulary, answers })
    }

    /// Reads the card of a folder.
    ///
    /// # Errors
    /// There is no card, or it is invalid.
    pub fn card_of(folder: &Path) -> Result<InstructedCard, ModelError> {
        let path = folder.join(CARD);
        let bytes = std::fs::read(&path)
            .map_err(|source| ModelError::Read { path: path.clone(), source })?;
        let refused = |reason: String| ModelError::Refused { path: path.clone(), reason };
        let card: InstructedCard =
            serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))?;
        if (0.0..=1.0).contains(&card.threshold) {
            Ok(card)
        } else {
            Err(refused(format!("the threshold {} is not between 0 and 1", card.threshold)))
        }
    }

    /// The card.
    pub fn card(&self) -> &InstructedCard {
        &self.card
    }

    /// Returns the probability of each prompt's turn to need knowledge, by the two answers alone.
    ///
    /// # Errors
    /// A prompt is longer than the model takes, or the network fails.
    pub fn probabilities(&self, prompts: &[NeedPrompt]) -> Result<(Vec<f64>, Encoded), String> {
        let mut tokens = Vec::with_capacity(prompts.len());
        for NeedPrompt(prompt) in prompts {
            tokens.push(tokens_of(prompt, &self.vocabulary)?);
        }
        let longest = tokens.iter().map(Vec::len).max().unwrap_or_default();
        let most = self.network.positions();
        if longest > most {
            return Err(format!("a prompt has {longest} tokens, and the model takes {most}"));
        }
        let mut caches: Vec<_> = tokens.iter().map(|_| self.network.empty_cache()).collect();
        let pieces = tokens.iter().zip(&mut caches);
        let mut pieces: Vec<_> =
            pieces.map(|(tokens, cache)| Piece::next(tokens, cache, true)).collect();
        let logits = self.network.forward(&mut pieces).map_err(|error| error.to_string())?;
        let [yes, no] = self.answers.map(|token| token as usize);
        let share = |of: &Vec<f32>| 1.0 / (1.0 + f64::from(of[no] - of[yes]).exp());
        let tokens = tokens.iter().map(|of| of.len() as u64).sum();
        Ok((logits.iter().map(share).collect(), Encoded { tokens, cut: 0 }))
    }
}

impl Backend for InstructedGate {
    type Item = NeedPrompt;
    type Output = f64;

    fn name(&self) -> &str {
        &self.name
    }

    fn tokens(&self, prompt: &NeedPrompt) -> usize {
        prompt.0.len() / BYTES_PER_TOKEN
    }

    /// The probabilities on the scale on which the card's threshold is one half.
    fn run(&self, prompts: &[NeedPrompt]) -> Result<(Vec<f64>, Encoded), String> {
        let (shares, encoded) = self.probabilities(prompts)?;
        let scaled = shares.into_iter().map(|share| on_scale(share, self.card.threshold));
        Ok((scaled.collect(), encoded))
    }
}

/// The tokens of a text of ours and of others, none of which becomes a control token.
fn tokens_of(text: &str, vocabulary: &DecoderVocabulary) -> Result<Vec<u32>, String> {
    let foreign = std::iter::once(0..text.len()).collect();
    vocabulary.encode(&Prompt { text: text.to_owned(), foreign, adds_special: true })
}

/// The first token of each answer after the end of a prompt.
fn first_tokens(answers: &[String; 2], vocabulary: &DecoderVocabulary) -> Result<[u32; 2], String> {
    let before = tokens_of(ANSWER_FOLLOWS, vocabulary)?;
    let mut found = [0; 2];
    for (token, answer) in found.iter_mut().zip(answers) {
        let tokens = tokens_of(&format!("{ANSWER_FOLLOWS} {answer}"), vocabulary)?;
        let rest = tokens.strip_prefix(&before[..]).and_then(|rest| rest.first());
        let joined = || format!("the tokenizer joins the answer {answer:?} with the prompt");
        *token = *rest.ok_or_else(joined)?;
    }
    if found[0] == found[1] {
        let [yes, no] = answers;
        return Err(format!("the answers {yes:?} and {no:?} begin with the same token"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::decoder::tests::tiny;

    /// A model of random weights with an adapter, and the probabilities that transformers and peft
    /// compute for it: `deploy/training/train adapter fixture`.
    fn fixture() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("gate/fixtures/instructed")
    }

    #[derive(Deserialize)]
    struct Reference {
        prompt: String,
        probability: f64,
        without_adapter: f64,
    }

    fn references() -> Vec<Reference> {
        let lines = std::fs::read_to_string(fixture().join("reference.jsonl")).expect("readable");
        let lines = lines.lines().map(|line| serde_json::from_str(line).expect("a reference"));
        lines.collect()
    }

    /// A folder with the card alone.
    fn card_alone() -> TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let card = fixture().join("adapter").join(CARD);
        std::fs::copy(card, folder.path().join(CARD)).expect("copied");
        folder
    }

    fn shares(model: &Path, folder: &Path, quantize: Quantize) -> Vec<f64> {
        let gate = InstructedGate::open(model, folder, quantize).expect("a gate");
        let prompts = references().into_iter().map(|it| NeedPrompt(it.prompt));
        gate.probabilities(&prompts.collect::<Vec<_>>()).expect("probabilities").0
    }

    #[test]
    fn probabilities_are_those_of_transformers_and_peft() {
        let (base, adapter) = (fixture().join("base"), fixture().join("adapter"));
        let with = shares(&base, &adapter, Quantize::None);
        let without = shares(&base, card_alone().path(), Quantize::None);
        let references = references();
        assert!(references.len() >= 6);
        for ((reference, with), without) in references.iter().zip(with).zip(without) {
            let Reference { prompt, probability, without_adapter } = reference;
            assert!((probability - with).abs() < 1e-4, "{prompt}: {with}, not {probability}");
            assert!((without_adapter - without).abs() < 1e-4, "{prompt}: {without}");
        }
        let eight_bits = shares(&base, &adapter, Quantize::Q8Zero);
        let near =
            |(reference, share): (&Reference, f64)| (reference.probability - share).abs() < 0.05;
        assert!(references.iter().zip(eight_bits).all(near));
    }

    #[test]
    fn an_adapter_merged_into_a_gguf_file_needs_the_card_alone() {
        let adapter = fixture().join("adapter");
        let (_folder, model) = tiny::merged_gguf(&fixture().join("base"), &adapter);
        let shares = shares(&model.path, card_alone().path(), Quantize::default());
        let references = references();
        assert_eq!(shares.len(), references.len());
        for (Reference { prompt, probability, .. }, share) in references.iter().zip(shares) {
            assert!((probability - share).abs() < 1e-3, "{prompt}: {share}, not {probability}");
        }
        let twice = InstructedGate::open(&model.path, &adapter, Quantize::default());
        let refused = twice.err().expect("an adapter over a GGUF file").to_string();
        assert!(refused.contains("merge it before the model is converted to GGUF"), "{refused}");
    }

    #[test]
    fn the_threshold_of_the_card_is_one_half() {
        let folder = tempfile::tempdir().expect("a folder");
        let adapter = fixture().join("adapter");
        let write = |more: &str| {
            let card = std::fs::read_to_string(adapter.join(CARD)).expect("a card");
            let card = card.replace("\"threshold\": 0.5", more);
            std::fs::write(folder.path().join(CARD), card).expect("written");
        };
        let open = || InstructedGate::open(&fixture().join("base"), folder.path(), Quantize::None);
        write("\"threshold\": 0.9");
        let gate = open().expect("a gate");
        let prompts: Vec<_> = references().into_iter().map(|it| NeedPrompt(it.prompt)).collect();
        let (scores, _) = gate.run(&prompts).expect("scores");
        let (shares, encoded) = gate.probabilities(&prompts).expect("probabilities");
        assert!(encoded.tokens > 0);
        for (score, share) in scores.into_iter().zip(shares) {
            assert_eq!(score >= 0.5, share >= 0.9, "{share}");
        }
        let refused = |what: &str| open().err().expect(what).to_string();
        write("\"threshold\": 1.5");
        assert!(refused("1.5").contains("is not between 0 and 1"));
        write("\"threshold\": 0.5, \"answers\": [\"True\", \"True\"]");
        assert!(refused("duplicate keys").contains("answers"));
        std::fs::remove_file(folder.path().join(CARD)).expect("removed");
        assert!(refused("no card").contains(CARD));
    }
}
