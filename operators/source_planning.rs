//! Source planning decides which sources to ask, in which order. (UniMS-RAG, L_source.)
//!
//! The plan is NULL or a sequence of sources in execution order, each after those that it depends on.
//!
//! - The lexical form plans every source that could answer and that the utterance calls for: by one
//!   of the source's `cues`, or always if it has none. It leaves out the graph where the response
//!   could say none of its facts ([`SpokenFacts`]) and no planned source depends on it.
//! - The learned form asks the unified model by its acting tokens, one for each kind of source. It
//!   plans the sources that the rules call for, if the model names their kind.
//! - The prompted form asks a language model, which reads what each source knows.
//! - The form `off` plans every source that could answer: the method's ablation.
//!
//! Key: none. State: none. The stage puts the sources that a model names in order, and adds before each
//! those that it depends on; it ignores unknown names. If it fails and may degrade, it plans as the
//! form `off` does. It never asks a source, and never plans a source that could not answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use turnstream_knowledge::Knowledge;
use turnstream_knowledge::terms::terms;
use turnstream_ports::model::unified::{Task, Unified, UnifiedAnswer, UnifiedRequest};
use turnstream_schemas::{Fault, FaultKind, Plan, PlanAnswer, SourceKind, Stage};

use crate::asked_facts::asks_for_facts;
use crate::flow::{Epoch, TurnInFlight};
use crate::prompted::fence::fenced;
use crate::prompted::{Answered, Prompt, Prompted, PromptedConfig, Slot, material};
use crate::sources::{Source, Sources, SpokenFacts};
use crate::stage::{
    Answer, Asked, Call, CallConfig, Decide, OnFailure, Step, Streams, Without, run,
};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;
use crate::unified::exchanges;

const STAGE: Stage = Stage::SourcePlanning;

/// The ways in which a plan can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourcePlanningForm {
    /// By documented rules over words and the graph; needs no model.
    Lexical,
    /// By the unified model.
    Learned,
    /// By a prompt to a language model.
    Prompted,
    /// Not at all: plans every source that could answer.
    Off,
}

/// How sources are planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SourcePlanningConfig {
    /// How the plan is made; `learned` asks `models.unified`.
    pub form: SourcePlanningForm,
    /// How the prompted form asks its language model.
    pub prompted: PromptedConfig,
    /// What happens to a turn on which the stage fails.
    pub on_failure: OnFailure,
    /// How long to wait for the unified model.
    pub call: CallConfig,
}

impl Default for SourcePlanningConfig {
    fn default() -> Self {
        Self {
            form: SourcePlanningForm::Lexical,
            prompted: PromptedConfig::default(),
            on_failure: OnFailure::Degrade,
            call: CallConfig { timeout_ms: 10_000, ..CallConfig::default() },
        }
    }
}

impl StageConfig for SourcePlanningConfig {
    fn prompted(&self) -> Option<&PromptedConfig> {
        Some(&self.prompted).filter(|_| self.form == SourcePlanningForm::Prompted)
    }
}

/// Runs source planning over a stream of turns. Returns (turns with their plan, faults). `facts`
/// says which facts of the graph the response may say.
pub fn source_planning<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: SourcePlanningConfig,
    facts: SpokenFacts,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    run(turns, SourcePlanning::new(config, facts, context), &context.runner)
}

/// The stage.
struct SourcePlanning {
    config: SourcePlanningConfig,
    sources: Arc<Sources>,
    facts: SpokenFacts,
    knowledge: Knowledge,
    unified: Option<Arc<Unified>>,
    prompt: Option<Prompt>,
}

impl SourcePlanning {
    fn new(config: SourcePlanningConfig, facts: SpokenFacts, context: &StageContext) -> Self {
        let is_learned = config.form == SourcePlanningForm::Learned;
        let unified = context.unified.clone().filter(|_| is_learned);
        let prompt = context.prompting.prompt::<PlanAnswer>(STAGE, config.prompted());
        let (sources, knowledge) = (Arc::clone(&context.sources), context.knowledge.clone());
        Self { config, sources, facts, knowledge, unified, prompt }
    }

    /// Plans by rules.
    fn by_rules(&self, turn: &TurnInFlight) -> Plan {
        executable(turn, &self.called_for(turn), &self.sources)
    }

    /// Returns the sources that the current utterance calls for, and the graph only where it is of
    /// use.
    fn called_for(&self, turn: &TurnInFlight) -> BTreeSet<&str> {
        let mut called = called_for(turn, &self.sources);
        let graph = self.sources.iter().find(|it| it.config.kind == SourceKind::Graph);
        if let Some(graph) = graph
            && called.remove(graph.name.as_str())
            && (self.sources.with_dependencies(&called).contains(&graph) || self.is_said(turn))
        {
            called.insert(graph.name.as_str());
        }
        called
    }

    /// Whether the response to this turn could say a fact.
    fn is_said(&self, turn: &TurnInFlight) -> bool {
        match self.facts {
            SpokenFacts::Selected => true,
            SpokenFacts::AskedFor => {
                self.knowledge.at(&turn.knowledge, |graph| asks_for_facts(turn, graph))
            }
            SpokenFacts::None => false,
        }
    }

    /// Plans the sources of these kinds that the rules call for, and their dependencies.
    fn of_kinds(&self, turn: &TurnInFlight, kinds: &[SourceKind]) -> Plan {
        let mut chosen = self.called_for(turn);
        chosen.retain(|name| {
            self.sources.of_name(name).is_some_and(|it| kinds.contains(&it.config.kind))
        });
        let needed = self.sources.with_dependencies(&chosen);
        let needed = needed.iter().map(|source| source.name.as_str()).collect();
        executable(turn, &needed, &self.sources)
    }
}

impl Decide for SourcePlanning {
    type Turn = TurnInFlight;
    type Decision = Plan;

    const STAGE: Stage = STAGE;

    fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
        self.config.on_failure
    }

    fn call(&self) -> Option<Call> {
        let unified = self.unified.clone().map(|model| Call::new(model, &self.config.call));
        unified.or_else(|| self.prompt.as_ref().map(Prompt::call))
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<Plan>, Fault> {
        if let Some(prompt) = &self.prompt {
            return Ok(prompt.begin(self, turn));
        }
        if self.unified.is_some() {
            let (dialogue, kinds) = (exchanges(&turn.context), kinds(turn, &self.sources));
            return Ok(Step::ask(vec![UnifiedRequest { dialogue, task: Task::Plan { kinds } }]));
        }
        Ok(Step::decided(match self.config.form {
            SourcePlanningForm::Off => self.without(turn, Without::Off),
            _ => self.by_rules(turn),
        }))
    }

    fn read(
        &self,
        turn: &TurnInFlight,
        asked: &Asked,
        answer: Answer,
    ) -> Result<Step<Plan>, Fault> {
        if self.unified.is_none() {
            return Prompt::read_by(self.prompt.as_ref(), self, turn, asked, answer);
        }
        match answer.of::<Vec<UnifiedAnswer>>(STAGE)?.first() {
            Some(UnifiedAnswer::Plan { kinds, .. }) => {
                Ok(Step::decided(self.of_kinds(turn, kinds)))
            }
            _ => Err(Fault::new(STAGE, FaultKind::Unfit, "the model's answer is not a plan")),
        }
    }

    fn without(&self, turn: &TurnInFlight, why: Without<'_>) -> Plan {
        match why {
            Without::ByRules(_) => self.by_rules(turn),
            _ => every(turn, &self.sources),
        }
    }

    fn write(&self, turn: &mut TurnInFlight, plan: Plan) {
        turn.plan = plan;
    }
}

impl Prompted for SourcePlanning {
    type Answer = PlanAnswer;

    fn fill(&self, turn: &TurnInFlight, slot: Slot) -> String {
        match slot {
            Slot::Sources => fenced(slot.name(), self.sources.iter().map(introduced)),
            slot => material::of_context(&turn.context, slot),
        }
    }

    fn understand(&self, turn: &TurnInFlight, said: Answered<PlanAnswer>) -> Result<Plan, Fault> {
        Ok(answered(turn, &said.answer, &self.sources))
    }
}

/// Returns the kinds of the sources that could answer and that the current utterance calls for,
/// each once.
pub(crate) fn kinds(turn: &TurnInFlight, sources: &Sources) -> Vec<SourceKind> {
    let called = executable(turn, &called_for(turn, sources), sources);
    let called = called.0.iter().filter_map(|name| sources.of_name(name.as_str()));
    let mut kinds: Vec<SourceKind> = called.map(|source| source.config.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Returns the sources that the current utterance calls for.
fn called_for<'s>(turn: &TurnInFlight, sources: &'s Sources) -> BTreeSet<&'s str> {
    let asks: FxHashSet<String> = terms(turn.context.completed_query()).into_iter().collect();
    let is_called = |source: &&Source| {
        let cues = &source.config.cues;
        // A cue of several words needs all of them in the utterance.
        let said = |cue: &String| {
            let words = terms(cue);
            !words.is_empty() && words.iter().all(|word| asks.contains(word))
        };
        cues.is_empty() || cues.iter().any(said)
    };
    sources.iter().filter(is_called).map(|source| source.name.as_str()).collect()
}

/// Plans every source that could answer.
pub fn every(turn: &TurnInFlight, sources: &Sources) -> Plan {
    executable(turn, &sources.iter().map(|source| source.name.as_str()).collect(), sources)
}

/// Plans the sources that a model names, and their dependencies.
fn answered(turn: &TurnInFlight, answer: &PlanAnswer, sources: &Sources) -> Plan {
    let named = answer.sources.iter().map(|name| name.trim()).collect();
    let needed = sources.with_dependencies(&named);
    executable(turn, &needed.iter().map(|source| source.name.as_str()).collect(), sources)
}

/// Returns the chosen sources in the order of asking, without those that could not answer and those
/// that depend on a source outside the plan.
fn executable(turn: &TurnInFlight, chosen: &BTreeSet<&str>, sources: &Sources) -> Plan {
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

/// Returns the line by which a prompt introduces a source.
fn introduced(source: &Source) -> String {
    let name = source.name.as_str();
    match source.config.description.trim() {
        "" => format!("{name}: {}", source.config.kind.name().replace('_', " ")),
        description => format!("{name}: {description}"),
    }
}

#[cfg(test)]
mod tests;
