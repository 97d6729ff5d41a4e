//! Optimises plain numbers by AdamW (Loshchilov and Hutter 2019), with gradients clipped to norm 1.
//!
//! candle's own AdamW does not expose its moments, so a training could not be saved and resumed
//! exactly.

use std::collections::BTreeMap;

use super::state::State;

/// Gradients by parameter.
pub(super) type Gradients = BTreeMap<String, Vec<f32>>;

const FIRST: f32 = 0.9;
const SECOND: f32 = 0.999;
const EPSILON: f32 = 1e-8;
/// The largest norm of the gradients.
const LONGEST: f64 = 1.0;

/// Adds gradients.
pub(super) fn add(gradients: &mut Gradients, others: Gradients) {
    for (name, other) in others {
        match gradients.get_mut(&name) {
            Some(sum) => sum.iter_mut().zip(&other).for_each(|(sum, x)| *sum += x),
            None => drop(gradients.insert(name, other)),
        }
    }
}

/// The settings of one step.
pub(super) struct AdamW {
    pub(super) rate: f64,
    pub(super) decay: f64,
}

impl AdamW {
    /// Moves the parameters against their gradients.
    pub(super) fn step(&self, state: &mut State, gradients: Gradients) {
        let squares = gradients.values().flatten().map(|x| f64::from(*x) * f64::from(*x));
        let length = squares.sum::<f64>().sqrt();
        let clip = if length > LONGEST { (LONGEST / length) as f32 } else { 1.0 };
        state.steps += 1;
        let unbiased = |beta: f32| 1.0 - beta.powf(state.steps as f32);
        let (first, second) = (unbiased(FIRST), unbiased(SECOND));
        let (rate, kept) = (self.rate as f32, 1.0 - (self.rate * self.decay) as f32);
        for (name, gradient) in gradients {
            let Some((values, moments)) = state.of(&name) else { continue };
            let (means, spreads) = moments.split_at_mut(values.len());
            for (((value, mean), spread), x) in
                values.iter_mut().zip(means).zip(spreads).zip(&gradient)
            {
                let x = x * clip;
                *mean = FIRST * *mean + (1.0 - FIRST) * x;
                *spread = SECOND * *spread + (1.0 - SECOND) * x * x;
                let step = (*mean / first) / ((*spread / second).sqrt() + EPSILON);
                *value = kept * *value - rate * step;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor, Var};
    use candle_nn::{AdamW as Candles, Optimizer, ParamsAdamW};

    use super::*;

    #[test]
    fn steps_equal_those_of_candle() {
        let begun = vec![0.5_f32, -1.0, 2.0];
        let parameter = ("x".to_owned(), vec![3], begun.clone());
        let mut state = State::begin([parameter].into_iter());
        let variable = Var::new(begun, &Device::Cpu).unwrap();
        let params = ParamsAdamW { lr: 0.01, weight_decay: 0.1, ..ParamsAdamW::default() };
        let mut theirs = Candles::new(vec![variable.clone()], params).unwrap();
        for step in 0..5 {
            let weights = [0.1 * step as f32, -0.2, 0.3];
            let weights_of = Tensor::new(&weights, &Device::Cpu).unwrap();
            let loss = (variable.as_tensor() * weights_of).unwrap().sum_all().unwrap();
            theirs.step(&loss.backward().unwrap()).unwrap();
            let gradients = Gradients::from([("x".to_owned(), weights.to_vec())]);
            AdamW { rate: 0.01, decay: 0.1 }.step(&mut state, gradients);
        }
        let theirs: Vec<f32> = variable.to_vec1().unwrap();
        let (ours, _) = state.of("x").unwrap();
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert!((*ours - theirs).abs() < 1e-6, "{ours} {theirs}");
        }
    }

    #[test]
    fn long_gradients_are_clipped_all_alike() {
        let mut state = State::begin([("x".to_owned(), vec![2], vec![0.0; 2])].into_iter());
        let gradients = Gradients::from([("x".to_owned(), vec![30.0, 40.0])]);
        AdamW { rate: 0.1, decay: 0.0 }.step(&mut state, gradients);
        let (_, moments) = state.of("x").unwrap();
        assert!((moments[0] - 0.06).abs() < 1e-6 && (moments[1] - 0.08).abs() < 1e-6);
    }
}
