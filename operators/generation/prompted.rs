//! Prompted generation: a language model writes the response from the selected evidence, what was
//! recalled from before, and the dialogue. (DCRAG eq 8: R from H, E and the selected facts.)
//!
//! What the turn's persona says is shown where the prompt has a place for it, behind a fence like
//! all that comes from outside.
//!
//! The answer is text, not JSON. A model that is to think first (as in multi-stage prompting, where it
//! states the knowledge before it uses it) has its thought before it when it writes. Where the stage fails and the policy says `lexical`, the realiser
//! answers; at `degrade` a fixed sentence admits it. What may not be said to anybody (`prose`) is asked for once
//! more, like an answer of other stages that cannot be read.

use crate::flow::TurnInFlight;
use crate::prompted::Slot;
use crate::prompted::material::{
    of_context, of_evidence, of_persona, of_queries, of_recalled, of_topics,
};

/// What of a turn fills a slot.
pub(super) fn fill(turn: &TurnInFlight, slot: Slot) -> String {
    let demand = &turn.demand;
    match slot {
        Slot::Queries => of_queries(&demand.queries, &demand.thoughts.queries),
        Slot::Topics => of_topics(&demand.topics, &demand.thoughts.topics),
        Slot::Persona => of_persona(&turn.context, &turn.evidence),
        Slot::Facts | Slot::Passages => of_evidence(slot, &turn.evidence),
        Slot::Recalled => of_recalled(&turn.context, turn.earlier_exchanges()),
        _ => of_context(&turn.context, slot),
    }
}
