//! `turnstream new`: writes a small company to begin with, which `chat` answers for at once.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;
use turnstream_console::{Usage, print_json};

use crate::documents;

/// The company: its files below the folder.
const FILES: [(&str, &str); 7] = [
    ("pages/orders.md", include_str!("new/company/pages/orders.md")),
    ("pages/house.md", include_str!("new/company/pages/house.md")),
    ("teas.jsonl", include_str!("new/company/teas.jsonl")),
    ("phrasings.jsonl", include_str!("new/company/phrasings.jsonl")),
    ("questions.jsonl", include_str!("new/company/questions.jsonl")),
    ("gold.jsonl", include_str!("new/company/gold.jsonl")),
    (CONFIG, include_str!("new/company/turnstream.toml")),
];
const CONFIG: &str = "turnstream.toml";

/// Write a small company to start from: a configuration, two pages, a table, phrasings of its
/// customers, and ten questions with their right answers.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Talk with it using `turnstream chat --config teahouse/turnstream.toml`.

Examples:
  turnstream new teahouse")]
pub struct NewArgs {
    /// The company's folder; empty, or created if missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub json: bool,
}

/// Writes the company and imports its pages.
///
/// # Errors
/// The folder is not empty, or cannot be written to.
pub fn execute(args: &NewArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    // The configuration names its files by whole paths, so that it works from any folder.
    let dir = &std::path::absolute(&args.dir)?;
    if dir.read_dir().is_ok_and(|mut inside| inside.next().is_some()) {
        let message = format!("{} is not empty", dir.display());
        return Err(Usage::new(message, "name a new or empty folder").into());
    }
    let config = write_company(dir)?;
    if args.json {
        let files: Vec<PathBuf> = FILES.iter().map(|(name, _)| dir.join(name)).collect();
        print_json(out, &json!({ "config": config, "files": files }))?;
        return Ok(());
    }
    writeln!(out, "{} has a tea house. Talk with it:\n", dir.display())?;
    writeln!(out, "    turnstream chat --config {}\n", config.display())?;
    writeln!(
        out,
        "Then put your own pages, tables and customers' words in their place, and import the pages:\n"
    )?;
    let (pages, store) = (dir.join("pages"), dir.join("store"));
    writeln!(
        out,
        "    turnstream documents import {} --out {}\n",
        pages.display(),
        store.display()
    )?;
    writeln!(out, "and measure what it answers:\n")?;
    let (questions, gold) = (dir.join("questions.jsonl"), dir.join("gold.jsonl"));
    let (questions, gold, config) = (questions.display(), gold.display(), config.display());
    writeln!(
        out,
        "    turnstream eval answers --questions {questions} --config {config} --gold {gold}"
    )?;
    Ok(())
}

/// Writes the company into a folder and imports its pages. Returns its configuration.
///
/// # Errors
/// The folder cannot be written to.
pub(super) fn write_company(dir: &Path) -> anyhow::Result<PathBuf> {
    for (name, content) in FILES {
        write(&dir.join(name), content, dir)?;
    }
    documents::import_pages(&dir.join("pages"), &dir.join("store"))?;
    Ok(dir.join(CONFIG))
}

fn write(path: &Path, content: &str, dir: &Path) -> anyhow::Result<()> {
    let failed =
        || format!("cannot write {}; check the folder and its permissions", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(failed)?;
    }
    // A path may contain quotes and backslashes.
    let shown = dir.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    std::fs::write(path, content.replace("DIR", &shown)).with_context(failed)
}
