//! Trained weights of attention: W of `integration` (DH-RAG eq 6), made by `turnstream train
//! integration` and read where `integration.form` is `learned`.
//!
//! A file is a matrix and a [`Card`]. None ships: the data with gold labels that there is may be
//! measured on and not given away.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use turnstream_operators::integration::IntegrationForm;
use turnstream_operators::integration::{Attention, IntegrationConfig, Matrix};

pub mod train;

/// Version of the layout.
pub const FORMAT_VERSION: u32 = 1;

/// Under which key the card stands in the metadata.
const CARD: &str = "turnstream";
/// The name of the matrix.
const MATRIX: &str = "matrix";

/// What a file of weights says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// Version of the layout.
    pub format_version: u32,
    /// Name of the encoder whose vectors the matrix is for.
    pub encoder: String,
    /// Its fingerprint, in hexadecimal.
    pub fingerprint: String,
    /// What the likeness of words counts beside vectors.
    pub words: f64,
    /// What it counts where the query has no vector.
    pub words_alone: f64,
    /// The files that it was trained on, by their names.
    pub trained_on: Vec<String>,
    /// Questions that it was trained on.
    pub questions: usize,
    /// Licences of the data, where they were given.
    #[serde(default)]
    pub licences: Vec<String>,
}

/// Why weights cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AttentionError {
    /// The file cannot be read.
    #[error("integration.weights: cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is something else, or damaged.
    #[error(
        "integration.weights: {path} has no weights of attention ({what}); make some with \
         `turnstream train integration`", path = path.display()
    )]
    NotWeights {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The vectors are another encoder's.
    #[error(
        "integration.weights: {path} is for the vectors of {wanted}, and the configured encoder is \
         {configured}; train for this one, or set models.embedder", path = path.display()
    )]
    Encoder {
        /// The file.
        path: PathBuf,
        /// Whose vectors it is for.
        wanted: String,
        /// Whose there are.
        configured: String,
    },
}

/// The weights that the configuration names; `None` where attention is not learned. `encoder` has
/// the name and fingerprint of what vectors are made by.
///
/// # Errors
/// They cannot be read, or are for the vectors of another encoder.
pub fn configured(
    config: &IntegrationConfig,
    encoder: Option<&(String, u64)>,
) -> Result<Option<Arc<Attention>>, AttentionError> {
    let Some(path) = path(config) else { return Ok(None) };
    let (card, attention) = read(path)?;
    card.check(path, encoder)?;
    Ok(Some(Arc::new(attention)))
}

/// The same where it is not known yet what vectors are made by.
///
/// # Errors
/// They cannot be read.
pub fn configured_for_any(
    config: &IntegrationConfig,
) -> Result<Option<Arc<Attention>>, AttentionError> {
    path(config).map(|path| Ok(Arc::new(read(path)?.1))).transpose()
}

fn path(config: &IntegrationConfig) -> Option<&Path> {
    config.weights.as_deref().filter(|_| config.form == IntegrationForm::Learned)
}

impl Card {
    /// Refuses vectors of another encoder than the weights are for.
    ///
    /// # Errors
    /// [`AttentionError::Encoder`], naming both.
    pub fn check(
        &self,
        path: &Path,
        encoder: Option<&(String, u64)>,
    ) -> Result<(), AttentionError> {
        let wanted = format!("{}/{}", self.encoder, self.fingerprint);
        let configured = encoder.map_or_else(
            || "none".to_owned(),
            |(name, fingerprint)| format!("{name}/{fingerprint:016x}"),
        );
        if wanted == configured {
            return Ok(());
        }
        Err(AttentionError::Encoder { path: path.to_owned(), wanted, configured })
    }
}

/// Reads a file of weights.
///
/// # Errors
/// It cannot be read, or is none.
pub fn read(path: &Path) -> Result<(Card, Attention), AttentionError> {
    let bytes = std::fs::read(path)
        .map_err(|source| AttentionError::Read { path: path.to_owned(), source })?;
    parse(&bytes).map_err(|what| AttentionError::NotWeights { path: path.to_owned(), what })
}

fn parse(bytes: &[u8]) -> Result<(Card, Attention), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| told(&error))?;
    let metadata = metadata.metadata().as_ref();
    let card =
        metadata.and_then(|metadata| metadata.get(CARD)).ok_or("it does not say what it is")?;
    let card: Card = serde_json::from_str(card).map_err(|error| told(&error))?;
    if card.format_version != FORMAT_VERSION {
        return Err(format!("layout {}; this version reads {FORMAT_VERSION}", card.format_version));
    }
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| told(&error))?;
    let matrix = tensors.tensor(MATRIX).map_err(|error| told(&error))?;
    if matrix.dtype() != Dtype::F32 {
        return Err("its matrix is not of 32-bit floats".to_owned());
    }
    let numbers = matrix.data().chunks_exact(4);
    let numbers: Vec<f32> =
        numbers.map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect();
    let finite = [card.words, card.words_alone].iter().all(|number| number.is_finite());
    if !finite || numbers.iter().any(|number| !number.is_finite()) {
        return Err("a number in it is not finite".to_owned());
    }
    let rows = matrix.shape().first().copied().unwrap_or_default();
    let matrix = Matrix::new(rows, numbers).ok_or("its matrix is not square")?;
    let attention = Attention::trained(card.words, card.words_alone, matrix);
    Ok((card, attention))
}

/// Weights as a file. The same weights give the same bytes.
///
/// # Errors
/// They cannot be laid out: a fault of ours.
pub fn to_bytes(card: &Card, matrix: &Matrix) -> Result<Vec<u8>, safetensors::SafeTensorError> {
    let bytes: Vec<u8> = matrix.numbers().iter().flat_map(|it| it.to_le_bytes()).collect();
    let shape = vec![matrix.dimensions(); 2];
    let view = TensorView::new(Dtype::F32, shape, &bytes)?;
    let card = serde_json::to_string(card)
        .map_err(safetensors::SafeTensorError::InvalidHeaderDeserialization)?;
    let metadata = std::collections::HashMap::from([(CARD.to_owned(), card)]);
    safetensors::serialize([(MATRIX, view)], Some(metadata))
}

#[cfg(test)]
mod tests;
