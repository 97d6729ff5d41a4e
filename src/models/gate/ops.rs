//! The encoder's operations with their gradients: a linear layer, multi-head attention over
//! sequences of different lengths without padding, and a layer norm. candle's autograd joins them.
//!
//! candle's own operations do not suit training: its fused layer norm and softmax have no backward
//! and silently stop gradients, and its attention moves the batch's weights through memory several
//! times a step. With these operations a training step costs a third, and training and inference
//! share the code. Everything runs on the caller's thread: parallel calls use the cores better than
//! one call over all cores.

use std::ops::Range;

use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor};
use gemm::Parallelism;

use crate::bert::kernels::{add_bias, add_multiple, dot, softmax, vectorised};

/// The numbers of a contiguous tensor.
fn slice<'a>(storage: &'a CpuStorage, layout: &Layout, op: &'static str) -> Result<&'a [f32]> {
    let (from, to) = layout
        .contiguous_offsets()
        .ok_or_else(|| candle_core::Error::RequiresContiguous { op }.bt())?;
    Ok(&storage.as_slice::<f32>()?[from..to])
}

/// Copies the numbers of a tensor.
fn numbers(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.flatten_all()?.to_vec1()
}

/// Makes a tensor of these numbers in the shape of another.
fn like(numbers: Vec<f32>, other: &Tensor) -> Result<Tensor> {
    Tensor::from_vec(numbers, other.shape(), other.device())
}

/// A matrix in a slice: row-major, or the transpose of a row-major one.
#[derive(Clone, Copy)]
struct Matrix<'a> {
    numbers: &'a [f32],
    rows: usize,
    columns: usize,
    transposed: bool,
}

impl<'a> Matrix<'a> {
    fn new(numbers: &'a [f32], columns: usize) -> Self {
        Self { numbers, rows: numbers.len() / columns, columns, transposed: false }
    }

    fn transpose(self) -> Self {
        Self { rows: self.columns, columns: self.rows, transposed: !self.transposed, ..self }
    }

    /// Multiplies two matrices; the result is row-major.
    fn times(self, other: Self) -> Vec<f32> {
        assert_eq!(self.columns, other.rows, "matrices that fit each other");
        let mut out = vec![0.0; self.rows * other.columns];
        let strides = |matrix: &Self| match matrix.transposed {
            false => (1, matrix.columns as isize),
            true => (matrix.rows as isize, 1),
        };
        let ((left_column, left_row), (right_column, right_row)) =
            (strides(&self), strides(&other));
        // SAFETY: under its strides, each slice has rows × columns numbers, and `out` as many as
        // the product; `out` is borrowed exclusively.
        #[allow(unsafe_code)]
        unsafe {
            gemm::gemm(
                self.rows,
                other.columns,
                self.columns,
                out.as_mut_ptr(),
                1,
                other.columns as isize,
                false,
                self.numbers.as_ptr(),
                left_column,
                left_row,
                other.numbers.as_ptr(),
                right_column,
                right_row,
                0.0_f32,
                1.0_f32,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
        out
    }
}

/// `rows · weights + bias`: rows (n, inputs), weights (inputs, outputs), bias (outputs).
pub(super) fn linear(rows: &Tensor, weights: &Tensor, bias: &Tensor) -> Result<Tensor> {
    rows.apply_op3(weights, bias, LinearOp)
}

struct LinearOp;

impl CustomOp3 for LinearOp {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        rows: &CpuStorage,
        rows_layout: &Layout,
        weights: &CpuStorage,
        weights_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (count, inputs) = rows_layout.shape().dims2()?;
        let (_, outputs) = weights_layout.shape().dims2()?;
        let rows = Matrix::new(slice(rows, rows_layout, "linear")?, inputs);
        let weights = Matrix::new(slice(weights, weights_layout, "linear")?, outputs);
        let bias = slice(bias, bias_layout, "linear")?;
        let mut out = rows.times(weights);
        add_bias(&mut out, bias);
        Ok((CpuStorage::F32(out), (count, outputs).into()))
    }

    fn bwd(
        &self,
        rows: &Tensor,
        weights: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (inputs, outputs) = weights.dims2()?;
        let (x, w, dy) = (numbers(rows)?, numbers(weights)?, numbers(grad)?);
        let grads = Matrix::new(&dy, outputs);
        let to_rows = grads.times(Matrix::new(&w, outputs).transpose());
        let to_weights = Matrix::new(&x, inputs).transpose().times(grads);
        let mut to_bias = vec![0.0; outputs];
        dy.chunks_exact(outputs).for_each(|row| add_multiple(&mut to_bias, 1.0, row));
        Ok((
            Some(like(to_rows, rows)?),
            Some(like(to_weights, weights)?),
            Some(like(to_bias, bias)?),
        ))
    }
}

/// Layer norm of each row of `rows` (n, width), by `scale` and `shift` (width) (Ba et al. 2016).
pub(super) fn norm(rows: &Tensor, scale: &Tensor, shift: &Tensor) -> Result<Tensor> {
    rows.apply_op3(scale, shift, NormOp)
}

/// Added to the variance of a row.
const EPSILON: f32 = 1e-5;

struct NormOp;

/// Standardises a row to mean 0 and variance 1, and returns the divisor.
fn standardise(row: &[f32], out: &mut [f32]) -> f32 {
    let width = row.len() as f32;
    let mean = row.iter().sum::<f32>() / width;
    let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / width;
    let deviation = (variance + EPSILON).sqrt();
    for (out, x) in out.iter_mut().zip(row) {
        *out = (x - mean) / deviation;
    }
    deviation
}

impl CustomOp3 for NormOp {
    fn name(&self) -> &'static str {
        "norm"
    }

    fn cpu_fwd(
        &self,
        rows: &CpuStorage,
        rows_layout: &Layout,
        scale: &CpuStorage,
        scale_layout: &Layout,
        shift: &CpuStorage,
        shift_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let rows = slice(rows, rows_layout, "norm")?;
        let (scale, shift) =
            (slice(scale, scale_layout, "norm")?, slice(shift, shift_layout, "norm")?);
        let width = scale.len();
        let mut out = vec![0.0; rows.len()];
        vectorised!({
            for (row, out) in rows.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
                standardise(row, out);
                for ((out, scale), shift) in out.iter_mut().zip(scale).zip(shift) {
                    *out = *out * scale + shift;
                }
            }
        });
        Ok((CpuStorage::F32(out), rows_layout.shape().clone()))
    }

    fn bwd(
        &self,
        rows: &Tensor,
        scale: &Tensor,
        shift: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (x, factors, dy) = (numbers(rows)?, numbers(scale)?, numbers(grad)?);
        let width = factors.len();
        let mut to_rows = vec![0.0; x.len()];
        let (mut to_scale, mut to_shift) = (vec![0.0; width], vec![0.0; width]);
        let mut standard = vec![0.0; width];
        vectorised!({
            let rows = x.chunks_exact(width).zip(dy.chunks_exact(width));
            for ((row, dy), to_row) in rows.zip(to_rows.chunks_exact_mut(width)) {
                let deviation = standardise(row, &mut standard);
                let (mut sum, mut product) = (0.0, 0.0);
                for (((to_row, dy), factor), x) in
                    to_row.iter_mut().zip(dy).zip(&factors).zip(&standard)
                {
                    *to_row = dy * factor;
                    sum += *to_row;
                    product += *to_row * x;
                }
                let (mean, along) = (sum / width as f32, product / width as f32);
                for (to_row, x) in to_row.iter_mut().zip(&standard) {
                    *to_row = (*to_row - mean - x * along) / deviation;
                }
                for (((to_scale, to_shift), dy), x) in
                    to_scale.iter_mut().zip(&mut to_shift).zip(dy).zip(&standard)
                {
                    *to_scale += dy * x;
                    *to_shift += dy;
                }
            }
        });
        Ok((Some(like(to_rows, rows)?), Some(like(to_scale, scale)?), Some(like(to_shift, shift)?)))
    }
}

/// The rows of a sequence's queries, and the rows of the keys that they attend to.
pub(super) type Attended = (Range<usize>, Range<usize>);

/// Multi-head attention (Vaswani et al. 2017). `queries` is (n, width); the key and value of each
/// attended row lie side by side (m, 2 · width). Sequences are independent; a query whose sequence
/// has no keys gets zeros.
pub(super) fn attention(
    queries: &Tensor,
    keys_and_values: &Tensor,
    heads: usize,
    sequences: &[Attended],
) -> Result<Tensor> {
    let sequences = sequences.to_vec();
    queries.apply_op2(keys_and_values, AttentionOp { heads, sequences })
}

struct AttentionOp {
    heads: usize,
    sequences: Vec<Attended>,
}

/// The keys and values of one head of one sequence, transposed, so that operations over all keys
/// work on whole rows.
struct Columns {
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Columns {
    /// Copies the columns from `at`, `head` wide, out of rows of `2 · width`.
    fn gather(rows: &[f32], of: &Range<usize>, width: usize, at: usize, head: usize) -> Self {
        let count = of.len();
        let part = |from: usize| {
            let mut out = vec![0.0; count * head];
            for (index, row) in of.clone().enumerate() {
                let from = row * 2 * width + from + at;
                for (column, x) in rows[from..from + head].iter().enumerate() {
                    out[column * count + index] = *x;
                }
            }
            out
        };
        Self { keys: part(0), values: part(width) }
    }

    /// Adds the columns back to the rows that they came from.
    fn scatter(&self, rows: &mut [f32], of: &Range<usize>, width: usize, at: usize, head: usize) {
        let count = of.len();
        for (from, columns) in [(0, &self.keys), (width, &self.values)] {
            for (index, row) in of.clone().enumerate() {
                let from = row * 2 * width + from + at;
                for (column, x) in rows[from..from + head].iter_mut().enumerate() {
                    *x += columns[column * count + index];
                }
            }
        }
    }

    /// Writes each key's share of a query, the softmax of their products, to `shares`.
    #[inline(always)]
    fn attend(&self, query: &[f32], shares: &mut [f32]) {
        shares.fill(0.0);
        let factor = 1.0 / (query.len() as f32).sqrt();
        for (query, keys) in query.iter().zip(self.keys.chunks_exact(shares.len())) {
            add_multiple(shares, query * factor, keys);
        }
        softmax(shares);
    }
}

impl AttentionOp {
    /// Calls `each` for every head of every sequence with keys: the head's first column, its width,
    /// and the sequence.
    fn each_head(&self, width: usize, mut each: impl FnMut(usize, usize, &Attended)) {
        let head = width / self.heads;
        for sequence in self.sequences.iter().filter(|(_, keys)| !keys.is_empty()) {
            (0..width).step_by(head).for_each(|at| each(at, head, sequence));
        }
    }
}

impl CustomOp2 for AttentionOp {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(
        &self,
        queries: &CpuStorage,
        queries_layout: &Layout,
        keys: &CpuStorage,
        keys_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (_, width) = queries_layout.shape().dims2()?;
        let queries = slice(queries, queries_layout, "attention")?;
        let rows = slice(keys, keys_layout, "attention")?;
        let mut out = vec![0.0; queries.len()];
        let mut shares = Vec::new();
        vectorised!({
            self.each_head(width, |at, head, (asking, asked)| {
                let columns = Columns::gather(rows, asked, width, at, head);
                shares.resize(asked.len(), 0.0);
                for row in asking.clone() {
                    let from = row * width + at;
                    columns.attend(&queries[from..from + head], &mut shares);
                    let values = columns.values.chunks_exact(asked.len());
                    for (out, values) in out[from..from + head].iter_mut().zip(values) {
                        *out = dot(&shares, values);
                    }
                }
            });
        });
        Ok((CpuStorage::F32(out), queries_layout.shape().clone()))
    }

    fn bwd(
        &self,
        queries: &Tensor,
        keys: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (_, width) = queries.dims2()?;
        let (asking_rows, rows, dy) = (numbers(queries)?, numbers(keys)?, numbers(grad)?);
        let (mut to_queries, mut to_keys) = (vec![0.0; asking_rows.len()], vec![0.0; rows.len()]);
        let (mut shares, mut to_scores) = (Vec::new(), Vec::new());
        vectorised!({
            self.each_head(width, |at, head, (asking, asked)| {
                let count = asked.len();
                let columns = Columns::gather(&rows, asked, width, at, head);
                let mut to =
                    Columns { keys: vec![0.0; count * head], values: vec![0.0; count * head] };
                shares.resize(count, 0.0);
                let factor = 1.0 / (head as f32).sqrt();
                for row in asking.clone() {
                    let from = row * width + at;
                    let (query, dy) = (&asking_rows[from..from + head], &dy[from..from + head]);
                    columns.attend(query, &mut shares);
                    to_scores.clear();
                    to_scores.resize(count, 0.0);
                    let values = columns.values.chunks_exact(count);
                    let to_values = to.values.chunks_exact_mut(count);
                    for ((dy, values), to_values) in dy.iter().zip(values).zip(to_values) {
                        add_multiple(&mut to_scores, *dy, values);
                        add_multiple(to_values, *dy, &shares);
                    }
                    // Gradient of the softmax: each gradient less the mean weighted by the shares.
                    let mean = dot(&to_scores, &shares);
                    for (to_score, share) in to_scores.iter_mut().zip(&shares) {
                        *to_score = (*to_score - mean) * share * factor;
                    }
                    let to_query = &mut to_queries[from..from + head];
                    let keys = columns.keys.chunks_exact(count);
                    let to_keys = to.keys.chunks_exact_mut(count);
                    for (((to_query, query), keys), to_keys) in
                        to_query.iter_mut().zip(query).zip(keys).zip(to_keys)
                    {
                        *to_query += dot(&to_scores, keys);
                        add_multiple(to_keys, *query, &to_scores);
                    }
                }
                to.scatter(&mut to_keys, asked, width, at, head);
            });
        });
        Ok((Some(like(to_queries, queries)?), Some(like(to_keys, keys)?)))
    }
}

#[cfg(test)]
mod tests;
