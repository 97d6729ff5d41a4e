//! Selects the weighed texts that fit a budget of tokens.

use turnstream_knowledge::language::is_han;

/// Estimates the tokens of a text without a model: one for every Chinese character, and one for every
/// four bytes of other text, rounded up.
pub fn estimated_tokens(text: &str) -> u32 {
    let (mut characters, mut bytes) = (0, 0);
    for character in text.chars() {
        if is_han(character) {
            characters += 1;
        } else {
            bytes += character.len_utf8();
        }
    }
    u32::try_from(characters + bytes.div_ceil(4)).unwrap_or(u32::MAX)
}

/// Returns which texts fit: takes them by falling share, of equals the first, and keeps each that
/// still fits.
pub(super) fn kept(shares: &[f64], tokens: &[u32], budget: u32) -> Vec<bool> {
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|a, b| shares[*b].total_cmp(&shares[*a]));
    let (mut kept, mut left) = (vec![false; shares.len()], budget);
    for place in order {
        if let Some(rest) = left.checked_sub(tokens[place]) {
            (kept[place], left) = (true, rest);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_characters_or_quarters_of_words() {
        assert_eq!(estimated_tokens(""), 0);
        assert_eq!(estimated_tokens("lake"), 1);
        assert_eq!(estimated_tokens("lakes"), 2);
        assert_eq!(estimated_tokens("长城很长"), 4);
        assert_eq!(estimated_tokens("长城 wifi"), 4);
    }

    #[test]
    fn what_has_the_least_attention_is_left_out_first() {
        let shares = [0.1, 0.4, 0.2, 0.3];
        assert_eq!(kept(&shares, &[5, 5, 5, 5], 20), [true; 4]);
        assert_eq!(kept(&shares, &[5, 5, 5, 5], 19), [false, true, true, true]);
        assert_eq!(kept(&shares, &[5, 5, 5, 5], 10), [false, true, false, true]);
        assert_eq!(kept(&shares, &[5, 30, 5, 5], 10), [false, false, true, true], "too long alone");
        assert_eq!(kept(&[0.5, 0.5], &[5, 5], 5), [true, false], "of equals the first");
        assert_eq!(kept(&[], &[], 5), [false; 0]);
    }
}
