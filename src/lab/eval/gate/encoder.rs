//! Measures a gate that is an encoder of the BERT family, fine-tuned whole: what RAGate-PEFT is
//! compared with. `deploy/training` makes it, on the examples of an adapter.

use std::path::Path;

use turnstream_models::ModelError;
use turnstream_models::classifier::Classifier;
use turnstream_models::gate::instructed::{InstructedCard, InstructedGate};
use turnstream_ports::model::gate::GateInputs;
use turnstream_schemas::Speaker;

use super::{GateError, ScoresTurns};
use crate::labelled::{LabelledTurn, Said};

/// Turns scored at once.
const BATCH: usize = 16;

/// An encoder that was fine-tuned as a gate.
pub struct FineTuned {
    encoder: Classifier,
    card: InstructedCard,
}

impl FineTuned {
    /// Opens the folder of an encoder and its card.
    ///
    /// # Errors
    /// A file cannot be read, or is not supported.
    pub fn open(folder: &Path) -> Result<Self, ModelError> {
        let card = InstructedGate::card_of(folder)?;
        Ok(Self { encoder: Classifier::open(folder, "encoder")?, card })
    }
}

/// The pair of texts that an encoder reads about a turn: the current utterance, and the earlier ones.
/// The latest comes first, since a text that is too long loses its end.
pub fn pair_of(turn: &LabelledTurn) -> (String, String) {
    let lines: Vec<String> = turn.utterances.iter().map(line).rev().collect();
    let (last, before) = lines.split_first().map_or(("", &[][..]), |(last, before)| (last, before));
    (last.to_owned(), before.join("\n"))
}

fn line(said: &Said) -> String {
    let speaker = if said.speaker == Speaker::User { "User" } else { "System" };
    format!("{speaker}: {}", said.text)
}

impl ScoresTurns for FineTuned {
    fn name(&self) -> String {
        format!("encoder, fine-tuned ({})", GateInputs::Contx.name())
    }

    fn threshold(&self) -> f64 {
        self.card.threshold
    }

    fn scores(&self, turns: &[LabelledTurn], progress: &dyn Fn()) -> Result<Vec<f64>, GateError> {
        let failed = |error: String| GateError::Failed { gate: self.name(), source: error.into() };
        let mut scores = Vec::with_capacity(turns.len());
        for batch in turns.chunks(BATCH) {
            let pairs: Vec<(String, String)> = batch.iter().map(pair_of).collect();
            let pairs = pairs.iter().map(|(utterance, earlier)| (&**utterance, &**earlier));
            self.encoder.score(&pairs.collect::<Vec<_>>(), &mut scores).map_err(failed)?;
            batch.iter().for_each(|_| progress());
        }
        Ok(scores.into_iter().map(f64::from).collect())
    }
}
