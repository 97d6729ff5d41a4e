//! Holds the state of a training: parameters, moments and the best pass so far, saved to a file for
//! resuming.

use std::collections::{BTreeMap, HashMap};

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde::{Deserialize, Serialize};

/// Parameters: shape and numbers by name.
pub(super) type Values = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The key of the counts in the metadata.
const COUNTS: &str = "turnstream";

/// Why a training cannot resume from a state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file is damaged, or is not a state.
    #[error("the state of the training is damaged ({0}); remove the file and start over")]
    Damaged(String),
    /// The state belongs to another training.
    #[error(
        "the state is of another training ({0}); use the options that it started with, or remove \
         the file"
    )]
    Another(String),
}

/// The state of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    values: Values,
    /// First moments, then second moments.
    moments: BTreeMap<String, Vec<f32>>,
    best_values: Values,
    /// Completed passes.
    pub epoch: u32,
    /// Completed steps.
    pub steps: u64,
    /// The best pass, from 1; 0 before the first.
    pub best_epoch: u32,
    /// The figure of the best pass on the development splits.
    pub best: f64,
}

#[derive(Serialize, Deserialize)]
struct StateCounts {
    epoch: u32,
    steps: u64,
    best_epoch: u32,
    best: f64,
    /// Identifies the training, so that no other training resumes from its state.
    begun_with: String,
}

impl State {
    /// Returns the initial state of parameters given by name, shape and numbers.
    pub fn begin(parameters: impl Iterator<Item = (String, Vec<usize>, Vec<f32>)>) -> Self {
        let values: Values =
            parameters.map(|(name, shape, numbers)| (name, (shape, numbers))).collect();
        let moments =
            values.iter().map(|(name, (_, it))| (name.clone(), vec![0.0; 2 * it.len()])).collect();
        let best_values = values.clone();
        Self { values, moments, best_values, epoch: 0, steps: 0, best_epoch: 0, best: 0.0 }
    }

    /// Returns the current parameters.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Returns the parameters of the best pass.
    pub fn best_values(&self) -> &Values {
        &self.best_values
    }

    /// Returns a parameter's numbers and moments.
    pub(super) fn of(&mut self, name: &str) -> Option<(&mut Vec<f32>, &mut Vec<f32>)> {
        Some((&mut self.values.get_mut(name)?.1, self.moments.get_mut(name)?))
    }

    /// Saves the current parameters as the best.
    pub(super) fn keep(&mut self, best: f64) {
        self.best_values.clone_from(&self.values);
        (self.best, self.best_epoch) = (best, self.epoch);
    }

    /// Checks that another state belongs to the same training as this initial state.
    pub(super) fn fits(&self, other: &Self) -> Result<(), StateError> {
        let shapes = |state: &Self| -> Vec<(String, Vec<usize>)> {
            state.values.iter().map(|(name, (shape, _))| (name.clone(), shape.clone())).collect()
        };
        if shapes(self) == shapes(other) {
            Ok(())
        } else {
            Err(StateError::Another("the shapes of its parameters differ".to_owned()))
        }
    }

    /// Serialises the state; `begun_with` identifies the training.
    ///
    /// # Errors
    /// safetensors cannot lay the state out.
    pub fn to_bytes(&self, begun_with: &str) -> Result<Vec<u8>, StateError> {
        let damaged = |error: &dyn std::fmt::Display| StateError::Damaged(error.to_string());
        let bytes = |numbers: &[f32]| -> Vec<u8> {
            numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
        };
        let mut all = Vec::new();
        for (kind, values) in [("value", &self.values), ("best", &self.best_values)] {
            for (name, (shape, numbers)) in values {
                all.push((format!("{kind}/{name}"), shape.clone(), bytes(numbers)));
            }
        }
        for (name, numbers) in &self.moments {
            all.push((format!("moments/{name}"), vec![numbers.len()], bytes(numbers)));
        }
        let views = all.iter().map(|(name, shape, bytes)| {
            let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
            view.map(|view| (name.as_str(), view)).map_err(|error| damaged(&error))
        });
        let views = views.collect::<Result<Vec<_>, _>>()?;
        let Self { epoch, steps, best_epoch, best, .. } = *self;
        let begun_with = begun_with.to_owned();
        let counts = StateCounts { epoch, steps, best_epoch, best, begun_with };
        let counts = serde_json::to_string(&counts).map_err(|error| damaged(&error))?;
        let metadata = HashMap::from([(COUNTS.to_owned(), counts)]);
        safetensors::serialize(views, Some(metadata)).map_err(|error| damaged(&error))
    }

    /// Reads a state.
    ///
    /// # Errors
    /// The state is damaged, or belongs to another training.
    pub fn from_bytes(bytes: &[u8], begun_with: &str) -> Result<Self, StateError> {
        let damaged = |error: &dyn std::fmt::Display| StateError::Damaged(error.to_string());
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| damaged(&error))?;
        let counts = metadata.metadata().as_ref().and_then(|metadata| metadata.get(COUNTS));
        let counts = counts.ok_or_else(|| damaged(&"it does not record its progress"))?;
        let counts: StateCounts = serde_json::from_str(counts).map_err(|error| damaged(&error))?;
        if counts.begun_with != begun_with {
            return Err(StateError::Another("its options or its data differ".to_owned()));
        }
        let tensors = SafeTensors::deserialize(bytes).map_err(|error| damaged(&error))?;
        let (mut values, mut best_values, mut moments) =
            (Values::new(), Values::new(), BTreeMap::new());
        for (name, view) in tensors.tensors() {
            let numbers = view.data().chunks_exact(4);
            let numbers: Vec<f32> =
                numbers.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
            let shape = view.shape().to_vec();
            match name.split_once('/') {
                Some(("value", name)) => drop(values.insert(name.to_owned(), (shape, numbers))),
                Some(("best", name)) => drop(best_values.insert(name.to_owned(), (shape, numbers))),
                Some(("moments", name)) => drop(moments.insert(name.to_owned(), numbers)),
                _ => return Err(damaged(&format!("unknown tensor `{name}`"))),
            }
        }
        let whole = values.iter().all(|(name, (_, numbers))| {
            moments.get(name).is_some_and(|it| it.len() == 2 * numbers.len())
                && best_values.get(name).is_some_and(|(_, best)| best.len() == numbers.len())
        });
        if !whole {
            return Err(damaged(&"a parameter is incomplete"));
        }
        let StateCounts { epoch, steps, best_epoch, best, .. } = counts;
        Ok(Self { values, moments, best_values, epoch, steps, best_epoch, best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reads_back_unchanged() {
        let parameters = [
            ("a".to_owned(), vec![2, 2], vec![1.0, 2.0, 3.0, 4.0]),
            ("b.c".to_owned(), vec![3], vec![0.5; 3]),
        ];
        let mut state = State::begin(parameters.into_iter());
        state.of("a").unwrap().0[1] = 7.0;
        state.of("b.c").unwrap().1[4] = 0.25;
        (state.epoch, state.steps) = (3, 99);
        state.keep(0.75);
        state.of("a").unwrap().0[0] = 8.0;
        let bytes = state.to_bytes("these options").unwrap();
        assert_eq!(State::from_bytes(&bytes, "these options").unwrap(), state);
        let other = State::from_bytes(&bytes, "other options");
        assert!(matches!(other, Err(StateError::Another(_))), "{other:?}");
        let cut = State::from_bytes(&bytes[..bytes.len() - 1], "these options");
        assert!(matches!(cut, Err(StateError::Damaged(_))), "{cut:?}");
    }
}
