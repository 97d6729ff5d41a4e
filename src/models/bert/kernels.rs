//! The network's arithmetic on slices of f32, rows of equal width: matrix products through gemm,
//! and the passes between them, each fused with the bias that precedes it.
//!
//! The passes are plain loops over [`LANES`] numbers at a time. `pulp` compiles each pass for the
//! instruction sets that gemm supports and picks one at run time, so a portable build uses AVX-512
//! if the processor has it.

use std::f32::consts::{FRAC_1_SQRT_2, LOG2_E};

use gemm::Parallelism;
use pulp::NullaryFnOnce;

use super::quantised::{QuantisedMatrix, QuantisedWeights};

/// Numbers that a pass processes at once.
const LANES: usize = 16;

/// Computes an expression compiled for the processor's instruction set.
macro_rules! vectorised {
    ($pass:expr) => {
        pulp::Arch::new().dispatch($crate::bert::kernels::Pass(
            #[inline(always)]
            || $pass,
        ))
    };
}
pub(crate) use vectorised;

/// The closure of [`vectorised`]. pulp calls a closure as `FnOnce`, which is a function of its own: unless
/// the whole program is optimised as one, it is not inlined, and so is compiled for any processor. So are
/// `fold` and `for_each` of most iterators: passes are plain loops.
pub(crate) struct Pass<F>(pub(crate) F);

impl<R, F: FnMut() -> R> NullaryFnOnce for Pass<F> {
    type Output = R;

    #[inline(always)]
    fn call(mut self) -> R {
        (self.0)()
    }
}

/// `x · weights + bias`. [`Self::apply`] leaves the bias out; the next pass adds it.
pub(crate) struct Linear {
    weights: LinearWeights,
    /// `outputs` numbers.
    pub(crate) bias: Vec<f32>,
}

enum LinearWeights {
    /// `inputs` rows of `outputs` numbers.
    Floats(Vec<f32>),
    Quantised(QuantisedWeights),
}

impl Linear {
    /// Takes weights as `inputs` rows, each as wide as `bias`.
    pub(super) fn new(weights: Vec<f32>, bias: Vec<f32>) -> Self {
        assert!(weights.len().is_multiple_of(bias.len()), "weights are whole rows");
        Self { weights: LinearWeights::Floats(weights), bias }
    }

    /// Takes weights of 8 bits, a row for each number of `bias`.
    pub(super) fn quantised(weights: &QuantisedMatrix, bias: Vec<f32>) -> Self {
        assert_eq!(weights.scales.len(), bias.len(), "a row of weights for each output");
        Self { weights: LinearWeights::Quantised(QuantisedWeights::new(weights)), bias }
    }

    /// Writes the product of `rows` and the weights to `out`, on the caller's thread: parallel
    /// calls use the cores better than one call over all cores. Weights of 8 bits need
    /// [`super::quantised::on_one_thread`] for that.
    pub(crate) fn apply(&self, rows: &[f32], out: &mut Vec<f32>) {
        let outputs = self.bias.len();
        let inputs = match &self.weights {
            LinearWeights::Floats(weights) => weights.len() / outputs,
            LinearWeights::Quantised(weights) => weights.inputs(),
        };
        let count = rows.len() / inputs;
        assert_eq!(rows.len(), count * inputs, "rows as wide as the layer's input");
        out.resize(count * outputs, 0.0);
        let weights = match &self.weights {
            LinearWeights::Floats(weights) => weights,
            LinearWeights::Quantised(weights) => return weights.apply(rows, out),
        };
        let of = |numbers, width| Operand { numbers, row: width, column: 1 };
        let (rows, weights) = (of(rows, inputs), of(weights, outputs));
        product([count, inputs, outputs], 1.0, rows, weights, (out, outputs));
    }
}

/// A matrix within a slice, by the distances between its rows and between its columns.
#[derive(Clone, Copy)]
struct Operand<'a> {
    numbers: &'a [f32],
    row: usize,
    column: usize,
}

impl Operand<'_> {
    /// Numbers that a matrix of this size reaches over.
    fn extent(&self, rows: usize, columns: usize) -> usize {
        rows.saturating_sub(1) * self.row + columns.saturating_sub(1) * self.column + 1
    }
}

/// Writes `factor` times the product of a matrix of `rows` by `inner` and one of `inner` by `columns` to
/// `out`, whose rows begin at each multiple of its second part.
fn product(
    [rows, inner, columns]: [usize; 3],
    factor: f32,
    left: Operand<'_>,
    right: Operand<'_>,
    (out, stride): (&mut [f32], usize),
) {
    if rows == 0 {
        return;
    }
    assert!(left.extent(rows, inner) <= left.numbers.len());
    assert!(right.extent(inner, columns) <= right.numbers.len());
    assert!((rows - 1) * stride + columns <= out.len());
    // SAFETY: all three are within their slices, as asserted, and `out` is borrowed exclusively.
    #[allow(unsafe_code)]
    unsafe {
        gemm::gemm(
            rows,
            columns,
            inner,
            out.as_mut_ptr(),
            1,
            stride as isize,
            false,
            left.numbers.as_ptr(),
            left.column as isize,
            left.row as isize,
            right.numbers.as_ptr(),
            right.column as isize,
            right.row as isize,
            0.0_f32,
            factor,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Scale and shift of a layer norm.
pub(super) struct Norm {
    /// One per column.
    pub(super) scale: Vec<f32>,
    /// One per column.
    pub(super) shift: Vec<f32>,
    /// Added to the variance.
    pub(super) epsilon: f32,
}

impl Norm {
    /// Replaces each row by the norm of the row, the bias and the row of `residual`.
    pub(super) fn apply_sum(&self, rows: &mut [f32], bias: &[f32], residual: &[f32]) {
        let width = self.scale.len();
        vectorised!({
            for (row, residual) in rows.chunks_exact_mut(width).zip(residual.chunks_exact(width)) {
                for ((x, bias), residual) in row.iter_mut().zip(bias).zip(residual) {
                    *x += bias + residual;
                }
                self.normalise(row);
            }
        });
    }

    /// Replaces each row by its norm.
    pub(super) fn apply(&self, rows: &mut [f32]) {
        let width = self.scale.len();
        vectorised!({
            for row in rows.chunks_exact_mut(width) {
                self.normalise(row);
            }
        });
    }

    #[inline(always)]
    fn normalise(&self, row: &mut [f32]) {
        let width = row.len() as f32;
        let mean = sum(row, |x| x) / width;
        let variance = sum(row, |x| (x - mean) * (x - mean)) / width;
        let factor = 1.0 / (variance + self.epsilon).sqrt();
        for ((x, scale), shift) in row.iter_mut().zip(&self.scale).zip(&self.shift) {
            *x = (*x - mean) * factor * scale + shift;
        }
    }
}

/// Sums a function over a row, in the order of the lanes.
#[inline(always)]
fn sum(row: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    reduce(row, 0.0, |sum, x| sum + of(x), |a, b| a + b)
}

/// Folds a row lane by lane, then joins the lanes and the rest.
#[inline(always)]
pub(crate) fn reduce(
    row: &[f32],
    start: f32,
    fold: impl Fn(f32, f32) -> f32,
    join: impl Fn(f32, f32) -> f32,
) -> f32 {
    let (whole, rest) = row.as_chunks::<LANES>();
    let mut lanes = [start; LANES];
    for chunk in whole {
        for at in 0..LANES {
            lanes[at] = fold(lanes[at], chunk[at]);
        }
    }
    let mut joined = start;
    for x in rest {
        joined = fold(joined, *x);
    }
    for lane in lanes {
        joined = join(joined, lane);
    }
    joined
}

/// Adds the bias to each row and applies GELU: x · Φ(x), Φ by the error function.
pub(crate) fn gelu(rows: &mut [f32], bias: &[f32]) {
    vectorised!({
        for row in rows.chunks_exact_mut(bias.len()) {
            for (x, bias) in row.iter_mut().zip(bias) {
                let biased = *x + bias;
                *x = 0.5 * biased * (1.0 + erf(biased * FRAC_1_SQRT_2));
            }
        }
    });
}

/// The error function: the rational approximation of Eigen's vectorised `erf`, within a few units
/// of the last place of f32.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let x = x.clamp(-4.0, 4.0);
    let square = x * x;
    let numerator = [
        -2.726_142e-10,
        2.770_681_4e-8,
        -2.101_024e-6,
        -5.692_506_4e-5,
        -7.349_906_3e-4,
        -2.954_6e-3,
        -1.609_603_3e-2,
    ];
    let denominator =
        [-1.456_607_1e-5, -2.133_740_6e-4, -1.682_827e-3, -7.373_329e-3, -1.426_473_9e-2];
    x * polynomial(numerator, square) / polynomial(denominator, square)
}

/// A polynomial at `x` by Horner's rule. A loop: a fold would be a call.
#[inline(always)]
fn polynomial<const N: usize>(coefficients: [f32; N], x: f32) -> f32 {
    let mut sum = 0.0;
    for coefficient in coefficients {
        sum = sum * x + coefficient;
    }
    sum
}

/// e^x for x ≤ 0; 0 below about -87. Range reduction to ±ln 2 / 2, then the polynomial of Cephes'
/// `expf`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Adding and subtracting this number rounds to a whole number.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts. The first has so few bits that its multiples are exact.
    const LN_2_HEAD: f32 = 0.693_359_4;
    const LN_2_TAIL: f32 = -2.121_944_4e-4;
    let bounded = x.max(-87.0);
    let power = (bounded * LOG2_E + ROUND) - ROUND;
    let rest = bounded - power * LN_2_HEAD - power * LN_2_TAIL;
    let coefficients =
        [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let fraction = polynomial(coefficients, rest) * rest * rest + rest + 1.0;
    let scale = f32::from_bits(((power as i32 + 127) << 23) as u32);
    if x < -87.0 { 0.0 } else { fraction * scale }
}

/// The rows of a sequence.
pub(crate) type SequenceRows = std::ops::Range<usize>;

/// Adds the bias to each row.
pub(crate) fn add_bias(rows: &mut [f32], bias: &[f32]) {
    vectorised!({
        for row in rows.chunks_exact_mut(bias.len()) {
            for (x, bias) in row.iter_mut().zip(bias) {
                *x += bias;
            }
        }
    });
}

/// Multi-head attention within each sequence. A row of `projected` holds query, key and value,
/// `width` numbers each; heads are `head` columns wide.
pub(super) struct Attention<'a> {
    pub(super) projected: &'a [f32],
    pub(super) width: usize,
    pub(super) head: usize,
}

impl Attention<'_> {
    /// Writes the attended values of each row, `width` numbers, to `out`.
    pub(super) fn apply(&self, sequences: &[SequenceRows], out: &mut Vec<f32>) {
        out.resize(self.projected.len() / 3, 0.0);
        let longest = sequences.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
        let mut scores = vec![0.0; longest * longest];
        for sequence in sequences {
            for head in (0..self.width).step_by(self.head) {
                self.attend(sequence, head, &mut scores, out);
            }
        }
    }

    /// Computes one head, from column `at`, of one sequence.
    fn attend(&self, sequence: &SequenceRows, at: usize, scores: &mut [f32], out: &mut [f32]) {
        let (count, width, head) = (sequence.len(), self.width, self.head);
        if count == 0 {
            return;
        }
        let row = 3 * width;
        let part = |part: usize| &self.projected[sequence.start * row + part * width + at..];
        let queries = Operand { numbers: part(0), row, column: 1 };
        let keys = Operand { numbers: part(1), row: 1, column: row };
        let values = Operand { numbers: part(2), row, column: 1 };
        let scores = &mut scores[..count * count];
        let factor = 1.0 / (head as f32).sqrt();
        product([count, head, count], factor, queries, keys, (scores, count));
        vectorised!({
            for row in scores.chunks_exact_mut(count) {
                softmax(row);
            }
        });
        let shares = Operand { numbers: scores, row: count, column: 1 };
        let out = &mut out[sequence.start * width + at..];
        product([count, count, head], 1.0, shares, values, (out, width));
    }
}

/// Replaces scores by their exponentials, divided by the sum of these.
#[inline(always)]
pub(crate) fn softmax(scores: &mut [f32]) {
    let highest = reduce(scores, f32::NEG_INFINITY, f32::max, f32::max);
    for score in scores.iter_mut() {
        *score = exp(*score - highest);
    }
    let total = sum(scores, |x| x);
    for score in scores {
        *score /= total;
    }
}

/// The dot product. The order of the additions depends on the length alone.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((whole_a, rest_a), (whole_b, rest_b)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in whole_a.iter().zip(whole_b) {
        for at in 0..LANES {
            sums[at] += a[at] * b[at];
        }
    }
    let mut total = 0.0;
    for (a, b) in rest_a.iter().zip(rest_b) {
        total += a * b;
    }
    for sum in sums {
        total += sum;
    }
    total
}

/// Adds `factor` times `row` to `sums`.
#[inline(always)]
pub(crate) fn add_multiple(sums: &mut [f32], factor: f32, row: &[f32]) {
    for (sum, x) in sums.iter_mut().zip(row) {
        *sum += factor * x;
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{D, Device, Tensor};

    use super::*;

    /// Pseudo-random numbers between about -6 and 6.
    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| (random.f32() - 0.5) * 12.0).collect()
    }

    fn assert_near(ours: &[f32], theirs: &[f32], tolerance: f32) {
        assert_eq!(ours.len(), theirs.len());
        for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            let allowed = tolerance * theirs.abs().max(1.0);
            assert!((ours - theirs).abs() <= allowed, "{ours} and {theirs} at {at}");
        }
    }

    fn matrix(numbers: &[f32], columns: usize) -> Tensor {
        Tensor::from_slice(numbers, (numbers.len() / columns, columns), &Device::Cpu).unwrap()
    }

    fn flat(tensor: &Tensor) -> Vec<f32> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn products_are_candles_for_one_row_and_many() {
        for rows in [1, 7, 130] {
            let (input, weights) = (numbers(rows * 24, 1), numbers(24 * 40, 2));
            let mut out = Vec::new();
            Linear::new(weights.clone(), vec![0.0; 40]).apply(&input, &mut out);
            let expected = matrix(&input, 24).matmul(&matrix(&weights, 40)).unwrap();
            assert_near(&out, &flat(&expected), 1e-5);
        }
    }

    #[test]
    fn gelu_is_candles_with_the_bias_added() {
        let (mut rows, bias) = (numbers(37 * 100, 3), numbers(37, 4));
        let sum = matrix(&rows, 37).broadcast_add(&matrix(&bias, 37)).unwrap();
        gelu(&mut rows, &bias);
        assert_near(&rows, &flat(&sum.gelu_erf().unwrap()), 1e-6);
    }

    #[test]
    fn exp_is_the_exponential_where_softmax_needs_it() {
        for step in 0..20_000 {
            let x = -step as f32 / 200.0;
            let expected = x.exp();
            assert!((exp(x) - expected).abs() <= 2e-7 * expected + 1e-37, "exp({x})");
        }
        assert_eq!((exp(0.0), exp(f32::NEG_INFINITY)), (1.0, 0.0));
    }

    #[test]
    fn norm_is_candles_of_the_sum() {
        let width = 37;
        let (scale, shift) = (numbers(width, 5), numbers(width, 6));
        let (mut rows, residual) = (numbers(width * 9, 7), numbers(width * 9, 8));
        let bias = numbers(width, 9);
        let sum = matrix(&rows, width).add(&matrix(&residual, width)).unwrap();
        let sum = sum.broadcast_add(&matrix(&bias, width)).unwrap();
        let vector = |numbers: &[f32]| Tensor::new(numbers, &Device::Cpu).unwrap();
        let expected =
            candle_nn::ops::layer_norm_slow(&sum, &vector(&scale), &vector(&shift), 1e-5).unwrap();
        Norm { scale, shift, epsilon: 1e-5 }.apply_sum(&mut rows, &bias, &residual);
        assert_near(&rows, &flat(&expected), 1e-5);
    }

    #[test]
    fn attention_is_the_composed_one_and_keeps_sequences_apart() {
        let (width, head) = (24, 8);
        let projected = numbers(3 * width * 40, 10);
        let sequences = [0..1, 1..20, 20..37, 37..40];
        let mut out = Vec::new();
        Attention { projected: &projected, width, head }.apply(&sequences, &mut out);
        let all = matrix(&projected, 3 * width);
        for sequence in sequences {
            let rows = all.narrow(0, sequence.start, sequence.len()).unwrap();
            for at in (0..width).step_by(head) {
                let part =
                    |part: usize| rows.narrow(1, part * width + at, head).unwrap().contiguous();
                let [query, key, value] = [0, 1, 2].map(|of| part(of).unwrap());
                let scores = query.matmul(&key.t().unwrap()).unwrap();
                let scores = (scores / (head as f64).sqrt()).unwrap();
                let shares = candle_nn::ops::softmax(&scores, D::Minus1).unwrap();
                let expected = flat(&shares.matmul(&value).unwrap());
                let ours: Vec<f32> = sequence
                    .clone()
                    .flat_map(|row| out[row * width + at..][..head].to_vec())
                    .collect();
                assert_near(&ours, &expected, 2e-5);
            }
        }
    }
}
