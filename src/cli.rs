//! The command line: flags → configuration → command → exit code.
//!
//! Each command has a file of its name here, with its `Args` and an `execute`. Results go to
//! standard output; logs, progress and errors to standard error. With `--json` the last line on
//! standard output is one JSON object, also where the command failed. A reader that closes
//! standard output early (`turnstream schema turn | head`) ends a command quietly.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

pub mod chat;
pub mod completions;
pub mod demo;
pub mod documents;
pub mod eval;
pub mod explain;
pub mod failure;
pub mod history;
pub mod knowledge;
pub mod link;
pub mod logging;
pub mod models;
mod opening;
pub mod output;
pub mod progress;
pub mod prompts;
pub mod replay;
pub mod run;
pub mod schema;
mod served;
pub mod signals;
#[cfg(test)]
mod tests;
pub mod train;
pub mod transactions;
pub mod validate;
pub mod views;

pub use failure::{InputRefused, Usage};
pub use output::{print_json, stdout};

use logging::LogFormat;

use crate::config::{self, Config, ConfigError, Loaded};

/// What `--help` says below the commands. Exit codes are a promise to scripts.
const AFTER_HELP: &str = "\
Exit codes:
  0  success
  1  failure while running
  2  wrong usage or configuration
  3  input refused as a whole
  4  fenced: another process has our transactional or instance id; look before a restart
  5  the broker cannot be reached, or the client cannot go on; a restart mends it
  6  the log refuses us: topics, permissions, credentials, limits; mend them first

Environment:
  TURNSTREAM_LOG  what is logged where --log-level is not given, such as
                  info,turnstream::commit=debug
  NO_COLOR        no colours, where it is set and not empty

Examples:
  turnstream demo
  turnstream validate --config turnstream.toml
  turnstream run --config turnstream.toml
  turnstream replay log.jsonl.gz --out responses.jsonl --json";

/// A streaming dataflow engine for retrieval-augmented dialogue: turns in, grounded responses
/// and a maintained history out.
#[derive(Debug, Parser)]
#[command(name = "turnstream", version, after_help = AFTER_HELP, subcommand_required = true)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    /// How log lines are written to standard error.
    #[arg(long, global = true, value_enum, default_value_t, help_heading = "Logging")]
    pub log_format: LogFormat,
    /// What is logged: off, error, warn, info, debug or trace, or directives such as
    /// info,turnstream::commit=debug; info where neither this nor TURNSTREAM_LOG says.
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        value_parser = logging::directives,
        help_heading = "Logging"
    )]
    pub log_level: Option<String>,
    /// What is done.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch conversations go through the whole engine.
    Demo(demo::Args),
    /// Talk with the engine.
    Chat(chat::Args),
    /// Serve turns from a log until told to stop.
    Run(run::Args),
    /// Put a log of conversations through the engine, without side effects.
    Replay(replay::Args),
    /// Show how a response came about.
    Explain(explain::Args),
    /// Show the histories that are kept, and why entries left them.
    History(history::Args),
    /// Import facts, and look at what the engine knows.
    Knowledge(knowledge::Args),
    /// Obtain models, and check and measure them.
    Models(models::Args),
    /// Show the prompts that language models are given.
    Prompts(prompts::Args),
    /// Import documents, and look at what is found in them.
    Documents(documents::Args),
    /// Measure the engine's parts on public data sets.
    Eval(eval::Args),
    /// Train the engine's own models on labelled conversations.
    Train(train::Args),
    /// Show the concepts that a text, or each turn of a log, names.
    Link(link::Args),
    /// Count what responses and knowledge amount to, and publish it.
    Views(views::Args),
    /// Show and end transactions that hold readers back.
    Transactions(transactions::Args),
    /// Check a configuration file.
    Validate(validate::Args),
    /// Print the JSON Schema of a record.
    Schema(schema::Args),
    /// Print a completion script for a shell.
    Completions(completions::Args),
}

impl Command {
    /// Whether the last line on standard output is to be a JSON object.
    fn json(&self) -> bool {
        match self {
            Self::Demo(args) => args.json,
            Self::Chat(args) => args.json,
            Self::Explain(args) => args.json,
            Self::Replay(args) => args.json,
            Self::Knowledge(args) => args.json(),
            Self::Models(args) => args.json(),
            Self::Prompts(args) => args.json(),
            Self::Documents(args) => args.json(),
            Self::Eval(args) => args.json(),
            Self::Train(args) => args.json(),
            Self::Link(args) => args.json,
            Self::Transactions(args) => args.json(),
            Self::Validate(args) => args.json,
            Self::History(args) => args.json(),
            Self::Views(args) => args.json,
            Self::Run(_) | Self::Schema(_) | Self::Completions(_) => false,
        }
    }

    /// What is logged where nobody says. What is read by a person stays among itself.
    fn logged(&self) -> &'static str {
        match self {
            Self::Demo(_) | Self::Chat(_) => {
                "warn,turnstream::knowledge=info,turnstream::model::probe=info"
            }
            Self::Explain(_) => "warn",
            _ => logging::DEFAULT,
        }
    }

    /// Runs the command. What it returns is the exit code of a command that has reported by
    /// itself; an error is reported here.
    fn execute(&self, out: &mut (dyn Write + Send)) -> anyhow::Result<Exit> {
        match self {
            Self::Demo(args) => demo::execute(args, out).map(|()| Exit::Success),
            Self::Chat(args) => chat::execute(args, out).map(|()| Exit::Success),
            Self::Explain(args) => explain::execute(args, out).map(|()| Exit::Success),
            Self::Run(args) => run::execute(args, out).map(|()| Exit::Success),
            Self::Replay(args) => replay::execute(args, out),
            Self::Knowledge(args) => knowledge::execute(args, out).map(|()| Exit::Success),
            Self::Models(args) => models::execute(args, out),
            Self::Prompts(args) => prompts::execute(args, out).map(|()| Exit::Success),
            Self::Documents(args) => documents::execute(args, out).map(|()| Exit::Success),
            Self::Eval(args) => eval::execute(args, out).map(|()| Exit::Success),
            Self::Train(args) => train::execute(args, out),
            Self::Link(args) => link::execute(args, out),
            Self::Transactions(args) => transactions::execute(args, out),
            Self::Validate(args) => validate::execute(args, out),
            Self::History(args) => history::execute(args, out).map(|()| Exit::Success),
            Self::Views(args) => views::execute(args, out).map(|()| Exit::Success),
            Self::Schema(args) => schema::execute(args, out).map(|()| Exit::Success),
            Self::Completions(args) => completions::execute(args, out).map(|()| Exit::Success),
        }
    }
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything that was asked for was done.
    Success,
    /// It failed while it ran.
    Failed,
    /// The command line or the configuration is wrong.
    Usage,
    /// The input was refused as a whole.
    InputRefused,
    /// Another process took our transactional id or our group instance id. Started again without
    /// a look for that one, the two would fence each other in turn.
    Fenced,
    /// The broker cannot be reached, or the client cannot go on. A restart goes on from the last
    /// commit.
    Unavailable,
    /// The log refuses us: topics, permissions, credentials, limits. A restart would meet the
    /// same.
    LogRefused,
}

impl Exit {
    /// Every way, by rising number.
    pub const ALL: [Self; 7] = [
        Self::Success,
        Self::Failed,
        Self::Usage,
        Self::InputRefused,
        Self::Fenced,
        Self::Unavailable,
        Self::LogRefused,
    ];

    /// The number that the process ends with.
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

/// Parses the command line, runs the command and reports what went wrong.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let mut out = stdout();
    let exit = match Cli::try_parse_from(&args) {
        Ok(cli) => execute(&cli, &mut out),
        Err(error) => {
            // A closed pipe is nobody's failure, and there is nowhere else to say it.
            let _ = error.print();
            let json = args.iter().any(|arg| arg == "--json");
            usage(&error, json, &mut out)
        }
    };
    exit.into()
}

fn execute(cli: &Cli, out: &mut (dyn Write + Send)) -> Exit {
    logging::start(cli.log_format, cli.log_level.as_deref(), cli.command.logged());
    let done = cli.command.execute(out).and_then(|exit| {
        out.flush()?;
        Ok(exit)
    });
    match done {
        Ok(exit) => exit,
        Err(error) if output::is_closed(&error) => Exit::Success,
        Err(error) => {
            let formats = (cli.log_format, cli.command.json());
            failure::report(&error, formats, out, &mut std::io::stderr())
        }
    }
}

/// What clap had to say and has printed: help and versions are no errors.
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

/// The configuration of a file, or the defaults; what is secret in it is kept out of logs.
///
/// # Errors
/// Every problem of the file.
fn load_config(path: Option<&Path>) -> Result<Loaded<Config>, ConfigError> {
    let loaded = match path {
        Some(path) => config::read::<Config>(path)?,
        None => Loaded::defaults(),
    };
    logging::keep_secret(loaded.concealed());
    loaded.validated()
}
