//! Scores the answers to a company's customers against gold: right, wrong, or openly not answered.
//!
//! A turn that the pages or the table answer is *right* if the response answers, says all that it
//! must and nothing that it must not, and was made from a gold place; *wrong* if it answers
//! otherwise; *abstained* if it does not answer. A turn without an answer is right unless the
//! response answers. Small talk must get a social response, and a turn that needs a person must be
//! handed over.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use fancy_regex::Regex;
use serde::{Deserialize, Serialize};
use turnstream_schemas::{Action, Response};
use turnstream_sources::phrasings::slug;

use super::bootstrap::{Conversations, Mean};

/// The kind of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GoldKind {
    /// A page answers.
    Document,
    /// A row of the table answers.
    Table,
    /// A page and a row answer together.
    Multi,
    /// Close to the company's trade, and answered nowhere.
    Unanswerable,
    /// About something else.
    OutOfDomain,
    /// Greets, thanks, says good-bye.
    #[serde(alias = "smalltalk")]
    SmallTalk,
    /// Asks for a person, or complains.
    #[serde(alias = "handoff", alias = "complaint")]
    HandOff,
    /// Speaks of danger to people.
    Safety,
}

impl GoldKind {
    fn is_answerable(self) -> bool {
        matches!(self, Self::Document | Self::Table | Self::Multi)
    }

    fn has_no_answer(self) -> bool {
        matches!(self, Self::Unanswerable | Self::OutOfDomain)
    }

    fn needs_a_person(self) -> bool {
        matches!(self, Self::HandOff | Self::Safety)
    }
}

/// One place or several.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(untagged)]
enum Places {
    #[default]
    None,
    One(String),
    Several(Vec<String>),
}

/// The expected answer of a turn: a line of the gold file. Unknown fields are ignored.
#[derive(Clone, Debug, Deserialize)]
struct GoldTurn {
    turn_id: String,
    kind: GoldKind,
    #[serde(default)]
    must: Vec<String>,
    #[serde(default)]
    must_not: Vec<String>,
    #[serde(default)]
    gold: Places,
    #[serde(default)]
    also: Vec<String>,
}

/// The verdict on a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerVerdict {
    /// The response does what it should.
    Right,
    /// The response answers wrongly, or answers where it should not.
    Wrong,
    /// The response does not answer, or does not do what it should.
    Abstained,
}

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
    /// By kind: right, wrong and abstained.
    pub by_kind: BTreeMap<GoldKind, [usize; 3]>,
    /// The figures at values of `decision.min_precision` from 0 to 0.95.
    pub curve: Vec<CurvePoint>,
}

/// The figures at a threshold.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CurvePoint {
    /// `decision.min_precision`.
    pub min_precision: f64,
    /// Right ones among answers.
    pub precision: Option<f64>,
    /// Right answers among turns that have one.
    pub recall: Option<f64>,
    /// Answers among turns that have none.
    pub false_answers: Option<f64>,
}

/// Why answers cannot be scored.
#[derive(Debug, thiserror::Error)]
pub enum ScoringError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}; check the path and its permissions", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line is invalid.
    #[error("{path}:{line}: {reason}; a line is {what}", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The problem.
        reason: String,
        /// A description of a valid line.
        what: &'static str,
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

fn lines<T>(
    path: &Path,
    what: &'static str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, ScoringError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ScoringError::Read { path: path.to_owned(), source })?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let failed =
        |at, reason| ScoringError::Line { path: path.to_owned(), line: at + 1, reason, what };
    lines.map(|(at, line)| read(line).map_err(|reason| failed(at, reason))).collect()
}

/// Judges the responses of a replay by a gold file. Responses to other turns are ignored.
///
/// # Errors
/// A file cannot be read or has an invalid line, or the files have no turn in common.
pub fn judged(data: &Path, gold: &Path) -> Result<Vec<JudgedAnswer>, ScoringError> {
    let json = |error: serde_json::Error| error.to_string();
    let turns = lines(gold, "a turn with what its response must say", |line| {
        let turn: GoldTurn = serde_json::from_str(line).map_err(json)?;
        let patterns =
            |of: &[String]| of.iter().map(|it| pattern(it)).collect::<Result<Vec<_>, _>>();
        Ok((turn.turn_id.clone(), (patterns(&turn.must)?, patterns(&turn.must_not)?, turn)))
    })?;
    let turns: HashMap<_, _> = turns.into_iter().collect();
    let what = "a response, as `turnstream replay --out` writes it";
    let responses = lines(data, what, |line| serde_json::from_str::<Response>(line).map_err(json))?;
    let judged: Vec<JudgedAnswer> = responses
        .iter()
        .filter_map(|response| {
            let (must, must_not, turn) = turns.get(&response.turn_id.0)?;
            Some(judge(response, turn, must, must_not))
        })
        .collect();
    if judged.is_empty() {
        return Err(ScoringError::NothingInCommon { data: data.to_owned(), gold: gold.to_owned() });
    }
    Ok(judged)
}

/// Compiles a pattern of the gold file: any case, and a dot spans lines. It may look ahead and
/// behind.
fn pattern(text: &str) -> Result<Regex, String> {
    Regex::new(&format!("(?is){text}")).map_err(|error| error.to_string())
}

/// Returns the place of a piece of evidence: `page.md#heading`, or `row:ID`.
fn place(evidence: &turnstream_schemas::Evidence) -> Option<String> {
    if let Some(row) = &evidence.row {
        return Some(format!("row:{}", row.columns.first()?.value));
    }
    let passage = evidence.document.as_ref()?;
    Some(format!("{}#{}", passage.document, slug(&passage.title)))
}

/// Whether evidence is from a gold place. The title of a passage ends with a heading of its page.
fn is_at(place: &str, gold: &str) -> bool {
    if place == gold {
        return true;
    }
    let page = |it: &str| it.rsplit('/').next().unwrap_or_default().to_owned();
    match (place.split_once('#'), gold.split_once('#')) {
        (Some((document, title)), Some((of_gold, heading))) => {
            page(document) == page(of_gold) && title.ends_with(heading)
        }
        (Some((document, _)), None) => page(document) == page(gold),
        _ => false,
    }
}

fn judge(response: &Response, turn: &GoldTurn, must: &[Regex], must_not: &[Regex]) -> JudgedAnswer {
    let action = response.action.unwrap_or(Action::Answer);
    let text = &response.text;
    let gold = match turn.gold.clone() {
        Places::None => Vec::new(),
        Places::One(place) => vec![place],
        Places::Several(places) => places,
    };
    let may = || gold.iter().chain(&turn.also);
    let leading = response.evidence.first().filter(|it| it.selected).and_then(place);
    let is_gold = leading.is_none_or(|at| may().next().is_none() || may().any(|it| is_at(&at, it)));
    let says = |it: &Regex| it.is_match(text).unwrap_or(false);
    let fits = must.iter().all(says) && !must_not.iter().any(says);
    let answers = action == Action::Answer;
    let right = |is: bool, otherwise| if is { AnswerVerdict::Right } else { otherwise };
    let verdict = match turn.kind {
        kind if kind.is_answerable() && answers => right(fits && is_gold, AnswerVerdict::Wrong),
        kind if kind.has_no_answer() => right(!answers, AnswerVerdict::Wrong),
        _ if answers => AnswerVerdict::Wrong,
        GoldKind::SmallTalk => right(action == Action::Social && fits, AnswerVerdict::Abstained),
        kind if kind.needs_a_person() => right(action == Action::HandOff, AnswerVerdict::Abstained),
        _ => AnswerVerdict::Abstained,
    };
    let mut found: Vec<_> = response.evidence.iter().filter(|it| place(it).is_some()).collect();
    found.sort_by(|a, b| b.relevance.get().total_cmp(&a.relevance.get()));
    let shown = |it: &&turnstream_schemas::Evidence| {
        let text: String = it.text.chars().take(200).collect();
        format!("{}: {text}", place(it).unwrap_or_default())
    };
    JudgedAnswer {
        turn_id: turn.turn_id.clone(),
        kind: turn.kind,
        verdict,
        action,
        text: text.clone(),
        precision: response.answer_precision.map(|it| it.get()),
        gold: gold.clone(),
        found: found.iter().take(3).map(shown).collect(),
        conversation: response.conversation_id.0.clone(),
    }
}

/// Returns the figures of judged answers.
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
    let hands_over = |it: &JudgedAnswer| it.action == Action::HandOff;
    AnswerFigures {
        n: judged.len(),
        precision: share(&|it| answers(it).then(|| is_right(it))),
        recall: share(&|it| it.kind.is_answerable().then(|| is_right(it))),
        false_answers: share(&|it| it.kind.has_no_answer().then(|| answers(it))),
        hand_off_recall: share(&|it| it.kind.needs_a_person().then(|| hands_over(it))),
        false_hand_offs: share(&|it| (!it.kind.needs_a_person()).then(|| hands_over(it))),
        small_talk: share(&|it| {
            (it.kind == GoldKind::SmallTalk).then(|| it.verdict == AnswerVerdict::Right)
        }),
        by_kind,
        curve: (0..20).map(|at| point(judged, f64::from(at) / 20.0)).collect(),
    }
}

fn point(judged: &[JudgedAnswer], min_precision: f64) -> CurvePoint {
    let said = |it: &&JudgedAnswer| {
        it.action == Action::Answer && it.precision.is_none_or(|of| of >= min_precision)
    };
    let count = |is: &dyn Fn(&&JudgedAnswer) -> bool| judged.iter().filter(is).count() as f64;
    let share = |part: f64, of: f64| (of > 0.0).then(|| part / of);
    let right = count(&|it| said(it) && it.verdict == AnswerVerdict::Right);
    CurvePoint {
        min_precision,
        precision: share(right, count(&said)),
        recall: share(right, count(&|it| it.kind.is_answerable())),
        false_answers: share(
            count(&|it| said(it) && it.kind.has_no_answer()),
            count(&|it| it.kind.has_no_answer()),
        ),
    }
}

#[cfg(test)]
mod tests;
