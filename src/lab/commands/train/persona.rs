//! `turnstream train persona`: fine-tunes a static table on pairs of persona and knowledge.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;
use turnstream_console::progress::Progress;
use turnstream_knowledge::write_whole;
use turnstream_models::static_table::StaticTable;
use turnstream_operators::persona_retrieval::pairs::question;

use super::{Exit, print_json};
use crate::commands::eval::persona::PersonaDataSet;
use crate::commands::eval::refused;
use crate::eval::persona::PersonaCase;
use crate::pair_training::{Epoch, PairLesson, PairTraining, Tuned, tune};

pub(super) const EXAMPLES: &str = "\
Examples:
  turnstream train persona --format kbp --data train.jsonl.gz --out persona.safetensors
  turnstream train persona --format focus --data train_focus.json --from static --out table

Training compares each sentence of a persona, joined with what the user said, with every piece of
knowledge, and brings the right pairs closest (PK-ICR). The table is an encoder like any other: set
models.embedder to the file; `turnstream eval persona --encoder` measures it.";

/// `train persona`
#[derive(Clone, Debug, clap::Args)]
pub struct TrainPersonaArgs {
    /// The data set
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: PersonaDataSet,
    /// The split to learn from; every tenth conversation is held out
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// File to write: a static table
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The table to fine-tune, "static" for the one inside the program; without it, pieces and
    /// vectors are learned from the texts, in any language
    #[arg(long, value_name = "TABLE")]
    from: Option<PathBuf>,
    /// The table's name, in records
    #[arg(long, value_name = "NAME", default_value = "persona")]
    name: String,
    /// Pieces to learn where no table is fine-tuned, from 256
    #[arg(long, value_name = "N", default_value_t = 8_000, value_parser = clap::value_parser!(u32).range(256..=65_536))]
    pieces: u32,
    /// Numbers per vector where no table is fine-tuned
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    dimensions: u32,
    /// Passes over the data
    #[arg(long, value_name = "N", default_value_t = PairTraining::default().epochs, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    epochs: u32,
    /// The seed of the vectors and of the order of learning
    #[arg(long, value_name = "SEED", default_value_t = PairTraining::default().seed)]
    seed: u64,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// The result printed with `--json`.
#[derive(Debug, Serialize)]
struct PersonaTraining<'p> {
    name: &'p str,
    pieces: usize,
    dimensions: usize,
    /// The state before training, then each epoch.
    epochs: &'p [Epoch],
    /// The index of the kept epoch.
    kept: usize,
}

pub(super) fn execute(args: &TrainPersonaArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let cases = args.format.cases(&args.data).map_err(refused)?;
    let lessons: Vec<PairLesson> = cases.into_iter().map(lesson).collect();
    let from = args.from.as_deref().map(|path| match path.to_str() {
        Some("static") => StaticTable::shipped(),
        _ => StaticTable::open(path).map(Into::into),
    });
    let from = from.transpose()?;
    let training = PairTraining {
        pieces: args.pieces as usize,
        dimensions: args.dimensions as usize,
        epochs: args.epochs,
        seed: args.seed,
        ..PairTraining::default()
    };
    let progress = Progress::of(args.epochs as usize, "epochs");
    let tuned = tune(&lessons, from.as_deref(), &training, &|| progress.advance())?;
    progress.finish();
    let Tuned { tokenizer, vectors, dimensions, epochs, kept, .. } = &tuned;
    let bytes = StaticTable::to_bytes(&args.name, tokenizer, vectors, *dimensions, None)?;
    let path = &args.out;
    write_whole(path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
    let pieces = vectors.len() / dimensions;
    if args.json {
        let dimensions = *dimensions;
        let printed = PersonaTraining { name: &args.name, pieces, dimensions, epochs, kept: *kept };
        print_json(out, &printed)?;
        return Ok(Exit::Success);
    }
    writeln!(out, "{} cases, {pieces} pieces of {dimensions} numbers", lessons.len())?;
    for (at, Epoch { loss, held_out_right }) in epochs.iter().enumerate() {
        write!(out, "after {at} epochs: loss {loss:.3}")?;
        if let Some(right) = held_out_right {
            write!(out, ", {right:.3} of held-out cases right")?;
        }
        writeln!(out, "{}", if at == *kept { ", kept" } else { "" })?;
    }
    writeln!(out, "written to {}", path.display())?;
    Ok(Exit::Success)
}

/// Makes the pairs of a case: {P_i + D, K_j}.
fn lesson(case: PersonaCase) -> PairLesson {
    let PersonaCase { conversation, dialogue, persona, knowledge, gold_persona, gold_knowledge } =
        case;
    let questions = persona.iter().map(|sentence| question(sentence, &dialogue)).collect();
    let right: BTreeSet<(usize, usize)> =
        gold_persona.iter().flat_map(|i| gold_knowledge.iter().map(move |j| (*i, *j))).collect();
    PairLesson { conversation, questions, answers: knowledge, right }
}
