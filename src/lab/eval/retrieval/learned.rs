//! Trains a ranker: one hidden layer over a candidate's features, trained so that the gold
//! candidates of each group are likelier than the others (softmax over the group).
//!
//! For measurement only: the weights are not saved.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};

const HIDDEN: usize = 32;
const EPOCHS: usize = 15;
const BATCH: usize = 64;
const RATE: f64 = 0.003;
const DECAY: f64 = 1e-4;
const SEED: u64 = 1;

/// Candidates with one row of features each, and the gold ones.
pub(super) struct CandidateGroup<'a> {
    pub(super) rows: &'a [Vec<f64>],
    pub(super) gold: &'a BTreeSet<usize>,
}

/// Scores candidates.
pub(super) struct NeuralRanker {
    /// The mean by column.
    mean: Vec<f64>,
    /// The standard deviation by column; 1 for a constant column.
    deviation: Vec<f64>,
    net: Net,
}

impl NeuralRanker {
    /// Trains on groups; groups whose candidates are all gold or all not gold have no effect.
    pub(super) fn train<'a>(groups: impl Iterator<Item = CandidateGroup<'a>>) -> Self {
        let groups: Vec<CandidateGroup<'a>> = groups.collect();
        let rows = || groups.iter().flat_map(|group| group.rows);
        let width = rows().next().map_or(0, Vec::len);
        let count = rows().count().max(1) as f64;
        let mut mean = vec![0.0; width];
        let mut deviation = vec![0.0; width];
        rows().for_each(|row| add(&mut mean, row, 1.0 / count));
        for row in rows() {
            for ((sum, value), mean) in deviation.iter_mut().zip(row).zip(&mean) {
                *sum += (value - mean) * (value - mean) / count;
            }
        }
        for value in &mut deviation {
            *value = if *value > 1e-12 { value.sqrt() } else { 1.0 };
        }
        let mut random = StdRng::seed_from_u64(SEED);
        let net = Net::random(width, &mut random);
        let mut ranker = Self { mean, deviation, net };
        let mut learned: Vec<(Vec<Vec<f64>>, &BTreeSet<usize>)> = groups
            .iter()
            .filter(|group| !group.gold.is_empty() && group.gold.len() < group.rows.len())
            .map(|group| (group.rows.iter().map(|row| ranker.scaled(row)).collect(), group.gold))
            .collect();
        let mut adam = Adam::new(ranker.net.weights.len());
        for _ in 0..EPOCHS {
            learned.shuffle(&mut random);
            for batch in learned.chunks(BATCH) {
                let mut gradient = vec![0.0; ranker.net.weights.len()];
                for (rows, gold) in batch {
                    ranker.net.learn(rows, gold, 1.0 / BATCH as f64, &mut gradient);
                }
                adam.step(&mut ranker.net.weights, &gradient);
            }
        }
        ranker
    }

    /// Returns the indexes of candidates, best first.
    pub(super) fn order(&self, rows: &[Vec<f64>]) -> Vec<usize> {
        let scores: Vec<f64> =
            rows.iter().map(|row| self.net.forward(&self.scaled(row)).1).collect();
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        order
    }

    fn scaled(&self, row: &[f64]) -> Vec<f64> {
        let scales = self.mean.iter().zip(&self.deviation);
        row.iter()
            .zip(scales)
            .map(|(value, (mean, deviation))| (value - mean) / deviation)
            .collect()
    }
}

fn add(to: &mut [f64], values: &[f64], times: f64) {
    for (to, value) in to.iter_mut().zip(values) {
        *to += times * value;
    }
}

/// One hidden layer of rectified linear units.
struct Net {
    width: usize,
    /// For each hidden unit its weights and bias, then the output weights.
    weights: Vec<f64>,
}

impl Net {
    fn random(width: usize, random: &mut impl Rng) -> Self {
        let spread = 1.0 / (width.max(1) as f64).sqrt();
        let count = HIDDEN * (width + 1) + HIDDEN;
        let weights = (0..count).map(|_| (random.random::<f64>() * 2.0 - 1.0) * spread).collect();
        Self { width, weights }
    }

    fn unit(&self, unit: usize) -> &[f64] {
        &self.weights[unit * (self.width + 1)..(unit + 1) * (self.width + 1)]
    }

    fn outer(&self) -> &[f64] {
        &self.weights[HIDDEN * (self.width + 1)..]
    }

    /// Returns the outputs of the hidden units, and the score.
    fn forward(&self, row: &[f64]) -> (Vec<f64>, f64) {
        let hidden: Vec<f64> = (0..HIDDEN)
            .map(|unit| {
                let weights = self.unit(unit);
                let sum: f64 = weights.iter().zip(row).map(|(weight, value)| weight * value).sum();
                (sum + weights[self.width]).max(0.0)
            })
            .collect();
        let score = hidden.iter().zip(self.outer()).map(|(value, weight)| value * weight).sum();
        (hidden, score)
    }

    /// Adds the gradient of −log of the gold candidates' share of the softmax.
    fn learn(&self, rows: &[Vec<f64>], gold: &BTreeSet<usize>, times: f64, gradient: &mut [f64]) {
        let seen: Vec<(Vec<f64>, f64)> = rows.iter().map(|row| self.forward(row)).collect();
        let most = seen.iter().map(|(_, score)| *score).fold(f64::NEG_INFINITY, f64::max);
        let likely: Vec<f64> = seen.iter().map(|(_, score)| (score - most).exp()).collect();
        let all: f64 = likely.iter().sum();
        let of_gold: f64 = gold.iter().filter_map(|at| likely.get(*at)).sum();
        for (at, (row, (hidden, _))) in rows.iter().zip(&seen).enumerate() {
            let wanted = if gold.contains(&at) { likely[at] / of_gold } else { 0.0 };
            let slope = times * (likely[at] / all - wanted);
            let (inner, outer) = gradient.split_at_mut(HIDDEN * (self.width + 1));
            add(outer, hidden, slope);
            for (unit, _) in hidden.iter().enumerate().filter(|(_, value)| **value > 0.0) {
                let slope = slope * self.outer()[unit];
                let inner = &mut inner[unit * (self.width + 1)..(unit + 1) * (self.width + 1)];
                add(inner, row, slope);
                inner[self.width] += slope;
            }
        }
    }
}

/// Adam with weight decay.
struct Adam {
    steps: i32,
    mean: Vec<f64>,
    square: Vec<f64>,
}

impl Adam {
    fn new(count: usize) -> Self {
        Self { steps: 0, mean: vec![0.0; count], square: vec![0.0; count] }
    }

    fn step(&mut self, weights: &mut [f64], gradient: &[f64]) {
        self.steps += 1;
        let (first, second) = (1.0 - 0.9_f64.powi(self.steps), 1.0 - 0.999_f64.powi(self.steps));
        let moments = self.mean.iter_mut().zip(&mut self.square);
        for ((weight, gradient), (mean, square)) in weights.iter_mut().zip(gradient).zip(moments) {
            let slope = gradient + DECAY * *weight;
            *mean = 0.9 * *mean + 0.1 * slope;
            *square = 0.999 * *square + 0.001 * slope * slope;
            *weight -= RATE * (*mean / first) / ((*square / second).sqrt() + 1e-8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_the_slope() {
        let mut random = StdRng::seed_from_u64(3);
        let mut net = Net::random(3, &mut random);
        let rows: Vec<Vec<f64>> =
            (0..4).map(|_| (0..3).map(|_| random.random::<f64>() - 0.5).collect()).collect();
        let gold = BTreeSet::from([1, 3]);
        let loss = |net: &Net| {
            let scores: Vec<f64> = rows.iter().map(|row| net.forward(row).1.exp()).collect();
            -((scores[1] + scores[3]) / scores.iter().sum::<f64>()).ln()
        };
        let mut gradient = vec![0.0; net.weights.len()];
        net.learn(&rows, &gold, 1.0, &mut gradient);
        for (at, found) in gradient.iter().enumerate() {
            let (kept, step) = (net.weights[at], 1e-6);
            net.weights[at] = kept + step;
            let above = loss(&net);
            net.weights[at] = kept - step;
            let slope = (above - loss(&net)) / (2.0 * step);
            net.weights[at] = kept;
            assert!((slope - found).abs() < 1e-5, "{at}: {slope} is not {found}");
        }
    }

    #[test]
    fn it_learns_what_no_weighted_sum_could() {
        // A candidate is gold if its two numbers have the same sign.
        let mut random = StdRng::seed_from_u64(5);
        let mut groups: Vec<(Vec<Vec<f64>>, BTreeSet<usize>)> = Vec::new();
        for _ in 0..1_500 {
            let (a, b) = (random.random::<f64>() + 0.2, random.random::<f64>() + 0.2);
            let sign = if random.random::<bool>() { 1.0 } else { -1.0 };
            let gold = usize::from(random.random::<bool>());
            let (like, unlike) = (vec![sign * a, sign * b], vec![sign * a, -sign * b]);
            let rows = if gold == 0 { vec![like, unlike] } else { vec![unlike, like] };
            groups.push((rows, BTreeSet::from([gold])));
        }
        let (train, test) = groups.split_at(1_000);
        let ranker =
            NeuralRanker::train(train.iter().map(|(rows, gold)| CandidateGroup { rows, gold }));
        let right = test.iter().filter(|(rows, gold)| {
            ranker.order(rows).first().is_some_and(|first| gold.contains(first))
        });
        assert!(right.count() > 475);
    }
}
