//! `turnstream history forget`: asks the engine to forget histories, by one record each on the
//! topic of turns. The engine removes the entries when it reads the records; nothing is removed
//! here.

use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;
use turnstream_console::load_config;
use turnstream_engine::config::{Config, LogKind};
use turnstream_engine::histories::{Histories, Kept};
use turnstream_log::write::{Stretch, Writer};
use turnstream_log::{Topic, kafka};
use turnstream_schemas::{Directive, DirectiveKind, Scope, ScopeKind, TenantId, UserId};

use super::{directory, follow, missing, opened, print_json, whole};

/// `turnstream history forget`
#[derive(Debug, clap::Args)]
pub struct ForgetArgs {
    /// The history's scope: `tenant/conversation`, or the conversation alone under the default
    /// tenant.
    #[arg(value_name = "SCOPE", required_unless_present = "user", conflicts_with = "user")]
    pub scope: Option<String>,
    /// Every history that holds a turn of this user.
    #[arg(long, value_name = "ID")]
    pub user: Option<String>,
    /// The tenant of the user; `default` if not given.
    #[arg(long, value_name = "ID", requires = "user")]
    pub tenant: Option<String>,
    /// The directory of an embedded log, as `chat --data` keeps it. No other process may have it
    /// open.
    #[arg(long, value_name = "DIR", required_unless_present = "config")]
    pub data: Option<PathBuf>,
    /// The configuration of the engine. It says whether conversations or users have histories, and
    /// names the log if --data is not given.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only show the histories that would be forgotten, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object as the last line.
    #[arg(long)]
    pub json: bool,
}

/// The report for programs.
#[derive(Debug, Serialize)]
struct ForgetReport<'a> {
    topic: &'a str,
    histories: Vec<Chosen<'a>>,
    written: u64,
    partitions: Vec<PartitionDemands>,
}

/// A history to forget.
#[derive(Debug, Serialize)]
struct Chosen<'a> {
    scope: &'a Scope,
    partition: i32,
    entries: usize,
}

#[derive(Debug, Serialize)]
struct PartitionDemands {
    partition: i32,
    #[serde(flatten)]
    stretch: Stretch,
}

/// Finds the histories to forget, and writes a demand for each.
///
/// # Errors
/// The log cannot be read or written to, or there is no such history.
pub(super) fn execute(args: &ForgetArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.config.as_deref())?.value;
    let mut histories = Histories::default();
    let mut take = |change| histories.take(change);
    let mut writer: Box<dyn Writer> = match directory(args.data.as_deref(), &config) {
        None => {
            follow(&mut kafka::follow(&config.log.kafka, Topic::History)?, &mut take)?;
            Box::new(kafka::write(&config.log.kafka, Topic::Turns)?)
        }
        Some(directory) => {
            let log = opened(directory, &config)?;
            follow(&mut log.follower(Topic::History), &mut take)?;
            Box::new(log.writer(Topic::Turns))
        }
    };
    if let Some(scope) = &args.scope {
        let scope = whole(scope);
        histories.of(&scope).ok_or_else(|| missing(&scope))?;
    }
    let chosen = chosen(&histories, args, config.turns.scope);
    if !args.dry_run {
        chosen.iter().try_for_each(|history| ask(&mut *writer, history, &config))?;
    }
    let written = writer.finish()?;
    let report = ForgetReport {
        topic: topic_of(args, &config),
        histories: chosen,
        written: written.values().map(|stretch| stretch.records).sum(),
        partitions: written
            .into_iter()
            .map(|(partition, stretch)| PartitionDemands { partition, stretch })
            .collect(),
    };
    if args.json {
        return Ok(print_json(out, &report)?);
    }
    print(&report, out)
}

/// The matching histories that have entries.
fn chosen<'h>(histories: &'h Histories, args: &ForgetArgs, kind: ScopeKind) -> Vec<Chosen<'h>> {
    let tenant = args.tenant.as_deref().map(TenantId::from);
    let user = args.user.as_deref().map(UserId::from);
    let is_meant = |scope: &Scope, kept: &Kept| match (&args.scope, &user, kind) {
        (Some(name), ..) => *scope == whole(name),
        (None, Some(user), ScopeKind::User) => *scope == Scope::new(tenant.as_ref(), user.as_str()),
        (None, Some(user), ScopeKind::Conversation) => {
            let (of, _) = scope.parts();
            of.as_str() == tenant.as_ref().map_or(Scope::DEFAULT_TENANT, TenantId::as_str)
                && kept.entries.values().any(|entry| entry.user_id.as_ref() == Some(user))
        }
        (None, None, _) => false,
    };
    let meant = histories.iter().filter(|(scope, kept)| is_meant(scope, kept));
    let chosen = meant.filter_map(|(scope, kept)| {
        let (first, _) = kept.entries.first_key_value()?;
        Some(Chosen { scope, partition: first.partition, entries: kept.entries.len() })
    });
    chosen.collect()
}

/// Writes the demand to the partition of the history's turns. The record has the key that turns
/// have by default, unless `turns.partitioner` puts that key on another partition: a record without
/// a key may be on any partition.
fn ask(writer: &mut dyn Writer, history: &Chosen<'_>, config: &Config) -> anyhow::Result<()> {
    let (tenant, id) = history.scope.parts();
    let tenant = Some(tenant).filter(|tenant| tenant.as_str() != Scope::DEFAULT_TENANT);
    let directive = Directive::new(DirectiveKind::Forget, config.turns.scope, tenant, id);
    let value = serde_json::to_vec(&directive)?;
    let belongs = config.turns.partitioner.partition(id.as_bytes(), writer.partitions());
    let is_at_home = belongs.is_none_or(|belongs| belongs == history.partition);
    let key = is_at_home.then_some(id.as_bytes());
    Ok(writer.write_to(history.partition, key, Some(&value))?)
}

fn topic_of<'a>(args: &ForgetArgs, config: &'a Config) -> &'a str {
    match config.log.kind {
        LogKind::Kafka if args.data.is_none() => config.log.kafka.topics.name(Topic::Turns),
        _ => Topic::Turns.name(),
    }
}

fn print(report: &ForgetReport<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    for Chosen { scope, partition, entries } in &report.histories {
        writeln!(out, "{scope}  entries {entries}, partition {partition}")?;
    }
    for PartitionDemands { partition, stretch } in &report.partitions {
        let Stretch { records, first_offset, last_offset } = stretch;
        let place = format!("{} partition {partition}", report.topic);
        writeln!(out, "{place}: {records} written, offsets {first_offset} to {last_offset}")?;
    }
    if report.histories.is_empty() {
        writeln!(out, "nothing to forget")?;
    }
    Ok(())
}
