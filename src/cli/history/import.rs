//! `turnstream history import`: imports histories into a log that no engine serves.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use turnstream_console::progress::Progress;
use turnstream_console::{InputRefused, Usage, load_config, print_json};
use turnstream_engine::config::{Config, LogKind};
use turnstream_engine::histories::Histories;
use turnstream_engine::histories::import::{ImportError, Imported, Target, Wanted, import};
use turnstream_log::embedded::{EmbeddedLog, partition_of};
use turnstream_log::{LogError, Start, Topic, kafka};
use turnstream_ports::partitioner::Partitioner;
use turnstream_schemas::{Scope, ScopeKind};

use super::{lines, whole};
use crate::run::EMBEDDED_NAME;

/// How long the group may take to assign all partitions to us. Rebalances take seconds.
const PATIENCE: Duration = Duration::from_secs(90);

/// `turnstream history import`
#[derive(Debug, clap::Args)]
pub struct Import {
    /// Changes, one JSON record a line, as `history export` and `replay --out-history` write them;
    /// `-` for standard input.
    #[arg(value_name = "FILE")]
    pub changes: PathBuf,
    /// The directory of an embedded log, created if missing. No other process may have it open.
    #[arg(long, value_name = "DIR", required_unless_present = "config")]
    pub data: Option<PathBuf>,
    /// The configuration. It names the log to write to if --data is not given.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only this history: `tenant/conversation`, or the conversation alone.
    #[arg(long, value_name = "SCOPE")]
    pub scope: Option<String>,
    /// Replace histories that the log already has of these scopes.
    #[arg(long)]
    pub replace: bool,
    /// Print one JSON object as the last line.
    #[arg(long)]
    pub json: bool,
}

/// Reads all histories, checks the log, and then writes.
pub(super) fn execute(args: &Import, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.config.as_deref())?.value;
    let only = args.scope.as_deref().map(whole);
    let mut histories = Histories::default();
    lines(&args.changes, &mut |change| {
        if only.as_ref().is_none_or(|scope| *scope == change.key().scope) {
            histories.take(change);
        }
    })?;
    let embedded = match (&args.data, config.log.kind) {
        (Some(data), _) => Some(data),
        (None, LogKind::Embedded) => config.log.directory.as_ref(),
        (None, LogKind::Kafka) => None,
    };
    let places = |beginnings: &[i64]| {
        places(&config, embedded.is_some(), beginnings.len() as i32, &histories)
    };
    let (places, mut target) = match embedded {
        Some(directory) => {
            let target = open_embedded(&config, directory)?;
            (places(&target.beginnings)?, target)
        }
        None => {
            let log = kafka::unserved(&config.log.kafka)?;
            // Checked before joining: after a member that left at once, the next import would have
            // to wait.
            let places = places(log.beginnings())?;
            let beginnings = log.beginnings().to_vec();
            let (consumer, producer) = log.join()?;
            let (producer, consumer) = (Box::new(producer), Box::new(consumer));
            (places, Target { producer, consumer, beginnings, patience: PATIENCE })
        }
    };
    let place = |scope: &Scope| places.get(scope).copied().unwrap_or_default();
    let wanted = Wanted { histories: &histories, replace: args.replace };
    let progress = Progress::start("histories");
    let imported = import(&mut target, &wanted, &place, &|| progress.advance());
    progress.finish();
    let imported = imported.map_err(refused)?;
    if args.json {
        return Ok(print_json(out, &imported)?);
    }
    let Imported { scopes, entries, unchanged, replaced, written, removed } = imported;
    writeln!(
        out,
        "{scopes} histories with {entries} entries imported, in place of {replaced}; {unchanged} \
         were there already; {written} records written, {removed} of them tombstones"
    )?;
    Ok(())
}

fn open_embedded(config: &Config, directory: &Path) -> Result<Target, LogError> {
    let log = EmbeddedLog::in_directory(directory, &config.log.embedded)?;
    let consumer = log.consumer(EMBEDDED_NAME, Topic::Turns)?;
    let producer = log.producer(&consumer, EMBEDDED_NAME)?;
    let begins = |partition| match config.log.embedded.start {
        Start::Earliest => 0,
        Start::Latest => log.end(Topic::Turns, partition),
    };
    let beginnings = (0..log.partitions()).map(begins).collect();
    let (producer, consumer) = (Box::new(producer), Box::new(consumer));
    Ok(Target { producer, consumer, beginnings, patience: PATIENCE })
}

/// The partition of each scope's turns, by their key.
fn places(
    config: &Config,
    embedded: bool,
    partitions: i32,
    histories: &Histories,
) -> Result<BTreeMap<Scope, i32>, Usage> {
    let partitioner = config.turns.partitioner;
    if partitions > 1 && embedded && config.turns.scope == ScopeKind::User {
        return Err(Usage::new(
            "an embedded log places turns by conversation, so a user's turns are on several \
             partitions",
            "set log.embedded.partitions = 1, or turns.scope = \"conversation\"",
        ));
    }
    if partitions > 1 && !embedded && partitioner == Partitioner::Unchecked {
        return Err(Usage::new(
            "turns.partitioner is \"unchecked\", so the partition of a turn is unknown",
            "set turns.partitioner to how the writers of turns place keys: \"murmur2\" or \"crc32\"",
        ));
    }
    let place = |scope: &Scope| {
        // The slash cannot be the tenant's, which is escaped.
        let (_, key) = scope.as_str().split_once('/').unwrap_or_default();
        match partitions {
            1 => Some(0),
            _ if embedded => Some(partition_of(key.as_bytes(), partitions)),
            _ => partitioner.partition(key.as_bytes(), partitions),
        }
    };
    let placed = histories.iter().map(|(scope, _)| {
        let nowhere = || {
            let message = format!("turns of the scope `{scope}` may be on any partition");
            Usage::new(message, "leave it out of the file")
        };
        Ok((scope.clone(), place(scope).ok_or_else(nowhere)?))
    });
    placed.collect()
}

fn refused(error: ImportError) -> anyhow::Error {
    let message = error.to_string();
    match error {
        ImportError::Log(error) => error.into(),
        ImportError::Served { .. } => LogError::Refused(message).into(),
        ImportError::Interrupted { .. } => {
            let remedy =
                "stop it, and import the same file again; histories already imported are kept";
            anyhow::anyhow!("{message}; {remedy}")
        }
        ImportError::NoOrder(_) => {
            let remedy =
                "export it from one log, or leave the entries of one partition out of the file";
            InputRefused::new(message, remedy).into()
        }
        ImportError::AlreadyThere { ref place, .. } => {
            let remedy = match place.is_empty() {
                true => "--replace replaces them; --scope imports one history of the file",
                false => "set turns.partitioner to how the writers of turns place keys",
            };
            InputRefused::new(message, remedy).into()
        }
    }
}
