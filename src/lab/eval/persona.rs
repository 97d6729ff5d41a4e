//! Measures whether persona and knowledge are found together (PK-ICR): whether the knowledge of the
//! best pair is right, whether the persona that this knowledge selects is right, and how hard the
//! pairs are to distinguish ([the null-positive rank test](rank_test)).
//!
//! A question joins one sentence of the persona with the user's last words, P_i + D; for
//! comparison, either is used alone. Every question is scored against every piece of knowledge
//! ([`Pairs`]). As in the paper, the measures of persona and the rank test assume the gold
//! knowledge.

use serde::Serialize;
use turnstream_operators::persona_retrieval::pairs::{Pairs, Vectors, accepted, question};
use turnstream_ports::model::encoder::{EncodeError, Encoder};

use super::bootstrap::{Conversations, Mean};

pub mod focus;
pub mod kbp;
pub mod rank_test;

use rank_test::{NonTriviality, adjusted_rank};

/// The state before a reply that used knowledge, with or without a persona.
#[derive(Clone, Debug, PartialEq)]
pub struct PersonaCase {
    /// The number of its dialogue.
    pub conversation: usize,
    /// D: the user's last words.
    pub dialogue: String,
    /// The sentences of the persona.
    pub persona: Vec<String>,
    /// The pieces of knowledge that the reply may use.
    pub knowledge: Vec<String>,
    /// The sentences that the reply used; empty if it used no persona.
    pub gold_persona: Vec<usize>,
    /// The knowledge that the reply used; never empty.
    pub gold_knowledge: Vec<usize>,
}

/// How pairs are scored.
#[derive(Clone, Copy)]
pub struct Scoring<'a> {
    /// The encoder; without one, only words are compared.
    pub encoder: Option<&'a dyn Encoder>,
    /// The share of lexical similarity beside vectors, 0..=1.
    pub word_share: f64,
    /// The score from which a sentence is accepted, 0..=1.
    pub threshold: f64,
}

/// The parts of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuestionParts {
    Dialogue,
    Persona,
    Both,
}

/// A share of the cases, with its 95 % interval by resampling conversations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Share {
    /// The share, 0..=1.
    pub value: f64,
    /// `None` for a single conversation.
    pub interval: Option<[f64; 2]>,
}

/// The figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PersonaFigures {
    /// Cases.
    pub n: usize,
    /// Whether the first knowledge is right (eq 1–3), by the parts of the question.
    pub knowledge: Knowledge,
    /// Whether the first sentence is right, given the knowledge (eq 6, with threshold 0), over the
    /// cases that used a sentence.
    pub persona: Persona,
    /// The share of cases in which that sentence is right *and* accepted, or no sentence is
    /// accepted if none was used (eq 7), for questions of both parts.
    pub accepted: Share,
    /// The null-positive rank test on questions of both parts.
    pub null_positive: NonTriviality,
}

/// Knowledge by the parts of the question.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Knowledge {
    /// D.
    pub dialogue: Share,
    /// P_i.
    pub persona: Share,
    /// P_i + D.
    pub both: Share,
}

/// Persona by the parts of the question.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Persona {
    /// P_i.
    pub persona: Share,
    /// P_i + D.
    pub both: Share,
}

/// Measures cases.
///
/// # Errors
/// The encoder fails.
pub fn evaluate(
    cases: &[PersonaCase],
    scoring: &Scoring<'_>,
) -> Result<PersonaFigures, EncodeError> {
    let drawn = Conversations::new(cases.iter().map(|case| case.conversation));
    let share = |right: &[Option<bool>]| {
        let part = |right: bool| Mean::from(f64::from(u8::from(right)));
        let parts = right.iter().map(|right| right.map(part));
        let (value, interval) = drawn.figure(&parts.collect::<Vec<_>>(), Mean::value);
        Share { value: value.unwrap_or_default(), interval }
    };
    let pairs = |asked| {
        cases.iter().map(|case| scored(case, asked, scoring)).collect::<Result<Vec<_>, _>>()
    };
    let [dialogue, persona, both] = [
        pairs(QuestionParts::Dialogue)?,
        pairs(QuestionParts::Persona)?,
        pairs(QuestionParts::Both)?,
    ];
    let knowledge = |pairs: &[Pairs]| {
        let right = |(case, pairs): (&PersonaCase, &Pairs)| {
            Some(pairs.best_knowledge().is_some_and(|first| case.gold_knowledge.contains(&first)))
        };
        share(&cases.iter().zip(pairs).map(right).collect::<Vec<_>>())
    };
    let sentence = |pairs: &[Pairs], threshold: Option<f64>| {
        let right = |(case, pairs): (&PersonaCase, &Pairs)| {
            let given = pairs.given(case.gold_knowledge[0]);
            if threshold.is_none() && case.gold_persona.is_empty() {
                return None;
            }
            Some(match accepted(&given, threshold.unwrap_or_default()) {
                Some(first) => case.gold_persona.contains(&first),
                None => case.gold_persona.is_empty(),
            })
        };
        share(&cases.iter().zip(pairs).map(right).collect::<Vec<_>>())
    };
    let used = |((case, _), _): &((&PersonaCase, &Pairs), &Pairs)| !case.gold_persona.is_empty();
    let ranks = cases.iter().zip(&both).zip(&dialogue).filter(used).map(|((case, both), bare)| {
        let known = case.gold_knowledge[0];
        let scores = both.given(known).into_iter().enumerate();
        let scores: Vec<(f64, bool)> =
            scores.map(|(at, score)| (score, case.gold_persona.contains(&at))).collect();
        adjusted_rank(&scores, bare.given(known)[0])
    });
    Ok(PersonaFigures {
        n: cases.len(),
        null_positive: NonTriviality::of(ranks),
        knowledge: Knowledge {
            dialogue: knowledge(&dialogue),
            persona: knowledge(&persona),
            both: knowledge(&both),
        },
        persona: Persona { persona: sentence(&persona, None), both: sentence(&both, None) },
        accepted: sentence(&both, Some(scoring.threshold)),
    })
}

/// Scores the pairs of a case.
fn scored(
    case: &PersonaCase,
    asked: QuestionParts,
    scoring: &Scoring<'_>,
) -> Result<Pairs, EncodeError> {
    let with = |sentence: &String| question(sentence, &case.dialogue);
    let questions: Vec<String> = match asked {
        QuestionParts::Dialogue => vec![case.dialogue.clone()],
        QuestionParts::Persona => case.persona.clone(),
        QuestionParts::Both => case.persona.iter().map(with).collect(),
    };
    let Some(encoder) = scoring.encoder else {
        return Ok(Pairs::score(&questions, &case.knowledge, None, scoring.word_share));
    };
    let encode = |texts: &[String]| -> Result<Vec<Vec<f32>>, EncodeError> {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut numbers = Vec::with_capacity(texts.len() * encoder.dimensions());
        encoder.encode(&texts, &mut numbers)?;
        Ok(numbers.chunks_exact(encoder.dimensions()).map(<[f32]>::to_vec).collect())
    };
    let (asked, known) = (encode(&questions)?, encode(&case.knowledge)?);
    let (asked, known) = (slices(&asked), slices(&known));
    let vectors = Vectors { questions: &asked, knowledge: &known };
    Ok(Pairs::score(&questions, &case.knowledge, Some(vectors), scoring.word_share))
}

fn slices(vectors: &[Vec<f32>]) -> Vec<&[f32]> {
    vectors.iter().map(Vec::as_slice).collect()
}

#[cfg(test)]
mod tests;
