//! Recall: which entries of the history a turn is answered from.
//!
//! Lexical for now: relevance is the cosine of lemma counts. Clusters, the hierarchy and chains
//! of thought will stand beside it.

use std::hash::{Hash, Hasher};

use crate::language::Lexicon;

/// The content lemmas of a text, as a vector of L2 norm 1 (or none). Lemmas are hashed to 64
/// bits: two that meet would make two texts look a little more alike, and no more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms(Vec<(u64, f32)>);

impl Terms {
    /// Counts the content lemmas of texts, each in its language, dampened as 1 + ln(count).
    pub fn of<'text>(texts: impl IntoIterator<Item = &'text str>) -> Self {
        let mut hashes: Vec<u64> = Vec::new();
        for text in texts {
            let words = Lexicon::of_text(text).words(text);
            let content = words.iter().filter(|word| !word.function_word);
            hashes.extend(content.map(|word| hash(&word.lemma)));
        }
        hashes.sort_unstable();
        let mut terms: Vec<(u64, f32)> = hashes
            .chunk_by(|a, b| a == b)
            .map(|equal| (equal[0], 1.0 + (equal.len() as f32).ln()))
            .collect();
        let norm = terms.iter().map(|(_, count)| count * count).sum::<f32>().sqrt();
        for (_, count) in &mut terms {
            *count /= norm;
        }
        Self(terms)
    }

    /// Relevance(q_i, q_t): the cosine of two texts, 0..=1; 0 where one says nothing.
    pub fn relevance(&self, other: &Self) -> f64 {
        let (mut ours, mut theirs) = (self.0.as_slice(), other.0.as_slice());
        let mut dot = 0.0;
        while let ([(a, x), rest_a @ ..], [(b, y), rest_b @ ..]) = (ours, theirs) {
            match a.cmp(b) {
                std::cmp::Ordering::Less => ours = rest_a,
                std::cmp::Ordering::Greater => theirs = rest_b,
                std::cmp::Ordering::Equal => {
                    dot += f64::from(x * y);
                    (ours, theirs) = (rest_a, rest_b);
                }
            }
        }
        dot.clamp(0.0, 1.0)
    }
}

fn hash(lemma: &str) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    lemma.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relevance_sees_content_and_not_form() {
        let terms = |text: &str| Terms::of([text]);
        let query = terms("Where is my parcel?");
        assert!(query.relevance(&terms("The parcels were sent")) > 0.3);
        assert_eq!(query.relevance(&terms("Where is my dog?")), 0.0);
        assert_eq!(query.relevance(&terms("")), 0.0);
        assert!((query.relevance(&query) - 1.0).abs() < 1e-6);
    }
}
