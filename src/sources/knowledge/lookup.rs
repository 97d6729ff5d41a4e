//! The two sets of facts of a demand (DCRAG, "fact retrieval"), for `knowledge lookup`: the stage's
//! sets, but over concepts given by hand and ordered by weight.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::Serialize;
use turnstream_knowledge::language::Lexicon;
use turnstream_knowledge::{ConceptId, Fact, Graph, normalise, worded};

/// The facts of a demand.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lookup {
    /// Facts that join a query and a topic.
    pub foreseen: Vec<FactRecord>,
    /// Facts that touch a query or a topic and are not foreseen.
    pub unforeseen: Vec<FactRecord>,
    /// Words without a concept.
    pub unknown: Vec<String>,
}

/// A fact in printed form.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FactRecord {
    /// Text of the head.
    pub head: String,
    /// Name of the relation.
    pub relation: String,
    /// Text of the tail.
    pub tail: String,
    /// Strength, above 0.
    pub weight: f32,
    /// Whether the fact is denied.
    pub negated: bool,
    /// The fact's source.
    pub source: String,
    /// The fact in words: its own sentence, if it has one.
    pub text: String,
}

/// Finds the facts of E^Q and E^T, given as words. A word selects the concept with the same text,
/// or else the concept with the same lemmas that has the most facts. Each set is cut to `limit`,
/// strongest first.
pub fn lookup(graph: &Graph, queries: &[String], topics: &[String], limit: usize) -> Lookup {
    let mut unknown = Vec::new();
    let mut concepts = |names: &[String]| -> BTreeSet<ConceptId> {
        let mut known = BTreeSet::new();
        for name in names {
            match concept(graph, name) {
                Some(concept) => _ = known.insert(concept),
                None => unknown.push(name.clone()),
            }
        }
        known
    };
    let (queries, topics) = (concepts(queries), concepts(topics));
    let is_foreseen = |fact: &Fact| {
        queries.contains(&fact.head) && topics.contains(&fact.tail)
            || topics.contains(&fact.head) && queries.contains(&fact.tail)
    };
    let mut foreseen = Vec::new();
    for &query in &queries {
        for &topic in &topics {
            foreseen.extend(graph.facts_between(query, topic));
            foreseen.extend(graph.facts_between(topic, query));
        }
    }
    // Each list is ordered by weight, so the strongest `limit` of all are among the first few of
    // each. Foreseen facts may precede them, and every fact is in two lists.
    let depth = limit.saturating_add(foreseen.len());
    let mut unforeseen = Vec::new();
    for &concept in queries.union(&topics) {
        unforeseen.extend(graph.strongest_from(concept, depth));
        unforeseen.extend(graph.strongest_to(concept, depth));
    }
    unforeseen.retain(|fact| !is_foreseen(fact));
    let records = |facts| cut(facts, limit).iter().map(|fact| record(graph, fact)).collect();
    Lookup { foreseen: records(foreseen), unforeseen: records(unforeseen), unknown }
}

fn concept(graph: &Graph, name: &str) -> Option<ConceptId> {
    let by_lemmas = |language: &String| {
        let key = Lexicon::for_language(language)?.key(name);
        graph.concepts_with_lemmas(language, &key).next()
    };
    graph.find(&normalise(name)).or_else(|| graph.stats().languages.iter().find_map(by_lemmas))
}

/// Removes duplicates, sorts by falling weight and then ids, and cuts.
fn cut(mut facts: Vec<Fact>, limit: usize) -> Vec<Fact> {
    let ids = |fact: &Fact| (fact.head, fact.relation, fact.tail, fact.source);
    facts.sort_by_key(|fact| (Reverse(fact.weight.to_bits()), ids(fact)));
    facts.dedup_by_key(|fact| ids(fact));
    facts.truncate(limit);
    facts
}

fn record(graph: &Graph, fact: &Fact) -> FactRecord {
    FactRecord {
        head: graph.concept(fact.head).to_owned(),
        relation: graph.relation(fact.relation).name.to_owned(),
        tail: graph.concept(fact.tail).to_owned(),
        weight: fact.weight,
        negated: fact.negated,
        source: graph.source(fact.source).to_owned(),
        text: worded(graph.view(), fact, &graph.view().wording(fact)),
    }
}
