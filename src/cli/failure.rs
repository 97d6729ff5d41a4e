//! What went wrong, once: on standard error for people, as one JSON object for programs.
//!
//! Commands return [`anyhow::Error`]. Its chain decides the exit code: a [`Usage`] or a
//! [`ConfigError`] in it is wrong usage, an [`InputRefused`] a refused input, everything else a
//! failure while running.

use std::io::Write;

use serde::Serialize;

use super::logging::conceal;
use super::{Exit, print_json};
use crate::config::{ConfigError, Problem};
use crate::knowledge::KnowledgeError;

/// The command line or the configuration cannot be followed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Usage {
    message: String,
    remedy: String,
}

/// The input as a whole cannot be read: it is not there, or is not what it was said to be. A
/// single bad record is not this: it becomes a dead letter.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct InputRefused {
    message: String,
    remedy: String,
    source: Option<anyhow::Error>,
}

impl Usage {
    /// What is wrong, and what to do about it (may be empty).
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: remedy.into() }
    }
}

impl InputRefused {
    /// What is wrong, with the file and where there is one the line, and what to do about it
    /// (may be empty).
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: remedy.into(), source: None }
    }

    /// The error that it was noticed by.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<anyhow::Error>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// An error as programs read it.
#[derive(Debug, Serialize)]
struct Failure {
    /// What is wrong.
    error: String,
    /// Why, the nearest cause first.
    caused_by: Vec<String>,
    /// What to do about it; empty where nothing is known.
    remedy: String,
    /// The exit code of the process.
    exit_code: u8,
    /// Each problem of a configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<Problem>,
}

/// The exit code that an error leads to.
pub fn exit_of(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if cause.is::<Usage>() || cause.is::<ConfigError>() {
            return Exit::Usage;
        }
        if cause.is::<InputRefused>() {
            return Exit::InputRefused;
        }
        if let Some(
            KnowledgeError::Read { .. }
            | KnowledgeError::Import { .. }
            | KnowledgeError::NoFacts { .. },
        ) = cause.downcast_ref()
        {
            return Exit::InputRefused;
        }
    }
    Exit::Failed
}

/// Writes an error to `err` with its causes and remedy, and with `json` to `out` as well.
pub fn report(error: &anyhow::Error, json: bool, out: &mut dyn Write, err: &mut dyn Write) -> Exit {
    let failure = Failure::of(error);
    // A configuration can have many problems, each on a line of its own.
    let mut text = format!("error: {}\n", failure.error.replace('\n', "\nerror: "));
    for cause in &failure.caused_by {
        text.push_str(&format!("  because: {cause}\n"));
    }
    if !failure.remedy.is_empty() {
        text.push_str(&format!("  remedy: {}\n", failure.remedy));
    }
    // Where standard error or output is closed, only the exit code is left to say it.
    let _ = err.write_all(conceal(&text).as_bytes());
    if json {
        let _ = print(error, out);
    }
    exit_of(error)
}

/// Writes an error as one line of JSON.
///
/// # Errors
/// Where `out` cannot be written to.
pub fn print(error: &anyhow::Error, out: &mut dyn Write) -> std::io::Result<()> {
    print_json(out, &Failure::of(error))
}

impl Failure {
    fn of(error: &anyhow::Error) -> Self {
        let mut said = error.to_string();
        let first = said.clone();
        let mut caused_by = Vec::new();
        let mut remedy = "";
        let mut problems = Vec::new();
        for (depth, cause) in error.chain().enumerate() {
            let text = cause.to_string();
            // Many messages already end with that of their cause.
            if depth > 0 && !said.contains(&text) {
                caused_by.push(conceal(&text));
                said = text;
            }
            if let Some(usage) = cause.downcast_ref::<Usage>() {
                remedy = &usage.remedy;
            } else if let Some(refused) = cause.downcast_ref::<InputRefused>() {
                remedy = &refused.remedy;
            } else if let Some(config) = cause.downcast_ref::<ConfigError>() {
                problems = config.problems();
            }
        }
        Self {
            error: conceal(&first),
            caused_by,
            remedy: remedy.to_owned(),
            exit_code: exit_of(error).code(),
            problems,
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use serde_json::{Value, json};

    use super::*;

    fn reported(error: &anyhow::Error) -> (Exit, String, Value) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let exit = report(error, true, &mut out, &mut err);
        let json = serde_json::from_slice(&out).expect("one JSON object");
        (exit, String::from_utf8(err).expect("text"), json)
    }

    #[test]
    fn the_chain_is_told_once_with_the_remedy() {
        let cause = std::io::Error::other("disk on fire");
        let refused = InputRefused::new("log.jsonl: cannot be read", "check the path");
        let error = Err::<(), _>(refused.caused_by(cause)).context("replaying log.jsonl");
        let (exit, text, json) = reported(&error.expect_err("an error"));
        assert_eq!(exit, Exit::InputRefused);
        assert_eq!(
            text,
            "error: replaying log.jsonl\n  because: log.jsonl: cannot be read\n  because: disk \
             on fire\n  remedy: check the path\n"
        );
        assert_eq!(
            json,
            json!({
                "error": "replaying log.jsonl",
                "caused_by": ["log.jsonl: cannot be read", "disk on fire"],
                "remedy": "check the path",
                "exit_code": 3,
            })
        );
    }

    #[test]
    fn a_cause_that_was_told_is_not_told_again() {
        #[derive(Debug, thiserror::Error)]
        #[error("a.bin: {source}")]
        struct Outer {
            source: std::io::Error,
        }
        let outer = Outer { source: std::io::Error::other("no space") };
        let (exit, text, _) = reported(&outer.into());
        assert_eq!((exit, text.as_str()), (Exit::Failed, "error: a.bin: no space\n"));
    }

    #[test]
    fn exit_codes() {
        let config = ConfigError::Invalid(Vec::new());
        let usage = || anyhow::Error::from(Usage::new("a", "b"));
        for (error, exit) in [
            (anyhow::anyhow!("x"), Exit::Failed),
            (usage(), Exit::Usage),
            (usage().context("while"), Exit::Usage),
            (config.into(), Exit::Usage),
            (InputRefused::new("a", "b").into(), Exit::InputRefused),
        ] {
            assert_eq!(exit_of(&error), exit, "{error}");
        }
        let codes = [Exit::Success, Exit::Failed, Exit::Usage, Exit::InputRefused].map(Exit::code);
        assert_eq!(codes, [0, 1, 2, 3]);
    }
}
