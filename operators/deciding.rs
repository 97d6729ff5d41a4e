//! A stage that decides by rules or by a language model, as the configuration chooses, and may be
//! switched off (DCRAG's ablations): what query production, topic planning, cross revision and fact
//! selection have in common.

use std::rc::Rc;

use timely::dataflow::StreamVec;
use turnstream_ports::form::Form;
use turnstream_ports::panics::contain;
use turnstream_schemas::{Fault, Stage};

use crate::flow::{Epoch, Failed, InFlight};
use crate::prompted::{Answer, PromptedConfig, Reading, Slot, prompted};
use crate::resources::Resources;
use crate::stage::{OnFailure, Work, stage};

/// What the configuration chooses for a stage.
pub(crate) struct Chosen {
    pub stage: Stage,
    pub form: Form,
    pub prompted: PromptedConfig,
    pub on_failure: OnFailure,
}

/// What a stage adds.
pub(crate) struct Deciding<Lexical, Without, Fill, Read, Join> {
    /// What the rules decide.
    pub lexical: Lexical,
    /// What the turn goes on with where the stage is off, or failed and may degrade.
    pub without: Without,
    /// What of a turn fills a slot of the prompt.
    pub fill: Fill,
    /// What the stage makes of a model's answer and of the thought before it.
    pub read: Read,
    /// The turn with the decision.
    pub join: Join,
}

/// Decides about every turn: turns in, (turns with the decision, faults) out.
pub(crate) fn deciding<'scope, I, O, T, A, FL, FW, FF, FR, FJ>(
    turns: StreamVec<'scope, Epoch, I>,
    chosen: Chosen,
    resources: &Resources,
    parts: Deciding<FL, FW, FF, FR, FJ>,
) -> (StreamVec<'scope, Epoch, O>, StreamVec<'scope, Epoch, Failed>)
where
    I: InFlight,
    O: InFlight,
    T: 'static,
    A: Answer,
    FL: Fn(&I) -> T + 'static,
    FW: Fn(&I) -> T + 'static,
    FF: Fn(&I, Slot) -> String + 'static,
    FR: Fn(&I, A, String) -> Result<T, Fault> + 'static,
    FJ: Fn(I, T) -> O + 'static,
{
    let Chosen { stage: of, form, prompted: prompting, on_failure } = chosen;
    let Deciding { lexical, without, fill, read, join } = parts;
    let asking = resources.asking(of, form, &prompting, on_failure);
    let Some(asking) = asking else {
        let without = Rc::new(without);
        let fallback = Rc::clone(&without);
        let work =
            move |turn: &I| Ok(if form == Form::Off { without(turn) } else { lexical(turn) });
        let work = Work { work, fallback: move |turn: &I| fallback(turn), join };
        return stage(turns, of, resources.shell(on_failure), work);
    };
    let fallback = move |turn: &I| {
        let by_rules = (on_failure == OnFailure::Lexical).then(|| contain(|| lexical(turn)).ok());
        by_rules.flatten().unwrap_or_else(|| without(turn))
    };
    prompted(turns, of, asking, Reading { fill, read, fallback, join })
}

#[cfg(test)]
mod tests;
