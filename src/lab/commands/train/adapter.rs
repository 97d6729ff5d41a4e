//! `turnstream train adapter`: writes the examples from which a language model's adapter learns the gate
//! (RAGate-PEFT). `deploy/training` trains it.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::json;
use turnstream_console::progress::Progress;
use turnstream_formats::Need;
use turnstream_models::batch::Backend;
use turnstream_models::gate::instructed::{CARD, InstructedCard};
use turnstream_models::unified::{UnifiedModel, UnifiedWeights};
use turnstream_ports::model::gate::GateInputs;

use super::gate::{hold_out, split};
use super::{Exit, InputRefused, Usage, print_json};
use crate::eval::gate::drafts::draft;
use crate::eval::gate::encoder::pair_of;
use crate::eval::gate::instructed::prompt_of;
use crate::eval::retrieval::dstc;
use crate::labelled::{self, LabelledTurn};

pub(super) const EXAMPLES: &str = "\
Examples:
  turnstream train adapter --data dstc11/train.jsonl.gz,format=dstc11 --out examples
  turnstream train adapter --data kbp.jsonl,format=kbp --inputs contx-resp-ner-know --out examples

Then, in deploy/training: train adapter fit --examples examples --base MODEL --out adapter. Every
tenth conversation is held out, to choose the threshold.";

/// The answers that the model learns to give.
const ANSWERS: [&str; 2] = ["True", "False"];

/// The parts of a turn that the prompts have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum PromptInputs {
    /// The dialogue.
    #[default]
    Contx,
    /// A response and its named entities as well: not causal with the data set's reply.
    ContxRespNer,
    /// Retrieved knowledge as well.
    ContxRespNerKnow,
    /// The knowledge's source as well.
    ContxRespNerKnowSource,
}

/// `train adapter`
#[derive(Clone, Debug, clap::Args)]
pub struct TrainAdapterArgs {
    /// Labelled conversations to learn from
    #[arg(long, value_name = "FILE,format=FORMAT")]
    data: String,
    /// The snippets for dstc11's turns, for inputs with knowledge
    #[arg(long, value_name = "FILE")]
    knowledge: Option<PathBuf>,
    /// The parts of a turn that the prompts have
    #[arg(long, value_enum, default_value_t)]
    inputs: PromptInputs,
    /// The unified model that drafts the responses for inputs with one: "shipped", a GGUF file, or
    /// a folder with model.safetensors; the data set's replies if not given
    #[arg(long, value_name = "MODEL")]
    drafts: Option<UnifiedWeights>,
    /// The language of the data, by its BCP 47 tag
    #[arg(long, value_name = "TAG", default_value = "en")]
    language: String,
    /// Folder to write examples.jsonl and gate.json into
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// An example.
#[derive(Serialize)]
struct PromptExample {
    prompt: String,
    /// What an encoder reads in place of the prompt.
    utterance: String,
    earlier: String,
    answer: &'static str,
    held_out: bool,
}

impl From<PromptInputs> for GateInputs {
    fn from(inputs: PromptInputs) -> Self {
        match inputs {
            PromptInputs::Contx => Self::Contx,
            PromptInputs::ContxRespNer => Self::ContxRespNer,
            PromptInputs::ContxRespNerKnow => Self::ContxRespNerKnow,
            PromptInputs::ContxRespNerKnowSource => Self::ContxRespNerKnowSource,
        }
    }
}

pub(super) fn execute(args: &TrainAdapterArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let inputs = GateInputs::from(args.inputs);
    if args.drafts.is_some() && !inputs.reads_response() {
        let what = format!("--drafts is for inputs with a response, not for {}", inputs.name());
        return Err(Usage::new(what, "add --inputs contx-resp-ner, or leave --drafts out").into());
    }
    let (path, format) = split(&args.data)?;
    let refused = |error: &dyn std::fmt::Display| {
        InputRefused::new(error.to_string(), "give a labelled split and its format")
    };
    let mut turns = labelled::read(format, &path).map_err(|error| refused(&error))?;
    if let Some(knowledge) = &args.knowledge {
        dstc::find_snippets(&mut turns, knowledge).map_err(|error| refused(&error))?;
    }
    if let Some(weights) = &args.drafts {
        draft_replies(&mut turns, weights)?;
    }
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the folder {}", args.out.display()))?;
    let (train, held_out) = hold_out(turns);
    let mut lines = Vec::new();
    for (turns, held_out) in [(&train, false), (&held_out, true)] {
        for turn in turns {
            let answer = ANSWERS[usize::from(turn.need == Need::None)];
            let prompt = prompt_of(turn, inputs);
            let (utterance, earlier) = pair_of(turn);
            let example = PromptExample { prompt, utterance, earlier, answer, held_out };
            print_json(&mut lines, &example)?;
        }
    }
    let card = InstructedCard {
        inputs,
        language: args.language.clone(),
        definition: format.name().to_owned(),
        answers: ANSWERS.map(str::to_owned),
        threshold: 0.5,
        drafts: args.drafts.as_ref().map(ToString::to_string),
    };
    let card = serde_json::to_vec_pretty(&card)?;
    for (name, bytes) in [("examples.jsonl", &lines), (CARD, &card)] {
        let file = args.out.join(name);
        std::fs::write(&file, bytes).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let positives =
        |turns: &[LabelledTurn]| turns.iter().filter(|turn| turn.need != Need::None).count();
    let (of_train, of_held_out) = (positives(&train), positives(&held_out));
    if args.json {
        let written = json!({
            "train": train.len(), "train_positives": of_train,
            "held_out": held_out.len(), "held_out_positives": of_held_out,
        });
        print_json(out, &written)?;
    } else {
        writeln!(
            out,
            "{} examples to learn from ({of_train} need knowledge), {} held out ({of_held_out}), in {}",
            train.len(),
            held_out.len(),
            args.out.display()
        )?;
    }
    Ok(Exit::Success)
}

/// Replaces the replies by drafts of the unified model.
fn draft_replies(turns: &mut [LabelledTurn], weights: &UnifiedWeights) -> anyhow::Result<()> {
    let model = UnifiedModel::open(weights)?;
    let mut ask = |requests: &[_]| model.run(requests).map(|(answers, _)| answers);
    let progress = Progress::of(turns.len(), "drafts");
    draft(turns, &mut ask, &|| progress.advance())?;
    progress.finish();
    Ok(())
}
