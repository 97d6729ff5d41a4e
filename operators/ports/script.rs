//! Determines the language of a text from its script, and writes Chinese in simplified characters.

use std::borrow::Cow;
use std::sync::LazyLock;

use ferrous_opencc::OpenCC;
use ferrous_opencc::config::BuiltinConfig;
use rustc_hash::FxHashMap;

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
pub fn is_chinese(text: &str) -> bool {
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

/// Traditional → simplified, phrase by phrase. The tables are embedded in the program. If they were
/// unreadable, texts would stay unchanged, and the fingerprint would differ.
static CONVERTER: LazyLock<Option<OpenCC>> =
    LazyLock::new(|| OpenCC::from_config(BuiltinConfig::T2s).ok());

/// Traditional → simplified, where they differ.
static SIMPLIFIED: LazyLock<FxHashMap<char, char>> = LazyLock::new(found_forms);

/// The blocks that contain traditional characters.
const BLOCKS: [std::ops::RangeInclusive<u32>; 3] =
    [0x3400..=0x9fff, 0xf900..=0xfaff, 0x2_0000..=0x3_23af];

fn found_forms() -> FxHashMap<char, char> {
    let mut forms = FxHashMap::default();
    let Some(table) = CONVERTER.as_ref() else { return forms };
    let mut buffer = [0; 4];
    for letter in BLOCKS.into_iter().flatten().filter_map(char::from_u32) {
        let simplified = table.convert(letter.encode_utf8(&mut buffer));
        let mut letters = simplified.chars();
        if let (Some(form), None) = (letters.next(), letters.next())
            && form != letter
        {
            forms.insert(letter, form);
        }
    }
    // The simplified form of some characters has a simplified form itself.
    let further: Vec<(char, char)> =
        forms.iter().filter_map(|(from, to)| Some((*from, *forms.get(to)?))).collect();
    forms.extend(further);
    forms
}

/// All characters that have a simplified form, with that form.
pub fn simplified_forms() -> impl Iterator<Item = (char, char)> {
    SIMPLIFIED.iter().map(|(from, to)| (*from, *to))
}

/// The simplified form of a character.
pub fn simplified(letter: char) -> char {
    SIMPLIFIED.get(&letter).copied().unwrap_or(letter)
}

/// Traditional characters that simplified texts use as well (乾隆).
const IN_BOTH: char = '乾';

/// A text in simplified characters, otherwise unchanged. Unlike a lemma, it depends on the words
/// around a character: 乾隆 stays, 乾淨 is 干净.
pub fn simplified_text(text: &str) -> Cow<'_, str> {
    if !has_han(text) {
        return Cow::Borrowed(text);
    }
    let traditional = |letter: char| letter != IN_BOTH && simplified(letter) != letter;
    match CONVERTER.as_ref() {
        Some(converter) if text.chars().any(traditional) => Cow::Owned(converter.convert(text)),
        _ => Cow::Borrowed(text),
    }
}
