//! How far an import is: a bar on a terminal, a plain line now and then elsewhere. All of it on
//! standard error.

use std::io::{IsTerminal, Read};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use turnstream_knowledge::ImportReport;

/// A plain line is written each time so many lines were read.
const PLAIN_EVERY_LINES: u64 = 1 << 20;

/// Where progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A bar that is redrawn.
    Bar,
    /// A line at a time.
    Plain,
    /// Nowhere.
    Silent,
}

impl Progress {
    /// A bar where standard error is a terminal, else plain lines.
    pub fn for_stderr() -> Self {
        if std::io::stderr().is_terminal() { Self::Bar } else { Self::Plain }
    }

    /// Begins to read a file of so many bytes.
    pub(super) fn file(self, path: &Path, bytes: u64) -> FileProgress {
        self.task(path, bytes, BYTES_TEMPLATE)
    }

    /// Begins to write a file of so many lines.
    pub(super) fn items(self, path: &Path, lines: u64) -> FileProgress {
        self.task(path, lines, LINES_TEMPLATE)
    }

    /// Says what a long command does next.
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
        // The templates are ours and hold: `a_bar_has_a_style` would fail otherwise.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(name.clone());
        FileProgress { shown: self, bar, name }
    }
}

const BYTES_TEMPLATE: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {eta}";
const LINES_TEMPLATE: &str = "{msg} {wide_bar} {human_pos}/{human_len} {eta}";

/// A bar is redrawn each time so many lines were written.
const BAR_EVERY_LINES: u64 = 1 << 12;

/// How far one file is.
pub(super) struct FileProgress {
    shown: Progress,
    bar: ProgressBar,
    name: String,
}

impl FileProgress {
    /// Counts the bytes that are read.
    pub(super) fn wrap<R: Read>(&self, file: R) -> impl Read + use<R> {
        self.bar.wrap_read(file)
    }

    /// So many lines have been read.
    pub(super) fn lines(&self, lines: u64) {
        if self.shown == Progress::Plain && lines.is_multiple_of(PLAIN_EVERY_LINES) && lines > 0 {
            eprintln!("{}: {lines} lines", self.name);
        }
    }

    /// So many lines have been written.
    pub(super) fn item(&self, lines: u64) {
        if lines.is_multiple_of(BAR_EVERY_LINES) {
            self.bar.set_position(lines);
            self.lines(lines);
        }
    }

    /// So many in all have been written.
    pub(super) fn items(&self, written: u64) {
        self.bar.set_position(written);
        if self.shown == Progress::Plain {
            eprintln!("{}: {written}", self.name);
        }
    }

    /// The file is written.
    pub(super) fn finish(self) {
        self.bar.finish_and_clear();
    }

    /// The file is read.
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
