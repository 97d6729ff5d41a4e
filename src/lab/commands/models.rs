//! `turnstream models distil` and `turnstream models bench`.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use serde::Serialize;
use turnstream_console::{Exit, load_config, print_json};
use turnstream_models::{Embedder, ModelsConfig, encoder};

use crate::bench::{self, Load, Speed};

mod distil;

/// `turnstream models`
#[derive(Clone, Debug, clap::Args)]
pub struct LabModelsArgs {
    /// The command.
    #[command(subcommand)]
    pub command: ModelsCommand,
}

/// The commands on models.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelsCommand {
    /// Make a static table from a sentence encoder: nearly as good a first ranking, in microseconds
    #[command(after_help = "\
Fits a table to the vectors that a sentence encoder gives to the facts of a graph and to utterances.
The same texts, encoder and options give the same bytes.

Examples:
  turnstream models distil --out table.safetensors.zst
  turnstream models distil --utterances train.jsonl.gz,format=sgd --epochs 3 --out table.zst")]
    Distil(distil::DistilArgs),
    /// Measure how many sentences a second a model embeds, tokenising included
    #[command(after_help = "\
Facts have about 8 tokens, utterances about 20; both are fixed texts of ours.

Examples:
  turnstream models bench minilm
  turnstream models bench minilm --threads 2 --batch 64 --seconds 10 --json")]
    Bench(BenchArgs),
}

/// `models bench`
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// The model, as `models list` names it, or a folder in the layout of sentence-transformers
    #[arg(value_name = "MODEL")]
    model: String,
    /// Threads that call it concurrently; models.threads if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// Texts per call
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// Seconds for each kind of text
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct CommonArgs {
    /// The configuration, of which [models] and [language_models] are read; the defaults if not
    /// given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

impl CommonArgs {
    fn models(&self) -> anyhow::Result<ModelsConfig> {
        Ok(load_config(self.config.as_deref())?.value.models)
    }
}

impl LabModelsArgs {
    /// Whether the last line on standard output is a JSON object.
    pub fn json(&self) -> bool {
        match &self.command {
            ModelsCommand::Bench(args) => args.common.json,
            ModelsCommand::Distil(args) => args.common.json,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The configuration is wrong, or a model cannot be used.
pub fn execute(args: &LabModelsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.command {
        ModelsCommand::Bench(args) => measure(args, out).map(|()| Exit::Success),
        ModelsCommand::Distil(args) => distil::execute(args, out),
    }
}

/// The result of `models bench`, printed with `--json`.
#[derive(Serialize)]
struct Benched {
    model: String,
    threads: usize,
    batch: u32,
    facts: Speed,
    utterances: Speed,
}

fn measure(args: &BenchArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut models = args.common.models()?;
    models.threads = args.threads.or(models.threads);
    models.embedder = Embedder::from(args.model.clone());
    let encoder = encoder(&models)?.context("\"none\" embeds nothing; name a model")?;
    let threads = models.threads();
    let duration = Duration::from_secs(args.seconds.into());
    let load = Load { threads, batch: args.batch as usize, duration };
    let speed = |texts: &str| {
        let texts: Vec<&str> = texts.lines().collect();
        bench::measure(encoder.as_ref(), &texts, load)
    };
    eprintln!("{} s of facts, then {} s of utterances", args.seconds, args.seconds);
    let (facts, utterances) = (speed(bench::FACTS)?, speed(bench::UTTERANCES)?);
    let model = encoder.name().to_owned();
    let benched = Benched { model, threads, batch: args.batch, facts, utterances };
    if args.common.json {
        return Ok(print_json(out, &benched)?);
    }
    for (name, speed) in [("facts", benched.facts), ("utterances", benched.utterances)] {
        let Speed { sentences_per_second, tokens_per_sentence, .. } = speed;
        writeln!(
            out,
            "{name:<10} {sentences_per_second:>8.0} a second, {tokens_per_sentence:.1} tokens each"
        )?;
    }
    Ok(())
}
