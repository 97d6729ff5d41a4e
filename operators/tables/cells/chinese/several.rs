//! Finds the rows that a Chinese turn names together: "A和B哪个贵" compares them, "A和B各多少钱"
//! asks for one cell of each.

use turnstream_schemas::{RowOperation, RowsAsked};

use super::super::super::Row;
use super::super::super::columns::Columns;
use super::super::super::operations::compared_in_chinese;
use super::{ChineseNames, MOST_CHARACTERS, NamedRow, alike, tokens, unexplained};

/// The most rows that a turn names.
const MOST_NAMED: usize = 4;

impl ChineseNames {
    /// Returns the rows that an utterance names, two or more, if it compares them (the one that
    /// answers comes first) or asks for the same cell of each.
    pub(in super::super::super) fn asked_of_several(
        &self,
        utterance: &str,
        rows: &[Row],
        table: &Columns,
    ) -> Option<(Vec<usize>, RowsAsked)> {
        let text = tokens(utterance);
        if self.names.is_empty() || text.len() > MOST_CHARACTERS {
            return None;
        }
        let (named, used) = self.several(&text)?;
        let open = |at: usize| if used.contains(&at) { " " } else { &*text[at] };
        let rest: String = (0..text.len()).map(open).collect();
        compared_in_chinese(&rest, &named, table).or_else(|| {
            let row = NamedRow { row: named[0], is_whole: true, used };
            let (column, asks) = self.column(&text, &row, rows);
            let column = self.columns[column?].name.clone();
            let has = |row: &usize| rows[*row].columns.iter().any(|it| it.name == column);
            let is_sure = unexplained(&text, &[row.used, asks].concat()) == Some(0);
            (is_sure && named.iter().all(has)).then(|| {
                let operation = RowOperation::Compare;
                (named, RowsAsked { operation, column: Some(column), rest: None })
            })
        })
    }

    /// Returns the rows that a text names, in its order, and the places of the tokens that do.
    /// `None` if it names fewer than two or too many.
    fn several(&self, text: &[String]) -> Option<(Vec<usize>, Vec<usize>)> {
        let of_columns = self.of_columns(text);
        // Each row with the places that name no other, and with all that name it.
        let mut found: Vec<(Vec<usize>, Vec<usize>, usize)> = Vec::new();
        for row in self.by_pairs(text) {
            let name = &self.names[row];
            let like = alike(text, name);
            let pairs = like.runs.iter().flat_map(|run| run.clone().zip(run.clone().skip(1)));
            let alone = pairs.filter(|(at, next)| self.rows_of(&name[*at..=*next]) == 1);
            let alone: Vec<usize> = alone.flat_map(|(at, next)| [at, next]).collect();
            let places = like.of_text.iter().zip(&like.of_name);
            let places = places.filter(|(at, of)| alone.contains(of) && !of_columns.contains(at));
            let places: Vec<usize> = places.map(|(at, _)| *at).collect();
            if !places.is_empty() {
                found.push((places, like.of_text, row));
            }
        }
        found.sort_by_key(|(places, ..)| std::cmp::Reverse(places.len()));
        let mut named: Vec<(Vec<usize>, Vec<usize>, usize)> = Vec::new();
        for (places, used, row) in found {
            if !named.iter().any(|(of, ..)| of.iter().any(|at| places.contains(at))) {
                named.push((places, used, row));
            }
        }
        if !(2..=MOST_NAMED).contains(&named.len()) {
            return None;
        }
        named.sort_by_key(|(places, ..)| places.iter().min().copied());
        let used = named.iter().flat_map(|(_, used, _)| used).copied().collect();
        Some((named.iter().map(|(.., row)| *row).collect(), used))
    }
}
