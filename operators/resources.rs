//! What the deciding stages share: the graph, the lexicon and the clock of the worker.

use std::sync::Arc;

use crate::knowledge::Graph;
use crate::language::Lexicon;
use crate::stage::{Clock, OnFailure, Shell};

/// The read-only means of the deciding stages of one worker. Cheap to clone.
#[derive(Clone)]
pub struct Resources {
    /// The facts.
    pub graph: Arc<Graph>,
    /// The words.
    pub lexicon: &'static Lexicon,
    /// Measures the stages, where they are measured.
    pub clock: Clock,
}

impl Resources {
    /// The shell of a stage with this failure policy.
    pub fn shell(&self, on_failure: OnFailure) -> Shell {
        Shell { clock: self.clock.clone(), on_failure }
    }
}
