//! `turnstream train`: trains the engine's own models on labelled conversations.

use std::io::Write;

use clap::Subcommand;

use turnstream_console::{Exit, InputRefused, Usage, print_json};

mod adapter;
mod consistency;
mod gate;
mod integration;
mod persona;

/// `turnstream train`
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = gate::EXAMPLES)]
pub struct TrainArgs {
    /// The training.
    #[command(subcommand)]
    pub command: TrainCommand,
}

impl TrainArgs {
    /// Whether the last line on standard output is a JSON object.
    pub fn json(&self) -> bool {
        match &self.command {
            TrainCommand::Adapter(args) => args.json,
            TrainCommand::Gate(args) => args.json,
            TrainCommand::Consistency(args) => args.json,
            TrainCommand::Integration(args) => args.json,
            TrainCommand::Persona(args) => args.json,
        }
    }
}

/// The parts to train.
#[derive(Clone, Debug, Subcommand)]
pub enum TrainCommand {
    /// Train the gate: does a turn need knowledge? (RAGate-MHA)
    #[command(after_help = gate::EXAMPLES)]
    Gate(Box<gate::TrainGateArgs>),
    /// Write the examples from which a language model's adapter learns the gate (RAGate-PEFT)
    #[command(after_help = adapter::EXAMPLES)]
    Adapter(adapter::TrainAdapterArgs),
    /// Train attention over evidence and history: what is the response made from? (DH-RAG)
    #[command(after_help = integration::EXAMPLES)]
    Integration(integration::IntegrationArgs),
    /// Train consistency: does a response agree with its evidence? (UniMS-RAG)
    #[command(after_help = consistency::EXAMPLES)]
    Consistency(consistency::TrainConsistencyArgs),
    /// Train persona and knowledge: which belong together? (PK-ICR)
    #[command(after_help = persona::EXAMPLES)]
    Persona(persona::TrainPersonaArgs),
}

/// Runs a command, and writes its results to `out`.
///
/// # Errors
/// The data cannot be read, or the training fails.
pub fn execute(args: &TrainArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.command {
        TrainCommand::Adapter(args) => adapter::execute(args, out),
        TrainCommand::Gate(args) => gate::execute(args, out),
        TrainCommand::Integration(args) => integration::execute(args, out),
        TrainCommand::Consistency(args) => consistency::execute(args, out),
        TrainCommand::Persona(args) => persona::execute(args, out),
    }
}
