//! `turnstream replay`: a log of conversations through the same dataflow, as fast as it goes.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::formats::Format;

/// Put a log of conversations through the engine, as fast as it goes and without side effects.
///
/// Outcomes are written in input order. The same log and configuration give the same bytes,
/// whatever the number of workers, unless --timings is given.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream replay log.jsonl --out responses.jsonl
  turnstream replay validation.jsonl.gz --format dailydialog --out out.jsonl --json
  turnstream replay log.jsonl --out a.jsonl --out-history history.jsonl --history generated
  turnstream replay big.jsonl.gz --out out.jsonl --resume")]
pub struct Args {
    /// The log: JSON lines, plain or gzip; `-` for standard input.
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
    /// The log's shape.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub format: Format,
    /// Where responses go, one JSON record a line; replaced where it exists.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Where changes of histories go, one a line.
    #[arg(long, value_name = "FILE")]
    pub out_history: Option<PathBuf>,
    /// Where turns that were recorded and not answered go, one a line, with the reason.
    #[arg(long, value_name = "FILE")]
    pub out_recorded: Option<PathBuf>,
    /// Where turns that could not be served go, one a line, with the reason.
    #[arg(long, value_name = "FILE")]
    pub out_dead_letters: Option<PathBuf>,
    /// Which replies enter history.
    #[arg(long, value_enum, value_name = "WHICH", default_value_t)]
    pub history: ReplayHistory,
    /// The configuration; the defaults where it is not given. The sections log and commit are
    /// not used: a replay reads and writes files.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Workers of the dataflow, 1 to 256; overrides run.workers.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Option<u32>,
    /// Go on after the last complete conversation that the output files hold.
    #[arg(long, requires = "out")]
    pub resume: bool,
    /// Write the time that each stage took into the responses. Two replays then differ.
    #[arg(long)]
    pub timings: bool,
    /// Print one JSON object with counts and rates as the last line of standard output.
    #[arg(long)]
    pub json: bool,
}

/// Which replies enter history while a log is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReplayHistory {
    /// The logged ones: after our answer is made, the log's own reply is what enters.
    #[default]
    Recorded,
    /// Ours: logged replies are dropped.
    Generated,
}
