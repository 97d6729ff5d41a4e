//! The passes between products: norms, the feed-forward gate, caps, and one row's attention. Plain
//! loops are compiled for several instruction sets, and one is picked at run time.

use super::products::each_chunk;
use super::shape::Activation;
use crate::bert::kernels::{add_multiple, dot, exp, reduce, vectorised};

/// Normalises each run of `scale.len()` numbers, within the first `columns` of each row of `width`,
/// by its root mean square (Zhang and Sennrich 2019).
pub(super) fn norm(
    rows: &mut [f32],
    (width, columns): (usize, std::ops::Range<usize>),
    scale: &[f32],
    epsilon: f32,
) {
    let operations = rows.len() / width * columns.len() * 4;
    each_chunk(rows, width, operations, |_, row| {
        vectorised!({
            for run in row[columns.clone()].chunks_exact_mut(scale.len()) {
                let mean = dot(run, run) / run.len() as f32;
                let factor = 1.0 / (mean + epsilon).sqrt();
                for (x, scale) in run.iter_mut().zip(scale) {
                    *x *= factor * scale;
                }
            }
        });
    });
}

/// Adds `other` to `rows`.
pub(super) fn add(rows: &mut [f32], other: &[f32]) {
    rows.iter_mut().zip(other).for_each(|(x, other)| *x += other);
}

/// Computes `activation(gate) · up` for each row, which holds gate and up.
pub(super) fn gated(rows: &[f32], wide: usize, activation: Activation) -> Vec<f32> {
    let mut out = vec![0.0; rows.len() / 2];
    each_chunk(&mut out, wide, rows.len() * 16, |row, out| {
        let (gate, up) = rows[2 * row * wide..2 * (row + 1) * wide].split_at(wide);
        vectorised!({
            let parts = out.iter_mut().zip(gate).zip(up);
            match activation {
                Activation::Silu => {
                    for ((out, gate), up) in parts {
                        *out = gate * sigmoid(*gate) * up;
                    }
                }
                Activation::GeluTanh => {
                    for ((out, gate), up) in parts {
                        let inner = 0.797_884_6 * (gate + 0.044_715 * gate * gate * gate);
                        // (1 + tanh x) / 2 is the sigmoid of 2x.
                        *out = gate * sigmoid(2.0 * inner) * up;
                    }
                }
            }
        });
    });
    out
}

/// 1 / (1 + e^-x).
#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    // The exponent is never positive, so this cannot overflow.
    let power = exp(-x.abs());
    if x < 0.0 { power / (1.0 + power) } else { 1.0 / (1.0 + power) }
}

/// Bounds each number smoothly to ± `cap`.
pub(super) fn cap(numbers: &mut [f32], cap: f32) {
    numbers.iter_mut().for_each(|x| *x = cap * (*x / cap).tanh());
}

/// One token's attention in one group of heads.
pub(super) struct GroupedQueryAttention<'a> {
    /// One query per head of the group, concatenated.
    pub(super) queries: &'a [f32],
    /// Keys of the attended tokens, a row of all key heads each.
    pub(super) keys: &'a [f32],
    /// Values of the attended tokens.
    pub(super) values: &'a [f32],
    /// Numbers per row of keys or values.
    pub(super) width: usize,
    /// Column of the group's key and value in a row.
    pub(super) at: usize,
    /// Numbers per head.
    pub(super) head: usize,
    /// Factor of the scores.
    pub(super) factor: f32,
    /// Smooth bound of the scores.
    pub(super) cap: Option<f32>,
}

impl GroupedQueryAttention<'_> {
    /// Writes the attended values of each head of the group, concatenated. `scores` is scratch
    /// space.
    pub(super) fn apply(&self, scores: &mut Vec<f32>, out: &mut [f32]) {
        let Self { head, at, width, .. } = *self;
        scores.resize(self.keys.len() / width, 0.0);
        vectorised!({
            let heads = self.queries.chunks_exact(head).zip(out.chunks_exact_mut(head));
            for (query, out) in heads {
                let keys = self.keys.chunks_exact(width).map(|row| &row[at..at + head]);
                for (score, key) in scores.iter_mut().zip(keys) {
                    *score = dot(query, key) * self.factor;
                }
                if let Some(bound) = self.cap {
                    cap(scores, bound);
                }
                let highest = reduce(scores, f32::NEG_INFINITY, f32::max, f32::max);
                let mut total = 0.0;
                for score in scores.iter_mut() {
                    *score = exp(*score - highest);
                    total += *score;
                }
                out.fill(0.0);
                let values = self.values.chunks_exact(width).map(|row| &row[at..at + head]);
                for (score, value) in scores.iter().zip(values) {
                    add_multiple(out, score / total, value);
                }
            }
        });
    }
}
