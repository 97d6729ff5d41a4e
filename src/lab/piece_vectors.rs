//! Holds the vectors of word pieces during training: the vector of a text is the sum of its pieces'
//! vectors. A step of gradient descent touches only the pieces of its texts, so an epoch costs a
//! few operations per piece and dimension. [`distil`](crate::distil) and
//! [`pair_training`](crate::pair_training) make static tables of them.

/// Adam's decay rates of the two moments.
const FORGET: [f32; 2] = [0.9, 0.999];
/// Avoids a division by zero.
const EPSILON: f32 = 1e-8;

/// The vectors, and the pending gradients.
pub(crate) struct PieceVectors {
    vectors: Vec<f32>,
    dimensions: usize,
    /// For each number of a vector, the mean of its gradients and of their squares.
    moments: Vec<[f32; 2]>,
    /// For each piece, the steps that touched it.
    steps: Vec<u32>,
    /// For each piece in the pending step, the position of its gradient from 1; 0 if it has none.
    places: Vec<u32>,
    touched: Vec<u32>,
    gradients: Vec<f32>,
}

impl PieceVectors {
    pub(crate) fn new(vectors: Vec<f32>, dimensions: usize) -> Self {
        let pieces = vectors.len() / dimensions;
        Self {
            moments: vec![[0.0; 2]; vectors.len()],
            vectors,
            dimensions,
            steps: vec![0; pieces],
            places: vec![0; pieces],
            touched: Vec::new(),
            gradients: Vec::new(),
        }
    }

    /// Returns the vectors, concatenated.
    pub(crate) fn vectors(&self) -> &[f32] {
        &self.vectors
    }

    /// Replaces the vectors.
    pub(crate) fn replace(&mut self, vectors: Vec<f32>) {
        self.vectors = vectors;
    }

    pub(crate) fn into_vectors(self) -> Vec<f32> {
        self.vectors
    }

    /// Writes the sum of a text's pieces to `sum`, and returns its length.
    pub(crate) fn sum(&self, pieces: &[u32], sum: &mut [f32]) -> f32 {
        sum.fill(0.0);
        for &piece in pieces {
            let vector = &self.vectors[piece as usize * self.dimensions..][..self.dimensions];
            sum.iter_mut().zip(vector).for_each(|(sum, number)| *sum += number);
        }
        dot(sum, sum).sqrt()
    }

    /// Adds a text's gradient to each of its pieces.
    pub(crate) fn pull(&mut self, pieces: &[u32], gradient: &[f32]) {
        for &piece in pieces {
            let place = &mut self.places[piece as usize];
            if *place == 0 {
                self.touched.push(piece);
                self.gradients.resize(self.touched.len() * self.dimensions, 0.0);
                *place = self.touched.len() as u32;
            }
            let own = &mut self.gradients[(*place as usize - 1) * self.dimensions..];
            own.iter_mut().zip(gradient).for_each(|(all, number)| *all += number);
        }
    }

    /// Returns the pending gradient of a piece.
    #[cfg(test)]
    pub(crate) fn gradient(&self, piece: u32) -> &[f32] {
        match self.places[piece as usize] {
            0 => &[],
            place => &self.gradients[(place as usize - 1) * self.dimensions..][..self.dimensions],
        }
    }

    /// Makes one Adam step with the pending gradients, and clears them.
    pub(crate) fn step(&mut self, rate: f32) {
        let (touched, gradients) =
            (std::mem::take(&mut self.touched), std::mem::take(&mut self.gradients));
        for (piece, gradient) in touched.into_iter().zip(gradients.chunks_exact(self.dimensions)) {
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

pub(crate) fn dot(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}
