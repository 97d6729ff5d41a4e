//! `turnstream demo`: conversations through the whole engine, explained turn by turn.
//!
//! Nothing is simulated. The turns are appended to the `turns` topic of an embedded log in memory
//! and [served](turnstream_engine::serve::serve) on separate threads, as `turnstream run` serves
//! them. The demo shows what was then committed to the log's other topics.

use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use turnstream_console::{Usage, print_json};
use turnstream_engine::config::Config;
use turnstream_engine::dependencies::Dependencies;
use turnstream_engine::serve::Summary;
use turnstream_engine::tally::Tally;
use turnstream_explain::{Page, Spoken};
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog};
use turnstream_operators::sources::SourceConfig;
use turnstream_schemas::{Outcome, SourceKind};

use super::served::Served;

mod chat;
mod frame;
mod play;
mod script;
mod show;

use play::{Played, play};
use script::Conversation;

/// Partitions of every topic: two, so that conversations use different ones.
const PARTITIONS: i32 = 2;

/// The rows for the conversation `hotel`.
const ROOMS: &str = include_str!("demo/rooms.jsonl");
/// The words that ask for these rows.
const CUES: [&str; 7] = ["room", "suite", "bed", "balcony", "check-in", "price", "view"];

/// Watch conversations go through the whole engine: per turn the gate's decision, what is asked
/// of the graph and of a table, the facts chosen, the history used and evicted, and the response.
///
/// Needs no configuration and no network: the log is embedded, and the facts and the gate are those that
/// the program carries.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream demo
  turnstream demo --conversation chatty --pause
  turnstream demo --chat
  turnstream demo --json")]
pub struct DemoArgs {
    /// Type the turns yourself; an empty line or Ctrl-D ends it.
    #[arg(long, conflicts_with_all = ["conversation", "pause"])]
    pub chat: bool,
    /// Show only the conversation of that name.
    #[arg(long, value_name = "NAME")]
    pub conversation: Option<String>,
    /// Wait for Enter after each turn.
    #[arg(long)]
    pub pause: bool,
    /// No colours, also on a terminal; the variable NO_COLOR does the same.
    #[arg(long)]
    pub no_color: bool,
    /// Print no explanation but one response record a line, and last one JSON object with counts.
    #[arg(long, conflicts_with = "pause")]
    pub json: bool,
}

/// Shows the demo.
///
/// # Errors
/// No conversation has the given name, the pack cannot be opened, the engine stops, or `out` cannot
/// be written to.
pub fn execute(args: &DemoArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let page = Page::new(out, colour(args));
    if args.chat {
        let stdin = std::io::stdin();
        let prompt = stdin.is_terminal();
        chat::chat(page, args.json, served()?, &mut stdin.lock(), prompt)?;
    } else {
        let conversations = chosen(args.conversation.as_deref())?;
        let played = play(&conversations, served()?)?;
        present(page, args, &conversations, &played)?;
    }
    Ok(())
}

/// The defaults, with a table beside the graph, and a history so short that the demo can show
/// evictions.
fn config(rooms: &Path) -> Config {
    let mut config = Config::default();
    let cues = CUES.map(str::to_owned).to_vec();
    let table =
        SourceConfig { file: Some(rooms.to_owned()), cues, ..SourceConfig::of(SourceKind::Table) };
    config.sources = [
        (
            "graph".to_owned(),
            SourceConfig { speak: Some(true), ..SourceConfig::of(SourceKind::Graph) },
        ),
        ("persona".to_owned(), SourceConfig::of(SourceKind::UserPersona)),
        ("rooms".to_owned(), table),
    ]
    .into();
    config.history.max_entries = 6;
    config.history.window_utterances = 6;
    config.history.half_life_seconds = 30 * 60;
    config.commit.interval_ms = 0;
    // No other process has the log.
    config.knowledge.live = false;
    config
}

/// Starts an engine on an empty log.
fn served() -> anyhow::Result<Served> {
    // The table is read from a file, as a user's table is.
    let mut rooms = tempfile::NamedTempFile::new()?;
    rooms.write_all(ROOMS.as_bytes())?;
    let config = config(rooms.path());
    let dependencies = Dependencies::new(&config)?;
    let log = EmbeddedConfig { partitions: PARTITIONS, ..EmbeddedConfig::default() };
    Served::start(EmbeddedLog::in_memory(&log)?, dependencies)
}

/// The conversations to show.
fn chosen(name: Option<&str>) -> anyhow::Result<Vec<Conversation>> {
    let all = script::all();
    let Some(name) = name else { return Ok(all) };
    let names: Vec<&str> = all.iter().map(|conversation| conversation.name).collect();
    let remedy = format!("name one of: {}", names.join(", "));
    let found = all.into_iter().find(|conversation| conversation.name == name);
    let found = found.ok_or_else(|| Usage::new(format!("no conversation `{name}`"), remedy))?;
    Ok(vec![found])
}

/// Whether standard output shows colours.
fn colour(args: &DemoArgs) -> bool {
    let choice = anstream::AutoStream::choice(&std::io::stdout());
    !args.no_color && choice != anstream::ColorChoice::Never
}

/// The counts for programs.
#[derive(Debug, Serialize)]
struct Counts<'a> {
    #[serde(flatten)]
    tally: &'a Tally,
    /// Inputs that were read again although they had finished before.
    skipped: u64,
    seconds: f64,
    turns_per_second: f64,
}

/// Prints the counts as the last line of `--json`.
pub(super) fn print_counts(
    out: &mut dyn Write,
    summary: &Summary,
    time: Duration,
) -> std::io::Result<()> {
    let seconds = time.as_secs_f64();
    let turns_per_second = summary.tally.inputs as f64 / seconds.max(f64::EPSILON);
    let Summary { tally, skipped, .. } = summary;
    print_json(out, &Counts { tally, skipped: *skipped, seconds, turns_per_second })
}

fn present(
    mut page: Page<'_>,
    args: &DemoArgs,
    conversations: &[Conversation],
    played: &Played,
) -> anyhow::Result<()> {
    if args.json {
        for heard in played.heard.iter().flatten() {
            if let Outcome::Response(response) = &heard.outcome {
                print_json(page.out(), response)?;
            }
        }
        print_counts(page.out(), &played.summary, played.time)?;
        return Ok(());
    }
    let mut enter = args.pause.then(|| std::io::stdin().lock());
    frame::introduction(&mut page, conversations)?;
    for (conversation, heard) in conversations.iter().zip(&played.heard) {
        frame::opening(&mut page, conversation)?;
        let mut spoken = Spoken::default();
        for heard in heard {
            show::turn(&mut page, heard, &spoken)?;
            heard.note_in(&mut spoken);
            if let Some(stdin) = &mut enter {
                page.flush()?;
                // At the end of input there is nothing to wait for.
                let read = stdin.read_line(&mut String::new()).context("standard input")?;
                if read == 0 {
                    enter = None;
                }
            }
        }
    }
    frame::closing(&mut page, &played.summary, played.time)?;
    Ok(())
}
