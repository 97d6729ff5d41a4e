//! The interface between a turn's record and the stage runner.

use std::sync::Arc;

use turnstream_schemas::RecordPart;

use super::{Progress, TurnContext, TurnInFlight};

/// The parts of a turn's record that stages have written so far. In builds with debug assertions, a
/// stage panics if its row of the table reads any other part. A turn that a test builds by hand
/// records nothing, and every stage may read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written(Option<u32>);

impl Written {
    /// Begins to record, with these parts as already written.
    pub fn begun(parts: &[RecordPart]) -> Self {
        let mut written = Self(Some(0));
        written.add(parts);
        written
    }

    /// Records that these parts were written, or are known to be empty. Does nothing if recording has
    /// not begun.
    pub fn add(&mut self, parts: &[RecordPart]) {
        if let Some(bits) = &mut self.0 {
            parts.iter().for_each(|part| *bits |= bit(*part));
        }
    }

    /// Adds the parts that the other half of the same turn wrote.
    pub fn join(&mut self, other: Self) {
        self.0 = self.0.zip(other.0).map(|(one, other)| one | other);
    }

    /// Returns the first of these parts that no stage wrote; `None` if nothing is recorded.
    pub fn lacks(self, parts: &[RecordPart]) -> Option<RecordPart> {
        let bits = self.0?;
        parts.iter().copied().find(|part| bits & bit(*part) == 0)
    }
}

fn bit(part: RecordPart) -> u32 {
    1 << part as u32
}

/// A record that belongs to one turn.
pub trait InFlight: Clone + 'static {
    /// Returns the turn and its history.
    fn context(&self) -> &Arc<TurnContext>;
    /// Returns timings, faults, models and written parts so far.
    fn progress(&mut self) -> &mut Progress;
    /// Returns the round of self-refinement, from 1; 0 before the first.
    fn round(&self) -> u32 {
        0
    }
    /// Whether the response is drafted before the gate decides.
    fn for_gate(&self) -> bool {
        false
    }
    /// Returns the parts in which the record differs from `was`. In builds with debug assertions a
    /// stage that changes a part that its row of the table does not name panics.
    fn changed(&self, _was: &Self) -> Vec<RecordPart> {
        Vec::new()
    }
}

impl InFlight for TurnInFlight {
    fn context(&self) -> &Arc<TurnContext> {
        &self.context
    }

    fn progress(&mut self) -> &mut Progress {
        &mut self.progress
    }

    fn round(&self) -> u32 {
        u32::try_from(self.refinement.rounds.len()).unwrap_or(u32::MAX)
    }

    fn for_gate(&self) -> bool {
        self.refinement.for_gate
    }

    fn changed(&self, was: &Self) -> Vec<RecordPart> {
        let demanded = |turn: &Self| {
            let thought = turn.demand.thoughts.generation.clone();
            (turn.demand.revisions.clone(), turn.demand.missing.clone(), thought)
        };
        let (demand, before) = (&self.demand, &was.demand);
        let is_same = [
            (RecordPart::Dialogue, Arc::ptr_eq(&self.context, &was.context)),
            (RecordPart::Concepts, self.mentions == was.mentions && self.missing == was.missing),
            (RecordPart::Gate, self.gate == was.gate),
            (
                RecordPart::Embedding,
                self.embedding == was.embedding
                    && (&self.question, &self.utterance) == (&was.question, &was.utterance)
                    && Arc::ptr_eq(&self.taught, &was.taught),
            ),
            (RecordPart::Plan, self.plan == was.plan && self.asked == was.asked),
            (
                RecordPart::Queries,
                demand.queries == before.queries
                    && demand.thoughts.queries == before.thoughts.queries,
            ),
            (
                RecordPart::Topics,
                demand.topics == before.topics && demand.thoughts.topics == before.thoughts.topics,
            ),
            (RecordPart::Demand, demanded(self) == demanded(was)),
            (RecordPart::Candidates, self.candidates == was.candidates),
            (RecordPart::Evidence, self.evidence == was.evidence),
            (RecordPart::Decision, self.decision == was.decision),
            (RecordPart::Attention, self.history == was.history),
            (RecordPart::Draft, self.draft == was.draft),
            (RecordPart::Refinement, self.refinement == was.refinement),
        ];
        is_same.into_iter().filter(|(_, is_same)| !is_same).map(|(part, _)| part).collect()
    }
}
