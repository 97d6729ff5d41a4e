//! `turnstream eval persona`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::json;

use super::{load_config, print_json, refused, share};
use crate::eval::persona::rank_test::NonTriviality;
use crate::eval::persona::{PersonaCase, PersonaFigures, Scoring, Share, evaluate, focus, kbp};
use crate::eval::retrieval::EvalError;

pub(super) const EXAMPLES: &str = "\
Examples:
  turnstream eval persona --format kbp --data dev.jsonl.gz
  turnstream eval persona --format focus --data valid_focus.json
  turnstream eval persona --format kbp --data dev.jsonl.gz --encoder static --word-share 0.5 --json

docs/personas.md says how the figures are defined.";

/// `eval persona`
#[derive(Clone, Debug, clap::Args)]
pub struct EvalPersonaArgs {
    /// The data set
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: PersonaDataSet,
    /// The measured split, plain or gzip: JSON lines of KBP, the one JSON object of FoCus
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The encoder of questions and knowledge: a model by its name, its folder, or the file of a
    /// static table; words alone count if not given
    #[arg(long, value_name = "ENCODER")]
    encoder: Option<String>,
    /// The share of words beside vectors, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.5)]
    word_share: f64,
    /// The score from which a sentence is accepted, 0 to 1
    #[arg(long, value_name = "SCORE", default_value_t = 0.5)]
    threshold: f64,
    /// The configuration, of which [models] is read; the defaults if not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// A data set with gold personas and knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PersonaDataSet {
    /// Knowledge Behind Persona: personas and what is known behind them.
    Kbp,
    /// FoCus: talk about landmarks with a persona of five sentences.
    Focus,
}

impl PersonaDataSet {
    /// Reads the cases of a split.
    pub(crate) fn cases(self, path: &Path) -> Result<Vec<PersonaCase>, EvalError> {
        match self {
            Self::Kbp => kbp::read(path),
            Self::Focus => focus::read(path),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kbp => "kbp",
            Self::Focus => "focus",
        }
    }
}

pub(super) fn execute(args: &EvalPersonaArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    for (flag, value) in [("--word-share", args.word_share), ("--threshold", args.threshold)] {
        share(flag, value)?;
    }
    let models = load_config(args.config.as_deref())?.value.models;
    let encoder = args.encoder.as_ref().map(|name| models.named(name)).transpose()?;
    let encoder = encoder.as_ref().map(|(_, encoder)| &**encoder);
    let cases = args.format.cases(&args.data).map_err(refused)?;
    let scoring = Scoring { encoder, word_share: args.word_share, threshold: args.threshold };
    let figures = evaluate(&cases, &scoring)?;
    if args.json {
        let word_share = encoder.map(|_| args.word_share);
        let mut record = json!({ "format": args.format.name(), "encoder": encoder.map(|encoder| encoder.name()),
                                 "word_share": word_share, "threshold": args.threshold });
        if let (Some(record), serde_json::Value::Object(more)) =
            (record.as_object_mut(), serde_json::to_value(&figures)?)
        {
            record.extend(more);
        }
        return Ok(print_json(out, &record)?);
    }
    print(&figures, out)
}

fn print(figures: &PersonaFigures, out: &mut dyn Write) -> anyhow::Result<()> {
    let PersonaFigures { n, knowledge, persona, accepted, null_positive } = figures;
    writeln!(out, "{n} replies that used knowledge")?;
    for (what, share) in [
        ("knowledge, asked by the dialogue", knowledge.dialogue),
        ("knowledge, asked by the persona", knowledge.persona),
        ("knowledge, asked by both", knowledge.both),
        ("persona, given the knowledge, asked by the persona", persona.persona),
        ("persona, given the knowledge, asked by both", persona.both),
        ("the same and accepted", *accepted),
    ] {
        let Share { value, interval } = share;
        write!(out, "{value:.3}")?;
        if let Some([low, high]) = interval {
            write!(out, " [{low:.3}, {high:.3}]")?;
        }
        writeln!(out, "  {what}")?;
    }
    let NonTriviality { t, t_positive, t_negative, t_squared, t_weighted, ranks } = null_positive;
    writeln!(
        out,
        "null-positive rank test: -T {t:.3}, -T+ {t_positive:.3}, -T- {t_negative:.3}, \
         -T2 {t_squared:.3}, -T weighted {t_weighted:.3}"
    )?;
    for (rank, count) in ranks {
        writeln!(out, "  rank {rank:>2}: {count}")?;
    }
    Ok(())
}
