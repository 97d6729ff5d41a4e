//! `turnstream eval answers`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use tempfile::NamedTempFile;
use turnstream_console::{InputRefused, Usage, print_json};
use turnstream_sources::gold::{AnswerVerdict, GoldKind};

use crate::eval::answers::{
    AnswerFigures, AnswerShare, CurvePoint, JudgedAnswer, ScoringError, figures as figures_of,
    judged,
};

pub(super) const EXAMPLES: &str = "\
A line of the gold file is {\"turn_id\", \"kind\", \"must\", \"must_not\", \"gold\", \"also\"}: `must` and `must_not`
are regular expressions, `gold` is page.md#heading, row:ID, several of them, or null.
docs/decision.md says what the figures are.

Examples:
  turnstream eval answers --questions questions.jsonl --config company.toml --gold gold.jsonl
  turnstream eval answers --questions q.jsonl --config company.toml --gold gold.jsonl --curve
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
    /// Replay the questions with a decision.min_precision of 0.1 to 0.9 too, and show the figures at each
    #[arg(long, requires = "questions")]
    curve: bool,
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
    let responses = judged(data, &args.gold).map_err(refused)?;
    let mut figures = figures_of(&responses);
    if let Some(questions) = args.questions.as_ref().filter(|_| args.curve) {
        for tenths in 1..=9 {
            let min_precision = f64::from(tenths) / 10.0;
            let config = with_min_precision(args.config.as_deref(), min_precision)?;
            replay(questions, Some(config.path()), &replayed)?;
            let responses = judged(&replayed, &args.gold).map_err(refused)?;
            figures.curve.push(CurvePoint::new(min_precision, &figures_of(&responses)));
        }
    }
    let named = [
        ("precision of answers", figures.precision),
        ("recall of answers", figures.recall),
        ("false answers", figures.false_answers),
        ("recall of hand-offs", figures.hand_off_recall),
        ("false hand-offs", figures.false_hand_offs),
        ("small talk", figures.small_talk),
        ("asked rightly", figures.asked_rightly),
    ];
    if let Some(path) = &args.report {
        let shares = named.map(|(name, share)| (name, shown(share)));
        let page = page(&shares, &figures, &responses).context("the page cannot be made")?;
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
    writeln!(out, "\n{:16} right wrong abstained  share of right ones", "kind")?;
    for (kind, right, wrong, abstained, share) in kinds(&figures) {
        writeln!(out, "{kind:16} {right:5} {wrong:5} {abstained:9}  {share}")?;
    }
    if !figures.curve.is_empty() {
        writeln!(
            out,
            "\nmin_precision  precision             recall                false answers"
        )?;
    }
    for (min_precision, [precision, recall, false_answers]) in points(&figures) {
        writeln!(out, "{min_precision:<13}  {precision:20}  {recall:20}  {false_answers}")?;
    }
    Ok(())
}

/// A kind of turns: its right, wrong and abstained ones, and the share of right ones.
type OfKind = (&'static str, usize, usize, usize, String);

fn kinds(figures: &AnswerFigures) -> Vec<OfKind> {
    let of = |((kind, counts), right): ((&GoldKind, &[usize; 3]), &AnswerShare)| {
        let [right_ones, wrong, abstained] = *counts;
        (kind.name(), right_ones, wrong, abstained, shown(*right))
    };
    // Both have the same kinds.
    figures.by_kind.iter().zip(figures.right_by_kind.values()).map(of).collect()
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

/// Writes the configuration with another `min_precision`, beside the given one since it may name files relative to
/// its own folder.
fn with_min_precision(config: Option<&Path>, min_precision: f64) -> anyhow::Result<NamedTempFile> {
    let text = config.map(std::fs::read_to_string).transpose()?.unwrap_or_default();
    let mut keys: toml::Table = text.parse()?;
    let decision = keys.entry("decision").or_insert_with(|| toml::Table::new().into());
    if let Some(decision) = decision.as_table_mut() {
        decision.insert("min_precision".to_owned(), min_precision.into());
    }
    let folder = config.and_then(Path::parent).filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let unwritable = || {
        format!("cannot write beside the configuration, in {}; check the folder", folder.display())
    };
    let mut open = tempfile::Builder::new()
        .prefix(".eval-answers-")
        .suffix(".toml")
        .tempfile_in(folder)
        .with_context(unwritable)?;
    open.write_all(keys.to_string().as_bytes())?;
    Ok(open)
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

/// The points of the curve, as they are shown.
fn points(figures: &AnswerFigures) -> impl Iterator<Item = (f64, [String; 3])> {
    let of = |it: &CurvePoint| [it.precision, it.recall, it.false_answers].map(shown);
    figures.curve.iter().map(move |it| (it.min_precision, of(it)))
}

/// Renders the page: the shares, also by kind and over thresholds, then the answers that are not right,
/// wrong ones first.
fn page(
    shares: &[(&'static str, String)],
    figures: &AnswerFigures,
    judged: &[JudgedAnswer],
) -> Result<String, minijinja::Error> {
    use AnswerVerdict::{Abstained, Right, Wrong};
    let of = |verdict| judged.iter().filter(move |it| it.verdict == verdict);
    let shown: Vec<Value> =
        of(Wrong).chain(of(Abstained)).map(|it| Value::from(Serde(it))).collect();
    let right = of(Right).count();
    let (kinds, curve): (_, Vec<_>) = (kinds(figures), points(figures).collect());
    let mut pages = Environment::new();
    pages.add_template("answers.html", TEMPLATE)?;
    pages
        .get_template("answers.html")?
        .render(context! { shares => shares.to_vec(), kinds, curve, shown, right })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_line_with_an_interval() {
        let folder = tempfile::tempdir().expect("a folder");
        let [data, gold, report] =
            ["data.jsonl", "gold.jsonl", "page.html"].map(|name| folder.path().join(name));
        let full = include_str!("../../../../tests/fixtures/records/v1/response.json");
        let mut response: serde_json::Value = serde_json::from_str(full).expect("a response");
        let (mut responses, mut turns) = (String::new(), String::new());
        for (turn, kind, action) in [
            ("a", "complaint", "hand_off"),
            ("b", "complaint", "decline"),
            ("c", "hand_off", "hand_off"),
        ] {
            response["turn_id"] = turn.into();
            response["conversation_id"] = turn.into();
            response["action"] = action.into();
            responses += &format!("{response}\n");
            turns += &format!("{{\"turn_id\": \"{turn}\", \"kind\": \"{kind}\"}}\n");
        }
        std::fs::write(&data, responses).expect("written");
        std::fs::write(&gold, turns).expect("written");
        let args = AnswersArgs {
            questions: None,
            config: None,
            data: Some(data),
            gold,
            curve: false,
            report: Some(report.clone()),
            json: false,
        };
        let mut out = Vec::new();
        execute(&args, &mut out).expect("scored");
        let out = String::from_utf8(out).expect("UTF-8");
        for line in [
            "complaint            1     0         1  0.500 [0.000, 1.000]",
            "hand_off             1     0         0  1.000",
        ] {
            assert!(out.lines().any(|it| it == line), "no `{line}` in\n{out}");
        }
        let page = std::fs::read_to_string(report).expect("a page");
        let row = "<td>complaint<td class=\"n\">1<td class=\"n\">0<td class=\"n\">1\
                   <td>0.500 [0.000, 1.000]";
        assert!(page.contains(row), "{page}");
    }
}
