//! `turnstream knowledge generate`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use turnstream_console::{Exit, Usage, print_json};
use turnstream_sources::knowledge::{KnowledgeError, Progress};

use crate::generate::{GenerateError, GenerateOptions, generate as write_graph};

/// `turnstream knowledge`
#[derive(Clone, Debug, clap::Args)]
pub struct LabKnowledgeArgs {
    /// The command.
    #[command(subcommand)]
    pub command: KnowledgeCommand,
}

/// The commands on knowledge.
#[derive(Clone, Debug, Subcommand)]
pub enum KnowledgeCommand {
    /// Make up a graph of ConceptNet's size and shape, for tests of scale
    #[command(after_help = GENERATE_EXAMPLES)]
    Generate(GenerateArgs),
}

const GENERATE_EXAMPLES: &str = "\
Examples:
  turnstream knowledge generate --out large.csv.gz
  turnstream knowledge generate --concepts 10000 --facts 30000 --seed 7 --out small.csv.gz";

impl LabKnowledgeArgs {
    /// Whether the last line on standard output is a JSON object.
    pub fn json(&self) -> bool {
        let KnowledgeCommand::Generate(args) = &self.command;
        args.json
    }
}

/// Runs the command.
///
/// # Errors
/// The file cannot be written, or no graph of the shape exists.
pub fn execute(args: &LabKnowledgeArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let KnowledgeCommand::Generate(args) = &args.command;
    generate(args, out).map(|()| Exit::Success)
}

/// `knowledge generate`
#[derive(Clone, Debug, clap::Args)]
pub struct GenerateArgs {
    /// File to write, gzip-compressed
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Concepts, each in at least one fact
    #[arg(long, default_value_t = GenerateOptions::default().concepts, value_name = "N")]
    concepts: u32,
    /// Facts
    #[arg(long, default_value_t = GenerateOptions::default().facts, value_name = "N")]
    facts: u32,
    /// The seed; another seed gives another graph of the same shape
    #[arg(long, default_value_t = GenerateOptions::default().seed, value_name = "N")]
    seed: u64,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

fn generate(args: &GenerateArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let &GenerateArgs { concepts, facts, seed, .. } = args;
    let options = GenerateOptions { concepts, facts, seed };
    write_graph(&args.out, &options, Progress::for_stderr()).map_err(|error| match error {
        GenerateError::Shape { .. } => anyhow::Error::new(Usage::new(error.to_string(), "")),
        GenerateError::Write(source) => {
            KnowledgeError::Write { path: args.out.clone(), source }.into()
        }
    })?;
    let bytes = std::fs::metadata(&args.out).context("the file just written")?.len();
    if args.json {
        let file = args.out.display().to_string();
        let made = json!({
            "file": file, "bytes": bytes, "concepts": concepts, "facts": facts, "seed": seed,
        });
        return Ok(print_json(out, &made)?);
    }
    writeln!(out, "{}: {facts} facts of {concepts} concepts, {bytes} bytes", args.out.display())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::Value;

    use super::*;
    use crate::commands::{Cli, Command};

    fn run(line: &[&str]) -> anyhow::Result<String> {
        let program = ["turnstream", "knowledge", "generate"];
        let Command::Knowledge(args) = Cli::try_parse_from([&program, line].concat())?.command
        else {
            panic!("another command");
        };
        let mut out = Vec::new();
        execute(&args, &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn a_graph_can_be_made_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("facts.csv.gz");
        let file = path.display().to_string();
        let counts = ["--concepts", "500", "--facts", "1500"];
        let made = run(&[&["--out", &file, "--json"], &counts[..]].concat()).expect("made");
        let made: Value = serde_json::from_str(made.trim()).expect("one JSON object");
        assert_eq!((&made["facts"], &made["seed"]), (&json!(1_500), &json!(1)));
        let bytes = std::fs::metadata(&path).expect("made").len();
        assert_eq!((&made["bytes"], &made["file"]), (&json!(bytes), &json!(file)));
        let refused = run(&["--out", &file, "--concepts", "3"]).expect_err("refused");
        assert!(refused.to_string().contains("for each concept"), "{refused}");
    }
}
