//! `turnstream knowledge import` and `turnstream knowledge pack`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;
use turnstream_knowledge::{BadLine, Builder, Graph};
use turnstream_sources::knowledge::{self, FileReport, Progress};

use super::input::InputArgs;
use super::print_json;

/// `knowledge import`
#[derive(Clone, Debug, clap::Args)]
pub struct KnowledgeImportArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Snapshot to write; facts are sorted in its folder
    #[arg(long, value_name = "SNAPSHOT")]
    out: PathBuf,
    /// Memory for sorting, in MiB; what does not fit is kept in files
    #[arg(long, default_value_t = 512, value_name = "MIB",
          value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    memory_mib: u32,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
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
    pub(super) json: bool,
}

pub(super) fn import(args: &KnowledgeImportArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let memory_bytes = usize::try_from(u64::from(args.memory_mib) << 20).unwrap_or(usize::MAX);
    let files = args.input.files()?;
    let progress = Progress::for_stderr();
    let (graph, reports) = knowledge::import_sorted(&files, &args.out, memory_bytes, progress)?;
    if args.json {
        return print_json(out, &summary(&graph, &reports));
    }
    writeln!(out, "{}", args.out.display())?;
    print_counts(&graph, out)
}

pub(super) fn pack(args: &PackArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut builder = Builder::new();
    let files = args.input.files()?;
    let reports = knowledge::import_files(&files, &mut builder, Progress::for_stderr())?;
    let graph = builder.into_graph();
    knowledge::write_pack(&graph, &args.out)?;
    let bytes = std::fs::metadata(&args.out).context("the pack just written")?.len();
    if args.json {
        let mut summary = summary(&graph, &reports);
        summary["pack_bytes"] = bytes.into();
        return print_json(out, &summary);
    }
    writeln!(out, "{}: {bytes} bytes", args.out.display())?;
    print_counts(&graph, out)
}

/// The report of an import and its graph.
fn summary(graph: &Graph, reports: &[FileReport]) -> serde_json::Value {
    let files: Vec<serde_json::Value> = reports
        .iter()
        .map(|FileReport { path, report }| {
            let bad_lines: &[BadLine] = &report.bad_lines;
            json!({
                "file": path.display().to_string(), "lines": report.lines,
                "facts": report.facts, "skipped": report.skipped,
                "documents": report.documents, "unfit": report.unfit, "bad": report.bad,
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

fn print_counts(graph: &Graph, out: &mut dyn Write) -> anyhow::Result<()> {
    let stats = graph.stats();
    writeln!(out, "snapshot  {}", graph.version())?;
    writeln!(out, "facts     {}", stats.facts)?;
    writeln!(out, "concepts  {}", stats.concepts)?;
    writeln!(out, "relations {}", stats.relations)?;
    writeln!(out, "languages {}", stats.languages.join(" "))?;
    writeln!(out, "bytes     {}", stats.snapshot_bytes)?;
    Ok(())
}
