//! Finds row operations, what a turn asks of several rows at once: the cheapest, those under an
//! amount, those of a kind, how many there are, the lighter one of two.
//!
//! The operations are typed: they compare numbers, and choose rows by `yes` and `no`. One is found
//! only if every word of the utterance has its part in it: an operation, a column, a value, a name,
//! or one of the words that mean nothing here. A word that nothing explains may be a condition that
//! the table does not know. In English and Chinese; the rows that a Chinese utterance compares by
//! name are found in [`cells`](super::cells).

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;
use turnstream_ports::script::is_chinese;
use turnstream_schemas::{RowOperation, RowsAsked};

use super::cells::{NUMBERS, SHARED};
use super::columns::{ColumnValues, Columns, amount, stem, words_and_amounts};
use super::words::{CHINESE_WORDS, KNOWN, Words, chinese_words};
use crate::questions::asks;

mod bounds;
mod flags;

/// The most words of an utterance that asks for an operation. Longer ones tell a story, in which
/// words are more than an operation.
const MOST_WORDS: usize = 20;
/// The most rows of an answer. More answer no question of a conversation.
const MOST_ROWS: usize = 64;

/// The degree of a comparison: "lighter" compares named rows, "the lightest" all rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Degree {
    Comparative,
    Superlative,
}

/// An utterance in which an operation is sought.
struct Asked<'t> {
    table: &'t Columns,
    known: &'static Words,
    words: Vec<String>,
    stems: Vec<String>,
    explained: Vec<bool>,
    /// The rows that are left, and whether a value or name has chosen them.
    rows: Vec<usize>,
    is_chosen: bool,
}

/// Finds the row operation of an utterance, with the rows that answer, the best first. Returns
/// `None` if the utterance asks for none, or not certainly for one.
pub(super) fn asked(utterance: &str, table: &Columns) -> Option<(Vec<usize>, RowsAsked)> {
    let found = found(utterance, table)?;
    let is_few = !found.0.is_empty() && found.0.len() <= MOST_ROWS;
    is_few.then_some(found)
}

/// Whether an utterance certainly asks for rows of which there are none, such as those under an amount.
pub(super) fn none_fits(utterance: &str, table: &Columns) -> bool {
    found(utterance, table).is_some_and(|(rows, _)| rows.is_empty())
}

fn found(utterance: &str, table: &Columns) -> Option<(Vec<usize>, RowsAsked)> {
    let mut asked = Asked::of(utterance, table);
    if asked.words.is_empty() || asked.words.len() > MOST_WORDS {
        return None;
    }
    let (rows, operation, column) = asked.operation()?;
    Some((rows, RowsAsked { operation, column, rest: None }))
}

/// Whether an utterance compares rows, and a row is not the answer as far as the table can tell: another
/// one has more or less, the amount is beyond the bound, or the table has no such column.
pub(super) fn contradicts(utterance: &str, table: &Columns, row: usize) -> bool {
    let mut asked = Asked::of(utterance, table);
    if !bounds::compares(&asked.words, asked.known) {
        return false;
    }
    asked.choose_kinds();
    let extreme = asked.extreme().filter(|(degree, ..)| *degree == Degree::Superlative);
    if let Some((_, is_most, columns)) = extreme {
        let rows = asked.first_rows(is_most, columns[0]);
        return rows.is_none_or(|rows| !rows.contains(&row));
    }
    let fits = asked.bound().and_then(|(is_less, amount, column)| {
        let number = (*asked.numbers_of(column)?.get(row)?)?;
        Some(if is_less { number <= amount } else { number >= amount })
    });
    fits != Some(true)
}

/// Whether a part of an utterance in English tells something that chooses no rows: it asks nothing and
/// has no word of the table, no amount and no negation.
pub(super) fn tells(part: &str, table: &Columns) -> bool {
    let chooses = |word: &String| {
        let stem = stem(word);
        let is_of_column = || table.columns.iter().any(|it| it.words.contains(&stem));
        let is_of_row = || table.names.contains_key(&stem) || table.kinds.contains_key(&stem);
        let is_no = || matches!(&**word, "not" | "no" | "nothing" | "without" | "except" | "but");
        let is_number = || NUMBERS.iter().any(|(name, _)| name == word);
        let is_said = KNOWN.said.contains(word) || KNOWN.asides.contains(word);
        is_no()
            || is_number()
            || amount(word).is_some()
            || !is_said && (is_of_column() || is_of_row())
    };
    !is_chinese(part) && !asks(part) && !words_and_amounts(part).iter().any(chooses)
}

/// Finds the comparison that a Chinese utterance makes of the rows that it names; `rest` is the
/// utterance without their names. Returns all of them, the one that answers first.
pub(super) fn compared_in_chinese(
    rest: &str,
    named: &[usize],
    table: &Columns,
) -> Option<(Vec<usize>, RowsAsked)> {
    let known = &*CHINESE_WORDS;
    let of_table = table.chinese.union(&known.compares).cloned().collect();
    let words = chinese_words(rest, &of_table);
    let is_said =
        |word| [&known.said, &known.which, &known.compares].into_iter().any(|it| it.contains(word));
    let explained = words.iter().map(is_said).collect();
    let (stems, rows) = (words.clone(), named.to_vec());
    let mut asked = Asked { table, known, words, stems, explained, rows, is_chosen: true };
    let (is_most, column) = asked.comparative_in_chinese()?;
    let rows = asked.sorted(is_most, column);
    let operation = RowOperation::Compare;
    (asked.is_explained() && rows.len() == named.len())
        .then(|| (rows, RowsAsked { operation, column: asked.name(column), rest: None }))
}

type Operation = (Vec<usize>, RowOperation, Option<String>);

impl<'t> Asked<'t> {
    fn of(utterance: &str, table: &'t Columns) -> Self {
        let (known, words) = if is_chinese(utterance) {
            (&*CHINESE_WORDS, chinese_words(utterance, &table.chinese))
        } else {
            (&*KNOWN, words_and_amounts(utterance))
        };
        let stems = words.iter().map(|word| stem(word)).collect();
        let of_no_part = [&known.said, &known.which, &known.have, &known.verbs];
        let is_said = |word| of_no_part.into_iter().any(|it| it.contains(word));
        let explained = words.iter().map(is_said).collect();
        let rows = (0..table.rows).collect();
        Self { table, known, words, stems, explained, rows, is_chosen: false }
    }

    fn operation(&mut self) -> Option<Operation> {
        let is_bound = bounds::beyond(&self.words, self.known).is_some();
        let extreme = if is_bound { None } else { self.extreme() };
        let bound = if extreme.is_none() { self.bound() } else { None };
        self.choose_kinds();
        if let Some((degree, is_most, columns)) = extreme {
            self.explain_column(columns[0]);
            let compared = self.compared(is_most, columns[0]);
            let best = |asked: &mut Self| asked.best(is_most, &columns);
            return compared.or_else(|| (degree == Degree::Superlative).then(|| best(self))?);
        }
        if let Some((is_less, amount, column)) = bound {
            return self.within(is_less, amount, column);
        }
        self.flagged().or_else(|| self.counted()).or_else(|| self.listed())
    }

    /// Returns the columns that a superlative or comparative may be about, one at least, and whether it
    /// asks for the most of it.
    fn extreme(&mut self) -> Option<(Degree, bool, Vec<usize>)> {
        for at in 0..self.words.len() {
            if let Some((is_most, place, columns)) = self.named_amount(at) {
                self.explain(at..=at);
                self.explain(place..=place);
                return Some((Degree::Superlative, is_most, columns));
            }
        }
        let of_word = |word: &String| self.known.extremes.get(word);
        let (at, extreme) =
            self.words.iter().enumerate().rev().find_map(|(at, it)| Some((at, of_word(it)?)))?;
        let before = at.checked_sub(1).map(|it| &*self.words[it]);
        let is_least = matches!(before, Some("least" | "less"));
        let is_step = is_least || matches!(before, Some("most" | "more"));
        let degree = match (&*self.words[at], before) {
            (word, _) if word.ends_with("est") || word.starts_with('最') => Degree::Superlative,
            (_, Some("most" | "least")) => Degree::Superlative,
            (word, _) if word.ends_with("er") || is_step => Degree::Comparative,
            _ => return None,
        };
        let columns = self.all_numbers(&extreme.columns)?;
        self.explain(at - usize::from(is_step)..=at);
        Some((degree, extreme.is_most != is_least, columns))
    }

    /// Returns whether a Chinese comparative asks for the most, and its column: 贵 is what 最贵 is
    /// about, and 多 asks for the most of a column that is named.
    fn comparative_in_chinese(&mut self) -> Option<(bool, usize)> {
        let known = self.known;
        let is_most_of = |word: &str| known.extremes.contains_key(&format!("最{word}"));
        // 多重 asks for a weight, and compares none.
        if self.words.windows(2).any(|pair| pair[0] == "多" && is_most_of(&pair[1])) {
            return None;
        }
        let named = |asked: &Self, at: usize| {
            let word = std::slice::from_ref(&asked.words[at]);
            let of_unit = || asked.numbers(known.units.get(&word[0])?);
            asked.numbers(word).or_else(of_unit).map(|column| (at, column))
        };
        (0..self.words.len()).find_map(|at| {
            let most = format!("最{}", self.words[at]);
            let of_word = known.extremes.get(&most);
            if let Some((is_most, column)) =
                of_word.and_then(|it| Some((it.is_most, self.numbers(&it.columns)?)))
            {
                self.explain(at..=at);
                return Some((is_most, column));
            }
            let is_most = *known.amounts.get(&most)?;
            let others = (0..self.words.len()).filter(|other| *other != at);
            let (place, column) = others.filter_map(|other| named(self, other)).next()?;
            self.explain(at..=at);
            self.explain(place..=place);
            Some((is_most, column))
        })
    }

    /// Reads a word with the column beside it, as in "the highest deposit" or "costs most". Returns
    /// whether it asks for the most, where the column is, and which it may be.
    fn named_amount(&self, at: usize) -> Option<(bool, usize, Vec<usize>)> {
        let is_most = *self.known.amounts.get(&self.words[at])?;
        let behind = (1..=3).map(|step| at + step);
        let before = (1..=3).filter_map(|step| at.checked_sub(step));
        behind.chain(before).find_map(|place| {
            let word = self.stems.get(place)?;
            let columns = self.all_numbers(std::slice::from_ref(word));
            let of_unit = || self.known.units.get(&self.words[place]);
            Some((is_most, place, columns.or_else(|| self.all_numbers(of_unit()?))?))
        })
    }

    /// Returns the first column of [`Self::all_numbers`].
    fn numbers(&self, words: &[String]) -> Option<usize> {
        self.all_numbers(words)?.first().copied()
    }

    /// Returns the columns of numbers with the first of these words that any has, those with most words
    /// in the utterance.
    fn all_numbers(&self, words: &[String]) -> Option<Vec<usize>> {
        words.iter().map(|word| self.numbers_with(word)).find(|it| !it.is_empty())
    }

    fn numbers_with(&self, word: &str) -> Vec<usize> {
        let columns = &self.table.columns;
        let is_one = |at: &usize| {
            matches!(columns[*at].values, ColumnValues::Numbers(_)) && columns[*at].has(word)
        };
        self.most_said((0..columns.len()).filter(is_one).collect())
    }

    /// Keeps the columns with most words in the utterance.
    fn most_said(&self, mut columns: Vec<usize>) -> Vec<usize> {
        let said = |at: &usize| {
            let words = self.table.columns[*at].words.iter();
            words.filter(|word| self.stems.contains(word)).count()
        };
        let most = columns.iter().map(said).max();
        columns.retain(|at| Some(said(at)) == most);
        columns
    }

    /// Explains the words of a column's name.
    fn explain_column(&mut self, column: usize) {
        for (explained, stem) in self.explained.iter_mut().zip(&self.stems) {
            *explained |= self.table.columns[column].words.contains(stem);
        }
    }

    fn name(&self, column: usize) -> Option<String> {
        Some(self.table.columns[column].name.clone())
    }

    /// Keeps the rows with the values that are named. Of several named values of one column a row
    /// needs one.
    fn choose_kinds(&mut self) {
        for column in &self.table.columns {
            let ColumnValues::Kinds(kinds) = &column.values else { continue };
            let mut chosen: BTreeSet<usize> = BTreeSet::new();
            for (value, rows) in kinds {
                if value.iter().all(|word| self.stems.contains(word)) {
                    chosen.extend(rows);
                    for at in 0..self.stems.len() {
                        self.explained[at] |= value.contains(&self.stems[at]);
                    }
                }
            }
            if !chosen.is_empty() {
                self.rows.retain(|row| chosen.contains(row));
                self.is_chosen = true;
            }
        }
    }

    /// Returns the words that nothing explains and that names have, each with the rows whose names
    /// have it.
    fn names(&self) -> Vec<(usize, &Vec<usize>)> {
        let open = (0..self.words.len()).filter(|at| !self.explained[*at]);
        open.filter_map(|at| Some((at, self.table.names.get(&self.stems[at])?))).collect()
    }

    /// Keeps the rows whose names, or else whose kinds, have the words that nothing else explains.
    fn choose_words(&mut self) {
        let table = self.table;
        for at in 0..self.words.len() {
            let word = &self.stems[at];
            let rows = table.names.get(word).or_else(|| table.kinds.get(word));
            if let Some(rows) = rows.filter(|_| !self.explained[at]) {
                self.rows.retain(|row| rows.contains(row));
                self.explained[at] = true;
                self.is_chosen = true;
            }
        }
    }

    /// Compares the rows that are named. Returns all of them, the one that answers first.
    fn compared(&mut self, is_most: bool, column: usize) -> Option<Operation> {
        let mut named = Vec::new();
        for (_, rows) in self.names() {
            if let [row] = rows[..]
                && !named.contains(&row)
            {
                named.push(row);
            }
        }
        if named.len() < 2 {
            return None;
        }
        self.rows = named;
        for at in 0..self.words.len() {
            self.explained[at] |= self.known.compares.contains(&self.words[at]);
        }
        for at in self.names().into_iter().map(|(at, _)| at).collect::<Vec<_>>() {
            self.explained[at] = true;
        }
        let rows = self.sorted(is_most, column);
        (self.is_explained() && rows.len() == self.rows.len())
            .then(|| (rows, RowOperation::Compare, self.name(column)))
    }

    /// Explains a word for what all rows are ("machine") behind "your" or "which" or the word that
    /// compares them, if the table does not have it. Returns `None` if a few names have it.
    fn explain_subject(&mut self) -> Option<()> {
        for at in 1..self.words.len() {
            let before = &*self.words[at - 1];
            let is_beside =
                matches!(before, "your" | "ur" | "the" | "which" | "expensive" | "many")
                    || self.known.extremes.contains_key(before);
            let is_subject = self.known.subjects.contains(&self.words[at]);
            if !is_beside || !is_subject || self.is_kind(at) {
                continue;
            }
            match self.table.names.get(&self.stems[at]).map_or(0, Vec::len) {
                0 => self.explained[at] = true,
                1..SHARED => return None,
                _ => {}
            }
        }
        Some(())
    }

    /// Returns the row with the most or least of a column, or several rows if they are equal.
    fn best(&mut self, is_most: bool, columns: &[usize]) -> Option<Operation> {
        self.explain_subject()?;
        self.choose_words();
        let (column, rivals) = (columns[0], &columns[1..]);
        let rows = self.first_rows(is_most, column)?;
        // Prices by the hour and by the day may have two answers.
        let is_one = rivals
            .iter()
            .all(|rival| self.first_rows(is_most, *rival).is_none_or(|of_rival| of_rival == rows));
        let operation = if is_most { RowOperation::Most } else { RowOperation::Least };
        (self.is_explained() && is_one).then(|| (rows, operation, self.name(column)))
    }

    /// Returns the rows with the most or least of a column. `None` if all have the same.
    fn first_rows(&self, is_most: bool, column: usize) -> Option<Vec<usize>> {
        let sorted = self.sorted(is_most, column);
        let numbers = self.numbers_of(column)?;
        let best = numbers[*sorted.first()?];
        let rows: Vec<usize> =
            sorted.iter().copied().take_while(|row| numbers[*row] == best).collect();
        (sorted.len() > rows.len()).then_some(rows)
    }

    /// Returns the rows with at most or at least an amount.
    fn within(&mut self, is_less: bool, amount: f64, column: usize) -> Option<Operation> {
        let counts = self.counts();
        if let Some((begin, end)) = counts {
            self.explain(begin..=end);
            self.explain_subject()?;
        }
        self.choose_words();
        let numbers = self.numbers_of(column)?;
        let fits = |row: &usize| {
            numbers[*row].is_some_and(|it| if is_less { it <= amount } else { it >= amount })
        };
        let mut rows = self.sorted(!is_less, column);
        rows.retain(fits);
        let found = match counts {
            Some(_) => (rows, RowOperation::Count, None),
            None => (rows, RowOperation::Filter, self.name(column)),
        };
        self.is_explained().then_some(found)
    }

    /// Whether a word of a set is there.
    fn says(&self, words: &FxHashSet<String>) -> bool {
        self.words.iter().any(|it| words.contains(it))
    }

    /// Returns where the utterance asks how many there are.
    fn counts(&self) -> Option<(usize, usize)> {
        let is_count = |at: &usize| self.known.counts.contains(&self.words[*at]);
        let in_one = (0..self.words.len()).find(is_count).map(|at| (at, at));
        let in_two = || self.words.windows(2).position(|pair| pair == ["how", "many"]);
        in_one.or_else(|| in_two().map(|at| (at, at + 1)))
    }

    fn is_kind(&self, at: usize) -> bool {
        self.table.kinds.contains_key(&self.stems[at])
    }

    /// Returns the rows of a kind, if the utterance asks how many there are.
    fn counted(&mut self) -> Option<Operation> {
        let (begin, end) = self.counts()?;
        let of_rows = |at: &usize| !self.explained[*at] || self.is_kind(*at);
        // "How many days" counts no rows.
        let counted = (end + 1..self.words.len()).find(of_rows)?;
        let is_of_column =
            self.table.columns.iter().any(|it| it.words.contains(&self.stems[counted]));
        self.explain(begin..=end);
        self.choose_words();
        // Nor does "how many in the hut".
        let is_several = self.rows.len() > 1 || self.is_kind(counted);
        let is_count = self.is_chosen && is_several && self.is_explained() && !is_of_column;
        is_count.then(|| (self.rows.clone(), RowOperation::Count, None))
    }

    /// Returns the rows of a kind, if the utterance asks which there are.
    fn listed(&mut self) -> Option<Operation> {
        let asks = self.says(&self.known.which) && self.says(&self.known.have);
        self.choose_words();
        let is_list = asks && self.is_chosen && self.is_explained() && self.rows.len() > 1;
        is_list.then(|| (self.rows.clone(), RowOperation::List, None))
    }

    /// Returns the rows that are left and have a number, the most or the least first; equals in
    /// their order.
    fn sorted(&self, is_most: bool, column: usize) -> Vec<usize> {
        let Some(numbers) = self.numbers_of(column) else { return Vec::new() };
        let numbered = self.rows.iter().filter_map(|row| Some((*row, numbers[*row]?)));
        let mut numbered: Vec<(usize, f64)> = numbered.collect();
        numbered.sort_by(|a, b| if is_most { b.1.total_cmp(&a.1) } else { a.1.total_cmp(&b.1) });
        numbered.into_iter().map(|(row, _)| row).collect()
    }

    fn numbers_of(&self, column: usize) -> Option<&[Option<f64>]> {
        match &self.table.columns[column].values {
            ColumnValues::Numbers(numbers) => Some(numbers),
            _ => None,
        }
    }

    fn explain(&mut self, words: std::ops::RangeInclusive<usize>) {
        words.for_each(|at| self.explained[at] = true);
    }

    fn is_explained(&self) -> bool {
        self.explained.iter().all(|it| *it)
    }
}

#[cfg(test)]
mod tests;
