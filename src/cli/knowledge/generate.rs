//! `turnstream knowledge generate`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;

use super::print_json;
use crate::cli::failure::Usage;
use crate::knowledge::generate::{GenerateError, GenerateOptions, generate as write_graph};
use crate::knowledge::{KnowledgeError, Progress};

/// `knowledge generate`
#[derive(Clone, Debug, clap::Args)]
pub struct GenerateArgs {
    /// File to write, gzip-compressed
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Concepts; every one is in a fact
    #[arg(long, default_value_t = GenerateOptions::default().concepts, value_name = "N")]
    concepts: u32,
    /// Facts
    #[arg(long, default_value_t = GenerateOptions::default().facts, value_name = "N")]
    facts: u32,
    /// Another seed is another graph of the same shape
    #[arg(long, default_value_t = GenerateOptions::default().seed, value_name = "N")]
    seed: u64,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn generate(args: &GenerateArgs, out: &mut dyn Write) -> anyhow::Result<()> {
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
        return print_json(out, &made);
    }
    writeln!(out, "{}: {facts} facts of {concepts} concepts, {bytes} bytes", args.out.display())?;
    Ok(())
}
