//! Token F1 as in SQuAD's evaluation (Rajpurkar et al. 2016): the harmonic mean of precision and
//! recall over the tokens that response and reference share, with multiplicity. F1 is 1 if neither
//! has tokens, and 0 if one has none.

use std::collections::HashMap;

/// Returns F1 of the tokens, 0..=1.
pub fn f1(candidate: &[String], reference: &[String]) -> f64 {
    if candidate.is_empty() && reference.is_empty() {
        return 1.0;
    }
    let mut there: HashMap<&str, u64> = HashMap::new();
    for token in reference {
        *there.entry(token).or_default() += 1;
    }
    let mut common = 0_u64;
    for token in candidate {
        if let Some(left) = there.get_mut(&**token).filter(|left| **left > 0) {
            *left -= 1;
            common += 1;
        }
    }
    harmonic(common as f64, candidate.len() as f64, reference.len() as f64)
}

/// Returns the harmonic mean of `shared` ÷ `one` and `shared` ÷ `other`; 0 if nothing is shared.
pub(super) fn harmonic(shared: f64, one: f64, other: f64) -> f64 {
    if shared == 0.0 {
        return 0.0;
    }
    let (precision, recall) = (shared / one, shared / other);
    2.0 * precision * recall / (precision + recall)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ENGLISH, near};
    use super::super::tokens::Tokenisation;
    use super::*;

    /// The figures are those of SQuAD's evaluation script on the same pairs.
    #[test]
    fn figures_are_those_of_squad() {
        let figures = [
            0.823529411764706,
            0.6153846153846153,
            0.75,
            0.0,
            0.22222222222222224,
            0.7777777777777778,
            1.0,
        ];
        for ((text, reference), figure) in ENGLISH.iter().zip(figures) {
            let tokens = |text| Tokenisation::English.f1(text);
            near(f1(&tokens(text), &tokens(reference)), figure);
        }
        assert_eq!(f1(&[], &[]), 1.0);
        assert_eq!(f1(&[], &["tea".to_owned()]), 0.0);
    }
}
