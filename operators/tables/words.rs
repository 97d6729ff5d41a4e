//! The words of questions to tables: of row operations, and of the columns that questions are about.
//! Those that ask for a column in Chinese are in [`cells`](super::cells).

use std::ops::Range;
use std::sync::LazyLock;

use rustc_hash::{FxHashMap, FxHashSet};

use turnstream_ports::script::simplified_text;

use super::columns::stem;

/// The words. The heads of the files describe their format.
const ENGLISH: &str = include_str!("words.txt");
const CHINESE: &str = include_str!("chinese.txt");

/// The weight of a phrase that asks for a column wherever it stands, beside a word of the name of one.
pub(super) const ASKS: f64 = 0.9;

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
    /// The words behind an amount, and whether the amount is an upper bound.
    pub(super) bounds_behind: FxHashMap<String, bool>,
    /// Units, and other words for columns, with the words of these.
    pub(super) units: FxHashMap<String, Vec<String>>,
    /// What asks which rows there are, what stands beside it where rows of a kind are asked for, and
    /// what asks how many there are.
    pub(super) which: FxHashSet<String>,
    pub(super) have: FxHashSet<String>,
    pub(super) counts: FxHashSet<String>,
    /// What means nothing where rows are asked for, and may where a cell is.
    pub(super) verbs: FxHashSet<String>,
    /// Phrases for rows that have a no or 0 in a column, with the words of its name.
    pub(super) without: Vec<(Vec<String>, Vec<String>)>,
    /// The stems of words of columns of yes and no that questions leave out.
    pub(super) bare: FxHashSet<String>,
    /// Words for what the rows of some table are.
    pub(super) subjects: FxHashSet<String>,
    /// What stands beside rows that are compared by name, in Chinese.
    pub(super) compares: FxHashSet<String>,
    /// Phrases that ask for a column, the longest first, with the words of its name, the best first,
    /// and the weight of the phrase beside a word of a column's name, 0..1.
    pub(super) asks: Vec<(Vec<String>, Vec<String>, f64)>,
    pub(super) said: FxHashSet<String>,
    pub(super) asides: FxHashSet<String>,
}

pub(super) static KNOWN: LazyLock<Words> = LazyLock::new(|| Words::of(ENGLISH));
pub(super) static CHINESE_WORDS: LazyLock<Words> = LazyLock::new(|| Words::of(CHINESE));

/// The words that Chinese texts are cut into, beside those of a table.
static DICTIONARY: LazyLock<FxHashSet<String>> =
    LazyLock::new(|| CHINESE_WORDS.all().cloned().collect());
/// The most characters of such a word.
const LONGEST: usize = 16;
/// Numerals of one character, by their values.
const NUMERALS: &str = "零一二三四五六七八九";

impl Words {
    fn of(text: &str) -> Self {
        let mut known = Words::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
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
                "less-behind" | "more-behind" => {
                    known.bounds_behind.extend(words.map(|word| (word, kind == "less-behind")));
                }
                "which" => known.which.extend(words),
                "have" => known.have.extend(words),
                "count" => known.counts.extend(words),
                "verb" => known.verbs.extend(words),
                "without" => known.without.push((words.collect(), columns)),
                "bare" => known.bare.extend(words.map(|word| stem(&word))),
                "subject" => known.subjects.extend(words),
                "compares" => known.compares.extend(words),
                "unit" => known.units.extend(words.map(|word| (word, columns.clone()))),
                "asks" => known.asks.push((words.collect(), columns, ASKS)),
                // "How much does it weigh" asks for no price.
                "asks-else" => known.asks.push((words.collect(), columns, 0.8)),
                "aside" => known.asides.extend(words),
                _ => known.said.extend(words),
            }
        }
        known.asks.sort_by_key(|(phrase, ..)| std::cmp::Reverse(phrase.len()));
        known
    }

    /// Returns all single words.
    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        let maps = [self.extremes.keys().collect::<Vec<_>>(), self.amounts.keys().collect()];
        let of_bounds =
            self.bounds.iter().flat_map(|(words, _)| words).chain(self.bounds_behind.keys());
        let sets = [&self.which, &self.have, &self.counts, &self.said];
        maps.into_iter()
            .flatten()
            .chain(of_bounds)
            .chain(self.units.keys())
            .chain(sets.into_iter().flatten())
    }
}

/// Cuts a Chinese text into the longest words that are known here or to a table, numbers, runs of
/// Latin letters, and single characters. Numbers are in digits.
pub(super) fn chinese_words(text: &str, of_table: &FxHashSet<String>) -> Vec<String> {
    let letters: Vec<char> = simplified_text(text).to_lowercase().chars().collect();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < letters.len() {
        let rest = &letters[at..];
        let known = (1..=rest.len().min(LONGEST)).rev().find_map(|length| {
            let word: String = rest[..length].iter().collect();
            (DICTIONARY.contains(&word) || of_table.contains(&word)).then_some((word, length))
        });
        let run = |is_in: fn(char) -> bool| rest.iter().take_while(|it| is_in(**it)).count();
        let (digits, numerals) = (run(|it| it.is_ascii_digit() || it == '.'), run(is_numeral));
        let latin = run(|it| it.is_ascii_alphabetic());
        let (word, length) = known.unwrap_or_else(|| match (digits, numerals, latin) {
            (1.., ..) if rest[0] != '.' => (rest[..digits].iter().collect(), digits),
            (_, 1.., _) => (number(&rest[..numerals]).to_string(), numerals),
            (.., 1..) => (rest[..latin].iter().collect(), latin),
            _ => (rest[0].to_string(), 1),
        });
        if word.contains(char::is_alphanumeric) {
            found.push(word);
        }
        at += length;
    }
    found
}

/// Returns the places of the runs of Chinese numerals of a text, with their values.
pub(crate) fn numerals(text: &str) -> Vec<(Range<usize>, u64)> {
    let mut found = Vec::new();
    let mut begin = 0;
    while let Some(at) = text[begin..].find(is_numeral).map(|at| begin + at) {
        let rest = &text[at..];
        let end = at + rest.find(|it| !is_numeral(it)).unwrap_or(rest.len());
        found.push((at..end, number(&text[at..end].chars().collect::<Vec<_>>())));
        begin = end;
    }
    found
}

fn is_numeral(character: char) -> bool {
    NUMERALS.contains(character) || "两十百千万".contains(character)
}

/// Returns the number that numerals say: 一百二十 is 120, and so is 一百二.
fn number(numerals: &[char]) -> u64 {
    let (mut sum, mut digit, mut last_unit) = (0, 0, 1);
    for numeral in numerals {
        let unit = match numeral {
            '十' => 10,
            '百' => 100,
            '千' => 1_000,
            '万' => 10_000,
            '两' => {
                digit = 2;
                continue;
            }
            other => {
                digit = NUMERALS.chars().position(|it| it == *other).unwrap_or_default() as u64;
                // Behind 零 a digit counts ones: 两千零五.
                last_unit = if digit == 0 { 1 } else { last_unit };
                continue;
            }
        };
        sum = if unit == 10_000 { (sum + digit).max(1) * unit } else { sum + digit.max(1) * unit };
        (digit, last_unit) = (0, unit);
    }
    sum + digit * (last_unit / 10).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chinese_is_cut_into_known_words_and_numbers() {
        let of_table = FxHashSet::from_iter(["绿茶".to_owned()]);
        let cut = |text| chinese_words(text, &of_table).join(" ");
        assert_eq!(cut("一百块以内的绿茶有哪些？"), "100 块 以内 的 绿茶 有 哪些");
        assert_eq!(cut("两千五以上，12.5元"), "2500 以上 12.5 元");
        assert_eq!(cut("三萬二千塊錢的wifi"), "32000 块钱 的 wifi");
        let numbers = [("十五", 15), ("二十", 20), ("一百零八", 108), ("九百九", 990), ("五", 5)];
        for (numerals, expected) in numbers {
            assert_eq!(number(&numerals.chars().collect::<Vec<_>>()), expected, "{numerals}");
        }
    }
}
