//! Checks that the answer of a language model is prose that a user may read. Refuses what a model,
//! or a gateway before it, gives by mistake: an empty answer, JSON instead of a sentence, control
//! characters, or an answer that begins a second time in the middle.
//!
//! The check looks at the form only, and repairs nothing: the stage asks the model once more.

use serde_json::Value;
use turnstream_schemas::text::is_steering;

/// Least bytes that a text must repeat from its beginning to count as two attempts at one answer: about four
/// short words, or six Chinese characters. What people repeat ("Thank you, thank you") is shorter.
const REPEATED_BYTES: usize = 16;
/// Least number of different characters in such a beginning; laughter has fewer.
const REPEATED_CHARACTERS: usize = 5;
/// Values that programs write.
const LITERALS: [&str; 7] = ["true", "false", "null", "none", "nil", "undefined", "nan"];

/// Why a text is not prose.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotProse {
    /// It has no word and no number.
    #[error("the answer says nothing")]
    Empty,
    /// It has a control character, or one that changes the direction of writing.
    #[error("the answer has a control character, U+{0:04X}")]
    Steering(u32),
    /// It is `true`, `null` or the like, and nothing else.
    #[error("the answer is a literal such as `true` or `null`, not a sentence")]
    Literal,
    /// It is JSON, or has some, whole or broken.
    #[error("the answer is or contains JSON; it must be plain sentences")]
    Json,
    /// It has two attempts at one answer.
    #[error("the answer breaks off and starts again halfway")]
    BegunTwice,
}

/// Whether a text is prose. The stage does not use an answer that is not, and asks the model once more.
pub fn is_prose(text: &str) -> bool {
    read(text).is_ok()
}

/// Trims a text, and checks that it is prose.
///
/// # Errors
/// If the text is not prose.
pub(super) fn read(text: &str) -> Result<&str, NotProse> {
    let said = text.trim();
    let steering = |(at, it): &(usize, char)| {
        let is_line_end = *it == '\n' || said[*at..].starts_with("\r\n");
        is_steering(*it) && !is_line_end && *it != '\t'
    };
    if let Some((_, character)) = said.char_indices().find(steering) {
        return Err(NotProse::Steering(character.into()));
    }
    // An emoji is an answer; punctuation alone is not.
    if !said.chars().any(|it| it.is_alphanumeric() || !it.is_ascii()) {
        return Err(NotProse::Empty);
    }
    let bare = said.trim_matches(['"', '\'', '`']).to_lowercase();
    if LITERALS.contains(&&*bare) {
        return Err(NotProse::Literal);
    }
    if has_json(said) {
        return Err(NotProse::Json);
    }
    if begins_twice(said) {
        return Err(NotProse::BegunTwice);
    }
    Ok(said)
}

/// Whether a text is a JSON object or list, or contains the beginning, middle or end of an object.
fn has_json(said: &str) -> bool {
    let whole = serde_json::from_str::<Value>(said);
    if whole.is_ok_and(|value| value.is_object() || value.is_array()) {
        return true;
    }
    let begins = |open: char, with: &[char]| {
        let mut opened = said.match_indices(open);
        opened.any(|(at, _)| said[at + 1..].trim_start().starts_with(with))
    };
    // A list counts only at the beginning of the text: elsewhere a bracket before a quotation mark may be
    // prose.
    let list = said.starts_with('[') && begins('[', &['"', '{']);
    begins('{', &['"']) || list || has_name_and_value(said)
}

/// Whether the text has a name in quotation marks, a colon and a value, at its beginning or with a closing
/// brace at its end.
fn has_name_and_value(said: &str) -> bool {
    let is_name = |name: &str| {
        let is_of_name = |it: char| it.is_alphanumeric() || it == '_' || it == '-';
        !name.is_empty() && name.chars().all(is_of_name)
    };
    let is_value = |rest: &str| {
        let begins = |it: char| it == '"' || it == '{' || it == '[' || it.is_ascii_digit();
        rest.starts_with(begins) || LITERALS[..3].iter().any(|literal| rest.starts_with(literal))
    };
    let quotes = said.match_indices('"').map(|(at, _)| at).collect::<Vec<_>>();
    quotes.windows(2).any(|pair| {
        let (name, rest) = (&said[pair[0] + 1..pair[1]], said[pair[1] + 1..].trim_start());
        let is_pair = rest.strip_prefix(':').is_some_and(|rest| is_value(rest.trim_start()));
        is_pair && is_name(name) && (pair[0] == 0 || rest.trim_end().ends_with('}'))
    })
}

/// Whether a text repeats its whole beginning right after it.
fn begins_twice(said: &str) -> bool {
    let short = &said[..said.floor_char_boundary(REPEATED_BYTES)];
    said.match_indices(short).skip(1).any(|(at, _)| {
        // The first attempt may have ended without a full stop.
        let first = said[..at].trim_end_matches(['.', '!', '?', '。', ' ', '\n']);
        let mut characters: Vec<char> = first.chars().collect();
        characters.sort_unstable();
        characters.dedup();
        first.len() >= REPEATED_BYTES
            && characters.len() >= REPEATED_CHARACTERS
            && said[at..].starts_with(first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_accepted() {
        for said in [
            "Green tea is calming.",
            "True, the sun is a star.",
            "True.",
            "42",
            "👍",
            "你好！北京有故宫和长城。",
            "\"Schadenfreude\": joy at what befalls others.",
            "The answer to \"six times seven\": 42.",
            "As [1] says, bread is food; see [\"On Bread\"].",
            "A set is written {1, 2}, and a list\tso:\r\n- one\n- two",
            "Thank you, thank you so much!",
            "谢谢你，谢谢你的帮助！",
            "哈哈哈哈哈哈哈哈哈哈哈哈哈哈",
            "ha ha ha ha ha ha ha ha ha ha ha ha",
            "You can find it in the park. In the park, you can find it.",
        ] {
            assert_eq!(read(&format!(" {said}\n")), Ok(said));
        }
    }

    #[test]
    fn what_is_not_prose_is_refused() {
        let twice = "You can find it in the park. You can find it in the park by the lake.";
        let cut = "You can find it in the paYou can find it in the park.";
        for (said, unfit) in [
            ("", NotProse::Empty),
            (" \n\t", NotProse::Empty),
            ("...", NotProse::Empty),
            ("}", NotProse::Empty),
            ("{}", NotProse::Empty),
            ("true", NotProse::Literal),
            ("`null`", NotProse::Literal),
            ("\"True\"", NotProse::Literal),
            ("None", NotProse::Literal),
            ("{\"answer\": \"Tea.\"}", NotProse::Json),
            ("{ \"answer\": \"Te", NotProse::Json),
            ("Sure! ```json\n{\"answer\": \"Tea.\"}\n```", NotProse::Json),
            ("[\"Tea.\", \"Coffee.\"]", NotProse::Json),
            ("[1, 2, 3]", NotProse::Json),
            ("[{\"text\": \"Te", NotProse::Json),
            ("\"answer\": \"Tea.\"", NotProse::Json),
            ("of tea\", \"sure\": true}", NotProse::Json),
            ("Tea\u{0} is calming.", NotProse::Steering(0)),
            ("Tea \u{1b}[31mis calming.", NotProse::Steering(0x1b)),
            ("Tea is\rcalming.", NotProse::Steering(0x0d)),
            ("Tea is \u{202e}gnimlac.", NotProse::Steering(0x202e)),
            ("Tea is \u{2066}calming.", NotProse::Steering(0x2066)),
            (twice, NotProse::BegunTwice),
            (cut, NotProse::BegunTwice),
            ("北京有很多好玩的北京有很多好玩的地方。", NotProse::BegunTwice),
        ] {
            assert_eq!(read(said), Err(unfit), "{said:?}");
        }
        assert_eq!(NotProse::Steering(0x202e).to_string().split_once("U+").unwrap().1, "202E");
    }
}
