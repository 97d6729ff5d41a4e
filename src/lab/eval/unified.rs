//! The unified model on labelled dialogues (UniMS-RAG): does it plan to ask where the data set does, tell
//! evidence that fits from evidence that does not, and word the right evidence as the data set's reply does,
//! with all its values?
//!
//! Each question is put to the model as the flow puts it: the dialogue as it was said so far, one piece of
//! evidence at a time for its relevance, and for a response the evidence that the reply rests on.

use std::collections::BTreeMap;

use serde::Serialize;
use turnstream_ports::model::unified::{
    EvidenceText, Exchange, Task, UnifiedAnswer, UnifiedRequest,
};
use turnstream_schemas::{Column, Score, SourceKind, TableRow};

use super::bootstrap::Conversations;
use super::consistency::Relation;
use super::gate::figures::{Figures as Decisions, Scored};
use super::gate::intervals::{Intervals, intervals};

pub mod dstc;
pub mod sgd;
pub mod templates;
mod wordings;

use templates::Templates;
use wordings::Wordings;

/// Tokens that a response has at most.
const MAX_TOKENS: u32 = 96;

/// A user's turn and what the data set makes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The conversation that it is in.
    pub conversation: usize,
    /// What was said so far; the last has no response yet.
    pub dialogue: Vec<Exchange>,
    /// The kind of source that the data set is about.
    pub kind: SourceKind,
    /// Whether the reply rests on it.
    pub asks: bool,
    /// Evidence that fits the turn, and evidence that does not.
    pub judged: Vec<Judged>,
    /// The reply, where it rests on evidence that is known.
    pub reply: Option<Reply>,
}

/// A piece of evidence and what the reply has to do with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The piece.
    pub piece: EvidenceText,
    /// Whether the reply rests on it, or could have, or it is from elsewhere.
    pub relation: Relation,
}

/// A reply and what it rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Its words.
    pub text: String,
    /// The evidence.
    pub evidence: Vec<EvidenceText>,
    /// What it has to say, where that is known: the actions of a frame.
    pub frame: Option<Frame>,
}

/// What a reply has to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The service, without its number.
    pub service: String,
    /// Each action with its slot, in words, and the slot's value; no value for an action alone.
    pub actions: Vec<(String, Column)>,
}

impl Frame {
    /// Its slots and values as a row.
    fn row(&self) -> TableRow {
        let columns = self.actions.iter().map(|(_, column)| column);
        let columns = columns.filter(|column| !column.value.is_empty()).cloned().collect();
        TableRow { place: 1, columns, by_words: Score::new(1.0) }
    }

    /// The values that a reply has to have: all but truths, which are worded.
    fn required(&self) -> impl Iterator<Item = &str> {
        let values = self.actions.iter().map(|(_, column)| column.value.as_str());
        values.filter(|value| !value.is_empty() && !matches!(*value, "yes" | "no"))
    }
}

/// What asks the model: the answers in the order of the questions.
pub type Ask<'a> = dyn FnMut(&[UnifiedRequest]) -> Result<Vec<UnifiedAnswer>, String> + 'a;

/// Why the model cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// It fails, or answers something else.
    #[error("the model does not answer: {0}")]
    Model(String),
}

/// Decisions against labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    /// Decisions.
    pub n: usize,
    /// Those whose label is yes.
    pub positives: usize,
    /// The figures, at the threshold of one half.
    #[serde(flatten)]
    pub figures: Decisions,
    /// Their 95 % intervals.
    pub intervals: Intervals,
}

/// A figure and its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// `None` where nothing counts.
    pub value: Option<f64>,
    /// `None` of one conversation.
    pub interval: Option<[f64; 2]>,
}

impl From<(Option<f64>, Option<[f64; 2]>)> for Figure {
    fn from((value, interval): (Option<f64>, Option<[f64; 2]>)) -> Self {
        Self { value, interval }
    }
}

/// How responses of one making are worded, beside the replies.
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
    /// Of the values that have to be said, the share that is.
    pub values: Figure,
    /// Of the responses, the share with all their values.
    pub whole: Figure,
    /// Of the responses, the share with a number that is neither in the evidence nor was said.
    pub foreign_numbers: Figure,
    /// How many were made how.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by: BTreeMap<&'static str, usize>,
    /// What was wrong with the model's most probable draft, and how often.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<&'static str, usize>,
}

/// The figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Does the model plan to ask where the reply rests on the source? Its score is the probability of asking.
    pub plan: Told,
    /// Does it tell evidence that fits? `None` where none is judged.
    pub relevance: Option<Told>,
    /// The same, against evidence that could have fitted alone: another row of the same answer, another snippet of
    /// the same place.
    pub relevance_same: Option<Told>,
    /// The same, against evidence from elsewhere alone.
    pub relevance_other: Option<Told>,
    /// The responses, by who made them.
    pub responses: BTreeMap<&'static str, Worded>,
}

/// A response for reading: what was said by whom.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// The user's words.
    pub user: String,
    /// The evidence.
    pub evidence: Vec<String>,
    /// The data set's reply.
    pub reply: String,
    /// The model's most probable draft.
    pub model: String,
    /// What is wrong with it, as far as it is checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The response that was checked, or what stands for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<String>,
    /// Who made that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'static str>,
    /// The response that was guarded too, or what stands for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarded: Option<String>,
}

/// How the model is measured.
#[derive(Clone, Copy, Debug)]
pub struct Measure<'a> {
    /// How often a response is worded, 1 or more.
    pub drafts: u32,
    /// What stands for a response that is not right, where there are any.
    pub templates: Option<&'a Templates>,
}

/// Measures a model on cases.
///
/// # Errors
/// The model fails.
pub fn evaluate(
    cases: &[Case],
    ask: &mut Ask<'_>,
    measure: Measure<'_>,
    mut done: impl FnMut(),
) -> Result<(Figures, Vec<Sample>), MeasureError> {
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
    let figures = Figures { plan, relevance, relevance_same, relevance_other, responses };
    Ok((figures, wordings.samples))
}

fn other(what: &str) -> MeasureError {
    MeasureError::Model(format!("{what} came back"))
}

/// Everything that is asked about a case: the plan, the relevance of each piece, the response from its
/// evidence and from none.
fn requests(case: &Case, drafts: u32) -> Vec<UnifiedRequest> {
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

/// Scores beside labels, as they come.
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
