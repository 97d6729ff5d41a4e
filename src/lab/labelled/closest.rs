//! Ranks given texts by their lexical similarity to the dialogue. It replaces retrieval for data
//! sets that provide the texts to retrieve from, without building an index.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use turnstream_knowledge::terms::terms;
use unicode_segmentation::UnicodeSegmentation;

use super::{MAX_KNOWLEDGE, Said};

/// The weights of the latest utterances: the answered one and the two before it.
const WEIGHTS: [f64; 3] = [1.0, 0.5, 0.25];
/// BM25's usual constants.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// Ranks texts, and caches the sentences of one conversation.
#[derive(Default)]
pub(super) struct Closest {
    known: Vec<(Arc<[String]>, Sentences)>,
}

impl Closest {
    /// Returns the sentences of these texts that share terms with the latest utterances, by BM25
    /// with the texts' own statistics; best first, and of equals the earlier first.
    pub(super) fn of(&mut self, texts: &Arc<[String]>, said: &[Said]) -> Vec<String> {
        if texts.is_empty() {
            return Vec::new();
        }
        let at = self.known.iter().position(|(known, _)| Arc::ptr_eq(known, texts));
        let at = at.unwrap_or_else(|| {
            self.known.push((Arc::clone(texts), Sentences::of(texts)));
            self.known.len() - 1
        });
        self.known[at].1.closest(said)
    }
}

struct Sentences {
    sentences: Vec<String>,
    /// For each sentence, the count of each term.
    counts: Vec<FxHashMap<String, f64>>,
    /// For each sentence, the number of its terms divided by the mean number.
    lengths: Vec<f64>,
}

impl Sentences {
    fn of(texts: &[String]) -> Self {
        let sentences: Vec<String> = texts
            .iter()
            .flat_map(|text| text.unicode_sentences())
            .map(|sentence| sentence.trim().to_owned())
            .filter(|sentence| !sentence.is_empty())
            .collect();
        let counts: Vec<FxHashMap<String, f64>> = sentences
            .iter()
            .map(|sentence| {
                let mut counts = FxHashMap::default();
                terms(sentence)
                    .into_iter()
                    .for_each(|term| *counts.entry(term).or_default() += 1.0);
                counts
            })
            .collect();
        let mut lengths: Vec<f64> = counts.iter().map(|counts| counts.values().sum()).collect();
        let mean = (lengths.iter().sum::<f64>() / lengths.len().max(1) as f64).max(1.0);
        lengths.iter_mut().for_each(|length| *length /= mean);
        Self { sentences, counts, lengths }
    }

    fn closest(&self, said: &[Said]) -> Vec<String> {
        let mut scores = vec![0.0; self.sentences.len()];
        for (said, weight) in said.iter().rev().zip(WEIGHTS) {
            for term in terms(&said.text).into_iter().collect::<BTreeSet<_>>() {
                let with = self.counts.iter().filter(|counts| counts.contains_key(&term)).count();
                let all = self.counts.len() as f64;
                let rarity = (1.0 + (all - with as f64 + 0.5) / (with as f64 + 0.5)).ln();
                for ((score, counts), length) in
                    scores.iter_mut().zip(&self.counts).zip(&self.lengths)
                {
                    let count = counts.get(&term).copied().unwrap_or_default();
                    let saturated = count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length));
                    *score += weight * rarity * saturated;
                }
            }
        }
        let mut order: Vec<usize> = (0..scores.len()).filter(|at| scores[*at] > 0.0).collect();
        order.sort_by(|one, other| scores[*other].total_cmp(&scores[*one]).then(one.cmp(other)));
        order.truncate(MAX_KNOWLEDGE);
        order.into_iter().map(|at| self.sentences[at].clone()).collect()
    }
}
