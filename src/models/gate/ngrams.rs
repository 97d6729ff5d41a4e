//! Converts a text to TF-IDF features of its word 1–2-grams and character 2–5-grams, and scores it by
//! a regression over them ([`NgramRegression`]): what the gate reads beside the encoder.
//!
//! The features equal those of scikit-learn's `TfidfVectorizer`: lower case; words of at least two
//! characters; character n-grams within words, each padded by a space on both sides (`char_wb`);
//! 1 + ln tf; smoothed idf, ln((1 + n) ÷ (1 + df)) + 1; words and characters normalised separately to
//! Euclidean length 1. N-grams of few training texts are left out.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

const WORDS: std::ops::RangeInclusive<usize> = 1..=2;
const CHARACTERS: std::ops::RangeInclusive<usize> = 2..=5;
/// A sparse matrix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sparse {
    /// The start of each row, and the end of the last.
    starts: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f32>,
    width: usize,
}

impl Sparse {
    fn new(width: usize) -> Self {
        Self { starts: vec![0], columns: Vec::new(), values: Vec::new(), width }
    }

    fn end_row(&mut self) {
        self.starts.push(self.columns.len());
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the columns of a row with values other than zero, and the values.
    pub fn row(&self, at: usize) -> (&[u32], &[f32]) {
        let range = self.starts[at]..self.starts[at + 1];
        (&self.columns[range.clone()], &self.values[range])
    }
}

/// The n-grams that a [`Vectoriser`] keeps, in the order of its columns: words, then characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ngrams {
    /// Words and pairs of words.
    pub words: Vec<Box<str>>,
    /// Runs of characters.
    pub characters: Vec<Box<str>>,
}

impl Ngrams {
    /// The number of n-grams.
    pub fn len(&self) -> usize {
        self.words.len() + self.characters.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Logistic regression over the n-grams of the current utterance, without the dialogue before it.
#[derive(Clone, Debug)]
pub struct NgramRegression {
    vectoriser: Vectoriser,
    weights: Vec<f32>,
    bias: f32,
}

impl NgramRegression {
    /// Takes a weight for each column of the vectoriser.
    pub fn new(vectoriser: Vectoriser, weights: Vec<f32>, bias: f32) -> Self {
        Self { vectoriser, weights, bias }
    }

    /// Returns the logit: the logarithm of the odds that the utterance needs knowledge.
    pub fn logit(&self, utterance: &str) -> f64 {
        let rows = self.vectoriser.rows(std::iter::once(utterance));
        let (columns, values) = rows.row(0);
        let weighed = columns.iter().zip(values);
        let weighed = weighed.map(|(at, value)| f64::from(self.weights[*at as usize] * value));
        f64::from(self.bias) + weighed.sum::<f64>()
    }

    /// The vectoriser, the weights by column, and the bias.
    pub fn parts(&self) -> (&Vectoriser, &[f32], f32) {
        (&self.vectoriser, &self.weights, self.bias)
    }
}

/// Converts texts to rows.
#[derive(Clone, Debug)]
pub struct Vectoriser {
    words: Terms,
    characters: Terms,
}

impl Vectoriser {
    /// Learns n-grams and their idf from texts, without labels; keeps those of at least `least_texts`
    /// texts.
    pub fn fit<'t>(texts: impl Iterator<Item = &'t str>, least_texts: u32) -> Self {
        let (mut words, mut characters) =
            (DocumentFrequencies::default(), DocumentFrequencies::default());
        for text in texts {
            let text = text.to_lowercase();
            word_ngrams(&text, |term| words.see(term));
            words.end_text();
            character_ngrams(&text, |term| characters.see(term));
            characters.end_text();
        }
        Self { words: words.terms(least_texts), characters: characters.terms(least_texts) }
    }

    /// Takes n-grams with their idf, by column.
    pub fn new(ngrams: &Ngrams, idf: &[f32]) -> Self {
        let (words, characters) = idf.split_at(ngrams.words.len());
        Self {
            words: Terms::new(ngrams.words.iter().cloned(), words.to_vec()),
            characters: Terms::new(ngrams.characters.iter().cloned(), characters.to_vec()),
        }
    }

    /// Returns the n-grams with their idf, by column.
    pub fn ngrams(&self) -> (Ngrams, Vec<f32>) {
        let ngrams = Ngrams { words: self.words.sorted(), characters: self.characters.sorted() };
        (ngrams, [&*self.words.idf, &*self.characters.idf].concat())
    }

    /// Makes a row for each text.
    pub fn rows<'t>(&self, texts: impl Iterator<Item = &'t str>) -> Sparse {
        let words = self.words.idf.len();
        let mut rows = Sparse::new(words + self.characters.idf.len());
        let mut found = Vec::new();
        for text in texts {
            let text = text.to_lowercase();
            word_ngrams(&text, |term| found.extend(self.words.columns.get(term)));
            self.words.weigh(&mut found, 0, &mut rows);
            character_ngrams(&text, |term| found.extend(self.characters.columns.get(term)));
            self.characters.weigh(&mut found, words as u32, &mut rows);
            rows.end_row();
        }
        rows
    }
}

/// The number of texts with each n-gram.
#[derive(Default)]
struct DocumentFrequencies {
    /// For each n-gram, the number of texts and the last of them.
    texts: FxHashMap<Box<str>, (u32, u32)>,
    read: u32,
}

impl DocumentFrequencies {
    fn see(&mut self, term: &str) {
        match self.texts.get_mut(term) {
            Some((_, last)) if *last == self.read => {}
            Some((count, last)) => (*count, *last) = (*count + 1, self.read),
            None => {
                self.texts.insert(term.into(), (1, self.read));
            }
        }
    }

    fn end_text(&mut self) {
        self.read += 1;
    }

    fn terms(self, least_texts: u32) -> Terms {
        let mut kept: Vec<(Box<str>, u32)> = self
            .texts
            .into_iter()
            .filter(|(_, (count, _))| *count >= least_texts)
            .map(|(term, (count, _))| (term, count))
            .collect();
        kept.sort_unstable();
        let idf = |(_, count): &(_, u32)| {
            (f64::from(1 + self.read) / f64::from(1 + count)).ln() as f32 + 1.0
        };
        let idf = kept.iter().map(idf).collect();
        Terms::new(kept.into_iter().map(|(term, _)| term), idf)
    }
}

/// N-grams of one kind.
#[derive(Clone, Debug)]
struct Terms {
    columns: FxHashMap<Box<str>, u32>,
    /// The idf by column.
    idf: Vec<f32>,
}

impl Terms {
    /// Takes terms in the order of their columns.
    fn new(terms: impl Iterator<Item = Box<str>>, idf: Vec<f32>) -> Self {
        Self { columns: terms.zip(0..).collect(), idf }
    }

    /// Returns the terms in the order of their columns, which is that of their spelling.
    fn sorted(&self) -> Vec<Box<str>> {
        let mut terms: Vec<Box<str>> = self.columns.keys().cloned().collect();
        terms.sort_unstable();
        terms
    }

    /// Adds the found terms of a text to the current row, with columns from `first` on, and clears
    /// `found`.
    fn weigh(&self, found: &mut Vec<u32>, first: u32, rows: &mut Sparse) {
        found.sort_unstable();
        let begin = rows.values.len();
        for same in found.chunk_by(|one, other| one == other) {
            let value = (1.0 + (same.len() as f32).ln()) * self.idf[same[0] as usize];
            rows.columns.push(first + same[0]);
            rows.values.push(value);
        }
        found.clear();
        let values = &mut rows.values[begin..];
        let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
        if length > 0.0 {
            values.iter_mut().for_each(|value| *value /= length);
        }
    }
}

/// Calls `each` with the word n-grams of a text in lower case.
fn word_ngrams(text: &str, mut each: impl FnMut(&str)) {
    let words: Vec<&str> = text
        .split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(|word| word.chars().nth(1).is_some())
        .collect();
    for length in WORDS {
        words.windows(length).for_each(|run| each(&run.join(" ")));
    }
}

/// Calls `each` with the character n-grams within the words of a text in lower case. A padded word
/// no longer than n is passed once.
fn character_ngrams(text: &str, mut each: impl FnMut(&str)) {
    let mut starts = Vec::new();
    for word in text.split_whitespace() {
        let padded = format!(" {word} ");
        starts.clear();
        starts.extend(padded.char_indices().map(|(at, _)| at));
        starts.push(padded.len());
        let characters = starts.len() - 1;
        for length in CHARACTERS {
            if characters <= length {
                each(&padded);
                break;
            }
            starts.windows(length + 1).for_each(|run| each(&padded[run[0]..run[length]]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ngrams: fn(&str, &mut Vec<String>), text: &str) -> Vec<String> {
        let mut found = Vec::new();
        ngrams(text, &mut found);
        found
    }

    #[test]
    fn one_letter_words_are_ignored() {
        let words = of(
            |text, found| word_ngrams(text, |it| found.push(it.to_owned())),
            "i'd like a_b, tea",
        );
        assert_eq!(words, ["like", "a_b", "tea", "like a_b", "a_b tea"]);
    }

    #[test]
    fn runs_of_characters_stay_within_words_and_short_words_count_once() {
        let runs =
            of(|text, found| character_ngrams(text, |it| found.push(it.to_owned())), "é  abc");
        let expected = [
            " é", "é ", " é ", " a", "ab", "bc", "c ", " ab", "abc", "bc ", " abc", "abc ", " abc ",
        ];
        assert_eq!(runs, expected);
    }
}
