//! Rotary position embedding (RoPE, Su et al. 2021): rotates pairs of a head's columns by an angle
//! that grows with the position, so that a score depends on the distance alone.

use super::products::each_chunk;

/// The columns of a head that form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pairs {
    /// Column i and column i + half: the layout of transformers and most GGUF files.
    Halves,
    /// Columns 2i and 2i + 1: Llama in GGUF, with reordered query and key weights.
    Neighbours,
}

/// Maps positions to angles.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rope {
    /// Radians per position, one for each pair; columns after the last pair are not rotated.
    pub(super) frequencies: Vec<f32>,
    /// The layout of the pairs.
    pub(super) pairs: Pairs,
}

/// Scaling of positions beyond the training length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scaling {
    /// Divides every frequency by the factor.
    Linear(f64),
    /// Llama 3.1: divides low frequencies by the factor, keeps high ones and blends those between.
    Llama3 {
        /// Divisor of low frequencies.
        factor: f64,
        /// Wavelengths above `original / low` are low frequencies.
        low: f64,
        /// Wavelengths below `original / high` are high ones.
        high: f64,
        /// The training length, in positions.
        original: f64,
    },
}

impl Rope {
    /// The frequencies of `columns` rotated columns, with base θ.
    pub(super) fn new(columns: usize, theta: f64, scaling: Option<Scaling>, pairs: Pairs) -> Self {
        let frequency = |pair: usize| {
            let plain = 1.0 / (theta as f32).powf(2.0 * pair as f32 / columns as f32);
            scaling.map_or(plain, |scaling| scaling.of(f64::from(plain)) as f32)
        };
        Self { frequencies: (0..columns / 2).map(frequency).collect(), pairs }
    }

    /// Cosines and sines of the angles at each position.
    pub(super) fn angles(&self, positions: &[usize]) -> Angles {
        let angles = positions.iter().flat_map(|position| {
            self.frequencies.iter().map(move |frequency| *position as f32 * frequency)
        });
        let (sines, cosines) = angles.map(f32::sin_cos).unzip();
        Angles { sines, cosines, per_row: self.frequencies.len(), pairs: self.pairs }
    }
}

impl Scaling {
    /// Scales a frequency.
    fn of(self, frequency: f64) -> f64 {
        match self {
            Self::Linear(factor) => frequency / factor,
            Self::Llama3 { factor, low, high, original } => {
                let wavelength = std::f64::consts::TAU / frequency;
                if wavelength < original / high {
                    frequency
                } else if wavelength > original / low {
                    frequency / factor
                } else {
                    let kept = (original / wavelength - low) / (high - low);
                    (1.0 - kept) * frequency / factor + kept * frequency
                }
            }
        }
    }
}

/// The angles of a batch's rows, shared by all layers.
pub(super) struct Angles {
    sines: Vec<f32>,
    cosines: Vec<f32>,
    per_row: usize,
    pairs: Pairs,
}

impl Angles {
    /// Rotates `heads` heads of `head` columns at the start of each row of `width` columns.
    pub(super) fn turn(&self, rows: &mut [f32], width: usize, heads: usize, head: usize) {
        let operations = rows.len() * 4;
        each_chunk(rows, width, operations, |row, columns| {
            let of_row = row * self.per_row..(row + 1) * self.per_row;
            let (sines, cosines) = (&self.sines[of_row.clone()], &self.cosines[of_row]);
            for columns in columns[..heads * head].chunks_exact_mut(head) {
                let turned = &mut columns[..2 * self.per_row];
                match self.pairs {
                    Pairs::Halves => {
                        let (first, second) = turned.split_at_mut(self.per_row);
                        for (at, (x, y)) in first.iter_mut().zip(second).enumerate() {
                            (*x, *y) = turn((*x, *y), sines[at], cosines[at]);
                        }
                    }
                    Pairs::Neighbours => {
                        for (at, pair) in turned.chunks_exact_mut(2).enumerate() {
                            (pair[0], pair[1]) = turn((pair[0], pair[1]), sines[at], cosines[at]);
                        }
                    }
                }
            }
        });
    }
}

#[inline(always)]
fn turn((x, y): (f32, f32), sine: f32, cosine: f32) -> (f32, f32) {
    (x * cosine - y * sine, y * cosine + x * sine)
}
