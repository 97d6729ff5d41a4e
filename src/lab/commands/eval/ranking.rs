//! `turnstream eval ranking`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use serde_json::json;
use turnstream_console::{InputRefused, load_config, print_json};
use turnstream_formats::{Format, LoggedItem};
use turnstream_knowledge::{FactVectors, Graph};
use turnstream_ports::model::encoder::Encoder;
use turnstream_sources::knowledge::embed::{open_vectors, vectors_beside};
use turnstream_sources::knowledge::{self, PACK_LOCATION, pack_vectors_path};

use crate::eval::ranking::{Ranker, TOP, contexts, kept};

pub(super) const EXAMPLES: &str = "\
Both encoders need vectors of the facts: `turnstream knowledge embed` makes them.

Examples:
  turnstream eval ranking --data log.jsonl --encoder table.zst --reference minilm --json";

/// `eval ranking`
#[derive(Clone, Debug, clap::Args)]
pub struct RankingArgs {
    /// The dialogues that facts are ranked for: a log, plain or gzip
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The log's shape
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Format,
    /// The encoder that is measured: a model by its name, its folder, or the file of a static
    /// table
    #[arg(long, value_name = "ENCODER")]
    encoder: String,
    /// The encoder whose ranking counts
    #[arg(long, value_name = "ENCODER")]
    reference: String,
    /// The graph whose facts are ranked, or "pack"
    #[arg(long, value_name = "SNAPSHOT", default_value = PACK_LOCATION)]
    snapshot: String,
    /// The most user turns, evenly spread over the log
    #[arg(long, value_name = "N", default_value_t = 1000)]
    contexts: usize,
    /// The configuration, of which [models] and [embedding] are read; the defaults if not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn execute(args: &RankingArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.config.as_deref())?.value;
    let graph = knowledge::open(&args.snapshot)?;
    let refused = |error: turnstream_formats::FormatError| {
        InputRefused::new(error.to_string(), "give a readable log and its --format")
            .caused_by(error)
    };
    let mut turns = Vec::new();
    for item in turnstream_formats::open(args.format, &args.data).map_err(refused)? {
        match item {
            Ok(LoggedItem::Turn(logged)) => turns.push(logged.turn),
            Ok(LoggedItem::Raw { line, bytes }) => {
                let turn = serde_json::from_slice(&bytes);
                turns.push(turn.with_context(|| format!("line {line} is not a turn"))?);
            }
            Err(error) if error.ends() => return Err(refused(error).into()),
            Err(error) => tracing::warn!(%error, "left out"),
        }
    }
    let contexts = contexts(turns, args.contexts);

    let (_, encoder) = config.models.named(&args.encoder)?;
    let (_, reference) = config.models.named(&args.reference)?;
    let one = vectors((&args.snapshot, &graph), &*encoder, &args.encoder)?;
    let other = vectors((&args.snapshot, &graph), &*reference, &args.reference)?;
    let ranker = Ranker { encoder: &*encoder, vectors: &one };
    let reference = Ranker { encoder: &*reference, vectors: &other };
    let kept = kept(&contexts, &ranker, &reference, &config.embedding)?;

    if args.json {
        let format = args.format.to_possible_value();
        let measured = json!({
            "format": format.as_ref().map(|format| format.get_name()),
            "n": contexts.len(),
            "facts": graph.stats().facts,
            "encoder": ranker.encoder.name(),
            "reference": reference.encoder.name(),
            "top": TOP,
            "kept": kept,
        });
        return Ok(print_json(out, &measured)?);
    }
    let (name, other) = (ranker.encoder.name(), reference.encoder.name());
    writeln!(out, "of the first {TOP} facts by {other}, over {} contexts:", contexts.len())?;
    for (depth, share) in kept {
        writeln!(out, "  {share:.3} are among the first {depth} by {name}")?;
    }
    Ok(())
}

/// Opens an encoder's vectors of the facts, at the path that engines use.
fn vectors(
    (snapshot, graph): (&str, &Graph),
    encoder: &dyn Encoder,
    given: &str,
) -> anyhow::Result<FactVectors> {
    let path = match snapshot {
        PACK_LOCATION => pack_vectors_path(encoder).context("there is no cache folder")?,
        snapshot => vectors_beside(Path::new(snapshot), encoder.name()),
    };
    open_vectors(&path, graph, encoder.fingerprint())?.with_context(|| {
        format!(
            "no vectors by {given} in {}: run `turnstream knowledge embed {snapshot} --encoder \
             {given}`",
            path.display()
        )
    })
}
