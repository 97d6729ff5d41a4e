//! Draws look-ups and changes from the graph by a seed, so that every contender gets the same.

use std::collections::BTreeMap;

use turnstream_knowledge::{Change, ConceptId, Fact, Graph, Upsert};
use turnstream_operators::fact_retrieval::DemandedConcepts;
use turnstream_schemas::FactKey;

/// The number of queries of a demand, and of topics.
pub(crate) const DEMANDED: usize = 8;
/// How many of each are among the [`HUBS`] concepts with the most facts.
const FROM_HUBS: usize = 2;
const HUBS: usize = 100;
/// One in this many facts of the graph is kept to draw from.
const KEPT: usize = 7;

/// Facts of a graph to draw from: a concept occurs as often as it has facts.
pub(crate) struct Draw<'g> {
    graph: &'g Graph,
    facts: Vec<Fact>,
    hubs: Vec<ConceptId>,
    random: fastrand::Rng,
}

impl<'g> Draw<'g> {
    pub(crate) fn new(graph: &'g Graph, seed: u64) -> Self {
        let facts = graph.facts().step_by(KEPT).collect();
        let mut hubs: Vec<ConceptId> = graph.concepts().collect();
        hubs.sort_by_key(|concept| (std::cmp::Reverse(graph.degree(*concept)), concept.0));
        hubs.truncate(HUBS);
        Self { graph, facts, hubs, random: fastrand::Rng::with_seed(seed) }
    }

    fn fact(&mut self) -> Fact {
        self.facts[self.random.usize(..self.facts.len())]
    }

    fn end(&mut self) -> ConceptId {
        let fact = self.fact();
        if self.random.bool() { fact.head } else { fact.tail }
    }

    fn concepts(&mut self) -> BTreeMap<ConceptId, f64> {
        let mut concepts = BTreeMap::new();
        while concepts.len() < FROM_HUBS {
            concepts.insert(self.hubs[self.random.usize(..self.hubs.len())], 1.0);
        }
        while concepts.len() < DEMANDED {
            concepts.insert(self.end(), 1.0);
        }
        concepts
    }

    /// Draws 8 queries and 8 topics, hubs among them; the others are as likely as they have facts.
    pub(crate) fn demand(&mut self) -> DemandedConcepts {
        DemandedConcepts { queries: self.concepts(), topics: self.concepts() }
    }

    /// Draws changes. Half of them take back a fact of the graph; half insert one between concepts
    /// that have facts, every tenth of these about a concept that the graph does not have.
    pub(crate) fn changes(&mut self, count: usize) -> Vec<Change> {
        (0..count).map(|at| self.change(at)).collect()
    }

    fn change(&mut self, at: usize) -> Change {
        let fact = self.fact();
        let text = |id| self.graph.concept(id).to_owned();
        let mut key = FactKey {
            source: self.graph.source(fact.source).to_owned(),
            head: text(fact.head),
            relation: self.graph.relation(fact.relation).name.to_owned(),
            tail: text(fact.tail),
        };
        if at.is_multiple_of(2) {
            return Change { key, upsert: None };
        }
        let other = self.end();
        key.tail = match at % 20 {
            1 => format!("made up {at}"),
            _ => self.graph.concept(other).to_owned(),
        };
        Change { key, upsert: Some(Upsert::new(1.0, self.graph.language(fact.head))) }
    }
}
