//! What was trained and a stage's configuration names: the gate, the weights of attention and the
//! judge of consistency, opened and put behind what the stages ask.

use std::path::Path;
use std::sync::Arc;

use turnstream_models::attention::{self, AttentionError};
use turnstream_models::consistency::{self, ConsistencyError};
use turnstream_models::gate::{Gate, GateError};
use turnstream_operators::consistency::{ConsistencyConfig, ConsistencyForm, Judge};
use turnstream_operators::gate::learned::SHIPPED;
use turnstream_operators::gate::{GateConfig, Judges, LearnedGateConfig};
use turnstream_operators::integration::{Attention, IntegrationConfig, IntegrationForm};
use turnstream_operators::sources::Sources;
use turnstream_ports::model::gate::LearnedGate;
use turnstream_ports::model::matrix::Matrix;

/// Why a gate does not fit the configuration.
#[derive(Debug, thiserror::Error)]
pub enum TrainedGateError {
    /// It cannot be used.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The configuration names a definition that the gate does not know.
    #[error(
        "gate.learned.definitions: {gate} does not know `{name}`; it knows {}",
        known.join(", ")
    )]
    Definition {
        /// The gate's name.
        gate: String,
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The configuration has the gate decide before there is what it reads.
    #[error("gate.learned.model: {0}")]
    Unread(String),
}

/// The gate that the configuration names; `None` where no source that can be asked is judged by one.
///
/// # Errors
/// It cannot be used, or does not know a definition that is asked for.
pub fn gate(
    config: &GateConfig,
    sources: &Sources,
) -> Result<Option<Arc<dyn LearnedGate>>, TrainedGateError> {
    let judges = Judges::new(config, sources);
    if !judges.asks_encoder() {
        return Ok(None);
    }
    let LearnedGateConfig { model, .. } = &config.learned;
    let gate = match model.as_str() {
        SHIPPED => Gate::shipped()?,
        path => Arc::new(Gate::open(Path::new(path))?),
    };
    let known: Vec<String> =
        gate.card().definitions.iter().map(|definition| definition.name.clone()).collect();
    let variant = gate.card().shape.variant;
    for (reads, is_set, key) in [
        (variant.reads_knowledge(), config.after_retrieval, "after_retrieval"),
        (variant.reads_response(), config.after_draft, "after_draft"),
    ] {
        if reads != is_set {
            let (name, variant) = (&gate.card().name, variant.name());
            let what = format!("`{name}` is {variant}; set gate.{key} = {reads}");
            return Err(TrainedGateError::Unread(what));
        }
    }
    if let Some(name) = judges.definitions().iter().find(|name| !known.contains(name)) {
        let (gate, name) = (gate.card().name.clone(), name.clone());
        return Err(TrainedGateError::Definition { gate, name, known });
    }
    Ok(Some(gate))
}

/// The weights that the configuration names; `None` where attention is not learned. `encoder` has
/// the name and fingerprint of what vectors are made by.
///
/// # Errors
/// They cannot be read, or are for the vectors of another encoder.
pub fn attention(
    config: &IntegrationConfig,
    encoder: Option<&(String, u64)>,
) -> Result<Option<Arc<Attention>>, AttentionError> {
    let Some(path) = path(config) else { return Ok(None) };
    let (card, matrix) = attention::read(path)?;
    card.check(path, encoder)?;
    Ok(Some(Arc::new(trained(&card, matrix))))
}

/// The same where it is not known yet what vectors are made by.
///
/// # Errors
/// They cannot be read.
pub fn attention_for_any(
    config: &IntegrationConfig,
) -> Result<Option<Arc<Attention>>, AttentionError> {
    let Some(path) = path(config) else { return Ok(None) };
    let (card, matrix) = attention::read(path)?;
    Ok(Some(Arc::new(trained(&card, matrix))))
}

fn path(config: &IntegrationConfig) -> Option<&Path> {
    config.weights.as_deref().filter(|_| config.form == IntegrationForm::Learned)
}

/// W as a file has it.
pub fn trained(card: &attention::Card, matrix: Matrix) -> Attention {
    Attention::trained(card.words, card.words_alone, matrix)
}

/// The judge that the configuration names; `None` where the stage is not learned.
///
/// # Errors
/// Its table cannot be used.
pub fn configured_judge(config: &ConsistencyConfig) -> Result<Option<Judge>, ConsistencyError> {
    match &config.table {
        Some(path) if config.form == ConsistencyForm::Learned => judge(path).map(Some),
        _ => Ok(None),
    }
}

/// The judge of a table.
///
/// # Errors
/// The file cannot be read, or is no table that was trained for it.
pub fn judge(path: &Path) -> Result<Judge, ConsistencyError> {
    let (table, calibration) = consistency::open(path)?;
    Ok(Judge::new(Arc::new(table), calibration))
}

#[cfg(test)]
mod tests;
