//! Cross revision revises queries by topics, and topics by queries. (DCRAG eq 5, 6.)
//!
//! It repairs the error classes that the paper found (appendix D): an explicit query that is not in
//! the dialogue H; an implicit one that is; a maintained topic that is finished; a topic in the wrong
//! list; an extended topic that only rewords H or leaves the subject. It drops what the graph has no
//! fact about, and puts queries and topics that meet in a fact first. It records every change with
//! its reason.
//!
//! Key: none, after the halves are joined by request id (state: see [`crate::join`]). If it fails and
//! may degrade, the turn goes on with the unrevised demand. It never invents a concept and never
//! reorders without recording it.

mod prompted;
mod reviser;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::Concat;
use turnstream_knowledge::{Knowledge, View};
use turnstream_schemas::{Demand, RevisionAnswer, Stage};

use crate::flow::{Epoch, TurnInFlight};
use crate::join::{Half, join};
use crate::prompted::material::{of_context, of_queries, of_topics};
use crate::prompted::{Answered, PromptedConfig, Slot};
use crate::stage::{OnFailure, Streams, run};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;
use crate::stage_form::{DecideInForm, InForm, StageForm};

use reviser::Reviser;

/// How a demand is revised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CrossRevisionConfig {
    /// How the revision is made; `off` leaves the demand as it is.
    pub form: StageForm,
    /// How the prompted form asks its language model.
    pub prompted: PromptedConfig,
    /// What happens to a turn on which the stage fails.
    pub on_failure: OnFailure,
    /// A maintained topic is finished if none of this number of latest utterances names it; 1..=256.
    #[schemars(range(min = 1, max = 256))]
    pub latest_utterances: u32,
    /// An extended topic counts as a rewording of the dialogue if the dialogue holds this share of its
    /// content lemmas or more; 0..=1. At 0.6, one new word in two makes it new, one in three does not.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub reword_share: f64,
    /// How far the weight of a query or topic rises towards 1 if it meets its counterpart in a fact;
    /// 0..=1. At 0.5 it gains half of what is missing.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub meeting_lift: f64,
    /// The most concepts in each of the four lists after revision; 1..=64.
    #[schemars(range(min = 1, max = 64))]
    pub max_per_list: u32,
}

impl Default for CrossRevisionConfig {
    fn default() -> Self {
        Self {
            form: StageForm::Lexical,
            prompted: PromptedConfig::default(),
            on_failure: OnFailure::Degrade,
            latest_utterances: 4,
            reword_share: 0.6,
            meeting_lift: 0.5,
            max_per_list: 8,
        }
    }
}

impl StageConfig for CrossRevisionConfig {
    fn prompted(&self) -> Option<&PromptedConfig> {
        Some(&self.prompted).filter(|_| self.form == StageForm::Prompted)
    }
}

/// Runs cross revision over the two halves of each turn. Returns (turns with their demand, faults). A
/// turn of which a half failed is one fault.
pub fn cross_revision<'scope>(
    queried: StreamVec<'scope, Epoch, Half>,
    planned: StreamVec<'scope, Epoch, Half>,
    config: CrossRevisionConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    let (turns, half_failed) = join(queried, planned);
    let (demanded, faults) = run(turns, CrossRevision::stage(config, context), &context.runner);
    (demanded, faults.concat(half_failed))
}

/// The stage.
struct CrossRevision {
    config: CrossRevisionConfig,
    knowledge: Knowledge,
}

impl CrossRevision {
    fn stage(config: CrossRevisionConfig, context: &StageContext) -> InForm<Self> {
        let (form, on_failure) = (config.form, config.on_failure);
        let stage = Self { config, knowledge: context.knowledge.clone() };
        InForm::new(stage, form, on_failure, context)
    }
}

impl DecideInForm for CrossRevision {
    type Decision = Demand;
    type Answer = RevisionAnswer;

    const STAGE: Stage = Stage::CrossRevision;

    fn prompted(&self) -> Option<&PromptedConfig> {
        self.config.prompted()
    }

    fn by_rules(&self, turn: &TurnInFlight) -> Demand {
        self.knowledge.at(&turn.knowledge, |view| revise(turn, view, &self.config))
    }

    fn fill(&self, turn: &TurnInFlight, slot: Slot) -> String {
        match slot {
            Slot::Queries => of_queries(&turn.demand.queries, &turn.demand.thoughts.queries),
            Slot::Topics => of_topics(&turn.demand.topics, &turn.demand.thoughts.topics),
            _ => of_context(&turn.context, slot),
        }
    }

    fn understand(&self, turn: &TurnInFlight, said: Answered<RevisionAnswer>) -> Demand {
        let revised = |view: View<'_>| {
            prompted::revised(turn, view, (&said.answer, &*said.thought), &self.config)
        };
        self.knowledge.at(&turn.knowledge, revised)
    }

    fn without(&self, turn: &TurnInFlight) -> Demand {
        unrevised(turn)
    }

    fn write(&self, turn: &mut TurnInFlight, demand: Demand) {
        turn.demand = demand;
    }
}

/// Returns the demand as the two halves made it.
pub fn unrevised(turn: &TurnInFlight) -> Demand {
    Demand { missing: turn.missing.to_vec(), ..turn.demand.clone() }
}

/// Returns the demand after revision.
pub fn revise(turn: &TurnInFlight, graph: View<'_>, config: &CrossRevisionConfig) -> Demand {
    let mut demand = unrevised(turn);
    let reviser = Reviser::new(turn, graph, config);
    reviser.explicit_queries_are_said(&mut demand);
    reviser.implicit_queries_are_not_said(&mut demand);
    reviser.maintained_topics_go_on(&mut demand);
    reviser.extended_topics_are_new(&mut demand);
    reviser.lists_hold_no_concept_twice(&mut demand);
    reviser.demands_connect(&mut demand);
    reviser.meetings_go_first(&mut demand);
    reviser.lists_are_bounded(&mut demand);
    demand
}

#[cfg(test)]
mod tests;
