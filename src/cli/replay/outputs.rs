//! Where a replay writes, and how one that was cut short is gone on with.

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;
use turnstream_console::{Usage, stdout};
use turnstream_engine::config::Config;
use turnstream_engine::parts::Parts;
use turnstream_log::jsonl::{BegunWith, Opening, Records, Sinks, crc32, is_compressed};
use turnstream_log::{Ends, LogError};

use super::Args;

/// Parts of the configuration that no outcome of a replay follows from.
const WITHOUT_EFFECT: [&str; 5] = ["log", "commit", "run", "metrics", "views"];

/// Where a replay writes.
pub(super) struct Outputs {
    pub(super) sinks: Sinks,
    /// Whether responses go to standard output.
    pub(super) streams: bool,
    /// Whether history changes are kept for going on alone.
    keeps_history: bool,
}

impl Outputs {
    /// What the flags ask for. Files that can be gone on with have a checkpoint.
    pub(super) fn of(args: &Args) -> Result<Self, Usage> {
        let Args { out, out_history, out_recorded, out_dead_letters, .. } = args;
        let is_stream = |path: &PathBuf| path.as_os_str() == "-";
        let streams = out.as_ref().is_some_and(is_stream);
        let others = [out_history, out_recorded, out_dead_letters].map(Option::as_ref);
        if others.into_iter().flatten().any(is_stream) {
            let what = "only responses can go to standard output";
            return Err(Usage::new(what, "name a file; one that is called so is ./-"));
        }
        let out = out.as_ref().filter(|_| !streams);
        let mut files = [out].into_iter().chain(others).flatten();
        let compressed = files.find(|path| is_compressed(path));
        let lasting = match compressed {
            Some(path) if args.resume => {
                let what = format!("{}: a compressed file cannot be gone on with", path.display());
                return Err(Usage::new(what, "begin anew without --resume"));
            }
            Some(_) => None,
            None => out,
        };
        if streams && (args.resume || args.annotations) {
            let what = "what went to standard output can be neither gone on with nor read again";
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

    /// The replay, before any file is touched.
    pub(super) fn opening(
        &self,
        args: &Args,
        parts: &Parts,
        records: Records,
    ) -> anyhow::Result<Opening> {
        let begun_with = begun_with(args, parts)?;
        let sinks = self.sinks.clone();
        Ok(match args.resume {
            true => Opening::resume(records, sinks, &begun_with)?,
            false => Opening::begin(records, sinks, begun_with),
        })
    }

    /// Opens the files, and standard output where responses go there.
    pub(super) fn open(&self, opening: Opening) -> Result<Ends, LogError> {
        let (consumer, mut producer) = opening.open()?;
        if self.streams {
            producer.respond_to(Box::new(stdout()));
        }
        Ok(Ends::new(consumer, producer))
    }

    /// What to do about a replay that was cut short.
    pub(super) fn how_to_go_on(&self) -> &'static str {
        match self.sinks.checkpoint {
            Some(_) => "go on with --resume and the same flags",
            None => "compressed files and standard output cannot be gone on with",
        }
    }

    /// Removes what is there for going on: there is nothing left to go on with.
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

/// What the outcomes of a replay follow from besides its inputs.
fn begun_with(args: &Args, parts: &Parts) -> anyhow::Result<BegunWith> {
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
        ("the log", log_name(&args.log)),
        ("--format", args.format.to_string()),
        ("--history", format!("{:?}", args.history).to_lowercase()),
        ("--timings", args.timings.to_string()),
        ("--out-history", whole(args.out_history.as_deref())?),
        ("--out-recorded", whole(args.out_recorded.as_deref())?),
        ("--out-dead-letters", whole(args.out_dead_letters.as_deref())?),
        ("--answers", answers),
        ("--record-answers", whole(files.record_answers.as_deref())?),
        ("--record-prompts", files.record_prompts.to_string()),
        ("the knowledge", parts.graph.version().to_owned()),
    ]
    .map(|(what, is)| (what.to_owned(), is))
    .into();
    begun_with.extend(configured(&parts.config)?);
    Ok(begun_with)
}

/// The tables of the configuration, each by a checksum: there may be secrets in them.
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

/// A path that is the same from everywhere.
fn whole(path: Option<&Path>) -> anyhow::Result<String> {
    let Some(path) = path else { return Ok("nothing".to_owned()) };
    let whole = std::path::absolute(path).with_context(|| path.display().to_string())?;
    Ok(whole.display().to_string())
}

/// The file's own name stands where a topic's would: two replays of one file on two machines
/// name their inputs alike.
pub(super) fn log_name(log: &Path) -> String {
    log.file_name().map_or("stdin".into(), |name| name.to_string_lossy().into())
}
