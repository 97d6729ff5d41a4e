//! Keeps tables: the rows of a source of kind `table`, searched by words and by meaning.
//!
//! The text of a row is `column = value, column = value`, with identifiers as words and canonical
//! values as people write them (19:55 is `7:55 pm`, but stays in Chinese): the unified model learned from
//! rows that are worded by the same rules. Its columns have their values as the table has them, which is
//! how responses say them. Rows stay in memory. An index from terms to rows spares a search from reading all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::{Map, Value};
use turnstream_knowledge::terms::terms;
use turnstream_ports::model::encoder::{EncodeError, Encoder};
use turnstream_ports::script::{has_han, is_chinese};
use turnstream_schemas::{CellsAsked, Column, RowsAsked, SourceName};

use crate::bm25::{Bag, Statistics};
use crate::questions::{clause_ends, two_questions};

mod cells;
mod codes;
mod columns;
mod operations;
mod said;
mod units;
mod words;

pub(crate) use cells::named_among;
pub use said::{called, said, said_of_all};
pub(crate) use units::measures_otherwise;
pub(crate) use words::numerals;

/// The names of a column that says what a row is about.
const NAMES: [&str; 5] = ["name", "title", "product", "名称", "名字"];

/// The tables of a process, by the name of their source.
pub type Tables = BTreeMap<SourceName, Arc<Table>>;

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its columns with their values, in order.
    pub columns: Vec<Column>,
    /// The columns as one text.
    pub text: String,
}

impl Row {
    /// Words an object as a row: its texts, numbers and booleans. Leaves out other values.
    pub fn of(values: &Map<String, Value>) -> Self {
        let column = |(name, value): (&String, &Value)| {
            let value = match value {
                Value::String(text) => match text.trim() {
                    "True" | "true" | "TRUE" => "yes".to_owned(),
                    "False" | "false" | "FALSE" => "no".to_owned(),
                    text => text.to_owned(),
                },
                // The column of a price may hold 9.5 and 12.0.
                Value::Number(number) => surface(&number.to_string()),
                Value::Bool(holds) => (if *holds { "yes" } else { "no" }).to_owned(),
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            };
            let name = words(name);
            (!name.is_empty() && !value.is_empty()).then_some(Column { name, value })
        };
        let columns: Vec<Column> = values.iter().filter_map(column).collect();
        let pair = |Column { name, value }: &Column| match has_han(name) {
            // In Chinese 19:55 and 2019-03-02 are how people write them.
            true => format!("{name} = {value}"),
            false => format!("{name} = {}", surface(value)),
        };
        let pairs: Vec<String> = columns.iter().map(pair).collect();
        Self { text: pairs.join(", "), columns }
    }

    /// Returns the text to encode: the value that says what the row is about, then the columns.
    fn to_encode(&self) -> String {
        let title = subject(&self.columns).map_or("", |it| &it.value);
        let cells = self.columns.iter().map(|it| format!("{}: {}", it.name, it.value));
        std::iter::once(title.to_owned()).chain(cells).collect::<Vec<_>>().join(" ")
    }
}

/// Returns the column that says what a row is about: the one with such a name, else the first.
pub fn subject(columns: &[Column]) -> Option<&Column> {
    let named = |column: &&Column| NAMES.contains(&column.name.as_str());
    columns.iter().find(named).or(columns.first())
}

/// Returns the cosine of two vectors of length 1, 0 where it is below.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    f64::from(a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>().clamp(0.0, 1.0))
}

/// A table whose rows can be searched.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Row>,
    bags: Vec<Bag<String>>,
    statistics: Statistics<String>,
    /// Maps a term to the rows that have it, rising.
    holders: FxHashMap<String, Vec<u32>>,
    /// The vectors of the rows, one after the other; empty if they have none.
    vectors: Vec<f32>,
    /// The vectors of the names of columns, if the rows have vectors.
    column_vectors: FxHashMap<String, Vec<f32>>,
    columns: columns::Columns,
    names: cells::RowNames,
    chinese_names: cells::ChineseNames,
    codes: codes::Codes,
}

impl Table {
    /// Makes a table of rows, in their order.
    pub fn new(rows: Vec<Row>) -> Self {
        let of_rows: Vec<Vec<String>> = rows.iter().map(|row| terms(&row.text)).collect();
        let mut holders: FxHashMap<String, Vec<u32>> = FxHashMap::default();
        for (at, terms) in (0..).zip(&of_rows) {
            for term in terms {
                let rows = holders.entry(term.clone()).or_default();
                if rows.last() != Some(&at) {
                    rows.push(at);
                }
            }
        }
        let bags: Vec<Bag<String>> =
            of_rows.into_iter().map(|terms| terms.into_iter().collect()).collect();
        let (statistics, vectors) = (Statistics::of(&bags), Vec::new());
        let column_vectors = FxHashMap::default();
        let columns = columns::Columns::of(&rows);
        let names = cells::RowNames::of(&rows, &columns);
        let chinese_names = cells::ChineseNames::of(&rows, &columns);
        let ids = rows.iter().filter_map(|row| row.columns.first());
        let codes = codes::Codes::of(ids.map(|id| &*id.value));
        Self {
            statistics,
            rows,
            bags,
            holders,
            vectors,
            column_vectors,
            columns,
            names,
            chinese_names,
            codes,
        }
    }

    /// Adds vectors of the rows and of the names of columns, by which they are also found by meaning.
    ///
    /// # Errors
    /// The encoder failed.
    pub fn with_vectors(mut self, encoder: &dyn Encoder) -> Result<Self, EncodeError> {
        let texts: Vec<String> = self.rows.iter().map(Row::to_encode).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        encoder.encode(&texts, &mut self.vectors)?;
        let names: BTreeSet<&str> =
            self.rows.iter().flat_map(|row| &row.columns).map(|it| &*it.name).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let mut vectors = Vec::new();
        encoder.encode(&names, &mut vectors)?;
        let of_names = vectors.chunks_exact(encoder.dimensions().max(1)).map(<[f32]>::to_vec);
        self.column_vectors = names.into_iter().map(str::to_owned).zip(of_names).collect();
        Ok(self)
    }

    /// Returns the cosine of each row with a question, 0..=1; empty if the rows have no vectors of
    /// its length.
    pub fn by_meaning(&self, question: &[f32]) -> Vec<(u32, f64)> {
        if self.vectors.len() != self.rows.len() * question.len() {
            return Vec::new();
        }
        let rows = self.vectors.chunks_exact(question.len().max(1));
        (0..).zip(rows.map(|row| cosine(row, question))).collect()
    }

    /// Returns the cosine of the name of each of a row's columns with an utterance, in their order,
    /// 0..=1; empty if they have no vectors of its length.
    pub fn columns_by_meaning(&self, at: u32, utterance: &[f32]) -> Vec<f64> {
        let of_column = |column: &Column| {
            let vector = self.column_vectors.get(&column.name)?;
            (vector.len() == utterance.len()).then(|| cosine(vector, utterance))
        };
        let columns = self.row(at).map_or(&[][..], |row| &row.columns).iter();
        columns.map(of_column).collect::<Option<_>>().unwrap_or_default()
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the place of the row whose first column has this value, from 0.
    pub fn place_of(&self, id: &str) -> Option<u32> {
        let is_it = |row: &Row| row.columns.first().is_some_and(|column| column.value == id);
        self.rows.iter().position(is_it).and_then(|at| u32::try_from(at).ok())
    }

    /// Whether its rows have vectors.
    pub fn has_vectors(&self) -> bool {
        !self.vectors.is_empty()
    }

    /// Returns a row by its place, from 0.
    pub fn row(&self, at: u32) -> Option<&Row> {
        self.rows.get(at as usize)
    }

    /// Returns the row operation that an utterance in English or Chinese asks for, such as which is
    /// the cheapest, with the places of the rows that answer it, the best first. `None` if it does
    /// not certainly ask for one.
    pub fn asked(&self, utterance: &str) -> Option<(Vec<u32>, RowsAsked)> {
        let of_several = || {
            let Self { rows, columns: table, names, .. } = self;
            if is_chinese(utterance) {
                return self.chinese_names.asked_of_several(utterance, rows, table);
            }
            cells::Cells { rows, table, names }.asked_of_several(utterance)
        };
        let (rows, asked) = operations::asked(utterance, &self.columns)
            .or_else(of_several)
            .or_else(|| self.asked_beside(utterance))
            .or_else(|| self.asked_and_told(utterance))?;
        Some((rows.into_iter().filter_map(|row| u32::try_from(row).ok()).collect(), asked))
    }

    /// Returns the row operation that one of two questions asks for.
    fn asked_beside(&self, utterance: &str) -> Option<(Vec<usize>, RowsAsked)> {
        let [first, second] = two_questions(utterance)?;
        [(first, second), (second, first)].into_iter().find_map(|(part, rest)| {
            let (rows, asked) = operations::asked(part, &self.columns)?;
            Some((rows, RowsAsked { rest: Some(rest.to_owned()), ..asked }))
        })
    }

    /// Returns the row operation that one part of an utterance asks for, where the other part only tells
    /// something ("i travel a lot").
    fn asked_and_told(&self, utterance: &str) -> Option<(Vec<usize>, RowsAsked)> {
        let ends = clause_ends(utterance).into_iter();
        let parts = ends.flat_map(|(end, begin)| {
            let (left, right) = (&utterance[..end], &utterance[begin..]);
            [(left, right), (right, left)]
        });
        parts
            .filter(|(_, told)| operations::tells(told, &self.columns))
            .find_map(|(part, _)| operations::asked(part, &self.columns))
    }

    /// Returns the cells that an utterance in English or Chinese asks for by name, with the place of
    /// their row. `earlier` are the texts before it, the latest first.
    pub fn cells(&self, utterance: &str, earlier: &[&str]) -> Option<(u32, CellsAsked)> {
        let Self { rows, columns: table, names, .. } = self;
        let (row, asked) = if is_chinese(utterance) {
            self.chinese_names.asked(utterance, earlier, rows)?
        } else {
            cells::Cells { rows, table, names }.asked(utterance, earlier)?
        };
        Some((u32::try_from(row).ok()?, asked))
    }

    /// Returns the rows that share a word with a text, each with its likeness in words, 0..=1: by
    /// falling likeness, ties by place, at most `most`. If one of the `given` texts names a value
    /// of a row that was found, only such rows.
    pub fn search(&self, text: &str, given: &[&str], most: usize) -> Vec<(u32, f64)> {
        let asked = terms(text);
        let mut held: Vec<u32> =
            asked.iter().filter_map(|term| self.holders.get(term)).flatten().copied().collect();
        held.sort_unstable();
        held.dedup();
        let given: Vec<String> = given.iter().map(|text| text.to_lowercase()).collect();
        let named: Vec<u32> =
            held.iter().copied().filter(|at| self.is_named(*at, &given)).collect();
        let held = if named.is_empty() { held } else { named };
        let query: Bag<String> = asked.into_iter().collect();
        let likeness = |at: u32| (at, self.statistics.likeness(&query, &self.bags[at as usize]));
        let mut found: Vec<(u32, f64)> = held.into_iter().map(likeness).collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        found.truncate(most);
        found
    }

    /// Whether one of the texts, which are in lower case, contains a value of the row that is longer than
    /// two characters.
    fn is_named(&self, at: u32, texts: &[String]) -> bool {
        let values =
            self.rows[at as usize].columns.iter().map(|column| column.value.to_lowercase());
        let mut values = values.filter(|value| value.chars().count() > 2);
        values.any(|value| texts.iter().any(|text| text.contains(&value)))
    }
}

/// Whether a text asks for the most or least of something, or sets an amount as a bound, and a row of
/// the table is not the answer as far as its columns tell. `place` counts from 1.
pub fn contradicts(table: &Table, text: &str, place: u32) -> bool {
    operations::contradicts(text, &table.columns, (place as usize).saturating_sub(1))
}

/// Whether a text certainly asks for rows that no table has, such as those under an amount.
pub fn none_fits(tables: &Tables, text: &str) -> bool {
    let mut tables = tables.values();
    tables.clone().any(|table| operations::none_fits(text, &table.columns))
        && tables.all(|table| table.asked(text).is_none())
}

/// Returns an id that a text names and that has the form of a table's ids, but is no row's.
pub fn missing_id(tables: &Tables, text: &str) -> Option<String> {
    let id = tables.values().find_map(|table| table.codes.missing(text))?;
    let is_there = tables.values().any(|table| table.codes.has(&id));
    (!is_there).then_some(id)
}

/// Returns an identifier as words: `number_of_seats` and `NumberOfSeats` are `number of seats`.
pub fn words(identifier: &str) -> String {
    let mut spaced = String::new();
    let mut before = ' ';
    for letter in identifier.chars() {
        let begins = letter.is_uppercase() && (before.is_lowercase() || before.is_ascii_digit());
        if begins {
            spaced.push(' ');
        }
        spaced.extend(if letter == '_' { vec![' '] } else { letter.to_lowercase().collect() });
        before = letter;
    }
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Returns a canonical value as people write it: 19:55 is `7:55 pm`, 2019-03-02 `March 2nd`, True
/// `yes`, 4.30 `4.3`.
pub fn surface(value: &str) -> String {
    match value {
        "True" | "true" => return "yes".to_owned(),
        "False" | "false" => return "no".to_owned(),
        _ => {}
    }
    time(value).or_else(|| date(value)).or_else(|| decimal(value)).unwrap_or(value.to_owned())
}

fn time(value: &str) -> Option<String> {
    let value = value.strip_suffix(":00").filter(|rest| rest.contains(':')).unwrap_or(value);
    let (hour, minute) = value.split_once(':')?;
    let two_digits =
        |digits: &str| digits.len() == 2 && digits.bytes().all(|it| it.is_ascii_digit());
    let is_hour = (1..=2).contains(&hour.len()) && hour.bytes().all(|it| it.is_ascii_digit());
    let (hour, minutes): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
    if !is_hour || !two_digits(minute) || hour > 23 || minutes > 59 {
        return None;
    }
    let half = if hour < 12 { "am" } else { "pm" };
    Some(format!("{}:{minute} {half}", (hour + 11) % 12 + 1))
}

fn date(value: &str) -> Option<String> {
    let [year, month, day]: [&str; 3] = value.split('-').collect::<Vec<_>>().try_into().ok()?;
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|it| it.is_ascii_digit());
    if !(digits(year, 4) && digits(month, 2) && digits(day, 2)) {
        return None;
    }
    let month = MONTHS.get(month.parse::<usize>().ok()?.checked_sub(1)?)?;
    let day: u32 = day.parse().ok().filter(|day| (1..=31).contains(day))?;
    let ending = match (day, day % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    Some(format!("{month} {day}{ending}"))
}

fn decimal(value: &str) -> Option<String> {
    let (whole, part) = value.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if !digits(whole) || !digits(part) || !part.ends_with('0') {
        return None;
    }
    let part = part.trim_end_matches('0');
    Some(if part.is_empty() { whole.to_owned() } else { format!("{whole}.{part}") })
}

#[cfg(test)]
mod tests;
