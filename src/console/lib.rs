//! Shared by the programs of turnstream: parses the command line, runs the command, reports a
//! failure and ends the process.
//!
//! Results go to standard output; logs, progress and errors go to standard error. With `--json` the
//! last line on standard output is one JSON object, also if the command failed. A reader that
//! closes standard output early (`turnstream schema turn | head`) ends a command quietly.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use turnstream_engine::config::{self, Config, ConfigError, Loaded};

pub mod failure;
pub mod logging;
pub mod output;
pub mod progress;
pub mod signals;

pub use failure::{InputRefused, Usage};
pub use output::{print_json, stdout};

use logging::LogOptions;

/// The command line of a program.
pub trait Program: Parser {
    /// The flags about logging, and the level without them.
    fn logging(&self) -> (&LogOptions, &'static str);

    /// Whether the last line on standard output must be a JSON object.
    fn json(&self) -> bool;

    /// Runs the command. Returns the exit code of a command that reports by itself.
    ///
    /// # Errors
    /// The command failed. The caller reports the error.
    fn execute(&self, out: &mut (dyn Write + Send)) -> anyhow::Result<Exit>;
}

/// Parses the command line, runs the command and reports a failure.
pub fn main<P: Program>(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let mut out = stdout();
    let exit = match P::try_parse_from(&args) {
        Ok(program) => execute(&program, &mut out),
        Err(error) => {
            // A closed pipe is not a failure, and there is no other place to print to.
            let _ = error.print();
            let json = args.iter().any(|arg| arg == "--json");
            usage(&error, json, &mut out)
        }
    };
    exit.into()
}

fn execute(program: &impl Program, out: &mut (dyn Write + Send)) -> Exit {
    let (options, default) = program.logging();
    logging::start(options.log_format, options.log_level.as_deref(), default);
    let done = program.execute(out).and_then(|exit| {
        out.flush()?;
        Ok(exit)
    });
    match done {
        Ok(exit) => exit,
        Err(error) if output::is_closed(&error) => Exit::Success,
        Err(error) => {
            let formats = (options.log_format, program.json());
            failure::report(&error, formats, out, &mut std::io::stderr())
        }
    }
}

/// Handles the result of clap, which is printed already. Help and versions are not errors.
fn usage(error: &clap::Error, json: bool, out: &mut dyn Write) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Success,
        _ => {
            if json {
                let text = error.render().to_string();
                let first = text.lines().next().unwrap_or_default();
                let first = first.trim_start_matches("error: ");
                let _ = failure::print(&Usage::new(first, "see --help").into(), out);
            }
            Exit::Usage
        }
    }
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command did everything that was asked.
    Success,
    /// The command failed while running.
    Failed,
    /// The command line or the configuration is wrong.
    Usage,
    /// The input was refused as a whole.
    InputRefused,
    /// Another process took our transactional id or our group instance id. A restart without
    /// looking for that process would make the two fence each other in turn.
    Fenced,
    /// The broker cannot be reached, or the client cannot go on. A restart continues from the last
    /// commit.
    Unavailable,
    /// The log refuses us: topics, permissions, credentials, limits. A restart would meet the same
    /// refusal.
    LogRefused,
}

impl Exit {
    /// All variants, by rising number.
    pub const ALL: [Self; 7] = [
        Self::Success,
        Self::Failed,
        Self::Usage,
        Self::InputRefused,
        Self::Fenced,
        Self::Unavailable,
        Self::LogRefused,
    ];

    /// The exit code of the process.
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::InputRefused => 3,
            Self::Fenced => 4,
            Self::Unavailable => 5,
            Self::LogRefused => 6,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Loads a configuration file, or the defaults. Its secrets are masked in logs from then on.
///
/// # Errors
/// Every problem of the file.
pub fn load_config(path: Option<&Path>) -> Result<Loaded<Config>, ConfigError> {
    let loaded = match path {
        Some(path) => config::read::<Config>(path)?,
        None => Loaded::defaults(),
    };
    logging::keep_secret(loaded.concealed());
    loaded.validated()
}

#[cfg(test)]
mod tests;
