//! `turnstream eval consistency`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::{Value, json};
use turnstream_engine::dependencies::trained::judge as open;

use super::{print_json, refused};
use crate::eval::consistency::{ConsistencyFigures, LabelledResponse, dstc, evaluate, kbp, unseen};
use crate::eval::retrieval::EvalError;
use crate::eval::unified::Told;

pub(super) const EXAMPLES: &str = "\
Examples:
  turnstream eval consistency --format dstc11 --data dev.jsonl.gz --knowledge knowledge.json.gz
  turnstream eval consistency --format dstc11 --data dev.jsonl --knowledge k.json --table table
  turnstream eval consistency --format kbp --data dev.jsonl --table t --train train.jsonl --json

docs/refinement.md says how the figures are defined.";

/// `eval consistency`
#[derive(Clone, Debug, clap::Args)]
pub struct EvalConsistencyArgs {
    /// The data set
    #[command(flatten)]
    from: Responses,
    /// The table that judges, as `train consistency` wrote it; words, numbers and denials if not
    /// given
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// The split that the table was trained on: measures again on evidence that was gold nowhere in it
    #[arg(long, value_name = "FILE")]
    train: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// The data set of labelled responses.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Responses {
    /// The data set
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: ConsistencyDataSet,
    /// Its split: JSON lines, plain or gzip
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The snippets, for dstc11
    #[arg(long, value_name = "FILE", required_if_eq("format", "dstc11"))]
    knowledge: Option<PathBuf>,
    /// The seed that draws the evidence that a response does not rest on
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,
}

impl Responses {
    /// Reads the responses of the split.
    pub(crate) fn cases(&self) -> Result<Vec<LabelledResponse>, EvalError> {
        self.cases_of(&self.data)
    }

    fn cases_of(&self, data: &Path) -> Result<Vec<LabelledResponse>, EvalError> {
        match (self.format, &self.knowledge) {
            (ConsistencyDataSet::Dstc11, Some(knowledge)) => dstc::read(data, knowledge, self.seed),
            _ => kbp::read(data, self.seed),
        }
    }
}

/// A data set whose responses have gold evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ConsistencyDataSet {
    /// DSTC11 track 5: reviews and answered questions.
    Dstc11,
    /// Knowledge Behind Persona.
    Kbp,
}

pub(super) fn execute(args: &EvalConsistencyArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let cases = args.from.cases().map_err(refused)?;
    let judge = args.table.as_deref().map(open).transpose()?;
    let figures = evaluate(&cases, judge.as_ref())?;
    let mut of_unseen = None;
    if let Some(train) = &args.train {
        let learned = args.from.cases_of(train).map_err(refused)?;
        of_unseen = Some(evaluate(&unseen(&cases, &learned), judge.as_ref())?);
    }
    if args.json {
        let mut record = json!({ "judge": if judge.is_some() { "learned" } else { "lexical" } });
        if let (Some(record), Value::Object(more)) =
            (record.as_object_mut(), serde_json::to_value(&figures)?)
        {
            record.extend(more);
            if let Some(of_unseen) = &of_unseen {
                record.insert("unseen".to_owned(), serde_json::to_value(of_unseen)?);
            }
        }
        return Ok(print_json(out, &record)?);
    }
    print(&figures, "responses", out)?;
    of_unseen.map_or(Ok(()), |figures| print(&figures, "responses on unseen evidence", out))
}

fn print(figures: &ConsistencyFigures, of: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let ConsistencyFigures { n, same, other } = figures;
    writeln!(out, "{n} {of}; AUC of gold evidence against")?;
    for (what, Told { n, figures, intervals, .. }) in
        [("other of the same dialogue or place", same), ("evidence from elsewhere", other)]
    {
        let Some(auc) = figures.auc else {
            writeln!(out, "  -      {what}: there is none")?;
            continue;
        };
        write!(out, "  {auc:.3}")?;
        if let Some([low, high]) = intervals.get("auc") {
            write!(out, " [{low:.3}, {high:.3}]")?;
        }
        writeln!(out, "  {what} ({n} pairs)")?;
    }
    Ok(())
}
