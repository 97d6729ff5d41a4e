//! Trained weights of attention: W of `integration` (DH-RAG eq 6). `turnstream train integration`
//! writes them, and `integration.form: learned` reads them.
//!
//! A file is a matrix and a [`AttentionCard`]. The program ships without one, because the available data
//! with gold labels may be used to measure but not be redistributed.

use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use turnstream_ports::model::matrix::Matrix;

/// Version of the layout.
pub const FORMAT_VERSION: u32 = 1;

/// The card's key in the file's metadata.
const CARD: &str = "turnstream";
/// The name of the matrix.
const MATRIX: &str = "matrix";

/// Describes a file of weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionCard {
    /// Version of the layout.
    pub format_version: u32,
    /// The encoder that the matrix was trained for.
    pub encoder: String,
    /// The encoder's fingerprint, in hexadecimal.
    pub fingerprint: String,
    /// The weight of lexical similarity beside vectors.
    pub words: f64,
    /// The weight of lexical similarity for a query without a vector.
    pub words_alone: f64,
    /// Names of the training files.
    pub trained_on: Vec<String>,
    /// The number of training questions.
    pub questions: usize,
    /// Licences of the data, if they were given.
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
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is damaged, or is not a file of weights.
    #[error(
        "integration.weights: {path} has no weights of attention ({what}); make some with \
         `turnstream train integration`", path = path.display()
    )]
    NotWeights {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file.
        what: String,
    },
    /// The weights belong to another encoder.
    #[error(
        "integration.weights: {path} is for the vectors of {wanted}, and the configured encoder is \
         {configured}; train for this one, or set models.embedder", path = path.display()
    )]
    Encoder {
        /// The file.
        path: PathBuf,
        /// The encoder of the weights.
        wanted: String,
        /// The configured encoder.
        configured: String,
    },
}

impl AttentionCard {
    /// Checks that the weights were trained for the configured encoder.
    ///
    /// # Errors
    /// [`AttentionError::Encoder`], which names both encoders.
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
/// The file cannot be read, or is not a file of weights.
pub fn read(path: &Path) -> Result<(AttentionCard, Matrix), AttentionError> {
    let bytes = std::fs::read(path)
        .map_err(|source| AttentionError::Read { path: path.to_owned(), source })?;
    parse(&bytes).map_err(|what| AttentionError::NotWeights { path: path.to_owned(), what })
}

fn parse(bytes: &[u8]) -> Result<(AttentionCard, Matrix), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| told(&error))?;
    let metadata = metadata.metadata().as_ref();
    let card =
        metadata.and_then(|metadata| metadata.get(CARD)).ok_or("it does not say what it is")?;
    let card: AttentionCard = serde_json::from_str(card).map_err(|error| told(&error))?;
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
    Ok((card, matrix))
}

/// Serialises weights. The same weights give the same bytes.
///
/// # Errors
/// safetensors cannot lay the weights out: a bug in this program.
pub fn to_bytes(
    card: &AttentionCard,
    matrix: &Matrix,
) -> Result<Vec<u8>, safetensors::SafeTensorError> {
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
