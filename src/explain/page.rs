//! Lays out text on a page, with columns, wrapping and colours, for terminals and files.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The widest page in columns; wider lines are hard to read.
const MAX_WIDTH: usize = 100;

/// The narrowest page; on a narrower terminal, lines run over.
const MIN_WIDTH: usize = 60;

/// The least room for words beside a row's labels or guides. If there is less, lines run over.
const MIN_ROOM: usize = 16;

/// Wide punctuation that cannot begin a line.
const CLOSING: &str = "，。！？：；、）」』》】〉”’…";

/// Column of a row's second label.
const SECOND: usize = 12;

/// Column of a row's text.
const TEXT: usize = 23;

/// The style of words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ink {
    /// The default style.
    #[default]
    Plain,
    /// The most important words.
    Strong,
    /// Words of lesser importance.
    Quiet,
    /// Labels of rows.
    Label,
    /// A positive result.
    Good,
    /// A negative result.
    Careful,
}

impl Ink {
    fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Strong => Style::new().bold(),
            Self::Quiet => Style::new().dimmed(),
            Self::Label => AnsiColor::Cyan.on_default(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Careful => AnsiColor::Yellow.on_default(),
        }
    }
}

/// Styled words. A no-break space keeps two words on one line.
#[derive(Clone, Debug, Default)]
pub struct Text(Vec<(Ink, String)>);

impl Text {
    /// Makes a text of words in one style.
    pub fn new(ink: Ink, words: impl Into<String>) -> Self {
        Self(vec![(ink, words.into())])
    }

    /// Appends words in a style.
    pub fn and(mut self, ink: Ink, words: impl Into<String>) -> Self {
        self.0.push((ink, words.into()));
        self
    }

    /// Appends a text.
    pub fn then(mut self, text: Self) -> Self {
        self.0.extend(text.0);
        self
    }

    /// Joins texts with a separator.
    pub fn joined(texts: impl IntoIterator<Item = Self>, between: &str) -> Self {
        let mut joined = Self::default();
        for text in texts {
            if !joined.0.is_empty() {
                joined.0.push((Ink::Quiet, between.to_owned()));
            }
            joined.0.extend(text.0);
        }
        joined
    }

    /// Whether the text has no words.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, words)| words.is_empty())
    }

    /// Splits the text into words, each with its styled pieces: a change of style does not end a
    /// word. Wide characters, which are written without spaces, are words of their own.
    fn words(&self) -> Vec<Word> {
        let mut words: Vec<Word> = Vec::new();
        let (mut spaced, mut wide) = (true, false);
        for (ink, text) in &self.0 {
            for character in text.chars() {
                if character.is_whitespace() && character != '\u{a0}' {
                    spaced = true;
                    continue;
                }
                let shown = match character {
                    '\u{a0}' => ' ',
                    // Text from outside must not control the terminal.
                    control if control.is_control() => '\u{fffd}',
                    other => other,
                };
                let is_wide = shown.width() == Some(2);
                let parted = (is_wide || wide) && !CLOSING.contains(shown);
                if spaced || parted || words.is_empty() {
                    words.push(Word { spaced, pieces: Vec::new() });
                }
                (spaced, wide) = (false, is_wide);
                let Some(word) = words.last_mut() else { continue };
                match word.pieces.last_mut() {
                    Some((last, piece)) if last == ink => piece.push(shown),
                    _ => word.pieces.push((*ink, shown.to_string())),
                }
            }
        }
        words
    }
}

/// A word, which stays on one line.
struct Word {
    /// Whether a space precedes the word, unless it begins a line.
    spaced: bool,
    pieces: Vec<(Ink, String)>,
}

impl Word {
    /// The width in columns.
    fn width(&self) -> usize {
        self.pieces.iter().map(|(_, piece)| piece.width()).sum()
    }
}

impl From<&str> for Text {
    fn from(words: &str) -> Self {
        Self::new(Ink::Plain, words)
    }
}

impl From<String> for Text {
    fn from(words: String) -> Self {
        Self::new(Ink::Plain, words)
    }
}

/// The columns of the terminal at standard output, at most 100; 100 without a terminal.
pub fn terminal_width() -> usize {
    let stdout = io::stdout();
    let terminal =
        if stdout.is_terminal() { terminal_size::terminal_size_of(stdout) } else { None };
    terminal.map_or(MAX_WIDTH, |(width, _)| usize::from(width.0)).min(MAX_WIDTH)
}

/// Wraps a text at words to `width` columns; each of its lines keeps its indentation. Appending to
/// a text changes nothing before its [last word](before_last_word).
pub fn wrapped(text: &str, width: usize) -> String {
    let mut out = Vec::new();
    for line in text.split('\n') {
        let words = line.trim_start();
        let (indent, _) = line.split_at(line.len() - words.len());
        // Writing to memory cannot fail, and the output is valid UTF-8.
        let _ = Page::of_width(&mut out, width, false).branch(indent, indent, &words.into());
    }
    out.pop();
    String::from_utf8(out).unwrap_or_default()
}

/// The part of a wrapped text before its last word, which may still grow and move to another line.
pub fn before_last_word(wrapped: &str) -> &str {
    let text = wrapped.trim_end_matches(|character| CLOSING.contains(character));
    let is_wide = |character: char| character.width() == Some(2);
    let parts = |character: char| character.is_whitespace() || is_wide(character);
    let begins = match text.char_indices().next_back() {
        Some((at, last)) if is_wide(last) => at,
        _ => text.rfind(parts).map_or(0, |at| text.ceil_char_boundary(at + 1)),
    };
    text[..begins].trim_end()
}

/// Writes rows.
pub struct Page<'out> {
    out: &'out mut dyn Write,
    width: usize,
    colour: bool,
}

impl<'out> Page<'out> {
    /// A page as wide as the terminal, within bounds; 100 columns without a terminal.
    pub fn new(out: &'out mut dyn Write, colour: bool) -> Self {
        Self::of_width(out, terminal_width().max(MIN_WIDTH), colour)
    }

    /// A page of `width` columns.
    pub fn of_width(out: &'out mut dyn Write, width: usize, colour: bool) -> Self {
        Self { out, width, colour }
    }

    /// The writer below the page.
    pub fn out(&mut self) -> &mut dyn Write {
        self.out
    }

    /// Flushes the writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes an empty line.
    pub fn blank(&mut self) -> io::Result<()> {
        writeln!(self.out)
    }

    /// Writes a rule across the page with a title in it.
    pub fn rule(&mut self, title: &str) -> io::Result<()> {
        let rest = self.width.saturating_sub(title.width() + 4);
        self.ink(Ink::Quiet, "── ")?;
        self.ink(Ink::Strong, title)?;
        self.ink(Ink::Quiet, &format!(" {}", "─".repeat(rest)))?;
        writeln!(self.out)
    }

    /// Writes a paragraph at the left edge.
    pub fn paragraph(&mut self, text: &Text) -> io::Result<()> {
        self.wrapped(0, "", text)
    }

    /// Writes a row: a label, a second label and a text, which wraps in its column. Skips a row
    /// without text.
    pub fn row(&mut self, label: &str, second: &str, text: &Text) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.ink(Ink::Plain, "  ")?;
        self.ink(Ink::Label, label)?;
        let column = self.pad(2 + label.width(), SECOND)?;
        self.ink(Ink::Quiet, second)?;
        let column = self.pad(column + second.width(), TEXT)?;
        self.wrapped(column, &" ".repeat(TEXT), text)
    }

    /// Writes a row of a label and a text.
    pub fn item(&mut self, label: &str, text: &Text) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.ink(Ink::Plain, "  ")?;
        self.ink(Ink::Label, label)?;
        let column = self.pad(2 + label.width(), SECOND)?;
        self.wrapped(column, &" ".repeat(SECOND), text)
    }

    /// Writes a row whose text follows directly after a styled label.
    pub fn headed(&mut self, head: &Text, text: &Text) -> io::Result<()> {
        let head = head.clone().and(Ink::Plain, "  ");
        let column: usize = head.0.iter().map(|(_, words)| words.width()).sum();
        for (ink, words) in &head.0 {
            self.ink(*ink, words)?;
        }
        self.wrapped(column, &" ".repeat(column), text)
    }

    /// Writes spaces from one column to another, at least one.
    fn pad(&mut self, from: usize, to: usize) -> io::Result<usize> {
        let spaces = to.saturating_sub(from).max(1);
        write!(self.out, "{:spaces$}", "")?;
        Ok(from + spaces)
    }

    /// Writes a text; `first` begins its first line and `further` all others.
    pub fn branch(&mut self, first: &str, further: &str, text: &Text) -> io::Result<()> {
        self.guide(first)?;
        self.wrapped(first.width(), further, text)
    }

    /// Wraps words from a column on; further lines begin with `further`.
    fn wrapped(&mut self, column: usize, further: &str, text: &Text) -> io::Result<()> {
        let room = self.width.saturating_sub(further.width()).max(MIN_ROOM);
        let width = self.width.max(further.width() + MIN_ROOM);
        let mut column = column;
        let mut begun = false;
        for word in text.words() {
            let length = word.width();
            let space = usize::from(word.spaced);
            if begun && column + space + length > width {
                writeln!(self.out)?;
                self.guide(further)?;
                column = further.width();
            } else if begun {
                write!(self.out, "{:space$}", "")?;
                column += space;
            }
            if length <= room {
                for (ink, piece) in &word.pieces {
                    self.ink(*ink, piece)?;
                }
                column += length;
            } else {
                column = self.broken(column, (width, further), &word)?;
            }
            begun = true;
        }
        writeln!(self.out)
    }

    /// Breaks a word that is longer than a line.
    fn broken(
        &mut self,
        column: usize,
        (width, further): (usize, &str),
        word: &Word,
    ) -> io::Result<usize> {
        let mut column = column;
        for (ink, piece) in &word.pieces {
            for character in piece.chars() {
                let length = character.width().unwrap_or_default();
                if column + length > width {
                    writeln!(self.out)?;
                    self.guide(further)?;
                    column = further.width();
                }
                self.ink(*ink, character.encode_utf8(&mut [0; 4]))?;
                column += length;
            }
        }
        Ok(column)
    }

    /// Writes the guide at the beginning of a line.
    fn guide(&mut self, guide: &str) -> io::Result<()> {
        self.ink(if guide.trim().is_empty() { Ink::Plain } else { Ink::Quiet }, guide)
    }

    fn ink(&mut self, ink: Ink, words: &str) -> io::Result<()> {
        let style = ink.style();
        if self.colour && !style.is_plain() && !words.is_empty() {
            write!(self.out, "{style}{words}{style:#}")
        } else {
            self.out.write_all(words.as_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(
        width: usize,
        colour: bool,
        write: impl Fn(&mut Page<'_>) -> io::Result<()>,
    ) -> String {
        let mut out = Vec::new();
        write(&mut Page { out: &mut out, width, colour }).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_wrap_in_their_column() {
        let text = Text::from("one two three").and(Ink::Strong, "-four five\u{a0}six");
        let shown = written(TEXT + 10, false, |page| page.row("gate", "yes", &text));
        let (gap, indent) = (" ".repeat(TEXT - SECOND - 3), " ".repeat(TEXT));
        let expected =
            ["  gate      yes", &gap, "one two\n", &indent, "three-four\n", &indent, "five six\n"];
        assert_eq!(shown, expected.concat());
        let item = written(TEXT, false, |page| page.item("flow", &"turn recall".into()));
        assert_eq!(item, "  flow      turn recall\n");
        assert_eq!(written(38, false, |page| page.row("gate", "", &Text::default())), "");
    }

    #[test]
    fn colours_are_only_there_where_they_are_wanted() {
        let text = Text::new(Ink::Good, "yes").and(Ink::Plain, "!");
        let plain = written(60, false, |page| page.paragraph(&text));
        assert_eq!(plain, "yes!\n");
        let coloured = written(60, true, |page| page.paragraph(&text));
        assert!(coloured.starts_with("\u{1b}[") && coloured.ends_with("!\n"), "{coloured:?}");
    }

    #[test]
    fn wide_characters_break_anywhere_but_before_a_full_stop_and_long_words_break() {
        let shown = |text: &str| written(20, false, |page| page.branch("├─ ", "│  ", &text.into()));
        assert_eq!(shown("我想去北京旅游那里。好"), "├─ 我想去北京旅游那\n│  里。好\n");
        assert_eq!(shown("我想去北京旅游那。好"), "├─ 我想去北京旅游\n│  那。好\n");
        assert_eq!(shown("abcdefghijklmnopqrstuv w"), "├─ abcdefghijklmnopq\n│  rstuv w\n");
    }

    #[test]
    fn a_text_wraps_alike_whether_it_is_whole_or_grows() {
        let text = "Baking asks for flour,\n  - yeast and patience\n\n我想去北京旅游那。好ok https://en.example.org/wiki";
        let expected = "Baking asks for\nflour,\n  - yeast and\n  patience\n\n我想去北京旅游\n那。好ok\n\
                        https://en.examp\nle.org/wiki";
        assert_eq!(wrapped(text, 16), expected);
        let mut before = String::new();
        for (end, _) in text.char_indices() {
            let shown = wrapped(&text[..end], 16);
            let shown = before_last_word(&shown);
            assert!(expected.starts_with(shown) && shown.starts_with(&before), "{shown:?}");
            shown.clone_into(&mut before);
        }
        assert!(before.ends_with("好ok") || before.ends_with("examp"), "{before:?}");
    }

    #[test]
    fn what_was_typed_does_not_steer_the_terminal() {
        let shown = written(60, false, |page| page.paragraph(&"a\u{1b}[2Jb".into()));
        assert_eq!(shown, "a\u{fffd}[2Jb\n");
    }
}
