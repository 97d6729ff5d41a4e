//! Distinct-2 (Li et al. 2016): how varied the responses are among themselves.
//!
//! Distinct bigrams of all responses, divided by the tokens of all responses; no bigram reaches
//! from one response into the next. DCRAG cites that definition and says no more, but for its
//! size: only over the corpus do 300 responses of three sentences come to 57 %; response by
//! response, nearly every bigram is distinct. Tokens are BLEU's ([`super::tokens`]) in lower case,
//! punctuation included.
//!
//! It falls with the number of responses, so that figures over corpora of different sizes say
//! nothing of each other: [`Bigrams::of_samples`] gives it at the paper's size.

use std::collections::{HashMap, HashSet};

use super::tokens::Tokenisation;

/// The responses of DCRAG's test set.
pub const SAMPLE: usize = 300;
/// Samples that [`Bigrams::of_samples`] draws.
const DRAWS: usize = 100;
/// Seeds the drawing.
const SEED: u64 = 2;

/// The bigrams of responses, by number.
pub struct Bigrams {
    /// By response.
    bigrams: Vec<Vec<u64>>,
    /// By response.
    tokens: Vec<usize>,
}

impl Bigrams {
    /// Those of some responses.
    pub fn new<'t>(tokenisation: Tokenisation, texts: impl Iterator<Item = &'t str>) -> Self {
        let mut numbers = HashMap::new();
        let (mut bigrams, mut tokens) = (Vec::new(), Vec::new());
        for text in texts {
            let words: Vec<u64> = tokenisation
                .bleu(&text.to_lowercase())
                .into_iter()
                .map(|token| {
                    let next = numbers.len() as u64;
                    *numbers.entry(token).or_insert(next)
                })
                .collect();
            bigrams.push(words.windows(2).map(|pair| pair[0] << 32 | pair[1]).collect());
            tokens.push(words.len());
        }
        Self { bigrams, tokens }
    }

    /// Distinct-2 of all responses, 0..=1; `None` where they have no token.
    pub fn of_all(&self) -> Option<f64> {
        self.of(0..self.bigrams.len())
    }

    /// The mean Distinct-2 of a hundred samples of [`SAMPLE`] responses, each drawn without
    /// repeating one; `None` where there are fewer.
    pub fn of_samples(&self) -> Option<f64> {
        let mut places: Vec<usize> = (0..self.bigrams.len()).collect();
        if places.len() < SAMPLE {
            return None;
        }
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut sum = 0.0;
        for _ in 0..DRAWS {
            for at in 0..SAMPLE {
                places.swap(at, random.usize(at..self.bigrams.len()));
            }
            sum += self.of(places[..SAMPLE].iter().copied())?;
        }
        Some(sum / DRAWS as f64)
    }

    fn of(&self, responses: impl Iterator<Item = usize>) -> Option<f64> {
        let (mut distinct, mut tokens) = (HashSet::<u64>::new(), 0);
        for at in responses {
            distinct.extend(&self.bigrams[at]);
            tokens += self.tokens[at];
        }
        (tokens > 0).then(|| distinct.len() as f64 / tokens as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bigrams<'t>(texts: impl IntoIterator<Item = &'t str>) -> Bigrams {
        Bigrams::new(Tokenisation::English, texts.into_iter())
    }

    #[test]
    fn distinct_bigrams_are_counted_over_all_responses() {
        // "tea is", "is nice", "nice ." and "is hot", "hot ."; eight tokens, one empty response.
        let texts = ["Tea is nice.", "", "tea is hot."];
        assert_eq!(bigrams(texts).of_all(), Some(5.0 / 8.0));
        assert_eq!(bigrams(["", "  "]).of_all(), None);
        assert_eq!(bigrams(["tea"]).of_all(), Some(0.0));
        assert_eq!(
            Bigrams::new(Tokenisation::Chinese, ["好好好"].into_iter()).of_all(),
            Some(1.0 / 3.0)
        );
    }

    #[test]
    fn samples_have_the_papers_size_and_repeat_themselves() {
        assert_eq!(bigrams(["a b"; SAMPLE - 1]).of_samples(), None);
        let same = bigrams(["a b"; SAMPLE + 5]).of_samples().expect("enough");
        assert!((same - 1.0 / (2.0 * SAMPLE as f64)).abs() < 1e-12, "{same}");
        let texts: Vec<String> =
            (0..3 * SAMPLE).map(|at| format!("{} {}", at % 40, at % 7)).collect();
        let bigrams = bigrams(texts.iter().map(String::as_str));
        let (all, samples) = (bigrams.of_all().expect("one"), bigrams.of_samples().expect("one"));
        assert!(samples > all, "fewer repeat less: {samples} {all}");
        assert_eq!(bigrams.of_samples(), Some(samples));
    }
}
