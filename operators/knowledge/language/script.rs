//! Which language a text is in, told from its script.

/// Is this a Chinese character?
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

/// Does a text hold Chinese characters? One pass over its bytes where it does not.
pub fn has_han(text: &str) -> bool {
    !text.is_ascii() && text.chars().any(is_han)
}

/// Is a text written in Chinese? It is where Chinese characters outnumber words of other scripts
/// (runs of other letters): a Chinese word has between one and two characters, so that a Chinese
/// sentence with some English words stays Chinese, and "I love 北京" stays English.
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
