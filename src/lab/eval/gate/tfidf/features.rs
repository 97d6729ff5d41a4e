//! A text as TF-IDF of its word 1–2-grams and its character 2–5-grams.
//!
//! As scikit-learn's `TfidfVectorizer` computes it: lower case; words of two characters at least;
//! character n-grams within words, each padded by a space on both sides (`char_wb`); 1 + ln tf;
//! smoothed idf, ln((1 + n) ÷ (1 + df)) + 1; words and characters each of Euclidean length 1.
//! N-grams of one training text alone are left out.

use rustc_hash::FxHashMap;

const WORDS: std::ops::RangeInclusive<usize> = 1..=2;
const CHARACTERS: std::ops::RangeInclusive<usize> = 2..=5;
/// Texts of the training split that an n-gram must be in.
const MIN_TEXTS: u32 = 2;

/// Rows of few values that are not zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sparse {
    /// Where each row begins; one more than there are rows.
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

    /// Rows.
    pub fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The columns of a row that are not zero, and their values.
    pub fn row(&self, at: usize) -> (&[u32], &[f32]) {
        let range = self.starts[at]..self.starts[at + 1];
        (&self.columns[range.clone()], &self.values[range])
    }
}

/// Turns texts into rows.
#[derive(Clone, Debug)]
pub struct Vectoriser {
    words: Terms,
    characters: Terms,
}

impl Vectoriser {
    /// Learns n-grams and their idf from texts, not from their labels.
    pub fn fit<'t>(texts: impl Iterator<Item = &'t str>) -> Self {
        let (mut words, mut characters) = (Counts::default(), Counts::default());
        for text in texts {
            let text = text.to_lowercase();
            word_ngrams(&text, |term| words.see(term));
            words.end_text();
            character_ngrams(&text, |term| characters.see(term));
            characters.end_text();
        }
        Self { words: words.terms(), characters: characters.terms() }
    }

    /// A row for each text.
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

/// Texts that each n-gram is in.
#[derive(Default)]
struct Counts {
    /// N-gram → how many texts, and the last of them.
    texts: FxHashMap<Box<str>, (u32, u32)>,
    read: u32,
}

impl Counts {
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

    fn terms(self) -> Terms {
        let mut kept: Vec<(Box<str>, u32)> = self
            .texts
            .into_iter()
            .filter(|(_, (count, _))| *count >= MIN_TEXTS)
            .map(|(term, (count, _))| (term, count))
            .collect();
        kept.sort_unstable();
        let idf = |(_, count): &(_, u32)| {
            (f64::from(1 + self.read) / f64::from(1 + count)).ln() as f32 + 1.0
        };
        let idf = kept.iter().map(idf).collect();
        let columns = kept.into_iter().zip(0..).map(|((term, _), column)| (term, column));
        Terms { columns: columns.collect(), idf }
    }
}

/// N-grams of one kind.
#[derive(Clone, Debug)]
struct Terms {
    columns: FxHashMap<Box<str>, u32>,
    /// By column.
    idf: Vec<f32>,
}

impl Terms {
    /// Adds a text's terms, which are taken, to the row that is being made, their columns after
    /// `first`.
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

/// The runs of words of a text in lower case.
fn word_ngrams(text: &str, mut each: impl FnMut(&str)) {
    let words: Vec<&str> = text
        .split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(|word| word.chars().nth(1).is_some())
        .collect();
    for length in WORDS {
        words.windows(length).for_each(|run| each(&run.join(" ")));
    }
}

/// The runs of characters within the words of a text in lower case, a padded word that is no longer
/// than a run being given once.
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
    fn words_of_one_letter_are_none() {
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
