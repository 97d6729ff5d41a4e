//! Query production finds what the turn asks about. (DCRAG eq 1, 2.)
//!
//! Explicit queries E^EQ are concepts that the dialogue H names, weighted by informativeness and
//! recency, each with the turn and the span that names it. Implicit queries E^IQ are concepts that H
//! does not name and that several explicit queries point to: by what those are for, what they cause,
//! what they need and what happens during them. If H names no concept, neither literally nor by a
//! similar spelling, and facts have vectors, the implicit queries are the concepts of the facts that
//! are nearest to H in meaning. The thought is one sentence from a template.
//!
//! Key: none. State: none. If the stage fails and may degrade, the turn goes on without queries. It
//! sees nothing of topic planning, never makes a query from a denied fact, and follows only the
//! strongest facts of a concept, so that a hub costs no more than any other concept.

mod by_meaning;
pub(crate) mod prompted;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use turnstream_knowledge::{ConceptId, Fact, Knowledge, RelationKind, View};
use turnstream_schemas::{ExplicitQuery, ImplicitQuery, Queries, QueriesAnswer, Score, Stage};

use crate::flow::{Epoch, TurnInFlight};
use crate::join::{Half, halves};
use crate::meaning::FactMeaning;
use crate::prompted::material::of_context;
use crate::prompted::{Answered, PromptedConfig, Slot};
use crate::salience::{
    Named, Recency, Said, enumerate, named_concepts, saturate, strength, word_count,
};
use crate::stage::{OnFailure, run};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;
use crate::stage_form::{DecideInForm, InForm, StageForm};

pub use by_meaning::ByMeaningConfig;

/// How queries are produced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueryProductionConfig {
    /// How queries are found; `off` is for none.
    pub form: StageForm,
    /// How the prompted form asks its language model.
    pub prompted: PromptedConfig,
    /// What happens to a turn on which the stage fails.
    pub on_failure: OnFailure,
    /// The most explicit queries; 1..=64.
    #[schemars(range(min = 1, max = 64))]
    pub max_explicit: u32,
    /// The most implicit queries; 0..=64.
    #[schemars(range(max = 64))]
    pub max_implicit: u32,
    /// How many explicit concepts must point to an implicit one; 1..=16. The default is 2, because at 1
    /// every association would become a query.
    #[schemars(range(min = 1, max = 16))]
    pub min_pointers: u32,
    /// How many of the strongest facts of each explicit concept are followed, in each direction;
    /// 1..=4096.
    #[schemars(range(min = 1, max = 4096))]
    pub max_facts_per_concept: u32,
    /// The least informativeness of an implicit query; 0..=1. 0.25 keeps out the largest hubs, to
    /// which everything points.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_informativeness: f64,
    /// The least weight of an implicit query; 0..=1. Two ordinary assertions from the current turn
    /// give about 0.5; 0.2 keeps out what was named too long ago.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_implicit_weight: f64,
    /// The longest implicit query in words; 1..=16. Longer concepts are whole sentences.
    #[schemars(range(min = 1, max = 16))]
    pub max_words: u32,
    /// How the graph is searched by meaning if the dialogue names no concept.
    pub by_meaning: ByMeaningConfig,
    /// How the weight of earlier utterances fades.
    pub recency: Recency,
}

impl Default for QueryProductionConfig {
    fn default() -> Self {
        Self {
            form: StageForm::Lexical,
            prompted: PromptedConfig::default(),
            on_failure: OnFailure::Degrade,
            max_explicit: 8,
            max_implicit: 4,
            min_pointers: 2,
            max_facts_per_concept: 64,
            min_informativeness: 0.25,
            min_implicit_weight: 0.2,
            max_words: 3,
            by_meaning: ByMeaningConfig::default(),
            recency: Recency::default(),
        }
    }
}

impl StageConfig for QueryProductionConfig {
    fn prompted(&self) -> Option<&PromptedConfig> {
        Some(&self.prompted).filter(|_| self.form == StageForm::Prompted)
    }
}

/// Runs query production over a stream of turns. Turns on which it fails stay in the stream, as failed
/// halves: see [`crate::join`].
pub fn query_production<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: QueryProductionConfig,
    context: &StageContext,
) -> StreamVec<'scope, Epoch, Half> {
    halves(run(turns, QueryProduction::stage(config, context), &context.runner))
}

/// The stage.
struct QueryProduction {
    config: QueryProductionConfig,
    knowledge: Knowledge,
    meaning: Option<FactMeaning>,
}

impl QueryProduction {
    fn stage(config: QueryProductionConfig, context: &StageContext) -> InForm<Self> {
        let StageContext { knowledge, meaning, .. } = context.clone();
        let (form, on_failure) = (config.form, config.on_failure);
        InForm::new(Self { config, knowledge, meaning }, form, on_failure, context)
    }
}

impl DecideInForm for QueryProduction {
    type Decision = (Queries, String);
    type Answer = QueriesAnswer;

    const STAGE: Stage = Stage::QueryProduction;

    fn prompted(&self) -> Option<&PromptedConfig> {
        self.config.prompted()
    }

    fn by_rules(&self, turn: &TurnInFlight) -> (Queries, String) {
        let queries = |view: View<'_>| produce(turn, view, self.meaning.as_ref(), &self.config);
        self.knowledge.at(&turn.knowledge, queries)
    }

    fn fill(&self, turn: &TurnInFlight, slot: Slot) -> String {
        of_context(&turn.context, slot)
    }

    fn understand(&self, turn: &TurnInFlight, said: Answered<QueriesAnswer>) -> (Queries, String) {
        let queries = |view: View<'_>| prompted::queries(turn, view, &said.answer, &self.config);
        (self.knowledge.at(&turn.knowledge, queries), said.thought)
    }

    fn without(&self, _: &TurnInFlight) -> (Queries, String) {
        Default::default()
    }

    fn write(&self, turn: &mut TurnInFlight, (queries, thought): (Queries, String)) {
        turn.demand.queries = queries;
        turn.demand.thoughts.queries = thought;
    }
}

/// Returns the queries of a turn and the thought behind them. Without `meaning` it does not search
/// by meaning.
pub fn produce(
    turn: &TurnInFlight,
    graph: View<'_>,
    meaning: Option<&FactMeaning>,
    config: &QueryProductionConfig,
) -> (Queries, String) {
    let named = most_wanted(turn, graph, config);
    let said = Said::read(&turn.context, &turn.mentions);
    let explicit = named.iter().filter_map(|named| explicit_query(turn, named, graph)).collect();
    let mut implicit = implicit_queries(&named, &said, graph, config);
    implicit.extend(by_meaning::queries(turn, graph, meaning, config));
    let queries = Queries { explicit, implicit };
    let thought = think(&queries);
    (queries, thought)
}

/// Returns the named concepts that become explicit queries, by falling weight, ties by text.
fn most_wanted<'m>(
    turn: &'m TurnInFlight,
    graph: View<'_>,
    config: &QueryProductionConfig,
) -> Vec<Named<'m>> {
    let mut named = named_concepts(&turn.context, &turn.mentions, &config.recency);
    named.sort_by(|a, b| {
        let texts = || graph.concept(a.concept()).cmp(graph.concept(b.concept()));
        b.weight.total_cmp(&a.weight).then_with(texts)
    });
    named.truncate(config.max_explicit as usize);
    named
}

/// Returns the explicit query for a named concept.
fn explicit_query(
    turn: &TurnInFlight,
    named: &Named<'_>,
    graph: View<'_>,
) -> Option<ExplicitQuery> {
    let utterance = turn.context.dialogue.get(named.mention.utterance as usize)?;
    Some(ExplicitQuery {
        concept: graph.concept(named.concept()).to_owned(),
        turn: utterance.turn_id.clone(),
        span: named.mention.span,
        weight: Score::new(named.weight),
        via: named.mention.via,
        similarity: (!named.mention.via.is_exact())
            .then(|| Score::new(f64::from(named.mention.similarity))),
    })
}

/// Returns the concepts to which explicit ones point, by falling weight, ties by text.
fn implicit_queries(
    named: &[Named<'_>],
    said: &Said,
    graph: View<'_>,
    config: &QueryProductionConfig,
) -> Vec<ImplicitQuery> {
    let mut pointed = BTreeMap::<ConceptId, Pointed>::new();
    for named in named {
        for (target, pull) in pointers(named, graph, config.max_facts_per_concept as usize) {
            let pointed = pointed.entry(target).or_default();
            pointed.pull += pull;
            pointed.by.push((named.concept(), pull));
        }
    }
    let wanted = |target: ConceptId, pointed: &Pointed| {
        let text = graph.concept(target);
        pointed.by.len() >= config.min_pointers as usize
            && saturate(pointed.pull) >= config.min_implicit_weight
            && f64::from(graph.informativeness(target)) >= config.min_informativeness
            && word_count(text) <= config.max_words
            && !said.names(target)
            && said.share(text) < 1.0
    };
    let implicit = pointed.into_iter().filter(|(target, pointed)| wanted(*target, pointed));
    let mut implicit: Vec<ImplicitQuery> =
        implicit.map(|(target, pointed)| pointed.query(target, graph)).collect();
    implicit.sort_by(|a, b| {
        b.weight.get().total_cmp(&a.weight.get()).then_with(|| a.concept.cmp(&b.concept))
    });
    implicit.truncate(config.max_implicit as usize);
    implicit
}

/// The explicit concepts that point to one concept.
#[derive(Default)]
struct Pointed {
    /// How strongly they point, summed.
    pull: f64,
    /// The explicit concepts, each with its part of the sum.
    by: Vec<(ConceptId, f64)>,
}

impl Pointed {
    /// Returns the implicit query for the concept, with the strongest reasons first, ties by
    /// concept.
    fn query(mut self, target: ConceptId, graph: View<'_>) -> ImplicitQuery {
        self.by.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        ImplicitQuery {
            concept: graph.concept(target).to_owned(),
            because: self.by.iter().map(|(by, _)| graph.concept(*by).to_owned()).collect(),
            weight: Score::new(saturate(self.pull)),
            similarity: None,
        }
    }
}

/// Returns the concepts to which one explicit concept points, each with the strength of its
/// strongest pointer: the explicit concept's weight × the fact's strength × how directly the fact
/// points.
fn pointers(named: &Named<'_>, graph: View<'_>, limit: usize) -> BTreeMap<ConceptId, f64> {
    let concept = named.concept();
    let ahead =
        graph.strongest_from(concept, limit).map(|fact| (fact.tail, fact, ahead(&fact, graph)));
    let back = graph.strongest_to(concept, limit).map(|fact| (fact.head, fact, back(&fact, graph)));
    let mut pointers = BTreeMap::new();
    for (target, fact, directness) in ahead.chain(back) {
        if directness > 0.0 && !fact.negated && target != concept {
            let pull = named.weight * strength(fact.weight) * directness;
            let known = pointers.entry(target).or_insert(0.0_f64);
            *known = known.max(pull);
        }
    }
    pointers
}

/// Returns how directly a fact points from its head to its tail: to a goal, an effect, a need or a
/// step; 0..=1.
fn ahead(fact: &Fact, graph: View<'_>) -> f64 {
    match graph.relation(fact.relation).kind {
        RelationKind::Goal | RelationKind::Cause | RelationKind::Prerequisite => 1.0,
        RelationKind::Subevent => 0.8,
        _ => 0.0,
    }
}

/// Returns how directly a fact points from its tail to its head, which needs, wants, causes or
/// contains the named concept; 0..=1. It is about half as much as [`ahead`], because a named means
/// has many possible ends.
fn back(fact: &Fact, graph: View<'_>) -> f64 {
    match graph.relation(fact.relation).kind {
        RelationKind::Goal | RelationKind::Prerequisite | RelationKind::Subevent => 0.5,
        RelationKind::Cause => 0.3,
        _ => 0.0,
    }
}

/// Returns the thought: a sentence about what the user seems to want to know.
fn think(queries: &Queries) -> String {
    let explicit: Vec<&str> = queries.explicit.iter().map(|query| query.concept.as_str()).collect();
    let implicit: Vec<&str> = queries.implicit.iter().map(|query| query.concept.as_str()).collect();
    match (explicit.as_slice(), implicit.as_slice()) {
        ([], []) => "The dialogue names nothing that the graph knows.".to_owned(),
        ([], near) => format!("The dialogue names nothing, but comes near {}.", enumerate(near)),
        (named, []) => format!("The dialogue is about {}.", enumerate(named)),
        (named, behind) => format!(
            "The dialogue is about {}, and behind that may stand {}.",
            enumerate(named),
            enumerate(behind)
        ),
    }
}

#[cfg(test)]
mod tests;
