//! Opens the parts of stages that `turnstream train` wrote: the gate, the weights of attention and
//! the judge of consistency.

use std::path::Path;
use std::sync::Arc;

use turnstream_models::attention::{self, AttentionError};
use turnstream_models::consistency::{self, ConsistencyError};
use turnstream_models::gate::{Gate, GateError};
use turnstream_operators::attention::Attention;
use turnstream_operators::consistency::{ConsistencyConfig, ConsistencyForm};
use turnstream_operators::gate::learned::SHIPPED;
use turnstream_operators::gate::{GateConfig, Judges, LearnedGateConfig};
use turnstream_operators::integration::{IntegrationConfig, IntegrationForm};
use turnstream_operators::judge::Judge;
use turnstream_operators::sources::Sources;
use turnstream_ports::model::gate::LearnedGate;
use turnstream_ports::model::matrix::Matrix;

/// Why the configured gate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrainedGateError {
    /// The gate cannot be opened.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The gate lacks a definition that the configuration names.
    #[error(
        "gate.learned.definitions: {gate} has no definition `{name}`; name one of {}",
        known.join(", ")
    )]
    Definition {
        /// The gate's name.
        gate: String,
        /// The definition that it lacks.
        name: String,
        /// The definitions that it has.
        known: Vec<String>,
    },
    /// The configuration has the gate decide too early for what it reads, or later than it needs.
    #[error("gate.learned.model: {0}")]
    Unread(String),
}

/// Opens the configured gate; `None` if the configured form asks none for these sources.
///
/// # Errors
/// The gate cannot be opened or does not fit the configuration.
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
            let what = format!("`{name}` is of the variant {variant}; set gate.{key} = {reads}");
            return Err(TrainedGateError::Unread(what));
        }
    }
    if let Some(name) = judges.definitions().iter().find(|name| !known.contains(name)) {
        let (gate, name) = (gate.card().name.clone(), name.clone());
        return Err(TrainedGateError::Definition { gate, name, known });
    }
    Ok(Some(gate))
}

/// Opens the configured weights; `None` if attention is not learned. `encoder` has the name and the
/// fingerprint of the configured encoder.
///
/// # Errors
/// The weights cannot be read, or were trained for another encoder.
pub fn attention(
    config: &IntegrationConfig,
    encoder: Option<&(String, u64)>,
) -> Result<Option<Arc<Attention>>, AttentionError> {
    let Some(path) = path(config) else { return Ok(None) };
    let (card, matrix) = attention::read(path)?;
    card.check(path, encoder)?;
    Ok(Some(Arc::new(trained(&card, matrix))))
}

/// As [`attention()`], without a check of the encoder, for use before the encoder is known.
///
/// # Errors
/// The weights cannot be read.
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

/// The attention with the W of a file.
pub fn trained(card: &attention::AttentionCard, matrix: Matrix) -> Attention {
    Attention::trained(card.words, card.words_alone, matrix)
}

/// Opens the configured judge; `None` if the stage is not learned.
///
/// # Errors
/// The table cannot be used.
pub fn configured_judge(config: &ConsistencyConfig) -> Result<Option<Judge>, ConsistencyError> {
    match &config.table {
        Some(path) if config.form == ConsistencyForm::Learned => judge(path).map(Some),
        _ => Ok(None),
    }
}

/// Opens the judge in a table.
///
/// # Errors
/// The file cannot be read, or is not a table that was trained to judge.
pub fn judge(path: &Path) -> Result<Judge, ConsistencyError> {
    let (table, calibration) = consistency::open(path)?;
    Ok(Judge::new(Arc::new(table), calibration))
}

#[cfg(test)]
mod tests;
