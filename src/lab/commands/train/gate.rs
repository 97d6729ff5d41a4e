//! `turnstream train gate`: trains RAGate's attention encoder, and the regressions beside it, on
//! labelled turns.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use turnstream_formats::{Format, Need};
use turnstream_knowledge::write_whole;
use turnstream_models::gate::card::{Card, Definition, Split, Training};
use turnstream_models::gate::network::{NetworkShape, Variant};
use turnstream_models::gate::reading::TokenKind;
use turnstream_models::gate::{FORMAT_VERSION, Gate, table_of};
use turnstream_ports::model::encoder::Encoder;

use super::{Exit, InputRefused, Usage, print_json};
use crate::eval::retrieval::dstc;
use crate::gate_training::{
    Lesson, Progress, State, TrainOptions, Trainer, regressions, vocabulary,
};
use crate::labelled::{self, LabelledTurn};

mod command;

pub(super) const EXAMPLES: &str = "\
Examples:
  turnstream train gate --data dstc11/train.jsonl.gz,format=dstc11 --out gate.safetensors.zst
  turnstream train gate --data kbp.jsonl,format=kbp --tokens characters --language zh --out kbp.zst
  turnstream train gate --data a.jsonl,format=sgd --preset paper --tokens words --out paper.zst

Several --data are learned together, each with its own definition of need. One conversation in ten
of each is held out, to stop by and to choose the threshold, where --development names no file.
The state after each pass is kept beside the gate as OUT.training; --resume continues from there.";

/// The interval of progress messages without a terminal.
const TELL: Duration = Duration::from_secs(10);

/// One in this many conversations is held out.
const HELD_OUT: usize = 10;

/// A shape of the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Preset {
    /// Two layers, 64 wide, with the current utterance pooled by itself, and a regression over the
    /// n-grams of the current utterance beside the encoder: the shipped shape.
    #[default]
    Small,
    /// The paper's best for the variant: 64 wide, 4 heads, 5 layers (contx), 2 (both with
    /// knowledge) or 4 (with response), one mean over all tokens, no regression.
    Paper,
}

/// `train gate`
#[derive(Clone, Debug, clap::Args)]
pub struct TrainGateArgs {
    /// Labelled conversations to learn from; several are learned together
    #[arg(long, value_name = "FILE,format=FORMAT", required = true)]
    data: Vec<String>,
    /// Conversations for early stopping and for choosing the thresholds, at most one file for each
    /// data set
    #[arg(long, value_name = "FILE,format=FORMAT")]
    development: Vec<String>,
    /// The snippets for dstc11's turns, for the variants that read knowledge
    #[arg(long, value_name = "FILE")]
    knowledge: Option<PathBuf>,
    /// The parts of a turn that the gate reads
    #[arg(long, value_enum, default_value_t)]
    variant: Variant,
    /// File to write: a gate in the safetensors format, zstd-compressed
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The shape of the gate
    #[arg(long, value_enum, default_value_t)]
    preset: Preset,
    /// The kind of token
    #[arg(long, value_enum, default_value_t)]
    tokens: TokenKind,
    /// The language of the data, by its BCP 47 tag
    #[arg(long, value_name = "TAG", default_value = "en")]
    language: String,
    /// The gate's name
    #[arg(long, value_name = "NAME", default_value = "gate")]
    name: String,
    /// Licences of the data, for the card
    #[arg(long, value_name = "NAME")]
    licence: Vec<String>,
    /// Layers, in place of the preset's
    #[arg(long, value_name = "N")]
    layers: Option<usize>,
    /// Heads, in place of the preset's
    #[arg(long, value_name = "N")]
    heads: Option<usize>,
    /// Numbers per token, in place of the preset's
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// The most tokens of the dialogue that are read
    #[arg(long, value_name = "N", default_value_t = 128)]
    max_tokens: usize,
    /// The latest utterances of the dialogue that are read; 0 for as many as fit
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_utterances: usize,
    /// How often a token must occur in the data to get a row of its own
    #[arg(long, value_name = "N", default_value_t = 3)]
    min_count: u32,
    /// The most passes over the data
    #[arg(long, value_name = "N", default_value_t = TrainOptions::default().epochs)]
    epochs: u32,
    /// Passes without improvement after which training stops
    #[arg(long, value_name = "N", default_value_t = TrainOptions::default().patience)]
    patience: u32,
    /// Turns per step
    #[arg(long, value_name = "N", default_value_t = TrainOptions::default().batch)]
    batch: usize,
    /// The most turns of each data set per pass, drawn anew for each pass, of which a small one has a
    /// quarter by repetition; 0 for all
    #[arg(long, value_name = "N", default_value_t = TrainOptions::default().turns_per_epoch)]
    turns_per_epoch: usize,
    /// The highest learning rate
    #[arg(long, value_name = "RATE", default_value_t = TrainOptions::default().rate)]
    rate: f64,
    /// The weight decay
    #[arg(long, value_name = "DECAY", default_value_t = TrainOptions::default().decay)]
    decay: f64,
    /// The dropout rate
    #[arg(long, value_name = "SHARE", default_value_t = TrainOptions::default().dropout)]
    dropout: f32,
    /// Learn from written text alone, not also from simulated transcripts of speech
    #[arg(long)]
    no_noise: bool,
    /// The seed of all random draws
    #[arg(long, value_name = "N", default_value_t = TrainOptions::default().seed)]
    seed: u64,
    /// Threads; as many as the machine has cores if not given
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Resume from OUT.training
    #[arg(long)]
    resume: bool,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// The result printed with `--json`.
#[derive(Serialize)]
struct TrainedGate<'a> {
    file: String,
    bytes: usize,
    parameters: usize,
    epochs: u32,
    best_epoch: u32,
    seconds: f64,
    definitions: &'a [Definition],
}

pub(super) fn execute(args: &TrainGateArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let begun = Instant::now();
    let (lessons, definitions) = lessons(args)?;
    let options = args.options();
    let words = if args.tokens == TokenKind::Words { 10_000 } else { 8_000 };
    let vocabulary = vocabulary(args.tokens, &lessons, (args.min_count, words))?;
    let table = table_of(args.tokens)?;
    let card = Card {
        format: FORMAT_VERSION,
        name: args.name.clone(),
        language: args.language.clone(),
        shape: args.shape(),
        vocabulary,
        table: table.as_ref().map(|table| table.fingerprint()),
        definitions,
        ngrams: Vec::new(),
        training: Training {
            command: args.command(),
            licences: args.licence.clone(),
            seed: options.seed,
            threads: options.threads,
            ..Training::default()
        },
    };
    let begun_with = serde_json::to_string(&(&card, &options))?;
    let regressions = match args.preset {
        Preset::Small => {
            let fits = turnstream_console::progress::Progress::start("fits");
            let regressions = regressions(&lessons, &|| fits.advance())?;
            fits.finish();
            regressions
        }
        Preset::Paper => Vec::new(),
    };
    let mut trainer = Trainer::new(card, options, &lessons, regressions)?;
    drop(lessons);
    let state = beside(&args.out);
    if args.resume {
        let bytes = std::fs::read(&state).with_context(|| {
            format!("cannot read {}, the state to resume from", state.display())
        })?;
        trainer.resume(State::from_bytes(&bytes, &begun_with)?)?;
    }
    let mut told = ProgressReporter::start();
    while !trainer.is_done() {
        trainer.pass(&mut |progress| told.hear(progress))?;
        write_whole(&state, &trainer.state().to_bytes(&begun_with)?)
            .with_context(|| format!("cannot write {}", state.display()))?;
    }
    let (mut card, parameters) = trainer.finish()?;
    card.training.seconds = begun.elapsed().as_secs_f64();
    let bytes = Gate::to_bytes(&card, &parameters)?;
    write_whole(&args.out, &bytes)
        .with_context(|| format!("cannot write {}", args.out.display()))?;
    // The gate is complete; a leftover state file does no harm.
    let _ = std::fs::remove_file(&state);
    let made = TrainedGate {
        file: args.out.display().to_string(),
        bytes: bytes.len(),
        parameters: parameters.values().map(|tensor| tensor.elem_count()).sum(),
        epochs: card.training.epochs,
        best_epoch: card.training.best_epoch,
        seconds: card.training.seconds,
        definitions: &card.definitions,
    };
    tell(&made, args.json, out)
}

fn tell(made: &TrainedGate<'_>, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if json {
        print_json(out, made)?;
        return Ok(Exit::Success);
    }
    let TrainedGate { file, bytes, parameters, best_epoch, epochs, seconds, definitions } = made;
    writeln!(
        out,
        "{file}: {parameters} parameters, {bytes} bytes, pass {best_epoch} of {epochs}, \
         {seconds:.0} s"
    )?;
    for definition in *definitions {
        if let Some(figures) = &definition.development {
            writeln!(
                out,
                "{}: precision {:.3}, recall {:.3}, F1 {:.3} at {:.3}, AUC {:.3} on {} turns held \
                 out",
                definition.name,
                figures.precision,
                figures.recall,
                figures.f1,
                definition.threshold,
                figures.auc,
                definition.developed_on.turns
            )?;
        }
    }
    Ok(Exit::Success)
}

impl TrainGateArgs {
    fn shape(&self) -> NetworkShape {
        let (layers, feed_forward, pools_current) = match (self.preset, self.variant) {
            (Preset::Small, _) => (2, 4, true),
            (Preset::Paper, Variant::Contx) => (5, 1, false),
            (Preset::Paper, Variant::ContxPlusResp) => (4, 1, false),
            (Preset::Paper, Variant::ContxPlusKnow | Variant::ContxTimesKnow) => (2, 1, false),
        };
        let width = self.width.unwrap_or(64);
        NetworkShape {
            variant: self.variant,
            width,
            heads: self.heads.unwrap_or(4),
            layers: self.layers.unwrap_or(layers),
            feed_forward: width * feed_forward,
            max_tokens: self.max_tokens,
            max_utterances: self.max_utterances,
            pools_current,
        }
    }

    fn options(&self) -> TrainOptions {
        let written = TrainOptions { bare: 0.0, lost: 0.0, misheard: 0.0, ..Default::default() };
        let noisy = if self.no_noise { written } else { TrainOptions::default() };
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        TrainOptions {
            epochs: self.epochs,
            patience: self.patience,
            batch: self.batch,
            turns_per_epoch: self.turns_per_epoch,
            rate: self.rate,
            decay: self.decay,
            dropout: self.dropout,
            seed: self.seed,
            threads: self.threads.unwrap_or_else(cores),
            ..noisy
        }
    }
}

/// Returns the path of a training's state file.
fn beside(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".training");
    PathBuf::from(name)
}

/// Reads the training sets, and each set's definition of need.
fn lessons(args: &TrainGateArgs) -> anyhow::Result<(Vec<Lesson>, Vec<Definition>)> {
    let read = |path: &Path, format| read(args, path, format);
    let development = args.development.iter().map(|given| split(given));
    let development = development.collect::<anyhow::Result<Vec<_>>>()?;
    let (mut lessons, mut definitions) = (Vec::<Lesson>::new(), Vec::<Definition>::new());
    for given in &args.data {
        let (path, format) = split(given)?;
        if definitions.iter().any(|definition| definition.name == format.name()) {
            let remedy = "join the files of a data set";
            return Err(Usage::new(format!("--data: {format} is given twice"), remedy).into());
        }
        let train = read(&path, format)?;
        let other = development.iter().find(|(_, other)| *other == format);
        let (train, held_out, developed_on) = match other {
            Some((path, _)) => (train, read(path, format)?, name_of(path)),
            None => {
                let (train, held_out) = hold_out(train);
                (train, held_out, format!("{}, one conversation in {HELD_OUT}", name_of(&path)))
            }
        };
        let classes: BTreeSet<Need> = train.iter().map(|turn| turn.need).collect();
        if classes.len() < 2 {
            let what = format!("{}: all turns are of one class", path.display());
            return Err(InputRefused::new(what, "give a whole training split").into());
        }
        definitions.push(Definition {
            name: format.name().to_owned(),
            classes: classes.into_iter().collect(),
            threshold: 0.5,
            null_threshold: 0.5,
            trained_on: counted(name_of(&path), &train),
            developed_on: counted(developed_on, &held_out),
            development: None,
        });
        lessons.push(Lesson { train, development: held_out });
    }
    Ok((lessons, definitions))
}

fn counted(file: String, turns: &[LabelledTurn]) -> Split {
    let positives = turns.iter().filter(|turn| turn.need != Need::None).count();
    Split { file, turns: turns.len() as u64, positives: positives as u64 }
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.display().to_string())
}

/// Splits turns for training and for evaluation: every tenth conversation is held out.
pub(super) fn hold_out(turns: Vec<LabelledTurn>) -> (Vec<LabelledTurn>, Vec<LabelledTurn>) {
    let mut numbers = std::collections::HashMap::new();
    turns.into_iter().partition(|turn| {
        let next = numbers.len();
        let number = *numbers.entry(turn.conversation.clone()).or_insert(next);
        number % HELD_OUT != HELD_OUT - 1
    })
}

/// Splits `FILE,format=FORMAT`.
pub(super) fn split(given: &str) -> anyhow::Result<(PathBuf, Format)> {
    let usage = |what: String| Usage::new(what, "write FILE,format=FORMAT; see eval gate --help");
    let (path, name) = given
        .rsplit_once(",format=")
        .ok_or_else(|| usage(format!("{given:?} does not say its format")))?;
    let format = Format::from_str(name, false)
        .map_err(|_| usage(format!("{given:?}: there is no format {name:?}")))?;
    Ok((PathBuf::from(path), format))
}

fn read(args: &TrainGateArgs, path: &Path, format: Format) -> anyhow::Result<Vec<LabelledTurn>> {
    let refused = |error: &dyn std::fmt::Display| {
        InputRefused::new(error.to_string(), "give a labelled split and its format")
    };
    let mut turns = labelled::read(format, path).map_err(|error| refused(&error))?;
    if let Some(knowledge) = &args.knowledge
        && matches!(format, Format::Dstc11 | Format::Dstc10)
        && args.variant.reads_knowledge()
    {
        dstc::find_snippets(&mut turns, knowledge).map_err(|error| refused(&error))?;
    }
    Ok(turns)
}

/// Shows the progress of a training: a bar on a terminal, lines elsewhere.
struct ProgressReporter {
    bar: Option<ProgressBar>,
    said: Instant,
}

impl ProgressReporter {
    fn start() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, said: Instant::now() }
    }

    fn hear(&mut self, progress: Progress) {
        let Progress { epoch, step, steps, loss, development } = progress;
        if let Some(development) = development {
            let line = format!("pass {epoch}: loss {loss:.4}, AUC held out {development:.4}");
            match &self.bar {
                Some(bar) => bar.println(line),
                None => eprintln!("{line}"),
            }
        } else if let Some(bar) = &self.bar {
            bar.set_length(steps as u64);
            bar.set_position(step as u64);
            bar.set_message(format!("pass {epoch}, loss {loss:.4}"));
        } else if self.said.elapsed() >= TELL {
            self.said = Instant::now();
            eprintln!("pass {epoch}: step {step} of {steps}, loss {loss:.4}");
        }
    }
}
