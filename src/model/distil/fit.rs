//! Fitting the vectors of pieces to the vectors of texts: a regression to begin with, then
//! gradient descent on 1 − cosine. Each step touches only the pieces of its texts, so that an
//! epoch costs a few operations per piece and dimension.

use std::f32::consts::PI;

use nalgebra::DMatrix;
use tokenizers::Tokenizer;

use super::{DistilError, DistilOptions, PieceError, to_length_1};

/// Texts per step.
const BATCH: usize = 1024;
/// Texts that the regression looks at.
const REGRESSION_TEXTS: usize = 60_000;
/// What the regression adds to the diagonal.
const RIDGE: f32 = 1.0;
/// How fast the mean and the spread of the gradients are forgotten (Adam's two betas).
const FORGET: [f32; 2] = [0.9, 0.999];
/// Keeps a step finite where there is no spread.
const EPSILON: f32 = 1e-8;

/// Texts as pieces, with the vectors that their sums are to point to.
pub(super) struct Corpus {
    /// Where the pieces of a text end.
    ends: Vec<usize>,
    pieces: Vec<u32>,
    targets: Vec<f32>,
    dimensions: usize,
    /// Texts to fit to.
    pub(super) train: Vec<u32>,
    /// Texts to look at alone.
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

    /// a / (a + p) by piece, p being the piece's share of the texts that are fitted to.
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

/// The vectors while they are fitted.
pub(super) struct Fit {
    vectors: Vec<f32>,
    dimensions: usize,
    /// Per number of a vector: the mean of its gradients, and of their squares.
    moments: Vec<[f32; 2]>,
    /// Per piece: steps that touched it.
    steps: Vec<u32>,
    /// Per piece, while a step is prepared: where its gradient is, from 1; 0 where it has none.
    places: Vec<u32>,
}

impl Fit {
    pub(super) fn new(vectors: Vec<f32>, dimensions: usize) -> Self {
        let pieces = vectors.len() / dimensions;
        let moments = vec![[0.0; 2]; vectors.len()];
        Self { vectors, dimensions, moments, steps: vec![0; pieces], places: vec![0; pieces] }
    }

    pub(super) fn into_vectors(self) -> Vec<f32> {
        self.vectors
    }

    /// The sum over a text's pieces; gives its length.
    fn sum(&self, pieces: &[u32], sum: &mut [f32]) -> f32 {
        sum.fill(0.0);
        for &piece in pieces {
            let vector = &self.vectors[piece as usize * self.dimensions..][..self.dimensions];
            sum.iter_mut().zip(vector).for_each(|(sum, number)| *sum += number);
        }
        dot(sum, sum).sqrt()
    }

    /// Turns all vectors by the matrix that brings the sums of texts nearest to their targets.
    pub(super) fn regress(&mut self, corpus: &Corpus) {
        let every = corpus.train.len().div_ceil(REGRESSION_TEXTS).max(1);
        let texts: Vec<u32> = corpus.train.iter().copied().step_by(every).collect();
        let (mut sums, mut targets) = (Vec::new(), Vec::new());
        let mut sum = vec![0.0; self.dimensions];
        for &text in &texts {
            self.sum(corpus.pieces(text), &mut sum);
            to_length_1(&mut sum);
            sums.extend_from_slice(&sum);
            targets.extend_from_slice(corpus.target(text));
        }
        let columns = texts.len();
        let sums = DMatrix::from_vec(self.dimensions, columns, sums);
        let targets = DMatrix::from_vec(self.dimensions, columns, targets);
        let mut square = &sums * sums.transpose();
        (0..self.dimensions).for_each(|at| square[(at, at)] += RIDGE);
        // The ridge makes it positive definite, so that it has this decomposition.
        let Some(solved) = square.cholesky() else { return };
        let map = solved.solve(&(&sums * targets.transpose())).transpose();
        let pieces = self.vectors.len() / self.dimensions;
        let vectors = DMatrix::from_column_slice(self.dimensions, pieces, &self.vectors);
        self.vectors = (map * vectors).as_slice().to_vec();
    }

    /// The mean cosine over the texts that were held out.
    pub(super) fn mean_cosine(&self, corpus: &Corpus) -> f64 {
        let mut sum = vec![0.0; self.dimensions];
        let cosines = corpus.held_out.iter().map(|&text| {
            let length = self.sum(corpus.pieces(text), &mut sum);
            let cosine = dot(&sum, corpus.target(text)) / length.max(f32::MIN_POSITIVE);
            f64::from(cosine)
        });
        cosines.sum::<f64>() / corpus.held_out.len().max(1) as f64
    }

    /// Goes once through all texts.
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

    /// One step of Adam on the mean of 1 − cosine over some texts. With s the sum of a text's
    /// pieces, n its direction and c its cosine to the target y, the gradient for each of its
    /// pieces is (c·n − y) / |s|.
    fn step(&mut self, corpus: &Corpus, texts: &[u32], rate: f32) {
        let dimensions = self.dimensions;
        let (mut touched, mut gradients) = (Vec::<u32>::new(), Vec::<f32>::new());
        let mut sum = vec![0.0; dimensions];
        for &text in texts {
            let pieces = corpus.pieces(text);
            let length = self.sum(pieces, &mut sum);
            if length <= f32::MIN_POSITIVE {
                continue;
            }
            let target = corpus.target(text);
            let cosine = dot(&sum, target) / length;
            let scale = 1.0 / (length * texts.len() as f32);
            for (number, target) in sum.iter_mut().zip(target) {
                *number = (cosine * *number / length - target) * scale;
            }
            for &piece in pieces {
                let place = &mut self.places[piece as usize];
                if *place == 0 {
                    touched.push(piece);
                    gradients.resize(touched.len() * dimensions, 0.0);
                    *place = touched.len() as u32;
                }
                let gradient = &mut gradients[(*place as usize - 1) * dimensions..][..dimensions];
                gradient.iter_mut().zip(&sum).for_each(|(all, own)| *all += own);
            }
        }
        for (piece, gradient) in touched.into_iter().zip(gradients.chunks_exact(dimensions)) {
            self.places[piece as usize] = 0;
            self.descend(piece as usize, gradient, rate);
        }
    }

    fn descend(&mut self, piece: usize, gradient: &[f32], rate: f32) {
        self.steps[piece] += 1;
        let step = i32::try_from(self.steps[piece]).unwrap_or(i32::MAX);
        let [mean_bias, spread_bias] = FORGET.map(|forget| 1.0 - forget.powi(step));
        let range = piece * self.dimensions..(piece + 1) * self.dimensions;
        let (vector, moments) = (&mut self.vectors[range.clone()], &mut self.moments[range]);
        for ((number, moment), gradient) in vector.iter_mut().zip(moments).zip(gradient) {
            let [mean, spread] = moment;
            *mean = FORGET[0] * *mean + (1.0 - FORGET[0]) * gradient;
            *spread = FORGET[1] * *spread + (1.0 - FORGET[1]) * gradient * gradient;
            let spread = (*spread / spread_bias).sqrt();
            *number -= rate * (*mean / mean_bias) / (spread + EPSILON);
        }
    }
}

fn dot(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}
