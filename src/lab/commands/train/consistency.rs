//! `turnstream train consistency`: trains a table to judge whether a response agrees with its
//! evidence.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use turnstream_console::progress::Progress;
use turnstream_knowledge::write_whole;
use turnstream_models::static_table::StaticTable;
use turnstream_ports::model::calibration::Calibration;

use crate::calibration::calibrated;
use anyhow::Context;
use serde::Serialize;

use super::{Exit, Usage, print_json};
use crate::commands::eval::consistency::Responses;
use crate::commands::eval::refused;
use crate::eval::consistency::{LabelledResponse, Relation};
use crate::pair_training::{Epoch, PairLesson, PairTraining, Tuned, tune};

pub(super) const EXAMPLES: &str = "\
Examples:
  turnstream train consistency --format dstc11 --data train.jsonl --knowledge k.json --out table
  turnstream train consistency --format kbp --data train.jsonl.gz --out table --json

Training compares each response with the evidence that it was made from and with other evidence. Set
consistency.table to the file, with form = \"learned\"; `turnstream eval consistency --table`
measures it.";

/// `train consistency`
#[derive(Clone, Debug, clap::Args)]
pub struct TrainConsistencyArgs {
    /// The data to learn from; every tenth conversation is held out
    #[command(flatten)]
    from: Responses,
    /// File to write: a static table that judges
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The table's name, in records
    #[arg(long, value_name = "NAME", default_value = "consistency")]
    name: String,
    /// Passes over the data
    #[arg(long, value_name = "N", default_value_t = PairTraining::default().epochs, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    epochs: u32,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// The result printed with `--json`.
#[derive(Debug, Serialize)]
struct ConsistencyTraining<'p> {
    name: &'p str,
    responses: usize,
    /// The state before training, then each epoch.
    epochs: &'p [Epoch],
    /// The index of the kept epoch.
    kept: usize,
    calibration: Calibration,
}

pub(super) fn execute(args: &TrainConsistencyArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let lessons: Vec<PairLesson> =
        args.from.cases().map_err(refused)?.into_iter().map(lesson).collect();
    let training =
        PairTraining { epochs: args.epochs, seed: args.from.seed, ..PairTraining::default() };
    let progress = Progress::of(args.epochs as usize, "epochs");
    let tuned = tune(&lessons, None, &training, &|| progress.advance())?;
    progress.finish();
    let Tuned { tokenizer, vectors, dimensions, epochs, kept, held_out } = &tuned;
    let calibration = calibrated(held_out).ok_or_else(|| {
        Usage::new("no conversation can be held out for the calibration", "give a larger file")
    })?;
    let bytes =
        StaticTable::to_bytes(&args.name, tokenizer, vectors, *dimensions, Some(calibration))?;
    let path = &args.out;
    write_whole(path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
    let responses = lessons.len();
    if args.json {
        let (name, kept) = (&args.name, *kept);
        print_json(out, &ConsistencyTraining { name, responses, epochs, kept, calibration })?;
        return Ok(Exit::Success);
    }
    writeln!(out, "{responses} responses")?;
    for (at, Epoch { loss, held_out_right }) in epochs.iter().enumerate() {
        write!(out, "after {at} epochs: loss {loss:.3}")?;
        if let Some(right) = held_out_right {
            write!(out, ", {right:.3} of held-out responses nearest to gold evidence")?;
        }
        writeln!(out, "{}", if at == *kept { ", kept" } else { "" })?;
    }
    writeln!(out, "written to {}", path.display())?;
    Ok(Exit::Success)
}

/// Turns a response into a question, and its evidence into answers.
fn lesson(case: LabelledResponse) -> PairLesson {
    let LabelledResponse { conversation, response, evidence } = case;
    let gold = evidence.iter().enumerate().filter(|(_, (_, is))| *is == Relation::Gold);
    let right: BTreeSet<(usize, usize)> = gold.map(|(at, _)| (0, at)).collect();
    let answers = evidence.into_iter().map(|(text, _)| text).collect();
    PairLesson { conversation, questions: vec![response], answers, right }
}
