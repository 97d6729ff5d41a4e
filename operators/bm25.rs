//! Scores texts in memory by BM25 over their terms, for small sets such as a persona. (Documents
//! have their own index in `src`, with the same weights.)
//!
//! A [`Bag`] counts the terms of a text; [`Statistics`] describe all texts that are searched. The score
//! is Robertson's formula with the inverse document frequency of Lucene, which is never negative:
//! ln(1 + (N − n + ½) ÷ (n + ½)) for a term that n of N texts have.

use std::collections::BTreeMap;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// BM25's usual constants: K1 limits how much a repeated term counts, and B tells how much less the
/// terms of a long text count.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// A text as counts of its terms.
#[derive(Clone, Debug, PartialEq)]
pub struct Bag<T> {
    /// Terms with their counts, rising by term, each term once.
    counts: Vec<(T, f64)>,
    /// The number of all terms, repeated ones included.
    length: f64,
}

impl<T: Ord> FromIterator<T> for Bag<T> {
    fn from_iter<I: IntoIterator<Item = T>>(terms: I) -> Self {
        let (mut counts, mut length) = (BTreeMap::<T, f64>::new(), 0.0);
        for term in terms {
            *counts.entry(term).or_default() += 1.0;
            length += 1.0;
        }
        Self { counts: counts.into_iter().collect(), length }
    }
}

impl<T: Ord> Bag<T> {
    /// Returns how often the text has a term.
    fn count(&self, term: &T) -> f64 {
        let at = self.counts.binary_search_by(|(other, _)| other.cmp(term));
        at.map_or(0.0, |at| self.counts[at].1)
    }
}

/// Term statistics of the texts that are searched.
#[derive(Clone, Debug)]
pub struct Statistics<T> {
    texts: f64,
    mean_length: f64,
    /// How many texts have a term.
    holders: FxHashMap<T, f64>,
}

impl<T: Clone + Eq + Hash + Ord> Statistics<T> {
    /// Computes the statistics of these texts.
    pub fn of<'b>(texts: impl IntoIterator<Item = &'b Bag<T>>) -> Self
    where
        T: 'b,
    {
        let mut it = Self { texts: 0.0, mean_length: 0.0, holders: FxHashMap::default() };
        for text in texts {
            it.texts += 1.0;
            it.mean_length += text.length;
            for (term, _) in &text.counts {
                *it.holders.entry(term.clone()).or_default() += 1.0;
            }
        }
        it.mean_length = (it.mean_length / it.texts.max(1.0)).max(1.0);
        it
    }

    /// Returns the weight of a term, above 0. Rarer terms weigh more.
    fn idf(&self, term: &T) -> f64 {
        let holders = self.holders.get(term).copied().unwrap_or_default();
        (1.0 + (self.texts - holders + 0.5) / (holders + 0.5)).ln()
    }

    /// Returns the BM25 score of a text for a query, at least 0.
    pub fn bm25(&self, query: &Bag<T>, text: &Bag<T>) -> f64 {
        let norm = K1 * (1.0 - B + B * text.length / self.mean_length);
        let of = query.counts.iter().map(|(term, asked)| {
            let count = text.count(term);
            asked * self.idf(term) * count * (K1 + 1.0) / (count + norm)
        });
        of.sum()
    }

    /// Returns BM25 as a likeness of query and text, 0..=1 and comparable between queries. It is
    /// the score divided by the geometric mean of two others: the highest score possible for the
    /// query's terms, including terms that no text has, and the score of the text for its own
    /// words. Among few texts the first alone is no good measure, because a term that one of them
    /// has weighs less than any that none has.
    pub fn likeness(&self, query: &Bag<T>, text: &Bag<T>) -> f64 {
        let most: f64 = query.counts.iter().map(|(term, asked)| asked * self.idf(term)).sum();
        let of_both = most * (K1 + 1.0) * self.bm25(text, text);
        if of_both > 0.0 { (self.bm25(query, text) / of_both.sqrt()).min(1.0) } else { 0.0 }
    }

    /// Returns the share of a bag's weight that another bag holds, 0..=1.
    pub fn share(&self, of: &Bag<T>, held_by: &Bag<T>) -> f64 {
        let weight = |term: &T, count: f64| self.idf(term) * count;
        let all: f64 = of.counts.iter().map(|(term, count)| weight(term, *count)).sum();
        let held = of.counts.iter().filter(|(term, _)| held_by.count(term) > 0.0);
        let held: f64 = held.map(|(term, count)| weight(term, *count)).sum();
        if all > 0.0 { held / all } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bag(text: &str) -> Bag<&str> {
        text.split_whitespace().collect()
    }

    fn near(found: f64, by_hand: f64) {
        assert!((found - by_hand).abs() < 1e-12, "{found} is not {by_hand}");
    }

    #[test]
    fn scores_are_those_counted_by_hand() {
        let texts = [bag("dog dog walk"), bag("cat")];
        let statistics = Statistics::of(&texts);
        // One of two texts has the term: ln(1 + 1.5 ÷ 1.5). The mean length is 2.
        let idf = 2.0_f64.ln();
        let norm = 1.2 * (0.25 + 0.75 * 3.0 / 2.0);
        let dog = idf * 2.0 * 2.2 / (2.0 + norm);
        near(statistics.bm25(&bag("dog"), &texts[0]), dog);
        near(statistics.bm25(&bag("dog dog"), &texts[0]), 2.0 * dog);
        near(statistics.bm25(&bag("dog"), &texts[1]), 0.0);
        // The query also has a term that no text has: ln(1 + 2.5 ÷ 0.5).
        let most = 2.2 * (idf + 6.0_f64.ln());
        let walk = idf * 2.2 / (1.0 + norm);
        let likeness = dog / (most * (2.0 * dog + walk)).sqrt();
        near(statistics.likeness(&bag("dog sea"), &texts[0]), likeness);
        near(statistics.likeness(&bag("dog dog dog dog dog dog walk"), &texts[0]), 1.0);
        near(statistics.share(&bag("dog sea"), &texts[0]), idf / (idf + 6.0_f64.ln()));
    }

    #[test]
    fn nothing_is_found_for_nothing() {
        let texts = [bag("dog"), bag("")];
        let statistics = Statistics::of(&texts);
        near(statistics.likeness(&bag(""), &texts[0]), 0.0);
        near(statistics.likeness(&bag("dog"), &texts[1]), 0.0);
        near(statistics.share(&bag(""), &texts[0]), 0.0);
    }
}
