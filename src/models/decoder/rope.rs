//! Rotary position embedding (RoPE, Su et al. 2021): pairs of a head's columns are turned by an
//! angle that grows with the position, so that a score depends on the distance alone.

use super::products::each_chunk;

/// Which columns of a head are a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pairs {
    /// Column i and column i + half: as transformers has it, and most GGUF files.
    Halves,
    /// Columns 2i and 2i + 1: Llama in GGUF, whose query and key weights were reordered for it.
    Neighbours,
}

/// How positions turn into angles.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rope {
    /// Radians per position, one for each pair; the columns behind the pairs are left as they are.
    pub(super) frequencies: Vec<f32>,
    /// The pairs.
    pub(super) pairs: Pairs,
}

/// What a file may say of stretching positions beyond those of the training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scaling {
    /// Every frequency divided by the factor.
    Linear(f64),
    /// Llama 3.1: low frequencies divided by the factor, high ones kept, those between blended.
    Llama3 {
        /// What low frequencies are divided by.
        factor: f64,
        /// Wavelengths above `original / low` are low frequencies.
        low: f64,
        /// Wavelengths below `original / high` are high ones.
        high: f64,
        /// Positions of the training.
        original: f64,
    },
}

impl Rope {
    /// Of `columns` turned columns of a head, with θ as the base.
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
    /// A frequency, stretched.
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

/// The angles of rows, for all their layers.
pub(super) struct Angles {
    sines: Vec<f32>,
    cosines: Vec<f32>,
    per_row: usize,
    pairs: Pairs,
}

impl Angles {
    /// Turns `heads` heads of `head` columns at the start of each row of `width` columns.
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
