//! Finds the cells of one row that a Chinese turn asks for together: "价格和质保各是多少",
//! "多少钱，要多久".

use turnstream_schemas::{CellsAsked, Score};

use super::super::super::Row;
use super::super::Where;
use super::{ChineseNames, NamedRow, alike, precision, tokens, unexplained};
use crate::questions::segments;

impl ChineseNames {
    /// Returns the cells, two or more, that the segments of an utterance ask for, with the place of
    /// their row, if its words have a part in that. The row may be that of before.
    pub(super) fn asked_together(
        &self,
        utterance: &str,
        earlier: &[&str],
        rows: &[Row],
    ) -> Option<(usize, CellsAsked)> {
        let (row, at) = match self.named(utterance, &tokens(utterance)) {
            Some(row) => (row, Where::Here),
            None => {
                let mut before = earlier.iter().filter_map(|it| self.named(it, &tokens(it)));
                (before.find(|it| it.is_whole)?, Where::RowBefore)
            }
        };
        let (mut columns, mut open): (Vec<String>, usize) = (Vec::new(), 0);
        for segment in segments(utterance) {
            let text = tokens(segment);
            let used = match at {
                Where::RowBefore => Vec::new(),
                _ => alike(&text, &self.names[row.row]).of_text,
            };
            let of_row = NamedRow { used, ..row };
            let (column, asks) = self.column(&text, &of_row, rows);
            open += unexplained(&text, &[&*of_row.used, &asks].concat())?;
            if column.is_none() && !asks.is_empty() {
                return None;
            }
            let name = column.map(|it| &self.columns[it].name);
            columns.extend(name.filter(|it| !columns.contains(it)).cloned());
        }
        let precision = precision(at, row.is_whole, open).filter(|_| columns.len() > 1)?;
        let precision = Score::new(precision);
        Some((row.row, CellsAsked { columns, precision, by_meaning: Vec::new(), rest: None }))
    }
}
