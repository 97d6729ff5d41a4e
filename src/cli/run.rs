//! `turnstream run`: serves turns from a log until it is told to stop.

use std::path::PathBuf;

/// Serve turns: read them from the log's topic of turns, write a response, a recorded outcome or
/// a dead letter for each, and keep the history of every conversation.
///
/// SIGTERM and SIGINT end it cleanly: turns in flight are finished and committed first. A second
/// signal ends it at once; nothing is lost or doubled, since what was not committed is read again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream run --config turnstream.toml
  turnstream run --config turnstream.toml --workers 2 --log-format json
  KAFKA_PASSWORD=… turnstream run --config turnstream.toml    (with \"${KAFKA_PASSWORD}\" in it)")]
pub struct Args {
    /// The configuration; the defaults where it is not given. `turnstream validate` explains it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Workers of the dataflow, 1 to 256; overrides run.workers.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Option<u32>,
}
