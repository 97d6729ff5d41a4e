//! The words of questions to tables: of row operations and of the columns that questions are about.
//! English.

use std::sync::LazyLock;

use rustc_hash::{FxHashMap, FxHashSet};

use super::columns::stem;

/// The words. The head of the file describes its format.
const WORDS: &str = include_str!("words.txt");

/// A comparison that a word asks for: the most or the least of a column with one of these words.
#[derive(Clone)]
pub(super) struct Extreme {
    pub(super) is_most: bool,
    pub(super) columns: Vec<String>,
}

#[derive(Default)]
pub(super) struct Words {
    pub(super) extremes: FxHashMap<String, Extreme>,
    /// The words before the name of a column, each with whether it asks for the most of that
    /// column.
    pub(super) amounts: FxHashMap<String, bool>,
    /// The words before an amount, and whether the amount is an upper bound.
    pub(super) bounds: Vec<(Vec<String>, bool)>,
    pub(super) units: FxHashMap<String, Vec<String>>,
    /// Phrases that ask for a column, the longest first, with the words of its name, the best first,
    /// and the weight of the phrase beside a word of a column's name, 0..1.
    pub(super) asks: Vec<(Vec<String>, Vec<String>, f64)>,
    pub(super) said: FxHashSet<String>,
    pub(super) asides: FxHashSet<String>,
}

pub(super) static KNOWN: LazyLock<Words> = LazyLock::new(|| {
    let mut known = Words::default();
    for line in WORDS.lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.split(" | ");
        let (Some(kind), Some(words)) = (parts.next(), parts.next()) else { continue };
        let columns = parts.next().unwrap_or_default();
        let columns: Vec<String> = columns.split_whitespace().map(stem).collect();
        let words = words.split_whitespace().map(str::to_owned);
        match kind {
            "most" | "least" => {
                let extreme = Extreme { is_most: kind == "most", columns };
                known.extremes.extend(words.map(|word| (word, extreme.clone())));
            }
            "most-of" | "least-of" => {
                known.amounts.extend(words.map(|word| (word, kind == "most-of")));
            }
            "less" | "more" => known.bounds.push((words.collect(), kind == "less")),
            "unit" => known.units.extend(words.map(|word| (word, columns.clone()))),
            "asks" => known.asks.push((words.collect(), columns, 0.9)),
            // "How much does it weigh" asks for no price.
            "asks-else" => known.asks.push((words.collect(), columns, 0.8)),
            "aside" => known.asides.extend(words),
            _ => known.said.extend(words),
        }
    }
    known.asks.sort_by_key(|(phrase, ..)| std::cmp::Reverse(phrase.len()));
    known
});
