//! Persona and knowledge found together (PK-ICR): is the knowledge right that the best pair of persona
//! and knowledge gives, and the persona that this knowledge gives; and how hard are the pairs to tell
//! ([the null-positive rank test](rank_test))?
//!
//! A question joins one sentence of the persona with what the user said last, P_i + D; to compare, it
//! is either alone. Every question is put to every piece of knowledge
//! ([`Pairs`]). Persona and rank test take the gold knowledge as given, as the paper does.

use serde::Serialize;
use turnstream_operators::persona_retrieval::pairs::{Pairs, Vectors, accepted, question};
use turnstream_ports::model::encoder::{EncodeError, Encoder};

use super::bootstrap::{Conversations, Mean};

pub mod focus;
pub mod kbp;
pub mod rank_test;

use rank_test::{NonTriviality, adjusted_rank};

/// The moment before a reply that used knowledge, and a persona or none.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The dialogue that it is in.
    pub conversation: usize,
    /// D: what the user said last.
    pub dialogue: String,
    /// The sentences of the persona.
    pub persona: Vec<String>,
    /// Everything that the reply may know.
    pub knowledge: Vec<String>,
    /// The sentences that it used; none where it used no persona.
    pub gold_persona: Vec<usize>,
    /// What it used of the knowledge; never empty.
    pub gold_knowledge: Vec<usize>,
}

/// How pairs are scored.
#[derive(Clone, Copy)]
pub struct Scoring<'a> {
    /// What gives texts vectors; words alone where there is nothing.
    pub encoder: Option<&'a dyn Encoder>,
    /// The share of words beside vectors, 0..=1.
    pub word_share: f64,
    /// The score from which on a sentence is accepted, 0..=1.
    pub threshold: f64,
}

/// What a question is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Dialogue,
    Persona,
    Both,
}

/// A share of the cases with its 95 % interval, whole conversations being drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Share {
    /// The share, 0..=1.
    pub value: f64,
    /// `None` of one conversation.
    pub interval: Option<[f64; 2]>,
}

/// The figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Cases.
    pub n: usize,
    /// Is the first knowledge right (eq 1–3), by what questions are made of?
    pub knowledge: Knowledge,
    /// Is the first sentence right, given the knowledge (eq 6, the threshold at 0)? Of the cases that used
    /// one.
    pub persona: Persona,
    /// The share of cases in which that sentence is right *and* accepted, or none is accepted where none
    /// was used (eq 7), for questions of both.
    pub accepted: Share,
    /// The null-positive rank test on questions of both.
    pub null_positive: NonTriviality,
}

/// By what questions are made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Knowledge {
    /// D.
    pub dialogue: Share,
    /// P_i.
    pub persona: Share,
    /// P_i + D.
    pub both: Share,
}

/// By what questions are made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Persona {
    /// P_i.
    pub persona: Share,
    /// P_i + D.
    pub both: Share,
}

/// Measures on cases.
///
/// # Errors
/// The encoder fails.
pub fn evaluate(cases: &[Case], scoring: &Scoring<'_>) -> Result<Figures, EncodeError> {
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
    let [dialogue, persona, both] =
        [pairs(Asked::Dialogue)?, pairs(Asked::Persona)?, pairs(Asked::Both)?];
    let knowledge = |pairs: &[Pairs]| {
        let right = |(case, pairs): (&Case, &Pairs)| {
            Some(pairs.best_knowledge().is_some_and(|first| case.gold_knowledge.contains(&first)))
        };
        share(&cases.iter().zip(pairs).map(right).collect::<Vec<_>>())
    };
    let sentence = |pairs: &[Pairs], threshold: Option<f64>| {
        let right = |(case, pairs): (&Case, &Pairs)| {
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
    let used = |((case, _), _): &((&Case, &Pairs), &Pairs)| !case.gold_persona.is_empty();
    let ranks = cases.iter().zip(&both).zip(&dialogue).filter(used).map(|((case, both), bare)| {
        let known = case.gold_knowledge[0];
        let scores = both.given(known).into_iter().enumerate();
        let scores: Vec<(f64, bool)> =
            scores.map(|(at, score)| (score, case.gold_persona.contains(&at))).collect();
        adjusted_rank(&scores, bare.given(known)[0])
    });
    Ok(Figures {
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

/// The pairs of a case.
fn scored(case: &Case, asked: Asked, scoring: &Scoring<'_>) -> Result<Pairs, EncodeError> {
    let with = |sentence: &String| question(sentence, &case.dialogue);
    let questions: Vec<String> = match asked {
        Asked::Dialogue => vec![case.dialogue.clone()],
        Asked::Persona => case.persona.clone(),
        Asked::Both => case.persona.iter().map(with).collect(),
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
