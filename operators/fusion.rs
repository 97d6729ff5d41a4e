//! Fuses the texts found by words and by meaning into one ranking, for documents and personas: by the
//! weighted sum of both scores. `docs/measurements/documents.md` compares it with a fusion of ranks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How texts are searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchForm {
    /// By words alone.
    Bm25,
    /// By meaning alone. The stage fails on a turn without an embedding.
    Dense,
    /// By both: the weighted sum of the two scores. By words alone if the turn has no embedding or the
    /// texts have no vectors.
    #[default]
    Fusion,
}

/// A text with its scores, each 0..=1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fused {
    /// The number of the text.
    pub at: u32,
    /// The fused score, which ranks it.
    pub score: f64,
    /// Its score by words, if the search by words found it.
    pub by_words: Option<f64>,
    /// Its score by meaning, if the search by meaning found it.
    pub by_meaning: Option<f64>,
}

/// Fuses the texts with scores that both searches found, and returns them by falling fused score,
/// ties by number. A text that one search did not find counts 0 there. If only one search was made,
/// its scores stay as they are.
pub fn fuse(
    by_words: Option<impl IntoIterator<Item = (u32, f64)>>,
    by_meaning: Option<impl IntoIterator<Item = (u32, f64)>>,
    word_share: f64,
) -> Vec<Fused> {
    let word_share = match (&by_words, &by_meaning) {
        (Some(_), Some(_)) => word_share,
        (Some(_), None) => 1.0,
        _ => 0.0,
    };
    let mut scores = BTreeMap::<u32, (Option<f64>, Option<f64>)>::new();
    for (at, score) in by_words.into_iter().flatten() {
        scores.entry(at).or_default().0 = Some(score);
    }
    for (at, score) in by_meaning.into_iter().flatten() {
        scores.entry(at).or_default().1 = Some(score);
    }
    let mut fused: Vec<Fused> = scores
        .into_iter()
        .map(|(at, (by_words, by_meaning))| {
            let score = word_share * by_words.unwrap_or(0.0)
                + (1.0 - word_share) * by_meaning.unwrap_or(0.0);
            Fused { at, score, by_words, by_meaning }
        })
        .collect();
    fused.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.at.cmp(&b.at)));
    fused
}
