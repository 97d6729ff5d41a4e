//! Watches the stages: a clock for their timings, and an observer for metrics. Nothing in the flow
//! depends on either.

use std::rc::Rc;
use std::sync::Arc;

use turnstream_schemas::{Fault, FaultKind, Stage};

/// Reads microseconds since a fixed start, for the stages' timings. It is injected, because the
/// core has no clock; [`Clock::none`] measures nothing.
#[derive(Clone)]
pub struct Clock(Option<Rc<dyn Fn() -> u64>>);

impl Clock {
    /// Makes a clock that measures nothing: responses carry no timings.
    pub fn none() -> Self {
        Self(None)
    }

    /// Makes a clock that reads microseconds from a function.
    pub fn from_micros(read: impl Fn() -> u64 + 'static) -> Self {
        Self(Some(Rc::new(read)))
    }

    /// Returns the microseconds now, if time is measured.
    pub fn micros(&self) -> Option<u64> {
        self.0.as_ref().map(|read| read())
    }
}

/// How a turn went through a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// How many microseconds it took, if time is measured.
    pub micros: Option<u64>,
    /// The kind of the fault, if the stage failed.
    pub fault: Option<FaultKind>,
    /// Whether the turn goes on without this stage. False if it becomes a dead letter.
    pub degraded: bool,
}

/// Receives what happens in the stages, for metrics. The workers call it once or twice per turn and
/// stage, so it must be quick and must not block. Nothing in the flow depends on it.
pub trait StageObserver: Send + Sync {
    /// Notes that a turn came to the stage.
    fn entered(&self, stage: Stage);
    /// Notes that a turn left the stage: to the next one, or as a fault.
    fn left(&self, stage: Stage, passage: Passage);
    /// Notes that a stage asks its model once more for a turn.
    fn asked_again(&self, stage: Stage);
    /// Notes that a model gave a stage no usable answer for a turn, in any attempt.
    fn model_failed(&self, model: &str, fault: &Fault);
    /// Notes that this number of sentences of a turn's persona exceeded the bounds and was passed
    /// over.
    fn persona_sentences_passed_over(&self, sentences: u64);
    /// Notes that the number of scopes in the memory of a worker changed by this.
    fn scopes_changed(&self, by: i64);
}

/// An optional [`StageObserver`]. Cheap to clone.
#[derive(Clone, Default)]
pub struct Observer(Option<Arc<dyn StageObserver>>);

impl Observer {
    /// Makes one without an observer.
    pub fn none() -> Self {
        Self(None)
    }

    /// Makes one with this observer.
    pub fn new(observer: Arc<dyn StageObserver>) -> Self {
        Self(Some(observer))
    }

    /// Calls `what` with the observer, if there is one.
    pub(crate) fn tell(&self, what: impl FnOnce(&dyn StageObserver)) {
        if let Some(observer) = &self.0 {
            what(&**observer);
        }
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Observer").field(&self.0.is_some()).finish()
    }
}
