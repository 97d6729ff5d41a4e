//! `turnstream eval curves`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use turnstream_console::progress::Progress;
use turnstream_console::{InputRefused, load_config, print_json};
use turnstream_engine::config::{Config, Snapshot};
use turnstream_engine::dependencies::trained::judge as open;
use turnstream_formats::Format;
use turnstream_knowledge::{Format as FactsFormat, ImportOptions};
use turnstream_models::batch::Backend;
use turnstream_models::unified::{UnifiedModel, UnifiedWeights};
use turnstream_sources::knowledge::{self, SourceFile, import_sorted};

use super::gate::refused as gate_refused;
use super::history::{read, similarity};
use super::refused;
use crate::eval::curves::dcrag::{self, DialogueSet};
use crate::eval::curves::dh_rag::{self, Varied};
use crate::eval::curves::ragate::{self, Gated};
use crate::eval::curves::replayed::ReplayLog;
use crate::eval::curves::{Curves, unims_rag};
use crate::eval::gate::ScoresTurns as _;
use crate::eval::gate::tfidf::{self, TfIdf};
use crate::eval::sources::{Asked, Case};
use crate::labelled::{self, Positive};

/// Memory for sorting the facts of a data set.
const SORT_BYTES: usize = 64 << 20;

pub(super) const EXAMPLES: &str = "\
The folder has dailydialog/validation.jsonl.gz and kdconv/ (travel-dev.jsonl.gz, kb_travel.tsv.gz)
for dcrag, locomo/conversations-1-5.jsonl.gz and topiocqa/train.jsonl.gz for dh-rag, and kbp/
(dev.jsonl.gz, train.jsonl.gz) for unims-rag and ragate; what is not there is left out, and named on
standard error. docs/curves.md says what is varied and how the figures are defined.

Examples:
  turnstream eval curves --method dcrag --data-folder data --out curves
  turnstream eval curves --method dcrag --data-folder data --config dcrag.toml --out curves --json
  turnstream eval curves --method dh-rag --data-folder data --out curves
  turnstream eval curves --method ragate --data-folder data --model m.gguf --judge j --out curves";

/// `eval curves`
#[derive(Clone, Debug, clap::Args)]
pub struct CurvesArgs {
    /// The method
    #[arg(long, value_enum, value_name = "METHOD")]
    method: VariedMethod,
    /// The folder of the data sets
    #[arg(long, value_name = "DIR")]
    data_folder: PathBuf,
    /// The folder to write METHOD.html and METHOD.json into; made if it is missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The unified model, for unims-rag and ragate: "shipped", a GGUF file, or a folder with
    /// model.safetensors
    #[arg(long, value_name = "PATH", required_if_eq_any([("method", "unims-rag"), ("method", "ragate")]))]
    model: Option<UnifiedWeights>,
    /// The table that judges consistency, for unims-rag and ragate, as `train consistency --format
    /// kbp` wrote it
    #[arg(long, value_name = "FILE", required_if_eq_any([("method", "unims-rag"), ("method", "ragate")]))]
    judge: Option<PathBuf>,
    /// The most conversations of a data set, evenly spread or, of kbp, drawn; all if not given (of
    /// topiocqa, the 500 after the first 300)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    conversations: Option<u32>,
    /// The configuration that is varied; the defaults if not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// A method whose settings are varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum VariedMethod {
    /// The number of facts, and the stages left out.
    Dcrag,
    /// The capacity of a history, α, and its clusters.
    DhRag,
    /// The pieces of evidence, and the rounds of self-refinement.
    UnimsRag,
    /// The share of turns with knowledge, by a gate and by chance.
    Ragate,
}

pub(super) fn execute(args: &CurvesArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.config.as_deref())?.value;
    let curves = match args.method {
        VariedMethod::Dcrag => of_dcrag(args, &config)?,
        VariedMethod::DhRag => of_dh_rag(args, &config)?,
        VariedMethod::UnimsRag | VariedMethod::Ragate => of_kbp(args)?,
    };
    let failed = || format!("cannot write into {}", args.out.display());
    fs::create_dir_all(&args.out).with_context(failed)?;
    let written = |ending: &str| args.out.join(format!("{}.{ending}", curves.method));
    fs::write(written("html"), curves.page()?).with_context(failed)?;
    fs::write(written("json"), serde_json::to_vec_pretty(&curves)?).with_context(failed)?;
    match args.json {
        true => Ok(print_json(out, &curves)?),
        false => Ok(writeln!(out, "{}", written("html").display())?),
    }
}

/// Returns the path of a file of the folder, or says that the data set is left out.
fn found(args: &CurvesArgs, file: &str) -> Option<PathBuf> {
    let path = args.data_folder.join(file);
    if path.exists() {
        return Some(path);
    }
    eprintln!("left out, because {} is missing", path.display());
    None
}

fn nothing(args: &CurvesArgs) -> InputRefused {
    let what = format!("{} has none of the method's data sets", args.data_folder.display());
    InputRefused::new(what, "see --help for the files it should have")
}

fn of_dcrag(args: &CurvesArgs, config: &Config) -> anyhow::Result<Curves> {
    let most = args.conversations.map(|most| most as usize);
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let mut sets = Vec::new();
    if let Some(path) = found(args, "dailydialog/validation.jsonl.gz") {
        sets.push(DialogueSet {
            name: "DailyDialog",
            conversations: ReplayLog::read(Format::Dailydialog, &path, most)?,
            snapshot: config.knowledge.snapshot.clone(),
        });
    }
    let travel = found(args, "kdconv/travel-dev.jsonl.gz");
    if let Some((path, facts)) = travel.zip(found(args, "kdconv/kb_travel.tsv.gz")) {
        sets.push(DialogueSet {
            name: "KdConv travel",
            conversations: ReplayLog::read(Format::Kdconv, &path, most)?,
            snapshot: imported(&facts, folder.path())?,
        });
    }
    if sets.is_empty() {
        return Err(nothing(args).into());
    }
    let progress = Progress::of(sets.len() * dcrag::replays(config), "replays");
    let curves = dcrag::curves(config, &sets, &|| progress.advance())?;
    progress.finish();
    Ok(curves)
}

/// Imports the facts of a data set in Chinese.
fn imported(facts: &Path, folder: &Path) -> anyhow::Result<Snapshot> {
    let options = ImportOptions {
        format: FactsFormat::Triples,
        languages: vec!["zh".to_owned()],
        ..ImportOptions::default()
    };
    let file = SourceFile { path: facts.to_owned(), options };
    let snapshot = folder.join("facts.snapshot");
    import_sorted(&[file], &snapshot, SORT_BYTES, knowledge::Progress::Silent)?;
    Ok(Snapshot::File(snapshot))
}

fn of_dh_rag(args: &CurvesArgs, config: &Config) -> anyhow::Result<Curves> {
    let most = args.conversations.map(|most| most as usize);
    let locomo = found(args, "locomo/conversations-1-5.jsonl.gz")
        .map(|path| read(Format::Locomo, &path, (0, most)))
        .transpose()?;
    let (skipped, taken) = super::histories::TOPIOCQA;
    let topiocqa = found(args, "topiocqa/train.jsonl.gz")
        .map(|path| read(Format::Topiocqa, &path, (skipped, most.or(taken))))
        .transpose()?;
    if locomo.is_none() && topiocqa.is_none() {
        return Err(nothing(args).into());
    }
    let similarity = similarity(&config.models)?;
    let varied = Varied { config: &config.history, similarity: &similarity };
    let progress = Progress::start("questions");
    let sets = (locomo.as_deref(), topiocqa.as_deref());
    let curves = dh_rag::curves(&varied, sets, &|| progress.advance());
    progress.finish();
    Ok(curves)
}

fn of_kbp(args: &CurvesArgs) -> anyhow::Result<Curves> {
    let (data, train) = found(args, "kbp/dev.jsonl.gz")
        .zip(found(args, "kbp/train.jsonl.gz"))
        .ok_or_else(|| nothing(args))?;
    let weights = args.model.as_ref().context("--model")?;
    let model = UnifiedModel::open(weights)?;
    let judge = open(args.judge.as_deref().context("--judge")?)?;
    let most = args.conversations.map(|most| most as usize);
    let cases: Vec<Case> =
        crate::eval::sources::read(&data, Some(&train), most, 1).map_err(refused)?;
    let mut ask = |requests: &[_]| model.run(requests).map(|(answers, _)| answers);
    let mut asked = Asked::new(&mut ask);
    let is_gate = args.method == VariedMethod::Ragate;
    let each = if is_gate { ragate::RESPONSES } else { unims_rag::settings() };
    let gate = if is_gate { Some(trained_gate(&train)?) } else { None };
    let progress = Progress::of(cases.len() * each, "responses");
    let done = || progress.advance();
    let curves = match &gate {
        None => unims_rag::curves(&cases, &mut asked, &judge, &done)?,
        Some(gate) => {
            let gated = Gated { gate, threshold: gate.threshold() };
            ragate::curves(&cases, &gated, (&mut asked, &judge), &done)?
        }
    };
    progress.finish();
    Ok(curves)
}

/// Trains the gate that is measured: a regression, at the threshold of its best F1 of NULL.
fn trained_gate(train: &Path) -> anyhow::Result<TfIdf> {
    let turns = labelled::read(Format::Kbp, train).map_err(|error| gate_refused(error.into()))?;
    let trained = tfidf::train(&turns, &[Positive::Null], tfidf::LEAST_TEXTS, train, &|| ())
        .map_err(gate_refused)?;
    Ok(trained.gate(Positive::Null))
}
