//! `turnstream views`: counts responses, histories and knowledge, and keeps the topic of views
//! equal to the counts.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;
use turnstream_log::embedded::EmbeddedLog;
use turnstream_log::{Follower, LogError, Topic, kafka};
use turnstream_schemas::ViewName;

use turnstream_console::{load_config, print_json, signals};
use turnstream_engine::config::{Config, LogKind};
use turnstream_engine::metrics::MetricsConfig;
use turnstream_engine::views::metrics::ViewsMetrics;
use turnstream_engine::views::{Ends, Publishing, Rows, Size, ViewsSummary};

/// Count which facts and relations ground responses, which concepts are asked for and missing, and
/// what histories hold, and publish it on the log's topic of views.
///
/// Reads responses, and changes to histories and to the knowledge, from their oldest record, writes
/// where the topic of views differs, and goes on until SIGTERM or SIGINT. One process does this for
/// a log: a new one fences the one before.
///
/// With log.kind = "embedded" it counts what a directory holds while no `turnstream run` has it
/// open, and exits.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  stopped cleanly, or done
  1  failure while running
  2  wrong usage or configuration: fix it first
  4  fenced: another process publishes the views of this log now
  5  the broker cannot be reached, or the Kafka client cannot go on: restart, nothing is lost
  6  the log refuses us, or more is on it than views.max_rows, max_statements and max_entries allow

Examples:
  turnstream views --config turnstream.toml
  turnstream views --config turnstream.toml --once --top 20
  turnstream views --config turnstream.toml --once --json")]
pub struct ViewsArgs {
    /// The configuration, as for run; the defaults if not given.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Stop once everything that is on the log now is published.
    #[arg(long)]
    pub once: bool,
    /// Number of the largest counts of each view to show at the end.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Print one JSON object as the last line.
    #[arg(long)]
    pub json: bool,
}

/// The report for programs.
#[derive(Debug, Serialize)]
struct ViewsReport<'a> {
    #[serde(flatten)]
    summary: &'a ViewsSummary,
    /// The next offset to count, by partition.
    offsets: Offsets,
    views: Vec<ShownView<'a>>,
}

#[derive(Debug, Serialize)]
struct Offsets {
    responses: BTreeMap<i32, i64>,
    traces: BTreeMap<i32, i64>,
    knowledge: BTreeMap<i32, i64>,
    history: BTreeMap<i32, i64>,
}

/// A view, over all partitions.
#[derive(Debug, Serialize)]
struct ShownView<'a> {
    view: &'static str,
    #[serde(flatten)]
    size: Size,
    top: Vec<Top<'a>>,
}

#[derive(Debug, Serialize)]
struct Top<'a> {
    key: &'a str,
    count: u64,
}

/// Counts and publishes.
///
/// # Errors
/// The configuration is wrong, the log cannot be reached, refuses or fences us, or it has more than
/// the views may hold.
pub fn execute(args: &ViewsArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.config.as_deref())?.value;
    let stop = signals::stop_on_signals()?;
    let address = config.views.metrics_address.clone();
    let served = MetricsConfig { address, ..config.metrics };
    let metrics = ViewsMetrics::new(&served);
    // Serves until this function returns.
    let _server = served.serve(metrics.clone())?;
    let ends = open(&config)?;
    // No other process can write to the directory of an embedded log while it is open here.
    let once = args.once || config.log.kind == LogKind::Embedded;
    let mut publishing = Publishing::new(ends, &config.views, &metrics);
    publishing.run(once, &stop)?;
    let [responses, traces, knowledge, history] = publishing.offsets();
    let report = ViewsReport {
        summary: publishing.summary(),
        offsets: Offsets { responses, traces, knowledge, history },
        views: shown(publishing.rows(), args.top),
    };
    if args.json {
        print_json(out, &report)?;
    } else {
        print(&report, out)?;
    }
    Ok(())
}

fn open(config: &Config) -> anyhow::Result<Ends> {
    match config.log.kind {
        LogKind::Kafka => Ok(open_kafka(config)?),
        LogKind::Embedded => {
            let directory = config.log.directory.as_deref().context("log.directory is missing")?;
            let log = EmbeddedLog::in_directory(directory, &config.log.embedded)
                .context("an embedded log is counted only while no `turnstream run` has it open")?;
            let follow = |topic| Box::new(log.follower(topic)) as Box<dyn Follower>;
            Ok(Ends {
                writer: Box::new(log.writer(Topic::Views)),
                published: Some(follow(Topic::Views)),
                responses: follow(Topic::Responses),
                traces: Some(follow(Topic::Traces)),
                knowledge: config.knowledge.live.then(|| follow(Topic::Knowledge)),
                histories: config.views.histories.then(|| follow(Topic::History)),
            })
        }
    }
}

fn open_kafka(config: &Config) -> Result<Ends, LogError> {
    let kafka = &config.log.kafka;
    // Opened first, so that from here on no other process writes the topic that is read next.
    let writer = Box::new(kafka::publish(kafka, Topic::Views)?);
    let follow = |topic| -> Result<Box<dyn Follower>, LogError> {
        Ok(Box::new(kafka::follow(kafka, topic)?))
    };
    let where_so = |so: bool, topic| so.then(|| follow(topic)).transpose();
    Ok(Ends {
        writer,
        published: Some(follow(Topic::Views)?),
        responses: follow(Topic::Responses)?,
        traces: kafka::follow_if_there(kafka, Topic::Traces, None)?.map(|it| Box::new(it) as _),
        knowledge: where_so(config.knowledge.live, Topic::Knowledge)?,
        histories: where_so(config.views.histories, Topic::History)?,
    })
}

fn shown(rows: &Rows, top: usize) -> Vec<ShownView<'_>> {
    let sizes = rows.sizes();
    let shown = ViewName::ALL.map(|view| ShownView {
        view: view.name(),
        size: sizes[&view],
        top: rows.top(view).take(top).map(|(key, count)| Top { key, count }).collect(),
    });
    shown.into()
}

fn print(report: &ViewsReport<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let ViewsSummary { responses, changes, history_changes, refused, written, removed, .. } =
        report.summary;
    writeln!(
        out,
        "{responses} responses, {changes} changes to the knowledge and {history_changes} to \
         histories counted, {refused} records skipped; {written} rows written, {removed} removed"
    )?;
    for ShownView { view, size, top } in &report.views {
        writeln!(out, "\n{view}: {} keys, {} in all", size.keys, size.count)?;
        for Top { key, count } in top {
            writeln!(out, "{count:>8}  {key}")?;
        }
    }
    Ok(())
}
