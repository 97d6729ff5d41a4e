//! The prompted gate: a language model says whether the reply gains from knowledge. (RAGate-Prompt,
//! zero-shot by the prompt `gate`, in-context by `gate_examples`.)
//!
//! Concepts are linked as in the lexical form, since all later stages read them. The score is 1
//! or 0: the model says no more.

use timely::dataflow::StreamVec;
use turnstream_knowledge::Knowledge;
use turnstream_schemas::{GateAnswer, Stage};

use super::{GateConfig, find, lexical, linked, whatever_the_turn};
use crate::flow::{Epoch, Failed, Gated};
use crate::prompted::{Asking, Reading, material, prompted};
use crate::stage::instead;

/// The gate over turns whose concepts are not linked yet.
pub(super) fn gate<'scope>(
    turns: StreamVec<'scope, Epoch, Gated>,
    config: GateConfig,
    asking: Asking,
    knowledge: Knowledge,
) -> (StreamVec<'scope, Epoch, Gated>, StreamVec<'scope, Epoch, Failed>) {
    let (finds, falls) = (knowledge.clone(), knowledge);
    let fallen = config.clone();
    let reading = Reading {
        fill: |turn: &Gated, slot| material::of_context(&turn.context, slot),
        read: move |turn: &Gated, answer: GateAnswer, _| {
            let (mentions, missing) =
                finds.at(&turn.knowledge, |view| find(view, &turn.context, &config));
            Ok((mentions, missing, whatever_the_turn(answer.needs_knowledge)))
        },
        fallback: move |turn: &Gated| instead(fallen.on_failure, || lexical(turn, &falls, &fallen)),
        join: linked,
    };
    prompted(turns, Stage::Gate, asking, reading)
}
