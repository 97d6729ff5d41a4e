//! Fact retrieval finds the facts that can meet the demand. (DCRAG, "Fact Retrieval".)
//!
//! With E^Q the queries and E^T the topics, the *foreseen* set is every fact k with (head ∈ E^Q
//! and tail ∈ E^T) or (head ∈ E^T and tail ∈ E^Q); the *unforeseen* set is every other fact with
//! head or tail in E^Q ∪ E^T. Both sets are exact before they are ranked, with one exception: a
//! concept gives at most its `max_neighbours_per_concept` strongest facts in each direction to the
//! unforeseen set, so that a hub with 80,000 neighbours does not stall a turn. The foreseen set has
//! no such bound, because the stage looks up each pair. Each set is then ranked by relevance to the
//! dialogue and cut to its best.
//!
//! Key: none. State: none. If it fails and may degrade, the turn goes on without facts. It keeps
//! denied facts, marked as such, and does not decide which facts are used.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use turnstream_knowledge::search::MAX_MISSING_BYTES;
use turnstream_knowledge::{ConceptId, Fact, Knowledge, RelationId, View, Wording, worded};
use turnstream_ports::refused::Refused;
use turnstream_schemas::{
    Demand, Evidence, EvidenceId, EvidenceSet, FactStatement, Fault, Score, Stage,
};

use crate::flow::{Candidates, Epoch, TurnInFlight};
use crate::meaning::{Dialogue, FactMeaning};
use crate::ranking::Vocabulary;
use crate::salience::{Recency, strength};
use crate::stage::{DecideByRules, OnFailure, Streams, Without, run};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;

const STAGE: Stage = Stage::FactRetrieval;

/// The ways in which facts can be ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FactRetrievalForm {
    /// By documented rules over words and the graph; needs no model.
    Lexical,
    /// Not at all: the turn goes on without facts.
    Off,
}

/// How facts are retrieved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FactRetrievalConfig {
    /// How facts are ranked.
    pub form: FactRetrievalForm,
    /// What happens to a turn on which the stage fails.
    pub on_failure: OnFailure,
    /// The most foreseen facts after ranking; 1..=1024. The paper's number.
    #[schemars(range(min = 1, max = 1024))]
    pub max_foreseen: u32,
    /// The most unforeseen facts after ranking; 1..=1024. The paper's number.
    #[schemars(range(min = 1, max = 1024))]
    pub max_unforeseen: u32,
    /// How many of its strongest facts a concept gives to the unforeseen set, in each direction;
    /// 1..=100000. At 32, twenty concepts give at most 1,280 facts to rank.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_neighbours_per_concept: u32,
    /// The share of relevance that comes from the weight of the demanded concept; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub demand_share: f64,
    /// The share of relevance that comes from the strength of the fact; 0..=1. The rest comes from the
    /// likeness of fact and dialogue, in words and in meaning. Likeness leads; the other two separate
    /// the many facts that share a concept and so have the same likeness.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub strength_share: f64,
    /// The share of likeness that is likeness in meaning, if there is an encoder; 0..=1. The rest is
    /// likeness in words.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub meaning_share: f64,
    /// How many facts of each set are compared in meaning: those that rank highest by words; 1..=100000,
    /// but never fewer than `max_foreseen` or `max_unforeseen`. All others are dropped.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_by_meaning: u32,
    /// How the weight of earlier utterances fades.
    pub recency: Recency,
}

impl Default for FactRetrievalConfig {
    fn default() -> Self {
        Self {
            form: FactRetrievalForm::Lexical,
            on_failure: OnFailure::Degrade,
            max_foreseen: 50,
            max_unforeseen: 50,
            max_neighbours_per_concept: 32,
            demand_share: 0.25,
            strength_share: 0.2,
            meaning_share: 1.0,
            max_by_meaning: 256,
            recency: Recency::default(),
        }
    }
}

impl StageConfig for FactRetrievalConfig {
    fn check(&self) -> Result<(), Refused> {
        if self.demand_share + self.strength_share > 1.0 {
            let needs = "a sum with demand_share of at most 1";
            return Err(Refused { stage: STAGE, key: "strength_share", needs });
        }
        Ok(())
    }
}

/// Runs fact retrieval over a stream of turns. Returns (turns with their candidates, faults).
pub fn fact_retrieval<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: FactRetrievalConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    let StageContext { knowledge, meaning, .. } = context.clone();
    run(turns, FactRetrieval { config, knowledge, meaning }, &context.runner)
}

/// The stage.
struct FactRetrieval {
    config: FactRetrievalConfig,
    knowledge: Knowledge,
    meaning: Option<FactMeaning>,
}

impl DecideByRules for FactRetrieval {
    type Turn = TurnInFlight;
    /// The facts, and the demanded concepts that no fact has.
    type Decision = (Candidates, Vec<String>);

    const STAGE: Stage = STAGE;

    fn on_failure(&self) -> OnFailure {
        self.config.on_failure
    }

    fn decide(&self, turn: &TurnInFlight) -> Result<Self::Decision, Fault> {
        if self.config.form == FactRetrievalForm::Off {
            return Ok(DecideByRules::without(self, turn, Without::Off));
        }
        Ok(self.knowledge.at(&turn.knowledge, |view| {
            let dialogue = self.meaning.as_ref().and_then(|meaning| meaning.of(turn, view));
            let likeness = Likeness::read(turn, view, dialogue, &self.config.recency);
            let candidates = retrieve(&turn.demand, &likeness, &self.config);
            (candidates, without_facts(&turn.demand, view))
        }))
    }

    fn without(&self, _: &TurnInFlight, _: Without<'_>) -> Self::Decision {
        Default::default()
    }

    fn write(&self, turn: &mut TurnInFlight, (found, unknown): Self::Decision) {
        let missing = &mut turn.demand.missing;
        for concept in unknown {
            if !missing.contains(&concept) {
                missing.push(concept);
            }
        }
        turn.candidates.foreseen.extend(found.foreseen);
        turn.candidates.unforeseen.extend(found.unforeseen);
    }
}

/// Returns the demanded concepts that no fact has, queries first, in order. Retrieval finds nothing
/// for them, whatever its bounds. Rules demand only concepts with facts, but a model may name any
/// concept.
pub fn without_facts(demand: &Demand, graph: View<'_>) -> Vec<String> {
    // The graph finds a concept as long as some fact has it.
    let unknown =
        |concept: &&str| graph.find(concept).is_none() && concept.len() <= MAX_MISSING_BYTES;
    let demanded = demand.query_concepts().chain(demand.topic_concepts());
    demanded.filter(unknown).map(str::to_owned).collect()
}

/// The dialogue of a turn, to compare facts with in words and in meaning.
pub struct Likeness<'a> {
    vocabulary: Vocabulary<'a>,
    dialogue: Option<Dialogue<'a>>,
}

impl<'a> Likeness<'a> {
    /// Reads the dialogue of a turn. Without `dialogue`, facts are compared in words alone.
    pub fn read(
        turn: &TurnInFlight,
        graph: View<'a>,
        dialogue: Option<Dialogue<'a>>,
        recency: &Recency,
    ) -> Self {
        Self { vocabulary: Vocabulary::read(turn, graph, recency), dialogue }
    }
}

/// Retrieves the facts for a demand: both sets, ranked and cut.
pub fn retrieve(
    demand: &Demand,
    likeness: &Likeness<'_>,
    config: &FactRetrievalConfig,
) -> Candidates {
    let graph = likeness.vocabulary.graph();
    let demanded = DemandedConcepts::find(demand, graph);
    let (foreseen, unforeseen) =
        retrieval_sets(&demanded, graph, config.max_neighbours_per_concept as usize);
    let rank = |facts: Vec<Fact>, set: EvidenceSet, most: u32| {
        let ranked = rank(facts, &demanded, likeness, config);
        let best = ranked.into_iter().take(most as usize);
        best.map(|(relevance, fact)| evidence(&fact, relevance, set, graph)).collect()
    };
    Candidates {
        foreseen: rank(foreseen, EvidenceSet::Foreseen, config.max_foreseen),
        unforeseen: rank(unforeseen, EvidenceSet::Unforeseen, config.max_unforeseen),
        ..Candidates::default()
    }
}

/// The concepts of a demand that the graph has, each with its weight.
#[derive(Clone, Debug, Default)]
pub struct DemandedConcepts {
    /// E^Q.
    pub queries: BTreeMap<ConceptId, f64>,
    /// E^T.
    pub topics: BTreeMap<ConceptId, f64>,
}

impl DemandedConcepts {
    /// Looks up the concepts of a demand.
    pub fn find(demand: &Demand, graph: View<'_>) -> Self {
        let mut found = Self::default();
        let enter = |into: &mut BTreeMap<ConceptId, f64>, concept: &str, weight: Score| {
            if let Some(concept) = graph.find(concept) {
                let known = into.entry(concept).or_default();
                *known = known.max(weight.get());
            }
        };
        for query in &demand.queries.explicit {
            enter(&mut found.queries, &query.concept, query.weight);
        }
        for query in &demand.queries.implicit {
            enter(&mut found.queries, &query.concept, query.weight);
        }
        for topic in demand.topics.maintained.iter().chain(&demand.topics.extended) {
            enter(&mut found.topics, &topic.concept, topic.weight);
        }
        found
    }

    /// Whether a fact joins a query and a topic.
    fn foresee(&self, fact: &Fact) -> bool {
        let joins =
            |query, topic| self.queries.contains_key(query) && self.topics.contains_key(topic);
        joins(&fact.head, &fact.tail) || joins(&fact.tail, &fact.head)
    }

    /// Returns the weight of a concept in the demand; 0 if it is not demanded.
    fn weight(&self, concept: ConceptId) -> f64 {
        let weight = |of: &BTreeMap<ConceptId, f64>| of.get(&concept).copied().unwrap_or_default();
        weight(&self.queries).max(weight(&self.topics))
    }
}

/// Returns the foreseen and the unforeseen set before ranking, each in the order of the facts'
/// keys, each fact once.
pub fn retrieval_sets(
    demanded: &DemandedConcepts,
    graph: View<'_>,
    max_neighbours: usize,
) -> (Vec<Fact>, Vec<Fact>) {
    let mut foreseen = Vec::new();
    for query in demanded.queries.keys() {
        for topic in demanded.topics.keys() {
            foreseen.extend(graph.facts_between(*query, *topic));
            foreseen.extend(graph.facts_between(*topic, *query));
        }
    }
    let mut unforeseen = Vec::new();
    let topics_alone = demanded.topics.keys().filter(|key| !demanded.queries.contains_key(*key));
    for concept in demanded.queries.keys().chain(topics_alone) {
        let ahead = graph.strongest_from(*concept, max_neighbours);
        let back = graph.strongest_to(*concept, max_neighbours);
        unforeseen.extend(ahead.chain(back).filter(|fact| !demanded.foresee(fact)));
    }
    for set in [&mut foreseen, &mut unforeseen] {
        graph.sort(set);
        set.dedup_by_key(|fact| key(fact));
    }
    (foreseen, unforeseen)
}

/// Returns the identity of a fact.
fn key(fact: &Fact) -> (ConceptId, RelationId, ConceptId, u8) {
    (fact.head, fact.relation, fact.tail, fact.source)
}

/// Ranks facts by relevance. Returns them with it, highest first; ties by head, relation, tail and
/// source.
///
/// Relevance, 0..=1, is the weighted mean of three measures in 0..=1: the likeness of the fact and
/// the dialogue; the weight of the demanded concept (the mean of both ends if both are demanded, so
/// that a fact between two demanded concepts is not weighed by one alone); and the strength of the
/// fact. [`substance`] then lowers the relevance of a fact with an end that says little. Likeness is
/// the cosine in words. If the dialogue has a vector, the facts that rank highest by words are ranked
/// again, and the cosine in meaning takes its share of likeness.
fn rank(
    facts: Vec<Fact>,
    demanded: &DemandedConcepts,
    likeness: &Likeness<'_>,
    config: &FactRetrievalConfig,
) -> Vec<(f64, Fact)> {
    let likeness_share = 1.0 - config.demand_share - config.strength_share;
    let Likeness { vocabulary, dialogue } = likeness;
    let mut words = Vec::new();
    let mut ranked: Vec<(f64, WeighedFact)> = facts
        .into_iter()
        .map(|fact| {
            vocabulary.words_of_both(fact.head, fact.tail, &mut words);
            let (head, tail) = (demanded.weight(fact.head), demanded.weight(fact.tail));
            let demand =
                if head > 0.0 && tail > 0.0 { (head + tail) / 2.0 } else { head.max(tail) };
            let rest = config.demand_share * demand + config.strength_share * strength(fact.weight);
            let (cosine, substance) = (vocabulary.cosine(&words), substance(&fact, vocabulary));
            (
                (likeness_share * cosine + rest) * substance,
                WeighedFact { fact, cosine, rest, substance },
            )
        })
        .collect();
    let graph = vocabulary.graph();
    let order = |a: &(f64, WeighedFact), b: &(f64, WeighedFact)| {
        b.0.total_cmp(&a.0).then_with(|| graph.by_key(&a.1.fact, &b.1.fact))
    };
    ranked.sort_unstable_by(order);
    if let Some(dialogue) = dialogue.as_ref().filter(|_| config.meaning_share > 0.0) {
        let kept = config.max_by_meaning.max(config.max_foreseen).max(config.max_unforeseen);
        ranked.truncate(kept as usize);
        for (relevance, weighed) in &mut ranked {
            let WeighedFact { fact, cosine, rest, substance } = weighed;
            // A fact without a vector is ranked by its words alone.
            let meaning = dialogue.likeness(fact).unwrap_or(*cosine);
            let likeness = *cosine + config.meaning_share * (meaning - *cosine);
            *relevance = (likeness_share * likeness + *rest) * *substance;
        }
        ranked.sort_unstable_by(order);
    }
    ranked.into_iter().map(|(relevance, weighed)| (relevance, weighed.fact)).collect()
}

/// A fact with the parts of its relevance.
struct WeighedFact {
    fact: Fact,
    /// The likeness in words.
    cosine: f64,
    /// The weighted sum of demand and strength.
    rest: f64,
    substance: f64,
}

/// Returns how much the ends of a fact say, 0.25..=1: one half plus half the informativeness of the
/// less informative end, so that "something is found at sea" ranks below "salt is found at sea"; a
/// quarter if an end has no content word at all ("it", "in the").
fn substance(fact: &Fact, vocabulary: &Vocabulary<'_>) -> f64 {
    let mut least = 1.0_f64;
    for end in [fact.head, fact.tail] {
        if vocabulary.words(end).is_empty() {
            return 0.25;
        }
        least = least.min(f64::from(vocabulary.graph().informativeness(end)));
    }
    0.5 + 0.5 * least
}

/// Returns the id of a fact as evidence.
pub fn evidence_id(source: &str, relation: &str, head: &str, tail: &str) -> EvidenceId {
    EvidenceId(format!("{source}/{relation}/{head}/{tail}"))
}

/// Makes a fact into evidence.
fn evidence(fact: &Fact, relevance: f64, set: EvidenceSet, graph: View<'_>) -> Evidence {
    let (head, tail) = (graph.concept(fact.head), graph.concept(fact.tail));
    let relation = graph.relation(fact.relation).name;
    let source = graph.source(fact.source);
    let wording = graph.wording(fact);
    let text = worded(graph, fact, &wording);
    let Wording { sentence, head: head_name, tail: tail_name } = wording;
    Evidence {
        id: evidence_id(source, relation, head, tail),
        source: source.into(),
        text,
        set: Some(set),
        fact: Some(FactStatement {
            head: head.to_owned(),
            relation: relation.to_owned(),
            tail: tail.to_owned(),
            weight: fact.weight,
            negated: fact.negated,
            head_name,
            tail_name,
            sentence,
        }),
        relevance: Score::new(relevance.clamp(0.0, 1.0)),
        document: None,
        persona: None,
        row: None,
        consistency: None,
        attention: None,
        selected: false,
    }
}

#[cfg(test)]
mod tests;
