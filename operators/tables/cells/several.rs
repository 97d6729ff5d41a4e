//! Finds the rows that an English turn names together and the cell that it asks of each: "how much are
//! the Oslo and the Bergen?" What compares them ("which is lighter") is found in
//! [`operations`](super::super::operations).

use turnstream_schemas::{RowOperation, RowsAsked};

use super::super::words::KNOWN;
use super::{Cells, MOST_WORDS, Named, Text};

/// The most rows that a turn names.
const MOST_NAMED: usize = 4;
/// What stands between rows that are named together.
const JOINS: [&str; 5] = ["and", "or", "vs", "versus", "than"];

impl Cells<'_> {
    /// Returns the rows that an utterance names, two or more, in its order, if it asks for the same
    /// cell of each, and every word of it has a part in that.
    pub(in super::super) fn asked_of_several(
        &self,
        utterance: &str,
    ) -> Option<(Vec<usize>, RowsAsked)> {
        let spelled = [", ", " & ", "/"]
            .iter()
            .fold(utterance.to_owned(), |text, joint| text.replace(joint, " and "));
        let text = Text::of(&spelled);
        if text.words.len() > MOST_WORDS {
            return None;
        }
        let compares = (0..text.words.len()).filter(|at| KNOWN.compares.contains(&text.words[*at]));
        let compares: Vec<usize> = compares.collect();
        let (named, used) = self.several(&text)?;
        let first = Named { row: named[0], is_whole: true, used };
        let (column, asks) = self.column(&text, &first);
        let column = self.table.columns[column?].name.clone();
        let has = |row: &usize| self.rows[*row].columns.iter().any(|it| it.name == column);
        let is_sure = text.unexplained(&[&first.used, &asks, &compares]) == Some(0);
        (is_sure && named.iter().all(has)).then(|| {
            let operation = RowOperation::Compare;
            (named, RowsAsked { operation, column: Some(column), rest: None })
        })
    }

    /// Returns the rows that a text names by words that no other name has, in its order, and the places of
    /// the words of their names. `None` if it names fewer than two or too many, or if
    /// nothing joins two of them.
    fn several(&self, text: &Text) -> Option<(Vec<usize>, Vec<usize>)> {
        let like = self.like(text);
        let own = like.iter().filter(|(at, stem)| !text.is_said(*at) && !self.is_of_column(stem));
        let own: Vec<&(usize, String)> = own.collect();
        let (mut named, mut before): (Vec<usize>, Option<(usize, usize)>) = (Vec::new(), None);
        for (at, stem) in &own {
            let rows = self.table.names.get(stem).map(Vec::as_slice);
            let Some([row]) = rows.filter(|_| !self.table.kinds.contains_key(stem)) else {
                continue;
            };
            let is_joined = |(last, of): (usize, usize)| {
                of == *row || text.words[last..*at].iter().any(|it| JOINS.contains(&&**it))
            };
            if !before.is_none_or(is_joined) {
                return None;
            }
            before = Some((*at, *row));
            if !named.contains(row) {
                named.push(*row);
            }
        }
        let is_of_named =
            |stem: &String| named.iter().any(|row| self.names.names[*row].contains(stem));
        if !(2..=MOST_NAMED).contains(&named.len()) {
            return None;
        }
        let used = like.iter().filter(|(_, stem)| is_of_named(stem)).map(|(at, _)| *at).collect();
        Some((named, used))
    }
}
