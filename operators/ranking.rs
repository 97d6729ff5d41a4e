//! Lexical likeness between facts and a dialogue, and between facts: a cosine over lemmas.
//!
//! The dialogue is a vector of the lemmas of the concepts it names, each weighted by
//! informativeness (which is an inverse document frequency whose documents are facts) and
//! recency; a fact is the set of content lemmas of its head and tail. Words that belong to no
//! concept of the graph can match no fact and do not count.

use rustc_hash::FxHashMap;

use crate::flow::Gated;
use crate::knowledge::{ConceptId, Graph};
use crate::language::Lexicon;
use crate::salience::{Recency, content_lemmas, named_concepts};

/// The words of one turn's concepts, as small numbers, each with its weight in the dialogue.
pub struct Vocabulary<'a> {
    graph: &'a Graph,
    lexicon: &'a Lexicon,
    /// Lemma → number.
    numbers: FxHashMap<String, u32>,
    /// By number: the weight in the dialogue's vector of length 1; 0 where it is not said.
    weights: Vec<f64>,
    /// Concept → its words within `words`.
    concepts: FxHashMap<ConceptId, (u32, u32)>,
    /// The numbers of the concepts' words, sorted within each concept.
    words: Vec<u32>,
}

impl<'a> Vocabulary<'a> {
    /// Reads the dialogue of a turn.
    pub fn read(turn: &Gated, graph: &'a Graph, lexicon: &'a Lexicon, recency: &Recency) -> Self {
        let mut vocabulary = Self::empty(graph, lexicon);
        for named in named_concepts(&turn.context, &turn.mentions, recency) {
            for number in vocabulary.words(named.concept()).collect::<Vec<_>>() {
                let weight = &mut vocabulary.weights[number as usize];
                *weight = weight.max(named.weight);
            }
        }
        let length = vocabulary.weights.iter().map(|weight| weight * weight).sum::<f64>().sqrt();
        if length > 0.0 {
            vocabulary.weights.iter_mut().for_each(|weight| *weight /= length);
        }
        vocabulary
    }

    /// A vocabulary without a dialogue: every cosine is 0.
    pub fn empty(graph: &'a Graph, lexicon: &'a Lexicon) -> Self {
        Self {
            graph,
            lexicon,
            numbers: FxHashMap::default(),
            weights: Vec::new(),
            concepts: FxHashMap::default(),
            words: Vec::new(),
        }
    }

    /// The graph whose concepts these are.
    pub fn graph(&self) -> &'a Graph {
        self.graph
    }

    /// The numbers of a concept's content words, sorted, each once.
    pub fn words(&mut self, concept: ConceptId) -> impl Iterator<Item = u32> + '_ {
        let (from, to) = match self.concepts.get(&concept) {
            Some(range) => *range,
            None => self.enter(concept),
        };
        self.words[from as usize..to as usize].iter().copied()
    }

    /// Takes a concept's words in.
    fn enter(&mut self, concept: ConceptId) -> (u32, u32) {
        let from = self.words.len();
        let (graph, lexicon) = (self.graph, self.lexicon);
        for lemma in content_lemmas(graph.concept(concept), lexicon) {
            let number = self.numbers.get(lemma.as_ref()).copied().unwrap_or_else(|| {
                let number = self.weights.len() as u32;
                self.numbers.insert(lemma.into_owned(), number);
                self.weights.push(0.0);
                number
            });
            self.words.push(number);
        }
        self.words[from..].sort_unstable();
        let mut kept = from;
        for at in from..self.words.len() {
            if at == from || self.words[at] != self.words[kept - 1] {
                self.words[kept] = self.words[at];
                kept += 1;
            }
        }
        self.words.truncate(kept);
        let range = (from as u32, self.words.len() as u32);
        self.concepts.insert(concept, range);
        range
    }

    /// The distinct words of a fact's head and tail, sorted.
    pub fn words_of_both(&mut self, head: ConceptId, tail: ConceptId, into: &mut Vec<u32>) {
        into.clear();
        into.extend(self.words(head));
        into.extend(self.words(tail));
        into.sort_unstable();
        into.dedup();
    }

    /// The cosine of the dialogue's vector and a set of words, 0..=1: Σ weights / √n.
    pub fn cosine(&self, words: &[u32]) -> f64 {
        if words.is_empty() {
            return 0.0;
        }
        let dot: f64 = words.iter().map(|word| self.weights[*word as usize]).sum();
        (dot / (words.len() as f64).sqrt()).min(1.0)
    }
}

/// The share that two sorted sets have in common, 0..=1: |A ∩ B| / |A ∪ B|; 0 for two empty ones.
pub fn jaccard(one: &[u32], other: &[u32]) -> f64 {
    let (mut common, mut at) = (0_usize, 0_usize);
    for word in one {
        while other.get(at).is_some_and(|other| other < word) {
            at += 1;
        }
        if other.get(at) == Some(word) {
            common += 1;
            at += 1;
        }
    }
    let either = one.len() + other.len() - common;
    if either == 0 { 0.0 } else { common as f64 / either as f64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    use super::*;

    proptest! {
        #[test]
        fn jaccard_is_that_of_the_sets(
            one in prop::collection::btree_set(0_u32..12, 0..8),
            other in prop::collection::btree_set(0_u32..12, 0..8),
        ) {
            let sorted = |set: &BTreeSet<u32>| set.iter().copied().collect::<Vec<_>>();
            let either = one.union(&other).count();
            let expected = if either == 0 {
                0.0
            } else {
                one.intersection(&other).count() as f64 / either as f64
            };
            prop_assert_eq!(jaccard(&sorted(&one), &sorted(&other)), expected);
        }
    }
}
