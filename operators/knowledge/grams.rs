//! Character n-grams: measure how alike two keys of the lemma index are, for any kind of
//! misspelling.
//!
//! A key is padded with a space at both ends and cut into overlapping pieces of three characters,
//! or of two in a language without spaces. Likeness is Dice's coefficient over the two sets, 2·|A ∩
//! B| / (|A| + |B|). The snapshot lists for each gram the concepts whose key has it.

use std::ops::RangeInclusive;

use super::layout::LEMMA_KEY_SEPARATOR;
use super::{ConceptId, View};
use crate::language::Lexicon;

/// Number of characters of an indexed key. Longer keys are whole sentences, which no misspelt word
/// resembles.
const INDEXED_CHARACTERS: RangeInclusive<usize> = 2..=20;
/// Bits of a character.
const CHARACTER_BITS: u32 = 21;

/// The distinct grams of a key, rising. Empty if the key is too short or too long to be indexed.
pub(super) fn grams(lexicon: &Lexicon, key: &str) -> Vec<u64> {
    match INDEXED_CHARACTERS.contains(&key.chars().count()) {
        true => all_grams(lexicon, key),
        false => Vec::new(),
    }
}

/// The distinct grams of a key of any length, rising.
fn all_grams(lexicon: &Lexicon, key: &str) -> Vec<u64> {
    let width = if lexicon.is_chinese() { 2 } else { 3 };
    let padded: Vec<u64> =
        [' '].into_iter().chain(key.chars()).chain([' ']).map(u64::from).collect();
    let gram =
        |window: &[u64]| window.iter().fold(0, |gram, letter| gram << CHARACTER_BITS | letter);
    let mut grams: Vec<u64> = padded.windows(width).map(gram).collect();
    grams.sort_unstable();
    grams.dedup();
    grams
}

/// The grams of a lemma index key, which contains its language.
pub(super) fn grams_of_index_key(key: &str) -> Vec<u64> {
    let parts = key.split_once(LEMMA_KEY_SEPARATOR);
    let known = parts.and_then(|(code, key)| Some((Lexicon::for_language(code)?, key)));
    known.map_or_else(Vec::new, |(lexicon, key)| grams(lexicon, key))
}

/// Dice's coefficient of two rising lists without repetition, 0..=1.
fn dice(one: &[u64], other: &[u64]) -> f64 {
    let both = one.iter().filter(|gram| other.binary_search(gram).is_ok()).count();
    let all = one.len() + other.len();
    if all == 0 { 0.0 } else { 2.0 * both as f64 / all as f64 }
}

/// The likeness of two keys of a language, 0..=1; 0 if one is too short or too long.
pub fn likeness(lexicon: &Lexicon, one: &str, other: &str) -> f64 {
    dice(&grams(lexicon, one), &grams(lexicon, other))
}

/// The likeness of two phrases of any length, 0..=1.
pub fn likeness_of_phrases(lexicon: &Lexicon, one: &str, other: &str) -> f64 {
    dice(&all_grams(lexicon, one), &all_grams(lexicon, other))
}

impl View<'_> {
    /// Returns the concepts of a language that have facts and whose key has at least likeness
    /// `least` (above 0, up to 1) to `key`: by falling likeness, falling degree, text.
    ///
    /// Reads the shortest lists of the grams of `key`, as long as they have at most `most_postings`
    /// entries together. With n grams and likeness θ a concept shares at least s = θ·n / (2 − θ) of
    /// them, so none is missed while n − s + 1 lists are read (prefix filter; Chaudhuri, Ganti,
    /// Kaushik 2006). Looks up the same grams, with the same bound, among the concepts that only
    /// the topic names.
    pub fn alike(
        self,
        lexicon: &Lexicon,
        key: &str,
        least: f64,
        most_postings: usize,
    ) -> Vec<(ConceptId, f64)> {
        let wanted = grams(lexicon, key);
        let total = wanted.len();
        // Slightly lowered, so that rounding never requires one gram too many.
        let shared = (least * total as f64 / (2.0 - least) - 1e-9).ceil() as usize;
        let mut lists: Vec<_> =
            wanted.iter().map(|gram| (self.graph().gram_list(*gram), *gram)).collect();
        lists.sort_by_key(|(list, gram)| (list.len(), *gram));
        let (mut candidates, mut read) = (Vec::new(), 0);
        for (list, gram) in lists {
            if candidates.len() + list.len() > most_postings {
                break;
            }
            read += 1;
            candidates.extend(list.map(|entry| self.graph().gram_concept(entry)));
            candidates.extend(self.live_with_gram(gram).take(most_postings));
        }
        candidates.sort_unstable();
        let needed = shared.saturating_sub(total - read).max(1);
        let mut found = Vec::new();
        for same in candidates.chunk_by(|one, other| one == other) {
            let id = same[0];
            if same.len() < needed
                || self.language(id) != lexicon.language()
                || self.degree(id) == 0
            {
                continue;
            }
            let likeness = dice(&wanted, &grams(lexicon, &lexicon.key(self.concept(id))));
            if likeness >= least {
                found.push((id, likeness));
            }
        }
        found.sort_by(|one, other| {
            other
                .1
                .total_cmp(&one.1)
                .then_with(|| self.degree(other.0).cmp(&self.degree(one.0)))
                .then_with(|| self.by_text(one.0, other.0))
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Graph, ImportedFact};
    use super::*;

    #[test]
    fn a_slip_of_the_pen_leaves_most_grams() {
        let english = Lexicon::english();
        assert!((likeness(english, "cofee", "coffee") - 8.0 / 11.0).abs() < 1e-9);
        assert!(likeness(english, "coffee", "coffee") == 1.0);
        assert!(likeness(english, "coffee", "tea") == 0.0);
        assert!(likeness(english, "a", "a") == 0.0, "too short");
        let chinese = Lexicon::chinese();
        assert!(likeness(chinese, "北京故宫博物院", "故宫博物院") > 0.7);
    }

    #[test]
    fn the_rarest_grams_are_read_first() {
        let common = (0..200).map(|at| ImportedFact::new(&format!("umber {at}"), "IsA", "x", 1.0));
        let facts = common.chain([ImportedFact::new("umbrella", "IsA", "x", 1.0)]);
        let graph = Graph::from_facts(facts);
        let (view, english) = (graph.view(), Lexicon::english());
        let found = |most| {
            let alike = view.alike(english, "umbrela", 0.5, most);
            alike.into_iter().map(|(id, _)| graph.concept(id).to_owned()).collect::<Vec<_>>()
        };
        // The grams are " um", "umb", "mbr", "bre", "rel", "ela", "la "; hundreds of concepts share
        // two of them.
        assert_eq!(found(100), ["umbrella"]);
        assert_eq!(found(4), ["umbrella"]);
        assert_eq!(found(0), [""; 0]);
    }

    proptest! {
        #[test]
        fn alike_is_what_a_scan_of_all_concepts_finds(
            texts in prop::collection::vec("[abc]{2,6}( [ab]{2,4})?", 1..30),
            wanted in "[abc]{2,7}",
            least in 0.2..1.0_f64,
        ) {
            let facts = texts.iter().map(|text| ImportedFact::new(text, "IsA", "thing", 1.0));
            let graph = Graph::from_facts(facts);
            let (view, english) = (graph.view(), Lexicon::english());
            let key = english.key(&wanted);
            let mut naive: Vec<(ConceptId, f64)> = graph
                .concepts()
                .map(|id| (id, likeness(english, &key, &english.key(graph.concept(id)))))
                .filter(|(_, likeness)| *likeness >= least)
                .collect();
            naive.sort_by(|a, b| {
                b.1.total_cmp(&a.1)
                    .then_with(|| graph.degree(b.0).cmp(&graph.degree(a.0)))
                    .then_with(|| graph.concept(a.0).cmp(graph.concept(b.0)))
            });
            prop_assert_eq!(view.alike(english, &key, least, usize::MAX / 4), naive.clone());
            // A bound may lose some, but adds none and keeps the order.
            for most in 0..40 {
                let bounded = view.alike(english, &key, least, most);
                let mut rest = naive.iter();
                prop_assert!(bounded.iter().all(|it| rest.any(|of| of == it)), "{bounded:?}");
            }
            prop_assert_eq!(view.alike(english, &key, least, 0), vec![]);
        }
    }
}
