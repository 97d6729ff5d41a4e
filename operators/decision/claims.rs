//! Checks that a language model invents nothing: no number, address or name that is neither in the
//! evidence nor in the dialogue. Numbers may be in digits or in words. Not seen are names at the beginning
//! of an English sentence, and Chinese ones without 《》 or a title behind them (王经理): no capital tells
//! these from other words.

use std::collections::BTreeSet;

use turnstream_knowledge::language::has_han;
use unicode_segmentation::UnicodeSegmentation;

use crate::tables::numerals;

/// Numbers in words, from 0.
const WORDS: [&str; 21] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
];

/// Frequent Chinese surnames. Left out are those in which other words end (对方, 任何, 课程, 历史, 也许).
const SURNAMES: &str = "王李张刘陈杨黄赵吴周徐孙马朱胡郭林罗梁宋郑谢韩唐冯董萧曹袁邓傅沈彭吕苏卢蒋蔡\
     贾丁魏薛叶阎潘杜戴夏钟汪田姜范石姚谭廖邹熊陆郝孔崔邱秦江顾侯邵孟";

/// What people are called behind their surname.
const TITLES: [&str; 12] = [
    "先生", "女士", "小姐", "经理", "老师", "师傅", "主任", "医生", "店长", "教练", "总监", "律师",
];

/// Returns the first claim of a reply that is in none of the `known` texts; `None` if each is in
/// one.
pub(super) fn unfounded<'r>(reply: &'r str, known: &[&str]) -> Option<&'r str> {
    let known: Vec<String> = known.iter().map(|text| text.to_lowercase()).collect();
    let has = |claim: &str| known.iter().any(|text| holds(text, &claim.to_lowercase()));
    let address = |it: &&str| it.contains("://") || it.contains('@') || is_host(it);
    let edges = |it: char| !it.is_alphanumeric() && it != '/';
    let mut addresses = reply.split_whitespace().filter(address).map(|it| it.trim_matches(edges));
    if let Some(address) = addresses.find(|it| !has(it)) {
        return Some(address);
    }
    let numbers: BTreeSet<String> = known.iter().flat_map(|text| numbers(text)).collect();
    // "One of us" and 万一 count nothing.
    let counts = |number: &str| !["one", "一", "万一", "千万"].contains(&&*number.to_lowercase());
    let is_unknown = |number: &&str| counts(number) && !numbers.contains(&value_of(number));
    if let Some(number) = numbers_of(reply).into_iter().find(is_unknown) {
        return Some(number);
    }
    let mut titles = reply.split('《').skip(1).filter_map(|it| it.split('》').next());
    if let Some(title) = titles.find(|it| !has(it)) {
        return Some(title);
    }
    if let Some(person) = titled(reply).find(|it| !has(it)) {
        return Some(person);
    }
    for sentence in reply.unicode_sentences() {
        let is_chinese = has_han(sentence);
        for (at, word) in sentence.unicode_words().enumerate() {
            // The first word of an English sentence has a capital in any case, and so has "I".
            let is_free = at > 0 || is_chinese;
            let is_name = is_free && word.len() > 1 && word.starts_with(char::is_uppercase);
            let is_own = ["I'm", "I've", "I'll", "I'd"].contains(&word);
            if is_name && !is_own && !has(word) {
                return Some(word);
            }
        }
    }
    None
}

/// Returns the surnames with a title that stand in a Chinese text.
fn titled(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices().filter(|(_, letter)| SURNAMES.contains(*letter)).filter_map(
        |(at, letter)| {
            let behind = &text[at + letter.len_utf8()..];
            let title = TITLES.iter().find(|title| behind.starts_with(**title))?;
            Some(&text[at..at + letter.len_utf8() + title.len()])
        },
    )
}

/// Whether a word is the name of a host, with or without a path: `returns.example.com/why`.
fn is_host(word: &str) -> bool {
    let host =
        word.split('/').next().unwrap_or_default().trim_matches(|it: char| !it.is_alphanumeric());
    let is_label =
        |it: &str| it.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    let last = host.rsplit_once('.').map(|(_, last)| last);
    host.split('.').all(|label| !label.is_empty() && is_label(label))
        && last
            .is_some_and(|it| it.len() > 1 && it.bytes().all(|letter| letter.is_ascii_lowercase()))
}

/// Returns the values of all numbers of a text.
fn numbers(text: &str) -> Vec<String> {
    numbers_of(text).into_iter().map(value_of).collect()
}

/// Returns the numbers of a text: in digits with what parts them (`49.50`, `18:30`), in words, and in
/// Chinese numerals.
fn numbers_of(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut begin = 0;
    while let Some(at) = text[begin..].find(|it: char| it.is_ascii_digit()).map(|at| begin + at) {
        let parts = |it: char| matches!(it, '.' | ',' | ':');
        let rest = &text[at..];
        let end = rest.find(|it: char| !it.is_ascii_digit() && !parts(it)).unwrap_or(rest.len());
        found.push(rest[..end].trim_end_matches(parts));
        begin = at + end;
    }
    found.extend(text.unicode_words().filter(|word| place_in_words(word).is_some()));
    for (place, _) in numerals(text) {
        let (numeral, behind) = (&text[place.clone()], &text[place.end..]);
        // 十分抱歉 is very sorry, and counts nothing.
        let is_very = numeral == "十" && behind.starts_with('分') && !behind.starts_with("分钟");
        if !is_very {
            found.push(numeral);
        }
    }
    found
}

/// Returns the value of a number in words as digits; another one as it is.
fn value_of(number: &str) -> String {
    let in_words = place_in_words(number).map(|it| it as u64);
    let numeral = || numerals(number).first().map(|(_, value)| *value);
    in_words.or_else(numeral).map_or_else(|| number.to_owned(), |it| it.to_string())
}

fn place_in_words(word: &str) -> Option<usize> {
    WORDS.iter().position(|known| word.eq_ignore_ascii_case(known))
}

/// Whether a text contains a claim, and not only as a part of a longer number or word.
fn holds(text: &str, claim: &str) -> bool {
    let joins = |it: Option<char>| it.is_some_and(|it| it.is_ascii_alphanumeric());
    text.match_indices(claim).any(|(at, found)| {
        !joins(text[..at].chars().next_back()) && !joins(text[at + found.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_nowhere_is_found() {
        let known = [
            "Returns: you have fourteen days, or 30 with a receipt.",
            "Is Ann there? I paid £49.50",
        ];
        for (reply, claim) in [
            ("You have 14 days, or 30 with a receipt.", None),
            ("You have 3 days.", Some("3")),
            ("It was £49.50, Ann.", None),
            ("It was £49.5.", Some("49.5")),
            ("Please write to Bert. I'm sure he helps.", Some("Bert")),
            ("See https://example.org/returns.", Some("https://example.org/returns")),
            ("Write to help@example.org", Some("help@example.org")),
            ("Sure! Fourteen days it is.", None),
            ("It was 50 EUR.", Some("50")),
            ("It was £49.", Some("49")),
            ("You have three days.", Some("three")),
            ("One of us helps you.", None),
            ("It takes 1 day.", Some("1")),
            ("See returns.example.com for more.", Some("returns.example.com")),
        ] {
            assert_eq!(unfounded(reply, &known), claim, "{reply}");
        }
        assert_eq!(unfounded("一共15天。", &["14天"]), Some("15"));
        assert_eq!(unfounded("一共14天。", &["14天"]), None);
        assert_eq!(unfounded("一共十四天。", &["14天"]), None);
        assert_eq!(unfounded("十分抱歉，一定帮您看看。", &["14天"]), None);
        assert_eq!(unfounded("三天就到。", &["14天"]), Some("三"));
        assert_eq!(unfounded("Anna会联系您。", &["14天内退货"]), Some("Anna"));
        assert_eq!(unfounded("请看《退货指南》。", &["14天内退货"]), Some("退货指南"));
        assert_eq!(unfounded("请看《退货指南》。", &["退货指南: 14天"]), None);
        assert_eq!(unfounded("请您联系王经理。", &["店长每天都在"]), Some("王经理"));
        assert_eq!(unfounded("请您联系王经理。", &["我找王经理"]), None);
        assert_eq!(unfounded("请您联系店长，或者问老师。", &["14天"]), None);
        assert_eq!(unfounded("Until 18:30.", &["18 of 30 shops"]), Some("18:30"));
        assert_eq!(unfounded("Until 18:30.", &["Open until 18:30, daily."]), None);
    }
}
