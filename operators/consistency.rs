//! Consistency: how well does the drafted response agree with each piece of evidence? (UniMS-RAG,
//! algorithm 1, lines 1–5; eq 8–11 measure by the same score.)
//!
//! Stands behind generation. Every selected piece gets a score of its own, 0..=1: 1 where the response says
//! what the piece says, 0 where it leaves it out or denies it. Three forms: *lexical*, by words, numbers and
//! denials; *learned*, by the nearness of vectors that were trained for it (`turnstream train consistency`);
//! *prompted*, a language model that sees all pieces in one prompt and is told to judge each by
//! itself.
//!
//! Key: none. State: none. Nobody is asked about a response without evidence (the NULL plan), without words, or
//! by generation that failed. Where the stage is off, or fails and may degrade, evidence has no consistency. It
//! never changes the response; [`self_refinement`](crate::self_refinement) goes by it.

mod learned;
mod lexical;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::Concat;
use timely::dataflow::operators::generic::operator::empty;
use timely::dataflow::operators::vec::Branch;
use turnstream_ports::form::{Form, Refused, check_bound};
use turnstream_schemas::{ConsistencyAnswer, Evidence, Fault, FaultKind, Score, Stage};

use crate::flow::{Drafted, Epoch, Failed};
use crate::prompted::fence::fenced;
use crate::prompted::{PromptedConfig, Reading, Slot, material, prompted};
use crate::resources::Resources;
use crate::stage::{OnFailure, Work, instead, stage};

pub use learned::{Calibration, Judge};
pub use lexical::Words;

const STAGE: Stage = Stage::Consistency;

/// How responses are held against their evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConsistencyConfig {
    /// Who judges: `off`, nobody; `lexical`, words, numbers and denials; `learned`, the table of `table`;
    /// `prompted`, a language model.
    pub form: Form,
    /// The table of the learned form, which `turnstream train consistency` wrote. Relative paths start at the
    /// working directory.
    pub table: Option<PathBuf>,
    /// How the language model of the prompted form is asked.
    pub prompted: PromptedConfig,
    /// What becomes of a turn that the stage fails on; `lexical`: the words decide.
    pub on_failure: OnFailure,
    /// Most pieces of selected evidence that are judged, the first ones; the others have no consistency.
    /// 1..=32.
    pub max_judged: u32,
}

impl Default for ConsistencyConfig {
    fn default() -> Self {
        Self {
            form: Form::Off,
            table: None,
            prompted: PromptedConfig::default(),
            on_failure: OnFailure::Degrade,
            max_judged: 32,
        }
    }
}

impl ConsistencyConfig {
    /// Checks the form and the ranges.
    ///
    /// # Errors
    /// [`Refused`] by key.
    pub fn check(&self) -> Result<(), Refused> {
        self.form.is_one_of(&[Form::Off, Form::Lexical, Form::Learned, Form::Prompted], STAGE)?;
        if self.form == Form::Learned && self.table.is_none() {
            let needs = "`table` beside form = \"learned\"";
            return Err(Refused::Together { stage: STAGE, key: "table", needs });
        }
        self.prompted.check(STAGE)?;
        check_bound(STAGE, "max_judged", self.max_judged, 32)
    }
}

/// The stage's streams: turns whose evidence was judged, and faults.
type Streams<'scope> = (StreamVec<'scope, Epoch, Drafted>, StreamVec<'scope, Epoch, Failed>);

/// What a judge says: a consistency for each piece that it was asked about, 0..=1; nothing where it failed.
type Judged = Option<Vec<f64>>;

/// Consistency over a stream of drafted responses: (turns whose evidence was judged, faults).
pub fn consistency<'scope>(
    turns: StreamVec<'scope, Epoch, Drafted>,
    config: ConsistencyConfig,
    resources: &Resources,
) -> Streams<'scope> {
    if config.form == Form::Off {
        let none = empty(turns.scope());
        return (turns, none);
    }
    // Where there is nothing to judge, nobody is asked.
    let (nothing, turns) = turns.branch(|_, turn| has_something_to_judge(turn));
    let (judged, faults) = judged(turns, config, resources);
    (judged.concat(nothing), faults)
}

/// Whether a response was made from evidence, and says something.
fn has_something_to_judge(turn: &Drafted) -> bool {
    let failed = turn.grounded.turn.progress.is_without(Stage::Generation);
    let evidence = turn.grounded.evidence.iter().any(|evidence| evidence.selected);
    evidence && !failed && !turn.draft.text.trim().is_empty()
}

fn judged<'scope>(
    turns: StreamVec<'scope, Epoch, Drafted>,
    config: ConsistencyConfig,
    resources: &Resources,
) -> Streams<'scope> {
    let ConsistencyConfig { form, prompted: prompting, on_failure, max_judged: most, .. } = config;
    if let Some(judge) = resources.consistency.clone().filter(|_| form == Form::Learned) {
        let work = move |turn: &Drafted| {
            let evidence: Vec<&Evidence> = asked_about(turn, most).collect();
            let judged = judge.judge(&turn.draft.text, &evidence);
            judged.map(Some).map_err(|error| Fault::new(STAGE, FaultKind::Error, error.to_string()))
        };
        let fallback = move |turn: &Drafted| instead(on_failure, || Some(by_words(turn, most)));
        return stage(
            turns,
            STAGE,
            resources.shell(on_failure),
            Work { work, fallback, join: joined },
        );
    }
    let by_words = move |turn: &Drafted| Some(by_words(turn, most));
    let Some(asking) = resources.asking(STAGE, form, &prompting, on_failure) else {
        let shell = resources.shell(on_failure);
        let work = move |turn: &Drafted| Ok(by_words(turn));
        return stage(
            turns,
            STAGE,
            shell,
            Work { work, fallback: |_: &Drafted| None, join: joined },
        );
    };
    let reading = Reading {
        fill: move |turn: &Drafted, slot| match slot {
            Slot::Response => fenced(slot.name(), [&turn.draft.text]),
            Slot::Evidence => material::numbered(slot, asked_about(turn, most), 1),
            slot => material::of_context(&turn.grounded.turn.context, slot),
        },
        read: move |turn: &Drafted, answer: ConsistencyAnswer, _| {
            let asked = asked_about(turn, most).count();
            match answer.consistency.len() {
                given if given == asked => {
                    let tenths = answer.consistency.iter();
                    Ok(Some(tenths.map(|tenths| f64::from((*tenths).min(10)) / 10.0).collect()))
                }
                given => {
                    let reason = format!("{given} numbers for {asked} pieces of evidence");
                    Err(Fault::new(STAGE, FaultKind::Unfit, reason))
                }
            }
        },
        fallback: move |turn: &Drafted| instead(on_failure, || by_words(turn)),
        join: joined,
    };
    prompted(turns, STAGE, asking, reading)
}

/// The pieces that are judged, in their order.
fn asked_about(turn: &Drafted, most: u32) -> impl Iterator<Item = &Evidence> {
    let evidence = turn.grounded.evidence.iter();
    evidence.filter(|evidence| evidence.selected).take(most as usize)
}

fn by_words(turn: &Drafted, most: u32) -> Vec<f64> {
    let response = Words::of(&turn.draft.text);
    asked_about(turn, most).map(|evidence| response.consistency(evidence)).collect()
}

/// Puts a turn and what was judged together.
fn joined(mut turn: Drafted, judged: Judged) -> Drafted {
    let evidence = &mut turn.grounded.evidence;
    let selected = evidence.iter_mut().filter(|evidence| evidence.selected);
    for (evidence, score) in selected.zip(judged.unwrap_or_default()) {
        evidence.consistency = Some(Score::new(score.clamp(0.0, 1.0)));
    }
    turn
}

#[cfg(test)]
mod tests;
