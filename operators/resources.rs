//! What the deciding stages share: the graph, the models, and the clock and timers of
//! the worker.

use std::sync::Arc;

use crate::awaited::Awaited;
use crate::documents::SearchDocuments;
use crate::knowledge::Knowledge;
use crate::model::Generate;
use crate::stage::{Clock, Observer, OnFailure, Shell};
use crate::timers::Timers;

/// The read-only means of the deciding stages of one worker. Cheap to clone.
#[derive(Clone)]
pub struct Resources {
    /// The facts.
    pub knowledge: Knowledge,
    /// The documents, where there are any.
    pub documents: Option<Arc<dyn SearchDocuments>>,
    /// Measures the stages, where they are measured.
    pub clock: Clock,
    /// Is told of every turn in every stage.
    pub observer: Observer,
    /// Wakes stages that wait for a model.
    pub timers: Timers,
    /// The turns that somebody still waits for.
    pub awaited: Awaited,
    /// The language model that responses are asked of, where there is one.
    pub generate: Option<Arc<Generate>>,
}

impl Resources {
    /// The shell of a stage with this failure policy.
    pub fn shell(&self, on_failure: OnFailure) -> Shell {
        Shell { clock: self.clock.clone(), observer: self.observer.clone(), on_failure }
    }
}
