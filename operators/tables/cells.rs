//! Finds the cell that a turn asks for: a row that it names, and the column that it asks about.
//!
//! A row is named by its id, by its name, misspelt or without the words that many names share, or
//! by part of its name that no other has. A column is asked about by its name or by a phrase ("how
//! heavy"). A turn that goes on from earlier ones may leave either out: "and the Bergen?" asks for
//! the column of before, "is it dimmable?" for the row of before. How sure that is follows from the
//! words that nothing explains. Of Chinese texts see [`chinese`].

use std::cmp::Reverse;
use std::sync::LazyLock;

use rustc_hash::FxHashSet;
use turnstream_knowledge::terms::terms;
use turnstream_schemas::{CellsAsked, Score};

use super::Row;
use super::columns::{Columns, stem, words_and_amounts};
use super::said::UNITS;
use super::words::KNOWN;
use crate::questions::{LEAST_WORDS, asks, asks_beside, clause_ends, part, questions};

mod chinese;
mod names;
mod several;
mod together;

pub(super) use chinese::ChineseNames;
pub(crate) use names::named_among;
pub(super) use names::{NUMBERS, RowNames};

/// The most words of an utterance that asks for a cell. Longer ones tell a story.
const MOST_WORDS: usize = 30;
/// The fewest names that share a word for it to name nothing by itself, like "tent".
pub(super) const SHARED: usize = 3;
/// The most rows that one word of an utterance may bring into question.
const MOST_ROWS_OF_WORD: usize = 256;
/// The stems of units, which ask for a column less plainly than the other words of its name.
static UNIT_STEMS: LazyLock<FxHashSet<String>> = LazyLock::new(|| {
    let units = UNITS.iter().map(|(unit, _)| stem(unit));
    units.chain(["h", "hour", "day", "week", "month", "year"].map(stem)).collect()
});

/// An utterance, cut into words.
struct Text {
    words: Vec<String>,
    stems: Vec<String>,
}

/// A row that a text names, with the places of the words that do.
struct Named {
    row: usize,
    /// Whether each word of its name is there, but for words that many names share.
    is_whole: bool,
    used: Vec<usize>,
}

/// What a text asks for.
struct Found {
    row: usize,
    /// The place of the column among the typed columns.
    column: usize,
    /// The number of words that nothing explains.
    unexplained: usize,
    precision: f64,
}

/// Where the row and the column of a cell are named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Here,
    /// The column is that of an earlier text.
    ColumnBefore,
    /// The row is that of an earlier text.
    RowBefore,
}

/// Returns the share of such cells that were right, of the table turns of 52 companies for whose
/// turns the words were chosen (docs/measurements/decision.md); `None` if most were wrong.
fn precision(at: Where, is_whole: bool, unexplained: usize) -> Option<f64> {
    match (at, is_whole, unexplained) {
        (Where::Here, true, 0) => Some(0.94),
        (Where::Here, false, 0) => Some(0.92),
        (Where::Here, true, 1) => Some(0.82),
        (Where::Here, false, 1) => Some(0.84),
        (Where::ColumnBefore, true, 0) => Some(0.92),
        (Where::ColumnBefore, false, 0) => Some(0.75),
        (Where::RowBefore, true, 0) => Some(0.86),
        _ => None,
    }
}

impl Text {
    fn of(text: &str) -> Self {
        let words = words_and_amounts(text);
        let stems = words.iter().map(|word| stem(word)).collect();
        Self { words, stems }
    }

    fn is_said(&self, at: usize) -> bool {
        KNOWN.said.contains(&self.words[at]) || KNOWN.asides.contains(&self.words[at])
    }

    /// Counts the words that neither mean nothing nor are used. Returns `None` if one of them is what
    /// is asked for: "how much salt".
    fn unexplained(&self, used: &[&[usize]]) -> Option<usize> {
        let is_open = |at: &usize| !self.is_said(*at) && !used.iter().any(|of| of.contains(at));
        let open: Vec<usize> = (0..self.words.len()).filter(is_open).collect();
        let is_asked = |at: &usize| {
            let before = at.checked_sub(1).map(|before| &*self.words[before]);
            matches!(before, Some("much" | "many" | "which" | "what"))
        };
        (!open.iter().any(is_asked)).then_some(open.len())
    }

    fn find(&self, words: &[String]) -> Option<usize> {
        self.words.windows(words.len()).position(|window| window == words)
    }
}

/// A table in which the cell is sought.
pub(super) struct Cells<'t> {
    pub(super) rows: &'t [Row],
    pub(super) table: &'t Columns,
    pub(super) names: &'t RowNames,
}

impl Cells<'_> {
    /// Finds the cells that an utterance asks for, with the place of their row. `earlier` are the
    /// texts before it, the latest first.
    pub(super) fn asked(&self, utterance: &str, earlier: &[&str]) -> Option<(usize, CellsAsked)> {
        if let Some(together) = self.asked_together(utterance, earlier) {
            return Some(together);
        }
        if words_and_amounts(utterance).len() > MOST_WORDS {
            return self.beside(utterance, earlier).or_else(|| self.perhaps(utterance, earlier));
        }
        let whole = self.found(utterance, earlier);
        let whole = whole.map(|it| (it.unexplained == 0, (it.row, self.cells(&it, None))));
        let mut parts = clause_ends(utterance).into_iter();
        let part =
            parts.find_map(|(end, begin)| self.of_part(&utterance[..end], &utterance[begin..]));
        let sure = match (whole, part) {
            // One question to the row.
            (Some((true, whole)), Some(_)) => Some(whole),
            (Some((true, whole)), None) if questions(utterance).len() < 2 => Some(whole),
            (whole, part) => {
                part.or_else(|| self.beside(utterance, earlier)).or(whole.map(|(_, whole)| whole))
            }
        };
        sure.or_else(|| self.perhaps(utterance, earlier))
    }

    /// Finds the cell that one part of an utterance asks for where the other part asks for something
    /// else than a row. Not every word need be explained: perhaps only the reader can tell.
    fn beside(&self, utterance: &str, earlier: &[&str]) -> Option<(usize, CellsAsked)> {
        let found = clause_ends(utterance).into_iter().filter_map(|(end, begin)| {
            let (left, right) = (&utterance[..end], &utterance[begin..]);
            let of_row = |of: &str, earlier: &[&str], rest: &str| {
                let is_long = |text: &str, least| words_and_amounts(text).len() >= least;
                let is_rest = asks_beside(rest, of) && is_long(rest, LEAST_WORDS);
                if !is_rest || is_long(of, MOST_WORDS) || self.named(&Text::of(rest)).is_some() {
                    return None;
                }
                let (named, cells) = self.of_named(of, earlier)?;
                if cells.columns.is_empty() && !(named.is_whole && asks(of)) {
                    return None;
                }
                // A row that is named here is not asked for the column of before, and the row of before
                // for nothing where a name stands beside.
                let is_before = named.used.is_empty();
                let mut beside = self.like(&Text::of(rest)).into_iter();
                if is_before && beside.any(|(_, stem)| !self.is_shared(&stem)) {
                    return None;
                }
                let earlier = if is_before { earlier } else { &[] };
                let first = self.found(of, earlier).filter(|it| it.row == named.row);
                let before: Vec<&str> =
                    std::iter::once(of).chain(earlier.iter().copied()).collect();
                let second = self.found(rest, &before).filter(|it| it.row == named.row);
                // Of two questions for a cell only the reader can tell one.
                if second.is_some() {
                    return None;
                }
                let cells = first.map_or(cells, |it| self.cells(&it, None));
                let cells = CellsAsked { rest: Some(part(rest).to_owned()), ..cells };
                Some((named.row, cells))
            };
            // What is asked first may be of the row of before.
            of_row(left, earlier, right).or_else(|| of_row(right, &[], left))
        });
        found.min_by_key(|(_, it)| it.columns.is_empty())
    }

    /// Returns the row that an utterance or an earlier text names, with the column that it may ask about,
    /// for the reader to judge.
    fn perhaps(&self, utterance: &str, earlier: &[&str]) -> Option<(usize, CellsAsked)> {
        let (named, cells) = self.of_named(utterance, earlier)?;
        Some((named.row, cells))
    }

    /// Returns the row that an utterance or an earlier text names, with the column that it may ask about.
    fn of_named(&self, utterance: &str, earlier: &[&str]) -> Option<(Named, CellsAsked)> {
        let text = Text::of(utterance);
        let is_other = |word: &String| {
            KNOWN.extremes.contains_key(word)
                || matches!(&**word, "next" | "other" | "another" | "instead")
        };
        let row = self.named(&text).or_else(|| {
            let is_of_row = |(at, stem): &(usize, String)| {
                !text.is_said(*at) && !self.is_shared(stem) && !self.is_of_column(stem)
            };
            // Several rows may be named.
            if text.words.iter().any(is_other) || self.like(&text).iter().any(is_of_row) {
                return None;
            }
            let mut before = earlier.iter().filter_map(|it| self.named(&Text::of(it)));
            let row = before.find(|it| it.is_whole)?;
            Some(Named { used: Vec::new(), ..row })
        })?;
        let column = self.column_or_value(&text, &row).0;
        let columns = column.map(|it| self.table.columns[it].name.clone()).into_iter().collect();
        Some((
            row,
            CellsAsked { columns, precision: Score::new(0.0), by_meaning: Vec::new(), rest: None },
        ))
    }

    /// Finds the cell that one part of an utterance asks for, with every word explained. The other
    /// part may ask for something else.
    fn of_part(&self, left: &str, right: &str) -> Option<(usize, CellsAsked)> {
        let sure = |text| self.found(text, &[]).filter(|it| it.unexplained == 0);
        if let Some(first) = sure(left) {
            let second = self.found(right, &[left]);
            let second = second.filter(|it| it.unexplained == 0 && it.row == first.row);
            let rest = Some(right).filter(|it| second.is_none() && asks(it));
            let cells = self.cells(&first, rest);
            return Some((first.row, cells));
        }
        // Where a row is named before, the question may be about that one.
        let is_named = self.named(&Text::of(left)).is_some();
        let second = sure(right).filter(|_| !is_named)?;
        Some((second.row, self.cells(&second, Some(left).filter(|it| asks(it)))))
    }

    fn cells(&self, found: &Found, rest: Option<&str>) -> CellsAsked {
        CellsAsked {
            columns: vec![self.table.columns[found.column].name.clone()],
            precision: Score::new(found.precision),
            by_meaning: Vec::new(),
            rest: rest.map(|it| part(it).to_owned()),
        }
    }

    /// Finds the cell that a text asks for as a whole.
    fn found(&self, text: &str, earlier: &[&str]) -> Option<Found> {
        let text = Text::of(text);
        let mut before = earlier.iter().map(|it| Text::of(it));
        let (row, column, unexplained, at) = match self.named(&text) {
            Some(row) => match self.column_or_value(&text, &row) {
                (Some(column), used) => {
                    let unexplained = text.unexplained(&[&row.used, &used])?;
                    (row, column, unexplained, Where::Here)
                }
                (None, used) if used.is_empty() => {
                    let column = before.find_map(|it| {
                        let of_before = self.named(&it)?;
                        self.column(&it, &Named { row: row.row, ..of_before }).0
                    })?;
                    let unexplained = text.unexplained(&[&row.used])?;
                    (row, column, unexplained, Where::ColumnBefore)
                }
                _ => return None,
            },
            None => {
                let row = before.find_map(|it| self.named(&it).filter(|it| it.is_whole))?;
                let row = Named { used: Vec::new(), ..row };
                let (column, used) = self.column_or_value(&text, &row);
                (row, column?, text.unexplained(&[&used])?, Where::RowBefore)
            }
        };
        let precision = precision(at, row.is_whole, unexplained)?;
        Some(Found { row: row.row, column, unexplained, precision })
    }

    /// Returns the column of a row that a text asks about, if it is one, and the places of the words
    /// that ask.
    fn column(&self, text: &Text, row: &Named) -> (Option<usize>, Vec<usize>) {
        let columns = &self.table.columns;
        let id = self.rows[row.row].columns.first();
        let has = |column: &usize| {
            let name = &columns[*column].name;
            let mut of_row = self.rows[row.row].columns.iter();
            of_row.any(|it| it.name == *name) && id.is_none_or(|it| it.name != *name)
        };
        let mut scores: Vec<(f64, Vec<usize>)> = vec![(0.0, Vec::new()); columns.len()];
        // "How long" names no column for long hair.
        let is_of_phrase = |at: usize| at > 0 && text.words[at - 1] == "how";
        let is_free = |at: &usize| !row.used.contains(at) && !is_of_phrase(*at);
        for column in (0..columns.len()).filter(has) {
            let words = &columns[column].words;
            let unit = words.iter().position(|it| UNIT_STEMS.contains(it));
            for (at_name, word) in words.iter().enumerate().filter(|(_, it)| !terms(it).is_empty())
            {
                let mut places = (0..text.stems.len()).filter(is_free);
                let Some(at) = places.find(|at| text.stems[*at] == *word) else { continue };
                let is_unit = UNIT_STEMS.contains(word);
                // "How many hours" does not ask for a price per hour.
                let is_per = is_unit && unit.is_some_and(|first| first < at_name);
                if is_per && at > 0 && text.words[at - 1] == "many" {
                    continue;
                }
                scores[column].0 += if is_unit { 0.5 } else { 1.0 };
                scores[column].1.push(at);
            }
        }
        let mut taken: Vec<usize> = Vec::new();
        for (phrase, names, weight) in &KNOWN.asks {
            let Some(begin) = text.find(phrase) else { continue };
            let places: Vec<usize> = (begin..begin + phrase.len()).collect();
            if places.iter().any(|at| taken.contains(at) || row.used.contains(at)) {
                continue;
            }
            taken.extend(&places);
            let with = |word: &String| {
                let holds = |column: &usize| has(column) && columns[*column].words.contains(word);
                Some((0..columns.len()).filter(holds).collect::<Vec<_>>())
                    .filter(|it| !it.is_empty())
            };
            for column in names.iter().find_map(with).unwrap_or_default() {
                let (score, used) = &mut scores[column];
                if !places.iter().any(|at| used.contains(at)) {
                    *score += weight;
                }
                used.extend(&places);
            }
        }
        let most = scores.iter().map(|(score, _)| *score).fold(0.0, f64::max);
        let best: Vec<usize> = (0..columns.len()).filter(|it| scores[*it].0 == most).collect();
        match best[..] {
            [only] if most > 0.0 => (Some(only), std::mem::take(&mut scores[only].1)),
            _ => (None, if most > 0.0 { taken } else { Vec::new() }),
        }
    }

    /// Returns the column that a text asks about by its words, or else by words of its values, and the places
    /// of the words that ask.
    fn column_or_value(&self, text: &Text, row: &Named) -> (Option<usize>, Vec<usize>) {
        match self.column(text, row) {
            (None, used) if used.is_empty() => self.column_of_value(text, row),
            found => found,
        }
    }

    /// Returns the column that a text names by words of its values ("is there a real piano in it?"), with
    /// their places. A word of the row's own value asks for it only where the text asks whether it is so,
    /// and describes the row elsewhere, as does a word beside the row's name.
    fn column_of_value(&self, text: &Text, row: &Named) -> (Option<usize>, Vec<usize>) {
        let nothing = (None, Vec::new());
        let first = text.words.first().map(String::as_str);
        let whether = matches!(first, Some("is" | "are" | "does" | "do" | "has" | "have" | "can"));
        if text.words.iter().any(|word| KNOWN.extremes.contains_key(word)) {
            return nothing;
        }
        let cells = &self.rows[row.row].columns;
        let is_beside = |at: usize| {
            row.used.contains(&(at + 1))
                || at.checked_sub(1).is_some_and(|it| row.used.contains(&it))
        };
        let column = |at: usize| {
            let is_free = !row.used.contains(&at) && !is_beside(at) && !text.is_said(at);
            let stem = Some(&text.stems[at])
                .filter(|it| is_free && !self.table.names.contains_key(*it))?;
            let column = self.table.of_kinds.get(stem).copied().flatten()?;
            let cell = cells.iter().find(|it| it.name == self.table.columns[column].name)?;
            let is_own = words_and_amounts(&cell.value).iter().any(|it| self::stem(it) == *stem);
            (whether || !is_own).then_some((at, column))
        };
        let found: Vec<(usize, usize)> = (0..text.stems.len()).filter_map(column).collect();
        match found.first() {
            Some((_, first)) if found.iter().all(|(_, it)| it == first) => {
                (Some(*first), found.iter().map(|(at, _)| *at).collect())
            }
            _ => nothing,
        }
    }

    /// Whether a word names nothing by itself: it is a kind, or many names have it.
    fn is_shared(&self, stem: &str) -> bool {
        let names = self.table.names.get(stem).map_or(0, Vec::len);
        names >= SHARED || self.table.kinds.contains_key(stem)
    }

    /// Whether the name of a column has a word.
    fn is_of_column(&self, stem: &str) -> bool {
        self.table.columns.iter().any(|it| it.words.iter().any(|word| word == stem))
    }

    /// Returns the row that a text names, if it is one.
    fn named(&self, text: &Text) -> Option<Named> {
        let by_id = text.words.iter().enumerate().find_map(|(at, word)| {
            let mut ids = self.names.ids.get(word)?.iter();
            let (id, row) = ids.find(|(id, _)| text.words[at..].starts_with(id))?;
            Some(Named { row: *row, is_whole: true, used: (at..at + id.len()).collect() })
        });
        if by_id.is_some() {
            return by_id;
        }
        let like = self.like(text);
        let mut rows: Vec<usize> = Vec::new();
        for (_, stem) in &like {
            let of_word = self.table.names.get(stem).map_or(&[][..], |rows| &rows[..]);
            rows.extend(
                Some(of_word).filter(|it| it.len() <= MOST_ROWS_OF_WORD).unwrap_or_default(),
            );
        }
        rows.sort_unstable();
        rows.dedup();
        // Each row with the words that name it, how many of its own are missing, and how many in all.
        let mut whole: Vec<(Vec<usize>, usize, usize)> = Vec::new();
        let mut partial: Vec<(Vec<usize>, usize)> = Vec::new();
        for row in rows {
            let name = &self.names.names[row];
            // The words that no name may lack: its own, else those that are no kind, else all.
            let is_own = |stem: &String| !self.is_shared(stem);
            let is_no_kind = |stem: &String| !self.table.kinds.contains_key(stem);
            let (has_own, has_no_kind) = (name.iter().any(is_own), name.iter().any(is_no_kind));
            let is_needed = |stem| match (has_own, has_no_kind) {
                (true, _) => is_own(stem),
                (false, true) => is_no_kind(stem),
                (false, false) => true,
            };
            let (mut used, mut missing, mut lacks) = (Vec::new(), 0, false);
            for stem in name {
                let places = like.iter().filter(|(_, it)| it == stem).map(|(at, _)| *at);
                let before = used.len();
                used.extend(places);
                if used.len() == before {
                    missing += 1;
                    lacks |= is_needed(stem);
                }
            }
            if lacks {
                partial.push((used, row));
            } else {
                whole.push((used, missing, row));
            }
        }
        whole.sort_by_key(|(used, missing, _)| (Reverse(used.len()), *missing));
        if let Some((used, missing, row)) = whole.first() {
            let rivals = |(of, lacking, _): &(Vec<usize>, usize, usize)| {
                of.iter().any(|at| !used.contains(at))
                    || (of.len(), lacking) == (used.len(), missing)
            };
            // Another row may be named by a part of its name.
            let is_open = |(at, stem): &(usize, String)| {
                !used.contains(at)
                    && !text.is_said(*at)
                    && !self.is_shared(stem)
                    && !self.is_of_column(stem)
            };
            let is_one = !whole[1..].iter().any(rivals) && !like.iter().any(is_open);
            return is_one.then(|| Named { row: *row, is_whole: true, used: used.clone() });
        }
        let is_own = |at: &usize| !text.is_said(*at) && !self.is_of_column(&text.stems[*at]);
        let mut own: Vec<usize> = like.iter().map(|(at, _)| *at).filter(is_own).collect();
        own.dedup();
        let names = |at: &usize| {
            let is_number = text.words[*at].bytes().all(|it| it.is_ascii_digit());
            !is_number && !self.is_shared(&text.stems[*at])
        };
        let mut all = partial.iter().filter(|(used, _)| own.iter().all(|at| used.contains(at)));
        let (first, another) = (all.next(), all.next());
        let (_, row) = first.filter(|_| another.is_none() && own.iter().any(names))?;
        Some(Named { row: *row, is_whole: false, used: own })
    }
}

#[cfg(test)]
mod tests;
