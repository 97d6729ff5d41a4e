//! `turnstream eval planning`.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::json;
use turnstream_console::progress::Progress;
use turnstream_models::batch::Backend;
use turnstream_models::unified::{UnifiedModel, UnifiedWeights};

use super::{Usage, print_json, refused};
use crate::eval::bootstrap::Figure;
use crate::eval::planning::classifier::Classifier;
use crate::eval::planning::{Planned, PlannedTurn, PlanningFigures, by_model, figures, read};

pub(super) const EXAMPLES: &str = "\
Examples:
  turnstream eval planning --data dev.jsonl.gz --planner classifier --train train.jsonl.gz
  turnstream eval planning --data dev.jsonl.gz --planner unified --model reader-kbp.gguf --json
  turnstream eval planning --data dev.jsonl.gz --planner every

docs/unified-model.md says how the figures are defined. What is learned from --train is used for this
measurement alone and is not kept.";

/// `eval planning`
#[derive(Clone, Debug, clap::Args)]
pub struct PlanningArgs {
    /// The measured split of KBP: JSON lines, plain or gzip
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The planner
    #[arg(long, value_enum, value_name = "PLANNER")]
    planner: Planner,
    /// The split that the classifier learns from
    #[arg(long, value_name = "FILE", required_if_eq("planner", "classifier"))]
    train: Option<PathBuf>,
    /// The unified model: "shipped", a GGUF file, or a folder with model.safetensors
    #[arg(long, value_name = "PATH", required_if_eq("planner", "unified"))]
    model: Option<UnifiedWeights>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// The planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Planner {
    /// Logistic regression over the last utterance.
    Classifier,
    /// The unified model.
    Unified,
    /// Every source, always: the ablation, and the most frequent class.
    Every,
    /// No source, ever: the ablation.
    None,
}

impl Planner {
    fn name(self) -> &'static str {
        match self {
            Self::Classifier => "classifier",
            Self::Unified => "unified",
            Self::Every => "every",
            Self::None => "none",
        }
    }
}

pub(super) fn execute(args: &PlanningArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let cases = read(&args.data).map_err(refused)?;
    let (planned, model) = planned(args, &cases)?;
    let figures = figures(&cases, &planned);
    if args.json {
        let mut record = json!({ "planner": args.planner.name(), "model": model });
        if let (Some(record), serde_json::Value::Object(more)) =
            (record.as_object_mut(), serde_json::to_value(&figures)?)
        {
            record.extend(more);
        }
        return Ok(print_json(out, &record)?);
    }
    print(&figures, out)
}

/// Makes the plans, and returns the model's name.
fn planned(
    args: &PlanningArgs,
    cases: &[PlannedTurn],
) -> anyhow::Result<(Vec<Planned>, Option<String>)> {
    let missing = |flag: &str| Usage::new(format!("{flag} is missing"), "name the file");
    Ok(match args.planner {
        Planner::Every => (vec![Planned::Both; cases.len()], None),
        Planner::None => (vec![Planned::Null; cases.len()], None),
        Planner::Classifier => {
            let train = args.train.as_deref().ok_or_else(|| missing("--train"))?;
            let learned = read(train).map_err(refused)?;
            let progress = Progress::start("fits");
            let classifier = Classifier::train(&learned, || progress.advance());
            progress.finish();
            (classifier.plan(cases), None)
        }
        Planner::Unified => {
            let weights = args.model.as_ref().ok_or_else(|| missing("--model"))?;
            let model = UnifiedModel::open(weights)?;
            let mut ask = |requests: &[_]| model.run(requests).map(|(answers, _)| answers);
            let progress = Progress::of(cases.len(), "turns");
            let planned = by_model(cases, &mut ask, || progress.advance())?;
            progress.finish();
            (planned, Some(model.name().to_owned()))
        }
    })
}

fn print(figures: &PlanningFigures, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "{} turns, {} planned as the reply was made",
        figures.n,
        said(&figures.accuracy)
    )?;
    for class in Planned::ALL {
        let of = &figures.classes[class.name()];
        writeln!(
            out,
            "{:<8} {:>5}  F1 {}  precision {}  recall {}",
            class.name(),
            of.n,
            said(&of.f1),
            said(&of.precision),
            said(&of.recall)
        )?;
    }
    Ok(())
}

fn said(figure: &Figure) -> String {
    match (figure.value, figure.interval) {
        (Some(value), Some([low, high])) => format!("{value:.3} [{low:.3}, {high:.3}]"),
        (Some(value), None) => format!("{value:.3}"),
        (None, _) => "–".to_owned(),
    }
}
