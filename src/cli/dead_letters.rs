//! `turnstream dead-letters`: shows the inputs that could not be served, with the reasons, and sends them
//! to the topic of turns again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;
use turnstream_console::{Exit, Usage, load_config, print_json};
use turnstream_engine::config::Config;
use turnstream_log::{Follower, LogError, Record, Topic, letters};
use turnstream_schemas::{DeadLetter, FaultKind, Stage};

use crate::logged::{LogSource, moment};

mod edit;
mod redrive;

/// The longest quoted text, in bytes, that distinguishes reasons.
const LONGEST_NAME: usize = 32;

/// How long one poll of the topic waits.
const POLL: Duration = Duration::from_millis(100);

/// Show the inputs that could not be served, with the reason of each, and send them again once the
/// reason is gone.
///
/// A dead letter has the bytes, the key and the headers of the input, unchanged. Its name is its
/// place on the topic: partition and offset, such as 2-417.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream dead-letters list --config turnstream.toml --since 2h
  turnstream dead-letters show 2-417 --config turnstream.toml
  turnstream dead-letters redrive --config turnstream.toml --reason \"answered in time\"")]
pub struct DeadLettersArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: DeadLettersCommand,
}

/// The operations on dead letters.
#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// List them, and how many there are for each reason
    #[command(after_help = "\
Examples:
  turnstream dead-letters list --config turnstream.toml
  turnstream dead-letters list --config turnstream.toml --stage generation --json
  turnstream dead-letters list --data conversations --reason UTF-8")]
    List(LettersListArgs),
    /// Show one, with its original bytes
    #[command(after_help = "\
Examples:
  turnstream dead-letters show 2-417 --config turnstream.toml
  turnstream dead-letters show 0-3 --data conversations --json")]
    Show(LettersShowArgs),
    /// Send them to the topic of turns again, each once
    ///
    /// Bytes, key and headers are sent unchanged. Each letter is marked as sent again in the same
    /// transaction, so that the command may be stopped, or killed, at any time and repeated. One
    /// process does this for a log: a new one fences the one before.
    #[command(after_help = "\
Exit codes:
  0  done
  1  some letters could not be edited, and were left; or a failure while running
  2  wrong usage, such as a letter that was already sent again

Examples:
  turnstream dead-letters redrive --config turnstream.toml --stage generation --dry-run
  turnstream dead-letters redrive --reason tenant_id --edit \".tenant_id = null\"
  turnstream dead-letters redrive 2-417 2-418 --config turnstream.toml
  turnstream dead-letters redrive --all --data conversations")]
    Redrive(redrive::RedriveArgs),
}

/// The place of the letters.
#[derive(Debug, clap::Args)]
struct LettersPlace {
    /// The configuration, as for run; the defaults if not given.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The directory of an embedded log, as `chat --data` keeps it. No other process may have it
    /// open.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl LettersPlace {
    fn log(&self, config: &Config) -> Result<LogSource, LogError> {
        LogSource::open(self.data.as_deref(), config)
    }
}

/// Selects letters.
#[derive(Debug, Default, clap::Args)]
struct LettersFilter {
    /// Letters whose reason contains this text, in either case.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Letters of this stage, such as `ingest`.
    #[arg(long, value_name = "STAGE", value_parser = stage)]
    stage: Option<Stage>,
    /// Letters of this kind of fault.
    #[arg(long, value_name = "KIND", value_parser = kind)]
    kind: Option<FaultKind>,
    /// Letters whose input came since this time, such as 2026-11-26T08:00:00Z, or this long ago,
    /// such as 2h or 30m.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,
}

/// `dead-letters list`
#[derive(Debug, clap::Args)]
pub struct LettersListArgs {
    #[command(flatten)]
    place: LettersPlace,
    #[command(flatten)]
    filter: LettersFilter,
    /// Include letters that were sent again.
    #[arg(long)]
    all: bool,
    /// List at most this many, the latest ones.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print one JSON object instead.
    #[arg(long)]
    json: bool,
}

/// `dead-letters show`
#[derive(Debug, clap::Args)]
pub struct LettersShowArgs {
    /// The letter: partition and offset.
    #[arg(value_name = "LETTER")]
    letter: LetterPlace,
    #[command(flatten)]
    place: LettersPlace,
    /// Print one JSON object instead: the record, as `turnstream schema dead_letter` describes it.
    #[arg(long)]
    json: bool,
}

impl DeadLettersArgs {
    /// Whether the last line on standard output is to be a JSON object.
    pub fn json(&self) -> bool {
        match &self.command {
            DeadLettersCommand::List(args) => args.json,
            DeadLettersCommand::Show(args) => args.json,
            DeadLettersCommand::Redrive(args) => args.json,
        }
    }
}

/// The place of a letter on the topic of dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LetterPlace {
    partition: i32,
    offset: i64,
}

impl LetterPlace {
    fn of(record: &Record) -> Self {
        Self { partition: record.partition, offset: record.offset }
    }
}

impl fmt::Display for LetterPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.partition, self.offset)
    }
}

impl FromStr for LetterPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('-').and_then(|(partition, offset)| {
            Some(Self { partition: partition.parse().ok()?, offset: offset.parse().ok()? })
        });
        parsed.ok_or_else(|| "a letter is named by its partition and offset, as 2-417".to_owned())
    }
}

impl Serialize for LetterPlace {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl LettersFilter {
    fn is_empty(&self) -> bool {
        let Self { reason, stage, kind, since } = self;
        reason.is_none() && stage.is_none() && kind.is_none() && since.is_none()
    }

    fn takes(&self, letter: &DeadLetter) -> bool {
        let DeadLetter { fault, time, .. } = letter;
        let has = |text: &String| fault.reason.to_lowercase().contains(&text.to_lowercase());
        self.reason.as_ref().is_none_or(has)
            && self.stage.is_none_or(|stage| fault.stage == stage)
            && self.kind.is_none_or(|kind| fault.kind == kind)
            && self.since.is_none_or(|since| *time >= since.as_millisecond())
    }
}

fn stage(text: &str) -> Result<Stage, String> {
    let found = Stage::ALL.into_iter().find(|stage| stage.name() == text);
    found.ok_or_else(|| {
        "no stage has this name; two that exist are `ingest` and `generation`".to_owned()
    })
}

fn kind(text: &str) -> Result<FaultKind, String> {
    let found = FaultKind::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| {
        format!("expected one of {}", FaultKind::ALL.map(FaultKind::name).join(", "))
    })
}

/// Lists, shows or sends again.
///
/// # Errors
/// The configuration is wrong, the log cannot be read or written to, or a named letter is not there.
pub fn execute(args: &DeadLettersArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.command {
        DeadLettersCommand::List(args) => list(args, out).map(|()| Exit::Success),
        DeadLettersCommand::Show(args) => show(args, out).map(|()| Exit::Success),
        DeadLettersCommand::Redrive(args) => redrive::execute(args, out),
    }
}

/// Reads every record that was on the topic when it was opened.
fn read(
    follower: &mut dyn Follower,
    mut take: impl FnMut(Record) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    while !follower.has_caught_up() {
        follower.poll(POLL)?.into_iter().try_for_each(&mut take)?;
    }
    Ok(())
}

fn letter_of(record: &Record) -> Result<DeadLetter, LogError> {
    letters::decode(record.key.as_deref(), record.value.as_deref(), &record.headers)
}

/// A line of the list.
#[derive(Debug, Serialize)]
struct ListedLetter {
    letter: LetterPlace,
    /// When the input came.
    time: String,
    stage: Stage,
    kind: FaultKind,
    reason: String,
    /// Bytes of the input.
    bytes: usize,
    sent_again: bool,
}

/// The number of letters with a reason.
#[derive(Debug, Serialize)]
struct ReasonCount {
    stage: Stage,
    kind: FaultKind,
    /// The reason without its figures and most quoted texts.
    reason: String,
    letters: u64,
    sent_again: u64,
}

#[derive(Debug, Default, Serialize)]
struct LettersList {
    letters: u64,
    sent_again: u64,
    reasons: Vec<ReasonCount>,
    /// The latest letters.
    latest: Vec<ListedLetter>,
}

fn list(args: &LettersListArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.place.config.as_deref())?.value;
    let (mut listed, mut marked) = (Vec::new(), BTreeSet::new());
    read(&mut *args.place.log(&config)?.follower(Topic::DeadLetters)?, |record| {
        if let Some((partition, offset)) = letters::marked(&record) {
            marked.insert(LetterPlace { partition, offset });
            return Ok(());
        }
        let letter = letter_of(&record)?;
        if args.filter.takes(&letter) {
            listed.push(ListedLetter {
                letter: LetterPlace::of(&record),
                time: time(letter.time),
                stage: letter.fault.stage,
                kind: letter.fault.kind,
                reason: letter.fault.reason,
                bytes: record.value.map_or(0, |value| value.len()),
                sent_again: false,
            });
        }
        Ok(())
    })?;
    let mut list = LettersList::default();
    let mut reasons = BTreeMap::<(Stage, FaultKind, String), (u64, u64)>::new();
    for letter in &mut listed {
        letter.sent_again = marked.contains(&letter.letter);
        let reason = (letter.stage, letter.kind, without_particulars(&letter.reason));
        let (letters, sent_again) = reasons.entry(reason).or_default();
        *letters += 1;
        *sent_again += u64::from(letter.sent_again);
        list.letters += 1;
        list.sent_again += u64::from(letter.sent_again);
    }
    let reasons = reasons.into_iter().map(|((stage, kind, reason), (letters, sent_again))| {
        ReasonCount { stage, kind, reason, letters, sent_again }
    });
    list.reasons = reasons.collect();
    list.reasons.sort_by_key(|count| std::cmp::Reverse(count.letters));
    listed.retain(|letter| args.all || !letter.sent_again);
    listed.sort_by(|a, b| a.time.cmp(&b.time).then(a.letter.cmp(&b.letter)));
    list.latest = listed.split_off(listed.len().saturating_sub(args.limit));
    if args.json {
        return Ok(print_json(out, &list)?);
    }
    print_list(&list, out)
}

fn print_list(list: &LettersList, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "{} dead letters, {} of them sent again", list.letters, list.sent_again)?;
    for ReasonCount { stage, kind, reason, letters, sent_again } in &list.reasons {
        let left = letters - sent_again;
        writeln!(out, "{left:>8}  {stage} {}: {reason}", kind.name())?;
    }
    if !list.latest.is_empty() {
        writeln!(out)?;
    }
    for ListedLetter { letter, time, stage, reason, bytes, sent_again, .. } in &list.latest {
        let again = if *sent_again { ", sent again" } else { "" };
        writeln!(out, "{letter:>8}  {time}  {stage}: {reason} ({bytes} B{again})")?;
    }
    Ok(())
}

/// Removes from a reason its figures, and the quoted texts that contain figures or are long, so
/// that letters are counted by what went wrong.
fn without_particulars(reason: &str) -> String {
    let mut parts = reason.split('`');
    let mut kept = without_figures(parts.next().unwrap_or_default());
    while let (Some(quoted), Some(after)) = (parts.next(), parts.next()) {
        let is_name =
            quoted.len() <= LONGEST_NAME && !quoted.contains(|it: char| it.is_ascii_digit());
        kept += &format!("`{}`{}", if is_name { quoted } else { "…" }, without_figures(after));
    }
    kept
}

/// Replaces each number of a text by `#`.
fn without_figures(text: &str) -> String {
    let (mut kept, mut of_number) = (String::new(), false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let is_digit = character.is_ascii_digit();
        let parts = of_number && matches!(character, ',' | '.');
        let parts = parts && characters.peek().is_some_and(char::is_ascii_digit);
        match character {
            _ if parts || is_digit && of_number => {}
            _ if is_digit => kept.push('#'),
            other => kept.push(other),
        }
        of_number = is_digit || parts;
    }
    kept
}

fn time(milliseconds: i64) -> String {
    let time = Timestamp::from_millisecond(milliseconds).ok();
    time.map_or_else(|| milliseconds.to_string(), |time| time.to_string())
}

fn show(args: &LettersShowArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.place.config.as_deref())?.value;
    let (mut found, mut again) = (None, None);
    read(&mut *args.place.log(&config)?.follower(Topic::DeadLetters)?, |record| {
        match letters::marked(&record) {
            Some((partition, offset)) if args.letter == LetterPlace { partition, offset } => {
                again = Some(record.time_ms.map_or_else(String::new, time));
            }
            None if args.letter == LetterPlace::of(&record) => found = Some(letter_of(&record)?),
            _ => {}
        }
        Ok(())
    })?;
    let letter = found.ok_or_else(|| missing(args.letter))?;
    if args.json {
        return Ok(print_json(out, &letter)?);
    }
    let DeadLetter { input, value, key, headers, fault, time: came, .. } = &letter;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).escape_debug().to_string();
    writeln!(out, "letter  {}: input {} of {}", args.letter, input.offset, input.topic)?;
    writeln!(out, "came    {}", time(*came))?;
    writeln!(out, "failed  {}, {}: {}", fault.stage, fault.kind.name(), fault.reason)?;
    if let Some(again) = again {
        writeln!(out, "again   sent again {again}")?;
    }
    if let Some(key) = key {
        writeln!(out, "key     {}", text(&key.0))?;
    }
    for header in headers {
        let value = header.value.as_ref().map_or_else(String::new, |value| text(&value.0));
        writeln!(out, "header  {} = {value}", header.name)?;
    }
    match value {
        None => writeln!(out, "no value")?,
        Some(value) => writeln!(out, "value   {} bytes\n{}", value.0.len(), text(&value.0))?,
    }
    Ok(())
}

fn missing(letter: LetterPlace) -> Usage {
    let remedy = "`turnstream dead-letters list --all` lists them";
    Usage::new(format!("there is no dead letter {letter}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_without_their_particulars() {
        for (reason, counted) in [
            (
                "the text is 9,120 bytes long, more than 8192",
                "the text is # bytes long, more than #",
            ),
            ("unknown variant `bot`, expected `user`", "unknown variant `bot`, expected `user`"),
            ("no conversation `c-17` here", "no conversation `…` here"),
            ("at line 1, column 20", "at line #, column #"),
        ] {
            assert_eq!(without_particulars(reason), counted);
        }
    }

    #[test]
    fn a_letter_is_named_by_its_place() {
        assert_eq!("2-417".parse(), Ok(LetterPlace { partition: 2, offset: 417 }));
        assert!("turns-2-417".parse::<LetterPlace>().is_err());
    }
}
