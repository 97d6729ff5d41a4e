//! `turnstream knowledge put` and `delete`: write changes to the log's topic of knowledge. Every
//! process that follows it applies them while turns flow.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use turnstream_console::{InputRefused, Usage, load_config};
use turnstream_engine::config::{Config, LogKind};
use turnstream_knowledge::{BadLine, Change};
use turnstream_log::embedded::EmbeddedLog;
use turnstream_log::write::{Stretch, Writer, Written};
use turnstream_log::{Topic, kafka};
use turnstream_schemas::{FactKey, FactValue};

use super::print_json;

mod lines;
#[cfg(test)]
mod tests;

use lines::StatementLines;

pub(super) const PUT_EXAMPLES: &str = "\
Examples:
  turnstream knowledge put --source ours --head tea --relation UsedFor --tail \"wake up\" --weight 2
  turnstream knowledge put --config turnstream.toml --source ours facts.tsv more.jsonl.gz --json
  echo-facts | turnstream knowledge put --config turnstream.toml - --format jsonl

TSV columns are relation, head, tail, weight and, optionally, source and sentence. JSON lines have
source, head, relation, tail and, optionally, weight, language, sentence and retracted. A negative
weight denies the fact. A response says a fact by its sentence, if it has one, as it is. Bad lines
are reported by number and left out. Source, head, relation and tail identify a fact, in capitals
or not: putting it again replaces its weight, its sentence and its capitals.";

pub(super) const DELETE_EXAMPLES: &str = "\
Examples:
  turnstream knowledge delete --source conceptnet --head coffee --relation IsA --tail tea
  turnstream knowledge delete --config turnstream.toml --source ours wrong.tsv

Retracts only what the named source says; the same fact from other sources stays. The topic keeps
the retraction, so the fact stays retracted even if the snapshot holds it. With --tombstone the
retraction does not last: once the log has compacted the tombstone away, a fact of the snapshot
holds again. Use it only for facts that were put and never imported.";

/// The shape of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LineFormat {
    /// Decided by the first line of each file
    #[default]
    Auto,
    /// relation, head, tail, weight, and optionally source and sentence
    Tsv,
    /// One JSON object a line
    Jsonl,
}

/// The statements to write, and the configuration of the log.
#[derive(Clone, Debug, clap::Args)]
pub struct StatementArgs {
    /// The configuration, as for run; the defaults if not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Files with many facts, plain, gzip or zstd; - for standard input
    #[arg(value_name = "FILE", conflicts_with_all = ["head", "relation", "tail"])]
    files: Vec<PathBuf>,
    /// Source of the facts; for files, replaces the sources that the lines name
    #[arg(long, value_name = "NAME", required_unless_present = "files")]
    source: Option<String>,
    /// Concept that the fact is about
    #[arg(long, value_name = "CONCEPT", required_unless_present = "files")]
    head: Option<String>,
    /// Relation, such as UsedFor
    #[arg(long, value_name = "RELATION", required_unless_present = "files")]
    relation: Option<String>,
    /// Concept at the other end
    #[arg(long, value_name = "CONCEPT", required_unless_present = "files")]
    tail: Option<String>,
    /// Format of the lines of files
    #[arg(long, value_enum, default_value_t, requires = "files")]
    format: LineFormat,
    /// Most bad lines to report for each file; all are counted
    #[arg(long, default_value_t = 20, value_name = "N")]
    bad_lines: usize,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// `knowledge put`
#[derive(Clone, Debug, clap::Args)]
pub struct PutArgs {
    #[command(flatten)]
    pub(super) statements: StatementArgs,
    /// Weight, other than 0; below 0 the fact is denied. For lines that have none
    #[arg(long, default_value_t = 1.0, value_name = "WEIGHT", allow_negative_numbers = true)]
    weight: f32,
    /// Language of head and tail, for lines that name none
    #[arg(long, default_value = "en", value_name = "LANGUAGE")]
    language: String,
    /// Sentence that says the fact, as it is
    #[arg(long, value_name = "SENTENCE", conflicts_with = "files")]
    sentence: Option<String>,
}

/// `knowledge delete`
#[derive(Clone, Debug, clap::Args)]
pub struct KnowledgeDeleteArgs {
    #[command(flatten)]
    pub(super) statements: StatementArgs,
    /// Write tombstones, which the log drops in time, instead of retractions
    #[arg(long)]
    tombstone: bool,
}

/// The operation on each statement.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    /// Puts it, with this weight, language and sentence if a line has none.
    Put { weight: f32, language: String, sentence: Option<String> },
    /// Retracts it.
    Delete { tombstone: bool },
}

/// The report for programs.
#[derive(Debug, Serialize)]
struct ChangeReport {
    topic: String,
    written: u64,
    bad: u64,
    partitions: Vec<PartitionChanges>,
    files: Vec<FileReport>,
}

/// The records that were written to a partition.
#[derive(Debug, Serialize)]
pub(crate) struct PartitionChanges {
    partition: i32,
    #[serde(flatten)]
    stretch: Stretch,
}

/// The counts of a file's lines.
#[derive(Debug, Default, Serialize)]
struct FileReport {
    file: String,
    lines: u64,
    written: u64,
    bad: u64,
    bad_lines: Vec<BadLine>,
}

/// Puts statements.
///
/// # Errors
/// As [`delete`].
pub(super) fn put(args: &PutArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let PutArgs { weight, language, sentence, .. } = args.clone();
    let doing = Doing::Put { weight, language, sentence };
    execute(&args.statements, &doing, out)
}

/// Retracts statements.
///
/// # Errors
/// The configuration or a statement is wrong, the log cannot be reached or refuses, or a file
/// cannot be read or has no facts.
pub(super) fn delete(args: &KnowledgeDeleteArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    execute(&args.statements, &Doing::Delete { tombstone: args.tombstone }, out)
}

fn execute(args: &StatementArgs, doing: &Doing, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.config.as_deref())?.value;
    let single = single(args, doing)?;
    if !config.knowledge.live {
        tracing::warn!(
            "knowledge.live is false: `run` with this configuration ignores such changes"
        );
    }
    let mut writer = open(&config)?;
    let mut files = Vec::new();
    if let Some(change) = &single {
        write(&mut *writer, change, doing)?;
    }
    for path in &args.files {
        files.push(write_file(args, path, doing, &mut *writer)?);
    }
    let written = writer.finish()?;
    let report = report(topic_of(&config), &written, files);
    if args.json {
        print_json(out, &report)?;
    } else {
        print(&report, out)?;
    }
    if report.bad > 0 && report.written == 0 {
        let message = format!("none of {} lines is a fact; nothing was written", report.bad);
        return Err(InputRefused::new(message, "see --help for the shape of the lines").into());
    }
    Ok(())
}

/// The change that the arguments alone describe.
fn single(args: &StatementArgs, doing: &Doing) -> Result<Option<Change>, Usage> {
    let (Some(source), Some(head), Some(relation), Some(tail)) =
        (&args.source, &args.head, &args.relation, &args.tail)
    else {
        return Ok(None);
    };
    let [source, head, relation, tail] = [source, head, relation, tail].map(String::clone);
    let change = doing.change(FactKey { source, head, relation, tail }, StatedValue::default());
    change.map(Some).map_err(|error| Usage::new(error.to_string(), "see --help for examples"))
}

/// What a line says about its statement.
#[derive(Clone, Debug, Default)]
struct StatedValue {
    weight: Option<f32>,
    language: Option<String>,
    sentence: Option<String>,
}

impl Doing {
    /// The change to write for a statement.
    fn change(
        &self,
        key: FactKey,
        stated: StatedValue,
    ) -> Result<Change, turnstream_knowledge::ChangeError> {
        let value = match self {
            Self::Put { weight, language, sentence } => Some(FactValue {
                weight: stated.weight.unwrap_or(*weight),
                language: stated.language.unwrap_or_else(|| language.clone()),
                sentence: stated.sentence.or_else(|| sentence.clone()),
                ..FactValue::default()
            }),
            Self::Delete { .. } => None,
        };
        Change::new(key, value)
    }
}

/// Opens the topic of knowledge for writing.
///
/// # Errors
/// The log cannot be reached, or another process has it.
pub(crate) fn open(config: &Config) -> anyhow::Result<Box<dyn Writer>> {
    match config.log.kind {
        LogKind::Kafka => Ok(Box::new(kafka::write(&config.log.kafka, Topic::Knowledge)?)),
        LogKind::Embedded => {
            let directory = config.log.directory.as_deref().context("log.directory is missing")?;
            let log = EmbeddedLog::in_directory(directory, &config.log.embedded).context(
                "an embedded log can be changed while no `turnstream run` has it open; the next \
                 run learns the changes",
            )?;
            Ok(Box::new(log.writer(Topic::Knowledge)))
        }
    }
}

/// The name of the topic of knowledge.
pub(crate) fn topic_of(config: &Config) -> &str {
    match config.log.kind {
        LogKind::Kafka => config.log.kafka.topics.name(Topic::Knowledge),
        LogKind::Embedded => Topic::Knowledge.name(),
    }
}

fn write(writer: &mut dyn Writer, change: &Change, doing: &Doing) -> anyhow::Result<()> {
    let (key, value) = change.record();
    let value = match doing {
        Doing::Delete { tombstone: true } => None,
        _ => Some(&value[..]),
    };
    Ok(writer.write(&key, value)?)
}

fn write_file(
    args: &StatementArgs,
    path: &Path,
    doing: &Doing,
    writer: &mut dyn Writer,
) -> anyhow::Result<FileReport> {
    let mut report = FileReport { file: path.display().to_string(), ..FileReport::default() };
    let refused = |source: std::io::Error| {
        let message = format!("cannot read {}", path.display());
        InputRefused::new(message, "check the path and its permissions").caused_by(source)
    };
    let mut lines =
        StatementLines::open(path, args.format, args.source.as_deref()).map_err(refused)?;
    while let Some(line) = lines.next_change(doing).map_err(refused)? {
        match line {
            Ok(None) => {}
            Ok(Some(change)) => {
                write(writer, &change, doing)?;
                report.written += 1;
            }
            Err(reason) => {
                report.bad += 1;
                if report.bad_lines.len() < args.bad_lines {
                    tracing::warn!(file = report.file, line = lines.number(), %reason, "left out");
                    report.bad_lines.push(BadLine { line: lines.number(), reason });
                }
            }
        }
    }
    report.lines = lines.number();
    Ok(report)
}

fn report(topic: &str, written: &Written, files: Vec<FileReport>) -> ChangeReport {
    ChangeReport {
        topic: topic.to_owned(),
        written: written.values().map(|stretch| stretch.records).sum(),
        bad: files.iter().map(|file| file.bad).sum(),
        partitions: PartitionChanges::of(written),
        files,
    }
}

impl PartitionChanges {
    /// What was written, by partition.
    pub(crate) fn of(written: &Written) -> Vec<Self> {
        let of = |(partition, stretch): (&i32, &Stretch)| Self {
            partition: *partition,
            stretch: *stretch,
        };
        written.iter().map(of).collect()
    }

    /// Says where the records are.
    pub(crate) fn print(&self, topic: &str, out: &mut dyn Write) -> std::io::Result<()> {
        let Self { partition, stretch: Stretch { records, first_offset, last_offset } } = self;
        match records {
            1 => writeln!(out, "{topic} partition {partition}: offset {first_offset}"),
            _ => writeln!(
                out,
                "{topic} partition {partition}: {records} records, offsets {first_offset} to \
                 {last_offset}"
            ),
        }
    }
}

fn print(report: &ChangeReport, out: &mut dyn Write) -> anyhow::Result<()> {
    for partition in &report.partitions {
        partition.print(&report.topic, out)?;
    }
    if report.bad > 0 {
        writeln!(out, "{} bad lines were left out", report.bad)?;
    }
    Ok(())
}
