//! Storage of the embedded log in memory, which ends with the process.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::super::LogError;
use super::state::{Batch, Storage, Visit};

/// Keys and values in order.
#[derive(Default)]
pub(super) struct Memory {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Storage for Memory {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LogError> {
        Ok(self.values.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), LogError> {
        if from >= to {
            return Ok(());
        }
        for (key, value) in self
            .values
            .range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(to)))
        {
            if visit(key, value)? == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, batch: Batch) -> Result<(), LogError> {
        for (key, value) in batch {
            match value {
                Some(value) => self.values.insert(key, value),
                None => self.values.remove(&key),
            };
        }
        Ok(())
    }
}
