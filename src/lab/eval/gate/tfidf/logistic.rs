//! Logistic regression over sparse rows: mean logistic loss with a quadratic penalty on the weights
//! but not the bias, minimised by L-BFGS (Liu and Nocedal 1989). The line search halves the step
//! until it descends enough (Armijo). Deterministic and single-threaded.
//!
//! The objective is scikit-learn's, with `C` as the inverse strength of the penalty. It is strictly
//! convex, so the minimum is unique.

use std::collections::VecDeque;

use turnstream_models::gate::ngrams::{NgramRegression, Sparse, Vectoriser};

/// Pairs of steps and gradient changes that L-BFGS keeps.
const MEMORY: usize = 10;
const MAX_STEPS: usize = 500;
/// Stops if no component of the gradient is larger.
const FLAT: f64 = 1e-6;
/// The share of the descent promised by the gradient that a step must achieve.
const ENOUGH: f64 = 1e-4;
const MAX_HALVINGS: usize = 40;

/// A weight for each column, and a bias.
#[derive(Clone, Debug, PartialEq)]
pub struct Logistic {
    /// Weights by column; the bias is last.
    weights: Vec<f64>,
}

impl Logistic {
    /// Returns the default start of a fit.
    pub fn zero(width: usize) -> Self {
        Self { weights: vec![0.0; width + 1] }
    }

    /// Returns the probabilities that the rows in `asked` are positive.
    pub fn likely(&self, rows: &Sparse, asked: &[usize]) -> Vec<f64> {
        asked.iter().map(|at| 1.0 / (1.0 + (-self.margin(rows, *at)).exp())).collect()
    }

    /// Returns the model over a vectoriser's columns, in single precision.
    pub fn regression(&self, vectoriser: Vectoriser) -> NgramRegression {
        let mut weights: Vec<f32> = self.weights.iter().map(|weight| *weight as f32).collect();
        let bias = weights.pop().unwrap_or(0.0);
        NgramRegression::new(vectoriser, weights, bias)
    }

    fn margin(&self, rows: &Sparse, at: usize) -> f64 {
        let (columns, values) = rows.row(at);
        let (bias, weights) = self.weights.split_last().unwrap_or((&0.0, &[]));
        let mut sum = *bias;
        for (column, value) in columns.iter().zip(values) {
            sum += weights[*column as usize] * f64::from(*value);
        }
        sum
    }

    /// Fits to the rows in `learned`, starting from these weights.
    #[must_use]
    pub fn fit(self, rows: &Sparse, positive: &[bool], learned: &[usize], c: f64) -> Self {
        let penalty = 1.0 / (c * learned.len().max(1) as f64);
        let task = Task { rows, positive, learned, penalty };
        minimise(&task, self)
    }
}

struct Task<'t> {
    rows: &'t Sparse,
    positive: &'t [bool],
    learned: &'t [usize],
    penalty: f64,
}

impl Task<'_> {
    /// Computes the objective, and writes its gradient to `gradient`.
    fn objective(&self, at: &Logistic, gradient: &mut [f64]) -> f64 {
        gradient.fill(0.0);
        let share = 1.0 / self.learned.len().max(1) as f64;
        let bias = gradient.len() - 1;
        let mut loss = 0.0;
        for row in self.learned {
            let sign = if self.positive[*row] { 1.0 } else { -1.0 };
            let margin = sign * at.margin(self.rows, *row);
            // ln(1 + e^−m), without overflow.
            loss += share * ((-margin.abs()).exp().ln_1p() + (-margin).max(0.0));
            let slope = -sign * share / (1.0 + margin.exp());
            let (columns, values) = self.rows.row(*row);
            for (column, value) in columns.iter().zip(values) {
                gradient[*column as usize] += slope * f64::from(*value);
            }
            gradient[bias] += slope;
        }
        let mut square = 0.0;
        for (slope, weight) in gradient[..bias].iter_mut().zip(&at.weights) {
            *slope += self.penalty * weight;
            square += weight * weight;
        }
        loss + 0.5 * self.penalty * square
    }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn add(to: &mut [f64], times: f64, values: &[f64]) {
    to.iter_mut().zip(values).for_each(|(to, value)| *to += times * value);
}

/// A step, the change of the gradient over it, and 1 ÷ their product.
type Remembered = (Vec<f64>, Vec<f64>, f64);

fn minimise(task: &Task<'_>, mut at: Logistic) -> Logistic {
    let width = at.weights.len();
    let mut gradient = vec![0.0; width];
    let mut value = task.objective(&at, &mut gradient);
    let mut memory: VecDeque<Remembered> = VecDeque::new();
    let mut next_gradient = vec![0.0; width];
    for _ in 0..MAX_STEPS {
        if gradient.iter().all(|slope| slope.abs() <= FLAT) {
            break;
        }
        let direction = direction(&gradient, &memory);
        let promised = dot(&gradient, &direction);
        let mut length =
            if memory.is_empty() { 1.0 / dot(&gradient, &gradient).sqrt() } else { 1.0 };
        let mut halvings = 0;
        let (next, next_value) = loop {
            let mut next = at.clone();
            add(&mut next.weights, length, &direction);
            let next_value = task.objective(&next, &mut next_gradient);
            if next_value <= value + ENOUGH * length * promised {
                break (next, next_value);
            }
            halvings += 1;
            if halvings > MAX_HALVINGS {
                // No further descent within floating-point precision.
                return at;
            }
            length *= 0.5;
        };
        let step: Vec<f64> =
            next.weights.iter().zip(&at.weights).map(|(next, at)| next - at).collect();
        let change: Vec<f64> =
            next_gradient.iter().zip(&gradient).map(|(next, at)| next - at).collect();
        let curvature = dot(&step, &change);
        if curvature > 0.0 {
            memory.push_back((step, change, 1.0 / curvature));
            if memory.len() > MEMORY {
                memory.pop_front();
            }
        }
        (at, value) = (next, next_value);
        std::mem::swap(&mut gradient, &mut next_gradient);
    }
    at
}

/// Returns the direction of descent: the gradient, corrected by the curvature of the kept steps.
fn direction(gradient: &[f64], memory: &VecDeque<Remembered>) -> Vec<f64> {
    let mut direction: Vec<f64> = gradient.iter().map(|slope| -slope).collect();
    let mut shares = Vec::with_capacity(memory.len());
    for (step, change, inverse) in memory.iter().rev() {
        let share = inverse * dot(step, &direction);
        add(&mut direction, -share, change);
        shares.push(share);
    }
    if let Some((_, change, inverse)) = memory.back() {
        let scale = 1.0 / (inverse * dot(change, change));
        direction.iter_mut().for_each(|value| *value *= scale);
    }
    for ((step, change, inverse), share) in memory.iter().zip(shares.into_iter().rev()) {
        let back = inverse * dot(change, &direction);
        add(&mut direction, share - back, step);
    }
    direction
}
