//! `turnstream verify`: checks whether a service answered as its configuration says.
//!
//! Replays what the service has read, with its own configuration and the recorded answers of its
//! language models, and compares every response that it committed with the derived one. Reports the
//! responses that a replay cannot derive.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use turnstream_console::{Exit, print_json};
use turnstream_models::budget::ModelLimits;
use turnstream_models::language::AnswerFiles;
use turnstream_ports::model::UNASKED;
use turnstream_schemas::{
    DeadLetter, Degraded, Fault, Fingerprint, FingerprintPart, Response, Stage, Turn,
};

use crate::diff::comparison::{ComparedResponse, ResponseDifference, Said};
use crate::diff::name_of;
use crate::logged::{LoggedPart, ServiceLog};
use crate::replay::{self, ReplayArgs};
use crate::responses::each_response;

/// Derive the responses of a service again, and show which differ.
///
/// Reads the log that the configuration names, as `replay --from-log` does: nothing is written
/// there.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  no response differs; some may be impossible to derive
  1  a response differs

Examples:
  turnstream verify --from-log prod.toml --since 24h
  turnstream verify --from-log prod.toml --answers answers.jsonl --sample 5% --json
  turnstream verify --from-log prod.toml --conversation c-17 --show 100
  turnstream verify --from-log prod.toml --offsets 0:100-250,1:0-99")]
pub struct VerifyArgs {
    /// The configuration of the service: the place of its log, and how it answers.
    #[arg(long, value_name = "FILE")]
    from_log: PathBuf,
    /// The part of the log to verify.
    #[command(flatten)]
    logged: LoggedPart,
    /// Answers of its language models, as `run --record-answers` wrote them; no model is called.
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
    /// Show at most this many of the responses that differ.
    #[arg(long, value_name = "N", default_value_t = 10)]
    show: usize,
    /// Print one JSON object instead.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Why a response cannot be derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Underivable {
    /// Another program, other weights, another configuration or other knowledge made it.
    MadeOtherwise,
    /// A language model was asked, and its answer is not recorded.
    AnswerNotRecorded,
    /// Knowledge was changed live, which a replay does not follow.
    KnowledgeChanged,
    /// Its turn is no longer on the log, or ends otherwise when it is replayed.
    NoSuchTurn,
}

impl Underivable {
    fn because(self) -> &'static str {
        match self {
            Self::MadeOtherwise => "another program, configuration or knowledge made them",
            Self::AnswerNotRecorded => "an answer of a language model was not recorded",
            Self::KnowledgeChanged => "the knowledge was changed live",
            Self::NoSuchTurn => "their turns are not on the log, or end differently",
        }
    }
}

/// A response that differs from the derived one.
#[derive(Debug, Serialize)]
struct WrongResponse {
    turn: String,
    /// The first stage at which they differ.
    stage: Stage,
    committed: Said,
    derived: Said,
}

/// The result of a verification.
#[derive(Debug, Default, Serialize)]
struct VerifyReport {
    /// Responses that the service committed.
    responses: u64,
    same: u64,
    /// Responses that differ only in scores or order.
    numbers: u64,
    differ: u64,
    /// Responses that cannot be derived, by the reason.
    underivable: BTreeMap<Underivable, u64>,
    /// The parts of the fingerprint in which responses differ that something else made.
    made_by: BTreeSet<FingerprintPart>,
    /// The first responses that differ.
    shown: Vec<WrongResponse>,
}

/// A response that the replay derived.
struct Derived {
    compared: ComparedResponse,
    made_by: Option<Fingerprint>,
    /// Whether a question to a language model had no answer.
    is_unasked: bool,
}

/// Verifies the responses of a service.
///
/// # Errors
/// The configuration is wrong, the log cannot be read, or the replay fails.
pub fn execute(args: &VerifyArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let folder = tempfile::tempdir()?;
    let files = ["responses.jsonl", "letters.jsonl"].map(|name| folder.path().join(name));
    let [responses, letters] = &files;
    let nobody = ModelLimits { max_requests: Some(0), ..ModelLimits::default() };
    let limits = if args.answers.is_some() { ModelLimits::default() } else { nobody };
    let answers = AnswerFiles { answers: args.answers.clone(), limits, ..AnswerFiles::default() };
    // Later inputs are not verified.
    let ends = ServiceLog::open(&args.from_log)?.ends()?;
    let replay = ReplayArgs::of_service(&args.from_log, &args.logged, answers, files.clone());
    // The replay's own report is discarded.
    if replay::execute(&replay, &mut std::io::sink())? == Exit::Failed {
        return Ok(Exit::Failed);
    }
    let mut derived = HashMap::new();
    each_response(responses, |_, response| {
        let mut faults = response.degraded.iter().filter_map(Degraded::fault);
        let is_unasked = faults.any(is_unasked);
        let (name, made_by) = (name_of(&response), response.fingerprint.clone());
        let compared = ComparedResponse::of(response);
        derived.insert(name, Derived { compared, made_by, is_unasked });
    })?;
    let unasked = unasked(letters)?;
    let mut report = VerifyReport::default();
    let log = ServiceLog::open(&args.from_log)?;
    let meant = log.meant(&args.logged, &ends)?;
    log.each_response(&args.logged, |response| {
        let (partition, offset) = (response.input.partition, response.input.offset);
        // Without limits, a turn that is missing was deleted; with limits, it may not be selected.
        let is_meant = meant.contains(&(partition, offset)) || !args.logged.is_limited();
        if ends.has(partition, offset) && is_meant {
            report.note(response, (&mut derived, &unasked), args.show);
        }
    })?;
    if args.json {
        print_json(out, &report)?;
    } else {
        report.print(out)?;
    }
    Ok(if report.differ == 0 { Exit::Success } else { Exit::Failed })
}

fn is_unasked(fault: &Fault) -> bool {
    fault.reason.contains(UNASKED)
}

/// The turns that could not be answered without a language model.
fn unasked(letters: &Path) -> anyhow::Result<HashSet<String>> {
    let mut turns = HashSet::new();
    for line in BufReader::new(File::open(letters)?).lines() {
        let letter: DeadLetter = serde_json::from_str(&line?)?;
        let turn = letter.value.filter(|_| is_unasked(&letter.fault));
        // A replay of a service's log gives every turn its id.
        if let Some(turn) = turn.and_then(|value| serde_json::from_slice::<Turn>(&value.0).ok())
            && let Some(id) = turn.turn_id
        {
            turns.insert(format!("{}/{id}", turn.conversation_id));
        }
    }
    Ok(turns)
}

impl VerifyReport {
    fn note(
        &mut self,
        committed: Response,
        (derived, unasked): (&mut HashMap<String, Derived>, &HashSet<String>),
        most_shown: usize,
    ) {
        self.responses += 1;
        let turn = name_of(&committed);
        let Some(Derived { compared: again, made_by, is_unasked }) = derived.remove(&turn) else {
            return self.cannot(match unasked.contains(&turn) {
                true => Underivable::AnswerNotRecorded,
                false => Underivable::NoSuchTurn,
            });
        };
        // Records from before fingerprints existed have none.
        let by = committed.fingerprint.clone().zip(made_by);
        let is_other = by.as_ref().is_some_and(|(was, is)| was.digest != is.digest);
        let is_live = committed.knowledge.offsets.values().any(|read| *read > 0);
        let committed = ComparedResponse::of(committed);
        let stage = match committed.difference(&again) {
            ResponseDifference::None => return self.same += 1,
            ResponseDifference::Numbers => return self.numbers += 1,
            ResponseDifference::From(stage) => stage,
        };
        if let Some((was, is)) = by.filter(|_| is_other) {
            // The fingerprint of a brief response has no parts.
            let other =
                was.parts.iter().filter(|(part, digest)| is.parts.get(part) != Some(digest));
            self.made_by.extend(other.map(|(part, _)| *part));
            return self.cannot(Underivable::MadeOtherwise);
        }
        if is_unasked {
            return self.cannot(Underivable::AnswerNotRecorded);
        }
        if is_live {
            return self.cannot(Underivable::KnowledgeChanged);
        }
        self.differ += 1;
        if self.shown.len() < most_shown {
            let (committed, derived) = (committed.said, again.said);
            self.shown.push(WrongResponse { turn, stage, committed, derived });
        }
    }

    fn cannot(&mut self, why: Underivable) {
        *self.underivable.entry(why).or_insert(0) += 1;
    }

    fn print(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let Self { responses, same, numbers, differ, underivable, made_by, shown } = self;
        writeln!(
            out,
            "{responses} responses: {same} the same, {numbers} differ in scores or order alone, {differ} \
             differ, {} cannot be derived",
            underivable.values().sum::<u64>()
        )?;
        for (why, count) in underivable {
            let parts: Vec<&str> = made_by.iter().map(|part| part.name()).collect();
            let parts = match why {
                Underivable::MadeOtherwise => format!(": {}", parts.join(", ")),
                _ => String::new(),
            };
            writeln!(out, "{count:>8}  {}{parts}", why.because())?;
        }
        for WrongResponse { turn, stage, committed, derived } in shown {
            writeln!(out, "\n{turn}: {}", stage.name())?;
            for (side, said) in [("committed", committed), ("derived", derived)] {
                let action = said.action.map_or("", turnstream_schemas::Action::name);
                writeln!(out, "  {side:10} {action:8} {}", said.text)?;
            }
        }
        Ok(())
    }
}
