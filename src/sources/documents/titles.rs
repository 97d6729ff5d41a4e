//! Finds the documents that a text names by title, or by a short form of the title.
//!
//! A title matches by its words in order, ignoring case and apostrophes; of several titles that
//! begin at a word, the longest wins. A short form omits a leading "the" and an ending that several
//! titles share: "Warkworth House" is also "Warkworth" if many titles end with "House". A short
//! form of one word counts only if no chunk of another title holds that word, so "rice" does not
//! name the "Rice House".

use rustc_hash::{FxHashMap, FxHashSet};
use turnstream_knowledge::terms::terms;
use unicode_segmentation::UnicodeSegmentation;

/// A word in this many titles may be omitted at a title's end.
const SHARED_BY: usize = 2;
/// The most words of a title that are compared.
const MAX_WORDS: usize = 12;

/// The titles of a store.
#[derive(Default)]
pub(super) struct Titles {
    /// Chunks by title or short form (words joined by spaces), ascending.
    named: FxHashMap<String, Vec<u32>>,
}

impl Titles {
    /// Reads titles, each with its chunks. `chunks_with` counts the chunks that hold a term in
    /// title or text.
    pub(super) fn read<E>(
        titles: impl IntoIterator<Item = (String, Vec<u32>)>,
        chunks_with: impl Fn(&str) -> Result<u64, E>,
    ) -> Result<Self, E> {
        let mut full = FxHashMap::<Vec<String>, Vec<u32>>::default();
        for (title, chunks) in titles {
            let words = words(&title);
            if !words.is_empty() {
                full.entry(words).or_default().extend(chunks);
            }
        }
        let mut holders = FxHashMap::<&str, usize>::default();
        for words in full.keys() {
            for word in words.iter().map(String::as_str).collect::<FxHashSet<_>>() {
                *holders.entry(word).or_default() += 1;
            }
        }
        let shared = |word: &String| holders.get(word.as_str()).is_some_and(|n| *n >= SHARED_BY);
        let mut under_word = FxHashMap::<&str, u64>::default();
        for (words, chunks) in &full {
            for word in words.iter().map(String::as_str).collect::<FxHashSet<_>>() {
                *under_word.entry(word).or_default() += chunks.len() as u64;
            }
        }
        let mut named = FxHashMap::<String, Vec<u32>>::default();
        for (words, chunks) in &full {
            for form in forms(words, shared) {
                if let [word] = form
                    && form.len() < words.len()
                    && !is_own(word, under_word.get(word.as_str()), &chunks_with)?
                {
                    continue;
                }
                named.entry(form.join(" ")).or_default().extend(chunks);
            }
        }
        for chunks in named.values_mut() {
            chunks.sort_unstable();
            chunks.dedup();
        }
        Ok(Self { named })
    }

    /// The chunks of the titles that a text names, ascending.
    pub(super) fn in_text(&self, text: &str) -> Vec<u32> {
        if self.named.is_empty() {
            return Vec::new();
        }
        let (words, mut found, mut at) = (words_of(text), Vec::new(), 0);
        while at < words.len() {
            let longest = (words.len() - at).min(MAX_WORDS);
            let named = (1..=longest).rev().find_map(|length| {
                let chunks = self.named.get(&words[at..at + length].join(" "))?;
                Some((length, chunks))
            });
            match named {
                Some((length, chunks)) => {
                    found.extend(chunks);
                    at += length;
                }
                None => at += 1,
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The full title and its short forms, the full title first.
fn forms(words: &[String], shared: impl Fn(&String) -> bool) -> Vec<&[String]> {
    let mut forms = vec![words];
    let mut rest = match words {
        [the, rest @ ..] if the == "the" && !rest.is_empty() => rest,
        _ => words,
    };
    loop {
        if rest.len() < words.len() {
            forms.push(rest);
        }
        match rest {
            [before @ .., last] if !before.is_empty() && shared(last) => rest = before,
            _ => return forms,
        }
    }
}

/// Whether a word occurs only in chunks of the titles that hold it.
fn is_own<E>(
    word: &str,
    under: Option<&u64>,
    chunks_with: impl Fn(&str) -> Result<u64, E>,
) -> Result<bool, E> {
    // A word without a term, such as "it", names nothing.
    let Some(term) = terms(word).into_iter().next() else { return Ok(false) };
    Ok(chunks_with(&term)? <= under.copied().unwrap_or_default())
}

/// The first words of a title.
fn words(title: &str) -> Vec<String> {
    let mut words = words_of(title);
    words.truncate(MAX_WORDS);
    words
}

/// Splits a text into lower-case words without apostrophes, with "and" for "&".
fn words_of(text: &str) -> Vec<String> {
    let text = text.to_lowercase().replace('&', " and ").replace(['\'', '’'], "");
    text.unicode_words().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Titles whose chunks are numbered in order; the words `elsewhere` also occur in other chunks.
    fn titles(of: &[&str], elsewhere: &[&str]) -> Titles {
        let numbered =
            of.iter().enumerate().map(|(at, title)| ((*title).to_owned(), vec![at as u32]));
        let count = |term: &str| {
            let under = of.iter().filter(|title| terms(title).contains(&term.to_owned())).count();
            Ok::<_, ()>((under + elsewhere.iter().filter(|word| **word == term).count()) as u64)
        };
        Titles::read(numbered, count).unwrap()
    }

    #[test]
    fn a_title_is_named_in_full_or_short() {
        let titles = titles(
            &["The Warkworth House", "Rice House", "Lan Hong House", "Rosa's B&B"],
            &["rice"],
        );
        assert_eq!(titles.in_text("Does the Warkworth house have wifi?"), [0]);
        assert_eq!(titles.in_text("Is Warkworth or rosas b and b nearer?"), [0, 3]);
        assert_eq!(titles.in_text("I'd like rice."), Vec::<u32>::new());
        assert_eq!(titles.in_text("And the rice house? And Lan Hong?"), [1, 2]);
    }

    #[test]
    fn the_longest_title_counts() {
        let titles = titles(&["Pizza Hut", "Pizza Hut Fen Ditton", "长城饭店", "长城"], &[]);
        assert_eq!(titles.in_text("pizza hut fen ditton, please"), [1]);
        assert_eq!(titles.in_text("我想住长城饭店"), [2]);
        assert_eq!(titles.in_text("长城怎么去"), [3]);
    }
}
