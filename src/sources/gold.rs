//! Judges responses by a gold file of a company's turns: right, wrong, or openly not answered.
//!
//! A turn that the pages or the table answer is *right* if the response answers, says all that it
//! must and nothing that it must not, and was made from a gold place; *wrong* if it answers
//! otherwise; *abstained* if it does not answer. A turn without an answer is right unless the
//! response answers. Small talk must get a social response, and a turn that needs a person must be
//! handed over.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use fancy_regex::Regex;
use serde::{Deserialize, Serialize};
use turnstream_schemas::{Action, Evidence, Response};

use crate::phrasings::slug;

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
    /// Asks for a person.
    #[serde(alias = "handoff")]
    HandOff,
    /// Complains.
    Complaint,
    /// Speaks of danger to people.
    Safety,
}

impl GoldKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Document,
        Self::Table,
        Self::Multi,
        Self::Unanswerable,
        Self::OutOfDomain,
        Self::SmallTalk,
        Self::HandOff,
        Self::Complaint,
        Self::Safety,
    ];

    /// Returns the name in gold files and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Document => "document",
            Self::Table => "table",
            Self::Multi => "multi",
            Self::Unanswerable => "unanswerable",
            Self::OutOfDomain => "out_of_domain",
            Self::SmallTalk => "small_talk",
            Self::HandOff => "hand_off",
            Self::Complaint => "complaint",
            Self::Safety => "safety",
        }
    }

    /// Whether a page, a row or both answer such turns.
    pub fn is_answerable(self) -> bool {
        matches!(self, Self::Document | Self::Table | Self::Multi)
    }

    /// Whether nothing answers such turns.
    pub fn has_no_answer(self) -> bool {
        matches!(self, Self::Unanswerable | Self::OutOfDomain)
    }

    /// Whether such turns have to be handed over.
    pub fn needs_a_person(self) -> bool {
        matches!(self, Self::HandOff | Self::Complaint | Self::Safety)
    }
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

impl AnswerVerdict {
    /// All verdicts.
    pub const ALL: [Self; 3] = [Self::Right, Self::Wrong, Self::Abstained];

    /// Returns the name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Wrong => "wrong",
            Self::Abstained => "abstained",
        }
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

/// A line of a gold file. Unknown fields are ignored.
#[derive(Clone, Debug, Deserialize)]
struct GoldLine {
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

/// The expected answer of a turn.
#[derive(Clone, Debug)]
pub struct GoldTurn {
    /// The kind of the turn.
    pub kind: GoldKind,
    /// The places that should answer: `page.md#heading` or `row:ID`; empty if nothing does.
    pub places: Vec<String>,
    /// Other places that may be quoted.
    also: Vec<String>,
    /// What a right answer says, all of it.
    must: Vec<Regex>,
    /// What a right answer does not say.
    must_not: Vec<Regex>,
}

/// The expected answers of a gold file, by the turn's id.
#[derive(Clone, Debug)]
pub struct GoldFile {
    turns: HashMap<String, GoldTurn>,
}

/// Why a gold file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GoldError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}; check the path and its permissions", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line is invalid.
    #[error("{path}:{line}: {reason}; a line is a turn with what its response must say", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The problem.
        reason: String,
    },
}

impl GoldFile {
    /// Reads a gold file, one JSON object a line; skips empty lines.
    ///
    /// # Errors
    /// The file cannot be read, or a line is no turn or has an invalid pattern.
    pub fn read(path: &Path) -> Result<Self, GoldError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| GoldError::Read { path: path.to_owned(), source })?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let read = |(at, line): (usize, &str)| {
            expected(line).map_err(|reason| GoldError::Line {
                path: path.to_owned(),
                line: at + 1,
                reason,
            })
        };
        Ok(Self { turns: lines.map(read).collect::<Result<_, _>>()? })
    }

    /// Returns what is expected of the response to its turn; `None` if the file does not have the
    /// turn.
    pub fn turn(&self, response: &Response) -> Option<&GoldTurn> {
        self.turns.get(response.turn_id.as_str())
    }
}

fn expected(line: &str) -> Result<(String, GoldTurn), String> {
    let line: GoldLine = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let patterns = |of: &[String]| of.iter().map(|it| pattern(it)).collect::<Result<Vec<_>, _>>();
    let turn = GoldTurn {
        kind: line.kind,
        must: patterns(&line.must)?,
        must_not: patterns(&line.must_not)?,
        places: match line.gold {
            Places::None => Vec::new(),
            Places::One(place) => vec![place],
            Places::Several(places) => places,
        },
        also: line.also,
    };
    Ok((line.turn_id, turn))
}

/// Compiles a pattern of the gold file: any case, and a dot spans lines. It may look ahead and
/// behind.
fn pattern(text: &str) -> Result<Regex, String> {
    Regex::new(&format!("(?is){text}")).map_err(|error| error.to_string())
}

/// Returns the place of a piece of evidence: `page.md#heading`, or `row:ID`.
pub fn place(evidence: &Evidence) -> Option<String> {
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

impl GoldTurn {
    /// Whether a response asks which place is meant, and names one that answers; if it asks for a cell of a
    /// row, whether that row answers.
    pub fn is_asked_about(&self, response: &Response) -> bool {
        let is_gold = |it: &&Evidence| {
            place(it).is_some_and(|at| self.places.iter().any(|gold| is_at(&at, gold)))
        };
        let is_named = |it: &Evidence| {
            let title = it.document.as_ref().map(|it| it.title.trim_end_matches(['?', '？']));
            let heading = title.and_then(|it| it.rsplit(": ").next());
            let of_row = it.row.iter().flat_map(|row| row.columns.iter().take(2));
            let mut names = heading.into_iter().chain(of_row.map(|it| &*it.value));
            names.any(|name| response.text.contains(name))
        };
        let asks = response.action == Some(Action::Ask);
        asks && response.evidence.iter().filter(is_gold).any(is_named)
    }

    /// Judges a response to the turn. A response without an action answers.
    pub fn judge(&self, response: &Response) -> AnswerVerdict {
        let action = response.action.unwrap_or(Action::Answer);
        let text = &response.text;
        let may = || self.places.iter().chain(&self.also);
        let leading = response.evidence.first().filter(|it| it.selected).and_then(place);
        let is_gold =
            leading.is_none_or(|at| may().next().is_none() || may().any(|it| is_at(&at, it)));
        let says = |it: &Regex| it.is_match(text).unwrap_or(false);
        let fits = self.must.iter().all(says) && !self.must_not.iter().any(says);
        let answers = action == Action::Answer;
        let right = |is: bool, otherwise| if is { AnswerVerdict::Right } else { otherwise };
        match self.kind {
            kind if kind.is_answerable() && answers => right(fits && is_gold, AnswerVerdict::Wrong),
            kind if kind.has_no_answer() => right(!answers, AnswerVerdict::Wrong),
            _ if answers => AnswerVerdict::Wrong,
            GoldKind::SmallTalk => {
                right(action == Action::Social && fits, AnswerVerdict::Abstained)
            }
            kind if kind.needs_a_person() => {
                right(action == Action::HandOff, AnswerVerdict::Abstained)
            }
            _ => AnswerVerdict::Abstained,
        }
    }
}

#[cfg(test)]
mod tests;
