//! `turnstream dead-letters redrive`: sends dead letters to the topic of turns again, and marks each as sent
//! again in the same transaction.

use std::collections::BTreeSet;
use std::io::Write;

use serde::Serialize;
use turnstream_console::progress::Progress;
use turnstream_console::{Exit, Usage, load_config, print_json};
use turnstream_log::write::{TogetherWriter, Writer as _};
use turnstream_log::{LogError, Output, Record, Topic, kafka, letters};
use turnstream_ports::partitioner::Partitioner;
use turnstream_schemas::DeadLetter;

use super::edit::Edit;
use super::{LetterPlace, LettersFilter, LettersPlace, letter_of, missing, read};
use crate::logged::LogSource;

/// The number of letters in one transaction.
const TOGETHER: usize = 100;
/// Most letters in the report that could not be edited.
const TOLD: usize = 20;

/// `dead-letters redrive`
#[derive(Debug, clap::Args)]
pub struct RedriveArgs {
    /// The letters, each by partition and offset.
    #[arg(value_name = "LETTER")]
    letters: Vec<LetterPlace>,
    #[command(flatten)]
    place: LettersPlace,
    #[command(flatten)]
    filter: LettersFilter,
    /// All letters that were not sent again yet.
    #[arg(long, conflicts_with = "letters")]
    all: bool,
    /// Change each value first, by a jq program. A letter is left if the program gives no JSON for
    /// it.
    #[arg(long, value_name = "PROGRAM")]
    edit: Option<String>,
    /// Include letters that were sent again before.
    #[arg(long)]
    again: bool,
    /// Only count the letters that would be sent again, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object as the last line.
    #[arg(long)]
    pub(super) json: bool,
}

/// The report for programs.
#[derive(Debug, Default, Serialize)]
struct RedriveReport {
    /// Letters that were sent again, or would be.
    sent: u64,
    /// Selected letters that were sent again before, and are skipped.
    sent_before: u64,
    /// Letters that could not be edited, and were left.
    left: u64,
    /// The reasons, for the first of them.
    why_left: Vec<LeftLetter>,
}

#[derive(Debug, Serialize)]
struct LeftLetter {
    letter: LetterPlace,
    why: String,
}

/// Writes turns and marks. Opening it fences every other redrive of the log.
struct Redriving {
    writer: Box<dyn TogetherWriter>,
    partitions: i32,
    partitioner: Partitioner,
}

impl Redriving {
    fn open(log: &LogSource, partitioner: Partitioner) -> Result<Self, LogError> {
        let (writer, partitions): (Box<dyn TogetherWriter>, i32) = match log {
            LogSource::Kafka(config) => {
                let writer = kafka::redrive(config)?;
                let partitions = writer.partitions();
                (Box::new(writer), partitions)
            }
            LogSource::Embedded(log) => (Box::new(log.clone()), log.partitions()),
        };
        Ok(Self { writer, partitions, partitioner })
    }

    /// Converts a letter to a turn, on the partition of its key, else on the one that it came from.
    fn turn(&self, letter: &DeadLetter, value: Option<Vec<u8>>) -> Output {
        let key = letter.key.as_ref().map(|key| key.0.clone());
        let of_key =
            key.as_deref().and_then(|key| self.partitioner.partition(key, self.partitions));
        Output {
            topic: Topic::Turns,
            partition: of_key.unwrap_or(letter.input.partition),
            input_offset: letter.input.offset,
            key,
            value,
            headers: letter.headers.clone(),
        }
    }
}

/// Sends the selected letters again.
pub(super) fn execute(args: &RedriveArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if args.letters.is_empty() && args.filter.is_empty() && !args.all {
        let remedy = "name letters, or give --reason, --stage, --kind, --since or --all";
        return Err(Usage::new("no letters are selected", remedy).into());
    }
    let edit = args.edit.as_deref().map(Edit::new).transpose()?;
    let config = load_config(args.place.config.as_deref())?.value;
    let log = args.place.log(&config)?;
    // Opened before the marks are read, so that from here on no other process writes any.
    let open = || Redriving::open(&log, config.turns.partitioner);
    let redriving = if args.dry_run { None } else { Some(open()?) };
    let meant = Meant::read(args, &log)?;
    let mut sending = Sending {
        redriving,
        edit,
        batch: Vec::new(),
        progress: Progress::of(meant.places.len(), "letters"),
        report: RedriveReport { sent_before: meant.sent_before, ..RedriveReport::default() },
    };
    read(&mut *log.follower(Topic::DeadLetters)?, |record| match meant.contains(&record) {
        true => sending.take(&record),
        false => Ok(()),
    })?;
    sending.flush()?;
    sending.progress.finish();
    let report = sending.report;
    match args.json {
        true => print_json(out, &report)?,
        false => print(args, &report, out)?,
    }
    Ok(if report.left == 0 { Exit::Success } else { Exit::Failed })
}

/// The letters that are to be sent again.
struct Meant {
    places: BTreeSet<LetterPlace>,
    sent_before: u64,
}

impl Meant {
    /// Finds them. Excludes letters that come later: they may result from what is sent again now.
    fn read(args: &RedriveArgs, log: &LogSource) -> anyhow::Result<Self> {
        let (mut places, mut marked) = (BTreeSet::new(), BTreeSet::new());
        read(&mut *log.follower(Topic::DeadLetters)?, |record| {
            if let Some((partition, offset)) = letters::marked(&record) {
                marked.insert(LetterPlace { partition, offset });
                return Ok(());
            }
            let place = LetterPlace::of(&record);
            let is_named = args.letters.is_empty() || args.letters.contains(&place);
            if is_named && args.filter.takes(&letter_of(&record)?) {
                places.insert(place);
            }
            Ok(())
        })?;
        for letter in &args.letters {
            if !places.contains(letter) {
                return Err(missing(*letter).into());
            }
            if marked.contains(letter) && !args.again {
                let remedy = "give --again to send it once more";
                return Err(Usage::new(format!("{letter} was already sent again"), remedy).into());
            }
        }
        let all = places.len();
        if !args.again {
            places.retain(|place| !marked.contains(place));
        }
        let sent_before = (all - places.len()) as u64;
        Ok(Self { places, sent_before })
    }

    fn contains(&self, record: &Record) -> bool {
        letters::marked(record).is_none() && self.places.contains(&LetterPlace::of(record))
    }
}

/// Sends letters in batches.
struct Sending {
    /// `None` in a dry run.
    redriving: Option<Redriving>,
    edit: Option<Edit>,
    batch: Vec<Output>,
    progress: Progress,
    report: RedriveReport,
}

impl Sending {
    fn take(&mut self, record: &Record) -> anyhow::Result<()> {
        let letter = letter_of(record)?;
        let value = match (&self.edit, &record.value) {
            (Some(edit), Some(value)) => match edit.of(value) {
                Ok(edited) => Some(edited),
                Err(why) => {
                    self.leave(LetterPlace::of(record), why);
                    return Ok(());
                }
            },
            (_, value) => value.clone(),
        };
        if let Some(redriving) = &self.redriving {
            self.batch.extend([redriving.turn(&letter, value), letters::mark(record)]);
        }
        self.report.sent += 1;
        if self.batch.len() >= 2 * TOGETHER {
            self.flush()?;
        }
        self.progress.advance();
        Ok(())
    }

    fn leave(&mut self, letter: LetterPlace, why: String) {
        self.report.left += 1;
        if self.report.why_left.len() < TOLD {
            self.report.why_left.push(LeftLetter { letter, why });
        }
    }

    fn flush(&mut self) -> Result<(), LogError> {
        match &mut self.redriving {
            Some(redriving) if !self.batch.is_empty() => {
                redriving.writer.write_together(&std::mem::take(&mut self.batch))
            }
            _ => Ok(()),
        }
    }
}

fn print(args: &RedriveArgs, report: &RedriveReport, out: &mut dyn Write) -> anyhow::Result<()> {
    let RedriveReport { sent, sent_before, left, why_left } = report;
    let would = if args.dry_run { "would be sent again" } else { "sent again" };
    writeln!(out, "{sent} dead letters {would}, {sent_before} had been, {left} left")?;
    for LeftLetter { letter, why } in why_left {
        writeln!(out, "{letter:>8}  {why}")?;
    }
    Ok(())
}
