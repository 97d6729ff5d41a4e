//! Products of rows and weights. The weights keep the file's form, quantised blocks or f32;
//! candle's kernels compute on one thread pool per process.
//!
//! A row's result does not depend on the other rows of the batch (measured for `Q8_0` with sizes
//! that are multiples of 256, and for f32). A request's text therefore depends neither on
//! concurrent requests nor on how much of its prompt was cached. `Q4_K` and `Q6_K` use other
//! kernels for many rows than for few, and differ in the last digits; so do all products of an
//! accelerator.

use std::borrow::Cow;
use std::sync::Mutex;

use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor};
use candle_core::{CpuStorage, CustomOp1, Device, Layout, Module, Tensor};

/// candle's result; shapes are checked when weights are read.
pub(super) type Result<T> = candle_core::Result<T>;

/// Rows of f32 of one width.
pub(super) struct Rows {
    storage: CpuStorage,
    width: usize,
}

impl Rows {
    pub(super) fn new(numbers: Vec<f32>, width: usize) -> Self {
        debug_assert!(numbers.len().is_multiple_of(width), "whole rows");
        Self { storage: CpuStorage::F32(numbers), width }
    }

    pub(super) fn numbers(&self) -> &[f32] {
        match &self.storage {
            CpuStorage::F32(numbers) => numbers,
            // The storage is f32 by construction.
            _ => &[],
        }
    }

    pub(super) fn into_numbers(self) -> Vec<f32> {
        match self.storage {
            CpuStorage::F32(numbers) => numbers,
            _ => Vec::new(),
        }
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }
}

/// One matrix of weights, `outputs` rows of `inputs` numbers.
pub(super) struct WeightMatrix {
    weights: Held,
    outputs: usize,
    inputs: usize,
}

enum Held {
    /// In memory, where the kernels read rows directly.
    Here(QTensor),
    /// On a device, with transfers of rows and products.
    There(QMatMul, Device),
}

impl WeightMatrix {
    /// Holds a matrix in memory.
    pub(super) fn new(weights: QTensor) -> Result<Self> {
        let (outputs, inputs) = weights.shape().dims2()?;
        Ok(Self { weights: Held::Here(weights), outputs, inputs })
    }

    /// Copies the matrix to a device.
    pub(super) fn on(&self, device: &Device) -> Result<Self> {
        let Self { outputs, inputs, .. } = *self;
        let weights = match &self.weights {
            // A device multiplies quantised blocks and plain tensors, but not f32 in blocks.
            Held::Here(weights) if weights.dtype() == GgmlDType::F32 => {
                QMatMul::Tensor(weights.dequantize(&Device::Cpu)?.to_device(device)?)
            }
            Held::Here(weights) => {
                let storage = QStorage::from_data(weights.data()?, device, weights.dtype())?;
                QMatMul::from_qtensor(QTensor::new(storage, (outputs, inputs))?)?
            }
            Held::There(weights, _) => weights.clone(),
        };
        Ok(Self { weights: Held::There(weights, device.clone()), outputs, inputs })
    }

    pub(super) fn outputs(&self) -> usize {
        self.outputs
    }

    pub(super) fn inputs(&self) -> usize {
        self.inputs
    }

    /// Multiplies each row by the weights.
    pub(super) fn apply(&self, rows: &Rows) -> Result<Rows> {
        let count = rows.numbers().len() / self.inputs;
        let storage = match &self.weights {
            Held::Here(weights) => {
                let layout = Layout::contiguous((count, self.inputs));
                weights.cpu_fwd(&rows.storage, &layout)?.0
            }
            Held::There(weights, device) => {
                let sent = Tensor::from_slice(rows.numbers(), (count, self.inputs), device)?;
                CpuStorage::F32(weights.forward(&sent)?.flatten_all()?.to_vec1()?)
            }
        };
        Ok(Rows { storage, width: self.outputs })
    }

    /// Looks up rows of the weights by number, concatenated: an embedding table.
    pub(super) fn rows(&self, ids: &[u32]) -> Result<Vec<f32>> {
        let ids = Tensor::from_slice(ids, ids.len(), &Device::Cpu)?;
        let rows = match &self.weights {
            Held::Here(weights) => weights.embedding(&ids)?,
            Held::There(weights, _) => weights.embedding(&ids)?,
        };
        rows.flatten_all()?.to_vec1()
    }
}

/// Matrices that multiply the same rows, with their outputs side by side. Matrices in the same form
/// are joined, which makes fewer products and converts the rows once.
pub(super) struct Joined {
    parts: Vec<WeightMatrix>,
    outputs: usize,
    /// Added to the outputs.
    bias: Option<Vec<f32>>,
}

impl Joined {
    pub(super) fn new(matrices: Vec<QTensor>, bias: Option<Vec<f32>>) -> Result<Self> {
        let mut joined: Vec<QTensor> = Vec::new();
        for matrix in matrices {
            let part = match joined.pop() {
                Some(last) if last.dtype() == matrix.dtype() => {
                    one_above_the_other(&last, &matrix)?
                }
                last => {
                    joined.extend(last);
                    matrix
                }
            };
            joined.push(part);
        }
        let parts = joined.into_iter().map(WeightMatrix::new).collect::<Result<Vec<_>>>()?;
        let outputs = parts.iter().map(WeightMatrix::outputs).sum();
        Ok(Self { parts, outputs, bias })
    }

    /// Copies the matrices to a device.
    pub(super) fn on(self, device: &Device) -> Result<Self> {
        let parts = self.parts.iter().map(|part| part.on(device)).collect::<Result<_>>()?;
        Ok(Self { parts, ..self })
    }

    /// Computes the outputs of each row.
    pub(super) fn apply(&self, rows: &Rows) -> Result<Rows> {
        let mut joined = match self.parts.as_slice() {
            [one] => one.apply(rows)?.into_numbers(),
            parts => {
                let count = rows.numbers().len() / rows.width();
                let mut joined = vec![0.0; count * self.outputs];
                let mut at = 0;
                for part in parts {
                    let made = part.apply(rows)?;
                    let made = made.numbers().chunks_exact(part.outputs);
                    for (row, made) in joined.chunks_exact_mut(self.outputs).zip(made) {
                        row[at..at + part.outputs].copy_from_slice(made);
                    }
                    at += part.outputs;
                }
                joined
            }
        };
        if let Some(bias) = &self.bias {
            for row in joined.chunks_exact_mut(self.outputs) {
                row.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
            }
        }
        Ok(Rows::new(joined, self.outputs))
    }
}

/// Stacks two matrices of the same form and width.
fn one_above_the_other(first: &QTensor, second: &QTensor) -> Result<QTensor> {
    let ((above, inputs), (below, _)) = (first.shape().dims2()?, second.shape().dims2()?);
    let data = [first.data()?, second.data()?].concat();
    let storage = QStorage::from_data(Cow::Owned(data), &Device::Cpu, first.dtype())?;
    QTensor::new(storage, (above + below, inputs))
}

/// Converts 16-bit tensors to f32, because the products support no 16-bit form.
pub(super) fn held(tensor: QTensor) -> Result<QTensor> {
    match tensor.dtype() {
        GgmlDType::F16 | GgmlDType::BF16 => {
            QTensor::quantize(&tensor.dequantize(&Device::Cpu)?, GgmlDType::F32)
        }
        _ => Ok(tensor),
    }
}

/// Below this many operations, threads cost more than they save.
const WORTH_THREADS: usize = 200_000;

/// Calls `body` with each chunk of `out` and its number, on the product threads if `operations` (an
/// estimate of the total) is worth it. The last chunk may be shorter.
pub(super) fn each_chunk(
    out: &mut [f32],
    chunk: usize,
    operations: usize,
    body: impl Fn(usize, &mut [f32]) + Sync,
) {
    let chunks = out.chunks_mut(chunk);
    if operations < WORTH_THREADS {
        chunks.enumerate().for_each(|(at, chunk)| body(at, chunk));
        return;
    }
    // Each chunk has one user, so the lock is never contended.
    let chunks: Vec<Mutex<&mut [f32]>> = chunks.map(Mutex::new).collect();
    candle_core::utils::barrier_pool().execute_chunked(chunks.len(), |range| {
        for at in range {
            if let Ok(mut chunk) = chunks[at].lock() {
                body(at, &mut chunk);
            }
        }
    });
}
