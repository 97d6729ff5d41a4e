//! Cross revision: queries and topics repair each other. (DCRAG eq 5, 6.)
//!
//! Decides what stays of the two halves of a demand, against the error classes that the paper
//! found (appendix D): an explicit query that is not in the history H; an implicit one that is;
//! a maintained topic that is finished; a topic in the wrong list; an extended topic that only
//! rewords H or leaves the subject. What the graph cannot answer to goes out, and queries and
//! topics that meet in a fact go first. Every change is told, with its reason.
//!
//! Key: none, after the halves are joined by request id (state: see [`crate::join`]). Where it
//! fails and may degrade, the turn goes on with the unrevised demand. It never invents a concept
//! and never reorders without saying so.

mod prompted;
mod reviser;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::Concat;
use turnstream_knowledge::View;
use turnstream_ports::form::{Form, Refused, check_bound, check_fraction};
use turnstream_schemas::{Demand, RevisionAnswer, Stage, Thoughts};

use crate::deciding::{Chosen, Deciding, deciding};
use crate::flow::{Demanded, Epoch, Failed, Planned, Queried};
use crate::join::{Half, Pair, join};
use crate::prompted::material::{of_context, of_queries, of_topics};
use crate::prompted::{PromptedConfig, Slot};
use crate::resources::Resources;
use crate::stage::OnFailure;

use reviser::Reviser;

/// How a demand is revised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CrossRevisionConfig {
    /// How the revision is made.
    pub form: Form,
    /// How the language model of the prompted form is asked.
    pub prompted: PromptedConfig,
    /// What becomes of a turn that the stage fails on.
    pub on_failure: OnFailure,
    /// How many of the latest utterances a maintained topic must be named in, else it is
    /// finished; 1..=256.
    pub latest_utterances: u32,
    /// The share of an extended topic's content lemmas in the dialogue from which on it merely
    /// rewords it; 0..=1. 0.6: one new word in two is new, one in three is not.
    pub reword_share: f64,
    /// How far the weight of a query or topic that meets its counterpart in a fact is lifted
    /// towards 1; 0..=1. At one half, half of what is missing.
    pub meeting_lift: f64,
    /// Most concepts in each of the four lists after revision; 1..=64.
    pub max_per_list: u32,
}

impl Default for CrossRevisionConfig {
    fn default() -> Self {
        Self {
            form: Form::Lexical,
            prompted: PromptedConfig::default(),
            on_failure: OnFailure::Degrade,
            latest_utterances: 4,
            reword_share: 0.6,
            meeting_lift: 0.5,
            max_per_list: 8,
        }
    }
}

impl CrossRevisionConfig {
    /// Checks the form and the ranges.
    ///
    /// # Errors
    /// [`Refused`] by key.
    pub fn check(&self) -> Result<(), Refused> {
        const STAGE: Stage = Stage::CrossRevision;
        self.form.is_one_of(&[Form::Lexical, Form::Prompted, Form::Off], STAGE)?;
        self.prompted.check(STAGE)?;
        check_bound(STAGE, "latest_utterances", self.latest_utterances, 256)?;
        check_fraction(STAGE, "reword_share", self.reword_share)?;
        check_fraction(STAGE, "meeting_lift", self.meeting_lift)?;
        check_bound(STAGE, "max_per_list", self.max_per_list, 64)
    }
}

/// Cross revision over the two halves of each turn: (turns with their demand, faults). A turn of
/// which a half failed is one fault.
pub fn cross_revision<'scope>(
    queried: StreamVec<'scope, Epoch, Half<Queried>>,
    planned: StreamVec<'scope, Epoch, Half<Planned>>,
    config: CrossRevisionConfig,
    resources: &Resources,
) -> (StreamVec<'scope, Epoch, Demanded>, StreamVec<'scope, Epoch, Failed>) {
    let Resources { knowledge, .. } = resources.clone();
    let (pairs, half_failed) = join(queried, planned);
    let (reads, reading, rules) = (knowledge.clone(), config.clone(), config.clone());
    let chosen = Chosen {
        stage: Stage::CrossRevision,
        form: config.form,
        prompted: config.prompted,
        on_failure: config.on_failure,
    };
    let parts = Deciding {
        lexical: move |pair: &Pair| {
            knowledge.at(&pair.queried.turn.knowledge, |view| revise(pair, view, &rules))
        },
        without: unrevised,
        fill,
        read: move |pair: &Pair, answer: RevisionAnswer, thought: String| {
            let moment = &pair.queried.turn.knowledge;
            let said = (&answer, &*thought);
            Ok(reads.at(moment, |view| prompted::revised(pair, view, said, &reading)))
        },
        join: |pair: Pair, demand| Demanded { turn: pair.queried.turn, demand },
    };
    let (demanded, faults) = deciding(pairs, chosen, resources, parts);
    (demanded, faults.concat(half_failed))
}

/// What of a turn fills a slot of the prompt.
fn fill(pair: &Pair, slot: Slot) -> String {
    match slot {
        Slot::Queries => of_queries(&pair.queried.queries, &pair.queried.thought),
        Slot::Topics => of_topics(&pair.planned.topics, &pair.planned.thought),
        _ => of_context(&pair.queried.turn.context, slot),
    }
}

/// The demand as the two halves have it.
pub fn unrevised(pair: &Pair) -> Demand {
    Demand {
        queries: pair.queried.queries.clone(),
        topics: pair.planned.topics.clone(),
        thoughts: Thoughts {
            queries: pair.queried.thought.clone(),
            topics: pair.planned.thought.clone(),
            generation: String::new(),
        },
        revisions: Vec::new(),
        missing: pair.queried.turn.missing.to_vec(),
    }
}

/// The demand after revision.
pub fn revise(pair: &Pair, graph: View<'_>, config: &CrossRevisionConfig) -> Demand {
    let mut demand = unrevised(pair);
    let reviser = Reviser::new(&pair.queried.turn, graph, config);
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
