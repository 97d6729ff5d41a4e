//! The program `turnstream`: flags → configuration → command → exit code.
//!
//! Each command has a file of its name here, with its arguments and an `execute`. `turnstream_console`
//! parses the command line, reports a failure and ends the process. Commands that measure and train
//! are handed to `turnstream-lab`, beside this program.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use turnstream_console::logging::{self, LogOptions};
use turnstream_console::{Exit, Program};

mod annotations;
pub mod chat;
pub mod completions;
pub mod dead_letters;
pub mod demo;
pub mod diff;
pub mod documents;
pub mod explain;
pub mod gateway;
pub mod history;
pub mod knowledge;
mod lab;
pub mod link;
mod logged;
pub mod models;
pub mod new;
mod opening;
pub mod prompts;
pub mod replay;
mod responses;
pub mod run;
pub mod schema;
mod served;
pub mod teach;
#[cfg(test)]
mod tests;
pub mod transactions;
mod utterances;
pub mod validate;
pub mod verify;
pub mod views;

use lab::HandedOver;

/// The text of `--help` below the commands. Scripts rely on the exit codes.
const AFTER_HELP: &str = "\
Exit codes:
  0  success
  1  failure while running
  2  wrong usage or configuration
  3  input refused as a whole
  4  fenced: another process has our transactional or instance id; find it before a restart
  5  the broker cannot be reached, or the client cannot go on; a restart helps
  6  the log refuses us: topics, permissions, credentials, limits; fix them first

Environment:
  TURNSTREAM_LOG  what is logged if --log-level is not given, such as
                  info,turnstream_engine::commit=debug
  NO_COLOR        no colours, if set and not empty

Examples:
  turnstream demo
  turnstream new teahouse
  turnstream validate --config turnstream.toml
  turnstream run --config turnstream.toml
  turnstream replay log.jsonl.gz --out responses.jsonl --json";

/// A streaming dataflow engine for retrieval-augmented dialogue: turns in, grounded responses
/// and a maintained history out.
#[derive(Debug, Parser)]
#[command(name = "turnstream", version, after_help = AFTER_HELP, subcommand_required = true)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    logging: LogOptions,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch conversations go through the whole engine.
    Demo(demo::DemoArgs),
    /// Talk with the engine.
    Chat(chat::ChatArgs),
    /// Write a small company to start from.
    New(new::NewArgs),
    /// Serve turns from a log until told to stop.
    Run(run::RunArgs),
    /// Connect chat front ends and agent desks by HTTP.
    Gateway(gateway::GatewayArgs),
    /// Put a log of conversations through the engine, without side effects.
    Replay(replay::ReplayArgs),
    /// Compare two replays of a log.
    Diff(diff::ReplayDiffArgs),
    /// Derive the responses of a service again, and show which differ.
    Verify(verify::VerifyArgs),
    /// Show how a response came about.
    Explain(explain::ExplainArgs),
    /// Show the histories that are kept, and why entries left them.
    History(history::HistoryArgs),
    /// Import facts, and look at what the engine knows.
    Knowledge(knowledge::KnowledgeArgs),
    /// Obtain models, and check and measure them.
    Models(models::ModelsArgs),
    /// Show the prompts that language models are given.
    Prompts(prompts::PromptsArgs),
    /// Import documents, and search them.
    Documents(documents::DocumentsArgs),
    /// Measure the engine's parts on public data sets.
    Eval(HandedOver),
    /// Train the engine's own models on labelled conversations.
    Train(HandedOver),
    /// Show the concepts that a text, or each turn of a log, names.
    Link(link::LinkArgs),
    /// Count what responses, histories and knowledge hold, and publish the counts.
    Views(views::ViewsArgs),
    /// Show inputs that could not be served, and send them again.
    DeadLetters(dead_letters::DeadLettersArgs),
    /// Show and end transactions that hold readers back.
    Transactions(transactions::TransactionsArgs),
    /// Check a configuration file.
    Validate(validate::ValidateArgs),
    /// List the turns that were not answered, and teach what answers them.
    Teach(teach::TeachArgs),
    /// Print the JSON Schema of a record.
    Schema(schema::SchemaArgs),
    /// Print a completion script for a shell.
    Completions(completions::CompletionsArgs),
}

impl Command {
    /// Whether the last line on standard output is to be a JSON object.
    fn json(&self) -> bool {
        match self {
            Self::Demo(args) => args.json,
            Self::Chat(args) => args.json,
            Self::New(args) => args.json,
            Self::Teach(args) => args.json(),
            Self::Diff(args) => args.json,
            Self::Verify(args) => args.json,
            Self::DeadLetters(args) => args.json(),
            Self::Explain(args) => args.json,
            Self::Replay(args) => args.json,
            Self::Knowledge(args) => args.json(),
            Self::Models(args) => args.json(),
            Self::Prompts(args) => args.json(),
            Self::Documents(args) => args.json(),
            Self::Eval(args) | Self::Train(args) => args.json(),
            Self::Link(args) => args.json,
            Self::Transactions(args) => args.json(),
            Self::Validate(args) => args.json,
            Self::History(args) => args.json(),
            Self::Views(args) => args.json,
            Self::Run(_) | Self::Gateway(_) | Self::Schema(_) | Self::Completions(_) => false,
        }
    }

    /// The default log level. Commands whose output people read log less.
    fn logged(&self) -> &'static str {
        match self {
            Self::Demo(_) | Self::Chat(_) => {
                "warn,turnstream_sources::knowledge=info,turnstream_models::probe=info"
            }
            Self::Explain(_) => "warn",
            _ => logging::DEFAULT,
        }
    }

    /// Runs the command. Returns the exit code of a command that reports by itself.
    fn execute(&self, out: &mut (dyn Write + Send)) -> anyhow::Result<Exit> {
        match self {
            Self::Demo(args) => demo::execute(args, out).map(|()| Exit::Success),
            Self::Chat(args) => chat::execute(args, out).map(|()| Exit::Success),
            Self::Diff(args) => diff::execute(args, out),
            Self::Verify(args) => verify::execute(args, out),
            Self::DeadLetters(args) => dead_letters::execute(args, out),
            Self::Explain(args) => explain::execute(args, out).map(|()| Exit::Success),
            Self::New(args) => new::execute(args, out).map(|()| Exit::Success),
            Self::Teach(args) => teach::execute(args, out).map(|()| Exit::Success),
            Self::Run(args) => run::execute(args, out).map(|()| Exit::Success),
            Self::Gateway(args) => gateway::execute(args, out).map(|()| Exit::Success),
            Self::Replay(args) => replay::execute(args, out),
            Self::Knowledge(args) => knowledge::execute(args, out).map(|()| Exit::Success),
            Self::Models(args) => models::execute(args, out),
            Self::Prompts(args) => prompts::execute(args, out).map(|()| Exit::Success),
            Self::Documents(args) => documents::execute(args, out).map(|()| Exit::Success),
            Self::Eval(args) | Self::Train(args) => args.execute(),
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

impl Program for Cli {
    fn logging(&self) -> (&LogOptions, &'static str) {
        (&self.logging, self.command.logged())
    }

    fn json(&self) -> bool {
        self.command.json()
    }

    fn execute(&self, out: &mut (dyn Write + Send)) -> anyhow::Result<Exit> {
        self.command.execute(out)
    }
}

/// Parses the command line, runs the command and reports a failure.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    turnstream_console::main::<Cli>(args)
}
