//! `turnstream eval histories`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde_json::json;
use turnstream_console::progress::Progress;
use turnstream_console::{InputRefused, load_config, print_json};
use turnstream_engine::config::Config;
use turnstream_formats::Format;
use turnstream_operators::history::similarity::Similarity;

use super::history::{attending, read, refused, similarity};
use crate::eval::history::HistoryEvalError;
use crate::eval::history::table::{Shown, Variant, markdown, of_evidence, of_topics};

/// The conversations of TopiOCQA: how many are skipped, since constants were chosen on them, and
/// how many are reported.
pub(super) const TOPIOCQA: (usize, Option<usize>) = (300, Some(500));

pub(super) const EXAMPLES: &str = "\
The folder has locomo/conversations-1-5.jsonl.gz and topiocqa/train.jsonl.gz, of which conversations
301 to 800 are measured on; what is not there is left out, and named on standard error.

Examples:
  turnstream eval histories --data-folder data --out docs/history-table.md
  turnstream eval histories --data-folder data --only locomo --variant gentle=gentle.toml --json";

/// `eval histories`
#[derive(Clone, Debug, clap::Args)]
pub struct HistoriesArgs {
    /// The folder of the data sets
    #[arg(long, value_name = "DIR")]
    data_folder: PathBuf,
    /// One data set alone: locomo or topiocqa; both if not given
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    only: Option<Format>,
    /// A further configuration to measure, by a name for it and its file
    #[arg(long, value_name = "NAME=FILE")]
    variant: Vec<NamedConfig>,
    /// Write the table, as Markdown
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The configuration, of which [history] and [models] are read; the defaults if not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// `--variant`
#[derive(Clone, Debug)]
struct NamedConfig {
    name: String,
    path: PathBuf,
}

impl FromStr for NamedConfig {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts =
            text.split_once('=').filter(|(name, path)| !(name.is_empty() || path.is_empty()));
        let (name, path) = parts.ok_or("expected NAME=FILE")?;
        Ok(Self { name: name.to_owned(), path: path.into() })
    }
}

const HEAD: &str = "\
# Histories on LoCoMo and TopiOCQA

Written by `turnstream eval histories --data-folder DATA --out docs/history-table.md`;
[history.md](history.md) says what the columns are. In brackets 95 % intervals, questions (TopiOCQA:
whole conversations) being drawn; the last columns are paired. Causal: a question sees what was said
before it alone.
";

pub(super) fn execute(args: &HistoriesArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let variants = variants(args)?;
    let mut sections = Vec::new();
    let sets = [
        (Format::Locomo, "locomo/conversations-1-5.jsonl.gz", (0, None)),
        (Format::Topiocqa, "topiocqa/train.jsonl.gz", TOPIOCQA),
    ];
    for (format, file, part) in sets {
        if args.only.is_some_and(|only| only != format) {
            continue;
        }
        let path = args.data_folder.join(file);
        if !path.exists() {
            eprintln!("{format}: left out, because {} is missing", path.display());
            continue;
        }
        let conversations = read(format, &path, part)?;
        let progress = Progress::start("questions");
        let advance = || progress.advance();
        let data = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
        sections.extend(match format {
            Format::Topiocqa => of_topics(&data, &conversations, &variants, &advance),
            _ => of_evidence(&data, &conversations, &variants, &advance),
        });
        progress.finish();
    }
    if sections.is_empty() {
        let what = format!("{} has none of the data sets", args.data_folder.display());
        return Err(InputRefused::new(what, "see --help for the files it should have").into());
    }
    let table = markdown(&sections);
    if let Some(path) = &args.out {
        let failed = |source| HistoryEvalError::Write { path: path.clone(), source };
        fs::write(path, format!("{HEAD}{table}")).map_err(failed).map_err(refused)?;
    }
    if args.json {
        print_json(out, &json!({ "sections": sections }))?;
    } else if args.out.is_none() {
        out.write_all(table.as_bytes())?;
    }
    Ok(())
}

/// Returns the configurations to measure. The first has no name and is varied in one setting at a
/// time; those of the command line follow.
fn variants(args: &HistoriesArgs) -> anyhow::Result<Vec<Variant>> {
    let config = load_config(args.config.as_deref())?.value;
    let first = variant("", &config, Shown::Everywhere)?;
    let changed = |name: String, shown, change: &dyn Fn(&mut Variant)| {
        let mut variant = Variant { name, shown, ..first.clone() };
        change(&mut variant);
        variant
    };
    let mut variants = vec![first.clone()];
    variants.push(changed("by words alone".to_owned(), Shown::Recalled, &|variant| {
        variant.similarity = Similarity::by_words();
    }));
    variants.push(changed("without neighbours".to_owned(), Shown::Recalled, &|variant| {
        variant.config.recall.neighbour_weight = 0.0;
    }));
    variants.push(changed("questions completed".to_owned(), Shown::Recalled, &|variant| {
        variant.reconstruct = true;
    }));
    let attending = attending(&config, config.integration.identity())?;
    variants.push(changed("ordered by attention".to_owned(), Shown::Recalled, &|variant| {
        variant.attending = Some(attending.clone());
    }));
    for alpha in [0.25, 0.75, 1.0] {
        variants.push(changed(format!("α {alpha}"), Shown::Kept, &|variant| {
            variant.config.alpha = alpha;
        }));
    }
    for share in [0.0, 0.25, 0.5, 1.0] {
        variants.push(changed(format!("importance {share}"), Shown::Kept, &|variant| {
            variant.config.importance_share = share;
        }));
    }
    for NamedConfig { name, path } in &args.variant {
        variants.push(variant(name, &load_config(Some(path))?.value, Shown::Everywhere)?);
    }
    Ok(variants)
}

/// Makes a variant of a configuration.
fn variant(name: &str, config: &Config, shown: Shown) -> anyhow::Result<Variant> {
    Ok(Variant {
        name: name.to_owned(),
        config: config.history.clone(),
        similarity: similarity(&config.models)?,
        reconstruct: false,
        attending: None,
        shown,
    })
}
