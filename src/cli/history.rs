//! `turnstream history`: shows the histories and their evictions, moves them, and asks the engine
//! to forget some.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use turnstream_log::embedded::EmbeddedLog;
use turnstream_log::{Follower, LogError, Topic, jsonl, kafka};
use turnstream_operators::history::similarity::Similarity;
use turnstream_schemas::{HistoryChange, Scope};

use turnstream_console::{InputRefused, Usage, load_config, print_json};
use turnstream_engine::config::{Config, LogKind};
use turnstream_engine::histories::{self, Distribution, Histories, Shown, Statistics, tree};
use turnstream_explain::terminal_width;

mod forget;
mod import;

pub use import::Import;

/// How long one poll of a topic waits.
const POLL: Duration = Duration::from_millis(100);

/// Show the histories that are kept: entries, clusters and their summaries, chains of thought,
/// weights, and which entries left and why; ask the engine to forget some; or move them from one
/// log to another.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream history show --changes history.jsonl
  turnstream history show c-17 --changes history.jsonl
  turnstream history export --data conversations --out histories.jsonl
  turnstream history import histories.jsonl --data elsewhere
  turnstream history forget c-17 --data conversations")]
pub struct HistoryArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: HistoryCommand,
}

/// The operations on histories.
#[derive(Debug, clap::Subcommand)]
pub enum HistoryCommand {
    /// Show one history as a tree or as JSON; without a scope, which histories there are.
    ///
    /// They are read from the changes that a replay wrote, from the directory of an embedded log,
    /// or from the topic of histories of the log that a configuration names.
    #[command(after_help = "\
Examples:
  turnstream history show --changes history.jsonl
  turnstream history show c-17 --changes history.jsonl --evicted 10
  turnstream history show acme/c-17 --data conversations --json
  turnstream history show default/c-17 --config turnstream.toml")]
    Show(Show),
    /// Show statistics of the histories: the numbers of entries, clusters and chains, and the sizes
    /// of the records.
    #[command(after_help = "\
Examples:
  turnstream history statistics --changes history.jsonl
  turnstream history statistics --config turnstream.toml --json")]
    Statistics(StatisticsArgs),
    /// Write the current histories, one change a line: each scope's record, then its entries.
    #[command(after_help = "\
Examples:
  turnstream history export --data conversations --out histories.jsonl
  turnstream history export --config turnstream.toml --scope c-17")]
    Export(Export),
    /// Ask the engine to forget a history, or every history that holds a turn of a user.
    ///
    /// Writes one record of kind `forget` for each to the topic of turns. When the engine reads it,
    /// every entry leaves, and the next turn is answered as if nothing had been said. Turns in
    /// flight are not seen here: stop the user's turns first, or ask again. Responses stay on their
    /// topic, and turns on theirs.
    #[command(after_help = "\
Examples:
  turnstream history forget c-17 --data conversations
  turnstream history forget acme/c-17 --config turnstream.toml --json
  turnstream history forget --user mara --config turnstream.toml --dry-run
  turnstream history forget --user mara --tenant acme --config turnstream.toml")]
    Forget(forget::ForgetArgs),
    /// Import histories into a log that no engine serves: the next turn of each conversation is
    /// answered with its history.
    ///
    /// The entries keep their order. They get offsets before the first of the log, on the partition
    /// that the turns of their scope come to: in Kafka that of their key by turns.partitioner.
    /// Nothing is written if a line cannot be read, the log already has a history of a scope, or an
    /// engine serves it. Each history is written whole, in one transaction; after an error the same
    /// import writes the rest.
    #[command(after_help = "\
Examples:
  turnstream history import histories.jsonl --data conversations
  turnstream history import histories.jsonl --config turnstream.toml --json
  turnstream history import histories.jsonl --data conversations --scope c-17 --replace")]
    Import(Import),
}

/// The place of the histories.
#[derive(Debug, clap::Args)]
pub struct From {
    /// Changes, one JSON record a line, as `replay --out-history` writes them; `-` for standard
    /// input.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["data", "config"])]
    pub changes: Option<PathBuf>,
    /// The directory of an embedded log, as `chat --data` keeps it. No other process may have it
    /// open.
    #[arg(long, value_name = "DIR", conflicts_with = "changes")]
    pub data: Option<PathBuf>,
    /// The configuration. It says how entries are weighed, and names the log to read if neither
    /// --changes nor --data is given.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `turnstream history show`
#[derive(Debug, clap::Args)]
pub struct Show {
    /// The history's scope: `tenant/conversation`, or the conversation alone under the default
    /// tenant.
    #[arg(value_name = "SCOPE")]
    pub scope: Option<String>,
    /// The place of the histories.
    #[command(flatten)]
    pub from: From,
    /// Show at most this many of the entries that left last, in the tree.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub evicted: usize,
    /// No colours, even on a terminal; the variable NO_COLOR does the same.
    #[arg(long)]
    pub no_color: bool,
    /// Print one JSON object instead.
    #[arg(long)]
    pub json: bool,
}

/// `turnstream history statistics`
#[derive(Debug, clap::Args)]
pub struct StatisticsArgs {
    /// The place of the histories.
    #[command(flatten)]
    pub from: From,
    /// Print one JSON object instead.
    #[arg(long)]
    pub json: bool,
}

/// `turnstream history export`
#[derive(Debug, clap::Args)]
pub struct Export {
    /// The place of the histories.
    #[command(flatten)]
    pub from: From,
    /// Only this history: `tenant/conversation`, or the conversation alone.
    #[arg(long, value_name = "SCOPE")]
    pub scope: Option<String>,
    /// File to write; standard output if not given.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// The list of all histories for programs.
#[derive(Debug, Serialize)]
struct List<'a> {
    scopes: Vec<Size<'a>>,
}

#[derive(Debug, Serialize)]
struct Size<'a> {
    scope: &'a Scope,
    entries: usize,
    turns: u64,
    evictions: u64,
}

impl HistoryArgs {
    /// Whether the last line is one JSON object.
    pub fn json(&self) -> bool {
        match &self.command {
            HistoryCommand::Show(args) => args.json,
            HistoryCommand::Statistics(args) => args.json,
            HistoryCommand::Export(_) => false,
            HistoryCommand::Import(args) => args.json,
            HistoryCommand::Forget(args) => args.json,
        }
    }
}

/// Reads histories and shows, exports, imports or forgets them.
///
/// # Errors
/// The histories cannot be read, the scope does not exist, or the log cannot be written to.
pub fn execute(args: &HistoryArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.command {
        HistoryCommand::Show(args) => show(args, out),
        HistoryCommand::Statistics(args) => statistics(args, out),
        HistoryCommand::Export(args) => export(args, out),
        HistoryCommand::Import(args) => import::execute(args, out),
        HistoryCommand::Forget(args) => forget::execute(args, out),
    }
}

fn show(args: &Show, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.from.config.as_deref())?.value;
    let histories = read(&args.from, &config, args.scope.as_deref())?;
    let Some(scope) = &args.scope else { return list(&histories, args.json, out) };
    let scope = whole(scope);
    let kept = histories.of(&scope).ok_or_else(|| missing(&scope))?;
    let encoder = turnstream_models::encoder(&config.models)?
        .filter(|_| config.models.embedder.is_in_place());
    let similarity = encoder.map_or_else(Similarity::by_words, Similarity::by_meaning);
    let shown = Shown::of(&scope, kept, &config.history, &similarity)?;
    if args.json {
        return Ok(print_json(out, &shown)?);
    }
    let colour = !args.no_color && super::explain::takes_colour();
    write!(out, "{}", tree(&shown, args.evicted).render(terminal_width(), colour))?;
    Ok(())
}

fn list(histories: &Histories, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let sizes = histories.iter().map(|(scope, kept)| Size {
        scope,
        entries: kept.entries.len(),
        turns: kept.record.turns,
        evictions: kept.record.evictions,
    });
    if json {
        return Ok(print_json(out, &List { scopes: sizes.collect() })?);
    }
    for Size { scope, entries, turns, evictions } in sizes {
        writeln!(out, "{scope}  entries {entries}, turns {turns}, evictions {evictions}")?;
    }
    Ok(())
}

fn statistics(args: &StatisticsArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.from.config.as_deref())?.value;
    let statistics = Statistics::of(&read(&args.from, &config, None)?)?;
    if args.json {
        return Ok(print_json(out, &statistics)?);
    }
    let Statistics { scopes, bytes_of_entry, bytes_of_scope, .. } = &statistics;
    writeln!(
        out,
        "{scopes} histories; {bytes_of_entry:.0} bytes an entry, {bytes_of_scope:.0} a scope"
    )?;
    for (name, Distribution { mean, max, counts }) in statistics.distributions() {
        let counts = counts.iter().map(|(number, times)| format!("{number}×{times}"));
        let counts = counts.collect::<Vec<_>>().join(" ");
        writeln!(out, "{name}: mean {mean:.2}, at most {max}: {counts}")?;
    }
    Ok(())
}

fn export(args: &Export, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.from.config.as_deref())?.value;
    let histories = read(&args.from, &config, args.scope.as_deref())?;
    if let Some(scope) = &args.scope {
        let scope = whole(scope);
        histories.of(&scope).ok_or_else(|| missing(&scope))?;
    }
    let mut file = args.out.as_deref().map(create).transpose()?;
    let out: &mut dyn Write = file.as_mut().map_or(out, |file| file);
    for change in histories.changes() {
        serde_json::to_writer(&mut *out, &change)?;
        writeln!(out)?;
    }
    out.flush().context("the histories cannot be written")
}

fn create(path: &Path) -> anyhow::Result<std::io::BufWriter<std::fs::File>> {
    let file = std::fs::File::create(path);
    Ok(std::io::BufWriter::new(file.with_context(|| path.display().to_string())?))
}

/// Parses the name of a scope. A conversation alone belongs to the default tenant.
fn whole(name: &str) -> Scope {
    match name.split_once('/') {
        Some((tenant, id)) => Scope::new(Some(&tenant.into()), id),
        None => Scope::new(None, name),
    }
}

fn missing(scope: &Scope) -> Usage {
    Usage::new(
        format!("there is no history of `{scope}`"),
        "`turnstream history show` without a scope lists those that there are",
    )
}

/// Reads all histories, or one.
fn read(from: &From, config: &Config, only: Option<&str>) -> anyhow::Result<Histories> {
    let only = only.map(whole);
    let mut histories = Histories::default();
    let mut take = |change: HistoryChange| {
        if only.as_ref().is_none_or(|scope| *scope == change.key().scope) {
            histories.take(change);
        }
    };
    if let Some(path) = &from.changes {
        lines(path, &mut take)?;
        return Ok(histories);
    }
    match directory(from.data.as_deref(), config) {
        None => follow(&mut kafka::follow(&config.log.kafka, Topic::History)?, &mut take)?,
        Some(directory) => {
            follow(&mut opened(directory, config)?.follower(Topic::History), &mut take)?;
        }
    }
    Ok(histories)
}

/// The directory of an embedded log; `None` for Kafka.
pub(crate) fn directory<'a>(data: Option<&'a Path>, config: &'a Config) -> Option<&'a Path> {
    match (data, config.log.kind) {
        (Some(data), _) => Some(data),
        (None, LogKind::Embedded) => config.log.directory.as_deref(),
        (None, LogKind::Kafka) => None,
    }
}

pub(crate) fn opened(directory: &Path, config: &Config) -> Result<EmbeddedLog, LogError> {
    if !directory.is_dir() {
        // Opening a missing directory would create it.
        let path = directory.display().to_string();
        return Err(LogError::File { path, source: std::io::ErrorKind::NotFound.into() });
    }
    EmbeddedLog::in_directory(directory, &config.log.embedded)
}

fn lines(path: &Path, take: &mut dyn FnMut(HistoryChange)) -> anyhow::Result<()> {
    let reader: Box<dyn BufRead> = match path == Path::new("-") {
        true => Box::new(std::io::stdin().lock()),
        false => jsonl::reader(path)?,
    };
    for (number, line) in (1..).zip(reader.lines()) {
        let line = line.with_context(|| path.display().to_string())?;
        let change = serde_json::from_str(&line).map_err(|error| {
            let place = format!("{}:{number}", path.display());
            let remedy = "`replay --out-history` writes such changes";
            InputRefused::new(format!("{place}: not a change of a history: {error}"), remedy)
        })?;
        take(change);
    }
    Ok(())
}

fn follow(follower: &mut dyn Follower, take: &mut dyn FnMut(HistoryChange)) -> anyhow::Result<()> {
    while !follower.has_caught_up() {
        for record in follower.poll(POLL)? {
            let place = || format!("history[{}]@{}", record.partition, record.offset);
            let change = histories::change(&record);
            take(change.with_context(|| format!("{}: not a change of a history", place()))?);
        }
    }
    Ok(())
}
