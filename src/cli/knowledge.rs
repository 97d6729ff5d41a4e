//! `turnstream knowledge`: import facts, say what a graph holds, look facts up, make a pack, and
//! change what running engines know.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::json;
use turnstream_operators::knowledge::{BadLine, Format, Graph, ImportOptions};

use crate::knowledge::lookup::{FactRecord, Lookup, lookup};
use crate::knowledge::{self, FileReport, PACK_LOCATION, Progress};

mod change;

use change::{DELETE_EXAMPLES, DeleteArgs, PUT_EXAMPLES, PutArgs};

/// `turnstream knowledge`
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream knowledge stats
  turnstream knowledge lookup --query coffee --topic morning
  turnstream knowledge put --source ours --head coffee --relation UsedFor --tail \"wake up\"")]
pub struct Args {
    /// What is done.
    #[command(subcommand)]
    pub command: KnowledgeCommand,
}

impl Args {
    /// Whether the last line on standard output is to be a JSON object.
    pub fn json(&self) -> bool {
        match &self.command {
            KnowledgeCommand::Import(args) => args.json,
            KnowledgeCommand::Stats(args) => args.json,
            KnowledgeCommand::Lookup(args) => args.json,
            KnowledgeCommand::Pack(args) => args.json,
            KnowledgeCommand::Put(args) => args.statements.json,
            KnowledgeCommand::Delete(args) => args.statements.json,
        }
    }
}

/// What to do with knowledge.
#[derive(Clone, Debug, Subcommand)]
pub enum KnowledgeCommand {
    /// Compile ConceptNet assertions or TSV into a snapshot
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Say how many facts, concepts and relations a snapshot holds
    #[command(after_help = STATS_EXAMPLES)]
    Stats(StatsArgs),
    /// Show the facts that join queries and topics, and those that touch them
    #[command(after_help = LOOKUP_EXAMPLES)]
    Lookup(LookupArgs),
    /// Make a pack: the compact source form that ships inside the program
    #[command(after_help = PACK_EXAMPLES)]
    Pack(PackArgs),
    /// Write facts to the log's topic of knowledge, for engines to learn while they serve
    #[command(after_help = PUT_EXAMPLES)]
    Put(PutArgs),
    /// Take facts back on the log's topic of knowledge
    #[command(after_help = DELETE_EXAMPLES)]
    Delete(DeleteArgs),
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  turnstream knowledge import conceptnet-assertions-5.7.0.csv.gz --out conceptnet.snapshot
  turnstream knowledge import facts.tsv more.tsv.gz --source ours --out facts.snapshot --json

TSV columns are relation, head, tail, weight and, optionally, source. A negative weight, or a
relation named Not..., denies the fact. Bad lines are reported by number and left out.";

const STATS_EXAMPLES: &str = "\
Examples:
  turnstream knowledge stats
  turnstream knowledge stats facts.snapshot --json";

const LOOKUP_EXAMPLES: &str = "\
Examples:
  turnstream knowledge lookup --query coffee,morning --topic \"wake up\"
  turnstream knowledge lookup --query dog --topic bark --limit 0 --json";

const PACK_EXAMPLES: &str = "\
Examples:
  turnstream knowledge pack conceptnet-en.tsv.gz --out src/pack/conceptnet-en.tsv.zst";

/// The format of the files.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FormatArg {
    /// Decided by the first line of each file
    Auto,
    /// ConceptNet's public assertions: uri, relation, start, end, JSON
    ConceptnetCsv,
    /// relation, head, tail, weight, and optionally source
    Tsv,
}

/// Which facts to read.
#[derive(Clone, Debug, clap::Args)]
pub struct InputArgs {
    /// Files to read: plain, gzip or zstd
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What the lines are
    #[arg(long, value_enum, default_value_t = FormatArg::Auto)]
    format: FormatArg,
    /// Language to keep, such as en; "all" keeps every one
    #[arg(long, default_value = "en", value_name = "LANGUAGE")]
    language: String,
    /// Source to name for all facts, instead of what the lines say
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// How many bad lines to report for each file; all are counted
    #[arg(long, default_value_t = 20, value_name = "N")]
    bad_lines: usize,
}

/// `knowledge import`
#[derive(Clone, Debug, clap::Args)]
pub struct ImportArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Snapshot to write
    #[arg(long, value_name = "SNAPSHOT")]
    out: PathBuf,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// `knowledge stats`
#[derive(Clone, Debug, clap::Args)]
pub struct StatsArgs {
    /// Snapshot to read, or "pack" for the shipped one
    #[arg(default_value = PACK_LOCATION)]
    snapshot: String,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// `knowledge lookup`
#[derive(Clone, Debug, clap::Args)]
pub struct LookupArgs {
    /// Queries, separated by commas
    #[arg(long, required = true, value_delimiter = ',', value_name = "CONCEPT")]
    query: Vec<String>,
    /// Topics, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "CONCEPT")]
    topic: Vec<String>,
    /// Snapshot to read, or "pack" for the shipped one
    #[arg(long, default_value = PACK_LOCATION)]
    snapshot: String,
    /// Most facts of each set, strongest first; 0 shows all
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// `knowledge pack`
#[derive(Clone, Debug, clap::Args)]
pub struct PackArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Pack to write
    #[arg(long, value_name = "PACK")]
    out: PathBuf,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// Runs a command; results go to `out`, progress to standard error.
///
/// # Errors
/// A file cannot be read or written, or is refused; the message names it and the remedy.
pub fn execute(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.command {
        KnowledgeCommand::Import(args) => import(args, out),
        KnowledgeCommand::Stats(args) => stats(args, out),
        KnowledgeCommand::Lookup(args) => look_up(args, out),
        KnowledgeCommand::Pack(args) => pack(args, out),
        KnowledgeCommand::Put(args) => change::put(args, out),
        KnowledgeCommand::Delete(args) => change::delete(args, out),
    }
}

impl InputArgs {
    fn options(&self) -> ImportOptions {
        ImportOptions {
            format: match self.format {
                FormatArg::Auto => Format::Auto,
                FormatArg::ConceptnetCsv => Format::ConceptNetCsv,
                FormatArg::Tsv => Format::Tsv,
            },
            language: Some(self.language.clone()).filter(|language| language != "all"),
            source: self.source.clone(),
            bad_lines_kept: self.bad_lines,
        }
    }
}

fn import(args: &ImportArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let progress = Progress::for_stderr();
    let (builder, reports) =
        knowledge::import_files(&args.input.files, &args.input.options(), progress)?;
    let graph = knowledge::write_snapshot(builder, &args.out)?;
    if args.json {
        return print_json(out, &summary(&graph, &reports));
    }
    writeln!(out, "{}", args.out.display())?;
    print_stats(&graph, out)
}

fn pack(args: &PackArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let progress = Progress::for_stderr();
    let (builder, reports) =
        knowledge::import_files(&args.input.files, &args.input.options(), progress)?;
    let graph = builder.into_graph();
    knowledge::write_pack(&graph, &args.out)?;
    let bytes = std::fs::metadata(&args.out).context("the pack just written")?.len();
    if args.json {
        let mut summary = summary(&graph, &reports);
        summary["pack_bytes"] = bytes.into();
        return print_json(out, &summary);
    }
    writeln!(out, "{}: {bytes} bytes", args.out.display())?;
    print_stats(&graph, out)
}

fn stats(args: &StatsArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let graph = knowledge::open(&args.snapshot)?;
    if args.json { print_json(out, &graph.stats()) } else { print_stats(&graph, out) }
}

fn look_up(args: &LookupArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let graph = knowledge::open(&args.snapshot)?;
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let found = lookup(&graph, &args.query, &args.topic, limit);
    for word in &found.unknown {
        tracing::warn!("{word:?} names no concept of the graph");
    }
    if args.json {
        return print_json(out, &found);
    }
    let Lookup { foreseen, unforeseen, unknown } = &found;
    for (name, facts) in [("foreseen", foreseen), ("unforeseen", unforeseen)] {
        writeln!(out, "{name} ({})", facts.len())?;
        for FactRecord { weight, text, relation, source, .. } in facts {
            writeln!(out, "  {weight:<7} {text}  [{relation}, {source}]")?;
        }
    }
    if !unknown.is_empty() {
        writeln!(out, "no concept: {}", unknown.join(", "))?;
    }
    Ok(())
}

/// What an import has done and what the graph holds.
fn summary(graph: &Graph, reports: &[FileReport]) -> serde_json::Value {
    let files: Vec<serde_json::Value> = reports
        .iter()
        .map(|FileReport { path, report }| {
            let bad_lines: &[BadLine] = &report.bad_lines;
            json!({
                "file": path.display().to_string(), "lines": report.lines,
                "facts": report.facts, "skipped": report.skipped, "bad": report.bad,
                "bad_lines": bad_lines,
            })
        })
        .collect();
    let stats = graph.stats();
    json!({
        "facts": stats.facts, "concepts": stats.concepts, "relations": stats.relations,
        "languages": stats.languages, "snapshot_bytes": stats.snapshot_bytes,
        "snapshot": graph.version(), "files": files,
    })
}

fn print_stats(graph: &Graph, out: &mut dyn Write) -> anyhow::Result<()> {
    let stats = graph.stats();
    writeln!(out, "snapshot  {}", graph.version())?;
    writeln!(out, "facts     {}", stats.facts)?;
    writeln!(out, "concepts  {}", stats.concepts)?;
    writeln!(out, "relations {}", stats.relations)?;
    writeln!(out, "languages {}", stats.languages.join(" "))?;
    writeln!(out, "bytes     {}", stats.snapshot_bytes)?;
    Ok(())
}

fn print_json(out: &mut dyn Write, value: &impl Serialize) -> anyhow::Result<()> {
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::Value;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    fn run(line: &[&str]) -> (anyhow::Result<()>, String) {
        let mut out = Vec::new();
        let program = Program::try_parse_from([&["knowledge"], line].concat()).expect("usage");
        let result = execute(&program.args, &mut out);
        (result, String::from_utf8(out).expect("text"))
    }

    fn json_of(line: &[&str]) -> Value {
        let (result, out) = run(line);
        result.expect("success");
        serde_json::from_str(out.lines().last().expect("a line")).expect("one JSON object")
    }

    #[test]
    fn an_import_can_be_asked_and_looked_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (facts, snapshot) = (path("facts.tsv"), path("facts.snapshot"));
        std::fs::write(
            &facts,
            "UsedFor\tcoffee\twake up\t2\nIsA\tcoffee\tdrink\t1\nbad\nDesires\tcat\tcoffee\t-1\n",
        )
        .expect("written");
        let imported = json_of(&["import", &facts, "--out", &snapshot, "--source", "x", "--json"]);
        assert_eq!((&imported["facts"], &imported["concepts"]), (&json!(3), &json!(4)));
        assert_eq!(imported["files"][0]["bad_lines"][0]["line"], 3);

        let stats = json_of(&["stats", &snapshot, "--json"]);
        let size = std::fs::metadata(&snapshot).expect("written").len();
        assert_eq!(
            stats,
            json!({
                "facts": 3, "concepts": 4, "relations": 3, "languages": ["en"],
                "snapshot_bytes": size,
            })
        );
        let line = ["lookup", "--query", "coffee", "--topic", "waking up", "--snapshot", &snapshot];
        let found = json_of(&[&line[..], &["--json"]].concat());
        let denied = json!({
            "head": "cat", "relation": "Desires", "tail": "coffee", "weight": 1.0,
            "negated": true, "source": "x", "text": "cat does not want coffee",
        });
        assert_eq!(found["foreseen"].as_array().map(Vec::len), Some(1));
        assert_eq!(found["foreseen"][0]["text"], "coffee is used for waking up");
        assert!(found["unforeseen"].as_array().is_some_and(|facts| facts.contains(&denied)));
        let (result, text) = run(&line);
        result.expect("success");
        assert!(text.contains("foreseen (1)") && text.contains("unforeseen (2)"), "{text}");
    }

    #[test]
    fn a_pack_is_made_from_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (facts, pack) = (path("facts.tsv"), path("facts.tsv.zst"));
        std::fs::write(&facts, "IsA\tdog\tpet\t1\n").expect("written");
        let made = json_of(&["pack", &facts, "--out", &pack, "--json"]);
        assert_eq!(made["pack_bytes"], std::fs::metadata(&pack).expect("written").len());
        let (result, text) = run(&["import", &pack, "--out", &path("facts.snapshot")]);
        result.expect("success");
        assert!(text.contains("facts     1"), "{text}");
    }

    #[test]
    fn a_refused_file_is_an_error_with_its_name() {
        let (result, out) = run(&["stats", "/nowhere/at.all"]);
        let error = result.expect_err("refused").to_string();
        assert!(error.contains("/nowhere/at.all") && out.is_empty(), "{error}");
    }
}
