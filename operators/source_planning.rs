//! Source planning: which sources will a turn ask, in which order? (UniMS-RAG, L_source.)
//!
//! The plan is NULL or a sequence of sources in execution order, a dependent source behind what it
//! depends on. The lexical form plans every source that the utterance calls for (its `cues`, where it
//! has any) and that could answer at all. The learned form asks the unified model by its acting tokens, one
//! for each kind of source: of a kind that it names, those sources are planned that the rules call for. The
//! prompted form asks a language model, which reads what each
//! source knows. Off, every source that could answer is planned: the method's ablation.
//!
//! Key: none. State: none. What a model names is put in order, and what it depends on is planned before
//! it; a name that no source has is passed over. Where the stage fails and may degrade, it plans as where
//! it is off. It never asks a source, and never plans one that could not answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use turnstream_knowledge::terms::terms;
use turnstream_ports::form::{Form, Refused};
use turnstream_ports::model::unified::{Task, Unified, UnifiedAnswer, UnifiedRequest};
use turnstream_schemas::{Fault, FaultKind, Plan, PlanAnswer, SourceKind, Stage};

use crate::call::{CallConfig, CallShell, Question, call};
use crate::deciding::{Chosen, Deciding, deciding};
use crate::flow::{Epoch, Failed, Gated};
use crate::prompted::fence::fenced;
use crate::prompted::{PromptedConfig, Slot, material};
use crate::resources::Resources;
use crate::sources::{Source, Sources};
use crate::stage::OnFailure;
use crate::unified::exchanges;

const STAGE: Stage = Stage::SourcePlanning;

/// How sources are planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SourcePlanningConfig {
    /// How the plan is made; `learned` asks `models.unified`.
    pub form: Form,
    /// How the language model of the prompted form is asked.
    pub prompted: PromptedConfig,
    /// What becomes of a turn that the stage fails on.
    pub on_failure: OnFailure,
    /// How long to wait for the unified model.
    pub call: CallConfig,
}

impl Default for SourcePlanningConfig {
    fn default() -> Self {
        Self {
            form: Form::Lexical,
            prompted: PromptedConfig::default(),
            on_failure: OnFailure::Degrade,
            call: CallConfig { timeout_ms: 10_000, ..CallConfig::default() },
        }
    }
}

impl SourcePlanningConfig {
    /// Checks the form and the ranges.
    ///
    /// # Errors
    /// [`Refused`] by key.
    pub fn check(&self) -> Result<(), Refused> {
        self.form.is_one_of(&[Form::Lexical, Form::Learned, Form::Prompted, Form::Off], STAGE)?;
        self.prompted.check(STAGE)
    }
}

/// Source planning over a stream of turns: (turns with their plan, faults).
pub fn source_planning<'scope>(
    turns: StreamVec<'scope, Epoch, Gated>,
    config: SourcePlanningConfig,
    resources: &Resources,
) -> (StreamVec<'scope, Epoch, Gated>, StreamVec<'scope, Epoch, Failed>) {
    if let Some(model) = resources.unified.clone().filter(|_| config.form == Form::Learned) {
        return learned(turns, model, config, resources);
    }
    let SourcePlanningConfig { form, prompted, on_failure, .. } = config;
    let chosen = Chosen { stage: STAGE, form, prompted, on_failure };
    let sources = || Arc::clone(&resources.sources);
    let (called, all, told, named) = (sources(), sources(), sources(), sources());
    let parts = Deciding {
        lexical: move |turn: &Gated| called_for(turn, &called),
        without: move |turn: &Gated| every(turn, &all),
        fill: move |turn: &Gated, slot| match slot {
            Slot::Sources => fenced(slot.name(), told.iter().map(introduced)),
            slot => material::of_context(&turn.context, slot),
        },
        read: move |turn: &Gated, answer: PlanAnswer, _| Ok(answered(turn, &answer, &named)),
        join: |turn: Gated, plan| Gated { plan, ..turn },
    };
    deciding(turns, chosen, resources, parts)
}

/// By the unified model.
fn learned<'scope>(
    turns: StreamVec<'scope, Epoch, Gated>,
    model: Arc<Unified>,
    config: SourcePlanningConfig,
    resources: &Resources,
) -> (StreamVec<'scope, Epoch, Gated>, StreamVec<'scope, Epoch, Failed>) {
    let Resources { timers, awaited, sources, .. } = resources.clone();
    let SourcePlanningConfig { on_failure, call: asking, .. } = config;
    let shell = CallShell { shell: resources.shell(on_failure), call: asking, timers, awaited };
    let (asked, named) = (Arc::clone(&sources), Arc::clone(&sources));
    let question = Question {
        ask: move |turn: &Gated| {
            let dialogue = exchanges(&turn.context);
            vec![UnifiedRequest { dialogue, task: Task::Plan { kinds: kinds(turn, &asked) } }]
        },
        read: move |turn: &Gated, answers: Vec<UnifiedAnswer>| match answers.first() {
            Some(UnifiedAnswer::Plan { kinds, .. }) => Ok(of_kinds(turn, kinds, &named)),
            _ => Err(Fault::new(STAGE, FaultKind::Unfit, "the answer is no plan")),
        },
        fallback: move |turn: &Gated| match on_failure {
            OnFailure::Lexical => called_for(turn, &sources),
            OnFailure::Degrade | OnFailure::DeadLetter => every(turn, &sources),
        },
        join: |turn: Gated, plan| Gated { plan, ..turn },
    };
    call(turns, STAGE, model, shell, question)
}

/// The kinds of the sources that could answer and that the rules call for, each once.
pub(crate) fn kinds(turn: &Gated, sources: &Sources) -> Vec<SourceKind> {
    let called = called_for(turn, sources);
    let called = called.0.iter().filter_map(|name| sources.of_name(name.as_str()));
    let mut kinds: Vec<SourceKind> = called.map(|source| source.config.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// The plan of the sources of these kinds that the rules call for, and of what those depend on.
fn of_kinds(turn: &Gated, kinds: &[SourceKind], sources: &Sources) -> Plan {
    let called = called_for(turn, sources);
    let called = called.0.iter().filter_map(|name| sources.of_name(name.as_str()));
    let chosen = called.filter(|source| kinds.contains(&source.config.kind));
    let chosen = chosen.map(|source| source.name.as_str()).collect();
    let needed = sources.with_dependencies(&chosen);
    executable(turn, &needed.iter().map(|source| source.name.as_str()).collect(), sources)
}

/// The plan of the rules: what the current utterance calls for, of what could answer.
pub fn called_for(turn: &Gated, sources: &Sources) -> Plan {
    let asks: FxHashSet<String> = terms(turn.context.completed_query()).into_iter().collect();
    let is_called = |source: &&Source| {
        let cues = &source.config.cues;
        // A cue of several words calls where all of them are there.
        let said = |cue: &String| {
            let words = terms(cue);
            !words.is_empty() && words.iter().all(|word| asks.contains(word))
        };
        cues.is_empty() || cues.iter().any(said)
    };
    let called = sources.iter().filter(is_called).map(|source| source.name.as_str());
    executable(turn, &called.collect(), sources)
}

/// The plan with every source that could answer.
pub fn every(turn: &Gated, sources: &Sources) -> Plan {
    executable(turn, &sources.iter().map(|source| source.name.as_str()).collect(), sources)
}

/// The plan that a model names.
fn answered(turn: &Gated, answer: &PlanAnswer, sources: &Sources) -> Plan {
    let named = answer.sources.iter().map(|name| name.trim()).collect();
    let needed = sources.with_dependencies(&named);
    executable(turn, &needed.iter().map(|source| source.name.as_str()).collect(), sources)
}

/// The chosen sources in the order of asking, but for those that could not answer and those that
/// depend on one that is not asked.
fn executable(turn: &Gated, chosen: &BTreeSet<&str>, sources: &Sources) -> Plan {
    let mut plan = Plan::default();
    for source in sources.iter() {
        let name = source.name.as_str();
        let asked = |other: &String| plan.0.iter().any(|planned| planned.as_str() == other);
        if chosen.contains(name)
            && source.can_answer(&turn.context.turn)
            && source.config.depends_on.iter().all(asked)
        {
            plan.0.push(source.name.clone());
        }
    }
    plan
}

/// A source as a prompt lists it.
fn introduced(source: &Source) -> String {
    let name = source.name.as_str();
    match source.config.description.trim() {
        "" => format!("{name}: {}", source.config.kind.name().replace('_', " ")),
        description => format!("{name}: {description}"),
    }
}

#[cfg(test)]
mod tests;
