//! BLEU (Papineni et al. 2002) as sacrebleu defines it: clipped n-gram counts summed over the
//! corpus, exponential smoothing, the brevity penalty, and one reference per response.

use std::collections::HashMap;
use std::ops::AddAssign;

/// The length of the longest n-grams.
const ORDER: usize = 4;

/// The counts behind BLEU, summed over responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BleuCounts {
    candidate_tokens: u64,
    reference_tokens: u64,
    /// By n − 1: n-grams of the responses that occur in their references, clipped to the count
    /// there.
    matched: [u64; ORDER],
    /// By n − 1: n-grams of the responses.
    all: [u64; ORDER],
}

impl AddAssign for BleuCounts {
    fn add_assign(&mut self, other: Self) {
        self.candidate_tokens += other.candidate_tokens;
        self.reference_tokens += other.reference_tokens;
        for n in 0..ORDER {
            self.matched[n] += other.matched[n];
            self.all[n] += other.all[n];
        }
    }
}

impl BleuCounts {
    /// Counts one response.
    pub fn of(candidate: &[String], reference: &[String]) -> Self {
        let mut counts = Self {
            candidate_tokens: candidate.len() as u64,
            reference_tokens: reference.len() as u64,
            ..Self::default()
        };
        for n in 1..=ORDER {
            let there = grams(reference, n);
            for (gram, times) in grams(candidate, n) {
                counts.all[n - 1] += times;
                counts.matched[n - 1] += times.min(there.get(gram).copied().unwrap_or_default());
            }
        }
        counts
    }

    /// Returns BLEU of n-grams up to `order` tokens (1 to 4), 0..=100.
    pub fn bleu(&self, order: usize) -> f64 {
        let order = order.clamp(1, ORDER);
        if self.matched[..order].iter().all(|matched| *matched == 0) {
            return 0.0;
        }
        let (mut halved, mut logarithms) = (1.0, 0.0);
        for n in 0..order {
            // No response has this many tokens, so the precision is 0.
            if self.all[n] == 0 {
                return 0.0;
            }
            let all = self.all[n] as f64;
            let precision = if self.matched[n] == 0 {
                halved *= 2.0;
                100.0 / (halved * all)
            } else {
                100.0 * self.matched[n] as f64 / all
            };
            logarithms += precision.ln();
        }
        let (candidate, reference) = (self.candidate_tokens as f64, self.reference_tokens as f64);
        let brevity = if candidate < reference { (1.0 - reference / candidate).exp() } else { 1.0 };
        brevity * (logarithms / order as f64).exp()
    }
}

/// Counts each n-gram of a text.
fn grams(tokens: &[String], n: usize) -> HashMap<&[String], u64> {
    let mut grams = HashMap::new();
    for gram in tokens.windows(n) {
        *grams.entry(gram).or_default() += 1;
    }
    grams
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CHINESE, ENGLISH, near};
    use super::super::tokens::Tokenisation;
    use super::*;

    fn counts(tokenisation: Tokenisation, (text, reference): (&str, &str)) -> BleuCounts {
        BleuCounts::of(&tokenisation.bleu(text), &tokenisation.bleu(reference))
    }

    /// The figures are those of sacrebleu 2.6.0, `BLEU(tokenize=…,
    /// max_ngram_order=…).corpus_score`.
    #[test]
    fn figures_are_those_of_sacrebleu() {
        let english = [
            [58.333333333333336, 17.242221289766636],
            [49.99999999999999, 16.59038701421971],
            [69.23076923076921, 39.832871551569504],
            [0.0, 0.0],
            [9.196986029286057, 5.876350803261633],
            [88.23529411764704, 52.073320642467216],
            [100.00000000000004, 0.0],
        ];
        let chinese = [
            [57.14285714285717, 29.89950354998137],
            [49.71329537857609, 19.969395881889398],
            [49.99999999999999, 19.64073254502565],
            [0.0, 0.0],
        ];
        let check = |tokenisation, pairs: &[(&str, &str)], figures: &[[f64; 2]], all: [f64; 2]| {
            assert_eq!(pairs.len(), figures.len());
            let mut sum = BleuCounts::default();
            for (pair, figures) in pairs.iter().zip(figures) {
                let counts = counts(tokenisation, *pair);
                near(counts.bleu(1), figures[0]);
                near(counts.bleu(4), figures[1]);
                sum += counts;
            }
            near(sum.bleu(1), all[0]);
            near(sum.bleu(4), all[1]);
        };
        let all = [62.94709539896285, 30.79647463936664];
        check(Tokenisation::English, &ENGLISH, &english, all);
        let all = [54.54545454545453, 23.01524361091521];
        check(Tokenisation::Chinese, &CHINESE, &chinese, all);
    }
}
