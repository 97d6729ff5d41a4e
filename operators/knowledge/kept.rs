//! Keeps what was computed for the words that came last. People repeat their words, and a look-up
//! takes a tenth of the time of finding a lemma or a stem.

use rustc_hash::FxHashMap;

/// The most words that are kept; then all of them are dropped.
const MOST_WORDS: usize = 8_192;
/// The most bytes of such a word.
const LONGEST: usize = 24;

/// What was computed for words. Each thread has its own.
pub(crate) struct KeptWords<V>(FxHashMap<Box<str>, V>);

impl<V> Default for KeptWords<V> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<V: Clone> KeptWords<V> {
    /// Returns the value of a word, computed if it is not kept.
    pub(crate) fn get_or(&mut self, word: &str, compute: impl FnOnce(&str) -> V) -> V {
        if let Some(value) = self.0.get(word) {
            return value.clone();
        }
        let value = compute(word);
        if word.len() <= LONGEST {
            if self.0.len() >= MOST_WORDS {
                self.0.clear();
            }
            self.0.insert(word.into(), value.clone());
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_computed_once_and_many_words_take_no_more_room() {
        let mut kept = KeptWords::default();
        let length = |word: &str| word.len();
        assert_eq!(kept.get_or("tent", length), 4);
        assert_eq!(kept.get_or("tent", |_| unreachable!("it is kept")), 4);
        let long = "a".repeat(LONGEST + 1);
        assert_eq!(kept.get_or(&long, length), LONGEST + 1);
        assert_eq!(kept.0.len(), 1, "long words are not kept");
        for number in 0..3 * MOST_WORDS {
            assert_eq!(kept.get_or(&number.to_string(), length), number.to_string().len());
        }
        assert!(kept.0.len() <= MOST_WORDS);
    }
}
