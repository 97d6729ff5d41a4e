//! Finds the cells of one row that an English turn asks for together: "price and size of the Bergen
//! please", "is it dimmable, and how heavy?"

use turnstream_schemas::{CellsAsked, Score};

use super::{Cells, Named, Text, Where, precision};
use crate::questions::segments;

impl Cells<'_> {
    /// Returns the cells, two or more, that the segments of an utterance ask for, with the place of
    /// their row, if its words have a part in that. The row may be that of before.
    pub(super) fn asked_together(
        &self,
        utterance: &str,
        earlier: &[&str],
    ) -> Option<(usize, CellsAsked)> {
        let segments = segments(utterance);
        let text = Text::of(utterance);
        let (row, at) = match self.named(&text) {
            Some(row) => (row, Where::Here),
            None => {
                let mut before = earlier.iter().filter_map(|it| self.named(&Text::of(it)));
                let row = before.find(|it| it.is_whole)?;
                (Named { used: Vec::new(), ..row }, Where::RowBefore)
            }
        };
        let names: Vec<&String> = row.used.iter().map(|at| &text.words[*at]).collect();
        let (mut columns, mut unexplained): (Vec<String>, usize) = (Vec::new(), 0);
        for segment in segments {
            let text = Text::of(segment);
            let used = (0..text.words.len()).filter(|at| names.contains(&&text.words[*at]));
            let of_row = Named { used: used.collect(), ..row };
            let (column, asks) = self.column(&text, &of_row);
            unexplained += text.unexplained(&[&of_row.used, &asks])?;
            if column.is_none() && !asks.is_empty() {
                return None;
            }
            let name = column.map(|it| &self.table.columns[it].name);
            columns.extend(name.filter(|it| !columns.contains(it)).cloned());
        }
        let precision = precision(at, row.is_whole, unexplained).filter(|_| columns.len() > 1)?;
        let precision = Score::new(precision);
        Some((row.row, CellsAsked { columns, precision, by_meaning: Vec::new(), rest: None }))
    }
}
