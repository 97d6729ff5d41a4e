//! `turnstream train integration`: trains the weights of attention on questions with gold evidence,
//! and measures them by cross-validation over conversations.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;
use turnstream_console::load_config;
use turnstream_console::progress::Progress;
use turnstream_formats::Format;
use turnstream_knowledge::write_whole;
use turnstream_models::attention::{AttentionCard, FORMAT_VERSION, to_bytes};
use turnstream_operators::attention::Attention;
use turnstream_ports::model::encoder::Encoder;

use super::{Exit, Usage, print_json};
use crate::attention_training::{Example, Trained, Training, train};
use crate::commands::eval::history::{attending, read, similarity};
use crate::eval::history::attending::{Attending, examples};
use crate::eval::history::evidence::{self, Measure, Outcomes};
use crate::eval::history::held::{Eviction, Method};
use crate::eval::history::material::Conversation;
use crate::eval::history::{Capacity, Difference, difference};

pub(super) const EXAMPLES: &str = "\
Examples:
  turnstream train integration --format locomo --data conversations.jsonl.gz --json
  turnstream train integration --format turns --data log.jsonl --out weights.safetensors

Each conversation is scored with weights that were trained on the others, and the weights that are
written have seen all of them. Name the file under [integration] weights, with form = \"learned\".";

/// `train integration`
#[derive(Clone, Debug, clap::Args)]
pub struct IntegrationArgs {
    /// The data set: locomo, or turns of our own with gold evidence
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    format: Format,
    /// Its file, plain or gzip
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// File to write: weights of attention in the safetensors format; none if not given
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Licences of the data, for the card
    #[arg(long, value_name = "NAME")]
    licence: Vec<String>,
    /// Numbers of recalled utterances, separated by commas; an entry of two utterances counts as
    /// two
    #[arg(long, value_name = "K", value_delimiter = ',', default_values_t = [5, 10, 25])]
    k: Vec<usize>,
    /// Steps of training
    #[arg(long, value_name = "N", default_value_t = Training::default().steps)]
    steps: usize,
    /// The learning rate
    #[arg(long, value_name = "RATE", default_value_t = Training::default().rate)]
    rate: f64,
    /// How strongly the weights decay towards the identity
    #[arg(long, value_name = "DECAY", default_value_t = Training::default().decay)]
    decay: f64,
    /// The configuration, of which [history], [integration] and [models] are read; the defaults if
    /// not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
}

/// The result printed with `--json`.
#[derive(Debug, Serialize)]
struct IntegrationTraining {
    format: &'static str,
    conversations: usize,
    n: usize,
    /// Questions used for training.
    questions_trained_on: usize,
    /// The mean loss before and after training, for the weights trained on everything.
    loss: [f64; 2],
    /// Recall by K: as recalled, by attention with the identity, and by attention trained on the
    /// other conversations.
    recall: BTreeMap<usize, Orders>,
}

#[derive(Debug, Serialize)]
struct Orders {
    recalled: f64,
    identity: f64,
    trained: f64,
    /// The trained order against the recalled order, paired.
    trained_over_recalled: Option<Difference>,
    /// The trained order against the identity's order, paired.
    trained_over_identity: Option<Difference>,
}

pub(super) fn execute(args: &IntegrationArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if args.k.contains(&0) {
        return Err(Usage::new("--k contains 0", "write numbers from 1").into());
    }
    if args.format == Format::Topiocqa {
        let what = "topiocqa has topics, but no gold evidence";
        return Err(Usage::new(what, "name locomo or turns with --format").into());
    }
    let config = load_config(args.config.as_deref())?.value;
    let identity = attending(&config, config.integration.identity())?;
    let encoder = identity.encoder.clone();
    let Some(encoder) = encoder else {
        let what = "models.embedder is \"none\", but the matrix needs vectors";
        return Err(Usage::new(what, "name an encoder").into());
    };
    let training = Training {
        temperature: config.integration.temperature,
        meaning_share: config.integration.meaning_share,
        steps: args.steps,
        rate: args.rate,
        decay: args.decay,
    };
    let recalled = Measure {
        similarity: similarity(&config.models)?,
        reconstruct: false,
        attending: None,
        config: config.history,
        k: args.k.clone(),
        capacity: Capacity::All,
        eviction: Eviction::None,
        method: Method::default(),
        seed: 1,
    };
    let conversations = read(args.format, &args.data, (0, None))?;
    if conversations.len() < 2 {
        let what = "there is only one conversation, so none is left to train on";
        return Err(Usage::new(what, "give a file with several").into());
    }
    let lessons = lessons(&recalled, &identity, &conversations);
    // One training without each conversation, and one on all.
    let steps = training.steps * (conversations.len() + 1);
    let progress = Progress::of(steps, "steps");
    let fit = |lessons: &[Example]| -> anyhow::Result<Trained> {
        train(lessons, encoder.dimensions(), &training, &|| progress.advance())
            .context("cannot train the weights of attention")
    };
    let mut by_trained = Outcomes::default();
    for (held_out, conversation) in conversations.iter().enumerate() {
        let others = lessons.iter().enumerate().filter(|(at, _)| *at != held_out);
        let others: Vec<Example> = others.flat_map(|(_, of)| of.iter().cloned()).collect();
        let trained = fit(&others)?.attention();
        let measure = weighed_by(&recalled, &identity, trained);
        by_trained.append(evidence::ask(&measure, std::slice::from_ref(conversation), &|| ()));
    }
    let all = fit(&lessons.concat())?;
    progress.finish();
    let by_identity = weighed_by(&recalled, &identity, identity.attention.clone());
    let by_identity = evidence::ask(&by_identity, &conversations, &|| ());
    let as_recalled = evidence::ask(&recalled, &conversations, &|| ());
    let printed = IntegrationTraining {
        format: args.format.name(),
        conversations: conversations.len(),
        n: as_recalled.questions.len(),
        questions_trained_on: all.questions,
        loss: all.loss,
        recall: compared(&args.k, &as_recalled, &by_identity, &by_trained),
    };
    if let Some(path) = &args.out {
        let bytes = to_bytes(&card(args, &*encoder, &all), &all.matrix)?;
        write_whole(path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    say(&printed, args, out)?;
    Ok(Exit::Success)
}

/// Makes the training examples of each conversation.
fn lessons(
    recalled: &Measure,
    identity: &Attending,
    conversations: &[Conversation],
) -> Vec<Vec<Example>> {
    let progress = Progress::start("questions");
    let of = |conversation| examples(recalled, identity, conversation, &|| progress.advance());
    let lessons = conversations.iter().map(of).collect();
    progress.finish();
    lessons
}

fn weighed_by(recalled: &Measure, identity: &Attending, attention: Attention) -> Measure {
    let attending = Some(Attending { attention, ..identity.clone() });
    Measure { attending, ..recalled.clone() }
}

fn compared(
    k: &[usize],
    recalled: &Outcomes,
    identity: &Outcomes,
    trained: &Outcomes,
) -> BTreeMap<usize, Orders> {
    let drawn = recalled.drawn();
    let mean = |figures: &[f64]| figures.iter().sum::<f64>() / figures.len().max(1) as f64;
    let at = |(at, k): (usize, &usize)| {
        let [recalled, identity, trained] =
            [recalled, identity, trained].map(|outcomes| outcomes.figures_of(Some(at)));
        let orders = Orders {
            recalled: mean(&recalled),
            identity: mean(&identity),
            trained: mean(&trained),
            trained_over_recalled: difference(&trained, &recalled, &drawn),
            trained_over_identity: difference(&trained, &identity, &drawn),
        };
        (*k, orders)
    };
    k.iter().enumerate().map(at).collect()
}

fn card(args: &IntegrationArgs, encoder: &dyn Encoder, trained: &Trained) -> AttentionCard {
    let name = args.data.file_name().unwrap_or_default().to_string_lossy();
    AttentionCard {
        format_version: FORMAT_VERSION,
        encoder: encoder.name().to_owned(),
        fingerprint: format!("{:016x}", encoder.fingerprint()),
        words: trained.words,
        words_alone: trained.words_alone,
        trained_on: vec![name.into_owned()],
        questions: trained.questions,
        licences: args.licence.clone(),
    }
}

fn say(
    printed: &IntegrationTraining,
    args: &IntegrationArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if args.json {
        return Ok(print_json(out, printed)?);
    }
    let IntegrationTraining {
        conversations, n, questions_trained_on, loss: [before, after], ..
    } = printed;
    writeln!(out, "{n} questions of {conversations} conversations, each by weights of the others")?;
    writeln!(
        out,
        "trained on {questions_trained_on} questions in all: loss {before:.3} before, {after:.3} after"
    )?;
    for (k, orders) in &printed.recall {
        let Orders { recalled, identity, trained, .. } = orders;
        write!(
            out,
            "recall@{k:<3} recalled {recalled:.3}  identity {identity:.3}  trained {trained:.3}"
        )?;
        match &orders.trained_over_recalled {
            Some(Difference { by, interval: [low, high] }) => {
                writeln!(out, "  {by:+.3} [{low:+.3}, {high:+.3}] over recalled")?;
            }
            None => writeln!(out)?,
        }
    }
    if let Some(path) = &args.out {
        writeln!(out, "written to {}", path.display())?;
    }
    Ok(())
}
