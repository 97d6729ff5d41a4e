//! `turnstream eval unified`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::json;
use turnstream_console::progress::Progress;
use turnstream_models::batch::Backend;
use turnstream_models::unified::{UnifiedModel, UnifiedWeights};

use super::{Usage, number, print_json, refused, write_samples};
use crate::eval::retrieval::EvalError;
use crate::eval::unified::templates::Templates;
use crate::eval::unified::{
    Told, UnifiedCase, UnifiedFigures, UnifiedMeasure, Worded, dstc, evaluate, sgd,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  turnstream eval unified --format sgd --data dev.jsonl --model m.gguf --conversations 200
  turnstream eval unified --format sgd --data dev.jsonl --model m.gguf --train train.jsonl
  turnstream eval unified --format sgd --data dev.jsonl --model m.gguf --samples s.jsonl --json
  turnstream eval unified --format dstc11 --data dev.jsonl --knowledge k.json --model m.gguf

docs/unified-model.md says how the figures are defined. What is mined from --train is used for this
measurement alone and is not kept.";

/// `eval unified`
#[derive(Clone, Debug, clap::Args)]
pub struct UnifiedArgs {
    /// The data set
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: UnifiedDataSet,
    /// The measured split: JSON lines, plain or gzip
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The snippets, for dstc11
    #[arg(long, value_name = "FILE", required_if_eq("format", "dstc11"))]
    knowledge: Option<PathBuf>,
    /// The model: "shipped", a GGUF file, or a folder with model.safetensors
    #[arg(long, value_name = "PATH", default_value_t)]
    model: UnifiedWeights,
    /// The split to mine templates from, for sgd; without it, plain sentences replace a response
    /// that is not right
    #[arg(long, value_name = "FILE")]
    train: Option<PathBuf>,
    /// Drafts per response, 1 to 16; the first right one counts
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    drafts: u32,
    /// The number of conversations to measure, drawn by the seed; all if not given
    #[arg(long, value_name = "COUNT")]
    conversations: Option<usize>,
    /// The seed that draws conversations, and evidence that does not fit
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Write every response to a file for reading, as JSON lines
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// A data set on whose training split the model was trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UnifiedDataSet {
    /// Schema-Guided Dialogue: what services answer.
    Sgd,
    /// DSTC11 track 5: reviews and answered questions.
    Dstc11,
}

impl UnifiedDataSet {
    fn name(self) -> &'static str {
        match self {
            Self::Sgd => "sgd",
            Self::Dstc11 => "dstc11",
        }
    }
}

pub(super) fn execute(args: &UnifiedArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.train.is_some() && args.format != UnifiedDataSet::Sgd {
        return Err(Usage::new("--train is for sgd", "leave it out").into());
    }
    let model = UnifiedModel::open(&args.model)?;
    let cases = cases(args).map_err(refused)?;
    let templates = args.train.as_deref().map(mined).transpose()?;
    let progress = Progress::of(cases.len(), "turns");
    let mut ask = |requests: &[_]| model.run(requests).map(|(answers, _)| answers);
    let measure = UnifiedMeasure { drafts: args.drafts, templates: templates.as_ref() };
    let (figures, samples) = evaluate(&cases, &mut ask, measure, || progress.advance())?;
    progress.finish();
    if let Some(path) = &args.samples {
        write_samples(path, &samples)?;
    }
    if args.json {
        let mut record = json!({ "format": args.format.name(), "model": model.name(), "turns": cases.len(),
                                 "drafts": args.drafts, "templates": templates.as_ref().map(Templates::len) });
        if let (Some(record), serde_json::Value::Object(more)) =
            (record.as_object_mut(), serde_json::to_value(&figures)?)
        {
            record.extend(more);
        }
        return Ok(print_json(out, &record)?);
    }
    print(&figures, out)
}

fn cases(args: &UnifiedArgs) -> Result<Vec<UnifiedCase>, EvalError> {
    let UnifiedArgs { data, conversations, seed, .. } = args;
    match (args.format, &args.knowledge) {
        (UnifiedDataSet::Dstc11, Some(knowledge)) => {
            dstc::read(data, knowledge, *conversations, *seed)
        }
        // The arguments require snippets for dstc11.
        (UnifiedDataSet::Dstc11 | UnifiedDataSet::Sgd, _) => sgd::read(data, *conversations, *seed),
    }
}

fn mined(path: &Path) -> anyhow::Result<Templates> {
    Ok(Templates::mined(&sgd::read(path, None, 0).map_err(refused)?))
}

fn print(figures: &UnifiedFigures, out: &mut dyn Write) -> anyhow::Result<()> {
    told("plan", &figures.plan, out)?;
    for (what, relevance) in [
        ("relevance", &figures.relevance),
        ("  against what could have fitted", &figures.relevance_same),
        ("  against what is from elsewhere", &figures.relevance_other),
    ] {
        relevance.as_ref().map_or(Ok(()), |relevance| told(what, relevance, out))?;
    }
    writeln!(
        out,
        "responses          n   BLEU-1   BLEU-4  ROUGE-L   values  all values  foreign numbers"
    )?;
    for (name, worded) in &figures.responses {
        let Worded { n, bleu_1, bleu_4, rouge_l, values, whole, foreign_numbers, by, refused } =
            worded;
        let [one, four] = [bleu_1, bleu_4].map(|it| number(it, 1.0));
        let [rouge, values, whole, foreign] =
            [rouge_l, values, whole, foreign_numbers].map(|it| number(it, 100.0));
        writeln!(
            out,
            "{name:<16} {n:>4} {one:>8} {four:>8} {rouge:>8} {values:>8} {whole:>11} {foreign:>16}"
        )?;
        for (what, counts) in [("by", by), ("the first draft refused for", refused)] {
            if !counts.is_empty() {
                let counts: Vec<String> =
                    counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
                writeln!(out, "  {what}: {}", counts.join(", "))?;
            }
        }
    }
    Ok(())
}

fn told(what: &str, told: &Told, out: &mut dyn Write) -> anyhow::Result<()> {
    let Told { n, positives, figures, intervals } = told;
    write!(out, "{what}: {positives} of {n}")?;
    for (name, value) in figures.named() {
        let Some(value) = value else { continue };
        write!(out, ", {name} {value:.3}")?;
        if let Some([low, high]) = intervals.get(name) {
            write!(out, " [{low:.3}, {high:.3}]")?;
        }
    }
    Ok(writeln!(out)?)
}
