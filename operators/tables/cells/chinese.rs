//! Finds the cell that a Chinese turn asks for, as [`super`] does for English.
//!
//! Chinese has no spaces between words, so a row is named by runs of characters that its name has:
//! by all of it but for the pairs of characters that many names share, or by a pair that no other
//! name has. The cell is sought in the whole utterance, and then in each of its clauses, since
//! people tell what they want it for beside the question.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

use rustc_hash::FxHashMap;
use turnstream_ports::script::{has_han, simplified_text};
use turnstream_schemas::{CellsAsked, Score};

use super::super::codes::is_code;
use super::super::columns::Columns;
use super::super::{Row, subject};
use super::{MOST_ROWS_OF_WORD, SHARED, Where};
use crate::questions::{asks, clause_ends};

mod asked;
mod several;
mod together;
mod words;

use words::{KNOWN, tokens};

/// The most characters of an utterance that asks for a cell. Longer ones tell a story.
const MOST_CHARACTERS: usize = 40;
/// The most values by which a column can be named.
const MOST_VALUES: usize = 64;
/// The most clauses of such an utterance.
const MOST_CLAUSES: usize = 8;

/// A column as a text can name it.
#[derive(Clone, Debug)]
struct ColumnName {
    /// As it is in the rows.
    name: String,
    /// In simplified characters, with its unit.
    simplified: String,
    /// Without its unit.
    tokens: Vec<String>,
}

/// The rows and columns of a table as Chinese texts name them.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct ChineseNames {
    names: Vec<Vec<String>>,
    /// The ids that are codes, in lower case, with their rows.
    ids: Vec<(String, usize)>,
    /// Maps two tokens that follow each other to the rows whose names have them.
    pairs: FxHashMap<[String; 2], Vec<usize>>,
    columns: Vec<ColumnName>,
    /// The values that rows share, each with its column by its place; of a value that several have, none.
    values: Vec<(Vec<String>, Option<usize>)>,
}

/// A row that a text names, with the places of the tokens that do.
struct NamedRow {
    row: usize,
    is_whole: bool,
    used: Vec<usize>,
}

/// What a text asks for: a row, a column by its place, and how certain that is.
#[derive(Clone, Copy)]
struct FoundCell {
    row: usize,
    /// `None` where only the reader can tell.
    column: Option<usize>,
    unexplained: usize,
    at: Where,
    precision: f64,
}

/// The places of tokens of a text and of a name that are alike.
#[derive(Default)]
struct Alike {
    of_text: Vec<usize>,
    of_name: Vec<usize>,
    /// The runs, by their places in the name.
    runs: Vec<Range<usize>>,
}

/// Returns the share of such cells that were right, of the turns of nine companies on which the
/// words were chosen (docs/measurements/decision.md); `None` if too few were.
fn precision(at: Where, is_whole: bool, unexplained: usize) -> Option<f64> {
    match (at, is_whole, unexplained) {
        (Where::Here, true, 0) => Some(0.95),
        (Where::Here, false, 0) | (Where::ColumnBefore, _, 0) => Some(0.9),
        (Where::Here, true, 1) | (Where::RowBefore, true, 0) => Some(0.88),
        (Where::Here, false, 1) => Some(0.83),
        (Where::ColumnBefore, _, 1) => Some(0.8),
        (Where::Here, false, 2) => Some(0.72),
        _ => None,
    }
}

/// Returns the longest run that a text and a name have in common: where it begins in both, and its
/// length.
fn longest_run(
    text: &[String],
    name: &[String],
    is_free: impl Fn(usize, usize) -> bool,
) -> Option<(usize, usize, usize)> {
    let mut best: Option<(usize, usize, usize)> = None;
    for begin in 0..text.len() {
        for of_name in 0..name.len() {
            let pairs = text[begin..].iter().zip(&name[of_name..]).enumerate();
            let run = pairs
                .take_while(|(at, (a, b))| a == b && is_free(begin + at, of_name + at))
                .count();
            if run > best.map_or(0, |(.., run)| run) {
                best = Some((begin, of_name, run));
            }
        }
    }
    best
}

/// Matches a name with a text, the longest runs first: of two tokens and more, and then of single
/// numbers or Latin words.
fn alike(text: &[String], name: &[String]) -> Alike {
    let mut found = Alike::default();
    loop {
        let is_free = |of_text: usize, of_name: usize| {
            !found.of_text.contains(&of_text) && !found.of_name.contains(&of_name)
        };
        let Some((begin, of_name, run)) = longest_run(text, name, is_free) else { break };
        if run < 2 && (found.of_text.is_empty() || !name[of_name].is_ascii()) {
            break;
        }
        found.of_text.extend(begin..begin + run);
        found.of_name.extend(of_name..of_name + run);
        found.runs.push(of_name..of_name + run);
    }
    found
}

fn place(
    text: &[String],
    phrase: &[String],
    is_free: impl Fn(usize) -> bool,
) -> Option<Vec<usize>> {
    let mut begins = 0..(text.len() + 1).saturating_sub(phrase.len());
    let begin = begins.find(|begin| {
        let end = begin + phrase.len();
        text[*begin..end] == *phrase && (*begin..end).all(&is_free)
    })?;
    Some((begin..begin + phrase.len()).collect())
}

impl ChineseNames {
    /// Returns nothing for a table without names in Chinese.
    pub(in super::super) fn of(rows: &[Row], columns: &Columns) -> Self {
        let mut found = Self::default();
        if !rows.iter().any(|row| subject(&row.columns).is_some_and(|it| has_han(&it.value))) {
            return found;
        }
        for (at, row) in rows.iter().enumerate() {
            let (id, name) = (row.columns.first(), subject(&row.columns));
            let id = id.filter(|id| Some(&id.name) != name.map(|it| &it.name));
            found
                .ids
                .extend(id.filter(|id| is_code(&id.value)).map(|it| (it.value.to_lowercase(), at)));
            let name = tokens(name.map_or("", |it| &it.value));
            for pair in name.windows(2) {
                let rows = found.pairs.entry([pair[0].clone(), pair[1].clone()]).or_default();
                if rows.last() != Some(&at) {
                    rows.push(at);
                }
            }
            found.names.push(name);
        }
        let id = rows.first().and_then(|row| row.columns.first()).map(|it| &it.name);
        let columns = columns.columns.iter().map(|it| &it.name).filter(|it| Some(*it) != id);
        found.columns = columns
            .map(|name| {
                let simplified = simplified_text(name).into_owned();
                let tokens = tokens(simplified.split(' ').next().unwrap_or_default());
                ColumnName { name: name.clone(), simplified, tokens }
            })
            .collect();
        for (at, column) in found.columns.iter().enumerate() {
            let cells =
                rows.iter().flat_map(|row| &row.columns).filter(|it| it.name == column.name);
            let values: Vec<Vec<String>> = cells.map(|it| tokens(&it.value)).collect();
            let of_rows = values.len();
            let values: BTreeSet<Vec<String>> = values.into_iter().collect();
            let is_word = |it: &Vec<String>| it.len() >= 2 && it.iter().all(|it| has_han(it));
            // Values of their own, such as remarks, name no column.
            if values.len() * 2 > of_rows || values.len() > MOST_VALUES {
                continue;
            }
            for value in values.into_iter().filter(is_word) {
                match found.values.iter_mut().find(|(known, _)| *known == value) {
                    Some((_, of)) => *of = None,
                    None => found.values.push((value, Some(at))),
                }
            }
        }
        found
    }

    /// Finds the cell that an utterance asks for, with the place of its row. `earlier` are the
    /// texts before it, the latest first.
    pub(in super::super) fn asked(
        &self,
        utterance: &str,
        earlier: &[&str],
        rows: &[Row],
    ) -> Option<(usize, CellsAsked)> {
        if self.names.is_empty() {
            return None;
        }
        let is_short = tokens(utterance).len() <= MOST_CHARACTERS;
        let sure = || if is_short { self.sure(utterance, earlier, rows) } else { None };
        let sure = self.asked_together(utterance, earlier, rows).or_else(sure);
        sure.or_else(|| self.perhaps(utterance, earlier, rows))
    }

    /// Finds the cell that an utterance asks for where its words tell, or those of a part of it.
    fn sure(&self, utterance: &str, earlier: &[&str], rows: &[Row]) -> Option<(usize, CellsAsked)> {
        let whole = self.found(utterance, earlier, rows).filter(|it| it.precision > 0.0);
        let is_sure = whole.is_some_and(|it| it.unexplained == 0);
        let part = if is_sure { None } else { self.of_clause(utterance, earlier, rows) };
        let (found, rest) = match (part, whole) {
            (Some((part, rest)), Some(whole)) if part.precision == 0.0 => {
                let is_same =
                    part.row == whole.row && (part.column.is_none() || part.column == whole.column);
                (whole, rest.filter(|_| is_same))
            }
            (part, whole) => part.or(whole.map(|it| (it, None)))?,
        };
        Some((found.row, self.cells(found.column, found.precision, rest)))
    }

    /// Returns the row that an utterance or an earlier text names, with the column that it may ask about,
    /// for the reader to judge.
    fn perhaps(
        &self,
        utterance: &str,
        earlier: &[&str],
        rows: &[Row],
    ) -> Option<(usize, CellsAsked)> {
        let text = tokens(utterance);
        let here = self.named(utterance, &text);
        let row = here.or_else(|| {
            // Several rows may be named, or all compared.
            if utterance.contains('最') || text.windows(2).any(|pair| self.is_own_pair(pair)) {
                return None;
            }
            let mut before = earlier.iter().filter_map(|it| self.named(it, &tokens(it)));
            let row = before.find(|it| it.is_whole)?;
            Some(NamedRow { used: Vec::new(), ..row })
        })?;
        let column = self.column_or_value(&text, &row, rows).0;
        Some((row.row, self.cells(column, 0.0, None)))
    }

    fn cells(&self, column: Option<usize>, precision: f64, rest: Option<String>) -> CellsAsked {
        let columns = column.map(|it| self.columns[it].name.clone()).into_iter().collect();
        CellsAsked { columns, precision: Score::new(precision), by_meaning: Vec::new(), rest }
    }

    /// Finds the cell that one clause or two of an utterance ask for, with what else is asked. Where
    /// something else is, the first one may ask for a cell of the row of before, and not every word
    /// need be explained: perhaps only the reader can tell.
    fn of_clause(
        &self,
        utterance: &str,
        earlier: &[&str],
        rows: &[Row],
    ) -> Option<(FoundCell, Option<String>)> {
        let mut begins = vec![0];
        begins.extend(clause_ends(utterance).into_iter().map(|(_, next)| next));
        begins.push(utterance.len());
        begins.dedup();
        let clauses = begins.len() - 1;
        if !(2..=MOST_CLAUSES).contains(&clauses) {
            return None;
        }
        let parts = (1..=2usize.min(clauses))
            .flat_map(|length| (0..=clauses - length).map(move |at| (length, at)));
        let found = parts.filter_map(|(length, at)| {
            let (begin, end) = (begins[at], begins[at + length]);
            let sides = [&utterance[end..], &utterance[..begin]];
            let clause = &utterance[begin..end];
            let rest = sides.into_iter().map(str::trim).find(|it| asks(it));
            // Not "which of those is the cheapest".
            let is_first = at == 0 && rest.is_some_and(|it| !it.contains('最'));
            let earlier = if is_first { earlier } else { &[] };
            // A row that is named here is not asked for the column of before.
            let found = self.found(clause, earlier, rows);
            let found = found.filter(|it| it.at != Where::ColumnBefore);
            let found = found.or_else(|| self.found(clause, &[], rows))?;
            let is_sure = found.at == Where::Here && found.precision > 0.0;
            let order = (found.precision == 0.0, length, found.unexplained);
            let is_asked = found.column.is_some() || asks(clause);
            (is_sure || rest.is_some() && is_asked).then_some((
                order,
                found,
                rest.map(str::to_owned),
            ))
        });
        let (_, found, rest) = found.min_by_key(|(order, ..)| *order)?;
        Some((found, rest))
    }

    /// Finds the cell that a text asks for as a whole; with a precision of 0 where only the reader can
    /// tell.
    fn found(&self, text: &str, earlier: &[&str], rows: &[Row]) -> Option<FoundCell> {
        let text_tokens = tokens(text);
        let mut before = earlier.iter().map(|it| (*it, tokens(it)));
        let (named, column, used, at) = match self.named(text, &text_tokens) {
            Some(named) => {
                let (column, asked) = self.column_or_value(&text_tokens, &named, rows);
                match column {
                    // 比启程班能省多少 compares it with the row of before.
                    None if asked.is_empty() && !text.contains('比') => {
                        let column = before.find_map(|(it, tokens)| {
                            let of_before = self.named(it, &tokens)?;
                            self.column(&tokens, &NamedRow { row: named.row, ..of_before }, rows).0
                        });
                        let at = if column.is_some() { Where::ColumnBefore } else { Where::Here };
                        (named, column, Vec::new(), at)
                    }
                    column => (named, column, asked, Where::Here),
                }
            }
            None => {
                let row = before
                    .find_map(|(it, tokens)| self.named(it, &tokens).filter(|it| it.is_whole))?;
                let row = NamedRow { used: Vec::new(), ..row };
                let (column, used) = self.column_or_value(&text_tokens, &row, rows);
                (row, column, used, Where::RowBefore)
            }
        };
        let used = [&*named.used, &*used].concat();
        let unexplained = unexplained(&text_tokens, &used).filter(|_| column.is_some());
        let column = column.filter(|_| unexplained.is_some());
        let precision = unexplained.and_then(|it| precision(at, named.is_whole, it));
        Some(FoundCell {
            row: named.row,
            column,
            unexplained: unexplained.unwrap_or(usize::MAX),
            at,
            precision: precision.unwrap_or(0.0),
        })
    }

    /// Returns the row that a text names, if it is one.
    fn named(&self, text: &str, tokens: &[String]) -> Option<NamedRow> {
        let lower = text.to_lowercase();
        let is_code = |it: char| it.is_ascii_alphanumeric();
        let by_id = self.ids.iter().find(|(id, _)| {
            let mut places = lower.match_indices(&**id);
            places.any(|(at, _)| {
                !lower[..at].ends_with(is_code) && !lower[at + id.len()..].starts_with(is_code)
            })
        });
        if let Some((id, row)) = by_id {
            let used = place(tokens, &self::tokens(id), |_| true).unwrap_or_default();
            return Some(NamedRow { row: *row, is_whole: true, used });
        }
        let of_columns = self.of_columns(tokens);
        // Each row with what names it; the whole ones also with how many tokens of the name are missing.
        let (mut whole, mut partial) = (Vec::new(), Vec::new());
        for row in self.by_pairs(tokens) {
            let name = &self.names[row];
            let found = alike(tokens, name);
            let own = self.own(name);
            let needed = if own.is_empty() { (0..name.len()).collect() } else { own.clone() };
            if needed.iter().all(|it| found.of_name.contains(it)) {
                whole.push((found.of_text, name.len() - found.of_name.len(), row));
            } else if own.iter().any(|it| found.of_name.contains(it)) {
                partial.push((found, row));
            }
        }
        let is_beside = |of: &[usize], used: &[usize]| {
            of.iter().any(|at| !used.contains(at) && !of_columns.contains(at))
        };
        whole.sort_by_key(|(used, missing, _)| (Reverse(used.len()), *missing));
        if let Some((used, missing, row)) = whole.first() {
            let is_rival = |(of, lacking, _): &(Vec<usize>, usize, usize)| {
                is_beside(of, used) || (of.len(), lacking) == (used.len(), missing)
            };
            // Another row may be named by a part of its name.
            let is_named = |(of, row): &(Alike, usize)| {
                is_beside(&of.of_text, used) && self.is_distinct(of, *row)
            };
            let is_one = !whole[1..].iter().any(is_rival) && !partial.iter().any(is_named);
            return is_one.then(|| NamedRow { row: *row, is_whole: true, used: used.clone() });
        }
        partial.sort_by_key(|(found, _)| Reverse(found.of_text.len()));
        let (found, row) = partial.first()?;
        let own = |of: &Alike| of.of_text.iter().filter(|at| !of_columns.contains(at)).count();
        let is_rival = |(of, _): &(Alike, usize)| {
            is_beside(&of.of_text, &found.of_text) || own(of) == own(found)
        };
        let is_one =
            own(found) > 0 && !partial[1..].iter().any(is_rival) && self.is_distinct(found, *row);
        is_one.then(|| NamedRow { row: *row, is_whole: false, used: found.of_text.clone() })
    }

    /// Returns the rows whose names have two tokens of a text that follow each other.
    fn by_pairs(&self, tokens: &[String]) -> BTreeSet<usize> {
        let rows = tokens.windows(2).filter_map(|pair| {
            let rows = self.pairs.get(&[pair[0].clone(), pair[1].clone()]);
            rows.filter(|it| it.len() <= MOST_ROWS_OF_WORD)
        });
        rows.flatten().copied().collect()
    }

    fn rows_of(&self, pair: &[String]) -> usize {
        let pair = [pair[0].clone(), pair[1].clone()];
        self.pairs.get(&pair).map_or(0, Vec::len)
    }

    /// Returns the places of a name that no pair covers which many names share.
    fn own(&self, name: &[String]) -> Vec<usize> {
        let is_shared =
            |at: usize| name.get(at..at + 2).is_some_and(|pair| self.rows_of(pair) >= SHARED);
        let is_own =
            |at: &usize| !is_shared(*at) && at.checked_sub(1).is_none_or(|it| !is_shared(it));
        (0..name.len()).filter(is_own).collect()
    }

    /// Whether a pair that was found is in no other name.
    fn is_distinct(&self, found: &Alike, row: usize) -> bool {
        let name = &self.names[row];
        let mut pairs = found.runs.iter().flat_map(|run| name[run.clone()].windows(2));
        pairs.any(|pair| self.is_own_pair(pair))
    }

    /// Whether two tokens are in one name alone, and do not mean nothing by themselves.
    fn is_own_pair(&self, pair: &[String]) -> bool {
        let is_said = |token: &String| KNOWN.said.iter().any(|said| said[..] == [token.clone()]);
        self.rows_of(pair) == 1 && !pair.iter().all(is_said)
    }

    /// Returns the places of a text that name or ask for columns.
    fn of_columns(&self, text: &[String]) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        for column in &self.columns {
            for begin in 0..text.len() {
                for of_name in 0..column.tokens.len() {
                    let pairs = text[begin..].iter().zip(&column.tokens[of_name..]);
                    let run = pairs.take_while(|(a, b)| a == b).count();
                    if run >= 2 {
                        found.extend(begin..begin + run);
                    }
                }
            }
        }
        for phrase in KNOWN.asks.iter().filter(|it| it.tokens.len() >= 2) {
            for begin in 0..text.len() {
                if text[begin..].starts_with(&phrase.tokens) {
                    found.extend(begin..begin + phrase.tokens.len());
                }
            }
        }
        found
    }
}

/// Counts the words that neither mean nothing nor are used, two characters a word. Returns `None` if
/// one of them is what is asked for: "多少盐".
fn unexplained(text: &[String], used: &[usize]) -> Option<usize> {
    let mut is_open: Vec<bool> = (0..text.len()).map(|at| !used.contains(&at)).collect();
    for said in &KNOWN.said {
        for begin in 0..(text.len() + 1).saturating_sub(said.len()) {
            let places = begin..begin + said.len();
            if text[places.clone()] == **said && is_open[places.clone()].iter().all(|it| *it) {
                is_open[places].fill(false);
            }
        }
    }
    let before = |at: usize, back: usize| at.checked_sub(back).map_or("", |it| &*text[it]);
    let is_asked = |at: usize| {
        matches!(before(at, 1), "几" | "少" | "哪" | "啥")
            || (before(at, 2), before(at, 1)) == ("什", "么")
    };
    if (0..text.len()).any(|at| is_open[at] && is_asked(at)) {
        return None;
    }
    let runs = is_open.split(|it| !it);
    Some(runs.map(|run| run.len().div_ceil(2)).sum())
}
