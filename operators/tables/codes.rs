//! Recognises ids that are codes, such as HF-305, and those that no row has.

use rustc_hash::FxHashSet;

/// The codes of a table, and their shapes.
#[derive(Clone, Debug, Default)]
pub(super) struct Codes {
    codes: FxHashSet<String>,
    shapes: FxHashSet<String>,
}

impl Codes {
    pub(super) fn of<'t>(ids: impl Iterator<Item = &'t str>) -> Self {
        let codes: FxHashSet<String> =
            ids.filter(|id| is_code(id)).map(str::to_uppercase).collect();
        let shapes = codes.iter().map(|code| shape(code)).collect();
        Self { codes, shapes }
    }

    /// Whether a row has this id, in upper case.
    pub(super) fn has(&self, code: &str) -> bool {
        self.codes.contains(code)
    }

    /// Returns the first word of a text that has the letters and the form of a code, and is none.
    pub(super) fn missing(&self, text: &str) -> Option<String> {
        let words = text.split_whitespace();
        let words = words.map(|word| word.trim_matches(|it: char| !it.is_alphanumeric()));
        let mut codes = words.filter(|word| is_code(word)).map(str::to_uppercase);
        codes.find(|code| self.shapes.contains(&shape(code)) && !self.codes.contains(code))
    }
}

/// Whether an id is a code: one word with letters and digits.
pub(super) fn is_code(id: &str) -> bool {
    let has = |is: fn(char) -> bool| id.contains(is);
    has(|it| it.is_ascii_digit()) && has(char::is_alphabetic) && !has(char::is_whitespace)
}

/// Returns a code with 0 for each digit.
fn shape(code: &str) -> String {
    code.chars().map(|it| if it.is_ascii_digit() { '0' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_that_no_row_has_is_missing() {
        let codes = Codes::of(["HF-101", "HF-305", "12", "Oslo"].into_iter());
        for (text, missing) in [
            ("what does hf-999 cost?", Some("HF-999")),
            ("what does HF-305 cost", None),
            ("is HF-305 lighter than (hf-306)?", Some("HF-306")),
            ("my order AB-123", None),
            ("HF-3050", None),
            ("99", None),
        ] {
            assert_eq!(codes.missing(text).as_deref(), missing, "{text}");
        }
    }
}
