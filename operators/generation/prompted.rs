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

use std::rc::Rc;

use timely::dataflow::StreamVec;
use timely::dataflow::operators::Concat;
use turnstream_knowledge::Knowledge;
use turnstream_ports::model::{GenerateRequest, Generated, Listener};
use turnstream_schemas::{Fault, FaultKind, ModelUsed, Stage};

use super::{GenerationConfig, admitted, generate, prose, without_persona};
use crate::call::{Mend, Question, call_mending};
use crate::flow::{Draft, Drafted, Epoch, Failed, Grounded};
use crate::prompted::material::{
    of_context, of_evidence, of_persona, of_queries, of_recalled, of_topics,
};
use crate::prompted::{Asking, Prompter, Slot, Thinking, think_first};
use crate::stage::instead;

const STAGE: Stage = Stage::Generation;

/// The lexical form beside it.
pub(super) struct Lexical {
    pub knowledge: Knowledge,
    pub config: GenerationConfig,
}

/// Generation by a language model.
pub(super) fn generation<'scope>(
    turns: StreamVec<'scope, Epoch, Grounded>,
    asking: Asking,
    lexical: Lexical,
    listener: Option<Listener>,
) -> (StreamVec<'scope, Epoch, Drafted>, StreamVec<'scope, Epoch, Failed>) {
    let Asking { model, prompts, config, shell } = asking;
    let name = model.name().to_owned();
    let prompter = Rc::new(Prompter { stage: STAGE, prompts, config, fill, thought: None });
    let (thinking, thinking_faults) = think_first(turns, &prompter, &model, &shell);
    let (asks, mends) = (Rc::clone(&prompter), Rc::clone(&prompter));
    let ask = move |thinking: &Thinking<Grounded>| GenerateRequest {
        listener: listener.clone(),
        ..asks.ask(thinking)
    };
    let asked = ask.clone();
    let mend: Mend<Thinking<Grounded>, GenerateRequest, Generated> =
        Box::new(move |thinking, answer, fault| {
            mends.again(&thinking.turn, asked(thinking), answer, fault)
        });
    let question = Question {
        ask,
        read: move |thinking: &Thinking<Grounded>, answer: Generated| {
            let Generated { text, confidence, model } = answer;
            let said = prose::read(&text)
                .map_err(|unfit| Fault::new(STAGE, FaultKind::Unfit, unfit.to_string()))?;
            let prompt_hash = Some(prompter.hash(&thinking.turn).to_owned());
            let model = ModelUsed { prompt_hash, ..model };
            let shown_persona = prompter.shows(&thinking.turn, Slot::Persona);
            Ok((Draft { text: said.to_owned(), confidence, model }, shown_persona))
        },
        fallback: move |Thinking { turn, .. }: &Thinking<Grounded>| {
            let Lexical { knowledge, config } = &lexical;
            let realised = || {
                let moment = &turn.turn.knowledge;
                Some(knowledge.at(moment, |view| generate(turn, view, config)))
            };
            let said = instead(config.on_failure, realised);
            (said.unwrap_or_else(|| admitted(turn, &name)), false)
        },
        join: |Thinking { turn: mut grounded, thought }: Thinking<Grounded>, (draft, shown)| {
            grounded.demand.thoughts.generation = thought;
            let grounded = if shown { grounded } else { without_persona(grounded) };
            Drafted { grounded, draft }
        },
    };
    let (drafted, faults) = call_mending(thinking, STAGE, model, shell, question, Some(mend));
    (drafted, faults.concat(thinking_faults))
}

/// What of a turn fills a slot.
pub(super) fn fill(turn: &Grounded, slot: Slot) -> String {
    let demand = &turn.demand;
    match slot {
        Slot::Queries => of_queries(&demand.queries, &demand.thoughts.queries),
        Slot::Topics => of_topics(&demand.topics, &demand.thoughts.topics),
        Slot::Persona => of_persona(&turn.turn.context, &turn.evidence),
        Slot::Facts | Slot::Passages => of_evidence(slot, &turn.evidence),
        Slot::Recalled => of_recalled(&turn.turn.context, turn.earlier_exchanges()),
        _ => of_context(&turn.turn.context, slot),
    }
}
