//! Checks that a language model invents nothing: no number, address or name that is neither in the
//! evidence nor in the dialogue.

use unicode_segmentation::UnicodeSegmentation;

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

/// Returns the first claim of a reply that is in none of the `known` texts; `None` if each is in
/// one.
pub(super) fn unfounded<'r>(reply: &'r str, known: &[&str]) -> Option<&'r str> {
    let known: Vec<String> = known.iter().map(|text| text.to_lowercase()).collect();
    let has = |claim: &str| known.iter().any(|text| holds(text, &claim.to_lowercase()));
    let address = |it: &&str| it.contains("://") || it.contains('@') || it.starts_with("www.");
    let edges = |it: char| !it.is_alphanumeric() && it != '/';
    let mut addresses = reply.split_whitespace().filter(address).map(|it| it.trim_matches(edges));
    if let Some(address) = addresses.find(|it| !has(it)) {
        return Some(address);
    }
    for sentence in reply.unicode_sentences() {
        for (at, word) in sentence.unicode_words().enumerate() {
            let is_number = word.starts_with(|first: char| first.is_ascii_digit());
            // The first word of a sentence has a capital in any case, and so has "I".
            let is_name = at > 0 && word.len() > 1 && word.starts_with(char::is_uppercase);
            let is_own = ["I'm", "I've", "I'll", "I'd"].contains(&word);
            if (is_number && !has(word) && !has_in_words(word, &has))
                || (is_name && !is_own && !has(word))
            {
                return Some(word);
            }
        }
    }
    None
}

/// Whether the known texts have a small number in words.
fn has_in_words(number: &str, has: &impl Fn(&str) -> bool) -> bool {
    let word = number.parse().ok().and_then(|it: usize| WORDS.get(it));
    word.is_some_and(|word| has(word))
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
        ] {
            assert_eq!(unfounded(reply, &known), claim, "{reply}");
        }
        assert_eq!(unfounded("一共15天。", &["14天"]), Some("15"));
        assert_eq!(unfounded("一共14天。", &["14天"]), None);
    }
}
