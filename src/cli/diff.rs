//! `turnstream diff`: shows what another configuration changes, turn by turn.
//!
//! Compares two replays of one log. For each turn, it names the first stage at which they differ,
//! and what the user gets from each.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use serde::Serialize;
use turnstream_console::{Exit, print_json};
use turnstream_explain::{Shown, tree};
use turnstream_formats::Format;
use turnstream_schemas::{Action, FingerprintPart, Response, Stage};

use crate::logged::{LoggedPart, ServiceLog};
use crate::responses::each_response;
use crate::utterances::{Utterance, utterances};

pub(crate) mod comparison;
mod limit;

use comparison::{ComparedResponse, ResponseDifference, Said};
use limit::Limit;

const PAGE: &str = include_str!("diff/report.html");

/// Most turns on the page.
const ON_PAGE: usize = 1_000;
/// Most pieces of evidence that were not selected, in each path on the page.
const NOT_SELECTED: usize = 3;
/// Columns of a path on the page.
const COLUMNS: usize = 70;

/// Compare two replays of one log: which turns differ, from which stage on, and what users get.
///
/// Turns are matched by conversation and turn. Turns that differ only in scores or in the order of
/// the evidence are counted separately.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  compared; no limit is exceeded
  1  a limit of --fail-over is exceeded

Examples:
  turnstream diff before.jsonl after.jsonl
  turnstream diff before.jsonl after.jsonl --log log.jsonl --show 50
  turnstream diff --from-log prod.toml next.jsonl --since 24h
  turnstream diff before.jsonl after.jsonl --fail-over \"answer->decline > 1%\" --json
  turnstream diff before.jsonl after.jsonl.gz --report changed.html --out changed.jsonl")]
pub struct ReplayDiffArgs {
    /// Responses of one replay, as `replay --out` writes them, plain or gzip.
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Responses of the other replay.
    #[arg(value_name = "B", required_unless_present = "from_log", conflicts_with = "from_log")]
    b: Option<PathBuf>,
    /// Compare one file with the responses of a service, from the log that its configuration names:
    /// the service is A, the file B. Turns that are not in the file are left out.
    #[arg(long, value_name = "FILE")]
    from_log: Option<PathBuf>,
    /// The part of that log to read.
    #[command(flatten)]
    logged: LoggedPart,
    /// The log that was replayed, to show what users said.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The shape of that log.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, requires = "log")]
    format: Format,
    /// Show at most this many of the turns that differ, first those that A answers.
    #[arg(long, value_name = "N", default_value_t = 10)]
    show: usize,
    /// Exit with code 1 if more turns change than this limit allows: FROM->TO > N, or > N% of all
    /// turns. May be given several times.
    #[arg(long, value_name = "LIMIT")]
    fail_over: Vec<Limit>,
    /// Write every turn that differs, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a page (HTML, one file) with the counts and the first thousand turns side by side.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print one JSON object instead: the counts, and the limits that are exceeded.
    #[arg(long)]
    pub(crate) json: bool,
}

impl ReplayDiffArgs {
    /// Compares the responses in two files.
    pub(crate) fn of_files([a, b]: [PathBuf; 2]) -> Self {
        Self {
            a,
            b: Some(b),
            from_log: None,
            logged: LoggedPart::default(),
            log: None,
            format: Format::default(),
            show: 0,
            fail_over: Vec::new(),
            out: None,
            report: None,
            json: false,
        }
    }
}

/// A turn whose responses differ.
#[derive(Debug, Serialize)]
pub(crate) struct ChangedTurn {
    turn: String,
    /// The first stage at which they differ.
    stage: Stage,
    /// What the user said.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    a: Said,
    b: Said,
}

/// A named count.
#[derive(Debug, Serialize)]
struct Count {
    name: String,
    count: u64,
}

/// The result of a comparison.
#[derive(Debug, Default, Serialize)]
pub(crate) struct DiffReport {
    /// Turns that are in both.
    compared: u64,
    same: u64,
    /// Turns that differ only in scores or order.
    numbers: u64,
    changed: u64,
    only_a: u64,
    only_b: u64,
    /// The parts of the fingerprint in which A and B differ: of program, weights, configuration,
    /// prompts, models and knowledge.
    made_by: BTreeSet<FingerprintPart>,
    /// Turns that differ, by the first stage at which they do, in the order of the flow.
    stages: Vec<Count>,
    /// Turns by the change of the action, such as `answer → decline`, the most frequent first. If
    /// the action is the same, the words or the evidence differ.
    actions: Vec<Count>,
    /// Turns by source of the evidence on either side; a turn counts for each of its sources.
    sources: Vec<Count>,
    tenants: Vec<Count>,
    /// The limits of `--fail-over` that are exceeded.
    exceeded: Vec<String>,
}

/// Compares the responses of two files, or of a service's log and a file.
///
/// # Errors
/// A file cannot be read or written.
pub fn execute(args: &ReplayDiffArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let users = match &args.log {
        Some(log) => utterances(log, args.format)?,
        None => HashMap::new(),
    };
    let (report, changed) = compare(args, &users)?;
    if let Some(path) = &args.out {
        let mut lines = Vec::new();
        for turn in &changed {
            print_json(&mut lines, turn)?;
        }
        write(path, &lines)?;
    }
    if let Some(path) = &args.report {
        write(path, page(args, &report, &changed)?.as_bytes())?;
    }
    if args.json {
        print_json(out, &report)?;
    } else {
        print(&report, &changed, args.show, out)?;
    }
    Ok(if report.exceeded.is_empty() { Exit::Success } else { Exit::Failed })
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

impl ReplayDiffArgs {
    /// Passes on the responses of A. Leaves out those of a service's log that `is_meant` rejects.
    fn each_of_a(
        &self,
        is_meant: impl Fn(&str) -> bool,
        mut take: impl FnMut(Response),
    ) -> anyhow::Result<()> {
        match &self.from_log {
            None => each_response(&self.a, |_, response| take(response))?,
            Some(config) => ServiceLog::open(config)?.each_response(&self.logged, |response| {
                if is_meant(&name_of(&response)) {
                    take(response);
                }
            })?,
        }
        Ok(())
    }

    /// The file with the responses of B.
    fn b(&self) -> &Path {
        // With `--from-log` the only file is B; without it the command line requires two.
        self.b.as_ref().unwrap_or(&self.a)
    }
}

/// Returns the counts, and the turns that differ, in the order of B.
///
/// # Errors
/// A file cannot be read, or a line is not a response.
pub(crate) fn compare(
    args: &ReplayDiffArgs,
    users: &HashMap<String, Utterance>,
) -> anyhow::Result<(DiffReport, Vec<ChangedTurn>)> {
    // A turn that came twice was answered once, so each name occurs once in a file.
    let mut before: HashMap<String, ComparedResponse> = HashMap::new();
    let (mut of_a, mut of_b) = (BTreeSet::new(), BTreeSet::new());
    let mut of_file = HashSet::new();
    if args.from_log.is_some() {
        each_response(&args.a, |_, response| _ = of_file.insert(name_of(&response)))?;
    }
    args.each_of_a(
        |turn| of_file.contains(turn),
        |response| {
            note_parts(&response, &mut of_a);
            before.insert(name_of(&response), ComparedResponse::of(response));
        },
    )?;
    let mut report = DiffReport::default();
    let mut changed = Vec::new();
    let (mut stages, mut sources, mut tenants) =
        (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut actions: BTreeMap<(Option<Action>, Option<Action>), u64> = BTreeMap::new();
    each_response(args.b(), |_, response| {
        note_parts(&response, &mut of_b);
        let turn = name_of(&response);
        let Some(a) = before.remove(&turn) else {
            report.only_b += 1;
            return;
        };
        report.compared += 1;
        let b = ComparedResponse::of(response);
        let stage = match a.difference(&b) {
            ResponseDifference::None => return report.same += 1,
            ResponseDifference::Numbers => return report.numbers += 1,
            ResponseDifference::From(stage) => stage,
        };
        report.changed += 1;
        *stages.entry(stage).or_insert(0) += 1;
        *actions.entry((a.said.action, b.said.action)).or_insert(0) += 1;
        for source in a.sources.union(&b.sources) {
            *sources.entry(source.clone()).or_insert(0) += 1;
        }
        if let Some(tenant) = b.tenant {
            *tenants.entry(tenant).or_insert(0) += 1;
        }
        let user = users.get(&turn).map(|said| said.text.clone());
        changed.push(ChangedTurn { turn, stage, user, a: a.said, b: b.said });
    })?;
    report.only_a = before.len() as u64;
    // Records from before fingerprints existed have none.
    if !of_a.is_empty() && !of_b.is_empty() {
        report.made_by = of_a.symmetric_difference(&of_b).map(|(part, _)| *part).collect();
    }
    let in_flow = stages
        .into_iter()
        .map(|(stage, count): (Stage, u64)| Count { name: stage.name().to_owned(), count });
    report.stages = in_flow.collect();
    let named = |of: Option<Action>| of.map_or("none", Action::name);
    report.actions = ranked(actions.iter().map(|((a, b), count)| Count {
        name: format!("{} → {}", named(*a), named(*b)),
        count: *count,
    }));
    let counts = |of: BTreeMap<String, u64>| {
        ranked(of.into_iter().map(|(name, count)| Count { name, count }))
    };
    (report.sources, report.tenants) = (counts(sources), counts(tenants));
    let of_limit = |from: Option<Action>, to: Option<Action>| {
        let fits = |of: Option<Action>, wanted: Option<Action>| wanted.is_none() || of == wanted;
        let of_it = actions.iter().filter(|((a, b), _)| fits(*a, from) && fits(*b, to));
        of_it.map(|(_, count)| count).sum()
    };
    let exceeded =
        args.fail_over.iter().filter(|limit| limit.is_exceeded(report.compared, of_limit));
    report.exceeded = exceeded.map(ToString::to_string).collect();
    Ok((report, changed))
}

/// The name by which turns are matched.
pub(crate) fn name_of(response: &Response) -> String {
    format!("{}/{}", response.conversation_id, response.turn_id)
}

/// Adds the parts of a response's fingerprint.
fn note_parts(response: &Response, parts: &mut BTreeSet<(FingerprintPart, String)>) {
    for (part, digest) in response.fingerprint.iter().flat_map(|it| &it.parts) {
        parts.insert((*part, digest.clone()));
    }
}

/// Sorts counts, the largest first.
fn ranked(counts: impl Iterator<Item = Count>) -> Vec<Count> {
    let mut counts: Vec<Count> = counts.collect();
    counts.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    counts
}

/// Prints the counts, and at most `show` of the turns that differ, first those that A answers.
///
/// # Errors
/// `out` cannot be written to.
pub(crate) fn print(
    report: &DiffReport,
    turns: &[ChangedTurn],
    show: usize,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let DiffReport { compared, same, numbers, changed, only_a, only_b, .. } = report;
    writeln!(
        out,
        "{compared} turns: {same} the same, {changed} differ, {numbers} differ in scores or order \
         alone; {only_a} only in A, {only_b} only in B"
    )?;
    let made_by: Vec<&str> = report.made_by.iter().map(|part| part.name()).collect();
    if !made_by.is_empty() {
        writeln!(out, "what made the responses differs in: {}", made_by.join(", "))?;
    }
    for (title, counts) in [
        ("first part at", &report.stages),
        ("action", &report.actions),
        ("source", &report.sources),
        ("tenant", &report.tenants),
    ] {
        if !counts.is_empty() {
            writeln!(out, "\n{title}")?;
        }
        for Count { name, count } in counts {
            writeln!(out, "{count:>8}  {name}")?;
        }
    }
    let (answered, other): (Vec<_>, Vec<_>) =
        turns.iter().partition(|turn| turn.a.action == Some(Action::Answer));
    for ChangedTurn { turn, stage, user, a, b } in answered.into_iter().chain(other).take(show) {
        writeln!(out, "\n{turn}: {}", stage.name())?;
        print_sides(user.as_deref(), [a, b], out)?;
    }
    for limit in &report.exceeded {
        writeln!(out, "\nexceeded: {limit}")?;
    }
    Ok(())
}

/// Prints what the user said, if it is known, and what the user gets from either side.
///
/// # Errors
/// `out` cannot be written to.
pub(crate) fn print_sides(
    user: Option<&str>,
    [a, b]: [&Said; 2],
    out: &mut dyn Write,
) -> std::io::Result<()> {
    if let Some(user) = user {
        writeln!(out, "  user  {user}")?;
    }
    for (side, said) in [("A", a), ("B", b)] {
        let action = said.action.map_or("", Action::name);
        writeln!(out, "  {side}     {action:8} {}", said.text)?;
    }
    Ok(())
}

/// A turn on the page, with the explanations of its responses.
#[derive(Debug, Serialize)]
struct ExplainedTurn<'t> {
    #[serde(flatten)]
    turn: &'t ChangedTurn,
    paths: [String; 2],
}

/// Reads the responses again, to explain those of these turns.
fn explained<'t>(
    args: &ReplayDiffArgs,
    turns: &'t [ChangedTurn],
) -> anyhow::Result<Vec<ExplainedTurn<'t>>> {
    let mut explained: Vec<_> =
        turns.iter().map(|turn| ExplainedTurn { turn, paths: Default::default() }).collect();
    let places: HashMap<&str, usize> =
        turns.iter().enumerate().map(|(at, turn)| (turn.turn.as_str(), at)).collect();
    let shown = Shown { not_selected: Some(NOT_SELECTED), ..Shown::default() };
    let mut note = |side: usize, response: Response| {
        if let Some(at) = places.get(name_of(&response).as_str()) {
            explained[*at].paths[side] = tree(&response, &shown).render(COLUMNS, false);
        }
    };
    args.each_of_a(|turn| places.contains_key(turn), |response| note(0, response))?;
    each_response(args.b(), |_, response| note(1, response))?;
    Ok(explained)
}

fn page(
    args: &ReplayDiffArgs,
    report: &DiffReport,
    changed: &[ChangedTurn],
) -> anyhow::Result<String> {
    let mut pages = Environment::new();
    pages.add_template("diff.html", PAGE)?;
    let turns = &changed[..changed.len().min(ON_PAGE)];
    let turns = Value::from(Serde(explained(args, turns)?));
    let a = args.from_log.as_ref().unwrap_or(&args.a).display().to_string();
    let (b, report) = (args.b().display().to_string(), Value::from(Serde(report)));
    Ok(pages.get_template("diff.html")?.render(context! { a, b, report, turns })?)
}
