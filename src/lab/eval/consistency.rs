//! Measures consistency on labelled responses: whether a judge can distinguish the evidence that a
//! response was made from, by the response alone. (UniMS-RAG trains its scorer to make the same
//! distinction.)

use std::collections::BTreeSet;

use serde::Serialize;
use turnstream_operators::judge::{Judge, ResponseWords};
use turnstream_ports::model::encoder::EncodeError;
use turnstream_schemas::{Evidence, EvidenceId, Score};

use super::unified::{Labelled, Told};

pub mod dstc;
pub mod kbp;

/// Pieces of unused evidence per response: at most this many of the same dialogue or place, and
/// this many from elsewhere.
const OTHERS: usize = 4;

/// The relation of a piece of evidence to a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The response was made from the piece.
    Gold,
    /// The response could have been made from the piece: it belongs to the same hotel or
    /// restaurant, or was known in the same dialogue.
    Same,
    /// The piece is from elsewhere.
    Other,
}

/// A response with pieces of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledResponse {
    /// The number of its conversation.
    pub conversation: usize,
    /// The response's text.
    pub response: String,
    /// Pieces of evidence with their relation.
    pub evidence: Vec<(String, Relation)>,
}

impl LabelledResponse {
    /// Returns the texts that the response was made from.
    pub fn gold(&self) -> impl Iterator<Item = &str> {
        let gold = self.evidence.iter().filter(|(_, relation)| *relation == Relation::Gold);
        gold.map(|(text, _)| text.as_str())
    }
}

/// The figures. Each pair of a response and a piece is one decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConsistencyFigures {
    /// Responses.
    pub n: usize,
    /// Gold against other evidence of the same dialogue or place.
    pub same: Told,
    /// Gold against evidence from elsewhere.
    pub other: Told,
}

/// Measures the lexical judge, or a trained one.
///
/// # Errors
/// The judge fails.
pub fn evaluate(
    cases: &[LabelledResponse],
    judge: Option<&Judge>,
) -> Result<ConsistencyFigures, EncodeError> {
    let (mut same, mut other) = (Labelled::default(), Labelled::default());
    for case in cases {
        let evidence: Vec<Evidence> = case.evidence.iter().map(|(text, _)| piece(text)).collect();
        let scores = match judge {
            Some(judge) => judge.judge(&case.response, &evidence.iter().collect::<Vec<_>>())?,
            None => {
                let words = ResponseWords::of(&case.response);
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
    Ok(ConsistencyFigures { n: cases.len(), same: same.told(), other: other.told() })
}

/// Returns the cases with their evidence that was not gold in `learned`, so that nothing that is
/// judged was trained on.
pub fn unseen(cases: &[LabelledResponse], learned: &[LabelledResponse]) -> Vec<LabelledResponse> {
    let seen: BTreeSet<&str> = learned.iter().flat_map(LabelledResponse::gold).collect();
    let unseen = |case: &LabelledResponse| {
        let evidence = case.evidence.iter().filter(|(text, _)| !seen.contains(text.as_str()));
        LabelledResponse { evidence: evidence.cloned().collect(), ..case.clone() }
    };
    cases.iter().map(unseen).filter(|case| case.gold().next().is_some()).collect()
}

/// Wraps a text as evidence.
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

/// Draws `OTHERS` items, or all if there are fewer.
fn drawn<T: Clone>(mut of: Vec<T>, random: &mut fastrand::Rng) -> Vec<T> {
    random.shuffle(&mut of);
    of.truncate(OTHERS);
    of
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(
        conversation: usize,
        response: &str,
        evidence: &[(&str, Relation)],
    ) -> LabelledResponse {
        let evidence = evidence.iter().map(|(text, is)| ((*text).to_owned(), *is)).collect();
        LabelledResponse { conversation, response: response.to_owned(), evidence }
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
