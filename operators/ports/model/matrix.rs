//! A square matrix of trained weights: W of DH-RAG eq 6.

use std::sync::Arc;

/// A square matrix, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    dimensions: usize,
    numbers: Arc<[f32]>,
}

impl Matrix {
    /// A matrix with `dimensions` rows; `None` unless there are `dimensions`² numbers.
    pub fn new(dimensions: usize, numbers: impl Into<Arc<[f32]>>) -> Option<Self> {
        let numbers = numbers.into();
        (numbers.len() == dimensions * dimensions).then_some(Self { dimensions, numbers })
    }

    /// The number of rows, and of numbers in each row.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The numbers, row by row.
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    /// q^T W.
    pub fn through(&self, query: &[f32]) -> Vec<f32> {
        let mut product = vec![0.0; self.dimensions];
        for (weight, row) in query.iter().zip(self.numbers.chunks_exact(self.dimensions)) {
            product.iter_mut().zip(row).for_each(|(sum, number)| *sum += weight * number);
        }
        product
    }
}
