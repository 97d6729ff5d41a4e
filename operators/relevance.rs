//! Relevance: how relevant is each piece of evidence to what is said? (UniMS-RAG, L_sim; table 1.)
//!
//! Every source scores what it gives on a scale of its own. Here one judge scores all, 0..=1, so that facts,
//! rows, sentences and passages can be compared: the unified model by its evaluation tokens, one piece at a
//! time, none seeing another (the evidence attention mask); a model that scores pairs of texts, calibrated; or
//! a language model, which sees all pieces in one prompt and is told to judge each by itself.
//!
//! Key: none. State: none. The pieces that retrieval holds for most relevant are judged, and go on by falling
//! relevance within their source; the others are left out. Off, and where it fails and may degrade, all goes
//! on as retrieval scored it. It never says what will be used.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::Concat;
use timely::dataflow::operators::generic::operator::empty;
use timely::dataflow::operators::vec::Branch;
use turnstream_ports::form::{Form, Refused, check_bound};
use turnstream_ports::model::unified::{Task, UnifiedAnswer, UnifiedRequest, evidence_text};
use turnstream_schemas::{Evidence, Fault, FaultKind, RelevanceAnswer, Score, SourceKind, Stage};

use crate::call::{CallConfig, CallShell, Question, call};
use crate::flow::{Candidates, Epoch, Failed, Retrieved};
use crate::prompted::{PromptedConfig, Reading, Slot, material, prompted};
use crate::resources::Resources;
use crate::sources::Sources;
use crate::stage::OnFailure;
use crate::unified::exchanges;

const STAGE: Stage = Stage::Relevance;

/// How evidence is judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RelevanceConfig {
    /// Who judges: `off`, nobody; `learned`, the unified model (`models.unified`); `encoder`, the model that
    /// scores pairs of texts (`models.scorer`); `prompted`, a language model.
    pub form: Form,
    /// How the language model of the prompted form is asked.
    pub prompted: PromptedConfig,
    /// What becomes of a turn that the stage fails on.
    pub on_failure: OnFailure,
    /// Most pieces of evidence that are judged, those that retrieval holds for most relevant; the others
    /// are left out. 1..=32.
    pub max_judged: u32,
    /// The calibration of the encoder's score s, 0 to 1: the relevance is σ(slope · ln(s ÷ (1 − s)) +
    /// offset). Above 0.
    pub calibration_slope: f64,
    /// The offset in it.
    pub calibration_offset: f64,
    /// How long to wait for the unified model, or the encoder.
    pub call: CallConfig,
}

impl Default for RelevanceConfig {
    fn default() -> Self {
        Self {
            form: Form::Off,
            prompted: PromptedConfig::default(),
            on_failure: OnFailure::Degrade,
            max_judged: 10,
            calibration_slope: 1.0,
            calibration_offset: 0.0,
            call: CallConfig { timeout_ms: 10_000, ..CallConfig::default() },
        }
    }
}

impl RelevanceConfig {
    /// Checks the form and the ranges.
    ///
    /// # Errors
    /// [`Refused`] by key.
    pub fn check(&self) -> Result<(), Refused> {
        self.form.is_one_of(&[Form::Off, Form::Learned, Form::Encoder, Form::Prompted], STAGE)?;
        self.prompted.check(STAGE)?;
        check_bound(STAGE, "max_judged", self.max_judged, 32)?;
        for (key, value, fits) in [
            ("calibration_slope", self.calibration_slope, self.calibration_slope > 0.0),
            ("calibration_offset", self.calibration_offset, true),
        ] {
            if !(fits && value.is_finite()) {
                let range = "a finite number, the slope above 0";
                return Err(Refused::Range { stage: STAGE, key, value, range });
            }
        }
        Ok(())
    }
}

/// The stage's streams: turns with judged candidates, and faults.
type Streams<'scope> = (StreamVec<'scope, Epoch, Retrieved>, StreamVec<'scope, Epoch, Failed>);

/// Relevance over a stream of turns: (turns with judged candidates, faults).
pub fn relevance<'scope>(
    turns: StreamVec<'scope, Epoch, Retrieved>,
    config: RelevanceConfig,
    resources: &Resources,
) -> Streams<'scope> {
    // Where there is nothing to judge, nobody is asked.
    let (nothing, turns) = turns.branch(|_, turn| turn.candidates.iter().next().is_some());
    let (judged, faults) = match config.form {
        Form::Learned => by_unified(turns, &config, resources),
        Form::Encoder => by_encoder(turns, &config, resources),
        Form::Prompted => by_prompt(turns, config, resources),
        _ => unjudged(turns),
    };
    (judged.concat(nothing), faults)
}

fn unjudged(turns: StreamVec<'_, Epoch, Retrieved>) -> Streams<'_> {
    let none = empty(turns.scope());
    (turns, none)
}

/// What a judge says: a relevance for each piece that it was asked about, 0..=1; nothing where it failed.
type Judged = Option<Vec<f64>>;

fn by_unified<'scope>(
    turns: StreamVec<'scope, Epoch, Retrieved>,
    config: &RelevanceConfig,
    resources: &Resources,
) -> Streams<'scope> {
    let Some(model) = resources.unified.clone() else { return unjudged(turns) };
    let (most, sources) = (config.max_judged, Arc::clone(&resources.sources));
    let question = Question {
        ask: move |turn: &Retrieved| {
            let (dialogue, plan) = (exchanges(&turn.turn.context), kinds(turn, &sources));
            let request = |piece: &Evidence| {
                let evidence = evidence_text(piece, kind_of(piece, &sources));
                let task = Task::Relevance { plan: plan.clone(), evidence };
                UnifiedRequest { dialogue: dialogue.clone(), task }
            };
            asked_about(&turn.candidates, most)
                .into_iter()
                .map(|(_, piece)| request(piece))
                .collect()
        },
        read: |_: &Retrieved, answers: Vec<UnifiedAnswer>| {
            let relevance = |answer| match answer {
                UnifiedAnswer::Relevance(relevance) => Some(f64::from(relevance)),
                UnifiedAnswer::Plan { .. } | UnifiedAnswer::Response(_) => None,
            };
            let scores: Option<Vec<f64>> = answers.into_iter().map(relevance).collect();
            scores.map(Some).ok_or_else(|| unreadable("an answer is no relevance"))
        },
        fallback: |_: &Retrieved| None,
        join: joined(most),
    };
    call(turns, STAGE, model, shell(config, resources), question)
}

fn by_encoder<'scope>(
    turns: StreamVec<'scope, Epoch, Retrieved>,
    config: &RelevanceConfig,
    resources: &Resources,
) -> Streams<'scope> {
    let Some(model) = resources.score.clone() else { return unjudged(turns) };
    let (most, slope, offset) =
        (config.max_judged, config.calibration_slope, config.calibration_offset);
    let question = Question {
        ask: move |turn: &Retrieved| {
            let said = turn.turn.context.completed_query();
            let asked = asked_about(&turn.candidates, most).into_iter();
            asked.map(|(_, piece)| (said.to_owned(), piece.text.clone())).collect()
        },
        read: move |_: &Retrieved, scores: Vec<f32>| {
            Ok(Some(scores.iter().map(|score| calibrated(*score, slope, offset)).collect()))
        },
        fallback: |_: &Retrieved| None,
        join: joined(most),
    };
    call(turns, STAGE, model, shell(config, resources), question)
}

fn by_prompt<'scope>(
    turns: StreamVec<'scope, Epoch, Retrieved>,
    config: RelevanceConfig,
    resources: &Resources,
) -> Streams<'scope> {
    let RelevanceConfig { form, prompted: prompting, on_failure, max_judged: most, .. } = config;
    let Some(asking) = resources.asking(STAGE, form, &prompting, on_failure) else {
        return unjudged(turns);
    };
    let reading = Reading {
        fill: move |turn: &Retrieved, slot| match slot {
            Slot::Evidence => {
                let asked = asked_about(&turn.candidates, most);
                material::numbered(slot, asked.into_iter().map(|(_, piece)| piece), 1)
            }
            slot => material::of_context(&turn.turn.context, slot),
        },
        read: move |turn: &Retrieved, answer: RelevanceAnswer, _| {
            let asked = asked_about(&turn.candidates, most).len();
            match answer.relevance.len() {
                given if given == asked => {
                    let tenths = answer.relevance.iter();
                    Ok(Some(tenths.map(|tenths| f64::from((*tenths).min(10)) / 10.0).collect()))
                }
                given => {
                    Err(unreadable(&format!("{given} numbers for {asked} pieces of evidence")))
                }
            }
        },
        fallback: |_: &Retrieved| None,
        join: joined(most),
    };
    prompted(turns, STAGE, asking, reading)
}

fn shell(config: &RelevanceConfig, resources: &Resources) -> CallShell {
    let Resources { timers, awaited, .. } = resources.clone();
    let shell = resources.shell(config.on_failure);
    CallShell { shell, call: config.call.clone(), timers, awaited }
}

fn unreadable(reason: &str) -> Fault {
    Fault::new(STAGE, FaultKind::Unfit, reason)
}

/// σ(slope · logit(score) + offset).
fn calibrated(score: f32, slope: f64, offset: f64) -> f64 {
    let score = f64::from(score).clamp(1e-6, 1.0 - 1e-6);
    let logit = (score / (1.0 - score)).ln();
    1.0 / (1.0 + (-(slope * logit + offset)).exp())
}

/// The kinds that a turn's plan asked, each once, in its order.
fn kinds(turn: &Retrieved, sources: &Sources) -> Vec<SourceKind> {
    let planned = turn.turn.plan.0.iter();
    let mut kinds = Vec::new();
    for source in planned.filter_map(|name| sources.of_name(name.as_str())) {
        if !kinds.contains(&source.config.kind) {
            kinds.push(source.config.kind);
        }
    }
    kinds
}

/// The kind of the source that a piece of evidence is from.
fn kind_of(evidence: &Evidence, sources: &Sources) -> SourceKind {
    let source = sources.of_name(evidence.source.as_str());
    // Facts bear the name of the collection that they are from.
    source.map_or(SourceKind::Graph, |source| source.config.kind)
}

/// The pieces that are judged, each with its place among all, in that order.
fn asked_about(candidates: &Candidates, most: u32) -> Vec<(usize, &Evidence)> {
    let mut all: Vec<(usize, &Evidence)> = candidates.iter().enumerate().collect();
    all.sort_by(|(_, a), (_, b)| b.relevance.get().total_cmp(&a.relevance.get()));
    all.truncate(most as usize);
    all.sort_by_key(|(place, _)| *place);
    all
}

/// Puts a turn and what was judged together.
fn joined(most: u32) -> impl Fn(Retrieved, Judged) -> Retrieved {
    move |mut turn, judged| {
        if let Some(scores) = judged {
            turn.candidates = with_relevance(&turn.candidates, &scores, most);
        }
        turn
    }
}

/// The judged pieces, each list by falling relevance.
fn with_relevance(candidates: &Candidates, scores: &[f64], most: u32) -> Candidates {
    let asked = asked_about(candidates, most);
    let mut judged = asked.iter().zip(scores).peekable();
    let mut place = 0;
    let mut take = |list: &[Evidence]| {
        let end = place + list.len();
        let mut kept = Vec::new();
        while let Some(((_, piece), score)) = judged.next_if(|((at, _), _)| *at < end) {
            kept.push(Evidence {
                relevance: Score::new(score.clamp(0.0, 1.0)),
                ..(*piece).clone()
            });
        }
        place = end;
        kept.sort_by(|a, b| b.relevance.get().total_cmp(&a.relevance.get()));
        kept
    };
    // In the order of `Candidates::iter`.
    Candidates {
        foreseen: take(&candidates.foreseen),
        unforeseen: take(&candidates.unforeseen),
        persona: take(&candidates.persona),
        passages: take(&candidates.passages),
        rows: take(&candidates.rows),
    }
}

#[cfg(test)]
mod tests;
