//! Which sentences of a page are said.

use super::*;
use crate::testing::document;

const PRICES: &str = "Prices by size.

| power | price |
|---|---|
| 6 A | 3.50 EUR |
| 10 A | 4.50 EUR |
| 16 A | 6.00 EUR |
| Family (two adults, up to four children) | 36 EUR |
| Spare plug | 9 EUR |

Cables are lent.";

/// The places of the sentences that are said, where the reader gives them these logits.
fn chosen(utterance: &str, logits: &[f32]) -> Vec<usize> {
    let page = document("pages", "prices", PRICES, 0.9);
    let reading = Reading {
        scores: vec![logits.to_vec()],
        intents: [1.0, 0.0, 0.0, 0.0, 0.0],
        precision: 0.9,
    };
    let none = NearestPhrasings::default();
    choose(&[(0, &page)], &reading, &reading, utterance, &none, 3).expect("a choice").sentences
}

#[test]
fn of_a_table_in_a_page_the_row_that_is_named_is_said() {
    let rows = [-5.0, 2.0, 1.5, 2.1, 1.0, -5.0, 1.0];
    for (utterance, expected) in [
        ("what's it come to with ten amps", vec![2, 6]),
        ("the family one?", vec![4, 6]),
        // None, a part of one, or two are named.
        ("how much is power", vec![1, 2, 3]),
        ("my plug broke", vec![1, 2, 3]),
        ("6 or 10?", vec![1, 2, 3]),
        ("a family of four, two adults, or 6", vec![1, 2, 3]),
    ] {
        assert_eq!(chosen(utterance, &rows), expected, "{utterance}");
    }
    // Beside a sentence that answers no row is looked for.
    assert_eq!(chosen("cables for 10 amps?", &[-5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0]), [6]);
}
