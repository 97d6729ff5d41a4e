//! Consistency on labelled responses: is the evidence that a response was made from told from other
//! evidence by what the response says? (UniMS-RAG trains its scorer on the same line.)

use std::collections::BTreeSet;

use serde::Serialize;
use turnstream_operators::consistency::{Judge, Words};
use turnstream_ports::model::encoder::EncodeError;
use turnstream_schemas::{Evidence, EvidenceId, Score};

use super::unified::{Labelled, Told};

pub mod dstc;
pub mod kbp;

/// Pieces that a response does not rest on: so many of the same dialogue or place, and so many from elsewhere.
const OTHERS: usize = 4;

/// What a piece of evidence has to do with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It was made from it.
    Gold,
    /// It was not, and could have been: of the same hotel or restaurant, or known in the same dialogue.
    Same,
    /// From elsewhere.
    Other,
}

/// A response and evidence beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The conversation that it is in.
    pub conversation: usize,
    /// What was said.
    pub response: String,
    /// Pieces of evidence.
    pub evidence: Vec<(String, Relation)>,
}

impl Case {
    /// The texts that the response was made from.
    pub fn gold(&self) -> impl Iterator<Item = &str> {
        let gold = self.evidence.iter().filter(|(_, relation)| *relation == Relation::Gold);
        gold.map(|(text, _)| text.as_str())
    }
}

/// The figures. Each pair of a response and a piece is one decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Responses.
    pub n: usize,
    /// Gold against what could have been.
    pub same: Told,
    /// Gold against what is from elsewhere.
    pub other: Told,
}

/// Measures words, or a trained judge.
///
/// # Errors
/// The judge fails.
pub fn evaluate(cases: &[Case], judge: Option<&Judge>) -> Result<Figures, EncodeError> {
    let (mut same, mut other) = (Labelled::default(), Labelled::default());
    for case in cases {
        let evidence: Vec<Evidence> = case.evidence.iter().map(|(text, _)| piece(text)).collect();
        let scores = match judge {
            Some(judge) => judge.judge(&case.response, &evidence.iter().collect::<Vec<_>>())?,
            None => {
                let words = Words::of(&case.response);
                evidence.iter().map(|piece| words.consistency(piece)).collect()
            }
        };
        for ((_, relation), score) in case.evidence.iter().zip(scores) {
            let is_gold = *relation == Relation::Gold;
            if *relation != Relation::Other {
                same.add(case.conversation, is_gold, score);
            }
            if *relation != Relation::Same {
                other.add(case.conversation, is_gold, score);
            }
        }
    }
    Ok(Figures { n: cases.len(), same: same.told(), other: other.told() })
}

/// The cases whose gold evidence was gold of none of these, without what was: nothing that is judged was learned.
pub fn unseen(cases: &[Case], learned: &[Case]) -> Vec<Case> {
    let seen: BTreeSet<&str> = learned.iter().flat_map(Case::gold).collect();
    let unseen = |case: &Case| {
        let evidence = case.evidence.iter().filter(|(text, _)| !seen.contains(text.as_str()));
        Case { evidence: evidence.cloned().collect(), ..case.clone() }
    };
    cases.iter().map(unseen).filter(|case| case.gold().next().is_some()).collect()
}

/// A text as evidence.
pub(super) fn piece(text: &str) -> Evidence {
    Evidence {
        id: EvidenceId(String::new()),
        source: "documents".into(),
        text: text.to_owned(),
        set: None,
        fact: None,
        document: None,
        persona: None,
        row: None,
        relevance: Score::new(1.0),
        consistency: None,
        attention: None,
        selected: true,
    }
}

/// So many of some, drawn; fewer where there are no more.
fn drawn<T: Clone>(mut of: Vec<T>, random: &mut fastrand::Rng) -> Vec<T> {
    random.shuffle(&mut of);
    of.truncate(OTHERS);
    of
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(conversation: usize, response: &str, evidence: &[(&str, Relation)]) -> Case {
        let evidence = evidence.iter().map(|(text, is)| ((*text).to_owned(), *is)).collect();
        Case { conversation, response: response.to_owned(), evidence }
    }

    #[test]
    fn gold_is_told_from_others_by_what_is_said() {
        let cases = [
            case(
                0,
                "The breakfast is good.",
                &[
                    ("Breakfast was good.", Relation::Gold),
                    ("The breakfast room is small.", Relation::Same),
                    ("Trains are late.", Relation::Other),
                ],
            ),
            case(
                1,
                "There is a pool.",
                &[("It has a pool.", Relation::Gold), ("Pool tables for hire.", Relation::Same)],
            ),
        ];
        let figures = evaluate(&cases, None).expect("figures");
        assert_eq!((figures.n, figures.same.n, figures.other.n), (2, 4, 3));
        assert_eq!((figures.same.positives, figures.same.figures.auc), (2, Some(1.0)));
        assert_eq!(figures.other.figures.auc, Some(1.0));

        let left = unseen(&cases, &cases[1..]);
        assert_eq!(left, cases[..1]);
        assert!(unseen(&cases, &cases).is_empty());
    }
}
