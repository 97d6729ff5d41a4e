//! `turnstream eval sources`.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::{Value, json};
use turnstream_console::progress::Progress;
use turnstream_engine::dependencies::trained::judge as open;
use turnstream_models::batch::Backend;
use turnstream_models::unified::{UnifiedModel, UnifiedWeights};

use super::{number, print_json, refused, write_samples};
use crate::eval::sources::{Asked, FindBy, PlanBy, Setting, SourceFigures, evaluate, read, rows};

pub(super) const EXAMPLES: &str = "\
Examples:
  turnstream eval sources --data dev.jsonl --train train.jsonl --model m.gguf --judge table
  turnstream eval sources --data d.jsonl --train t.jsonl --model m.gguf --judge j --table --json
  turnstream eval sources --data d.jsonl --train t.jsonl --model m.gguf --judge j --oracle plan
  turnstream eval sources --data d.jsonl --train t.jsonl --model m.gguf --judge j --steps 1

docs/unified-model.md says how the figures are defined. What is learned from --train is used for this
measurement alone and is not kept.";

/// `eval sources`
#[derive(Clone, Debug, clap::Args)]
pub struct SourcesArgs {
    /// The measured split of KBP: JSON lines, plain or gzip
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The split that the retriever learns from
    #[arg(long, value_name = "FILE")]
    train: PathBuf,
    /// The unified model: "shipped", a GGUF file, or a folder with model.safetensors
    #[arg(long, value_name = "PATH")]
    model: UnifiedWeights,
    /// The table that judges consistency, as `train consistency --format kbp` wrote it
    #[arg(long, value_name = "FILE")]
    judge: PathBuf,
    /// The planner
    #[arg(long, value_enum, value_name = "PLANNER", default_value_t, conflicts_with = "table")]
    planner: SourcePlanner,
    /// The retriever of evidence in the planned sources
    #[arg(long, value_enum, value_name = "RETRIEVER", default_value_t, conflicts_with = "table")]
    retriever: SourceRetriever,
    /// The parts taken from the annotation instead: an upper bound
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',', conflicts_with = "table")]
    oracle: Vec<Oracle>,
    /// Pieces of each source that a response is worded from, 1 to 8
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "table",
          value_parser = clap::value_parser!(u8).range(1..=8))]
    pieces: u8,
    /// Rounds of self-refinement, 0 to 5
    #[arg(long, value_name = "COUNT", default_value_t = 0, conflicts_with = "table",
          value_parser = clap::value_parser!(u32).range(0..=5))]
    steps: u32,
    /// Pieces that a round replaces at most, 1 to 8
    #[arg(long, value_name = "ALPHA", default_value_t = 1, conflicts_with = "table",
          value_parser = clap::value_parser!(u32).range(1..=8))]
    replaced: u32,
    /// Measure every row of the paper's tables: retrievers, one to three pieces, self-refinement, oracles
    /// and ablations
    #[arg(long)]
    table: bool,
    /// The number of conversations to measure, drawn by the seed; all if not given
    #[arg(long, value_name = "COUNT")]
    conversations: Option<usize>,
    /// The seed that draws conversations
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Write every response to a file for reading, as JSON lines
    #[arg(long, value_name = "FILE", conflicts_with = "table")]
    samples: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// The planner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum SourcePlanner {
    /// The unified model.
    #[default]
    Unified,
    /// None: every source, always.
    Every,
    /// None: no source, ever.
    None,
}

/// The retriever of evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum SourceRetriever {
    /// BM25 and other features, weighed by weights learned from --train.
    #[default]
    Fusion,
    /// The unified model, by its relevance.
    Unified,
}

/// A part that the annotation can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Oracle {
    /// The sources that the reply used.
    Plan,
    /// The pieces of evidence that the reply used.
    Retrieval,
}

impl SourcesArgs {
    fn setting(&self) -> Setting {
        let plan = match self.planner {
            _ if self.oracle.contains(&Oracle::Plan) => PlanBy::Gold,
            SourcePlanner::Unified => PlanBy::Model,
            SourcePlanner::Every => PlanBy::Every,
            SourcePlanner::None => PlanBy::None,
        };
        let retrieval = match self.retriever {
            _ if self.oracle.contains(&Oracle::Retrieval) => FindBy::Gold,
            SourceRetriever::Fusion => FindBy::Fusion,
            SourceRetriever::Unified => FindBy::Model,
        };
        let (steps, replaced) = (self.steps, self.replaced);
        Setting { plan, retrieval, pieces: usize::from(self.pieces), steps, replaced }
    }
}

pub(super) fn execute(args: &SourcesArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let model = UnifiedModel::open(&args.model)?;
    let judge = open(&args.judge)?;
    let cases =
        read(&args.data, Some(&args.train), args.conversations, args.seed).map_err(refused)?;
    let mut ask = |requests: &[_]| model.run(requests).map(|(answers, _)| answers);
    let mut asked = Asked::new(&mut ask);
    let mut record = json!({ "model": model.name(), "turns": cases.len() });
    let chosen = match args.table {
        true => rows().into_iter().map(|row| (row.name, row.setting)).collect(),
        false => vec![("as asked", args.setting())],
    };
    let progress = Progress::of(cases.len() * chosen.len(), "turns");
    let done = || progress.advance();
    let mut measured = Vec::new();
    for (name, setting) in chosen {
        let (figures, samples) = evaluate(&cases, &setting, &mut asked, &judge, done)?;
        if let Some(path) = &args.samples {
            write_samples(path, &samples)?;
        }
        measured.push((name, setting, figures));
    }
    progress.finish();
    if args.json {
        let row =
            |(name, setting, figures): &(&str, Setting, SourceFigures)| -> anyhow::Result<Value> {
                let mut row = json!({ "name": name, "setting": setting });
                if let (Some(row), Value::Object(more)) =
                    (row.as_object_mut(), serde_json::to_value(figures)?)
                {
                    row.extend(more);
                }
                Ok(row)
            };
        record["rows"] = measured.iter().map(row).collect::<anyhow::Result<Vec<_>>>()?.into();
        return Ok(print_json(out, &record)?);
    }
    writeln!(out, "{} turns           BLEU-1  ROUGE-L  P.C    K.C", cases.len())?;
    for (name, _, figures) in &measured {
        let SourceFigures { bleu_1, rouge_l, persona_consistency, knowledge_consistency, .. } =
            figures;
        let [rouge, persona, knowledge] =
            [rouge_l, persona_consistency, knowledge_consistency].map(|it| number(it, 100.0));
        let bleu = number(bleu_1, 1.0);
        writeln!(out, "{name:<24} {bleu:>6}  {rouge:>6}  {persona:>5}  {knowledge:>5}")?;
    }
    Ok(())
}
