//! `turnstream knowledge embed`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;
use turnstream_console::load_config;
use turnstream_sources::knowledge::embed::{embed_facts, vectors_beside};
use turnstream_sources::knowledge::{self, PACK_LOCATION, Progress, pack_vectors_path};

use super::print_json;

/// `knowledge embed`
#[derive(Clone, Debug, clap::Args)]
pub struct EmbedArgs {
    /// The snapshot, or "pack"
    #[arg(value_name = "SNAPSHOT", default_value = PACK_LOCATION)]
    snapshot: String,
    /// Encoder of the facts: a model as `turnstream models list` names it, its folder, or the file
    /// of a static table
    #[arg(long, value_name = "ENCODER")]
    encoder: String,
    /// File to write; if not given, the one beside the snapshot where engines look
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The configuration, of which [models] is read; the defaults if not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) const EMBED_EXAMPLES: &str = "\
Engines rank facts by meaning if the facts have vectors by the engine's encoder. After an
interruption, the same command resumes.

Examples:
  turnstream knowledge embed facts.snapshot --encoder table.safetensors.zst
  turnstream knowledge embed pack --encoder minilm";

pub(super) fn embed(args: &EmbedArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let models = load_config(args.config.as_deref())?.value.models;
    let graph = knowledge::open(&args.snapshot)?;
    let (_, encoder) = models.named(&args.encoder)?;
    let path = match (&args.out, args.snapshot.as_str()) {
        (Some(path), _) => path.clone(),
        (None, PACK_LOCATION) => pack_vectors_path(&*encoder)
            .ok_or_else(|| anyhow::anyhow!("there is no cache folder; name a file with --out"))?,
        (None, snapshot) => vectors_beside(Path::new(snapshot), encoder.name()),
    };
    let begun = Instant::now();
    let before = embed_facts(&graph, &*encoder, &path, models.threads(), Progress::for_stderr())?;
    let (seconds, facts) = (begun.elapsed().as_secs_f64(), graph.stats().facts);
    let bytes = std::fs::metadata(&path)?.len();
    if args.json {
        let made = json!({
            "file": path.display().to_string(),
            "bytes": bytes,
            "facts": facts,
            "done_before": before,
            "encoder": encoder.name(),
            "dimensions": encoder.dimensions(),
            "seconds": seconds,
        });
        return print_json(out, &made);
    }
    let (path, name) = (path.display(), encoder.name());
    writeln!(out, "{path}: {facts} facts by {name}, {bytes} bytes, {seconds:.1} s")?;
    Ok(())
}
