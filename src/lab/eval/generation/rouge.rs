//! ROUGE (Lin 2004) as rouge-score defines it: F of matching n-grams (ROUGE-1, ROUGE-2) and of the
//! longest common subsequence (ROUGE-L) for each response, without stemming. The figure is the mean
//! over responses.

use std::collections::HashMap;

use super::overlap::harmonic;

/// Returns ROUGE-N's F of n-grams of `n` tokens, 0..=1.
pub fn rouge_n(n: usize, candidate: &[String], reference: &[String]) -> f64 {
    let mut there: HashMap<&[String], u64> = HashMap::new();
    for gram in reference.windows(n) {
        *there.entry(gram).or_default() += 1;
    }
    let mut matched = 0_u64;
    for gram in candidate.windows(n) {
        if let Some(left) = there.get_mut(gram).filter(|left| **left > 0) {
            *left -= 1;
            matched += 1;
        }
    }
    let grams = |tokens: &[String]| (tokens.len() + 1).saturating_sub(n);
    harmonic(matched as f64, grams(candidate) as f64, grams(reference) as f64)
}

/// Returns ROUGE-L's F, 0..=1.
pub fn rouge_l(candidate: &[String], reference: &[String]) -> f64 {
    // The longest common subsequence so far, by position in the reference.
    let mut row = vec![0_usize; reference.len() + 1];
    for token in candidate {
        let mut diagonal = 0;
        for (at, other) in reference.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if token == other { diagonal + 1 } else { above.max(row[at]) };
            diagonal = above;
        }
    }
    let longest = row.last().copied().unwrap_or_default();
    harmonic(longest as f64, candidate.len() as f64, reference.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CHINESE, ENGLISH, near};
    use super::super::tokens::Tokenisation;
    use super::*;

    /// The figures are those of rouge-score 0.1.2, `RougeScorer(["rouge1", "rouge2", "rougeL"])`;
    /// for Chinese with a tokenizer of the same tokens as ours.
    #[test]
    fn figures_are_those_of_rouge_score() {
        let english = [
            [0.7826086956521738, 0.5714285714285713, 0.7826086956521738],
            [0.7777777777777778, 0.625, 0.7777777777777778],
            [0.7000000000000001, 0.5555555555555556, 0.7000000000000001],
            [0.0, 0.0, 0.0],
            [0.18181818181818182, 0.0, 0.18181818181818182],
            [0.8695652173913043, 0.47619047619047616, 0.7826086956521738],
            [1.0, 1.0, 1.0],
        ];
        let chinese = [
            [0.5714285714285715, 0.3157894736842105, 0.5714285714285715],
            [0.6666666666666666, 0.30769230769230765, 0.6666666666666666],
            [0.9090909090909091, 0.888888888888889, 0.9090909090909091],
            [0.0, 0.0, 0.0],
        ];
        let check = |tokenisation: Tokenisation, pairs: &[(&str, &str)], figures: &[[f64; 3]]| {
            assert_eq!(pairs.len(), figures.len());
            for ((text, reference), figures) in pairs.iter().zip(figures) {
                let (text, reference) = (tokenisation.rouge(text), tokenisation.rouge(reference));
                near(rouge_n(1, &text, &reference), figures[0]);
                near(rouge_n(2, &text, &reference), figures[1]);
                near(rouge_l(&text, &reference), figures[2]);
            }
        };
        check(Tokenisation::English, &ENGLISH, &english);
        check(Tokenisation::Chinese, &CHINESE, &chinese);
    }

    #[test]
    fn words_are_not_stemmed() {
        let tokens = |text| Tokenisation::English.rouge(text);
        assert_eq!(rouge_n(1, &tokens("cats boiled"), &tokens("cat boils")), 0.0);
    }
}
