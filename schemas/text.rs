//! Makes words from outside safe to show in a record, a log or a terminal.

/// Whether a character controls the output instead of being part of the text: a control character (line
/// ends and tabs are among them), or one that changes the direction of writing (Unicode's
/// `Bidi_Control`).
pub fn is_steering(character: char) -> bool {
    let turns = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    turns || character.is_control()
}

/// Returns the text on one line, without characters that [control the output](is_steering), cut
/// after `characters` characters.
pub fn bounded_line(text: &str, characters: usize) -> String {
    let mut line = String::new();
    for word in text.split(|it: char| it.is_whitespace() || is_steering(it)) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if let Some((cut, _)) = line.char_indices().nth(characters) {
            line.truncate(cut);
            line.push('…');
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_short_and_steers_nothing() {
        let text = "\u{1b}[31mred\u{7}\r\n  and\u{202e}drawkcab\u{200f}\t.";
        assert_eq!(bounded_line(text, 80), "[31mred and drawkcab .");
        assert_eq!(bounded_line(&"wide ".repeat(1_000), 9), "wide wide…");
        assert_eq!(bounded_line("é中", 1), "é…");
        assert_eq!(bounded_line("é中", 2), "é中");
        assert_eq!(bounded_line(" \n", 2), "");
    }
}
