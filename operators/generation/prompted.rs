//! Prompted generation: a language model writes the response from the selected evidence, the recalled
//! exchanges and the dialogue. (DCRAG eq 8: R from H, E and the selected facts.)
//!
//! The model sees sentences of the turn's persona where the prompt has a slot for them, behind a fence like
//! everything that comes from outside.
//!
//! The answer is text, not JSON. A model that thinks first (as in multi-stage prompting, where it
//! states the knowledge before it uses it) sees its thought when it writes. If the stage fails, the
//! realiser answers if `on_failure` is `lexical`; with `degrade` a fixed sentence admits the
//! failure. If the answer is not [prose](super::prose), the stage asks the model once more, as
//! other stages do with an answer that they cannot read.

use crate::flow::TurnInFlight;
use crate::prompted::Slot;
use crate::prompted::material::{
    of_context, of_evidence, of_persona, of_queries, of_recalled, of_topics,
};

/// Returns the text of a turn that fills a slot.
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
