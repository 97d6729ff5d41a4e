//! Learned generation: the unified model words rows of tables, which is what it was trained for.
//! (UniMS-RAG, L_response.)
//!
//! Only where the most relevant selected evidence is a row, in English, and the utterance is no small talk.
//! Of its drafts the first is said that is [faithful](super::faithful) to the row and says
//! [nothing more](super::grounded); else the realiser answers, which says columns as they are. The response's
//! `model.name` says who did.

use std::rc::Rc;
use std::sync::Arc;

use timely::dataflow::StreamVec;
use timely::dataflow::operators::Concat;
use timely::dataflow::operators::vec::Branch;
use turnstream_knowledge::language::Lexicon;
use turnstream_ports::model::unified::{
    Task, Unified, UnifiedAnswer, UnifiedRequest, Wording, evidence_text, text_of,
};
use turnstream_schemas::{
    Confidence, ConfidenceKind, Evidence, Fault, FaultKind, ModelUsed, SourceKind, Stage, TableRow,
};

use super::{
    GenerationConfig, LearnedGenerationConfig, Streams, faithful, generate, grounded, lexical,
    without_persona,
};
use crate::call::{CallShell, Question, call};
use crate::flow::{Draft, Drafted, Epoch, Grounded};
use crate::resources::Resources;
use crate::stage::OnFailure;
use crate::unified::exchanges;

const STAGE: Stage = Stage::Generation;

/// Rows that the model is shown.
const MOST_ROWS: usize = 3;
/// Relevance in tenths, as in training: of the row that a response speaks of, and of others beside it. What the
/// turn's evidence was scored by has another scale.
const LEADING: u8 = 10;
const BESIDE: u8 = 3;

/// Generation by the unified model, of what it can word; by the realiser else.
pub(super) fn generation<'scope>(
    turns: StreamVec<'scope, Epoch, Grounded>,
    model: Arc<Unified>,
    config: GenerationConfig,
    resources: &Resources,
) -> Streams<'scope> {
    let (others, worded) = turns.branch(|_, turn| leading_row(turn).is_some());
    let (realised, realised_faults) = lexical(others, config.clone(), resources);
    let (worded, worded_faults) = word(worded, model, config, resources);
    (worded.concat(realised), worded_faults.concat(realised_faults))
}

/// The row that a response is to be made from; `None` where something else leads, or in another language.
fn leading_row(turn: &Grounded) -> Option<&TableRow> {
    let english = turn.turn.context.lexicon().language() == Lexicon::english().language();
    let first = turn.evidence.first().filter(|first| first.selected && english)?;
    first.row.as_ref()
}

/// The rows that the model is shown, the leading one first.
fn rows(turn: &Grounded) -> impl Iterator<Item = &Evidence> {
    let selected = turn.evidence.iter().take_while(|evidence| evidence.selected);
    selected.filter(|evidence| evidence.row.is_some()).take(MOST_ROWS)
}

fn word<'scope>(
    turns: StreamVec<'scope, Epoch, Grounded>,
    model: Arc<Unified>,
    config: GenerationConfig,
    resources: &Resources,
) -> Streams<'scope> {
    let Resources { timers, awaited, .. } = resources.clone();
    // The realiser stands beside the model: a turn that it fails on has a response all the same.
    let shell = resources.shell(OnFailure::Lexical);
    let shell = CallShell { shell, call: config.learned.call.clone(), timers, awaited };
    let name = model.name().to_owned();
    let LearnedGenerationConfig { max_tokens, drafts, .. } = config.learned;
    let (knowledge, config) = (resources.knowledge.clone(), Rc::new(config));
    let realised = {
        let (knowledge, config) = (knowledge, Rc::clone(&config));
        move |turn: &Grounded| {
            knowledge.at(&turn.turn.knowledge, |view| generate(turn, view, &config))
        }
    };
    let realised = Rc::new(realised);
    let instead_of = Rc::clone(&realised);
    let question = Question {
        ask: move |turn: &Grounded| {
            let relevances = std::iter::once(LEADING).chain(std::iter::repeat(BESIDE));
            let evidence =
                rows(turn).map(|row| evidence_text(row, SourceKind::Table)).zip(relevances);
            let (evidence, plan) = (evidence.collect(), vec![SourceKind::Table]);
            let dialogue = exchanges(&turn.turn.context);
            let task = Task::Response { plan, evidence, max_tokens, drafts };
            vec![UnifiedRequest { dialogue, task }]
        },
        read: move |turn: &Grounded, answers: Vec<UnifiedAnswer>| {
            let Some(UnifiedAnswer::Response(drafts)) = answers.into_iter().next() else {
                return Err(Fault::new(STAGE, FaultKind::Unfit, "the answer is no response"));
            };
            let Some(row) = leading_row(turn) else { return Ok(realised(turn)) };
            let context = &turn.turn.context;
            let dialogue = context.dialogue.iter().map(|said| &*said.text);
            let known: Vec<&str> =
                dialogue.chain(turn.evidence.iter().map(|it| &*it.text)).collect();
            let is_faithful = |draft: &Wording| {
                let Wording { said, is_whole, .. } = draft;
                let asked = context.query();
                faithful::check(said, *is_whole, row, asked, &known).is_ok()
                    && grounded::check(said, row, asked).is_ok()
            };
            let Some(draft) = drafts.into_iter().find(is_faithful) else {
                return Ok(realised(turn));
            };
            let value = f64::from(draft.lowest_log_probability);
            let kind = ConfidenceKind::LowestLogProbability;
            let model = ModelUsed { name: name.clone(), prompt_hash: None };
            let confidence = Some(Confidence { kind, value });
            Ok(Draft { text: text_of(&draft.said), confidence, model })
        },
        fallback: move |turn: &Grounded| instead_of(turn),
        join: |grounded, draft| Drafted { grounded: without_persona(grounded), draft },
    };
    call(turns, STAGE, model, shell, question)
}

#[cfg(test)]
mod tests;
