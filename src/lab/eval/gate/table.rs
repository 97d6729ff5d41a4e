//! Makes the table of all gates on the development split of every data set, with intervals.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use turnstream_formats::Format;

use super::gates::{Constant, Lexical, Random};
use super::intervals::{FigureDifference, differences};
use super::{GateError, MeasuredGate, ScoresTurns, conversations, measured, scored, scores, tfidf};
use crate::labelled::{self, Positive};

/// One data set's splits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splits {
    /// The data set.
    pub format: Format,
    /// The split that the baseline is trained on.
    pub train: PathBuf,
    /// The split that all gates are scored on.
    pub development: PathBuf,
}

/// Returns the expected splits in a folder of data sets; data sets are named by their folders.
pub fn splits(folder: &Path) -> [Splits; 4] {
    let split = |format, set: &str, train: &str, development: &str| {
        let file = |name: &str| folder.join(set).join(format!("{name}.jsonl.gz"));
        Splits { format, train: file(train), development: file(development) }
    };
    [
        split(Format::Dstc11, "dstc11-track5", "train", "dev"),
        split(Format::Sgd, "sgd", "train", "dev"),
        split(Format::TopicalChat, "topical-chat", "valid_freq", "valid_rare"),
        split(Format::Kbp, "kbp", "train", "dev"),
    ]
}

/// A trained gate for the table of one data set.
pub struct Extra {
    /// The data set.
    pub format: Format,
    /// The class of the gate's threshold; `None` for all classes of the data set.
    pub positive: Option<Positive>,
    /// The gate.
    pub gate: Box<dyn ScoresTurns>,
}

/// All gates on one class of one data set's labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Section {
    /// The data set.
    pub format: &'static str,
    /// The split's file, without its folder.
    pub split: String,
    /// The class.
    pub positive: &'static str,
    /// One row per gate.
    pub rows: Vec<GateRow>,
}

/// The row of a gate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateRow {
    /// The gate's figures.
    #[serde(flatten)]
    pub measured: MeasuredGate,
    /// The differences over the baseline on the same turns.
    pub over_tfidf: BTreeMap<&'static str, FigureDifference>,
}

/// Receives the name of each step, and a call per unit of progress.
pub type GateProgress<'t> = (&'t dyn Fn(&str), &'t dyn Fn());

/// Measures all gates on one data set. `step` receives the name of each step, and `progress` is
/// called as it advances.
///
/// # Errors
/// A split cannot be read, or a gate fails.
pub fn sections(
    splits: &Splits,
    lexical: &Lexical,
    extras: &[Extra],
    (step, progress): GateProgress<'_>,
) -> Result<Vec<Section>, GateError> {
    let (format, classes) = (splits.format, Positive::of(splits.format));
    step(&format!("{format}: TF-IDF learns from {}", splits.train.display()));
    let training = labelled::read(format, &splits.train)?;
    let needed = training.iter().filter(|turn| !Positive::Null.is_positive(turn.need)).count();
    let rate = needed as f64 / training.len() as f64;
    let baseline = tfidf::train(&training, classes, tfidf::LEAST_TEXTS, &splits.train, progress)?;
    drop(training);
    step(&format!("{format}: gates score {}", splits.development.display()));
    let turns = labelled::read(format, &splits.development)?;
    let drawn = conversations(&turns);
    let of_lexical = scores(lexical, &turns, progress)?;
    let mut sections = Vec::new();
    for positive in classes.iter().copied() {
        let tfidf = baseline.gate(positive);
        let random = Random { rate, seed: 1 };
        let mine = |extra: &&Extra| {
            extra.format == format && extra.positive.is_none_or(|class| class == positive)
        };
        let extras = extras.iter().filter(mine).map(|extra| &*extra.gate);
        let after = [&Constant::Always, &Constant::Never, &random as &dyn ScoresTurns];
        let gates = [lexical as &dyn ScoresTurns, &tfidf].into_iter().chain(extras).chain(after);
        let beside = scored(&turns, &scores(&tfidf, &turns, &|| {})?, tfidf.threshold(), positive);
        let mut rows = Vec::new();
        for (at, gate) in gates.enumerate() {
            let need = if at == 0 { of_lexical.clone() } else { scores(gate, &turns, progress)? };
            let scored = scored(&turns, &need, gate.threshold(), positive);
            let measured = measured(gate, &turns, &scored, (positive, gate.threshold()));
            rows.push(GateRow { measured, over_tfidf: differences(&scored, &beside, &drawn) });
        }
        let split = splits.development.file_name().unwrap_or_default().to_string_lossy();
        sections.push(Section {
            format: format.name(),
            split: split.into_owned(),
            positive: positive.name(),
            rows,
        });
    }
    Ok(sections)
}

/// Formats the sections as Markdown.
pub fn markdown(sections: &[Section]) -> String {
    let mut page = String::new();
    for Section { format, split, positive, rows } in sections {
        let Some(GateRow { measured: MeasuredGate { n, positives, conversations, .. }, .. }) =
            rows.first()
        else {
            continue;
        };
        let rate = 100.0 * *positives as f64 / *n as f64;
        // Writing to a string cannot fail.
        let _ = write!(
            page,
            "\n## {format}, class {positive}\n\n{n} turns of {conversations} conversations in \
             `{split}`, {positives} of the class ({rate:.1} %).\n\n\
             | gate | precision | recall | F1 | AUC | FDR | F1 over TF-IDF | AUC over TF-IDF |\n\
             |---|---|---|---|---|---|---|---|\n"
        );
        for GateRow { measured, over_tfidf } in rows {
            let future = if measured.causal { "" } else { " (reads the reply: not causal)" };
            let _ = write!(page, "| {}{future} |", in_cell(&measured.model));
            for (name, value) in measured.figures.named() {
                let _ = write!(page, " {} |", figure(value, measured.intervals.get(name)));
            }
            for name in ["f1", "auc"] {
                let over = over_tfidf.get(name).filter(|_| measured.model != "tfidf");
                let shown = over.map_or_else(
                    || "–".to_owned(),
                    |FigureDifference { by, interval: [low, high] }| {
                        format!("{by:+.3} [{low:+.3}, {high:+.3}]")
                    },
                );
                let _ = write!(page, " {shown} |");
            }
            page.push('\n');
        }
    }
    page
}

fn figure(value: Option<f64>, interval: Option<&[f64; 2]>) -> String {
    match (value, interval) {
        (None, _) => "–".to_owned(),
        (Some(value), None) => format!("{value:.3}"),
        (Some(value), Some([low, high])) => format!("{value:.3} [{low:.3}, {high:.3}]"),
    }
}

/// Escapes a name for a table cell: names of models come from files.
fn in_cell(name: &str) -> String {
    name.replace('|', "\\|").replace('<', "&lt;").replace(['\n', '\r'], " ")
}
