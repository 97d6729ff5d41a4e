//! `turnstream chat`: a conversation with the engine, typed at a terminal or read from a pipe.
//!
//! Each line is a turn on an embedded log, in memory or in a directory. An engine in this process
//! [serves](turnstream_engine::serve::serve) it as `turnstream run` does. A response is shown while
//! its model writes it, or as a whole if no model does.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use turnstream_console::{load_config, print_json, signals};
use turnstream_engine::commit::TracePlace;
use turnstream_engine::config::{Checks, Config, ConfigError, Loaded};
use turnstream_engine::dependencies::Reach;
use turnstream_engine::metrics::Metrics;
use turnstream_explain::{Shown, terminal_width};
use turnstream_log::Topic;
use turnstream_log::embedded::EmbeddedLog;
use turnstream_models::answers::Recording;
use turnstream_models::language::AnswerFiles;
use turnstream_models::probe;
use turnstream_operators::generation::GenerationForm;
use turnstream_operators::ingest::InputTopic;
use turnstream_schemas::{Outcome, SourceKind};

use super::demo::print_counts;
use super::explain::takes_colour;
use super::opening;

mod attention;
mod lines;
mod session;
mod view;

use attention::Attention;
use lines::{Line, Lines, SlashCommand};
use session::Session;
use view::View;

/// Talk with the engine: each line that you type is a turn, and the response is shown as it is
/// written.
///
/// The engine runs in this process, with an embedded log in memory, or in a directory if the
/// conversation is to continue another time. Kafka is not touched, whatever the configuration says.
/// Without a configuration no language model is used: a realiser puts facts into sentences.
///
/// At a terminal, Ctrl-C interrupts the response that is being written: the turn goes on without
/// its model, as the stage's on_failure says. Ctrl-D ends the chat. A line that begins with a slash
/// is a command; /help lists them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream chat
  turnstream chat --config prompted.toml --persona \"I have a dog.\" --persona \"I bake bread.\"
  turnstream chat --data conversations --conversation monday
  turnstream chat --language zh
  turnstream chat --json < turns.txt > responses.jsonl")]
pub struct ChatArgs {
    /// The configuration; the defaults if not given. Of its section log only log.embedded is used.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Workers of the dataflow, 1 to 256; overrides run.workers.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Option<u32>,
    /// Keep the conversation in the embedded log of this directory, created if missing, and
    /// continue what it holds. `turnstream run` and `explain` can read it.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The conversation's id.
    #[arg(long, value_name = "ID", default_value = "chat")]
    pub conversation: String,
    /// A sentence that describes you; may be given several times.
    #[arg(long, value_name = "SENTENCE")]
    pub persona: Vec<String>,
    /// The language that you write, such as en or zh; detected from the script if not given.
    #[arg(long, value_name = "TAG")]
    pub language: Option<String>,
    /// Your id, if histories are kept by user.
    #[arg(long, value_name = "ID")]
    pub user: Option<String>,
    /// The files that answers of language models are read from and recorded to.
    #[command(flatten)]
    pub answer_files: AnswerFiles,
    /// No colours, even on a terminal; the variable NO_COLOR does the same.
    #[arg(long)]
    pub no_color: bool,
    /// Print one response record a line, then one JSON object with counts; everything else goes to
    /// standard error.
    #[arg(long)]
    pub json: bool,
}

/// Talks until the end of input.
///
/// # Errors
/// The configuration is wrong, a model cannot be used, the directory cannot be opened, the engine
/// stops, or `out` cannot be written to.
pub fn execute(args: &ChatArgs, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let config = config(args)?;
    let (session, recording) = open(args, &config)?;
    let mut stderr = std::io::stderr();
    let mut nowhere = std::io::sink();
    let (shown, records): (&mut dyn Write, &mut dyn Write) =
        if args.json { (&mut stderr, out) } else { (out, &mut nowhere) };
    let colour = !args.json && !args.no_color && takes_colour();
    // Output for a script keeps the line breaks of the responses.
    let is_read = !args.json && std::io::stdout().is_terminal();
    let columns = is_read.then_some(terminal_width as fn() -> usize);
    let mut chat = Chat {
        session,
        view: View::new(shown, colour, columns),
        records,
        interrupted: Arc::default(),
        time: Duration::ZERO,
    };
    let mut lines = Lines::open(args.json, colour)?;
    if std::io::stdin().is_terminal() {
        // Installed only now, so that Ctrl-C while a model loads still ends the process.
        chat.interrupted = signals::interruptions()?;
        chat.view.note(&chat.session.introduction())?;
    }
    chat.serve(&mut lines)?;
    let Chat { session, records, time, .. } = chat;
    let summary = session.end()?;
    recording.map_or(Ok(()), |recording| recording.finish())?;
    print_counts(records, &summary, time)?;
    Ok(())
}

/// Adapts the configuration to a chat.
fn config(args: &ChatArgs) -> Result<Loaded<Config>, ConfigError> {
    let mut loaded = load_config(args.config.as_deref())?;
    let config = &mut loaded.value;
    if let Some(workers) = args.workers {
        config.run.workers = workers;
    }
    // A person waits for every outcome.
    config.commit.interval_ms = 0;
    config.commit.publish_recorded = true;
    config.responses.trace = TracePlace::Inline;
    // No other process can write to a log in memory.
    config.knowledge.live &= args.data.is_some();
    Ok(loaded)
}

/// Opens the engine, with models that can be interrupted and that report the text they write.
fn open(args: &ChatArgs, loaded: &Loaded<Config>) -> anyhow::Result<(Session, Option<Recording>)> {
    let config = &loaded.value;
    let metrics = Metrics::new(&config.metrics);
    let reach = (&args.answer_files, Reach::Servers);
    let (mut parts, recording) = opening::open(loaded, Checks::default(), &metrics, reach)?;
    let log = match &args.data {
        Some(directory) => EmbeddedLog::in_directory(directory, &config.log.embedded)?,
        None => EmbeddedLog::in_memory(&config.log.embedded)?,
    };
    probe::tell(&parts.language_models, &args.answer_files);
    let (attention, written) = Attention::new();
    for (name, model) in &mut parts.language_models {
        *model = attention.of(name, Arc::clone(model));
    }
    parts.read_along = Some(attention.read_along());
    parts.topic =
        InputTopic { partitions: Some(log.partitions()), ..InputTopic::from(Topic::Turns.name()) };
    let session = Session::start(args, log, parts, attention, written)?;
    Ok((session, recording))
}

/// A running chat.
struct Chat<'a> {
    session: Session,
    view: View<'a>,
    /// Takes the records; discards them if a person reads.
    records: &'a mut dyn Write,
    /// Whether the user wants the turn to end.
    interrupted: Arc<AtomicBool>,
    time: Duration,
}

impl Chat<'_> {
    /// Serves the typed lines until the end.
    fn serve(&mut self, lines: &mut Lines) -> anyhow::Result<()> {
        loop {
            match lines.next(&mut self.view)? {
                Line::Words(words) => self.turn(&words)?,
                Line::Command(SlashCommand::Quit) | Line::End => return Ok(()),
                Line::Command(command) => self.obey(&command)?,
                Line::Interrupted => self.view.note("Ctrl-D or /quit ends the chat")?,
            }
        }
    }

    fn turn(&mut self, words: &str) -> anyhow::Result<()> {
        let asked = Instant::now();
        self.interrupted.store(false, Ordering::Relaxed);
        let outcome = self.session.turn(words, &mut self.view, &self.interrupted)?;
        self.time += asked.elapsed();
        self.interrupted.store(false, Ordering::Relaxed);
        if let Outcome::Response(response) = &outcome {
            print_json(self.records, response)?;
        }
        Ok(())
    }

    fn obey(&mut self, command: &SlashCommand) -> anyhow::Result<()> {
        let asked = match command {
            SlashCommand::Explain => Vec::new(),
            SlashCommand::Prompts => self.session.asked(),
            SlashCommand::Quit | SlashCommand::Help => return Ok(self.view.write(lines::HELP)?),
            SlashCommand::Unknown(name) => {
                let note = format!("unknown command {name}; /help lists the commands");
                return Ok(self.view.note(&note)?);
            }
        };
        let shown = Shown { asked: &asked, ..Shown::default() };
        match self.session.explained(shown, self.view.is_coloured()) {
            None => self.view.note("there is no response yet")?,
            Some(_) if asked.is_empty() && *command == SlashCommand::Prompts => {
                self.view.note("no language model was asked for the last response")?;
            }
            Some(tree) => self.view.write(&tree)?,
        }
        Ok(())
    }
}

/// Describes what words the responses, for the introduction.
fn wording(config: &Config) -> String {
    let has_table = config.sources.values().any(|source| source.kind == SourceKind::Table);
    match config.generation.form {
        GenerationForm::Prompted => {
            format!("the language model {}", config.generation.prompted.model)
        }
        GenerationForm::Learned if has_table => {
            format!(
                "the unified model ({}) for rows of tables, else a realiser",
                config.models.unified
            )
        }
        _ => "a realiser without a language model".to_owned(),
    }
}
