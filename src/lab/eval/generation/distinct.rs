//! Distinct-2 (Li et al. 2016): the variety of the responses among themselves.
//!
//! The number of distinct bigrams of all responses, divided by the number of tokens of all
//! responses; bigrams do not cross from one response into the next. DCRAG cites this definition
//! without details, but the size of its figures confirms it: 300 responses of three sentences have
//! 57 % only over the corpus, while within one response nearly every bigram is distinct. Tokens are
//! BLEU's ([`super::tokens`]) in lower case, including punctuation.
//!
//! Distinct-2 falls with the number of responses, so corpora of different sizes cannot be compared:
//! [`Bigrams::of_samples`] computes it at the paper's size.

use std::collections::{HashMap, HashSet};

use super::tokens::Tokenisation;

/// The number of responses in DCRAG's test set.
pub const SAMPLE: usize = 300;
/// The number of samples that [`Bigrams::of_samples`] draws.
const DRAWS: usize = 100;
/// Seeds the samples.
const SEED: u64 = 2;

/// The bigrams of responses, as numbers.
pub struct Bigrams {
    /// By response.
    bigrams: Vec<Vec<u64>>,
    /// By response.
    tokens: Vec<usize>,
}

impl Bigrams {
    /// Collects the bigrams of texts.
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

    /// Returns Distinct-2 of all responses, 0..=1; `None` without tokens.
    pub fn of_all(&self) -> Option<f64> {
        self.of(0..self.bigrams.len())
    }

    /// Returns the mean Distinct-2 of a hundred samples of [`SAMPLE`] responses, each drawn without
    /// replacement; `None` if there are fewer responses.
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
