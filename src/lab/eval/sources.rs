//! Measures several sources from the plan to the refined response, on KBP (UniMS-RAG, sections 6.3
//! to 7.3). The unified model plans which of persona and documents to ask, each source is searched,
//! the model judges the evidence and words the response from the best pieces, and self-refinement
//! words it anew.
//!
//! ```text
//! dialogue ─▶ plan ─▶ persona ─▶ documents behind its first sentence ─▶ relevance ─▶ response ─▶ consistency
//!                                                                           ▲                        │
//!                                                                           └──── other evidence ◀───┘
//! ```
//!
//! Any part can be replaced by the annotation of the reply (an oracle), or be left out (an
//! ablation) by [`Setting`]. The model answers each question once for all settings.

use std::collections::BTreeMap;

use serde::Serialize;
use turnstream_operators::judge::Judge;
use turnstream_ports::model::encoder::EncodeError;
use turnstream_schemas::SourceKind;

use super::bootstrap::{Conversations, Figure, Mean};
use super::consistency::piece;
use super::generation::bleu::BleuCounts;
use super::generation::rouge::rouge_l;
use super::generation::tokens::Tokenisation;
use super::retrieval::kbp;
use super::unified::MeasureError;

mod asked;
mod cases;
mod responding;
mod table;

pub use asked::Asked;
pub use cases::{Case, Known, read};
use responding::Responding;
pub use table::{SourceRow, rows};

/// The score from which evidence and a response agree.
const AGREES: f64 = 0.5;

/// The planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanBy {
    /// The unified model.
    Model,
    /// The annotation.
    Gold,
    /// Every source, always.
    Every,
    /// No source, ever.
    None,
}

/// The retriever of the planned sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindBy {
    /// A separately trained retriever.
    Fusion,
    /// The unified model's relevance (the paper's "using itself as retriever").
    Model,
    /// The annotation if it names evidence of the source, otherwise the fusion.
    Gold,
}

/// The setting of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The planner.
    pub plan: PlanBy,
    /// The retriever.
    pub retrieval: FindBy,
    /// Pieces of each source that the response is worded from, 1 or more; with the annotation as
    /// retriever, all its pieces.
    pub pieces: usize,
    /// Rounds of self-refinement.
    pub steps: u32,
    /// α: the most pieces that a round replaces.
    pub replaced: u32,
}

impl Default for Setting {
    fn default() -> Self {
        Self { plan: PlanBy::Model, retrieval: FindBy::Fusion, pieces: 1, steps: 0, replaced: 1 }
    }
}

/// Figures of responses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceFigures {
    /// Turns.
    pub n: usize,
    /// BLEU of characters, 0..=100.
    pub bleu_1: Figure,
    /// ROUGE-L of characters, 0..=1.
    pub rouge_l: Figure,
    /// P.C, 0..=1 (eq 9 and 11): the share of turns whose response agrees with the persona sentence
    /// that the reply used. If the reply used none, the turn counts if the plan did not ask the
    /// persona.
    pub persona_consistency: Figure,
    /// K.C, as P.C for documents (eq 10 and 11).
    pub knowledge_consistency: Figure,
    /// The mean confidence ([`Sample::confidence`]).
    pub confidence: Figure,
    /// Rounds of self-refinement in total.
    pub rounds: usize,
}

/// What is measured of a response, beside the data set's reply.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredResponse {
    bleu: BleuCounts,
    rouge_l: f64,
    persona: bool,
    knowledge: bool,
    confidence: f64,
    rounds: usize,
}

/// A response for reading.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// The user's utterance.
    pub user: String,
    /// The plan.
    pub plan: Vec<SourceKind>,
    /// The evidence that the response was worded from, with its relevance.
    pub evidence: Vec<(String, f64)>,
    /// The data set's reply.
    pub reply: String,
    /// The response.
    pub response: String,
    /// The lowest log-probability of one of its tokens (RAGate's confidence, as a logarithm).
    pub confidence: f64,
    /// The earlier drafts.
    pub drafts: Vec<String>,
}

/// Why the evaluation failed.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// The model failed.
    #[error(transparent)]
    Model(#[from] MeasureError),
    /// The consistency judge failed.
    #[error("the judge of consistency: {0}")]
    Judge(#[from] EncodeError),
}

/// Measures one setting on all cases.
///
/// # Errors
/// The model or the judge fails.
pub fn evaluate(
    cases: &[Case],
    setting: &Setting,
    asked: &mut Asked<'_>,
    judge: &Judge,
    done: impl FnMut(),
) -> Result<(SourceFigures, Vec<Sample>), SourcesError> {
    let (responses, samples) = respond(cases, setting, asked, judge, done)?;
    Ok((figures(cases, &responses), samples))
}

/// Responds to all cases in one setting, and compares each response with its reply.
///
/// # Errors
/// The model or the judge fails.
pub fn respond(
    cases: &[Case],
    setting: &Setting,
    asked: &mut Asked<'_>,
    judge: &Judge,
    mut done: impl FnMut(),
) -> Result<(Vec<MeasuredResponse>, Vec<Sample>), SourcesError> {
    let mut samples = Vec::with_capacity(cases.len());
    let mut responses = Vec::with_capacity(cases.len());
    for case in cases {
        let sample = Responding::respond(case, setting, asked, judge)?;
        responses.push(compared(case, &sample, judge)?);
        samples.push(sample);
        done();
    }
    Ok((responses, samples))
}

/// Compares a response with the reply and the evidence that the reply used.
fn compared(case: &Case, sample: &Sample, judge: &Judge) -> Result<MeasuredResponse, EncodeError> {
    let bleu = |text: &str| Tokenisation::Chinese.bleu(text);
    let rouge = |text: &str| Tokenisation::Chinese.rouge(text);
    let sentences = case.gold_personas.iter().map(|at| &*case.known.persona[*at]);
    let documents = case.gold_documents.iter().map(|at| &*case.known.documents[*at].1);
    let asks = |kind| sample.plan.contains(&kind);
    Ok(MeasuredResponse {
        bleu: BleuCounts::of(&bleu(&sample.response), &bleu(&case.reply)),
        rouge_l: rouge_l(&rouge(&sample.response), &rouge(&case.reply)),
        persona: agrees(sentences, asks(SourceKind::BotPersona), &sample.response, judge)?,
        knowledge: agrees(documents, asks(SourceKind::Documents), &sample.response, judge)?,
        confidence: sample.confidence,
        rounds: sample.drafts.len(),
    })
}

/// Computes the figures of responses, one for each case.
pub fn figures(cases: &[Case], responses: &[MeasuredResponse]) -> SourceFigures {
    let conversations = Conversations::new(cases.iter().map(|case| case.conversation));
    let mean = |of: &dyn Fn(&MeasuredResponse) -> f64| -> Figure {
        let parts: Vec<_> = responses.iter().map(|one| Some(Mean::from(of(one)))).collect();
        conversations.figure(&parts, Mean::value).into()
    };
    let bleu: Vec<_> = responses.iter().map(|one| Some(one.bleu)).collect();
    SourceFigures {
        n: cases.len(),
        bleu_1: conversations.figure(&bleu, |counts| Some(counts.bleu(1))).into(),
        rouge_l: mean(&|one| one.rouge_l),
        persona_consistency: mean(&|one| f64::from(u8::from(one.persona))),
        knowledge_consistency: mean(&|one| f64::from(u8::from(one.knowledge))),
        confidence: mean(&|one| one.confidence),
        rounds: responses.iter().map(|one| one.rounds).sum(),
    }
}

/// Whether a response agrees with the evidence of one source that the reply used (eq 11); if the
/// reply used none, whether the source was not asked.
fn agrees<'t>(
    gold: impl Iterator<Item = &'t str>,
    is_asked: bool,
    response: &str,
    judge: &Judge,
) -> Result<bool, EncodeError> {
    let gold: Vec<_> = gold.map(piece).collect();
    Ok(match (gold.is_empty(), is_asked) {
        (true, is_asked) => !is_asked,
        (false, false) => false,
        (false, true) => {
            let scores = judge.judge(response, &gold.iter().collect::<Vec<_>>())?;
            scores.into_iter().any(|score| score >= AGREES)
        }
    })
}

/// Returns recall@1 of the model as retriever with a known plan (the paper's table 4): all
/// sentences, and all knowledge of the dialogue, ranked by the model's relevance.
///
/// # Errors
/// The model fails.
pub fn recall(
    cases: &[Case],
    asked: &mut Asked<'_>,
    mut done: impl FnMut(),
) -> Result<kbp::RecallFigures, MeasureError> {
    // By whether documents were used: the replies, those with the right first sentence, and those
    // with the right first document.
    let mut right: BTreeMap<bool, [usize; 3]> = BTreeMap::new();
    for case in cases {
        let plan = case.gold_plan();
        done();
        if plan.is_empty() {
            continue;
        }
        let all = (0..case.known.persona.len()).collect();
        let personas =
            asked.by_relevance(&case.dialogue, &plan, all, |place| case.sentence(place))?;
        let both = !case.gold_documents.is_empty();
        let counts = right.entry(both).or_default();
        counts[0] += 1;
        let is_right = |found: Option<&usize>, gold: &[usize]| {
            usize::from(found.is_some_and(|found| gold.contains(found)))
        };
        counts[1] += is_right(personas.first(), &case.gold_personas);
        if both {
            let all = (0..case.known.documents.len()).collect();
            let documents =
                asked.by_relevance(&case.dialogue, &plan, all, |place| case.document(place))?;
            counts[2] += is_right(documents.first(), &case.gold_documents);
        }
    }
    let of = |both: bool| right.get(&both).copied().unwrap_or_default();
    let share = |[n, persona, documents]: [usize; 3]| {
        [persona, documents].map(|right| right as f64 / n.max(1) as f64)
    };
    let ([persona, _], [both_persona, both_documents]) = (share(of(false)), share(of(true)));
    Ok(kbp::RecallFigures {
        n: of(false)[0] + of(true)[0],
        persona,
        both_persona,
        both_documents: Some(both_documents),
    })
}

#[cfg(test)]
pub(super) mod tests;
