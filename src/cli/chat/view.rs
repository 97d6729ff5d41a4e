//! What a person sees: responses as they are written, and notes about what became of a turn.

use std::io::{self, Write};

use anstyle::Style;
use turnstream_schemas::{Outcome, Response};

use crate::explain::{Spoken, recorded_because};

/// Where a chat is shown.
pub(super) struct View<'out> {
    out: &'out mut dyn Write,
    colour: bool,
    /// The attempt that is being written.
    attempt: u64,
    /// What of it is shown.
    shown: String,
    /// Space at its end, which is not shown unless something follows.
    space: String,
}

impl<'out> View<'out> {
    pub(super) fn new(out: &'out mut dyn Write, colour: bool) -> Self {
        Self { out, colour, attempt: 0, shown: String::new(), space: String::new() }
    }

    pub(super) fn is_coloured(&self) -> bool {
        self.colour
    }

    /// A turn begins: nothing of its response is shown.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.shown.clear();
        self.space.clear();
        self.out.flush()
    }

    /// Shows a piece of a response that is being written. Where a model begins anew after an
    /// attempt that failed, so does the response.
    pub(super) fn piece(&mut self, attempt: u64, piece: &str) -> io::Result<()> {
        if attempt != self.attempt {
            self.attempt = attempt;
            if !self.shown.is_empty() {
                writeln!(self.out)?;
                self.note("the model begins anew")?;
            }
            self.shown.clear();
            self.space.clear();
        }
        // A response has no space around it.
        let text = std::mem::take(&mut self.space) + piece;
        let text = if self.shown.is_empty() { text.trim_start() } else { &text };
        let said = text.trim_end();
        self.space = text[said.len()..].to_owned();
        self.shown.push_str(said);
        let said = harmless(said);
        self.write(&said)
    }

    /// The response that is being written ends here.
    pub(super) fn interrupted(&mut self) -> io::Result<()> {
        // The terminal shows `^C` on that line, or what was written is there.
        writeln!(self.out)?;
        self.shown.clear();
        self.note("interrupted; the turn goes on without its model")
    }

    /// Shows what became of a turn: what of the response was not shown as it was written, or why
    /// there is none.
    pub(super) fn outcome(&mut self, outcome: &Outcome, spoken: &Spoken) -> io::Result<()> {
        let is_shown = !self.shown.is_empty();
        match outcome {
            Outcome::Response(response) => self.response(response),
            Outcome::Recorded(recorded) => {
                if is_shown {
                    writeln!(self.out)?;
                }
                let because = recorded_because(&recorded.reason, spoken);
                self.note(&format!("recorded and not answered: {because}"))
            }
            Outcome::DeadLetter(letter) => {
                if is_shown {
                    writeln!(self.out)?;
                }
                let (stage, reason) = (letter.fault.stage, &letter.fault.reason);
                self.note(&format!("a dead letter, since {stage} could not serve it: {reason}"))
            }
        }
    }

    fn response(&mut self, response: &Response) -> io::Result<()> {
        if self.shown != response.text {
            if !self.shown.is_empty() {
                writeln!(self.out)?;
                self.note("what was written was not used; the response is:")?;
            }
            self.write(&harmless(&response.text))?;
        }
        writeln!(self.out)?;
        if !response.degraded.is_empty() {
            let stages: Vec<&str> = response.degraded.iter().map(|stage| stage.name()).collect();
            self.note(&format!("went without {}; /explain says more", stages.join(", ")))?;
        }
        self.out.flush()
    }

    /// Something about the conversation, on a line of its own.
    pub(super) fn note(&mut self, note: &str) -> io::Result<()> {
        let style = if self.colour { Style::new().dimmed() } else { Style::new() };
        writeln!(self.out, "{style}({}){style:#}", harmless(note))?;
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
        control if control.is_control() => '\u{fffd}',
        other => other,
    };
    text.chars().map(harmless).collect()
}

#[cfg(test)]
mod tests;
