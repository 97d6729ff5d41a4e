//! Matrix products with weights of 8 bits, for networks whose file holds them so. The rows are
//! quantised as they come, each with a scale and a zero of its own (the scheme of Jacob et al. 2018,
//! for rows in place of whole tensors), and products are summed as whole numbers. The few numbers of
//! a row that are far from the others would leave these few steps, and are multiplied in f32 (LLM.int8,
//! Dettmers et al. 2022).
//!
//! rten-gemm has the loops for AVX-512 VNNI, AVX2 and NEON. The zeros of rows are taken off
//! afterwards: given to rten-gemm 0.27, they make sums of more than 1,024 inputs wrong.

use rayon::{ThreadPool, ThreadPoolBuilder};
use rten_gemm::{GemmExecutor, GemmInputA, GemmInputB, GemmOptions, PackedBMatrix};
use rten_tensor::NdTensorView;

use super::kernels::{reduce, vectorised};

/// A number beyond this multiple of its row's root mean square is an outlier. Two numbers of a row are, in
/// the reader that ships; its vectors have then a cosine of .9997 with exact ones, and .998 without.
const OUTLIER: f32 = 6.0;
/// Numbers that are searched for outliers at once.
const PART: usize = 64;

thread_local! {
    static PRODUCTS: Products = Products(GemmExecutor::default());
    /// None if the system starts no other thread.
    static ONE_THREAD: Option<ThreadPool> = ThreadPoolBuilder::new().num_threads(1).build().ok();
}

/// Does work in which rten-gemm computes products, and keeps them on one thread, for which the caller
/// waits: two such calls on two cores are faster than one call on both.
pub(crate) fn on_one_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    // Not the caller's own thread: it could never leave the pool, and may have other work for all cores.
    ONE_THREAD.with(|pool| match pool {
        Some(pool) => pool.install(work),
        None => work(),
    })
}

/// The loops for this processor.
struct Products(GemmExecutor<u8, i8, i32>);

impl Products {
    /// The highest number of a row. Where the sum of two products may saturate (AVX2), rows with a bit
    /// less keep sums exact.
    fn highest(&self) -> f32 {
        if self.0.may_saturate() { 127.0 } else { 255.0 }
    }

    /// Writes the sums of products of rows and weights, without the rows' zeros.
    fn multiply(&self, rows: &QuantisedRows, weights: &PackedBMatrix<i8>, sums: &mut [i32]) {
        let shape = [rows.scales.len(), weights.rows()];
        let values = GemmInputA::Unpacked(NdTensorView::from_data(shape, &rows.values[..]));
        self.0
            .gemm(sums, values, GemmInputB::Packed(weights), GemmOptions::default())
            .expect("rows, weights and output have the sizes of one product");
    }
}

/// A matrix as it is stored: rows of 8 bits with a scale for each.
pub(crate) struct QuantisedMatrix {
    /// −127..=127, row by row.
    pub(crate) values: Vec<i8>,
    /// What 1 stands for in each row.
    pub(crate) scales: Vec<f32>,
}

impl QuantisedMatrix {
    /// The numbers that the matrix stands for, row by row.
    pub(crate) fn numbers(&self) -> Vec<f32> {
        let rows = self.values.chunks_exact(self.columns()).zip(&self.scales);
        rows.flat_map(|(row, scale)| row.iter().map(move |x| f32::from(*x) * scale)).collect()
    }

    /// Numbers in a row, from 1.
    pub(crate) fn columns(&self) -> usize {
        (self.values.len() / self.scales.len().max(1)).max(1)
    }
}

/// The weights of a linear layer, each row those of an output.
pub(super) struct QuantisedWeights {
    packed: PackedBMatrix<i8>,
    /// The same numbers, a row for each input.
    by_input: Vec<i8>,
    /// One for each output.
    scales: Vec<f32>,
    /// The sum of each output's weights, which a row's zero counts for too often.
    totals: Vec<i32>,
}

/// Rows in 8 bits: each number less the row's zero, times the row's scale.
struct QuantisedRows {
    values: Vec<u8>,
    zeros: Vec<u8>,
    scales: Vec<f32>,
    outliers: Vec<Outlier>,
}

/// A number that is not among [`QuantisedRows::values`]: 0 stands there.
struct Outlier {
    row: usize,
    column: usize,
    number: f32,
}

impl QuantisedWeights {
    pub(super) fn new(matrix: &QuantisedMatrix) -> Self {
        let QuantisedMatrix { values, scales } = matrix;
        let rows = NdTensorView::from_data([scales.len(), matrix.columns()], &values[..]);
        let pack = |products: &Products| products.0.prepack_b(rows.transposed());
        let of_outputs = || values.chunks_exact(matrix.columns());
        let totals = of_outputs().map(|row| row.iter().map(|x| i32::from(*x)).sum()).collect();
        let mut by_input = vec![0; values.len()];
        for (output, row) in of_outputs().enumerate() {
            for (input, x) in row.iter().enumerate() {
                by_input[input * scales.len() + output] = *x;
            }
        }
        Self { packed: PRODUCTS.with(pack), by_input, scales: scales.clone(), totals }
    }

    /// Numbers in a row that these weights take.
    pub(super) fn inputs(&self) -> usize {
        self.packed.rows()
    }

    /// Writes the product of `rows` and the weights to `out`, which has room for it.
    pub(super) fn apply(&self, rows: &[f32], out: &mut [f32]) {
        let rows = PRODUCTS.with(|products| {
            let rows = quantise(rows, self.inputs(), products.highest());
            // The sums are converted in place.
            products.multiply(&rows, &self.packed, bytemuck::cast_slice_mut(out));
            rows
        });
        let outputs = self.scales.len();
        vectorised!({
            let of_rows = rows.zeros.iter().zip(&rows.scales);
            for (row, (zero, scale)) in out.chunks_exact_mut(outputs).zip(of_rows) {
                let zero = i32::from(*zero);
                for ((x, of_output), total) in row.iter_mut().zip(&self.scales).zip(&self.totals) {
                    let sum = x.to_bits().cast_signed() - zero * total;
                    *x = sum as f32 * (scale * of_output);
                }
            }
            for Outlier { row, column, number } in &rows.outliers {
                let row = &mut out[row * outputs..(row + 1) * outputs];
                let weights = &self.by_input[column * outputs..(column + 1) * outputs];
                for ((x, weight), of_output) in row.iter_mut().zip(weights).zip(&self.scales) {
                    *x += number * of_output * f32::from(*weight);
                }
            }
        });
    }
}

/// Sets the outliers of each row aside, and spreads the others, from the lowest to the highest and with
/// 0 among them, over 0..=`highest`.
fn quantise(rows: &[f32], width: usize, highest: f32) -> QuantisedRows {
    // Adding this number leaves a whole number from 0 to 255 in the last byte.
    const ROUND: f32 = 12_582_912.0;
    let count = rows.len() / width;
    let mut made = QuantisedRows {
        values: vec![0; rows.len()],
        zeros: Vec::with_capacity(count),
        scales: Vec::with_capacity(count),
        outliers: Vec::new(),
    };
    let mut others = vec![0.0; width];
    vectorised!({
        let values = made.values.chunks_exact_mut(width);
        for (at, (row, values)) in rows.chunks_exact(width).zip(values).enumerate() {
            others.copy_from_slice(row);
            set_aside(&mut others, at, &mut made.outliers);
            let (low, high) = range(&others);
            // A row of zeros has no range.
            let factor = highest / (high - low).max(1e-30);
            let zero = (-low * factor).round();
            for (value, x) in values.iter_mut().zip(&others) {
                *value = ((x * factor + zero).max(0.0).min(highest) + ROUND).to_bits() as u8;
            }
            made.zeros.push(zero as u8);
            made.scales.push(factor.recip());
        }
    });
    made
}

/// Replaces numbers beyond [`OUTLIER`] by 0.
#[inline(always)]
fn set_aside(numbers: &mut [f32], row: usize, outliers: &mut Vec<Outlier>) {
    let squares = reduce(numbers, 0.0, |sum, x| sum + x * x, |a, b| a + b);
    let limit = OUTLIER * (squares / numbers.len() as f32).sqrt();
    for (part, chunk) in numbers.chunks_mut(PART).enumerate() {
        if reduce(chunk, 0.0, |most, x| most.max(x.abs()), f32::max) <= limit {
            continue;
        }
        for (at, x) in chunk.iter_mut().enumerate() {
            if x.abs() > limit {
                outliers.push(Outlier { row, column: part * PART + at, number: *x });
                *x = 0.0;
            }
        }
    }
}

/// The lowest and the highest of a row's numbers and 0.
#[inline(always)]
fn range(row: &[f32]) -> (f32, f32) {
    (reduce(row, 0.0, f32::min, f32::min), reduce(row, 0.0, f32::max, f32::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| (random.f32() - 0.3) * 12.0).collect()
    }

    fn matrix(rows: usize, columns: usize) -> QuantisedMatrix {
        let mut random = fastrand::Rng::with_seed(2);
        QuantisedMatrix {
            values: (0..rows * columns).map(|_| random.i8(-127..=127)).collect(),
            scales: (0..rows).map(|row| 0.001 * (1 + row) as f32).collect(),
        }
    }

    #[test]
    fn products_are_nearly_those_in_floats() {
        let (inputs, outputs) = (1100, 37);
        let stored = matrix(outputs, inputs);
        let (weights, floats) = (QuantisedWeights::new(&stored), stored.numbers());
        for (count, outlier) in [(1, 0.0), (7, 0.0), (130, 0.0), (9, 400.0)] {
            let mut rows = numbers(count * inputs, 1);
            rows.iter_mut().step_by(inputs + 3).for_each(|x| *x += outlier);
            let mut out = vec![f32::NAN; count * outputs];
            weights.apply(&rows, &mut out);
            for (row, out) in rows.chunks_exact(inputs).zip(out.chunks_exact(outputs)) {
                for (of_output, found) in floats.chunks_exact(inputs).zip(out) {
                    let exact: f32 = row.iter().zip(of_output).map(|(x, w)| x * w).sum();
                    // The numbers but for outliers reach over 12, so 7 bits have steps of .1; errors
                    // of a step for each input mostly cancel each other.
                    let size = of_output.iter().map(|w| w * w).sum::<f32>().sqrt();
                    assert!((found - exact).abs() < 0.2 * size, "{found} is not {exact}");
                }
            }
        }
    }

    #[test]
    fn a_row_keeps_its_zero_and_its_ends() {
        let rows = [0.0, -1.0, 2.0, 0.5, 0.0, 0.0, 0.0, 0.0, 3.0, 3.0, 3.0, 3.0];
        let made = quantise(&rows, 4, 255.0);
        let back = |row: usize, at: usize| {
            let value = f32::from(made.values[row * 4 + at]) - f32::from(made.zeros[row]);
            value * made.scales[row]
        };
        for (row, of_row) in rows.chunks_exact(4).enumerate() {
            for (at, x) in of_row.iter().enumerate() {
                assert!((back(row, at) - x).abs() < 0.006, "{} is not {x}", back(row, at));
            }
        }
        assert_eq!(back(0, 0), 0.0);
    }
}
