//! The words of Chinese questions for a cell, and how texts are cut for them.

use std::cmp::Reverse;
use std::sync::LazyLock;

use turnstream_ports::script::{is_han, simplified_text};

/// The words. The head of the file describes its format.
const WORDS: &str = include_str!("words.txt");

/// A phrase that asks for a column.
pub(super) struct Phrase {
    pub(super) text: String,
    pub(super) tokens: Vec<String>,
    /// What the name of the column contains, the best first; nothing if no cell is asked for.
    pub(super) columns: Vec<String>,
    /// Beside the 1 of a column that is named.
    pub(super) weight: f64,
}

pub(super) struct CellWords {
    /// The longest first.
    pub(super) asks: Vec<Phrase>,
    /// What means nothing by itself beside a row and a column, the longest first.
    pub(super) said: Vec<Vec<String>>,
}

pub(super) static KNOWN: LazyLock<CellWords> = LazyLock::new(|| {
    let mut known = CellWords { asks: Vec::new(), said: Vec::new() };
    for line in WORDS.lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.split('|').map(str::trim);
        let (Some(kind), Some(phrases)) = (parts.next(), parts.next()) else { continue };
        let columns = parts.next().unwrap_or_default();
        let columns: Vec<String> = columns.split_whitespace().map(str::to_owned).collect();
        let phrases = phrases.split_whitespace();
        // 多少 alone asks for a price only where nothing else is asked for.
        let weight = if kind == "asks" { 0.9 } else { 0.8 };
        match kind {
            "said" => known.said.extend(phrases.map(tokens)),
            _ => known.asks.extend(phrases.map(|text| Phrase {
                text: text.to_owned(),
                tokens: tokens(text),
                columns: columns.clone(),
                weight,
            })),
        }
    }
    known.asks.sort_by_key(|it| Reverse(it.tokens.len()));
    known.said.sort_by_key(|it| Reverse(it.len()));
    known
});

/// Cuts a text into characters, runs of Latin letters and numbers. Numbers in characters are digits.
pub(super) fn tokens(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    // Whether the run that ends here is of digits, if one does.
    let mut run = None;
    for letter in simplified_text(text).chars() {
        let letter = match letter {
            '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(letter) - 0xfee0).unwrap_or(letter),
            other => other,
        };
        let letter = letter.to_ascii_lowercase();
        let (is_digit, is_latin) = (letter.is_ascii_digit(), letter.is_ascii_alphabetic());
        let goes_on = run == Some(is_digit) && (is_digit || is_latin || letter == '+');
        match found.last_mut() {
            Some(last) if goes_on => last.push(letter),
            _ if is_digit || is_latin => found.push(letter.to_string()),
            _ if is_han(letter) => {
                found.push(digit(letter).map_or_else(|| letter.to_string(), str::to_owned));
            }
            _ => {}
        }
        run = (goes_on || is_digit || is_latin).then_some(is_digit);
    }
    found
}

fn digit(character: char) -> Option<&'static str> {
    const DIGITS: [(&str, &str); 10] = [
        ("一", "1"),
        ("二两俩", "2"),
        ("三", "3"),
        ("四", "4"),
        ("五", "5"),
        ("六", "6"),
        ("七", "7"),
        ("八", "8"),
        ("九", "9"),
        ("十", "10"),
    ];
    DIGITS.iter().find(|(characters, _)| characters.contains(character)).map(|(_, it)| *it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_into_characters_numbers_and_latin_words() {
        let cut = |text| tokens(text).join(" ");
        assert_eq!(cut("C++算法班，2小时"), "c++ 算 法 班 2 小 时");
        assert_eq!(cut("５Ｇ流量三十G"), "5 g 流 量 3 10 g");
        assert_eq!(cut("兩張book14"), "2 张 book 14");
    }
}
