//! `turnstream knowledge`: imports facts, shows, searches and compares graphs, makes packs, embeds
//! facts, generates graphs, and changes the knowledge of running engines.

use std::io::Write;

use clap::Subcommand;
use serde::Serialize;

pub(crate) mod change;
mod embed;
mod import;
mod input;
mod inspect;

pub use change::{KnowledgeDeleteArgs, LineFormat, PutArgs, StatementArgs};
pub use embed::EmbedArgs;
pub use import::{KnowledgeImportArgs, PackArgs};
pub use input::{FormatArg, InputArgs};
pub use inspect::{DiffArgs, LookupArgs, StatsArgs};

use change::{DELETE_EXAMPLES, PUT_EXAMPLES};
use embed::EMBED_EXAMPLES;

use crate::lab::HandedOver;

/// `turnstream knowledge`
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream knowledge stats
  turnstream knowledge lookup --query coffee --topic morning
  turnstream knowledge put --source ours --head coffee --relation UsedFor --tail \"wake up\"")]
pub struct KnowledgeArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: KnowledgeCommand,
}

impl KnowledgeArgs {
    /// Whether the last line on standard output is to be a JSON object.
    pub fn json(&self) -> bool {
        match &self.command {
            KnowledgeCommand::Import(args) => args.json,
            KnowledgeCommand::Stats(args) => args.json,
            KnowledgeCommand::Lookup(args) => args.json,
            KnowledgeCommand::Diff(args) => args.json,
            KnowledgeCommand::Pack(args) => args.json,
            KnowledgeCommand::Embed(args) => args.json,
            KnowledgeCommand::Generate(args) => args.json(),
            KnowledgeCommand::Put(args) => args.statements.json,
            KnowledgeCommand::Delete(args) => args.statements.json,
        }
    }
}

/// The operations on knowledge.
#[derive(Clone, Debug, Subcommand)]
pub enum KnowledgeCommand {
    /// Compile ConceptNet assertions or tables of facts into a snapshot
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(KnowledgeImportArgs),
    /// Count what a snapshot holds, by language, source, relation and concept
    #[command(after_help = STATS_EXAMPLES)]
    Stats(StatsArgs),
    /// Show the facts that join queries and topics, and those that touch them
    #[command(after_help = LOOKUP_EXAMPLES)]
    Lookup(LookupArgs),
    /// Show the facts in which two snapshots differ
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffArgs),
    /// Make a pack: the compact source form that ships inside the program
    #[command(after_help = PACK_EXAMPLES)]
    Pack(PackArgs),
    /// Make the vectors of all facts, for ranking by meaning
    #[command(after_help = EMBED_EXAMPLES)]
    Embed(EmbedArgs),
    /// Make up a graph of ConceptNet's size and shape, for tests of scale
    Generate(HandedOver),
    /// Write facts to the log's topic of knowledge, for engines to learn while they serve
    #[command(after_help = PUT_EXAMPLES)]
    Put(PutArgs),
    /// Retract facts on the log's topic of knowledge
    #[command(after_help = DELETE_EXAMPLES)]
    Delete(KnowledgeDeleteArgs),
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  turnstream knowledge import conceptnet-assertions-5.7.0.csv.gz --out conceptnet.snapshot
  turnstream knowledge import conceptnet-assertions-5.7.0.csv.gz --language en,zh --out two.snapshot
  turnstream knowledge import facts.tsv more.tsv.gz --source ours --out facts.snapshot --json
  turnstream knowledge import a.csv.gz b.tsv,source=ours,language=zh,format=triples --out g.snapshot

TSV columns are relation, head, tail, weight and, optionally, source and sentence. A negative
weight, or a relation named Not..., denies the fact. A response says a fact by its sentence, if it
has one, as it is, and else writes its head and tail with their capitals. Bad lines are reported by
number and left out. The order of the files is no matter: a fact that one source repeats keeps its
largest weight.";

const STATS_EXAMPLES: &str = "\
Examples:
  turnstream knowledge stats
  turnstream knowledge stats facts.snapshot --json";

const LOOKUP_EXAMPLES: &str = "\
Examples:
  turnstream knowledge lookup --query coffee,morning --topic \"wake up\"
  turnstream knowledge lookup --query dog --topic bark --limit 0 --json";

const DIFF_EXAMPLES: &str = "\
Examples:
  turnstream knowledge diff old.snapshot new.snapshot
  turnstream knowledge diff pack facts.snapshot --limit 0 --json > differences.jsonl

A fact is one statement of one source. Lines begin with - where only the first snapshot has the
fact, + where only the second has it, and ~ where its weight or denial changed.";

const PACK_EXAMPLES: &str = "\
Examples:
  turnstream knowledge pack conceptnet-en.tsv.gz --out src/weights/pack/conceptnet-en.tsv.zst";

/// Runs a command; results go to `out`, progress to standard error.
///
/// # Errors
/// A file cannot be read or written, or is refused; the message names it and the remedy.
pub fn execute(args: &KnowledgeArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.command {
        KnowledgeCommand::Import(args) => import::import(args, out),
        KnowledgeCommand::Stats(args) => inspect::stats(args, out),
        KnowledgeCommand::Lookup(args) => inspect::look_up(args, out),
        KnowledgeCommand::Diff(args) => inspect::differ(args, out),
        KnowledgeCommand::Pack(args) => import::pack(args, out),
        KnowledgeCommand::Embed(args) => embed::embed(args, out),
        KnowledgeCommand::Generate(args) => args.execute().map(drop),
        KnowledgeCommand::Put(args) => change::put(args, out),
        KnowledgeCommand::Delete(args) => change::delete(args, out),
    }
}

fn print_json(out: &mut dyn Write, value: &impl Serialize) -> anyhow::Result<()> {
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    Ok(())
}

#[cfg(test)]
mod tests;
