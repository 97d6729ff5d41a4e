//! The terms that searches use: the units that BM25 counts, in documents and in personas alike.
//!
//! English words become the Snowball stems of their lemmas, and function words are left out. A
//! Chinese character is a separate term: on short texts characters find more than words do, and
//! need no segmentation. The script of a word determines its language, so a text may mix both.
//! `docs/documents.md` has the measurements of other choices.

use std::cell::RefCell;

use frostem::{Algorithm, Stemmer};
use unicode_segmentation::UnicodeSegmentation;

use crate::kept::KeptWords;
use crate::language::{Lexicon, is_han};

/// Version of the rules for cutting texts into terms. Raised with every change of the rules;
/// [`Lexicon::fingerprint`] identifies the word lists behind them.
pub const TERMS_VERSION: u32 = 1;

thread_local! {
    static STEMS: RefCell<KeptWords<Option<String>>> = RefCell::default();
}

/// The terms of a text, in order, with repetitions. A text of function words only ("what is it")
/// has none.
pub fn terms(text: &str) -> Vec<String> {
    let text = Lexicon::chinese().in_one_script(text);
    let of_word = |word: &str| match word.chars().next().is_some_and(is_han) {
        true => Some(word.to_owned()),
        false => STEMS.with_borrow_mut(|kept| kept.get_or(word, stem)),
    };
    text.unicode_words().filter_map(of_word).collect()
}

/// Returns the term of a word that is not Chinese; function words have none.
fn stem(word: &str) -> Option<String> {
    let word = Lexicon::english().word_iter(word).next().filter(|word| !word.function_word)?;
    let lemma = word.lemma.trim_matches('\'');
    (!lemma.is_empty()).then(|| Stemmer::new(Algorithm::English).stem(lemma).into_owned())
}

/// Identifies the rules and word lists of [`terms`]. An index of other terms finds nothing.
pub fn fingerprint() -> u64 {
    let lists = u64::from(Lexicon::english().fingerprint());
    lists << 32 | u64::from(Lexicon::chinese().fingerprint() ^ TERMS_VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn english_words_are_stems_without_grammar() {
        assert_eq!(terms("The rooms were cleaned at the Hotel's."), ["room", "clean", "hotel"]);
        assert_eq!(terms("comfortably accommodated"), terms("comfortable accommodation"));
        assert!(terms("What is it?").is_empty());
    }

    #[test]
    fn chinese_characters_stand_alone_in_one_script() {
        assert_eq!(terms("長城 WiFi 好嗎"), terms("长城wifi好吗"));
        assert_eq!(terms("长城很长"), ["长", "城", "很", "长"]);
    }
}
