//! Finds the rows that have a yes or a no: "which cabins take dogs", "what is sold out".

use turnstream_schemas::RowOperation;

use super::super::columns::{ColumnValues, stem};
use super::super::words::ASKS;
use super::{Asked, Operation};

/// What asks for the rows with a no.
const NOT: [&str; 10] =
    ["not", "no", "without", "don't", "dont", "can't", "cant", "isn't", "aren't", "doesn't"];

impl Asked<'_> {
    /// Returns the rows for which a column says yes, or no, if the utterance asks which they are or how
    /// many.
    pub(super) fn flagged(&mut self) -> Option<Operation> {
        let counts = self.counts();
        let is_what =
            ["what", "whats", "what's"].iter().any(|it| self.words.iter().any(|word| word == it));
        let (column, holds) = self.flag()?;
        let asks =
            self.says(&self.known.which) && (!is_what || !holds || self.says(&self.known.have));
        if let Some((begin, end)) = counts {
            self.explain(begin..=end);
        }
        self.choose_words();
        let values = &self.table.columns[column].values;
        let is_it = |row: usize| match values {
            ColumnValues::Flags(flags) => flags[row] == Some(holds),
            ColumnValues::Numbers(numbers) => numbers[row].is_some_and(|it| (it > 0.0) == holds),
            ColumnValues::Kinds(_) => false,
        };
        let rows: Vec<usize> = self.rows.iter().copied().filter(|row| is_it(*row)).collect();
        let operation = if counts.is_some() { RowOperation::Count } else { RowOperation::Filter };
        let column = self.name(column).filter(|_| counts.is_none());
        ((asks || counts.is_some()) && self.is_explained() && self.rows.len() > 1)
            .then_some((rows, operation, column))
    }

    /// Returns the column of yes and no that the utterance is about, and which of the two it asks for.
    fn flag(&mut self) -> Option<(usize, bool)> {
        let known = self.known;
        let is_flags =
            |at: &usize| matches!(self.table.columns[*at].values, ColumnValues::Flags(_));
        let columns = 0..self.table.columns.len();
        let find = |phrase: &[String]| self.words.windows(phrase.len()).position(|it| it == phrase);
        for (phrase, names) in &known.without {
            let Some(begin) = find(phrase) else { continue };
            let with = |word: &String| columns.clone().find(|at| self.table.columns[*at].has(word));
            let column = names.iter().find_map(with)?;
            self.explain(begin..=begin + phrase.len() - 1);
            return Some((column, false));
        }
        let names = |at: &usize| {
            let words = &self.table.columns[*at].words;
            let mut own = words.iter().filter(|word| !known.bare.contains(*word)).peekable();
            own.peek().is_some() && own.all(|word| self.stems.contains(word))
        };
        let all =
            |at: &usize| self.table.columns[*at].words.iter().all(|it| self.stems.contains(it));
        let named = columns.clone().filter(is_flags).find(|at| names(at) || all(at));
        let asked = || {
            let mut plain = known.asks.iter().filter(|(.., weight)| *weight >= ASKS);
            plain.find_map(|(phrase, names, _)| {
                let begin = find(phrase)?;
                let mut flags = columns.clone().filter(is_flags);
                let column =
                    flags.find(|at| names.iter().any(|it| self.table.columns[*at].has(it)))?;
                Some((column, begin..=begin + phrase.len() - 1))
            })
        };
        let (column, places) =
            named.map(|it| (it, None)).or_else(|| asked().map(|(it, of)| (it, Some(of))))?;
        let no = self.words.iter().position(|word| NOT.contains(&&**word));
        self.explain_column(column);
        places.into_iter().chain(no.map(|at| at..=at)).for_each(|it| self.explain(it));
        // What is free of nuts is without nuts.
        let is_free = |word: &String| *word == stem("free");
        let is_of_lack =
            self.table.columns[column].words.iter().any(is_free) && !self.stems.iter().any(is_free);
        Some((column, no.is_none() != is_of_lack))
    }
}
