//! The outputs of a replay, and how an interrupted one is resumed.

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;
use turnstream_console::{Usage, stdout};
use turnstream_engine::config::Config;
use turnstream_engine::dependencies::Dependencies;
use turnstream_log::jsonl::{BegunWith, Checkpoint, Opening, Records, Sinks, crc32, is_compressed};
use turnstream_log::{Ends, LogError};

use super::ReplayArgs;
use crate::logged::{LogEnds, ServiceLog};

/// Sections of the configuration that do not affect a replay's outcomes.
const WITHOUT_EFFECT: [&str; 5] = ["log", "commit", "run", "metrics", "views"];

/// The key in a checkpoint for the ends of the log to which the replay reads.
const ENDS: &str = "the ends of the log";

/// The outputs of a replay.
pub(super) struct Outputs {
    pub(super) sinks: Sinks,
    /// Whether responses go to standard output.
    pub(super) streams: bool,
    /// Whether history changes are kept only for resuming.
    keeps_history: bool,
}

impl Outputs {
    /// The outputs that the flags ask for. Files that can be resumed have a checkpoint.
    pub(super) fn of(args: &ReplayArgs) -> Result<Self, Usage> {
        let ReplayArgs { out, out_history, out_recorded, out_dead_letters, .. } = args;
        let is_stream = |path: &PathBuf| path.as_os_str() == "-";
        let streams = out.as_ref().is_some_and(is_stream);
        let others = [out_history, out_recorded, out_dead_letters].map(Option::as_ref);
        if others.into_iter().flatten().any(is_stream) {
            let what = "only responses can go to standard output";
            return Err(Usage::new(what, "name a file; for one called -, write ./-"));
        }
        let out = out.as_ref().filter(|_| !streams);
        let mut files = [out].into_iter().chain(others).flatten();
        let passing = files.find(|path| is_compressed(path) || is_device(path));
        let lasting = match passing {
            Some(path) if args.resume => {
                let what = format!("{}: only a plain file can be resumed", path.display());
                return Err(Usage::new(what, "start over without --resume"));
            }
            Some(_) => None,
            None => out,
        };
        if streams && (args.resume || args.annotations) {
            let what = "standard output can be neither resumed nor read again";
            return Err(Usage::new(what, "name a file with --out"));
        }
        let beside = |suffix: &str| {
            lasting.map(|out| {
                let mut name = out.clone().into_os_string();
                name.push(suffix);
                PathBuf::from(name)
            })
        };
        let sinks = Sinks {
            responses: out.cloned(),
            recorded: out_recorded.clone(),
            dead_letters: out_dead_letters.clone(),
            history: out_history.clone().or_else(|| beside(".checkpoint.history")),
            checkpoint: beside(".checkpoint"),
        };
        let keeps_history = lasting.is_some() && out_history.is_none();
        Ok(Self { sinks, streams, keeps_history })
    }

    /// Returns the ends to which a replay reads a service's log, which may grow meanwhile: the
    /// current ones, or those with which the resumed replay began.
    ///
    /// # Errors
    /// The log cannot be reached, or there is no checkpoint of such a replay.
    pub(super) fn ends(&self, args: &ReplayArgs, log: &ServiceLog) -> anyhow::Result<LogEnds> {
        let checkpoint = self.sinks.checkpoint.as_ref().filter(|_| args.resume);
        let Some(checkpoint) = checkpoint else { return Ok(log.ends()?) };
        let begun_with = Checkpoint::read(checkpoint)?.begun_with;
        // Without them the checkpoint is of another replay, which the other settings reveal.
        let Some(ends) = begun_with.get(ENDS) else { return Ok(log.ends()?) };
        ends.parse().map_err(anyhow::Error::msg)
    }

    /// Prepares the replay without changing any file.
    pub(super) fn opening(
        &self,
        args: &ReplayArgs,
        dependencies: &Dependencies,
        (log, ends, records): (String, Option<&LogEnds>, Records),
    ) -> anyhow::Result<Opening> {
        let begun_with = begun_with(args, (log, ends), dependencies)?;
        let sinks = self.sinks.clone();
        Ok(match args.resume {
            true => Opening::resume(records, sinks, &begun_with)?,
            false => Opening::begin(records, sinks, begun_with),
        })
    }

    /// Opens the files, and standard output if responses go there.
    pub(super) fn open(&self, opening: Opening) -> Result<Ends, LogError> {
        let (consumer, mut producer) = opening.open()?;
        if self.streams {
            producer.respond_to(Box::new(stdout()));
        }
        Ok(Ends::new(consumer, producer))
    }

    /// The advice after an interrupted replay.
    pub(super) fn how_to_go_on(&self) -> &'static str {
        match self.sinks.checkpoint {
            Some(_) => "continue with --resume and the same flags",
            None => "only plain files can be resumed, uncompressed",
        }
    }

    /// Removes the files that only resuming needs.
    pub(super) fn finished(&self) -> Result<(), LogError> {
        let history = self.sinks.history.as_ref().filter(|_| self.keeps_history);
        for path in self.sinks.checkpoint.iter().chain(history) {
            if let Err(source) = std::fs::remove_file(path)
                && source.kind() != ErrorKind::NotFound
            {
                return Err(LogError::File { path: path.display().to_string(), source });
            }
        }
        Ok(())
    }
}

/// The settings that determine the outcomes of a replay beside its inputs.
fn begun_with(
    args: &ReplayArgs,
    (log, ends): (String, Option<&LogEnds>),
    dependencies: &Dependencies,
) -> anyhow::Result<BegunWith> {
    let files = &args.answer_files;
    let answers = match &files.answers {
        None => "nothing".to_owned(),
        Some(path) => {
            let read = File::open(path).and_then(|file| crc32(BufReader::new(file)));
            checksum(read.with_context(|| format!("the answers in {}", path.display()))?)
        }
    };
    let mut begun_with: BegunWith = [
        ("turnstream", env!("CARGO_PKG_VERSION").to_owned()),
        ("the log", log),
        ("which part of it", format!("{:?}", args.logged)),
        ("--format", args.format.to_string()),
        ("--history", format!("{:?}", args.history).to_lowercase()),
        ("--timings", args.timings.to_string()),
        ("--out-history", whole(args.out_history.as_deref())?),
        ("--out-recorded", whole(args.out_recorded.as_deref())?),
        ("--out-dead-letters", whole(args.out_dead_letters.as_deref())?),
        ("--answers", answers),
        ("--record-answers", whole(files.record_answers.as_deref())?),
        ("--record-prompts", files.record_prompts.to_string()),
        ("the knowledge", dependencies.graph.version().to_owned()),
    ]
    .map(|(what, is)| (what.to_owned(), is))
    .into();
    begun_with.extend(ends.map(|ends| (ENDS.to_owned(), ends.to_string())));
    begun_with.extend(configured(&dependencies.config)?);
    Ok(begun_with)
}

/// The sections of the configuration, each as a checksum, since they may contain secrets.
fn configured(config: &Config) -> serde_json::Result<BegunWith> {
    let Value::Object(tables) = serde_json::to_value(config)? else { return Ok(BegunWith::new()) };
    let tables = tables.into_iter().filter(|(name, _)| !WITHOUT_EFFECT.contains(&&**name));
    let tables = tables.map(|(name, table)| {
        let crc32 = crc32fast::hash(table.to_string().as_bytes());
        (format!("[{name}] of the configuration"), checksum(crc32))
    });
    Ok(tables.collect())
}

fn checksum(crc32: u32) -> String {
    format!("checksum {crc32:08x}")
}

/// Whether something other than a file is there, such as `/dev/null` or a pipe.
fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|it| !it.is_file())
}

/// The absolute form of a path.
fn whole(path: Option<&Path>) -> anyhow::Result<String> {
    let Some(path) = path else { return Ok("nothing".to_owned()) };
    let whole = std::path::absolute(path).with_context(|| path.display().to_string())?;
    Ok(whole.display().to_string())
}

/// The file's own name replaces the topic's name, so that two replays of one file on two machines
/// name their inputs alike.
pub(super) fn log_name(log: &Path) -> String {
    log.file_name().map_or("stdin".into(), |name| name.to_string_lossy().into())
}
