//! `turnstream teach put` and `delete`: write phrasings to the topic of knowledge, so that every process
//! that follows it is taught while turns flow, and show beforehand what that changes.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use turnstream_console::{InputRefused, load_config, print_json};
use turnstream_engine::config::Config;
use turnstream_formats::Format;
use turnstream_knowledge::KnowledgeRecord;
use turnstream_knowledge::phrasings::Taught;
use turnstream_log::Topic;
use turnstream_schemas::{PhrasingKey, PhrasingValue};
use turnstream_sources::gold::GoldFile;
use turnstream_sources::phrasings::{PhrasingLine, phrasings};

use super::verdicts::VerdictComparison;
use crate::diff::{self, DiffReport, ReplayDiffArgs};
use crate::knowledge::change::{PartitionChanges, open, topic_of};
use crate::logged::LogSource;
use crate::replay::{self, ReplayArgs};
use crate::utterances::utterances;

/// How long one poll of the topic waits.
const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream teach put taught.jsonl --config turnstream.toml --dry-run log.jsonl
  turnstream teach put taught.jsonl --config turnstream.toml --dry-run log.jsonl --gold gold.jsonl
  turnstream teach put taught.jsonl --config turnstream.toml --json

The text identifies a phrasing: putting it again changes what it leads to. It takes precedence over
the same text in the file of teaching.phrasings.")]
pub(super) struct TeachPutArgs {
    /// Phrasings, one a line: {\"text\", \"gold\", \"action\"}.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The configuration of the service; the defaults if not given.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write nothing. Replay this log with what is taught now (A) and with FILE as well (B), and show which turns
    /// get another response, first those that A answers.
    #[arg(long, value_name = "LOG")]
    dry_run: Option<PathBuf>,
    /// The shape of that log.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, requires = "dry_run")]
    format: Format,
    /// The right answers to turns of that log, as `eval answers --gold` reads them: show first which right answers
    /// of A are wrong in B, then which other verdicts change, and count the right, wrong and abstained of both.
    #[arg(long, value_name = "GOLD", requires = "dry_run")]
    gold: Option<PathBuf>,
    /// Show at most this many of the turns that differ, and of each change of a verdict.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "dry_run")]
    show: usize,
    /// Print one JSON object: what was written, or the comparison.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream teach delete wrong.jsonl --config turnstream.toml

The topic keeps the withdrawal, so they stay withdrawn even if the file of teaching.phrasings has
them.")]
pub(super) struct TeachDeleteArgs {
    /// Phrasings, one a line; only their texts count.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The configuration of the service; the defaults if not given.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object: what was written.
    #[arg(long)]
    pub(super) json: bool,
}

/// What was written, for programs.
#[derive(Debug, Serialize)]
struct PhrasingsWritten {
    topic: String,
    written: usize,
    partitions: Vec<PartitionChanges>,
}

/// What phrasings would change, for programs.
#[derive(Debug, Serialize)]
struct PhrasingsTried {
    #[serde(flatten)]
    compared: DiffReport,
    /// The verdicts of the gold file, if one is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    gold: Option<VerdictComparison>,
}

/// Teaches phrasings, or shows what they would change.
///
/// # Errors
/// The configuration or a line of a file is wrong, the log cannot be reached, the replay fails, or the gold
/// file has no turn of the replayed log.
pub(super) fn put(args: &TeachPutArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let lines = read(&args.file)?;
    if let Some(log) = &args.dry_run {
        return dry_run(args, log, lines, out);
    }
    let records = lines.into_iter().map(|(line, taught)| (line.text, taught.value()));
    write(args.config.as_deref(), records.collect(), args.json, out)
}

/// Withdraws phrasings.
///
/// # Errors
/// The configuration or a line of the file is wrong, or the log cannot be reached.
pub(super) fn delete(args: &TeachDeleteArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let withdrawn = PhrasingValue { withdrawn: true, ..PhrasingValue::default() };
    let lines = read(&args.file)?.into_iter();
    let records = lines.map(|(line, _)| (line.text, withdrawn.clone()));
    write(args.config.as_deref(), records.collect(), args.json, out)
}

fn read(file: &Path) -> anyhow::Result<Vec<(PhrasingLine, Taught)>> {
    Ok(phrasings(file).map_err(|error| InputRefused::new(error.to_string(), ""))?)
}

fn write(
    config: Option<&Path>,
    records: Vec<(String, PhrasingValue)>,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let config = load_config(config)?.value;
    if !config.knowledge.live {
        tracing::warn!(
            "knowledge.live is false: `run` with this configuration ignores such changes"
        );
    }
    let mut writer = open(&config)?;
    let count = records.len();
    for (text, value) in records {
        let key = serde_json::to_vec(&PhrasingKey { phrasing: text.trim().to_owned() })?;
        writer.write(&key, Some(&serde_json::to_vec(&value)?))?;
    }
    let written = PhrasingsWritten {
        topic: topic_of(&config).to_owned(),
        written: count,
        partitions: PartitionChanges::of(&writer.finish()?),
    };
    if json {
        return Ok(print_json(out, &written)?);
    }
    for partition in &written.partitions {
        partition.print(&written.topic, out)?;
    }
    Ok(())
}

/// Replays a log with what is taught now and with further phrasings, and shows how the responses differ,
/// and their verdicts.
fn dry_run(
    args: &TeachPutArgs,
    log: &Path,
    lines: Vec<(PhrasingLine, Taught)>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    // Files that cannot be read are refused before the replays.
    let users = utterances(log, args.format)?;
    let gold = args.gold.as_deref().map(expected).transpose()?;
    let folder = tempfile::tempdir()?;
    let now = taught_now(&load_config(args.config.as_deref())?.value)?;
    let mut then = now.clone();
    then.extend(lines.into_iter().map(|(line, taught)| (line.text, taught)));
    let replayed = ["now", "then"].map(|name| folder.path().join(format!("{name}.jsonl")));
    for (taught, responses) in [now, then].iter().zip(&replayed) {
        let file = responses.with_extension("phrasings");
        write_file(&file, taught)?;
        let mut loaded = load_config(args.config.as_deref())?;
        loaded.value.teaching.phrasings = Some(file);
        let replay = ReplayArgs::of_file(log, args.format, responses.clone());
        replay::run(&replay, loaded, &mut std::io::sink())?;
    }
    let verdicts = gold.map(|gold| VerdictComparison::of(&replayed, &gold, &users)).transpose()?;
    if let (Some(verdicts), Some(gold)) = (&verdicts, &args.gold)
        && verdicts.judged == 0
    {
        let message = format!("{} has no turn of {}", gold.display(), log.display());
        return Err(InputRefused::new(message, "give the gold file of the log's own turns").into());
    }
    let (compared, changed) = diff::compare(&ReplayDiffArgs::of_files(replayed), &users)?;
    if args.json {
        return Ok(print_json(out, &PhrasingsTried { compared, gold: verdicts })?);
    }
    if let Some(verdicts) = &verdicts {
        verdicts.print(args.show, out)?;
    }
    Ok(diff::print(&compared, &changed, args.show, out)?)
}

/// Reads a gold file.
fn expected(file: &Path) -> Result<GoldFile, InputRefused> {
    GoldFile::read(file).map_err(|error| InputRefused::new(error.to_string(), "").caused_by(error))
}

/// What is taught now, by text: the file of the configuration, and over it what the topic says.
fn taught_now(config: &Config) -> anyhow::Result<BTreeMap<String, Taught>> {
    let mut taught = BTreeMap::new();
    if let Some(file) = &config.teaching.phrasings {
        taught.extend(read(file)?.into_iter().map(|(line, taught)| (line.text, taught)));
    }
    if !config.knowledge.live {
        return Ok(taught);
    }
    if let Err(error) = follow(config, &mut taught) {
        tracing::warn!("the topic of knowledge is left out, since it cannot be read: {error:#}");
    }
    Ok(taught)
}

/// Applies what the topic of knowledge teaches and withdraws.
fn follow(config: &Config, taught: &mut BTreeMap<String, Taught>) -> anyhow::Result<()> {
    // A dry run makes no topic.
    let mut config = config.clone();
    config.log.kafka.create_topics = false;
    let mut follower = LogSource::open(None, &config)?.follower(Topic::Knowledge)?;
    loop {
        for record in follower.poll(POLL)? {
            let key = record.key.as_deref().unwrap_or_default();
            match KnowledgeRecord::read(key, record.value.as_deref()) {
                Ok(KnowledgeRecord::Phrasing(text, Some(lesson))) => taught.insert(text, lesson),
                Ok(KnowledgeRecord::Phrasing(text, None)) => taught.remove(&text),
                // A fact changes no phrasing, and `run` logs records that it refuses.
                Ok(KnowledgeRecord::Fact(_)) | Err(_) => None,
            };
        }
        if follower.has_caught_up() {
            return Ok(());
        }
    }
}

fn write_file(file: &Path, taught: &BTreeMap<String, Taught>) -> anyhow::Result<()> {
    let mut lines = String::new();
    for (text, taught) in taught {
        let PhrasingValue { gold, action, .. } = taught.value();
        let line = PhrasingLine { id: None, text: text.clone(), gold, action };
        lines.push_str(&serde_json::to_string(&line)?);
        lines.push('\n');
    }
    Ok(std::fs::write(file, lines)?)
}
