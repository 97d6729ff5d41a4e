//! `turnstream eval gate`.

use std::convert::Infallible;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context;
use serde::Serialize;
use turnstream_console::progress::Progress;
use turnstream_console::{InputRefused, Usage, load_config, print_json};
use turnstream_engine::config::Config;
use turnstream_formats::Format;
use turnstream_operators::gate::{AdapterGateConfig, GateConfig, GateForm};
use turnstream_sources::knowledge;

use crate::eval::gate::figures::Scored;
use crate::eval::gate::gates::{Constant, Lexical, Random};
use crate::eval::gate::instructed::Instructed;
use crate::eval::gate::learned::Learned;
use crate::eval::gate::report::{self, PageSection};
use crate::eval::gate::{
    GateError, MeasuredGate, ScoresTurns, best_threshold, measured, scored, scores, tfidf,
};
use crate::eval::retrieval::dstc;
use crate::labelled::{self, LabelledTurn, Positive};

pub(super) const EXAMPLES: &str = "\
Gates: lexical (the engine's own, without a model), learned (the one that ships), the file of one that
`train gate` made, adapter (gate.adapter of --config), tfidf (the baseline; learns from --train and is
not kept), and the controls always, never and random. docs/gate.md defines every figure.

Examples:
  turnstream eval gate --format dstc11 --data dev.jsonl.gz
  turnstream eval gate --format dstc11 --data dev.jsonl.gz --model tfidf --train train.jsonl.gz
  turnstream eval gate --format kbp --data dev.jsonl --positive null --model never --json
  turnstream eval gate --format kbp --data dev.jsonl --model learned --threshold-from train.jsonl
  turnstream eval gate --format dstc11 --data dev.jsonl.gz --model learned --transcript 0.1
  turnstream eval gate --format dstc11 --data dev.jsonl.gz --model adapter --config adapter.toml
  turnstream eval gate --format sgd --data dev.jsonl --report gate.html";

/// `eval gate`
#[derive(Clone, Debug, clap::Args)]
pub struct EvalGateArgs {
    /// The data set: dstc11, dstc10, ketod, sgd, topical-chat, kbp or kdconv
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    format: Format,
    /// The measured split: JSON lines, plain or gzip
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The gate: lexical, learned (the shipped one), adapter (the one of --config), tfidf, always,
    /// never, random, or the file of one that `train gate` made
    #[arg(long, value_name = "GATE", default_value = "lexical")]
    model: Gate,
    /// The split that tfidf learns from
    #[arg(long, value_name = "FILE", required_if_eq("model", "tfidf"))]
    train: Option<PathBuf>,
    /// The class to measure; every class of the data set if not given
    #[arg(long, value_enum, value_name = "CLASS")]
    positive: Option<Positive>,
    /// Retrieve where the score reaches this, 0 to 1; the gate's own threshold if not given
    #[arg(long, value_name = "SCORE", value_parser = fraction, conflicts_with = "threshold_from")]
    threshold: Option<f64>,
    /// Choose the threshold with the best F1 of the class on this split, which is not the measured
    /// one: for a gate that was trained on other data sets
    #[arg(long, value_name = "FILE")]
    threshold_from: Option<PathBuf>,
    /// The share of turns that random retrieves for, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = fraction)]
    rate: f64,
    /// Measure on the turns as a transcript of speech would have them: lower case, no punctuation,
    /// this share of the words lost or misheard, and fillers or repetitions before half that share,
    /// 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = fraction)]
    transcript: Option<f64>,
    /// The seed of random and of transcripts
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// The snippets for gates that read knowledge, for dstc11 and dstc10
    #[arg(long, value_name = "FILE")]
    knowledge: Option<PathBuf>,
    /// Write a page with the figures and their plots
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The configuration, of which [gate], [history] and [knowledge] are read; the defaults if not
    /// given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// A gate, selected by name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Gate {
    /// The engine's lexical gate
    Lexical,
    /// The shipped learned gate
    Shipped,
    /// A trained gate in a file
    File(PathBuf),
    /// The language model with an adapter that the configuration names
    Adapter,
    /// TF-IDF of the last utterance with logistic regression
    Tfidf,
    /// Retrieves for every turn
    Always,
    /// Retrieves for no turn
    Never,
    /// Retrieves for a random share of turns
    Random,
}

impl FromStr for Gate {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "lexical" => Self::Lexical,
            "learned" => Self::Shipped,
            "adapter" => Self::Adapter,
            "tfidf" => Self::Tfidf,
            "always" => Self::Always,
            "never" => Self::Never,
            "random" => Self::Random,
            path => Self::File(PathBuf::from(path)),
        })
    }
}

fn fraction(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

/// The result printed with `--json`.
#[derive(Debug, Serialize)]
struct GateResult<'m> {
    format: &'static str,
    #[serde(flatten)]
    first: &'m MeasuredGate,
    /// The figures of the data set's other classes.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    others: &'m [MeasuredGate],
    /// Why the threshold may not fit the data set.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<&'m str>,
}

pub(super) fn execute(args: &EvalGateArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let classes = classes(args)?;
    for (option, split) in [("--train", &args.train), ("--threshold-from", &args.threshold_from)] {
        if split.as_ref().is_some_and(|split| same_file(split, &args.data)) {
            let remedy = "name another split: in-sample figures flatter";
            return Err(Usage::new(format!("{option} is the measured split"), remedy).into());
        }
    }
    let config = load_config(args.config.as_deref())?.value;
    let turns = read(args, &args.data)?;
    let others = match args.threshold_from.as_deref() {
        Some(split) => Some((split, read(args, split)?)),
        None => None,
    };
    let OfClasses { gates, trained_on } = gates(args, &config, &classes)?;
    let is_chosen = args.threshold.is_some() || others.is_some();
    let warning = trained_on.filter(|_| !is_chosen).map(|trained_on| {
        format!(
            "the gate was trained on {trained_on}, not on {}, and its threshold may not fit: choose one \
             with --threshold-from",
            args.format
        )
    });
    if let Some(warning) = &warning {
        tracing::warn!("{warning}");
    }
    let scored_turns = turns.len() + others.as_ref().map_or(0, |(_, turns)| turns.len());
    let progress = Progress::of(scored_turns * gates.len(), "turns scored");
    let mut results: Vec<(MeasuredGate, Scored)> = Vec::new();
    for (gate, positive) in gates.iter().zip(&classes) {
        let of = |turns| scores(&**gate, turns, &|| progress.advance()).map_err(refused);
        let need = of(&turns)?;
        let threshold = match &others {
            None => args.threshold.unwrap_or_else(|| gate.threshold()),
            Some((split, turns)) => {
                let chosen = best_threshold(turns, &of(turns)?, *positive);
                let path = || split.to_path_buf();
                chosen.ok_or_else(|| refused(GateError::OneClass { path: path() }))?
            }
        };
        let scored = scored(&turns, &need, threshold, *positive);
        results.push((measured(&**gate, &turns, &scored, (*positive, threshold)), scored));
    }
    progress.finish();
    if let Some(path) = &args.report {
        let section = |(measured, scored)| PageSection { measured, scored };
        let sections: Vec<_> = results.iter().map(|(one, two)| section((one, two))).collect();
        report::write(path, (args.format.name(), &args.data), &sections)?;
    }
    let results: Vec<MeasuredGate> = results.into_iter().map(|(measured, _)| measured).collect();
    if args.json {
        let (first, others) = results.split_first().context("a data set without classes")?;
        let (format, warning) = (args.format.name(), warning.as_deref());
        return Ok(print_json(out, &GateResult { format, first, others, warning })?);
    }
    results.iter().try_for_each(|measured| say(measured, out))
}

/// Returns the classes to measure.
fn classes(args: &EvalGateArgs) -> anyhow::Result<Vec<Positive>> {
    let known = Positive::of(args.format);
    match args.positive {
        // Reading refuses a data set without labels.
        None => Ok(known.to_vec()),
        Some(positive) if known.is_empty() || known.contains(&positive) => Ok(vec![positive]),
        Some(positive) => {
            let names: Vec<&str> = known.iter().map(|class| class.name()).collect();
            let what = format!("{} has no class {positive}", args.format);
            Err(Usage::new(what, format!("write {}", names.join(" or "))).into())
        }
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some() && real(one) == real(other)
}

/// Reads the turns of a split, each with its retrieval candidates.
fn read(args: &EvalGateArgs, split: &Path) -> anyhow::Result<Vec<LabelledTurn>> {
    let read = || -> Result<_, GateError> {
        let mut turns = labelled::read(args.format, split)?;
        if let Some(knowledge) = &args.knowledge {
            dstc::find_snippets(&mut turns, knowledge)?;
        }
        if let Some(errors) = args.transcript {
            labelled::transcribe(&mut turns, errors, args.seed);
        }
        Ok(turns)
    };
    if args.knowledge.is_some() && !matches!(args.format, Format::Dstc11 | Format::Dstc10) {
        let remedy = "leave it out: the data set has its knowledge in it, or has none";
        return Err(Usage::new("--knowledge is for dstc11 and dstc10", remedy).into());
    }
    read().map_err(refused)
}

/// The measured gate, once for each class.
struct OfClasses {
    gates: Vec<Box<dyn ScoresTurns>>,
    /// The data sets that it was trained on, if the measured one is not among them.
    trained_on: Option<String>,
}

/// Makes the gate for each class: trainable gates choose their threshold by the class.
fn gates(args: &EvalGateArgs, config: &Config, classes: &[Positive]) -> anyhow::Result<OfClasses> {
    if let (Gate::Tfidf, Some(train)) = (&args.model, &args.train) {
        let progress = Progress::start("fits");
        let turns = labelled::read(args.format, train).map_err(|error| refused(error.into()))?;
        let trained =
            tfidf::train(&turns, classes, tfidf::LEAST_TEXTS, train, &|| progress.advance())
                .map_err(refused)?;
        progress.finish();
        let gate = |class: &Positive| Box::new(trained.gate(*class)) as Box<dyn ScoresTurns>;
        let gates = classes.iter().map(gate).collect();
        return Ok(OfClasses { gates, trained_on: None });
    }
    let mut trained_on = None;
    let trained = match &args.model {
        Gate::Shipped => Some(turnstream_models::gate::Gate::shipped()?),
        Gate::File(path) => Some(Arc::new(
            turnstream_models::gate::Gate::open(path).map_err(|error| refused(error.into()))?,
        )),
        _ => None,
    };
    let mut gate = |positive: &Positive| -> anyhow::Result<Box<dyn ScoresTurns>> {
        if let Some(trained) = &trained {
            if let Some(gate) = Learned::new(Arc::clone(trained), args.format, *positive) {
                return Ok(Box::new(gate));
            }
            let named = &config.gate.learned.definitions;
            let gate = Learned::elsewhere(Arc::clone(trained), named).ok_or_else(|| {
                let what =
                    format!("{} has no definition {}", trained.card().name, named.join(", "));
                Usage::new(what, "see gate.learned.definitions of --config")
            })?;
            let names = trained.card().definitions.iter().map(|it| it.name.as_str());
            trained_on = Some(names.collect::<Vec<_>>().join(", "));
            return Ok(Box::new(gate));
        }
        Ok(match args.model {
            Gate::Lexical => Box::new(lexical(config)?),
            Gate::Adapter => {
                let gate = adapter(config)?;
                let of = gate.trained_on();
                trained_on = (of != args.format.name()).then(|| of.to_owned());
                Box::new(gate)
            }
            Gate::Always => Box::new(Constant::Always),
            Gate::Never => Box::new(Constant::Never),
            Gate::Random => Box::new(Random { rate: args.rate, seed: args.seed }),
            Gate::Tfidf | Gate::Shipped | Gate::File(_) => {
                return Err(Usage::new("tfidf needs --train", "name the split").into());
            }
        })
    };
    let gates = classes.iter().map(&mut gate).collect::<Result<_, _>>()?;
    Ok(OfClasses { gates, trained_on })
}

/// Opens the language model with an adapter that a configuration names.
fn adapter(config: &Config) -> anyhow::Result<Instructed> {
    let AdapterGateConfig { model, directory, .. } = &config.gate.adapter;
    let (Some(model), Some(directory)) = (model, directory) else {
        let remedy = "give --config with gate.adapter.model and gate.adapter.directory";
        return Err(Usage::new("the configuration names no adapter", remedy).into());
    };
    Ok(Instructed::open(model, directory)?)
}

/// Makes the engine's lexical gate from a configuration.
pub(super) fn lexical(config: &Config) -> anyhow::Result<Lexical> {
    let graph = knowledge::open(&config.knowledge.snapshot.to_string())?;
    let window_utterances = config.history.window_utterances;
    let config = GateConfig { form: GateForm::Lexical, ..config.gate.clone() };
    Ok(Lexical { graph, config, window_utterances })
}

fn say(measured: &MeasuredGate, out: &mut dyn Write) -> anyhow::Result<()> {
    let MeasuredGate { model, positive, n, conversations, positives, threshold, .. } = measured;
    writeln!(
        out,
        "{model}: class {positive}, {positives} of {n} turns in {conversations} conversations; \
         retrieves from {threshold:.3}"
    )?;
    if !measured.causal {
        writeln!(out, "not causal: the score reads the reply")?;
    }
    for (name, value) in measured.figures.named() {
        let value = value.map_or_else(|| "      –".to_owned(), |value| format!("{value:>7.4}"));
        let interval = measured.intervals.get(name);
        let interval =
            interval.map_or(String::new(), |[low, high]| format!("  [{low:.4}, {high:.4}]"));
        writeln!(out, "{name:<10}{value}{interval}")?;
    }
    let counts = &measured.confusion;
    writeln!(out, "tp {}  fp {}  tn {}  fn {}", counts.tp, counts.fp, counts.tn, counts.missed)?;
    Ok(())
}

/// Distinguishes errors of the input from others.
pub(super) fn refused(error: GateError) -> anyhow::Error {
    match error {
        GateError::Labelled(_) | GateError::Snippets(_) | GateError::OneClass { .. } => {
            InputRefused::new(error.to_string(), "see --help for the data sets")
                .caused_by(error)
                .into()
        }
        error => error.into(),
    }
}
