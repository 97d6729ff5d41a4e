//! Log lines on standard error, for people or programs, with secrets masked.
//!
//! The level of a line says who must act:
//!
//! - `error`: a person, now. Turns are not served, or the process ends.
//! - `warn`: a person, soon. The engine went on without something: a degraded stage, a retried
//!   transaction, a dead letter that may have no reader.
//! - `info`: no action. The process started, got or lost partitions, stopped.
//! - `debug`: no action; for people who configure the engine. Decisions and their reasons.
//! - `trace`: no action; for people who develop the engine.
//!
//! `--log-level` overrides the variable `TURNSTREAM_LOG`, which overrides the command's default
//! (`info`; the demo's output is for people, and an evaluation serves the same turns many times, so both
//! log warnings only).

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::RwLock;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use turnstream_ports::secret::MASK;

use turnstream_engine::panics;

/// The variable that sets the log level.
pub const VARIABLE: &str = "TURNSTREAM_LOG";

/// The default log level.
pub const DEFAULT: &str = "info";

/// Shorter values, in bytes, are not masked: they occur in half of all words.
const MIN_CONCEALED_BYTES: usize = 4;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people; coloured on a terminal.
    #[default]
    Pretty,
    /// One JSON object a line.
    Json,
}

/// The flags about logging that every command takes.
#[derive(Clone, Debug, clap::Args)]
pub struct LogOptions {
    /// How log lines are written to standard error.
    #[arg(long, global = true, value_enum, default_value_t, help_heading = "Logging")]
    pub log_format: LogFormat,
    /// The levels to log: off, error, warn, info, debug or trace, or directives such as
    /// info,turnstream_engine::commit=debug; info, for most commands, if neither this nor
    /// TURNSTREAM_LOG is given.
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        value_parser = directives,
        help_heading = "Logging"
    )]
    pub log_level: Option<String>,
}

/// Checks directives such as `info,turnstream_engine::commit=debug`, for clap.
///
/// # Errors
/// The problem of the directives.
pub fn directives(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Starts logging, including panics. `default` applies without a flag or variable. A second call
/// changes nothing.
pub fn start(format: LogFormat, level: Option<&str>, default: &str) {
    let variable = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let wanted = level.or(variable.as_deref()).unwrap_or(default);
    let (filter, flaw) = match EnvFilter::try_new(wanted) {
        Ok(filter) => (filter, None),
        Err(flaw) => (EnvFilter::new(DEFAULT), Some(flaw)),
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Stderr);
    // This fails only if a subscriber is set already.
    let _ = match format {
        LogFormat::Pretty => lines.with_ansi(is_coloured()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    panics::tell_all();
    if let Some(flaw) = flaw {
        tracing::warn!(variable = VARIABLE, %flaw, "logging at info instead");
    }
}

/// Whether standard error is a terminal and `NO_COLOR` is not set.
fn is_coloured() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
}

/// Values to mask, the longest first.
static SECRETS: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// Masks these values in every log line and error from now on. Call it with
/// [`Loaded::concealed`](turnstream_engine::config::Loaded::concealed) as soon as a configuration
/// is read.
pub fn keep_secret<'a>(values: impl Iterator<Item = &'a str>) {
    let mut secrets = SECRETS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    for value in values.filter(|value| value.len() >= MIN_CONCEALED_BYTES) {
        // JSON and debug output write a value with escapes.
        let escaped = serde_json::Value::from(value).to_string();
        let escaped = &escaped[1..escaped.len() - 1];
        for form in [value, escaped] {
            if !secrets.iter().any(|secret| secret == form) {
                secrets.push(form.to_owned());
            }
        }
    }
    secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
}

/// Masks every secret value in a text.
pub fn conceal(text: &str) -> String {
    masked(text, &SECRETS.read().unwrap_or_else(|poisoned| poisoned.into_inner())).into_owned()
}

fn masked<'a>(text: &'a str, secrets: &[String]) -> Cow<'a, str> {
    let mut text = Cow::Borrowed(text);
    for secret in secrets {
        if text.contains(secret.as_str()) {
            text = Cow::Owned(text.replace(secret.as_str(), MASK));
        }
    }
    text
}

/// Standard error, with secrets masked.
struct Stderr;

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Line<io::Stderr>;

    fn make_writer(&'a self) -> Self::Writer {
        Line { bytes: Vec::new(), to: io::stderr() }
    }
}

/// One line, masked and written as a whole when it is dropped.
struct Line<W: Write> {
    bytes: Vec<u8>,
    to: W,
}

impl<W: Write> Write for Line<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> Drop for Line<W> {
    fn drop(&mut self) {
        let line = conceal(&String::from_utf8_lossy(&self.bytes));
        // A failure to write the log must not stop the engine.
        let _ = self.to.write_all(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_in_every_form() {
        let secret = "very \"se\\cret\" 7f3a";
        keep_secret([secret, "7f", "7f3a-longer"].into_iter());
        let json = serde_json::json!({ "text": secret }).to_string();
        for text in [format!("a {secret} b"), json, format!("{secret:?}")] {
            let shown = conceal(&text);
            assert!(shown.contains(MASK) && !shown.contains("7f3a"), "{shown}");
        }
        assert_eq!(conceal("7f stays, 7f3a-longer goes"), format!("7f stays, {MASK} goes"));
    }

    #[test]
    fn lines_are_masked_as_a_whole() {
        struct Sink<'a>(&'a mut Vec<u8>);
        impl Write for Sink<'_> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.write(bytes)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        keep_secret(std::iter::once("swordfish-91"));
        let mut written = Vec::new();
        let mut line = Line { bytes: Vec::new(), to: Sink(&mut written) };
        line.write_all(b"password=sword").expect("kept");
        line.write_all(b"fish-91 end\n").expect("kept");
        drop(line);
        assert_eq!(String::from_utf8_lossy(&written), format!("password={MASK} end\n"));
    }

    #[test]
    fn directives_are_checked() {
        for fine in ["debug", "off", "info,turnstream_engine::commit=debug"] {
            assert_eq!(directives(fine).as_deref(), Ok(fine));
        }
        assert!(directives("info,turnstream=loud").is_err());
    }
}
