//! Fits the vectors of pieces to the vectors of texts: first a regression, then gradient descent on
//! 1 − cosine.

use std::f32::consts::PI;

use crate::piece_vectors::{PieceVectors, dot};
use nalgebra::DMatrix;
use tokenizers::Tokenizer;

use super::{DistilError, DistilOptions, PieceError, to_length_1};

/// Texts per step.
const BATCH: usize = 1024;
/// The most texts used for the regression.
const REGRESSION_TEXTS: usize = 60_000;
/// Regularisation added to the diagonal.
const RIDGE: f32 = 1.0;

/// Texts as pieces, with the target vectors of their sums.
pub(super) struct Corpus {
    /// The end of each text's pieces.
    ends: Vec<usize>,
    pieces: Vec<u32>,
    targets: Vec<f32>,
    dimensions: usize,
    /// Texts for fitting.
    pub(super) train: Vec<u32>,
    /// Texts for evaluation.
    pub(super) held_out: Vec<u32>,
}

impl Corpus {
    pub(super) fn new(
        tokenizer: &Tokenizer,
        texts: &[String],
        targets: Vec<f32>,
        options: &DistilOptions,
    ) -> Result<Self, DistilError> {
        let (mut ends, mut pieces) = (Vec::with_capacity(texts.len()), Vec::new());
        for text in texts {
            let encoding = tokenizer.encode_fast(text.as_str(), false).map_err(PieceError::cut)?;
            pieces.extend_from_slice(encoding.get_ids());
            ends.push(pieces.len());
        }
        let (held_out, train) = (0..texts.len() as u32)
            .partition(|at| (*at as usize).is_multiple_of(options.hold_out_every));
        Ok(Self { ends, pieces, targets, dimensions: options.dimensions, train, held_out })
    }

    fn pieces(&self, text: u32) -> &[u32] {
        let at = text as usize;
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.pieces[begin..self.ends[at]]
    }

    fn target(&self, text: u32) -> &[f32] {
        &self.targets[text as usize * self.dimensions..][..self.dimensions]
    }

    /// Returns a / (a + p) for each piece, with p its share of the fitted texts.
    pub(super) fn piece_weights(&self, count: usize, smoothing: f64) -> Vec<f64> {
        let mut times = vec![0_u64; count];
        for &text in &self.train {
            self.pieces(text).iter().for_each(|piece| times[*piece as usize] += 1);
        }
        let all: u64 = times.iter().sum();
        let share = |times: u64| times as f64 / all.max(1) as f64;
        times.into_iter().map(|times| smoothing / (smoothing + share(times))).collect()
    }
}

/// The vectors during fitting.
pub(super) struct Fit {
    vectors: PieceVectors,
    dimensions: usize,
}

impl Fit {
    pub(super) fn new(vectors: Vec<f32>, dimensions: usize) -> Self {
        Self { vectors: PieceVectors::new(vectors, dimensions), dimensions }
    }

    pub(super) fn into_vectors(self) -> Vec<f32> {
        self.vectors.into_vectors()
    }

    /// Transforms all vectors by the matrix that brings the sums of texts nearest to their targets.
    pub(super) fn regress(&mut self, corpus: &Corpus) {
        let every = corpus.train.len().div_ceil(REGRESSION_TEXTS).max(1);
        let texts: Vec<u32> = corpus.train.iter().copied().step_by(every).collect();
        let (mut sums, mut targets) = (Vec::new(), Vec::new());
        let mut sum = vec![0.0; self.dimensions];
        for &text in &texts {
            self.vectors.sum(corpus.pieces(text), &mut sum);
            to_length_1(&mut sum);
            sums.extend_from_slice(&sum);
            targets.extend_from_slice(corpus.target(text));
        }
        let columns = texts.len();
        let sums = DMatrix::from_vec(self.dimensions, columns, sums);
        let targets = DMatrix::from_vec(self.dimensions, columns, targets);
        let mut square = &sums * sums.transpose();
        (0..self.dimensions).for_each(|at| square[(at, at)] += RIDGE);
        // The ridge makes the matrix positive definite, so the decomposition exists.
        let Some(solved) = square.cholesky() else { return };
        let map = solved.solve(&(&sums * targets.transpose())).transpose();
        let vectors = self.vectors.vectors();
        let pieces = vectors.len() / self.dimensions;
        let vectors = DMatrix::from_column_slice(self.dimensions, pieces, vectors);
        self.vectors.replace((map * vectors).as_slice().to_vec());
    }

    /// Returns the mean cosine over the held-out texts.
    pub(super) fn mean_cosine(&self, corpus: &Corpus) -> f64 {
        let mut sum = vec![0.0; self.dimensions];
        let cosines = corpus.held_out.iter().map(|&text| {
            let length = self.vectors.sum(corpus.pieces(text), &mut sum);
            let cosine = dot(&sum, corpus.target(text)) / length.max(f32::MIN_POSITIVE);
            f64::from(cosine)
        });
        cosines.sum::<f64>() / corpus.held_out.len().max(1) as f64
    }

    /// Makes one pass over the texts.
    pub(super) fn epoch(&mut self, corpus: &Corpus, epoch: u32, options: &DistilOptions) {
        let mut order = corpus.train.clone();
        fastrand::Rng::with_seed(options.seed ^ u64::from(epoch) << 32).shuffle(&mut order);
        let batches = order.len().div_ceil(BATCH);
        for (at, batch) in order.chunks(BATCH).enumerate() {
            let done = (epoch as usize * batches + at) as f32;
            let all = (options.epochs as usize * batches) as f32;
            let rate = options.learning_rate * 0.5 * (1.0 + (PI * done / all).cos());
            self.step(corpus, batch, rate);
        }
    }

    /// Makes one Adam step on the mean of 1 − cosine over some texts. With s the sum of a text's
    /// pieces, n its direction and c its cosine to the target y, the gradient for each piece is
    /// (c·n − y) / |s|.
    fn step(&mut self, corpus: &Corpus, texts: &[u32], rate: f32) {
        let mut sum = vec![0.0; self.dimensions];
        for &text in texts {
            let pieces = corpus.pieces(text);
            let length = self.vectors.sum(pieces, &mut sum);
            if length <= f32::MIN_POSITIVE {
                continue;
            }
            let target = corpus.target(text);
            let cosine = dot(&sum, target) / length;
            let scale = 1.0 / (length * texts.len() as f32);
            for (number, target) in sum.iter_mut().zip(target) {
                *number = (cosine * *number / length - target) * scale;
            }
            self.vectors.pull(pieces, &sum);
        }
        self.vectors.step(rate);
    }
}
