//! Relevance(q_i, q_t): how well an entry answers to a query (DH-RAG eq 13 names it without defining
//! it).
//!
//! The relevance of words is BM25 over the entries of the scope, divided by the most that any text could
//! score: query terms that no entry has lower the relevance of every entry, so 0..=1 means the same for
//! every query. Where an encoder is configured, the cosine of the vectors has a share in relevance.
//! `docs/history.md` compares other measures.

use rustc_hash::FxHashMap;

use super::likeness::{Signature, Term, Terms};

/// BM25's usual constants: how soon repetitions of a term stop counting, and how much less the terms of
/// a long entry count.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// Statistics of the entries that a scope holds, updated as they come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryStatistics {
    entries: u64,
    /// The number of terms in all entries.
    length: u64,
    /// The number of entries that have each term.
    holders: FxHashMap<u64, u32>,
}

impl EntryStatistics {
    /// Counts an entry.
    pub fn add(&mut self, text: &Terms) {
        self.entries += 1;
        self.length += u64::from(text.length());
        for term in text.iter() {
            *self.holders.entry(term.hash).or_default() += 1;
        }
    }

    /// Removes an entry that was counted.
    pub fn remove(&mut self, text: &Terms) {
        self.entries -= 1;
        self.length -= u64::from(text.length());
        for term in text.iter() {
            if let Some(holders) = self.holders.get_mut(&term.hash) {
                *holders -= 1;
                if *holders == 0 {
                    self.holders.remove(&term.hash);
                }
            }
        }
    }

    /// Whether any entry has a term.
    pub fn has(&self, term: u64) -> bool {
        self.holders.contains_key(&term)
    }

    /// Returns the weight of a term, above 0, higher for rarer terms: ln(1 + (N − n + ½) ÷ (n + ½))
    /// for a term that n of N entries have.
    fn idf(&self, term: u64) -> f64 {
        let holders = f64::from(self.holders.get(&term).copied().unwrap_or_default());
        (1.0 + (self.entries as f64 - holders + 0.5) / (holders + 0.5)).ln()
    }
}

/// Computes the relevance of entries to one query, among the entries that a scope holds now.
#[derive(Clone, Debug)]
pub struct Relevance<'q> {
    query: &'q Signature,
    /// The weights of the query's terms, by rising hash of the term.
    weights: Vec<f64>,
    /// The highest score that any text could have.
    most: f64,
    mean_length: f64,
    meaning_share: f64,
}

impl<'q> Relevance<'q> {
    /// Prepares the relevance to a query. `meaning_share` is the share of the vectors' cosine,
    /// 0..=1.
    pub fn to(query: &'q Signature, among: &EntryStatistics, meaning_share: f64) -> Self {
        let weight = |term: &Term| f64::from(term.count) * among.idf(term.hash);
        let weights: Vec<f64> = query.terms.iter().map(weight).collect();
        let most = (K1 + 1.0) * weights.iter().sum::<f64>();
        let mean_length = (among.length as f64 / among.entries.max(1) as f64).max(1.0);
        Self { query, weights, most, mean_length, meaning_share }
    }

    /// Returns the query.
    pub fn query(&self) -> &'q Signature {
        self.query
    }

    /// Returns the relevance of an entry, 0..=1.
    pub fn of(&self, text: &Signature) -> f64 {
        let by_words = self.by_words(&text.terms);
        match text.likeness_in_meaning(self.query) {
            Some(cosine) => (1.0 - self.meaning_share) * by_words + self.meaning_share * cosine,
            None => by_words,
        }
    }

    fn by_words(&self, text: &Terms) -> f64 {
        let norm = K1 * (1.0 - B + B * f64::from(text.length()) / self.mean_length);
        let mut shared = text.shared(&self.query.terms).peekable();
        let mut sum = 0.0;
        for (asked, weight) in self.query.terms.iter().zip(&self.weights) {
            if let Some((held, _)) = shared.next_if(|(_, it)| it.hash == asked.hash) {
                let count = f64::from(held.count);
                sum += weight * count * (K1 + 1.0) / (count + norm);
            }
        }
        if self.most > 0.0 { sum / self.most } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::likeness::Vector;

    fn text(text: &str) -> Signature {
        Signature::of([text])
    }

    fn statistics(texts: &[Signature]) -> EntryStatistics {
        let mut statistics = EntryStatistics::default();
        texts.iter().for_each(|text| statistics.add(&text.terms));
        statistics
    }

    fn near(found: f64, by_hand: f64) {
        assert!((found - by_hand).abs() < 1e-9, "{found} is not {by_hand}");
    }

    #[test]
    fn relevance_is_the_one_counted_by_hand() {
        let entries = [text("dog dog lake"), text("violin")];
        let among = statistics(&entries);
        // One of two entries has the term, and none has "sea". The mean length is 2.
        let (idf, none) = (2.0_f64.ln(), 6.0_f64.ln());
        let norm = 1.2 * (0.25 + 0.75 * 3.0 / 2.0);
        let query = text("dog sea");
        let relevance = Relevance::to(&query, &among, 0.2);
        near(relevance.of(&entries[0]), idf * 2.0 / (2.0 + norm) / (idf + none));
        near(relevance.of(&entries[1]), 0.0);
        let twice = text("dog dog");
        near(Relevance::to(&twice, &among, 0.2).of(&entries[0]), 2.0 / (2.0 + norm));
        near(Relevance::to(&text(""), &among, 0.2).of(&entries[0]), 0.0);
    }

    #[test]
    fn meaning_has_its_share_where_both_have_a_vector() {
        let entry = text("dog").with(Vector::of(&[3.0, 4.0]));
        let among = statistics(std::slice::from_ref(&entry));
        let query = text("sea").with(Vector::of(&[4.0, 3.0]));
        let by_meaning = Relevance::to(&query, &among, 0.2).of(&entry);
        assert!((by_meaning - 0.2 * 0.96).abs() < 1e-4, "{by_meaning}");
        near(Relevance::to(&query, &among, 0.2).of(&text("dog")), 0.0);
    }

    #[test]
    fn who_went_is_not_counted() {
        let entries = [text("dog lake"), text("dog violin")];
        let mut lived = statistics(&entries);
        lived.remove(&entries[1].terms);
        assert_eq!(lived, statistics(&entries[..1]));
    }
}
