//! The output for a person: responses as they are written, and notes about turns.

use std::io::{self, Write};

use anstyle::Style;
use turnstream_schemas::text::is_steering;
use turnstream_schemas::{Outcome, Response};

use turnstream_explain::{Spoken, before_last_word, recorded_because, wrapped};

/// The output of a chat.
pub(super) struct View<'out> {
    out: &'out mut dyn Write,
    colour: bool,
    /// Returns the number of columns, if lines break at words.
    columns: Option<fn() -> usize>,
    /// The number of columns since the turn began.
    width: Option<usize>,
    /// The text so far.
    text: String,
    /// The number of bytes shown, after breaking lines.
    shown: usize,
}

impl<'out> View<'out> {
    pub(super) fn new(
        out: &'out mut dyn Write,
        colour: bool,
        columns: Option<fn() -> usize>,
    ) -> Self {
        let width = columns.map(|columns| columns());
        Self { out, colour, columns, width, text: String::new(), shown: 0 }
    }

    pub(super) fn is_coloured(&self) -> bool {
        self.colour
    }

    /// Begins a turn; nothing of its response is shown yet.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.width = self.columns.map(|columns| columns());
        self.clear();
        self.out.flush()
    }

    fn clear(&mut self) {
        self.text.clear();
        self.shown = 0;
    }

    /// Shows what is written of a response so far. If a model starts again after a failed attempt, the
    /// response starts again too.
    pub(super) fn written(&mut self, so_far: &str) -> io::Result<()> {
        // A response has no white space around it.
        let so_far = so_far.trim();
        if !so_far.starts_with(&self.text) {
            self.end_line()?;
            self.note("the model starts again")?;
            self.clear();
        }
        so_far.clone_into(&mut self.text);
        self.show(false)
    }

    /// Shows the text so far. If lines break at words, the last word is shown only once it is
    /// whole.
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

    /// Shows the rest of the text, and ends its line.
    fn end_line(&mut self) -> io::Result<()> {
        self.show(true)?;
        writeln!(self.out)
    }

    /// Ends the response that is being written.
    pub(super) fn interrupted(&mut self) -> io::Result<()> {
        // The line has either `^C` from the terminal or text on it.
        self.end_line()?;
        self.clear();
        self.note("interrupted; the turn goes on without its model")
    }

    /// Shows the outcome of a turn: the part of the response that is not shown yet, or why there is
    /// none.
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
                self.note("the text above was discarded; the response is:")?;
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

    /// Shows a note about the conversation on its own line.
    pub(super) fn note(&mut self, note: &str) -> io::Result<()> {
        let style = if self.colour { Style::new().dimmed() } else { Style::new() };
        let note = format!("({})", harmless(note));
        let note = self.width.map_or(note.clone(), |width| wrapped(&note, width));
        writeln!(self.out, "{style}{note}{style:#}")?;
        self.out.flush()
    }

    /// Writes text unchanged and flushes it.
    pub(super) fn write(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

/// Replaces the characters that control a terminal.
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
