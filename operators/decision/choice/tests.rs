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

#[test]
fn a_table_row_of_a_page_is_said_with_the_names_of_its_columns() {
    let text = "| Room | Power | Vocal mics |\n|---|---|---|\n| Hall | 800 W | 3 |\n| Booth | | 1 |\n| Loft | | |\n\n\
                | 租期 | 折扣 | 赠品 |\n|---|---|---|\n| 6个月 | 93折 | 纸箱 |";
    let page = document("pages", "rooms", text, 0.9);
    let told = |at: usize| said(&page, &[at], Lexicon::english()).expect("a row");
    assert_eq!(told(0), "Hall: power 800 W, vocal mics 3.");
    assert_eq!(told(1), "Booth: vocal mics 1.");
    assert_eq!(told(2), "Loft.");
    assert_eq!(told(3), "6个月: 折扣93折, 赠品纸箱.");
    let prices = document("pages", "prices", PRICES, 0.9);
    let told = said(&prices, &[2], Lexicon::english());
    assert_eq!(told.as_deref(), Some("10 A: 4.50 EUR."), "one column needs no name");
    let piped = document("pages", "pipes", "Type a | b to chain them.", 0.9);
    assert_eq!(
        said(&piped, &[0], Lexicon::english()).as_deref(),
        Some("Type a | b to chain them.")
    );
}
