//! Measures a trained gate by one of its definitions of need.

use std::path::Path;
use std::sync::Arc;

use turnstream_formats::Format;
use turnstream_models::gate::{self, Gate};

use super::table::Extra;
use super::{GateError, ScoresTurns};
use crate::gate_reading::tokens_of;
use crate::labelled::{LabelledTurn, Positive};

/// Turns scored at once.
const BATCH: usize = 16;

/// A trained gate by one definition of need.
pub struct Learned {
    gate: Arc<Gate>,
    /// The index among the card's definitions.
    definition: usize,
    positive: Positive,
}

impl Learned {
    /// Selects a data set's definition, and its threshold for the class. `None` if the gate does
    /// not know the data set.
    pub fn new(gate: Arc<Gate>, format: Format, positive: Positive) -> Option<Self> {
        let mut definitions = gate.card().definitions.iter();
        let definition = definitions.position(|definition| definition.name == format.name())?;
        Some(Self { gate, definition, positive })
    }
}

/// Reads the trained gates of a folder in the order of their file names, one for each known data
/// set and class.
///
/// # Errors
/// The folder or a gate in it cannot be read.
pub fn gates_of(folder: &Path) -> Result<Vec<Extra>, GateError> {
    let read = |source| gate::GateError::Read { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.extension().is_some_and(|extension| extension == "zst") {
            files.push(path);
        }
    }
    files.sort();
    let mut gates = Vec::new();
    for file in files {
        let gate = Arc::new(Gate::open(&file)?);
        for format in crate::labelled::LABELLED {
            gates.extend(extras(&gate, format));
        }
    }
    Ok(gates)
}

/// Returns a gate for the table of a data set, once for each class; empty if the gate does not know
/// the data set.
pub fn extras(gate: &Arc<Gate>, format: Format) -> Vec<Extra> {
    let extra = |positive: &Positive| {
        let learned = Learned::new(Arc::clone(gate), format, *positive)?;
        Some(Extra { format, positive: Some(*positive), gate: Box::new(learned) })
    };
    Positive::of(format).iter().filter_map(extra).collect()
}

impl ScoresTurns for Learned {
    fn name(&self) -> String {
        let card = self.gate.card();
        format!("{} ({})", card.name, card.shape.variant.name())
    }

    fn threshold(&self) -> f64 {
        let definition = &self.gate.card().definitions[self.definition];
        match self.positive {
            Positive::Null => definition.null_threshold,
            _ => definition.threshold,
        }
    }

    fn is_causal(&self) -> bool {
        !self.gate.card().shape.variant.reads_response()
    }

    fn scores(&self, turns: &[LabelledTurn], progress: &dyn Fn()) -> Result<Vec<f64>, GateError> {
        let definition = &self.gate.card().definitions[self.definition];
        let mut scores = Vec::with_capacity(turns.len());
        for batch in turns.chunks(BATCH) {
            let tokens: Result<Vec<_>, _> =
                batch.iter().map(|turn| tokens_of(&self.gate, turn)).collect();
            let tokens = tokens.map_err(|error| self.failed(error))?;
            let classes = self.gate.probabilities(&tokens.iter().collect::<Vec<_>>());
            for classes in classes.map_err(|error| self.failed(error))? {
                scores.push(definition.score(&classes[self.definition]));
                progress();
            }
        }
        Ok(scores)
    }
}

impl Learned {
    fn failed(&self, error: impl std::error::Error + Send + Sync + 'static) -> GateError {
        GateError::Failed { gate: self.name(), source: Box::new(error) }
    }
}
