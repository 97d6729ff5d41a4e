//! `turnstream eval`: measures the engine's parts on public data sets.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::json;
use turnstream_console::progress::Progress;
use turnstream_console::{InputRefused, Usage, load_config, print_json};
use turnstream_models::batch::Backend;
use turnstream_models::unified::{UnifiedModel, UnifiedWeights};
use turnstream_operators::document_retrieval::{DocumentRetrievalConfig, SearchWithin};
use turnstream_operators::fusion::SearchForm;
use turnstream_ports::model::reader::READER;

use crate::eval::sources as several;

mod answers;
pub(super) mod consistency;
mod curves;
mod gate;
mod gates;
mod generation;
mod histories;
pub(super) mod history;
pub(super) mod persona;
mod planning;
mod ranking;
mod sources;
mod unified;

use crate::eval::bootstrap::Figure;
use crate::eval::retrieval::{EvalError, Ranked, dstc, kbp};

/// `turnstream eval`
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream eval retrieval --format kbp --data dev.jsonl.gz
  turnstream eval generation --data responses.jsonl --references log.jsonl
  turnstream eval gate --format dstc11 --data dev.jsonl.gz
  turnstream eval history --format locomo --data conversations.jsonl.gz")]
pub struct EvalArgs {
    /// The measurement.
    #[command(subcommand)]
    pub command: EvalCommand,
}

impl EvalArgs {
    /// Whether the last line on standard output is a JSON object.
    pub fn json(&self) -> bool {
        match &self.command {
            EvalCommand::Retrieval(args) => args.json,
            EvalCommand::Ranking(args) => args.json,
            EvalCommand::Generation(args) => args.json,
            EvalCommand::Answers(args) => args.json,
            EvalCommand::Gate(args) => args.json,
            EvalCommand::Gates(args) => args.json,
            EvalCommand::History(args) => args.json,
            EvalCommand::Histories(args) => args.json,
            EvalCommand::Persona(args) => args.json,
            EvalCommand::Curves(args) => args.json,
            EvalCommand::Consistency(args) => args.json,
            EvalCommand::Planning(args) => args.json,
            EvalCommand::Sources(args) => args.json,
            EvalCommand::Unified(args) => args.json,
        }
    }
}

/// The measurements.
#[derive(Clone, Debug, Subcommand)]
pub enum EvalCommand {
    /// Measure whether retrieval finds a data set's gold evidence
    #[command(after_help = RETRIEVAL_EXAMPLES)]
    Retrieval(RetrievalArgs),
    /// Measure how much of one encoder's ranking of facts another keeps
    #[command(after_help = ranking::EXAMPLES)]
    Ranking(ranking::RankingArgs),
    /// Measure the responses of a replay
    #[command(after_help = generation::EXAMPLES)]
    Generation(generation::GenerationArgs),
    /// Score the answers to a company's customers: right, wrong or abstained
    #[command(after_help = answers::EXAMPLES)]
    Answers(answers::AnswersArgs),
    /// Measure whether the gate finds the turns that need knowledge
    #[command(after_help = gate::EXAMPLES)]
    Gate(gate::EvalGateArgs),
    /// Make the table of all gates on all data sets
    #[command(after_help = gates::EXAMPLES)]
    Gates(gates::GatesArgs),
    /// Measure whether history recalls the turns that answer a question
    #[command(after_help = history::EXAMPLES)]
    History(history::EvalHistoryArgs),
    /// Make the table of all ways to keep and recall a history
    #[command(after_help = histories::EXAMPLES)]
    Histories(histories::HistoriesArgs),
    /// Measure how a method's figures move with its settings, and draw them
    #[command(after_help = curves::EXAMPLES)]
    Curves(curves::CurvesArgs),
    /// Measure whether persona and knowledge are found together, and how hard they are to tell
    /// apart
    #[command(after_help = persona::EXAMPLES)]
    Persona(persona::EvalPersonaArgs),
    /// Measure whether a judge tells the evidence of a response from other evidence
    #[command(after_help = consistency::EXAMPLES)]
    Consistency(consistency::EvalConsistencyArgs),
    /// Measure whether a planner names the sources that replies used
    #[command(after_help = planning::EXAMPLES)]
    Planning(planning::PlanningArgs),
    /// Measure responses that are planned, retrieved, worded and refined from several sources
    #[command(after_help = sources::EXAMPLES)]
    Sources(sources::SourcesArgs),
    /// Measure whether the unified model plans, judges and words as a data set does
    #[command(after_help = unified::EXAMPLES)]
    Unified(unified::UnifiedArgs),
}

const RETRIEVAL_EXAMPLES: &str = "\
Examples:
  turnstream eval retrieval --format dstc11 --data dev.jsonl.gz --knowledge knowledge.json.gz
  turnstream eval retrieval --format dstc11 --data dev.jsonl --knowledge k.json --within all --json
  turnstream eval retrieval --format dstc11 --data dev.jsonl --knowledge k.json --retriever dense
  turnstream eval retrieval --format kbp --data dev.jsonl.gz --json
  turnstream eval retrieval --format kbp --data dev.jsonl.gz --retriever fusion --train train.jsonl
  turnstream eval retrieval --format kbp --data dev.jsonl.gz --retriever stage --encoder static
  turnstream eval retrieval --format kbp --data dev.jsonl.gz --retriever unified --model m.gguf

docs/documents.md and docs/personas.md say how the figures are defined. What is learned from --train
is used for this measurement alone and is not kept.";

/// `eval retrieval`
#[derive(Clone, Debug, clap::Args)]
pub struct RetrievalArgs {
    /// The data set
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: DataSet,
    /// The measured split: JSON lines, plain or gzip
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The snippets to search, for dstc11
    #[arg(long, value_name = "FILE", required_if_eq("format", "dstc11"))]
    knowledge: Option<PathBuf>,
    /// The retriever
    #[arg(long, value_enum, value_name = "RETRIEVER", default_value_t)]
    retriever: Retriever,
    /// Which snippets are searched, for dstc11
    #[arg(long, value_enum, value_name = "WHERE", default_value_t)]
    within: Within,
    /// The split from which the fusion learns its weights, for kbp
    #[arg(long, value_name = "FILE")]
    train: Option<PathBuf>,
    /// How the stage searches, for --retriever stage; as configured if not given
    #[arg(long, value_enum, value_name = "FORM")]
    form: Option<Form>,
    /// The share of words in the fusion, 0 to 1, for dstc11 and the stage; as configured if not
    /// given
    #[arg(long, value_name = "SHARE")]
    word_share: Option<f64>,
    /// The encoder of texts and utterances, for dense, fusion and the stage: a model by its name,
    /// its folder, or the file of a static table
    #[arg(long, value_name = "ENCODER", default_value = READER)]
    encoder: String,
    /// The configuration, of which [models] is read and, for the stage, [persona_retrieval] and
    /// [embedding]; the defaults if not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The unified model that judges relevance, for --retriever unified: "shipped", a GGUF file, or a
    /// folder with model.safetensors
    #[arg(long, value_name = "PATH")]
    model: Option<UnifiedWeights>,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// A data set with gold evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DataSet {
    /// DSTC11 track 5: reviews and answered questions.
    Dstc11,
    /// Knowledge Behind Persona: personas and what is known behind them.
    Kbp,
}

/// A method that finds evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Retriever {
    /// Words.
    #[default]
    Bm25,
    /// Vectors of the encoder, for dstc11.
    Dense,
    /// Words and vectors together; for kbp those of the whole dialogue, by learned weights.
    Fusion,
    /// The flow's own stage, persona_retrieval, for kbp.
    Stage,
    /// The unified model by the relevance that it gives, for kbp.
    Unified,
}

/// How the stage searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// By words.
    Bm25,
    /// By meaning.
    Dense,
    /// By both.
    Fusion,
}

impl From<Form> for SearchForm {
    fn from(form: Form) -> Self {
        match form {
            Form::Bm25 => Self::Bm25,
            Form::Dense => Self::Dense,
            Form::Fusion => Self::Fusion,
        }
    }
}

impl Retriever {
    fn name(self) -> &'static str {
        match self {
            Self::Bm25 => "bm25",
            Self::Dense => "dense",
            Self::Fusion => "fusion",
            Self::Stage => "stage",
            Self::Unified => "unified",
        }
    }
}

/// Which snippets are searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Within {
    /// Those of the entities that the dialogue names last, if it names any.
    #[default]
    Entities,
    /// All.
    All,
}

/// Runs a command, and writes its results to `out`.
///
/// # Errors
/// A file cannot be read or has another format, or a flag is missing.
pub fn execute(args: &EvalArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.command {
        EvalCommand::Retrieval(args) => retrieval(args, out),
        EvalCommand::Ranking(args) => ranking::execute(args, out),
        EvalCommand::Generation(args) => generation::execute(args, out),
        EvalCommand::Answers(args) => answers::execute(args, out),
        EvalCommand::Gate(args) => gate::execute(args, out),
        EvalCommand::Gates(args) => gates::execute(args, out),
        EvalCommand::History(args) => history::execute(args, out),
        EvalCommand::Histories(args) => histories::execute(args, out),
        EvalCommand::Persona(args) => persona::execute(args, out),
        EvalCommand::Curves(args) => curves::execute(args, out),
        EvalCommand::Consistency(args) => consistency::execute(args, out),
        EvalCommand::Planning(args) => planning::execute(args, out),
        EvalCommand::Sources(args) => sources::execute(args, out),
        EvalCommand::Unified(args) => unified::execute(args, out),
    }
}

fn retrieval(args: &RetrievalArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    match args.format {
        DataSet::Dstc11 => dstc11(args, out),
        DataSet::Kbp => knowledge_behind_persona(args, out),
    }
}

/// Refuses a share outside 0..=1 that a flag gives.
fn share(flag: &str, share: f64) -> Result<f64, Usage> {
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err(Usage::new(format!("{flag} is {share}"), "write 0 to 1"))
    }
}

fn dstc11(args: &RetrievalArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(knowledge) = &args.knowledge else {
        return Err(Usage::new("--format dstc11 needs --knowledge", "name knowledge.json").into());
    };
    let defaults = DocumentRetrievalConfig::default();
    let word_share = share("--word-share", args.word_share.unwrap_or(defaults.word_share))?;
    let config = DocumentRetrievalConfig {
        form: match args.retriever {
            Retriever::Bm25 => SearchForm::Bm25,
            Retriever::Dense => SearchForm::Dense,
            Retriever::Fusion => SearchForm::Fusion,
            Retriever::Stage | Retriever::Unified => {
                let remedy = "write bm25, dense or fusion";
                let which = args.retriever.name();
                return Err(Usage::new(format!("--retriever {which} is for kbp"), remedy).into());
            }
        },
        within: match args.within {
            Within::Entities => SearchWithin::Named,
            Within::All => SearchWithin::All,
        },
        word_share,
        ..defaults
    };
    let models = load_config(args.config.as_deref())?.value.models;
    let needed = args.retriever != Retriever::Bm25;
    let encoder = needed.then(|| models.named(&args.encoder)).transpose()?;
    let encoder = encoder.as_ref().map(|(_, encoder)| &**encoder);
    let ranked = dstc::evaluate(&args.data, knowledge, &config, encoder).map_err(refused)?;
    let Ranked { n, recall, hit, mrr } = ranked;
    if args.json {
        let within = if args.within == Within::All { "all" } else { "entities" };
        print_json(
            out,
            &json!({ "format": "dstc11", "n": n, "retriever": args.retriever.name(),
                     "encoder": encoder.map(|encoder| encoder.name()),
                     "within": within, "recall": recall, "hit": hit, "mrr": mrr }),
        )?;
        return Ok(());
    }
    writeln!(out, "{n} turns that need knowledge")?;
    writeln!(out, "recall@1 {:.3}  @5 {:.3}  @10 {:.3}", recall.one, recall.five, recall.ten)?;
    writeln!(out, "hit@1    {:.3}  @5 {:.3}  @10 {:.3}", hit.one, hit.five, hit.ten)?;
    writeln!(out, "mrr      {mrr:.3}")?;
    Ok(())
}

fn knowledge_behind_persona(args: &RetrievalArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    match args.retriever {
        Retriever::Stage => persona_stage(args, out),
        Retriever::Unified => by_unified_model(args, out),
        Retriever::Fusion => learned_fusion(args, out),
        Retriever::Bm25 => {
            let figures = kbp::evaluate(&args.data, kbp::KbpRetriever::Bm25).map_err(refused)?;
            tell(args, &figures, json!({}), out)
        }
        Retriever::Dense => {
            let remedy = "write bm25 or fusion";
            Err(Usage::new("--retriever dense is for dstc11", remedy).into())
        }
    }
}

/// Evaluates the fusion that learns its weights from a training split.
fn learned_fusion(args: &RetrievalArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(train) = &args.train else {
        let remedy = "name the training split; the learned weights are not kept";
        return Err(Usage::new("--retriever fusion needs --train for kbp", remedy).into());
    };
    let models = load_config(args.config.as_deref())?.value.models;
    let (_, encoder) = models.named(&args.encoder)?;
    let encoder = Some((&*encoder, models.threads()));
    let retriever = kbp::KbpRetriever::Fusion { train, encoder };
    let figures = kbp::evaluate(&args.data, retriever).map_err(refused)?;
    tell(args, &figures, json!({ "encoder": args.encoder }), out)
}

/// Evaluates the flow's own stage on the same data.
fn persona_stage(args: &RetrievalArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.config.as_deref())?.value;
    let mut stage = config.persona_retrieval;
    stage.form = args.form.map_or(stage.form, SearchForm::from);
    stage.word_share = share("--word-share", args.word_share.unwrap_or(stage.word_share))?;
    let needed = stage.form != SearchForm::Bm25;
    let encoder = needed.then(|| config.models.named(&args.encoder)).transpose()?;
    let encoder = encoder.as_ref().map(|(_, encoder)| &**encoder);
    let retriever = kbp::Stage { config: &stage, embedding: &config.embedding, encoder };
    let figures =
        kbp::evaluate(&args.data, kbp::KbpRetriever::Stage(retriever)).map_err(refused)?;
    let more = json!({ "form": stage.form, "encoder": encoder.map(|encoder| encoder.name()) });
    tell(args, &figures, more, out)
}

/// Evaluates the unified model's relevance on the same data.
fn by_unified_model(args: &RetrievalArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(weights) = &args.model else {
        let remedy = "name the GGUF file, or a folder with model.safetensors";
        return Err(Usage::new("--retriever unified needs --model", remedy).into());
    };
    let model = UnifiedModel::open(weights)?;
    let cases = several::read(&args.data, None, None, 0).map_err(refused)?;
    let mut ask = |requests: &[_]| model.run(requests).map(|(answers, _)| answers);
    let progress = Progress::of(cases.len(), "replies");
    let figures =
        several::recall(&cases, &mut several::Asked::new(&mut ask), || progress.advance())?;
    progress.finish();
    tell(args, &figures, json!({ "model": model.name() }), out)
}

/// Prints figures on KBP with further results.
fn tell(
    args: &RetrievalArgs,
    figures: &kbp::RecallFigures,
    more: serde_json::Value,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let kbp::RecallFigures { n, persona, both_persona, both_documents } = figures;
    if args.json {
        let mut record = json!({ "format": "kbp", "n": n, "retriever": args.retriever.name(),
                                 "persona": persona, "both_persona": both_persona,
                                 "both_documents": both_documents });
        if let (Some(record), serde_json::Value::Object(more)) = (record.as_object_mut(), more) {
            record.extend(more);
        }
        print_json(out, &record)?;
        return Ok(());
    }
    writeln!(out, "{n} replies that used something; recall@1:")?;
    write!(out, "persona {persona:.3}, both: persona {both_persona:.3}")?;
    match both_documents {
        Some(documents) => writeln!(out, ", documents {documents:.3}")?,
        None => writeln!(out)?,
    }
    Ok(())
}

/// Distinguishes errors of the input from others.
pub(super) fn refused(error: EvalError) -> anyhow::Error {
    match error {
        EvalError::Read { .. } | EvalError::Record { .. } | EvalError::Nothing { .. } => {
            InputRefused::new(error.to_string(), "see --help for the formats").into()
        }
        error => error.into(),
    }
}

fn number(figure: &Figure, times: f64) -> String {
    figure.value.map_or_else(|| "–".to_owned(), |value| format!("{:.1}", value * times))
}

/// Writes responses to a file for reading, one a line.
fn write_samples(path: &Path, samples: &[impl Serialize]) -> anyhow::Result<()> {
    let write = || -> anyhow::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for sample in samples {
            serde_json::to_writer(&mut file, sample)?;
            file.write_all(b"\n")?;
        }
        Ok(file.flush()?)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
