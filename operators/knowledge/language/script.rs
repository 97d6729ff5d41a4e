//! Determines the language of a text from its script.

/// Whether this is a Chinese character.
pub fn is_han(letter: char) -> bool {
    matches!(
        letter,
        '\u{3007}'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{323af}'
    )
}

/// Whether a text contains Chinese characters. One pass over the bytes if it is ASCII.
pub fn has_han(text: &str) -> bool {
    !text.is_ascii() && text.chars().any(is_han)
}

/// Whether a text is written in Chinese: Chinese characters outnumber words of other scripts (runs
/// of other letters). A Chinese word has between one and two characters, so a Chinese sentence with
/// some English words stays Chinese, and "I love 北京" stays English.
pub(super) fn is_chinese(text: &str) -> bool {
    if text.is_ascii() {
        return false;
    }
    let (mut characters, mut words, mut inside) = (0_usize, 0_usize, false);
    for letter in text.chars() {
        let han = is_han(letter);
        let other = !han && letter.is_alphabetic();
        characters += usize::from(han);
        words += usize::from(other && !inside);
        inside = other || (inside && matches!(letter, '\'' | '\u{2019}'));
    }
    characters > words
}
