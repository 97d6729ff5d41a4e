//! Calibration turns a cosine into a probability. A table that was trained to judge has one in its
//! card.

/// Turns a cosine c into a score: 1 ÷ (1 + exp(−(slope · c + offset))).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Calibration {
    /// How steeply the score rises.
    pub slope: f64,
    /// The score's logit at a cosine of 0.
    pub offset: f64,
}

impl Calibration {
    /// The score of a cosine, 0..=1.
    pub fn score(self, cosine: f64) -> f64 {
        1.0 / (1.0 + (-(self.slope * cosine + self.offset)).exp())
    }
}
