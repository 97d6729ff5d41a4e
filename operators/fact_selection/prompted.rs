//! Prompted fact selection: a language model picks facts by number. (DCRAG eq 7.) Foreseen facts come
//! first, in the model's order; unforeseen ones follow where there is room. Numbers without a fact are
//! ignored. Passages and persona are chosen as in the lexical form.

use turnstream_schemas::{Evidence, SelectionAnswer};

use super::{FactSelectionConfig, with_facts};
use crate::flow::{Candidates, TurnInFlight};
use crate::prompted::Slot;
use crate::prompted::material::{numbered, of_context, of_queries, of_topics};

/// Returns the text of a turn that fills a slot.
pub(super) fn fill(turn: &TurnInFlight, slot: Slot) -> String {
    let (demand, candidates) = (&turn.demand, &turn.candidates);
    match slot {
        Slot::Queries => of_queries(&demand.queries, &demand.thoughts.queries),
        Slot::Topics => of_topics(&demand.topics, &demand.thoughts.topics),
        Slot::Foreseen => numbered(slot, &candidates.foreseen, 1),
        Slot::Unforeseen => numbered(slot, &candidates.unforeseen, 1 + candidates.foreseen.len()),
        _ => of_context(&turn.context, slot),
    }
}

/// Returns the evidence that an answer picks, then the most relevant of the rest.
pub(super) fn selected(
    candidates: &Candidates,
    answer: &SelectionAnswer,
    config: &FactSelectionConfig,
) -> Vec<Evidence> {
    let all: Vec<&Evidence> = candidates.foreseen.iter().chain(&candidates.unforeseen).collect();
    let mut picked = Vec::new();
    for number in &answer.selected {
        let at = (*number as usize).wrapping_sub(1);
        if at < all.len() && !picked.contains(&at) {
            picked.push(at);
        }
    }
    // The sort is stable: within each set the model's order stays.
    picked.sort_by_key(|at| *at >= candidates.foreseen.len());
    picked.truncate(config.max_selected as usize);
    let rest = (0..all.len()).filter(|at| !picked.contains(at));
    let rest: Vec<usize> = rest.take(config.max_unselected_in_record as usize).collect();
    let facts = picked.iter().map(|at| Evidence { selected: true, ..all[*at].clone() });
    let facts = facts.chain(rest.iter().map(|at| all[*at].clone())).collect();
    with_facts(facts, candidates, config)
}
