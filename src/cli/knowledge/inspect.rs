//! `turnstream knowledge stats`, `lookup` and `diff`: show what graphs contain.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use turnstream_sources::knowledge::census::{Census, census};
use turnstream_sources::knowledge::diff::{DiffCounts, DiffRecord, diff};
use turnstream_sources::knowledge::lookup::{FactRecord, Lookup, lookup};
use turnstream_sources::knowledge::{self, PACK_LOCATION};

use super::print_json;

/// `knowledge stats`
#[derive(Clone, Debug, clap::Args)]
pub struct StatsArgs {
    /// Snapshot to read, or "pack" for the shipped one
    #[arg(default_value = PACK_LOCATION)]
    snapshot: String,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
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
    pub(super) json: bool,
}

/// `knowledge diff`
#[derive(Clone, Debug, clap::Args)]
pub struct DiffArgs {
    /// Snapshot to compare with, or "pack" for the shipped one
    a: String,
    /// Snapshot to compare
    b: String,
    /// Most facts to show, in order of their texts; 0 shows all
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: u64,
    /// Print the counts as one JSON object in the last line, and each fact in a line before it
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn stats(args: &StatsArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let graph = knowledge::open(&args.snapshot)?;
    let path = (args.snapshot != PACK_LOCATION).then(|| Path::new(&args.snapshot));
    let census = census(&graph, path);
    if args.json { print_json(out, &census) } else { print_census(&census, out) }
}

fn print_census(census: &Census, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "snapshot  {}", census.snapshot)?;
    writeln!(out, "facts     {}", census.facts)?;
    writeln!(out, "concepts  {}", census.concepts)?;
    let bytes = census.snapshot_bytes;
    writeln!(out, "bytes     {bytes}, {:.1} for each fact", census.bytes_per_fact)?;
    if let Some(resident) = census.resident_bytes {
        writeln!(out, "resident  {resident}, shared by all processes")?;
    }
    for (part, bytes) in &census.parts {
        writeln!(out, "  {bytes:>11}  {part}")?;
    }
    writeln!(out, "languages {}", census.by_language.len())?;
    for (language, count) in &census.by_language {
        writeln!(out, "  {:>11}  {language}, {} concepts", count.facts, count.concepts)?;
    }
    writeln!(out, "sources   {}", census.by_source.len())?;
    for (source, facts) in &census.by_source {
        writeln!(out, "  {facts:>11}  {source}")?;
    }
    writeln!(out, "relations {}", census.relations)?;
    for (relation, count) in &census.by_relation {
        let denied =
            if count.negated > 0 { format!(", {} denied", count.negated) } else { String::new() };
        writeln!(out, "  {:>11}  {relation}{denied}", count.facts)?;
    }
    writeln!(out, "facts of a concept, percentiles")?;
    let row = |percentiles: &BTreeMap<&str, u32>| -> String {
        let mut sorted: Vec<_> = percentiles.iter().collect();
        sorted.sort_by_key(|&(_, degree)| *degree);
        sorted.iter().map(|(name, degree)| format!(" {name}%: {degree}")).collect()
    };
    let degrees = &census.degrees;
    writeln!(out, "  as head {}", row(&degrees.out))?;
    writeln!(out, "  as tail {}", row(&degrees.into))?;
    writeln!(out, "  either  {}", row(&degrees.total))?;
    Ok(())
}

pub(super) fn look_up(args: &LookupArgs, out: &mut dyn Write) -> anyhow::Result<()> {
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

pub(super) fn differ(args: &DiffArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let (a, b) = (knowledge::open(&args.a)?, knowledge::open(&args.b)?);
    let most = if args.limit == 0 { u64::MAX } else { args.limit };
    let mut shown = 0;
    let counts = diff([&a, &b], |record| {
        shown += 1;
        if shown > most {
            return Ok(());
        }
        if args.json { print_json(out, record) } else { print_difference(record, out) }
    })?;
    if args.json {
        return print_json(out, &counts);
    }
    if shown > most {
        writeln!(out, "... and {} more (--limit 0 shows all)", shown - most)?;
    }
    let DiffCounts { only_a, only_b, changed, same } = counts;
    writeln!(out, "only in {}: {only_a}", args.a)?;
    writeln!(out, "only in {}: {only_b}", args.b)?;
    writeln!(out, "changed: {changed}")?;
    writeln!(out, "same: {same}")?;
    Ok(())
}

fn print_difference(record: &DiffRecord, out: &mut dyn Write) -> anyhow::Result<()> {
    let DiffRecord { head, relation, tail, source, language, a, b } = record;
    let fact = format!("{head} {relation} {tail}  [{language}, {source}]");
    match (a, b) {
        (Some(weight), None) => writeln!(out, "- {weight:<15} {fact}")?,
        (None, Some(weight)) => writeln!(out, "+ {weight:<15} {fact}")?,
        (Some(old), Some(new)) => writeln!(out, "~ {:<15} {fact}", format!("{old} -> {new}"))?,
        (None, None) => {}
    }
    Ok(())
}
