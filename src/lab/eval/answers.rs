//! Scores the answers to a company's customers: the shares of right, wrong and openly none, which
//! [`turnstream_sources::gold`] judges, with their intervals over conversations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use turnstream_schemas::{Action, Evidence, Response};
use turnstream_sources::gold::{AnswerVerdict, GoldError, GoldFile, GoldKind, GoldTurn, place};

use super::bootstrap::{Conversations, Mean};

/// A response with its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct JudgedAnswer {
    /// The turn.
    pub turn_id: String,
    /// Its kind.
    pub kind: GoldKind,
    /// The verdict.
    pub verdict: AnswerVerdict,
    /// The response's action.
    pub action: Action,
    /// Its words.
    pub text: String,
    /// The share of such answers that were right on development data, if a reader judged it.
    pub precision: Option<f64>,
    /// The places that should have answered.
    pub gold: Vec<String>,
    /// The three most relevant pieces of evidence, each with its place.
    pub found: Vec<String>,
    /// Whether it asks back, and names a place that answers.
    pub names_gold: bool,
    #[serde(skip)]
    conversation: String,
}

/// A share with its 95 % interval over conversations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AnswerShare {
    /// The share, 0..=1; absent where nothing counts.
    pub share: Option<f64>,
    /// The interval; absent with fewer than two conversations.
    pub interval: Option<[f64; 2]>,
}

/// The figures of a company.
#[derive(Clone, Debug, Serialize)]
pub struct AnswerFigures {
    /// Turns that were judged.
    pub n: usize,
    /// Right ones among answers.
    pub precision: AnswerShare,
    /// Right answers among turns that have an answer.
    pub recall: AnswerShare,
    /// Answers among turns that have none.
    pub false_answers: AnswerShare,
    /// Hand-overs among turns that need a person.
    pub hand_off_recall: AnswerShare,
    /// Hand-overs among all others.
    pub false_hand_offs: AnswerShare,
    /// Social responses among small talk.
    pub small_talk: AnswerShare,
    /// Questions back that name a place that answers, among all questions back.
    pub asked_rightly: AnswerShare,
    /// By kind: right, wrong and abstained.
    pub by_kind: BTreeMap<GoldKind, [usize; 3]>,
    /// By kind: right ones among its turns.
    pub right_by_kind: BTreeMap<GoldKind, AnswerShare>,
    /// The figures at other values of `decision.min_precision`, each by a replay of its own, if there were any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<CurvePoint>,
}

/// The figures at a threshold.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CurvePoint {
    /// `decision.min_precision`.
    pub min_precision: f64,
    /// Right ones among answers.
    pub precision: AnswerShare,
    /// Right answers among turns that have one.
    pub recall: AnswerShare,
    /// Answers among turns that have none.
    pub false_answers: AnswerShare,
}

impl CurvePoint {
    /// Takes the figures of a replay with this `decision.min_precision`.
    pub fn new(min_precision: f64, figures: &AnswerFigures) -> Self {
        let AnswerFigures { precision, recall, false_answers, .. } = *figures;
        Self { min_precision, precision, recall, false_answers }
    }
}

/// Why answers cannot be scored.
#[derive(Debug, thiserror::Error)]
pub enum ScoringError {
    /// The gold file cannot be read.
    #[error(transparent)]
    Gold(#[from] GoldError),
    /// The responses cannot be read.
    #[error("cannot read {path}: {source}; check the path and its permissions", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line is not a response.
    #[error("{path}:{line}: {reason}; a line is a response, as `turnstream replay --out` writes it", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The problem.
        reason: String,
    },
    /// No response answers a turn of the gold file.
    #[error("no response of {data} is for a turn of {gold}; replay the company's own turns", data = data.display(), gold = gold.display())]
    NothingInCommon {
        /// The responses.
        data: PathBuf,
        /// The gold.
        gold: PathBuf,
    },
}

/// Judges the responses of a replay by a gold file. Responses to other turns are ignored.
///
/// # Errors
/// A file cannot be read or has an invalid line, or the files have no turn in common.
pub fn judged(data: &Path, gold: &Path) -> Result<Vec<JudgedAnswer>, ScoringError> {
    let expected = GoldFile::read(gold)?;
    let responses = responses(data)?;
    let judged = responses.iter().filter_map(|it| Some(judge(it, expected.turn(it)?)));
    let judged: Vec<JudgedAnswer> = judged.collect();
    if judged.is_empty() {
        return Err(ScoringError::NothingInCommon { data: data.to_owned(), gold: gold.to_owned() });
    }
    Ok(judged)
}

/// Reads the responses of a replay; skips empty lines.
fn responses(path: &Path) -> Result<Vec<Response>, ScoringError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ScoringError::Read { path: path.to_owned(), source })?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = |(at, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| ScoringError::Line {
            path: path.to_owned(),
            line: at + 1,
            reason: error.to_string(),
        })
    };
    lines.map(read).collect()
}

fn judge(response: &Response, turn: &GoldTurn) -> JudgedAnswer {
    let mut found: Vec<_> = response.evidence.iter().filter(|it| place(it).is_some()).collect();
    found.sort_by(|a, b| b.relevance.get().total_cmp(&a.relevance.get()));
    let shown = |it: &&Evidence| {
        let text: String = it.text.chars().take(200).collect();
        format!("{}: {text}", place(it).unwrap_or_default())
    };
    JudgedAnswer {
        turn_id: response.turn_id.0.clone(),
        kind: turn.kind,
        verdict: turn.judge(response),
        names_gold: turn.is_asked_about(response),
        action: response.action.unwrap_or(Action::Answer),
        text: response.text.clone(),
        precision: response.answer_precision.map(|it| it.get()),
        gold: turn.places.clone(),
        found: found.iter().take(3).map(shown).collect(),
        conversation: response.conversation_id.0.clone(),
    }
}

/// Returns the figures of judged answers, without a curve.
pub fn figures(judged: &[JudgedAnswer]) -> AnswerFigures {
    let conversations = Conversations::new(judged.iter().map(|it| &it.conversation));
    let share = |of: &dyn Fn(&JudgedAnswer) -> Option<bool>| {
        let part = |it: &JudgedAnswer| of(it).map(|is| Mean::from(f64::from(u8::from(is))));
        let parts: Vec<Option<Mean>> = judged.iter().map(part).collect();
        let (share, interval) = conversations.figure(&parts, Mean::value);
        AnswerShare { share, interval }
    };
    let answers = |it: &JudgedAnswer| it.action == Action::Answer;
    let is_right = |it: &JudgedAnswer| answers(it) && it.verdict == AnswerVerdict::Right;
    let mut by_kind = BTreeMap::<GoldKind, [usize; 3]>::new();
    for it in judged {
        by_kind.entry(it.kind).or_default()[it.verdict as usize] += 1;
    }
    let right_of =
        |kind: GoldKind| share(&|it| (it.kind == kind).then(|| it.verdict == AnswerVerdict::Right));
    let right_by_kind = by_kind.keys().map(|kind| (*kind, right_of(*kind))).collect();
    let hands_over = |it: &JudgedAnswer| it.action == Action::HandOff;
    AnswerFigures {
        n: judged.len(),
        precision: share(&|it| answers(it).then(|| is_right(it))),
        recall: share(&|it| it.kind.is_answerable().then(|| is_right(it))),
        false_answers: share(&|it| it.kind.has_no_answer().then(|| answers(it))),
        hand_off_recall: share(&|it| it.kind.needs_a_person().then(|| hands_over(it))),
        false_hand_offs: share(&|it| (!it.kind.needs_a_person()).then(|| hands_over(it))),
        small_talk: right_of(GoldKind::SmallTalk),
        asked_rightly: share(&|it| (it.action == Action::Ask).then_some(it.names_gold)),
        by_kind,
        right_by_kind,
        curve: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
