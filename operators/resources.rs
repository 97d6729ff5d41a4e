//! What the deciding stages share: the graph, the models, and the clock and timers of
//! the worker.

use std::sync::Arc;

use crate::awaited::Awaited;
use crate::documents::SearchDocuments;
use crate::knowledge::Knowledge;
use crate::meaning::FactMeaning;
use crate::model::encoder::Encoder;
use crate::model::{Embed, Generate, Score};
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
    /// The sentence encoder that dialogues are embedded by, where it has to be waited for.
    pub embed: Option<Arc<Embed>>,
    /// The encoder that dialogues are embedded by where there is no `embed`: one that takes
    /// microseconds.
    pub encoder: Option<Arc<dyn Encoder>>,
    /// What facts are ranked by in meaning, where they have vectors.
    pub meaning: Option<FactMeaning>,
    /// What scores pairs of texts, where it is configured.
    pub score: Option<Arc<Score>>,
}

impl Resources {
    /// The shell of a stage with this failure policy.
    pub fn shell(&self, on_failure: OnFailure) -> Shell {
        Shell { clock: self.clock.clone(), observer: self.observer.clone(), on_failure }
    }
}
