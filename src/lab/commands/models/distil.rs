//! `turnstream models distil`: distils a static table from a sentence encoder.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use turnstream_console::{Exit, InputRefused, Usage, print_json};
use turnstream_formats::{Format, LoggedItem};
use turnstream_knowledge::{verbalise, write_whole};
use turnstream_models::static_table::StaticTable;
use turnstream_sources::knowledge;

use super::CommonArgs;
use crate::distil::{DistilOptions, distil, keep_latin_pieces};

/// Compression level of a table.
const LEVEL: i32 = 19;

/// The interval of progress messages.
const TELL: Duration = Duration::from_secs(5);

/// `models distil`
#[derive(Clone, Debug, clap::Args)]
pub struct DistilArgs {
    /// File to write: a table in the safetensors format, zstd-compressed
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The sentence encoder to learn from, as `models list` names it, or its folder
    #[arg(long, value_name = "MODEL", default_value = "minilm")]
    teacher: String,
    /// The graph whose facts are learned from, or "pack"
    #[arg(long, value_name = "SNAPSHOT", default_value = knowledge::PACK_LOCATION)]
    snapshot: String,
    /// Logs whose utterances are learned from; each may say ",format=FORMAT"
    #[arg(long, value_name = "FILE[,format=FORMAT]")]
    utterances: Vec<String>,
    /// The table's name
    #[arg(long, value_name = "NAME", default_value = "static-en")]
    name: String,
    /// Numbers per vector
    #[arg(long, value_name = "N", default_value_t = DistilOptions::default().dimensions)]
    dimensions: usize,
    /// Passes over all texts
    #[arg(long, value_name = "N", default_value_t = DistilOptions::default().epochs)]
    epochs: u32,
    /// The seed of the order of the texts
    #[arg(long, value_name = "N", default_value_t = DistilOptions::default().seed)]
    seed: u64,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// The result printed with `--json`.
#[derive(Serialize)]
struct DistilledTable {
    file: String,
    bytes: usize,
    name: String,
    pieces: usize,
    dimensions: usize,
    texts: usize,
    held_out: usize,
    kept_variance: f64,
    cosine_of_regression: f64,
    cosine: f64,
    seconds: f64,
}

pub(super) fn execute(args: &DistilArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let begun = Instant::now();
    let models = args.common.models()?;
    let (folder, teacher) = models.named(&args.teacher)?;
    let folder = folder.ok_or_else(|| {
        Usage::new(format!("{} is not a sentence encoder", args.teacher), "see `models list`")
    })?;
    let tokenizer = folder.join("tokenizer.json");
    let json = std::fs::read_to_string(&tokenizer)
        .with_context(|| format!("cannot read {}", tokenizer.display()))?;
    let tokenizer = keep_latin_pieces(&json)?;

    let graph = knowledge::open(&args.snapshot)?;
    // A set, so that repeated utterances count once.
    let mut texts = BTreeSet::new();
    texts.extend(graph.facts().map(|fact| verbalise(graph.view(), &fact)));
    for file in &args.utterances {
        utterances(file, &mut texts)?;
    }
    let texts: Vec<String> = texts.into_iter().collect();
    eprintln!("{} texts", texts.len());

    let options = DistilOptions {
        dimensions: args.dimensions,
        epochs: args.epochs,
        seed: args.seed,
        threads: models.threads(),
        ..DistilOptions::default()
    };
    let told = Mutex::new(Instant::now());
    let progress = |what: &str, done: usize, all: usize| {
        let Ok(mut told) = told.lock() else { return };
        if told.elapsed() >= TELL || done == all {
            eprintln!("{what}: {done} of {all}");
            *told = Instant::now();
        }
    };
    let made = distil(&*teacher, &tokenizer, &texts, &options, &progress)?;
    let table =
        StaticTable::to_bytes(&args.name, &tokenizer, &made.vectors, args.dimensions, None)?;
    let bytes = zstd::encode_all(&*table, LEVEL).context("the table cannot be compressed")?;
    write_whole(&args.out, &bytes)
        .with_context(|| format!("cannot write {}", args.out.display()))?;

    let made = DistilledTable {
        file: args.out.display().to_string(),
        bytes: bytes.len(),
        name: args.name.clone(),
        pieces: made.vectors.len() / args.dimensions,
        dimensions: args.dimensions,
        texts: made.texts,
        held_out: made.held_out,
        kept_variance: made.kept_variance,
        cosine_of_regression: made.cosine_of_regression,
        cosine: made.cosine,
        seconds: begun.elapsed().as_secs_f64(),
    };
    if args.common.json {
        print_json(out, &made)?;
    } else {
        let DistilledTable { file, bytes, pieces, dimensions, cosine, held_out, .. } = &made;
        writeln!(
            out,
            "{file}: {pieces} pieces of {dimensions} numbers, {bytes} bytes; mean cosine to {} on \
             {held_out} texts held out: {cosine:.3}",
            args.teacher
        )?;
    }
    Ok(Exit::Success)
}

/// Adds the utterances of a log.
fn utterances(given: &str, texts: &mut BTreeSet<String>) -> anyhow::Result<()> {
    let (path, format) = match given.rsplit_once(",format=") {
        Some((path, name)) => {
            let format = Format::from_str(name, false).map_err(|_| {
                Usage::new(format!("{given:?}: there is no format {name:?}"), "see replay --help")
            })?;
            (path, format)
        }
        None => (given, Format::default()),
    };
    let refused = |error: turnstream_formats::FormatError| {
        InputRefused::new(error.to_string(), "give a readable log and its format").caused_by(error)
    };
    for item in turnstream_formats::open(format, Path::new(path)).map_err(refused)? {
        match item {
            Ok(LoggedItem::Turn(logged)) => drop(texts.insert(logged.turn.text)),
            Ok(LoggedItem::Raw { .. }) => {}
            Err(error) if error.ends() => return Err(refused(error).into()),
            Err(error) => tracing::warn!(%error, "left out"),
        }
    }
    Ok(())
}
