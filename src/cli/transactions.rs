//! `turnstream transactions`: shows what open transactions hold back, and ends those of a dead
//! process.

use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;
use serde::Serialize;
use turnstream_log::kafka::KafkaConfig;
use turnstream_log::kafka::transactions::{HeldBack, abort, held_back};

use turnstream_console::{Exit, Usage, load_config, print_json};
use turnstream_engine::config::LogKind;

/// Look for transactions that hold readers back, and end those of a dead process.
///
/// Readers of committed records wait at the first record of the oldest open transaction of a
/// partition. A process at work has one open for milliseconds; one that died leaves it open until
/// it starts again, or until log.kafka.transaction_timeout_ms has passed.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The client library cannot ask the broker whose transaction is open. So `show` says where readers
are held back and since when, and `abort` takes the transactional id that you name.

Examples:
  turnstream transactions show --config turnstream.toml
  turnstream transactions abort --config turnstream.toml --yes")]
pub struct TransactionsArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: TransactionsCommand,
}

/// The operations on transactions.
#[derive(Clone, Debug, Subcommand)]
pub enum TransactionsCommand {
    /// Show the partitions whose readers of committed records are held back, and since when
    #[command(after_help = "\
A partition held back for less than about a second is normal: a process is at work on it.

Examples:
  turnstream transactions show --config turnstream.toml
  turnstream transactions show --config turnstream.toml --json")]
    Show(TransactionsShowArgs),
    /// Abort what a dead process left open, by taking its transactional id
    #[command(after_help = "\
This FENCES a running process that has the id: it stops with exit code 4, and the processes that get
its partitions serve again what it has not committed. Make sure that it is dead.

Examples:
  turnstream transactions abort --config turnstream.toml --yes
  turnstream transactions abort --config turnstream.toml --transactional-id turnstream-2 --yes")]
    Abort(AbortArgs),
}

/// `transactions show`
#[derive(Clone, Debug, clap::Args)]
pub struct TransactionsShowArgs {
    /// The configuration; the defaults if not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// `transactions abort`
#[derive(Clone, Debug, clap::Args)]
pub struct AbortArgs {
    /// The configuration; the defaults if not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The transactional id; log.kafka.transactional_id if not given
    #[arg(long, value_name = "ID")]
    transactional_id: Option<String>,
    /// Confirm: the process that had the id is dead, or may be fenced
    #[arg(long)]
    yes: bool,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

impl TransactionsArgs {
    /// Whether the last line on standard output is to be a JSON object.
    pub fn json(&self) -> bool {
        match &self.command {
            TransactionsCommand::Show(args) => args.json,
            TransactionsCommand::Abort(args) => args.json,
        }
    }
}

/// The report for programs.
#[derive(Debug, Serialize)]
struct TransactionsReport<'a> {
    /// The transactional id that was taken; `null` if none.
    aborted: Option<&'a str>,
    /// Where readers are held back now.
    held_back: &'a [HeldBack],
}

/// Shows or aborts transactions.
///
/// # Errors
/// The configuration is wrong, the log is not Kafka, the broker cannot be reached or refuses,
/// `abort` is not confirmed, or `out` cannot be written to.
pub fn execute(args: &TransactionsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.command {
        TransactionsCommand::Show(args) => {
            let config = kafka_of(args.config.as_ref())?;
            show(&config, None, args.json, out)?;
        }
        TransactionsCommand::Abort(args) => {
            let mut config = kafka_of(args.config.as_ref())?;
            if let Some(id) = &args.transactional_id {
                config.transactional_id.clone_from(id);
            }
            let id = config.transactional_id.clone();
            if !args.yes {
                return Err(unconfirmed(&id).into());
            }
            tracing::warn!(
                transactional_id = id,
                "taking the transactional id; a running process that has it is fenced and stops"
            );
            abort(&config)?;
            show(&config, Some(&id), args.json, out)?;
        }
    }
    Ok(Exit::Success)
}

fn unconfirmed(id: &str) -> Usage {
    Usage::new(
        format!(
            "taking the transactional id `{id}` FENCES a running process that has it: that \
             process stops with exit code 4"
        ),
        "make sure that it is dead, and give --yes",
    )
}

fn kafka_of(path: Option<&PathBuf>) -> anyhow::Result<KafkaConfig> {
    let config = load_config(path.map(PathBuf::as_path))?.value;
    match config.log.kind {
        LogKind::Kafka => Ok(config.log.kafka),
        LogKind::Embedded => Err(Usage::new(
            "log.kind is \"embedded\": one process at a time uses such a log, and the next aborts \
             what the previous one left open",
            "start `turnstream run` again",
        )
        .into()),
    }
}

fn show(
    config: &KafkaConfig,
    aborted: Option<&str>,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let held_back = held_back(config)?;
    if json {
        return Ok(print_json(out, &TransactionsReport { aborted, held_back: &held_back })?);
    }
    if let Some(id) = aborted {
        writeln!(out, "aborted what `{id}` left open")?;
    }
    out.write_all(table(&held_back, jiff::Timestamp::now()).as_bytes())?;
    Ok(())
}

/// One line for each partition.
fn table(held_back: &[HeldBack], now: jiff::Timestamp) -> String {
    if held_back.is_empty() {
        return "no open transaction holds readers back\n".to_owned();
    }
    let lines = held_back.iter().map(|found| {
        let since = found.since_ms.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let since = since.map_or_else(
            || "since an unknown time".to_owned(),
            |since| format!("since {since}, {} s ago", now.duration_since(since).as_secs().max(0)),
        );
        format!(
            "{}, partition {}: stable end {}, high watermark {}, {since}\n",
            found.topic, found.partition, found.stable_end, found.high_watermark
        )
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(config: &str, command: TransactionsCommand) -> anyhow::Error {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.toml");
        std::fs::write(&path, config).expect("written");
        let command = match command {
            TransactionsCommand::Show(args) => {
                TransactionsCommand::Show(TransactionsShowArgs { config: Some(path), ..args })
            }
            TransactionsCommand::Abort(args) => {
                TransactionsCommand::Abort(AbortArgs { config: Some(path), ..args })
            }
        };
        execute(&TransactionsArgs { command }, &mut Vec::new())
            .expect_err("refused before any broker is asked")
    }

    #[test]
    fn fencing_must_be_confirmed() {
        let id = Some("writer-2".to_owned());
        let args = AbortArgs { config: None, transactional_id: id, yes: false, json: false };
        let error = run("", TransactionsCommand::Abort(args));
        let usage = error.downcast_ref::<Usage>().expect("wrong usage");
        let said = usage.to_string();
        assert!(said.contains("`writer-2` FENCES") && said.contains("exit code 4"), "{said}");
    }

    #[test]
    fn an_embedded_log_needs_none_of_it() {
        let config = "[log]\nkind = 'embedded'\ndirectory = 'd'\n";
        let show = TransactionsCommand::Show(TransactionsShowArgs { config: None, json: false });
        let error = run(config, show);
        assert!(error.is::<Usage>() && error.to_string().contains("one process"), "{error}");
    }

    #[test]
    fn a_line_says_where_and_since_when() {
        let held = |since_ms| HeldBack {
            topic: "history".to_owned(),
            partition: 3,
            stable_end: 17,
            high_watermark: 20,
            since_ms,
        };
        let now = jiff::Timestamp::from_second(100).expect("a time");
        assert_eq!(
            table(&[held(Some(58_000)), held(None)], now),
            "history, partition 3: stable end 17, high watermark 20, since 1970-01-01T00:00:58Z, \
             42 s ago\nhistory, partition 3: stable end 17, high watermark 20, since an unknown \
             time\n"
        );
        assert_eq!(table(&[], now), "no open transaction holds readers back\n");
    }
}
