//! Measures the lexical likeness between facts and a dialogue, and between facts: a cosine over
//! lemmas.
//!
//! The dialogue is a vector of the lemmas of the concepts that it names, each weighted by
//! informativeness (an inverse document frequency whose documents are facts) and recency. A fact is
//! the set of content lemmas of its head and tail. Words that belong to no concept of the graph can
//! match no fact and do not count.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use turnstream_knowledge::{ConceptId, View};

use crate::flow::TurnInFlight;
use crate::salience::{Recency, content_lemmas, named_concepts};

/// The words of one turn's dialogue, each with its weight. A word is the 64-bit hash of a lemma:
/// the same in every turn and on every worker, so that sums run in the same order everywhere.
pub struct Vocabulary<'a> {
    graph: View<'a>,
    /// The words of the dialogue, rising, each with its weight in the dialogue's vector of length 1.
    weights: Vec<(u64, f64)>,
}

impl<'a> Vocabulary<'a> {
    /// Reads the dialogue of a turn.
    pub fn read(turn: &TurnInFlight, graph: View<'a>, recency: &Recency) -> Self {
        let mut vocabulary = Self { graph, weights: Vec::new() };
        let mut weights: BTreeMap<u64, f64> = BTreeMap::new();
        for named in named_concepts(&turn.context, &turn.mentions, recency) {
            for word in vocabulary.words(named.concept()) {
                let weight = weights.entry(*word).or_default();
                *weight = weight.max(named.weight);
            }
        }
        let length = weights.values().map(|weight| weight * weight).sum::<f64>().sqrt();
        if length > 0.0 {
            weights.values_mut().for_each(|weight| *weight /= length);
        }
        vocabulary.weights = weights.into_iter().collect();
        vocabulary
    }

    /// Returns the graph of the dialogue's concepts.
    pub fn graph(&self) -> View<'a> {
        self.graph
    }

    /// Returns a concept's content words, sorted, each once.
    pub fn words(&self, concept: ConceptId) -> &'a [u64] {
        self.graph.content_words(concept, |text| {
            let mut words: Vec<u64> = content_lemmas(text).map(word).collect();
            words.sort_unstable();
            words.dedup();
            words.into()
        })
    }

    /// Writes the distinct words of a fact's head and tail, sorted, to `into`.
    pub fn words_of_both(&self, head: ConceptId, tail: ConceptId, into: &mut Vec<u64>) {
        into.clear();
        into.extend(self.words(head));
        into.extend(self.words(tail));
        into.sort_unstable();
        into.dedup();
    }

    /// Returns the cosine of the dialogue's vector and a set of words, 0..=1: Σ weights / √n.
    pub fn cosine(&self, words: &[u64]) -> f64 {
        if words.is_empty() {
            return 0.0;
        }
        let weight = |word: &u64| {
            let at = self.weights.binary_search_by_key(word, |(word, _)| *word).ok()?;
            Some(self.weights[at].1)
        };
        let dot: f64 = words.iter().filter_map(weight).sum();
        (dot / (words.len() as f64).sqrt()).min(1.0)
    }
}

fn word(lemma: impl AsRef<str>) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    lemma.as_ref().hash(&mut hasher);
    hasher.finish()
}

/// Returns the share that two sorted sets have in common, 0..=1: |A ∩ B| / |A ∪ B|; 0 for two empty
/// ones.
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
