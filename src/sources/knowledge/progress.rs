//! The progress of an import on standard error: a bar on a terminal, an occasional plain line
//! elsewhere.

use std::io::{IsTerminal, Read};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use turnstream_knowledge::ImportReport;

/// Lines between two plain lines of progress.
const PLAIN_EVERY_LINES: u64 = 1 << 20;

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A bar that is redrawn.
    Bar,
    /// Plain lines.
    Plain,
    /// No progress.
    Silent,
}

impl Progress {
    /// A bar if standard error is a terminal, else plain lines.
    pub fn for_stderr() -> Self {
        if std::io::stderr().is_terminal() { Self::Bar } else { Self::Plain }
    }

    /// Starts the progress of reading a file of `bytes` bytes.
    pub(super) fn file(self, path: &Path, bytes: u64) -> FileProgress {
        self.task(path, bytes, BYTES_TEMPLATE)
    }

    /// Starts the progress of writing a file of `lines` lines.
    pub fn items(self, path: &Path, lines: u64) -> FileProgress {
        self.task(path, lines, LINES_TEMPLATE)
    }

    /// Announces the next step of a long command.
    pub fn step(self, name: &str) {
        if self != Self::Silent {
            eprintln!("{name}");
        }
    }

    fn task(self, path: &Path, length: u64, template: &str) -> FileProgress {
        let name = path.display().to_string();
        let bar = match self {
            Self::Bar => ProgressBar::new(length),
            Self::Plain | Self::Silent => ProgressBar::hidden(),
        };
        // The templates are constant and valid; the test `a_bar_has_a_style` checks them.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(name.clone());
        FileProgress { shown: self, bar, name }
    }
}

const BYTES_TEMPLATE: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {eta}";
const LINES_TEMPLATE: &str = "{msg} {wide_bar} {human_pos}/{human_len} {eta}";

/// Written lines between two updates of the bar.
const BAR_EVERY_LINES: u64 = 1 << 12;

/// The progress of one file.
pub struct FileProgress {
    shown: Progress,
    bar: ProgressBar,
    name: String,
}

impl FileProgress {
    /// Counts the bytes read through the returned reader.
    pub(super) fn wrap<R: Read>(&self, file: R) -> impl Read + use<R> {
        self.bar.wrap_read(file)
    }

    /// Reports that `lines` lines were read.
    pub(super) fn lines(&self, lines: u64) {
        if self.shown == Progress::Plain && lines.is_multiple_of(PLAIN_EVERY_LINES) && lines > 0 {
            eprintln!("{}: {lines} lines", self.name);
        }
    }

    /// Reports that one more line was written; `lines` is the number so far.
    pub fn item(&self, lines: u64) {
        if lines.is_multiple_of(BAR_EVERY_LINES) {
            self.bar.set_position(lines);
            self.lines(lines);
        }
    }

    /// Sets the number of written lines.
    pub fn items(&self, written: u64) {
        self.bar.set_position(written);
        if self.shown == Progress::Plain {
            eprintln!("{}: {written}", self.name);
        }
    }

    /// Ends the progress of a written file.
    pub fn finish(self) {
        self.bar.finish_and_clear();
    }

    /// Ends the progress of a read file.
    pub(super) fn done(self, report: &ImportReport) {
        self.bar.finish_and_clear();
        if self.shown == Progress::Silent {
            return;
        }
        let unfit = match report.unfit {
            0 => String::new(),
            unfit => format!(" ({unfit} unfit to be told)"),
        };
        eprintln!(
            "{}: {} lines, {} facts, {} left out{unfit}, {} bad",
            self.name, report.lines, report.facts, report.skipped, report.bad
        );
        for bad in &report.bad_lines {
            eprintln!("{}:{}: {}", self.name, bad.line, bad.reason);
        }
        let untold = report.bad - report.bad_lines.len() as u64;
        if untold > 0 {
            eprintln!("{}: and {untold} more bad lines", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_a_style() {
        for template in [BYTES_TEMPLATE, LINES_TEMPLATE] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
