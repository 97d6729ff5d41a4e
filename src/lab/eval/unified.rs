//! Measures the unified model on labelled dialogues (UniMS-RAG): whether it plans like the data
//! set, distinguishes fitting evidence from other evidence, and words the right evidence like the
//! data set's reply, with all its values.
//!
//! The model receives each question in the flow's form: the dialogue so far; for relevance, one
//! piece of evidence at a time; for a response, the evidence that the reply rests on.

use std::collections::BTreeMap;

use serde::Serialize;
use turnstream_ports::model::unified::{
    EvidenceText, Exchange, Task, UnifiedAnswer, UnifiedRequest,
};
use turnstream_schemas::{Column, Score, SourceKind, TableRow};

use super::bootstrap::{Conversations, Figure};
use super::consistency::Relation;
use super::gate::figures::{ClassFigures, Scored};
use super::gate::intervals::{FigureIntervals, intervals};

pub mod dstc;
pub mod sgd;
pub mod templates;
mod wordings;

use templates::Templates;
use wordings::Wordings;

/// The most tokens of a response.
const MAX_TOKENS: u32 = 96;

/// A user's turn with the labels of the data set.
#[derive(Clone, Debug, PartialEq)]
pub struct UnifiedCase {
    /// The number of its conversation.
    pub conversation: usize,
    /// The dialogue so far; the last exchange has no response yet.
    pub dialogue: Vec<Exchange>,
    /// The kind of the data set's source.
    pub kind: SourceKind,
    /// Whether the reply rests on the source.
    pub asks: bool,
    /// Fitting evidence and other evidence.
    pub judged: Vec<JudgedEvidence>,
    /// The reply, if it rests on known evidence.
    pub reply: Option<Reply>,
}

/// A piece of evidence with its relation to the reply.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedEvidence {
    /// The piece.
    pub piece: EvidenceText,
    /// Whether the reply rests on the piece, could rest on it, or the piece is from elsewhere.
    pub relation: Relation,
}

/// A reply with its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The reply's text.
    pub text: String,
    /// The evidence.
    pub evidence: Vec<EvidenceText>,
    /// The required content, if known: the actions of a frame.
    pub frame: Option<Frame>,
}

/// The required content of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The service, without its number.
    pub service: String,
    /// Each action with its slot, in words, and the slot's value; the value is empty for an action
    /// alone.
    pub actions: Vec<(String, Column)>,
}

impl Frame {
    /// Returns the slots and values as a row.
    fn row(&self) -> TableRow {
        let columns = self.actions.iter().map(|(_, column)| column);
        let columns = columns.filter(|column| !column.value.is_empty()).cloned().collect();
        TableRow {
            place: 1,
            columns,
            by_words: Score::new(1.0),
            by_meaning: None,
            asked: None,
            cells: None,
        }
    }

    /// Returns the values that a reply must contain: all except truth values, which are worded.
    fn required(&self) -> impl Iterator<Item = &str> {
        let values = self.actions.iter().map(|(_, column)| column.value.as_str());
        values.filter(|value| !value.is_empty() && !matches!(*value, "yes" | "no"))
    }
}

/// Asks the model; the answers are in the order of the questions.
pub type Ask<'a> = dyn FnMut(&[UnifiedRequest]) -> Result<Vec<UnifiedAnswer>, String> + 'a;

/// Why the model cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The model fails, or its answer has the wrong kind.
    #[error("the model does not answer: {0}")]
    Model(String),
}

/// Binary decisions compared with labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    /// Decisions.
    pub n: usize,
    /// Decisions whose label is yes.
    pub positives: usize,
    /// The figures at the threshold of one half.
    #[serde(flatten)]
    pub figures: ClassFigures,
    /// 95 % intervals of the figures.
    pub intervals: FigureIntervals,
}

/// Figures of the responses of one producer, against the replies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worded {
    /// Responses.
    pub n: usize,
    /// BLEU of words, 0..=100.
    pub bleu_1: Figure,
    /// BLEU with n-grams of up to four words, 0..=100.
    pub bleu_4: Figure,
    /// ROUGE-L, 0..=1.
    pub rouge_l: Figure,
    /// The share of required values that the responses contain.
    pub values: Figure,
    /// The share of responses with all their values.
    pub whole: Figure,
    /// The share of responses with a number that occurs neither in the evidence nor in the
    /// dialogue.
    pub foreign_numbers: Figure,
    /// The number of responses by how they were made.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by: BTreeMap<&'static str, usize>,
    /// Faults of the model's most probable drafts, with their counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<&'static str, usize>,
}

/// The figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnifiedFigures {
    /// Whether the model plans to ask the source if the reply rests on it. The score is the
    /// probability of asking.
    pub plan: Told,
    /// Whether the model recognises fitting evidence; `None` without judged evidence.
    pub relevance: Option<Told>,
    /// As `relevance`, but only against evidence that could have fitted: another row of the same
    /// answer, another snippet of the same place.
    pub relevance_same: Option<Told>,
    /// As `relevance`, but only against evidence from elsewhere.
    pub relevance_other: Option<Told>,
    /// Responses by producer.
    pub responses: BTreeMap<&'static str, Worded>,
}

/// A response for reading.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnifiedSample {
    /// The user's utterance.
    pub user: String,
    /// The evidence.
    pub evidence: Vec<String>,
    /// The data set's reply.
    pub reply: String,
    /// The model's most probable draft.
    pub model: String,
    /// The fault that the check found in the draft, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The checked response, or its replacement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<String>,
    /// The producer of the checked response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'static str>,
    /// The checked and guarded response, or its replacement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarded: Option<String>,
}

/// The setting of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct UnifiedMeasure<'a> {
    /// Drafts per response, 1 or more.
    pub drafts: u32,
    /// Replacements of refused responses, if there are any.
    pub templates: Option<&'a Templates>,
}

/// Measures a model on cases.
///
/// # Errors
/// The model fails.
pub fn evaluate(
    cases: &[UnifiedCase],
    ask: &mut Ask<'_>,
    measure: UnifiedMeasure<'_>,
    mut done: impl FnMut(),
) -> Result<(UnifiedFigures, Vec<UnifiedSample>), MeasureError> {
    let mut plans = Labelled::default();
    let mut fits: [Labelled; 3] = std::array::from_fn(|_| Labelled::default());
    let mut wordings = Wordings::default();
    for case in cases {
        let requests = requests(case, measure.drafts);
        let mut answers = ask(&requests).map_err(MeasureError::Model)?.into_iter();
        let mut next = || answers.next().ok_or_else(|| other("nothing"));
        match next()? {
            UnifiedAnswer::Plan { kinds, probability } => {
                let asking = if kinds.is_empty() { 1.0 - probability } else { probability };
                plans.add(case.conversation, case.asks, f64::from(asking));
            }
            _ => return Err(other("no plan")),
        }
        for judged in &case.judged {
            match next()? {
                UnifiedAnswer::Relevance(relevance) => {
                    let relation = judged.relation;
                    let counts = [true, relation != Relation::Other, relation != Relation::Same];
                    for (fits, _) in fits.iter_mut().zip(counts).filter(|(_, counts)| *counts) {
                        let is_gold = relation == Relation::Gold;
                        fits.add(case.conversation, is_gold, f64::from(relevance));
                    }
                }
                _ => return Err(other("no relevance")),
            }
        }
        if let Some(reply) = &case.reply {
            match (next()?, next()?) {
                (UnifiedAnswer::Response(drafts), UnifiedAnswer::Response(without)) => {
                    wordings.add(case, reply, &drafts, &without, measure.templates);
                }
                _ => return Err(other("no response")),
            }
        }
        done();
    }
    let [relevance, relevance_same, relevance_other] =
        fits.map(|fits| (!fits.of.is_empty()).then(|| fits.told()));
    let (plan, responses) = (plans.told(), wordings.figures());
    let figures = UnifiedFigures { plan, relevance, relevance_same, relevance_other, responses };
    Ok((figures, wordings.samples))
}

fn other(what: &str) -> MeasureError {
    MeasureError::Model(format!("{what} came back"))
}

/// Returns all questions about a case: the plan, the relevance of each piece, and the response from
/// its evidence and from none.
fn requests(case: &UnifiedCase, drafts: u32) -> Vec<UnifiedRequest> {
    let kinds = vec![case.kind];
    let mut tasks = vec![Task::Plan { kinds: kinds.clone() }];
    tasks.extend(
        case.judged
            .iter()
            .map(|judged| Task::Relevance { plan: kinds.clone(), evidence: judged.piece.clone() }),
    );
    if let Some(reply) = &case.reply {
        let evidence = reply.evidence.iter().map(|piece| (piece.clone(), 10)).collect();
        let max_tokens = MAX_TOKENS;
        tasks.push(Task::Response { plan: kinds, evidence, max_tokens, drafts });
        let (plan, evidence) = (Vec::new(), Vec::new());
        tasks.push(Task::Response { plan, evidence, max_tokens, drafts: 1 });
    }
    let request = |task| UnifiedRequest { dialogue: case.dialogue.clone(), task };
    tasks.into_iter().map(request).collect()
}

/// Scores with their labels, in order.
#[derive(Default)]
pub(super) struct Labelled {
    of: Vec<usize>,
    scored: Scored,
}

impl Labelled {
    pub(super) fn add(&mut self, conversation: usize, positive: bool, score: f64) {
        self.of.push(conversation);
        self.scored.positive.push(positive);
        self.scored.predicted.push(score >= 0.5);
        self.scored.scores.push(score);
    }

    pub(super) fn told(&self) -> Told {
        let positives = self.scored.positive.iter().filter(|positive| **positive).count();
        let conversations = Conversations::new(&self.of);
        let (figures, n) = (self.scored.figures(), self.of.len());
        Told { n, positives, figures, intervals: intervals(&self.scored, &conversations) }
    }
}

#[cfg(test)]
mod tests;
