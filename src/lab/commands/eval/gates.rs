//! `turnstream eval gates`.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use serde_json::json;
use turnstream_console::progress::Progress;
use turnstream_console::{InputRefused, load_config, print_json};
use turnstream_formats::Format;
use turnstream_models::gate::Gate;

use super::gate::{lexical, refused};
use crate::eval::gate::GateError;
use crate::eval::gate::instructed::gates_in_folders;
use crate::eval::gate::learned::{extras, gates_of};
use crate::eval::gate::table::{Splits, markdown, sections, splits};
use crate::labelled::LABELLED;

pub(super) const EXAMPLES: &str = "\
The folder has dstc11-track5/{train,dev}.jsonl.gz, sgd/{train,dev}.jsonl.gz,
topical-chat/{valid_freq,valid_rare}.jsonl.gz and kbp/{train,dev}.jsonl.gz; those that are not there
are left out, and named on standard error.

Examples:
  turnstream eval gates --data-folder data --models gates --out docs/gate-table.md
  turnstream eval gates --data-folder data --only dstc11,kbp --json";

/// `eval gates`
#[derive(Clone, Debug, clap::Args)]
pub struct GatesArgs {
    /// The folder of the data sets
    #[arg(long, value_name = "DIR")]
    data_folder: PathBuf,
    /// The data sets, separated by commas; all four if not given
    #[arg(
        long,
        value_enum,
        value_name = "FORMATS",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    only: Vec<Format>,
    /// A folder of gates that `train gate` made, of adapters' folders, each with its model in a folder
    /// `base`, and of encoders' folders that `deploy/training/train adapter encoder` made; each
    /// appears in the tables of the data sets that it learned from
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// Write the table, as Markdown
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The configuration, of which [gate], [history] and [knowledge] are read; the defaults if not
    /// given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// Returns the page's head: how the table was made, and how to read it.
fn head(args: &GatesArgs) -> String {
    let models = args.models.as_ref().map_or("", |_| " --models MODELS");
    format!(
        "\
# Gates on the development splits

Written by `turnstream eval gates --data-folder DATA{models} --out docs/gate-table.md`;
[gate.md](gate.md) says what the columns are. In brackets 95 % intervals, whole conversations being
drawn. Labels of two data sets, or of two classes, have different definitions: figures are compared
within one table.
"
    )
}

pub(super) fn execute(args: &GatesArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.config.as_deref())?.value;
    let lexical = lexical(&config)?;
    let wanted = |splits: &Splits| args.only.is_empty() || args.only.contains(&splits.format);
    let mut learned = match &args.models {
        Some(folder) => {
            let mut gates = gates_of(folder).map_err(refused)?;
            gates.extend(gates_in_folders(folder).map_err(refused)?);
            gates
        }
        None => Vec::new(),
    };
    let shipped = Gate::shipped()?;
    for format in LABELLED {
        learned.extend(extras(&shipped, format));
    }
    let mut measured = Vec::new();
    for splits in splits(&args.data_folder).into_iter().filter(wanted) {
        if let Some(absent) =
            [&splits.train, &splits.development].into_iter().find(|it| !it.exists())
        {
            eprintln!("{}: left out, because {} is missing", splits.format, absent.display());
            continue;
        }
        let progress = Progress::start("fits and turns");
        let step = |what: &str| eprintln!("{what}");
        let found = sections(&splits, &lexical, &learned, (&step, &|| progress.advance()));
        progress.finish();
        measured.extend(found.map_err(refused)?);
    }
    if measured.is_empty() {
        let what = format!("{} has none of the data sets", args.data_folder.display());
        return Err(InputRefused::new(what, "see --help for the files it should have").into());
    }
    let table = markdown(&measured);
    if let Some(path) = &args.out {
        let failed = |source| GateError::Write { path: path.clone(), source };
        fs::write(path, format!("{}{table}", head(args))).map_err(failed)?;
    }
    if args.json {
        print_json(out, &json!({ "sections": measured }))?;
    } else if args.out.is_none() {
        out.write_all(table.as_bytes())?;
    }
    Ok(())
}
