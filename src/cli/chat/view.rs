//! What a person sees: responses as they are written, and notes about what became of a turn.

use std::io::{self, Write};

use anstyle::Style;
use turnstream_schemas::text::is_steering;
use turnstream_schemas::{Outcome, Response};

use turnstream_explain::{Spoken, before_last_word, recorded_because, wrapped};

/// Where a chat is shown.
pub(super) struct View<'out> {
    out: &'out mut dyn Write,
    colour: bool,
    /// How many columns there are, where lines break at words.
    columns: Option<fn() -> usize>,
    /// The same since the turn began.
    width: Option<usize>,
    /// The attempt that is being written.
    attempt: u64,
    /// What of it was written.
    text: String,
    /// Space at its end, which is not shown unless something follows.
    space: String,
    /// How many bytes of it are shown, lines broken.
    shown: usize,
}

impl<'out> View<'out> {
    pub(super) fn new(
        out: &'out mut dyn Write,
        colour: bool,
        columns: Option<fn() -> usize>,
    ) -> Self {
        let (text, space) = (String::new(), String::new());
        let width = columns.map(|columns| columns());
        Self { out, colour, columns, width, attempt: 0, text, space, shown: 0 }
    }

    pub(super) fn is_coloured(&self) -> bool {
        self.colour
    }

    /// A turn begins: nothing of its response is shown.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.width = self.columns.map(|columns| columns());
        self.clear();
        self.out.flush()
    }

    fn clear(&mut self) {
        self.text.clear();
        self.space.clear();
        self.shown = 0;
    }

    /// Shows a piece of a response that is being written. Where a model begins anew after an
    /// attempt that failed, so does the response.
    pub(super) fn piece(&mut self, attempt: u64, piece: &str) -> io::Result<()> {
        if attempt != self.attempt {
            self.attempt = attempt;
            if !self.text.is_empty() {
                self.end_line()?;
                self.note("the model begins anew")?;
            }
            self.clear();
        }
        // A response has no space around it.
        let text = std::mem::take(&mut self.space) + piece;
        let text = if self.text.is_empty() { text.trim_start() } else { &text };
        let said = text.trim_end();
        self.space = text[said.len()..].to_owned();
        self.text.push_str(said);
        self.show(false)
    }

    /// Shows what was written; where lines break, the last word not before it is whole.
    fn show(&mut self, is_whole: bool) -> io::Result<()> {
        let mut text = harmless(&self.text);
        if let Some(width) = self.width {
            text = wrapped(&text, width);
            if !is_whole {
                text.truncate(before_last_word(&text).len());
            }
        }
        let more = text.get(self.shown..).unwrap_or_default().to_owned();
        self.shown += more.len();
        self.write(&more)
    }

    /// Shows what is left of what was written, and ends its line.
    fn end_line(&mut self) -> io::Result<()> {
        self.show(true)?;
        writeln!(self.out)
    }

    /// The response that is being written ends here.
    pub(super) fn interrupted(&mut self) -> io::Result<()> {
        // The terminal shows `^C` on that line, or what was written is there.
        self.end_line()?;
        self.clear();
        self.note("interrupted; the turn goes on without its model")
    }

    /// Shows what became of a turn: what of the response was not shown as it was written, or why
    /// there is none.
    pub(super) fn outcome(&mut self, outcome: &Outcome, spoken: &Spoken) -> io::Result<()> {
        let is_shown = !self.text.is_empty();
        match outcome {
            Outcome::Response(response) => self.response(response),
            Outcome::Recorded(recorded) => {
                if is_shown {
                    self.end_line()?;
                }
                let because = recorded_because(&recorded.reason, spoken);
                self.note(&format!("recorded and not answered: {because}"))
            }
            Outcome::DeadLetter(letter) => {
                if is_shown {
                    self.end_line()?;
                }
                let (stage, reason) = (letter.fault.stage, &letter.fault.reason);
                self.note(&format!("a dead letter, since {stage} could not serve it: {reason}"))
            }
        }
    }

    fn response(&mut self, response: &Response) -> io::Result<()> {
        if self.text != response.text {
            if !self.text.is_empty() {
                self.end_line()?;
                self.note("what was written was not used; the response is:")?;
            }
            self.clear();
            self.text.clone_from(&response.text);
        }
        self.end_line()?;
        if !response.degraded.is_empty() {
            let stages = response.degraded.iter().map(|degraded| degraded.stage().name());
            let stages: Vec<&str> = stages.collect();
            self.note(&format!("went without {}; /explain says more", stages.join(", ")))?;
        }
        self.out.flush()
    }

    /// Something about the conversation, on a line of its own.
    pub(super) fn note(&mut self, note: &str) -> io::Result<()> {
        let style = if self.colour { Style::new().dimmed() } else { Style::new() };
        let note = format!("({})", harmless(note));
        let note = self.width.map_or(note.clone(), |width| wrapped(&note, width));
        writeln!(self.out, "{style}{note}{style:#}")?;
        self.out.flush()
    }

    /// Text as it is, seen at once.
    pub(super) fn write(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

/// A text that cannot steer the terminal.
fn harmless(text: &str) -> String {
    let harmless = |character: char| match character {
        '\n' | '\t' => character,
        steering if is_steering(steering) => '\u{fffd}',
        other => other,
    };
    text.chars().map(harmless).collect()
}

#[cfg(test)]
mod tests;
