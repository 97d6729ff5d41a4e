//! Measures a trained gate by its definition of need for a data set, or by those of others.

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

/// A trained gate by its definitions of need.
pub struct Learned {
    gate: Arc<Gate>,
    by: By,
}

/// The definitions that score a turn, by their indices among the card's.
enum By {
    /// That of the data set, with its threshold for the class.
    Own(usize, Positive),
    /// The highest of several, as in the stream, on the scale where each one's threshold is one half.
    Others(Vec<usize>),
}

impl Learned {
    /// Selects a data set's definition, and its threshold for the class. `None` if the gate does
    /// not know the data set.
    pub fn new(gate: Arc<Gate>, format: Format, positive: Positive) -> Option<Self> {
        let mut definitions = gate.card().definitions.iter();
        let definition = definitions.position(|definition| definition.name == format.name())?;
        Some(Self { gate, by: By::Own(definition, positive) })
    }

    /// Selects definitions for a data set that the gate was not trained on: those of these names, or
    /// all if none is named. `None` if the gate has none of them.
    pub fn elsewhere(gate: Arc<Gate>, named: &[String]) -> Option<Self> {
        let definitions = gate.card().definitions.iter().enumerate();
        let is_named = |name: &String| named.is_empty() || named.contains(name);
        let named: Vec<usize> =
            definitions.filter(|(_, it)| is_named(&it.name)).map(|(at, _)| at).collect();
        (!named.is_empty()).then(|| Self { gate, by: By::Others(named) })
    }

    /// Returns how likely a turn needs knowledge, from its need by definition.
    fn need(&self, needs: &[f64]) -> f64 {
        let definitions = &self.gate.card().definitions;
        match &self.by {
            By::Own(at, _) => needs[*at],
            By::Others(named) => {
                let scaled = |at: &usize| definitions[*at].on_scale(needs[*at]);
                named.iter().map(scaled).fold(0.0, f64::max)
            }
        }
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
        let definitions = &self.gate.card().definitions;
        match &self.by {
            By::Own(at, Positive::Null) => definitions[*at].null_threshold,
            By::Own(at, _) => definitions[*at].threshold,
            By::Others(_) => 0.5,
        }
    }

    fn is_causal(&self) -> bool {
        !self.gate.card().shape.variant.reads_response()
    }

    fn scores(&self, turns: &[LabelledTurn], progress: &dyn Fn()) -> Result<Vec<f64>, GateError> {
        let mut scores = Vec::with_capacity(turns.len());
        for batch in turns.chunks(BATCH) {
            let tokens: Result<Vec<_>, _> =
                batch.iter().map(|turn| tokens_of(&self.gate, turn)).collect();
            let tokens = tokens.map_err(|error| self.failed(error))?;
            let turns: Vec<_> = tokens.iter().zip(batch.iter().map(LabelledTurn::last)).collect();
            for needs in self.gate.needs(&turns).map_err(|error| self.failed(error))? {
                scores.push(self.need(&needs));
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
