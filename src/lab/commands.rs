//! The commands of `turnstream-lab`, each with its arguments and an `execute`. Users run them through
//! `turnstream`, so their help shows that name.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use turnstream_console::logging::{self, LogOptions};
use turnstream_console::{Exit, Program};

pub mod eval;
pub mod knowledge;
pub mod models;
pub mod train;

/// Measures and trains what turnstream ships.
#[derive(Debug, Parser)]
#[command(name = "turnstream", bin_name = "turnstream", version, subcommand_required = true)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    logging: LogOptions,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure the engine's parts on public data sets.
    Eval(eval::EvalArgs),
    /// Train the engine's own models on labelled conversations.
    Train(train::TrainArgs),
    /// Make and measure models.
    Models(models::LabModelsArgs),
    /// Make up a graph.
    Knowledge(knowledge::LabKnowledgeArgs),
}

impl Program for Cli {
    fn logging(&self) -> (&LogOptions, &'static str) {
        // What is measured is served many times in one command, which is nobody's news.
        let default = match &self.command {
            Command::Eval(_) => "warn",
            _ => logging::DEFAULT,
        };
        (&self.logging, default)
    }

    fn json(&self) -> bool {
        match &self.command {
            Command::Eval(args) => args.json(),
            Command::Train(args) => args.json(),
            Command::Models(args) => args.json(),
            Command::Knowledge(args) => args.json(),
        }
    }

    fn execute(&self, out: &mut (dyn Write + Send)) -> anyhow::Result<Exit> {
        match &self.command {
            Command::Eval(args) => eval::execute(args, out).map(|()| Exit::Success),
            Command::Train(args) => train::execute(args, out),
            Command::Models(args) => models::execute(args, out),
            Command::Knowledge(args) => knowledge::execute(args, out),
        }
    }
}

/// Parses the command line, runs the command and reports errors.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    turnstream_console::main::<Cli>(args)
}

#[cfg(test)]
mod tests;
