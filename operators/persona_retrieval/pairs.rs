//! Finds persona and knowledge together (PK-ICR): joins every sentence of a persona with the dialogue,
//! and pairs it with every piece of knowledge like a question with an answer, {P_i + D, K_j} (eq 1).
//!
//! The best pair determines the knowledge (eq 2 and 3). Among the pairs with that knowledge, the
//! sentence of the best is the persona if its score reaches a threshold (eq 4–7). Pairs are scored by
//! words (BM25 among the knowledge, as a likeness), and by meaning if there are vectors.

use turnstream_knowledge::terms::terms;

use crate::bm25::{Bag, Statistics};

/// Scores of pairs, 0..=1: one row per question, one column per piece of knowledge.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs {
    scores: Vec<f64>,
    knowledge: usize,
}

/// The vectors of questions and of knowledge, in their order, each of length 1.
#[derive(Clone, Copy, Debug)]
pub struct Vectors<'v> {
    /// One for each question.
    pub questions: &'v [&'v [f32]],
    /// One for each piece of knowledge.
    pub knowledge: &'v [&'v [f32]],
}

/// Joins a sentence with a dialogue to a question: P_i + D.
pub fn question(sentence: &str, dialogue: &str) -> String {
    format!("{sentence} {dialogue}")
}

impl Pairs {
    /// Scores every question with every piece of knowledge. With vectors, words have the share
    /// `word_share` (0..=1) in the score, and the cosine, at least 0, has the rest.
    pub fn score(
        questions: &[String],
        knowledge: &[String],
        vectors: Option<Vectors<'_>>,
        word_share: f64,
    ) -> Self {
        let bag = |text: &String| -> Bag<String> { terms(text).into_iter().collect() };
        let answers: Vec<Bag<String>> = knowledge.iter().map(bag).collect();
        let statistics = Statistics::of(&answers);
        let mut scores = Vec::with_capacity(questions.len() * answers.len());
        for (i, question) in questions.iter().map(bag).enumerate() {
            for (j, answer) in answers.iter().enumerate() {
                let by_words = statistics.likeness(&question, answer);
                scores.push(match vectors {
                    None => by_words,
                    Some(vectors) => {
                        let (asked, answer) = (vectors.questions[i], vectors.knowledge[j]);
                        let products = asked.iter().zip(answer).map(|(a, b)| f64::from(a * b));
                        let cosine = products.sum::<f64>().clamp(0.0, 1.0);
                        word_share * by_words + (1.0 - word_share) * cosine
                    }
                });
            }
        }
        Self { scores, knowledge: answers.len() }
    }

    /// Returns the knowledge of the best pair (eq 2 and 3): the first among equals; `None` without
    /// pairs.
    pub fn best_knowledge(&self) -> Option<usize> {
        best(self.scores.iter().copied()).map(|at| at % self.knowledge)
    }

    /// Returns the score of each question with one piece of knowledge (eq 6).
    pub fn given(&self, knowledge: usize) -> Vec<f64> {
        self.scores.chunks_exact(self.knowledge.max(1)).map(|of| of[knowledge]).collect()
    }
}

/// Returns the sentence with the highest score, if that reaches the threshold (eq 7): the first
/// among equals.
pub fn accepted(scores: &[f64], threshold: f64) -> Option<usize> {
    best(scores.iter().copied()).filter(|at| scores[*at] >= threshold)
}

fn best(scores: impl Iterator<Item = f64>) -> Option<usize> {
    let scores = scores.enumerate();
    scores.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    /// Neither the sentence nor the question alone tells which knowledge is meant.
    #[test]
    fn a_persona_says_what_a_dialogue_leaves_open() {
        let personas = ["I keep a telescope.", "I collect stamps."];
        let dialogue = "Where should I go this summer?";
        let knowledge = texts(&[
            "The summer fair has music.",
            "In summer the hill is dark enough for a telescope.",
            "Stamps show birds.",
        ]);
        let questions: Vec<String> =
            personas.iter().map(|sentence| question(sentence, dialogue)).collect();
        let pairs = Pairs::score(&questions, &knowledge, None, 0.0);
        assert_eq!(pairs.best_knowledge(), Some(1));
        let given = pairs.given(1);
        assert!(given[0] > given[1], "{given:?}");
        assert_eq!(accepted(&given, 0.0), Some(0));
        assert_eq!(accepted(&given, given[0]), Some(0), "the threshold itself is enough");
        assert_eq!(accepted(&given, given[0] + 1e-9), None);
        let alone = Pairs::score(&texts(&[dialogue]), &knowledge, None, 0.0);
        assert_eq!(alone.best_knowledge(), Some(0), "without a persona the fair is shorter");
    }

    #[test]
    fn vectors_have_their_share() {
        let vectors = Vectors {
            questions: &[&[1.0, 0.0]],
            knowledge: &[&[0.6, 0.8], &[-1.0, 0.0], &[1.0, 0.0]],
        };
        let (asked, knowledge) = (texts(&["lake"]), texts(&["lake", "lake", "hill"]));
        let by_words = Pairs::score(&asked, &knowledge, None, 0.25).given(0)[0];
        let pairs = Pairs::score(&asked, &knowledge, Some(vectors), 0.25);
        let by_hand = [0.25 * by_words + 0.75 * 0.6, 0.25 * by_words, 0.75];
        for (at, by_hand) in by_hand.into_iter().enumerate() {
            assert!((pairs.given(at)[0] - by_hand).abs() < 1e-6, "{at}: {pairs:?}");
        }
        assert_eq!(pairs.best_knowledge(), Some(2));
    }

    #[test]
    fn nothing_is_chosen_without_candidates() {
        assert_eq!(Pairs::score(&[], &texts(&["lake"]), None, 0.0).best_knowledge(), None);
        assert_eq!(Pairs::score(&texts(&["lake"]), &[], None, 0.0).best_knowledge(), None);
        assert_eq!(accepted(&[], 0.0), None);
    }
}
