//! Types the columns of a table by their values: numbers, yes and no, or kinds. Row operations use
//! the types ([`operations`](super::operations)).

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};
use turnstream_knowledge::terms::terms;
use turnstream_ports::script::has_han;

use super::codes::is_code;
use super::said::UNITS;
use super::units::{self, Unit};
use super::{Row, subject};

/// The most words of a kind; values of more words are texts.
const MOST_WORDS_OF_VALUE: usize = 3;

/// Returns the stem by which a word is compared; a Chinese word is compared as it is.
pub(super) fn stem(word: &str) -> String {
    if has_han(word) {
        return word.to_owned();
    }
    terms(word).pop().unwrap_or_else(|| word.to_owned())
}

/// A column with its typed values.
#[derive(Clone, Debug)]
pub(super) struct TypedColumn {
    pub(super) name: String,
    /// The stems of its name.
    pub(super) words: Vec<String>,
    pub(super) values: ColumnValues,
    /// The unit of its numbers, if it can be converted.
    pub(super) unit: Option<&'static Unit>,
}

impl TypedColumn {
    /// Whether its name has a word: a stem, or some characters of a Chinese name.
    pub(super) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|it| it == word) || has_han(word) && self.name.contains(word)
    }
}

#[derive(Clone, Debug)]
pub(super) enum ColumnValues {
    Numbers(Vec<Option<f64>>),
    Flags(Vec<Option<bool>>),
    /// The stems of each value, with the rows that have it.
    Kinds(Vec<(BTreeSet<String>, Vec<usize>)>),
}

/// The typed columns of a table, and its rows by the words of their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns {
    pub(super) columns: Vec<TypedColumn>,
    /// Maps a stem to the rows whose names have it.
    pub(super) names: FxHashMap<String, Vec<usize>>,
    /// Maps a stem to the rows whose kinds have it.
    pub(super) kinds: FxHashMap<String, Vec<usize>>,
    /// Maps a stem of kinds that rows share to the place of their column; `None` where several columns have it.
    pub(super) of_kinds: FxHashMap<String, Option<usize>>,
    /// The Chinese words of names, kinds and columns.
    pub(super) chinese: FxHashSet<String>,
    pub(super) rows: usize,
}

impl Columns {
    pub(super) fn of(rows: &[Row]) -> Self {
        let mut names: FxHashMap<String, Vec<usize>> = FxHashMap::default();
        for (at, row) in rows.iter().enumerate() {
            for word in words_and_amounts(subject(&row.columns).map_or("", |it| &it.value)) {
                let of_word = names.entry(stem(&word)).or_default();
                if of_word.last() != Some(&at) {
                    of_word.push(at);
                }
            }
        }
        let mut order: Vec<&str> = Vec::new();
        let mut seen = FxHashSet::default();
        for column in rows.iter().flat_map(|row| &row.columns) {
            let is_subject = rows.first().and_then(|row| subject(&row.columns));
            if is_subject.is_none_or(|it| it.name != column.name) && seen.insert(&column.name) {
                order.push(&column.name);
            }
        }
        let columns: Vec<TypedColumn> = order.into_iter().map(|name| typed(name, rows)).collect();
        let mut kinds: FxHashMap<String, Vec<usize>> = FxHashMap::default();
        // The parts of a code are no kinds.
        let is_code = |column: &TypedColumn| {
            let mut values = rows.iter().flat_map(|row| &row.columns);
            values.all(|it| it.name != column.name || is_code(&it.value))
        };
        let mut of_kinds: FxHashMap<String, Option<usize>> = FxHashMap::default();
        for (place, column) in columns.iter().enumerate().filter(|(_, column)| !is_code(column)) {
            let ColumnValues::Kinds(of_column) = &column.values else { continue };
            let of_rows: usize = of_column.iter().map(|(_, rows)| rows.len()).sum();
            for (value, rows) in of_column {
                for word in value {
                    kinds.entry(word.clone()).or_default().extend(rows);
                    // Values of their own, such as remarks, name no column.
                    let shared = Some(place).filter(|_| of_column.len() * 2 <= of_rows);
                    let only = of_kinds.entry(word.clone()).or_insert(shared);
                    *only = only.filter(|known| shared == Some(*known));
                }
            }
        }
        let words = columns.iter().flat_map(|column| &column.words);
        let words = words.chain(names.keys()).chain(kinds.keys());
        let chinese = words.filter(|word| has_han(word)).cloned().collect();
        Self { columns, names, kinds, of_kinds, chinese, rows: rows.len() }
    }
}

fn typed(name: &str, rows: &[Row]) -> TypedColumn {
    let of_row = |row: &'_ Row| {
        let column = row.columns.iter().find(|column| column.name == name);
        column.map(|it| it.value.clone())
    };
    let values: Vec<Option<String>> = rows.iter().map(of_row).collect();
    let given = || values.iter().flatten();
    let flag = |value: &String| match &**value {
        "yes" | "是" => Some(true),
        "no" | "否" => Some(false),
        _ => None,
    };
    let of_name = words_and_amounts(name);
    let (values, unit) = if given().all(|value| flag(value).is_some()) {
        (ColumnValues::Flags(values.iter().map(|value| flag(value.as_ref()?)).collect()), None)
    } else if given().all(|value| amount(value).is_some()) {
        let numbers = values.iter().map(|value| amount(value.as_ref()?)).collect();
        (ColumnValues::Numbers(numbers), units::of_name(&of_name))
    } else if let Some((numbers, unit)) = measured(&values) {
        (ColumnValues::Numbers(numbers), unit)
    } else {
        let mut kinds: Vec<(BTreeSet<String>, Vec<usize>)> = Vec::new();
        let mut places: FxHashMap<BTreeSet<String>, usize> = FxHashMap::default();
        for (at, value) in values.iter().enumerate() {
            let of_value: BTreeSet<String> =
                words_and_amounts(value.as_deref().unwrap_or_default())
                    .iter()
                    .map(|it| stem(it))
                    .collect();
            if of_value.is_empty() || of_value.len() > MOST_WORDS_OF_VALUE {
                continue;
            }
            let place = *places.entry(of_value).or_insert_with_key(|of_value| {
                kinds.push((of_value.clone(), Vec::new()));
                kinds.len() - 1
            });
            kinds[place].1.push(at);
        }
        (ColumnValues::Kinds(kinds), None)
    };
    let mut words: Vec<String> = of_name.iter().map(|it| stem(it)).collect();
    if let (ColumnValues::Flags(_), [word]) = (&values, &mut words[..])
        && let Some(rest) = word.strip_prefix(['可', '能', '有']).filter(|it| !it.is_empty())
    {
        // Rows with 可带宠物 are asked for as 能带宠物的.
        *word = rest.to_owned();
    }
    TypedColumn { name: name.to_owned(), words, values, unit }
}

/// Returns the numbers of values that are amounts of one unit, such as `1.2 kg`, with the unit if
/// it can be converted. Amounts such as `1.2 kg` and `800 g` are in the unit that most of them have.
fn measured(values: &[Option<String>]) -> Option<(Vec<Option<f64>>, Option<&'static Unit>)> {
    let of_value = |value: &String| {
        let lower = value.trim().to_lowercase();
        let is_number = |it: char| it.is_ascii_digit() || matches!(it, '.' | ',');
        let digits = lower.trim_matches(|it: char| !it.is_ascii_digit());
        let (before, behind) = lower.split_once(digits).filter(|_| !digits.is_empty())?;
        let (before, behind) = (before.trim(), behind.trim());
        let word = [before, behind].concat();
        // Such a unit stands behind its number: H2 is a code.
        let unit = Some(behind).filter(|_| before.is_empty()).and_then(units::unit);
        let is_unit = UNITS.iter().any(|(unit, said)| *unit == word || said.trim() == word);
        let is_known = is_unit || unit.is_some() || has_han(&word) && word.chars().count() <= 2;
        let number = amount(digits).filter(|_| digits.chars().all(is_number) && is_known)?;
        Some((number, word, unit))
    };
    let read: Vec<_> = values.iter().map(|value| of_value(value.as_ref()?)).collect();
    let are_all = values.iter().zip(&read).all(|(value, it)| value.is_some() == it.is_some());
    let given = || read.iter().flatten();
    let (_, first, _) = given().next().filter(|_| are_all)?;
    let units: Vec<_> = given().map(|(.., unit)| *unit).collect();
    let common = units::most_common(&units);
    let is_one = common.is_some() || given().all(|(_, word, _)| word == first);
    let numbers = read.iter().map(|it| {
        let (number, _, unit) = it.as_ref()?;
        Some(unit.zip(common).map_or(*number, |(unit, common)| unit.convert(*number, common)))
    });
    is_one.then(|| (numbers.collect(), common))
}

/// Returns the words of a text in lower case, amounts among them.
pub(super) fn words_and_amounts(text: &str) -> Vec<String> {
    let is_part =
        |letter: char| letter.is_alphanumeric() || matches!(letter, '\'' | '€' | '$' | '£');
    let lower = text.to_lowercase().replace('’', "'");
    let mut found = Vec::new();
    for part in lower.split(|letter: char| !is_part(letter) && !matches!(letter, '.' | ',')) {
        let part = part.trim_matches(['.', ',', '\'']);
        // Only a number contains a comma or point.
        if amount_and_unit(part).is_some() {
            found.push(part.to_owned());
        } else {
            found.extend(part.split(['.', ',']).filter(|it| !it.is_empty()).map(str::to_owned));
        }
    }
    found
}

/// Returns the number that a word says, and the unit that is written to it, as in `900g`.
pub(super) fn amount_and_unit(word: &str) -> Option<(f64, Option<&str>)> {
    let (digits, unit) = word.split_at(word.find(char::is_alphabetic).unwrap_or(word.len()));
    let is_known = unit.is_empty() || units::unit(unit).is_some();
    Some((amount(digits)?, Some(unit).filter(|it| !it.is_empty()))).filter(|_| is_known)
}

/// Returns the number that a word says, with the sign of a currency or without. A comma before
/// three digits separates thousands.
pub(super) fn amount(word: &str) -> Option<f64> {
    let digits = word.trim_matches(['€', '$', '£']);
    let is_thousands = digits
        .rsplit_once(',')
        .is_some_and(|(_, last)| last.split('.').next().is_some_and(|it| it.len() == 3));
    let number = digits.replace(',', if is_thousands { "" } else { "." });
    let is_number = number.starts_with(|it: char| it.is_ascii_digit() || it == '-');
    number.parse().ok().filter(|it: &f64| is_number && it.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_one_unit_are_numbers() {
        let of = |values: &[&str]| {
            let values: Vec<_> = values.iter().map(|it| Some((*it).to_owned())).collect();
            measured(&values).map(|(it, _)| it.into_iter().flatten().collect::<Vec<_>>())
        };
        assert_eq!(of(&["1.2 kg", "0.8kg", "1,200 kg"]), Some(vec![1.2, 0.8, 1200.0]));
        assert_eq!(of(&["EUR 49", "49.50 EUR"]), Some(vec![49.0, 49.5]));
        assert_eq!(of(&["12元", "9 元"]), Some(vec![12.0, 9.0]));
        assert_eq!(of(&["800 g", "1.2 kg", "2 kg"]), Some(vec![0.8, 1.2, 2.0]));
        assert_eq!(of(&["350毫升", "1.5升"]), Some(vec![350.0, 1500.0]), "the first on a tie");
        assert_eq!(of(&["1 h", "90 min", "2 hours"]), Some(vec![1.0, 1.5, 2.0]));
        for mixed in [
            &["500 g", "250 ml"][..],
            &["49 EUR", "60 USD"],
            &["45 min", "1 h 30"],
            &["2 to 3 days", "4 days"],
            &["H1", "H2"],
            &["T-1", "T-2"],
            &["kg"],
        ] {
            assert_eq!(of(mixed), None, "{mixed:?}");
        }
    }

    #[test]
    fn amounts_are_read_as_people_write_them() {
        for (word, expected) in [
            ("7.20", Some(7.2)),
            ("£7,50", Some(7.5)),
            ("1,200", Some(1200.0)),
            ("1,200.50", Some(1200.5)),
            ("-3", Some(-3.0)),
            ("£", None),
            ("inf", None),
            ("T-04", None),
        ] {
            assert_eq!(amount(word), expected, "{word}");
        }
    }
}
