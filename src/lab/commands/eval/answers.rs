//! `turnstream eval answers`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use turnstream_console::{InputRefused, Usage, print_json};

use crate::eval::answers::{AnswerShare, JudgedAnswer, ScoringError, figures, judged};

pub(super) const EXAMPLES: &str = "\
A line of the gold file is {\"turn_id\", \"kind\", \"must\", \"must_not\", \"gold\", \"also\"}: `must` and `must_not`
are regular expressions, `gold` is page.md#heading, row:ID, several of them, or null.
docs/decision.md says what the figures are.

Examples:
  turnstream eval answers --questions questions.jsonl --config company.toml --gold gold.jsonl
  turnstream eval answers --data responses.jsonl --gold gold.jsonl --report answers.html";

const TEMPLATE: &str = include_str!("answers.html");

/// The program that replays.
const TURNSTREAM: &str = "turnstream";

/// `eval answers`
#[derive(Clone, Debug, clap::Args)]
pub struct AnswersArgs {
    /// Customers' turns, as `turnstream replay` reads them. They are replayed first; the responses enter history
    #[arg(long, value_name = "FILE", required_unless_present = "data", conflicts_with = "data")]
    questions: Option<PathBuf>,
    /// The configuration that answers the questions; the defaults if not given
    #[arg(long, value_name = "FILE", requires = "questions")]
    config: Option<PathBuf>,
    /// In place of questions: the responses, as `turnstream replay --out` wrote them
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// The gold file, with the expected answer of each turn
    #[arg(long, value_name = "FILE")]
    gold: PathBuf,
    /// Write a page with the figures and every wrong answer beside what was retrieved
    #[arg(long, value_name = "HTML")]
    report: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn execute(args: &AnswersArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let replayed = folder.path().join("responses.jsonl");
    if let Some(questions) = &args.questions {
        replay(questions, args.config.as_deref(), &replayed)?;
    }
    let data = args.data.as_ref().unwrap_or(&replayed);
    let judged = judged(data, &args.gold).map_err(refused)?;
    let figures = figures(&judged);
    let named = [
        ("precision of answers", figures.precision),
        ("recall of answers", figures.recall),
        ("false answers", figures.false_answers),
        ("recall of hand-offs", figures.hand_off_recall),
        ("false hand-offs", figures.false_hand_offs),
        ("small talk", figures.small_talk),
    ];
    if let Some(path) = &args.report {
        let figures = named.map(|(name, share)| (name, shown(share)));
        let page = page(&figures, &judged).context("the page cannot be made")?;
        std::fs::write(path, page)
            .with_context(|| format!("cannot write {}; check the folder", path.display()))?;
    }
    if args.json {
        return Ok(print_json(out, &figures)?);
    }
    writeln!(out, "{} turns", figures.n)?;
    for (name, share) in named {
        writeln!(out, "{name:22} {}", shown(share))?;
    }
    writeln!(out, "\n{:16} right wrong abstained", "kind")?;
    for (kind, [right, wrong, abstained]) in &figures.by_kind {
        let kind = serde_json::to_value(kind)?;
        let kind = kind.as_str().unwrap_or_default();
        writeln!(out, "{kind:16} {right:5} {wrong:5} {abstained:9}")?;
    }
    Ok(())
}

/// Replays questions with the program beside this one, or the one on the path.
fn replay(questions: &Path, config: Option<&Path>, out: &Path) -> anyhow::Result<()> {
    let beside = std::env::current_exe().ok().map(|lab| lab.with_file_name(TURNSTREAM));
    let program =
        beside.filter(|program| program.is_file()).unwrap_or_else(|| PathBuf::from(TURNSTREAM));
    let mut command = Command::new(&program);
    command.arg("replay").arg(questions).args(["--history", "generated", "--out"]).arg(out);
    if let Some(config) = config {
        command.arg("--config").arg(config);
    }
    let status = command.stdout(Stdio::null()).status().map_err(|error| {
        let what = format!("{} cannot be started: {error}", program.display());
        Usage::new(what, "put turnstream beside turnstream-lab, or give --data")
    })?;
    if !status.success() {
        let what = format!("replaying {} failed: {status}", questions.display());
        return Err(InputRefused::new(what, "the message above says why").into());
    }
    Ok(())
}

fn refused(error: ScoringError) -> anyhow::Error {
    InputRefused::new(error.to_string(), "give the replay's output, and the company's gold file")
        .caused_by(error)
        .into()
}

fn shown(AnswerShare { share, interval }: AnswerShare) -> String {
    let interval = interval.map(|[low, high]| format!(" [{low:.3}, {high:.3}]"));
    share.map_or_else(
        || "–".to_owned(),
        |share| format!("{share:.3}{}", interval.unwrap_or_default()),
    )
}

/// Renders the page: the figures, then the answers that are not right, wrong ones first.
fn page(
    figures: &[(&'static str, String)],
    judged: &[JudgedAnswer],
) -> Result<String, minijinja::Error> {
    use crate::eval::answers::AnswerVerdict::{Abstained, Right, Wrong};
    let of = |verdict| judged.iter().filter(move |it| it.verdict == verdict);
    let shown: Vec<Value> =
        of(Wrong).chain(of(Abstained)).map(|it| Value::from(Serde(it))).collect();
    let right = of(Right).count();
    let mut pages = Environment::new();
    pages.add_template("answers.html", TEMPLATE)?;
    pages
        .get_template("answers.html")?
        .render(context! { figures => figures.to_vec(), shown, right })
}
