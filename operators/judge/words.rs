//! Consistency by words: how much of the evidence the response says, and whether it contradicts it.
//!
//! A piece of evidence has parts: the sentences of a text, or the columns of a row, each with the
//! row's subject. The part that shares most terms with the response decides: the score is the share
//! of its terms that the response contains. The score is 0 if the response contradicts that part.
//! It does so if some clause of the part shares at least half of its terms with clauses of the
//! response, and each of these denies what the part affirms (or the reverse), or has other numbers.
//!
//! The measure has two blind spots: it counts the same thing in other words as left out, and a contradiction
//! without a denial or a number as agreement.

use std::collections::BTreeSet;

use turnstream_knowledge::terms::terms;
use turnstream_schemas::{Evidence, TableRow};
use unicode_segmentation::UnicodeSegmentation;

use crate::faithful;

/// Where a clause of a sentence ends.
const CLAUSE_ENDS: [char; 8] = [',', ';', '，', '；', '、', '!', '?', '。'];

/// Characters that deny in Chinese.
const CHINESE_DENIALS: [char; 4] = ['不', '没', '无', '未'];

/// Words with one of these characters that deny nothing.
const NO_DENIALS: [&str; 8] = ["不错", "不过", "不仅", "不但", "不少", "不同", "无论", "不管"];

/// The words of a response, to compare evidence with.
#[derive(Clone, Debug)]
pub struct ResponseWords {
    terms: BTreeSet<String>,
    clauses: Vec<SentencePart>,
}

/// A clause of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SentencePart {
    /// Its terms, numbers aside.
    terms: BTreeSet<String>,
    /// Its runs of digits.
    numbers: BTreeSet<String>,
    denies: bool,
}

impl ResponseWords {
    /// Reads the words of a response.
    pub fn of(response: &str) -> Self {
        let clauses = response.unicode_sentences().flat_map(clauses).collect();
        Self { terms: terms(response).into_iter().collect(), clauses }
    }

    /// Returns how well the response agrees with a piece of evidence, 0..=1.
    pub fn consistency(&self, evidence: &Evidence) -> f64 {
        match self.nearest(evidence) {
            Some((share, part)) if !self.contradicts(&part) => share,
            _ => 0.0,
        }
    }

    /// Whether the response contradicts the part of a piece of evidence that shares most terms with it.
    pub fn contradict(&self, evidence: &Evidence) -> bool {
        self.nearest(evidence).is_some_and(|(_, part)| self.contradicts(&part))
    }

    /// Returns the part that shares most terms with the response, and the share of its terms that
    /// the response contains.
    fn nearest(&self, evidence: &Evidence) -> Option<(f64, Part)> {
        let parts = parts(evidence).into_iter().map(|part| {
            let terms: BTreeSet<String> = terms(&part.text).into_iter().collect();
            let said = terms.intersection(&self.terms).count();
            (said, said as f64 / terms.len().max(1) as f64, part)
        });
        // Of equals the first part wins.
        let best = parts.reduce(|best, next| {
            let is_better = next.0.cmp(&best.0).then(next.1.total_cmp(&best.1)).is_gt();
            if is_better { next } else { best }
        });
        best.map(|(_, share, part)| (share, part))
    }

    /// Whether the response contradicts this part of the evidence.
    fn contradicts(&self, part: &Part) -> bool {
        let clauses = clauses(&part.text)
            .map(|clause| SentencePart { denies: part.denies.unwrap_or(clause.denies), ..clause });
        clauses.into_iter().any(|clause| {
            let about = |said: &&SentencePart| {
                let shared = clause.terms.intersection(&said.terms).count();
                shared > 0 && 2 * shared >= clause.terms.len()
            };
            let mut said = self.clauses.iter().filter(about).peekable();
            said.peek().is_some() && said.all(|said| said.is_at_odds_with(&clause))
        })
    }
}

impl SentencePart {
    fn is_at_odds_with(&self, other: &Self) -> bool {
        let both_count = !self.numbers.is_empty() && !other.numbers.is_empty();
        self.denies != other.denies || (both_count && self.numbers.is_disjoint(&other.numbers))
    }
}

/// A part of a piece of evidence.
struct Part {
    text: String,
    /// Whether the part denies something; `None` if its words decide.
    denies: Option<bool>,
}

fn parts(evidence: &Evidence) -> Vec<Part> {
    if let Some(row) = &evidence.row {
        return columns(row);
    }
    let denies = evidence.fact.as_ref().map(|fact| fact.negated);
    let sentences = evidence.text.unicode_sentences();
    sentences.map(|text| Part { text: text.to_owned(), denies }).collect()
}

/// Returns the columns of a row, each with the value of the first, which names the row's subject.
fn columns(row: &TableRow) -> Vec<Part> {
    let Some((subject, others)) = row.columns.split_first() else { return Vec::new() };
    let part = |(name, value): (&str, &str)| {
        let about = &subject.value;
        match value {
            "yes" | "no" => Part { text: format!("{about} {name}"), denies: Some(value == "no") },
            value => Part { text: format!("{about} {name} {value}"), denies: None },
        }
    };
    others.iter().map(|column| part((&column.name, &column.value))).collect()
}

/// Returns the clauses of a sentence, without those that have no term.
fn clauses(sentence: &str) -> impl Iterator<Item = SentencePart> {
    let clause = |text: &str| SentencePart {
        terms: terms(text).into_iter().filter(|term| !is_number(term)).collect(),
        numbers: numbers(text),
        denies: denies(text),
    };
    let clauses: Vec<SentencePart> = sentence.split(CLAUSE_ENDS).map(clause).collect();
    clauses.into_iter().filter(|clause| !clause.terms.is_empty())
}

fn is_number(term: &str) -> bool {
    term.chars().all(|c| !c.is_alphabetic())
}

fn numbers(text: &str) -> BTreeSet<String> {
    let runs = text.split(|c: char| !c.is_ascii_digit());
    runs.filter(|run| !run.is_empty()).map(str::to_owned).collect()
}

fn denies(text: &str) -> bool {
    let plain = NO_DENIALS.iter().fold(text.to_owned(), |text, word| text.replace(word, ""));
    plain.contains(CHINESE_DENIALS) || faithful::denies(&plain)
}

#[cfg(test)]
mod tests;
