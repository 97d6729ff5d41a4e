//! `turnstream eval history`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;
use turnstream_console::progress::Progress;
use turnstream_console::{InputRefused, Usage, load_config, print_json};
use turnstream_engine::config::Config;
use turnstream_engine::dependencies::trained::trained;
use turnstream_formats::Format;
use turnstream_models::ModelsConfig;
use turnstream_models::attention::{self, AttentionError};
use turnstream_operators::attention::Attention;
use turnstream_operators::history::similarity::Similarity;
use turnstream_ports::model::encoder::Encoder;

use crate::eval::history::attending::Attending;
use crate::eval::history::evidence::{self, Measure};
use crate::eval::history::held::{Eviction, Method};
use crate::eval::history::material::{self, Conversation};
use crate::eval::history::{Capacity, HistoryEvalError, topics};

pub(super) const EXAMPLES: &str = "\
Formats: locomo and turns ask for gold evidence, topiocqa for turns of the same topic. Everything is
kept unless --capacity says how many utterances. docs/history.md defines every figure.

Examples:
  turnstream eval history --format locomo --data conversations.jsonl.gz --recall bm25 --json
  turnstream eval history --format locomo --data conversations.jsonl.gz --capacity 25%
  turnstream eval history --format locomo --data c.jsonl --capacity 128 --eviction random --seed 2
  turnstream eval history --format topiocqa --data train.jsonl.gz --skip 300 --take 500 --json
  turnstream eval history --format turns --data log.jsonl --k 2,4";

/// `eval history`
#[derive(Clone, Debug, clap::Args)]
pub struct EvalHistoryArgs {
    /// The data set: locomo, topiocqa or turns
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    format: Format,
    /// Its file, plain or gzip
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Numbers of recalled utterances, separated by commas; an entry of two utterances counts as
    /// two
    #[arg(long, value_name = "K", value_delimiter = ',', default_values_t = [5, 10, 25])]
    k: Vec<usize>,
    /// The most utterances held, or their share of each conversation's, such as 25%; everything if
    /// not given
    #[arg(long, value_name = "N")]
    capacity: Option<CapacityArg>,
    /// The rule of eviction
    #[arg(long, value_enum, value_name = "EVICTION", default_value_t)]
    eviction: Eviction,
    /// The method that ranks the held entries
    #[arg(long, value_enum, value_name = "METHOD", default_value_t)]
    recall: Method,
    /// Complete questions from earlier utterances, as the engine reconstructs queries
    #[arg(long)]
    complete: bool,
    /// The encoder by which the engine compares texts beside their words: a model by its name, its
    /// folder, the file of a static table, or none; as configured if not given
    #[arg(long, value_name = "ENCODER")]
    encoder: Option<String>,
    /// Reorder the first recalled entries by attention, as integration weighs them: `identity`, or
    /// a file of trained weights
    #[arg(long, value_name = "WEIGHTS")]
    attention: Option<PathBuf>,
    /// The seed of random eviction
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Conversations to skip at the beginning of the file
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: usize,
    /// Conversations to measure; all that follow if not given
    #[arg(long, value_name = "N")]
    take: Option<usize>,
    /// The configuration, of which [history] and [models] are read; the defaults if not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// `--capacity`
#[derive(Clone, Copy, Debug, PartialEq)]
struct CapacityArg(Capacity);

impl FromStr for CapacityArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WANTED: &str =
            "expected a number of utterances, at least 2, or a share from 0% to 100%";
        let capacity = match text.strip_suffix('%') {
            Some(percent) => {
                let percent: f64 = percent.parse().map_err(|_| WANTED)?;
                Some(Capacity::Share(percent / 100.0)).filter(|_| (0.0..=100.0).contains(&percent))
            }
            None => {
                let held = text.parse().map_err(|_| WANTED)?;
                Some(Capacity::Utterances(held)).filter(|_| held >= 2)
            }
        };
        capacity.map(CapacityArg).ok_or(WANTED)
    }
}

/// The result printed with `--json`.
#[derive(Debug, Serialize)]
struct HistoryResult<M> {
    format: &'static str,
    conversations: usize,
    /// The most utterances held; `null` for all, and if the capacity is a share.
    capacity: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity_share: Option<f64>,
    eviction: &'static str,
    recall_method: &'static str,
    /// Whether questions were completed before the search.
    completed: bool,
    #[serde(flatten)]
    measured: M,
}

pub(super) fn execute(args: &EvalHistoryArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let capacity = args.capacity.map_or(Capacity::All, |held| held.0);
    let measure = measure(args, capacity)?;
    let conversations = read(args.format, &args.data, (args.skip, args.take))?;
    let progress = Progress::start("questions");
    let (share, utterances) = match capacity {
        Capacity::All => (None, None),
        Capacity::Utterances(held) => (None, Some(held)),
        Capacity::Share(share) => (Some(share), None),
    };
    let count = conversations.len();
    let printed = HistoryResult {
        format: args.format.name(),
        conversations: count,
        capacity: utterances,
        capacity_share: share,
        eviction: measure.eviction.name(),
        recall_method: args.recall.name(),
        completed: measure.reconstruct,
        measured: (),
    };
    if args.format == Format::Topiocqa {
        let outcomes = topics::ask(&measure, &conversations, &|| progress.advance());
        progress.finish();
        let measured = topics::measured(&outcomes);
        return match args.json {
            true => Ok(print_json(out, &printed.with(measured))?),
            false => say_topics(&measured, count, out),
        };
    }
    let outcomes = evidence::ask(&measure, &conversations, &|| progress.advance());
    progress.finish();
    if outcomes.questions.is_empty() {
        let what = format!("{} has no question whose evidence is a turn", args.data.display());
        return Err(InputRefused::new(what, "docs/history.md says what a question is").into());
    }
    let measured = outcomes.measured(&measure.k, args.format == Format::Locomo);
    match args.json {
        true => Ok(print_json(out, &printed.with(measured))?),
        false => say_evidence(&measured, count, out),
    }
}

impl HistoryResult<()> {
    fn with<M>(self, measured: M) -> HistoryResult<M> {
        let Self { format, conversations, capacity, capacity_share, .. } = self;
        let Self { eviction, recall_method, completed, .. } = self;
        HistoryResult {
            format,
            conversations,
            capacity,
            capacity_share,
            eviction,
            recall_method,
            completed,
            measured,
        }
    }
}

fn measure(args: &EvalHistoryArgs, capacity: Capacity) -> anyhow::Result<Measure> {
    let mut k = args.k.clone();
    k.sort_unstable();
    k.dedup();
    if k.first().is_none_or(|first| *first == 0) {
        return Err(Usage::new("--k has no number above 0", "write numbers from 1").into());
    }
    let eviction = if capacity == Capacity::All { Eviction::None } else { args.eviction };
    let mut config = load_config(args.config.as_deref())?.value;
    if let Some(encoder) = &args.encoder {
        config.models.embedder = encoder.clone().into();
    }
    Ok(Measure {
        similarity: similarity(&config.models)?,
        reconstruct: args.complete,
        attending: args.attention.as_deref().map(|by| weighing(by, &config)).transpose()?,
        config: config.history,
        k,
        capacity,
        eviction,
        method: args.recall,
        seed: args.seed,
    })
}

/// Reads the weights of `--attention`.
fn weighing(by: &Path, config: &Config) -> anyhow::Result<Attending> {
    if by == Path::new("identity") {
        return attending(config, config.integration.identity());
    }
    let unused =
        |error: AttentionError| Usage::new(error.to_string(), "or write --attention identity");
    let (card, matrix) = attention::read(by).map_err(unused)?;
    let attending = attending(config, trained(&card, matrix))?;
    let encoder = attending.encoder.as_ref();
    card.check(by, encoder.map(|it| (it.name().to_owned(), it.fingerprint())).as_ref())
        .map_err(unused)?;
    Ok(attending)
}

/// Returns an order by attention, with the configured encoder.
pub(crate) fn attending(config: &Config, attention: Attention) -> anyhow::Result<Attending> {
    let encoder =
        turnstream_models::encoder(&config.models)?.map(|encoder| encoder as Arc<dyn Encoder>);
    Ok(Attending { attention, encoder })
}

/// Returns the engine's similarity of texts. It calls even a slow encoder synchronously.
pub(crate) fn similarity(models: &ModelsConfig) -> anyhow::Result<Similarity> {
    let encoder = turnstream_models::encoder(models)?;
    Ok(encoder.map_or_else(Similarity::by_words, |encoder| {
        Similarity::by_meaning(encoder as Arc<dyn Encoder>)
    }))
}

/// Reads the conversations to measure.
pub(crate) fn read(
    format: Format,
    data: &Path,
    (skip, take): (usize, Option<usize>),
) -> anyhow::Result<Vec<Conversation>> {
    let conversations = material::read(format, data).map_err(refused)?;
    let chosen: Vec<_> =
        conversations.into_iter().skip(skip).take(take.unwrap_or(usize::MAX)).collect();
    if chosen.is_empty() {
        let what = format!("{} has no more than {skip} conversations", data.display());
        return Err(InputRefused::new(what, "skip fewer with --skip").into());
    }
    Ok(chosen)
}

/// Distinguishes errors of the command line, of the input and others.
pub(crate) fn refused(error: HistoryEvalError) -> anyhow::Error {
    match error {
        HistoryEvalError::Format { .. } => {
            Usage::new(error.to_string(), "name one of them with --format").into()
        }
        HistoryEvalError::Write { .. } => error.into(),
        error => InputRefused::new(error.to_string(), "see --help for the formats").into(),
    }
}

fn say_evidence(
    measured: &evidence::Measured,
    conversations: usize,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let all = &measured.figures;
    writeln!(
        out,
        "{} questions of {conversations} conversations; {} skipped, {} evidence ids name no turn",
        all.n, measured.questions_skipped, measured.malformed_evidence
    )?;
    writeln!(out, "evidence still held {:.3}", all.survival)?;
    for (k, recall) in &all.recall {
        let interval = measured.intervals.recall.get(k);
        let interval =
            interval.map_or(String::new(), |[low, high]| format!("  [{low:.3}, {high:.3}]"));
        writeln!(out, "recall@{k:<3} {recall:.3}{interval}  all found {:.3}", all.full[k])?;
    }
    let kinds = measured.by_category.iter().map(|(kind, it)| (format!("category {kind}"), it));
    for (kind, of) in kinds.chain(measured.answerable.iter().map(|it| ("answerable".into(), it))) {
        write!(out, "{kind}: {} questions, held {:.3}, recall", of.n, of.survival)?;
        for (k, recall) in &of.recall {
            write!(out, "  @{k} {recall:.3}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn say_topics(
    measured: &topics::MeasuredTopics,
    conversations: usize,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    writeln!(out, "{} turns of {conversations} conversations", measured.n)?;
    let groups = [
        ("all", &measured.topic_precision),
        ("topic came up before", &measured.on_seen),
        ("return to a topic", &measured.on_return),
    ];
    for (name, of) in groups {
        write!(out, "{name}: {} turns, same topic", of.n)?;
        for (depth, share) in &of.precision {
            write!(out, "  @{depth} {share:.3}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}
