//! The realiser's answer from a row: the columns that the user asks for, by name, with the row's
//! subject.

use std::collections::BTreeSet;

use turnstream_schemas::{Column, TableRow};

use turnstream_knowledge::language::Lexicon;
use turnstream_knowledge::terms::terms;

use crate::tables::{self, subject};

/// Most columns in one response.
const MOST_COLUMNS: usize = 3;

/// Says the columns of a row whose names share a term with the question, or the first few if none
/// does. Returns `None` if the row has no column beside its subject.
pub(super) fn said(row: &TableRow, asked: &BTreeSet<String>, lexicon: &Lexicon) -> Option<String> {
    let subject = subject(&row.columns)?;
    let others = || row.columns.iter().filter(|column| column.name != subject.name);
    let is_asked = |column: &&Column| terms(&column.name).iter().any(|term| asked.contains(term));
    let mut columns: Vec<&Column> = others().filter(is_asked).take(MOST_COLUMNS).collect();
    if columns.is_empty() {
        columns = others().take(MOST_COLUMNS).collect();
    }
    tables::said(&row.columns, &columns, lexicon)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::table_row;

    fn answer(columns: &[(&str, &str)], asked: &str) -> Option<String> {
        said(&table_row(columns), &terms(asked).into_iter().collect(), Lexicon::of_text(asked))
    }

    #[test]
    fn the_columns_that_are_asked_for_are_said() {
        let lamp = [("item", "Oslo lamp"), ("price", "$49"), ("stock", "3"), ("colour", "blue")];
        let said = |asked| answer(&lamp, asked).expect("an answer");
        assert_eq!(said("What does it cost, I mean the price?"), "For Oslo lamp: price is $49.");
        assert_eq!(said("Colours and prices?"), "For Oslo lamp: price is $49 and colour is blue.");
        let all = "For Oslo lamp: price is $49, stock is 3 and colour is blue.";
        assert_eq!(said("Tell me about it."), all);
        assert_eq!(
            answer(&[("名称", "台灯"), ("价格", "49元")], "价格多少？").unwrap(),
            "台灯：价格是49元。"
        );
    }

    #[test]
    fn a_row_of_one_column_says_nothing() {
        assert_eq!(answer(&[("item", "Oslo lamp")], "The price?"), None);
        assert_eq!(answer(&[], "The price?"), None);
    }
}
