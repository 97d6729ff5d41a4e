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
use turnstream_console::{Usage, load_config, print_json};
use turnstream_engine::commit::TracePlace;
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

/// Watch the engine answer a company's customer from its pages and its table, or say that it
/// cannot, and see what one taught phrasing changes. With `--all`, four conversations about common
/// knowledge too, explained stage by stage.
///
/// Needs no configuration and no network: the log is embedded, and the program carries the company,
/// the facts and the models.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream demo
  turnstream demo --all
  turnstream demo --conversation chatty --pause
  turnstream demo --chat
  turnstream demo --json")]
pub struct DemoArgs {
    /// Type the turns yourself; an empty line or Ctrl-D ends the chat.
    #[arg(long, conflicts_with_all = ["all", "conversation", "pause"])]
    pub chat: bool,
    /// Show every conversation.
    #[arg(long)]
    pub all: bool,
    /// Show only the conversation with this name.
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    pub conversation: Option<String>,
    /// Wait for Enter after each turn.
    #[arg(long)]
    pub pause: bool,
    /// No colours, even on a terminal; the variable NO_COLOR does the same.
    #[arg(long)]
    pub no_color: bool,
    /// Print one response record a line instead of explanations, then one JSON object with counts.
    #[arg(long, conflicts_with = "pause")]
    pub json: bool,
}

/// Conversations that one engine answers.
struct Scene {
    subject: Subject,
    conversations: Vec<Conversation>,
}

/// What a scene is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Company { is_taught: bool },
    CommonKnowledge,
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
        chat::chat(page, args.json, served(common_knowledge)?, &mut stdin.lock(), prompt)?;
        return Ok(());
    }
    let scenes = chosen(args)?;
    let mut played = Vec::with_capacity(scenes.len());
    for scene in &scenes {
        let served = match scene.subject {
            Subject::Company { is_taught } => served(|dir| company(dir, is_taught))?,
            Subject::CommonKnowledge => served(common_knowledge)?,
        };
        played.push(play(&scene.conversations, served)?);
    }
    present(page, args, &scenes, &played)
}

/// The company that `turnstream new` writes, with or without what its staff taught.
fn company(dir: &Path, is_taught: bool) -> anyhow::Result<Config> {
    let mut config = load_config(Some(&crate::new::write_company(dir)?))?.value;
    if !is_taught {
        config.teaching.phrasings = None;
    }
    Ok(config)
}

/// The defaults, with a table beside the graph, and a history so short that the demo can show
/// evictions.
fn common_knowledge(dir: &Path) -> anyhow::Result<Config> {
    // The table is read from a file, as a user's table is.
    let rooms = dir.join("rooms.jsonl");
    std::fs::write(&rooms, ROOMS)?;
    let mut config = Config::default();
    let cues = CUES.map(str::to_owned).to_vec();
    let table = SourceConfig { file: Some(rooms), cues, ..SourceConfig::of(SourceKind::Table) };
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
    // What leaves shows relevance and recency, the paper's two.
    config.history.importance_share = 0.0;
    Ok(config)
}

/// Starts an engine on an empty log, with a configuration that may have files in a folder.
fn served(config: impl FnOnce(&Path) -> anyhow::Result<Config>) -> anyhow::Result<Served> {
    // A started engine has read the files; an index that it holds open outlives the folder.
    let dir = tempfile::tempdir()?;
    let mut config = config(dir.path())?;
    config.commit.interval_ms = 0;
    config.responses.trace = TracePlace::Inline;
    // No other process has the log.
    config.knowledge.live = false;
    let dependencies = Dependencies::new(&config)?;
    let log = EmbeddedConfig { partitions: PARTITIONS, ..EmbeddedConfig::default() };
    Served::start(EmbeddedLog::in_memory(&log)?, dependencies)
}

/// The scenes to show.
fn chosen(args: &DemoArgs) -> anyhow::Result<Vec<Scene>> {
    let [before, after] = script::company();
    let company =
        |is_taught, of| Scene { subject: Subject::Company { is_taught }, conversations: vec![of] };
    let mut scenes = vec![company(false, before), company(true, after)];
    if args.all || args.conversation.is_some() {
        let conversations = script::common_knowledge();
        scenes.push(Scene { subject: Subject::CommonKnowledge, conversations });
    }
    let Some(name) = args.conversation.as_deref() else { return Ok(scenes) };
    let names: Vec<&str> =
        scenes.iter().flat_map(|scene| &scene.conversations).map(|it| it.name).collect();
    if !names.contains(&name) {
        let remedy = format!("name one of: {}", names.join(", "));
        return Err(Usage::new(format!("no conversation `{name}`"), remedy).into());
    }
    for scene in &mut scenes {
        scene.conversations.retain(|conversation| conversation.name == name);
    }
    scenes.retain(|scene| !scene.conversations.is_empty());
    Ok(scenes)
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
    scenes: &[Scene],
    played: &[Played],
) -> anyhow::Result<()> {
    let mut summary = Summary::default();
    for Played { summary: of_scene, .. } in played {
        summary.tally.add(&of_scene.tally);
        summary.skipped += of_scene.skipped;
    }
    let time = played.iter().map(|it| it.time).sum();
    if args.json {
        for heard in played.iter().flat_map(|it| &it.heard).flatten() {
            if let Outcome::Response(response) = &heard.outcome {
                print_json(page.out(), response)?;
            }
        }
        print_counts(page.out(), &summary, time)?;
        return Ok(());
    }
    let mut enter = args.pause.then(|| std::io::stdin().lock());
    frame::introduction(&mut page)?;
    for (scene, played) in scenes.iter().zip(played) {
        let is_explained = scene.subject == Subject::CommonKnowledge;
        if is_explained {
            frame::common_knowledge(&mut page)?;
        }
        for (conversation, heard) in scene.conversations.iter().zip(&played.heard) {
            frame::opening(&mut page, conversation)?;
            let mut spoken = Spoken::default();
            for heard in heard {
                if is_explained {
                    show::turn(&mut page, heard, &spoken)?;
                } else {
                    show::reply(&mut page, heard)?;
                }
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
    }
    frame::closing(&mut page, &summary, time)?;
    Ok(())
}
