//! The rows of a table as an English text can name them, and which of its words are like words of names.

use rustc_hash::{FxHashMap, FxHashSet};
use turnstream_knowledge::terms::terms;

use super::super::codes::is_code;
use super::super::columns::{Columns, amount, stem, words_and_amounts};
use super::super::{Row, subject};
use super::{Cells, Text};

/// The least length of a word that may be misspelt, and the length from which two letters may be.
const MISSPELT: [usize; 2] = [5, 9];
/// Numbers in words, as they may stand for those in names.
pub(in super::super) const NUMBERS: [(&str, &str); 12] = [
    ("one", "1"),
    ("two", "2"),
    ("three", "3"),
    ("four", "4"),
    ("five", "5"),
    ("six", "6"),
    ("seven", "7"),
    ("eight", "8"),
    ("nine", "9"),
    ("ten", "10"),
    ("twenty", "20"),
    ("hundred", "100"),
];

/// The rows of a table as they can be named.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct RowNames {
    /// The stems of the words of each row's name.
    pub(super) names: Vec<Vec<String>>,
    /// The words of names, rising, each with its stem.
    words: Vec<(String, String)>,
    /// The stems of two words of a name, by the two written as one.
    pairs: FxHashMap<String, [String; 2]>,
    /// The ids that are codes, by their first word: all words, and the row.
    pub(super) ids: FxHashMap<String, Vec<(Vec<String>, usize)>>,
    /// The stems of names, columns and kinds. None of them is a misspelling.
    known: FxHashSet<String>,
}

impl RowNames {
    pub(in super::super) fn of(rows: &[Row], columns: &Columns) -> Self {
        let says = |word: &String| word.chars().count() == 1 || !terms(word).is_empty();
        let (mut names, mut words, mut pairs) = (Vec::new(), Vec::new(), FxHashMap::default());
        let mut ids: FxHashMap<String, Vec<(Vec<String>, usize)>> = FxHashMap::default();
        for (at, row) in rows.iter().enumerate() {
            let (id, name) = (row.columns.first(), subject(&row.columns));
            let id = id.filter(|id| Some(&id.name) != name.map(|it| &it.name));
            let id = id.filter(|id| is_code(&id.value)).map(|id| words_and_amounts(&id.value));
            if let Some((first, id)) = id.and_then(|id| Some((id.first()?.clone(), id))) {
                ids.entry(first).or_default().push((id, at));
            }
            let name = words_and_amounts(name.map_or("", |it| &it.value));
            let name = name.into_iter().filter(says);
            let name: Vec<(String, String)> =
                name.map(|word| (word.clone(), stem(&word))).collect();
            for pair in name.windows(2) {
                let both = [pair[0].1.clone(), pair[1].1.clone()];
                pairs.insert(format!("{}{}", pair[0].0, pair[1].0), both);
            }
            names.push(name.iter().map(|(_, stem)| stem.clone()).collect());
            words.extend(name);
        }
        words.sort();
        words.dedup();
        let mut known: FxHashSet<String> = words.iter().map(|(_, stem)| stem.clone()).collect();
        known.extend(columns.columns.iter().flat_map(|column| column.words.iter().cloned()));
        known.extend(columns.kinds.keys().cloned());
        Self { names, words, pairs, ids, known }
    }
}

impl Cells<'_> {
    /// Returns the places of words that are like words of names, each with that word's stem: the
    /// same, misspelt, a number, two words written as one, or one written as two.
    pub(super) fn like(&self, text: &Text) -> Vec<(usize, String)> {
        let mut like = Vec::new();
        let is_name = |stem: &String| self.table.names.contains_key(stem);
        for (at, (word, of_word)) in text.words.iter().zip(&text.stems).enumerate() {
            if is_name(of_word) {
                like.push((at, of_word.clone()));
                continue;
            }
            let number =
                NUMBERS.iter().find(|(name, _)| name == word).map(|(_, it)| (*it).to_owned());
            if let Some(number) = number.filter(is_name) {
                like.push((at, number));
                continue;
            }
            if text.is_said(at) || self.names.known.contains(of_word) {
                continue;
            }
            let joined = text.words.get(at + 1).map(|next| stem(&format!("{word}{next}")));
            if let Some(joined) = joined.filter(is_name) {
                like.extend([(at, joined.clone()), (at + 1, joined)]);
                continue;
            }
            if let Some(both) = self.names.pairs.get(word) {
                like.extend(both.iter().map(|stem| (at, stem.clone())));
                continue;
            }
            let first = |text: &str| text.chars().next();
            let (words, letter) = (&self.names.words, first(word));
            let begin = words.partition_point(|(name, _)| first(name) < letter);
            let near = words[begin..].iter().take_while(|(name, _)| first(name) == letter);
            let misspelt = near.filter(|(name, _)| is_misspelt(word, name));
            like.extend(misspelt.map(|(_, stem)| (at, stem.clone())));
        }
        like.sort();
        like.dedup();
        like
    }
}

/// Whether a word is another one with a letter too many, too few, wrong or swapped, or two in a long
/// word. The first letter, which is seldom wrong, is not looked at.
fn is_misspelt(word: &str, name: &str) -> bool {
    let shorter = word.len().min(name.len());
    let has_digit = |it: &str| it.bytes().any(|it| it.is_ascii_digit());
    let most = 1 + usize::from(shorter >= MISSPELT[1]);
    shorter >= MISSPELT[0]
        && word.len().abs_diff(name.len()) <= most
        && !has_digit(word)
        && !has_digit(name)
        && strsim::osa_distance(word, name) <= most
}

/// Returns the one of several names of which an English text has all words, the longest; `None` if it has
/// none, or two as long. What stands in brackets counts for nothing.
pub(crate) fn named_among(names: &[&str], text: &str) -> Option<usize> {
    let number = |word: String| match NUMBERS.iter().find(|(name, _)| *name == word) {
        Some((_, digits)) => (*digits).to_owned(),
        None => stem(&word),
    };
    let said: FxHashSet<String> = words_and_amounts(text).into_iter().map(number).collect();
    let length = |name: &&str| {
        let name = name.split('(').next().unwrap_or_default();
        let counts = |word: &String| amount(word).is_some() || !terms(word).is_empty();
        let words: Vec<String> =
            words_and_amounts(name).into_iter().filter(counts).map(number).collect();
        if words.iter().all(|word| said.contains(word)) { words.len() } else { 0 }
    };
    let lengths: Vec<usize> = names.iter().map(length).collect();
    let most = lengths.iter().copied().max().unwrap_or_default();
    let mut best = (0..names.len()).filter(|at| most > 0 && lengths[*at] == most);
    best.next().filter(|_| best.next().is_none())
}
