//! Distils a static table from a sentence encoder: chooses a vector for each word piece, so that
//! the sum over a text has the direction of the encoder's vector of the whole text.
//!
//! The steps: encode every piece alone; weight a piece down the more common it is in the corpus
//! (smooth inverse frequency); transform the vectors by a ridge regression from sums of pieces to
//! the encoder's vectors of whole texts; then fit each piece by gradient descent on the cosine. The
//! encoder's vectors of texts are first projected on their principal axes, so that fewer dimensions
//! suffice.
//!
//! Only the order of the texts is random, and a seed determines it: the same texts, encoder and
//! options give the same table.

use nalgebra::{DMatrix, SymmetricEigen};
use tokenizers::Tokenizer;

use turnstream_ports::model::encoder::{EncodeError, Encoder, encode_all};

mod fit;
mod pieces;
#[cfg(test)]
mod tests;

use fit::{Corpus, Fit};
pub use pieces::{PieceError, keep_latin_pieces};

/// The hyperparameters.
#[derive(Clone, Debug, PartialEq)]
pub struct DistilOptions {
    /// Numbers per vector, at most those of the encoder.
    pub dimensions: usize,
    /// Passes over the texts.
    pub epochs: u32,
    /// The initial learning rate, which falls to 0 along half a cosine.
    pub learning_rate: f32,
    /// a in a / (a + p), the weight of a piece with the share p of the corpus.
    pub smoothing: f64,
    /// Every n-th text is held out.
    pub hold_out_every: usize,
    /// Seeds the order of the texts.
    pub seed: u64,
    /// Threads that call the encoder.
    pub threads: usize,
}

impl Default for DistilOptions {
    fn default() -> Self {
        Self {
            dimensions: 256,
            epochs: 6,
            learning_rate: 1e-3,
            smoothing: 1e-3,
            hold_out_every: 50,
            seed: 1,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// A distilled table with its mean cosine to the encoder's vectors on held-out texts, in the
/// table's dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Distilled {
    /// One vector per piece, by the piece's number.
    pub vectors: Vec<f32>,
    /// The share of the encoder's variance in the kept dimensions.
    pub kept_variance: f64,
    /// Texts for fitting.
    pub texts: usize,
    /// Held-out texts.
    pub held_out: usize,
    /// The cosine after the regression.
    pub cosine_of_regression: f64,
    /// The final cosine.
    pub cosine: f64,
}

/// Why distilling failed.
#[derive(Debug, thiserror::Error)]
pub enum DistilError {
    /// The encoder failed.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The tokenizer is unsuitable.
    #[error(transparent)]
    Piece(#[from] PieceError),
    /// There are too few texts.
    #[error("{texts} texts are too few for {dimensions} dimensions; give more texts")]
    TooFewTexts {
        /// The number of texts.
        texts: usize,
        /// Dimensions of the table.
        dimensions: usize,
    },
    /// More dimensions than the encoder has.
    #[error("the encoder has {encoder} dimensions, so the table cannot have {dimensions}")]
    TooManyDimensions {
        /// Dimensions of the encoder.
        encoder: usize,
        /// Dimensions of the table.
        dimensions: usize,
    },
}

/// Receives progress: the step, the items done, and their total.
pub type DistilProgress<'t> = dyn Fn(&str, usize, usize) + Sync + 't;

/// Distils a table for the pieces of `tokenizer` from an encoder, and reports progress to
/// `progress`.
///
/// # Errors
/// The encoder fails, or there are too few texts.
pub fn distil(
    teacher: &dyn Encoder,
    tokenizer: &Tokenizer,
    texts: &[String],
    options: &DistilOptions,
    progress: &DistilProgress<'_>,
) -> Result<Distilled, DistilError> {
    let dimensions = options.dimensions;
    if dimensions > teacher.dimensions() {
        return Err(DistilError::TooManyDimensions { encoder: teacher.dimensions(), dimensions });
    }
    if texts.len() < 4 * dimensions {
        return Err(DistilError::TooFewTexts { texts: texts.len(), dimensions });
    }
    let pieces = pieces::texts(tokenizer);
    let alone = told("pieces", teacher, &pieces, (options.threads, progress))?;
    let targets = told("texts", teacher, texts, (options.threads, progress))?;

    let (axes, kept_variance) = principal_axes(&targets, teacher.dimensions(), dimensions);
    let mut targets = project(&targets, &axes);
    targets.chunks_exact_mut(dimensions).for_each(to_length_1);
    let corpus = Corpus::new(tokenizer, texts, targets, options)?;

    let mut vectors = project(&alone, &axes);
    let weights = corpus.piece_weights(pieces.len(), options.smoothing);
    for (vector, weight) in vectors.chunks_exact_mut(dimensions).zip(weights) {
        vector.iter_mut().for_each(|number| *number *= weight as f32);
    }
    let mut fit = Fit::new(vectors, dimensions);
    fit.regress(&corpus);
    let cosine_of_regression = fit.mean_cosine(&corpus);
    for epoch in 0..options.epochs {
        progress("epochs", epoch as usize, options.epochs as usize);
        fit.epoch(&corpus, epoch, options);
    }
    progress("epochs", options.epochs as usize, options.epochs as usize);
    Ok(Distilled {
        kept_variance,
        texts: corpus.train.len(),
        held_out: corpus.held_out.len(),
        cosine_of_regression,
        cosine: fit.mean_cosine(&corpus),
        vectors: fit.into_vectors(),
    })
}

/// Encodes texts and reports progress.
fn told(
    name: &str,
    teacher: &dyn Encoder,
    texts: &[String],
    (threads, progress): (usize, &DistilProgress<'_>),
) -> Result<Vec<f32>, EncodeError> {
    // Group texts of similar length, since an encoder batches them.
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|at| texts[*at].len());
    let sorted: Vec<&str> = order.iter().map(|at| texts[*at].as_str()).collect();
    let done = std::sync::atomic::AtomicUsize::new(0);
    let encoded = encode_all(teacher, &sorted, threads, &|more| {
        let before = done.fetch_add(more, std::sync::atomic::Ordering::Relaxed);
        progress(name, before + more, texts.len());
    })?;
    let dimensions = teacher.dimensions();
    let mut vectors = vec![0.0; encoded.len()];
    for (vector, at) in encoded.chunks_exact(dimensions).zip(order) {
        vectors[at * dimensions..][..dimensions].copy_from_slice(vector);
    }
    Ok(vectors)
}

/// Returns the `to` directions in which vectors of `from` numbers vary most, one per column, and
/// the share of the variance (about zero) that they keep.
fn principal_axes(vectors: &[f32], from: usize, to: usize) -> (DMatrix<f32>, f64) {
    let matrix = DMatrix::from_column_slice(from, vectors.len() / from, vectors);
    let covariance = (&matrix * matrix.transpose()).map(f64::from);
    let eigen = SymmetricEigen::new(covariance);
    let mut order: Vec<usize> = (0..from).collect();
    order.sort_by(|one, other| eigen.eigenvalues[*other].total_cmp(&eigen.eigenvalues[*one]));
    let kept: f64 = order[..to].iter().map(|at| eigen.eigenvalues[*at]).sum();
    let columns: Vec<_> = order[..to].iter().map(|at| eigen.eigenvectors.column(*at)).collect();
    let axes = DMatrix::from_columns(&columns).map(|number| number as f32);
    (axes, kept / eigen.eigenvalues.sum())
}

/// Projects vectors on the axes.
fn project(vectors: &[f32], axes: &DMatrix<f32>) -> Vec<f32> {
    let matrix = DMatrix::from_column_slice(axes.nrows(), vectors.len() / axes.nrows(), vectors);
    (axes.transpose() * matrix).as_slice().to_vec()
}

fn to_length_1(vector: &mut [f32]) {
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|number| *number /= length);
    }
}
