//! Measures a gate that is a language model with an adapter (RAGate-PEFT).

use std::borrow::Cow;
use std::path::Path;

use turnstream_models::ModelError;
use turnstream_models::batch::Backend;
use turnstream_models::decoder::Quantize;
use turnstream_models::gate::instructed::{CARD, InstructedCard, InstructedGate};
use turnstream_models::unified::{UnifiedModel, UnifiedWeights};
use turnstream_operators::gate::instructed::prompt;
use turnstream_ports::model::gate::{GateInputs, GateReading, NeedPrompt};

use super::drafts::draft;
use super::encoder::FineTuned;
use super::table::Extra;
use super::{GateError, ScoresTurns};
use crate::labelled::{LabelledTurn, Positive};

/// Turns scored at once.
const BATCH: usize = 8;

/// The model's folder within that of an adapter, where the table looks for it.
const BASE: &str = "base";

/// A language model with an adapter.
pub struct Instructed {
    gate: InstructedGate,
    /// Drafts the responses in the prompts; `None` if they are the data set's replies.
    drafts: Option<UnifiedModel>,
}

impl Instructed {
    /// Opens the adapter of a folder over a model, and the model that drafts responses if the card
    /// names one.
    ///
    /// # Errors
    /// A file cannot be read, or the parts do not fit each other.
    pub fn open(model: &Path, folder: &Path) -> Result<Self, ModelError> {
        let gate = InstructedGate::open(model, folder, Quantize::Q8Zero)?;
        let drafts = gate.card().drafts.clone().map(UnifiedWeights::from);
        let drafts = drafts.as_ref().map(UnifiedModel::open).transpose()?;
        Ok(Self { gate, drafts })
    }

    /// Returns the data set that the adapter was trained on.
    pub fn trained_on(&self) -> &str {
        &self.gate.card().definition
    }
}

/// The prompt about a labelled turn. Inputs with a response have the turn's reply.
pub fn prompt_of(turn: &LabelledTurn, inputs: GateInputs) -> String {
    let utterances = turn.utterances.iter().map(|said| (said.speaker, &*said.text));
    let reading = GateReading {
        utterances: utterances.collect(),
        knowledge: turn.knowledge.iter().map(String::as_str).collect(),
        response: turn.reply.as_deref(),
    };
    prompt(&reading, inputs)
}

/// Opens the gates in the folders of a folder, in the order of their names: adapters, each over the
/// model in its folder `base`, and [fine-tuned encoders](FineTuned). Returns each for every class of
/// the data set that it was trained on.
///
/// # Errors
/// A folder or a gate in it cannot be read.
pub fn gates_in_folders(folder: &Path) -> Result<Vec<Extra>, GateError> {
    let failed = |error: ModelError| GateError::Failed {
        gate: folder.display().to_string(),
        source: Box::new(error),
    };
    let read = |source| failed(ModelError::Read { path: folder.to_owned(), source });
    let entries = std::fs::read_dir(folder).map_err(read)?;
    let mut folders =
        entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(read)?;
    folders.retain(|folder| folder.join(CARD).exists());
    folders.sort();
    let mut gates = Vec::new();
    for folder in folders {
        let definition = InstructedGate::card_of(&folder).map_err(failed)?.definition;
        for format in crate::labelled::LABELLED.into_iter().filter(|it| it.name() == definition) {
            for positive in Positive::of(format) {
                let base = folder.join(BASE);
                let gate: Box<dyn ScoresTurns> = if base.exists() {
                    Box::new(Instructed::open(&base, &folder).map_err(failed)?)
                } else {
                    Box::new(FineTuned::open(&folder).map_err(failed)?)
                };
                gates.push(Extra { format, positive: Some(*positive), gate });
            }
        }
    }
    Ok(gates)
}

impl ScoresTurns for Instructed {
    fn name(&self) -> String {
        let InstructedCard { inputs, drafts, .. } = self.gate.card();
        let drafts = if drafts.is_some() { ", drafts" } else { "" };
        format!("adapter ({}{drafts})", inputs.name())
    }

    fn threshold(&self) -> f64 {
        self.gate.card().threshold
    }

    fn is_causal(&self) -> bool {
        self.drafts.is_some() || !self.gate.card().inputs.reads_response()
    }

    fn scores(&self, turns: &[LabelledTurn], progress: &dyn Fn()) -> Result<Vec<f64>, GateError> {
        let mut scores = Vec::with_capacity(turns.len());
        for batch in turns.chunks(BATCH) {
            let mut batch = Cow::Borrowed(batch);
            if let Some(model) = &self.drafts {
                let mut ask = |requests: &[_]| model.run(requests).map(|(answers, _)| answers);
                draft(batch.to_mut(), &mut ask, &|| ())?;
            }
            let inputs = self.gate.card().inputs;
            let prompts = batch.iter().map(|turn| NeedPrompt(prompt_of(turn, inputs)));
            let prompts: Vec<NeedPrompt> = prompts.collect();
            let failed =
                |error: String| GateError::Failed { gate: self.name(), source: error.into() };
            scores.extend(self.gate.probabilities(&prompts).map_err(failed)?.0);
            batch.iter().for_each(|_| progress());
        }
        Ok(scores)
    }
}
