//! Checks that a response of the unified model is faithful to the row that it was made from: the
//! response is complete, every number in it occurs in the evidence or the dialogue, it contains the
//! values that were asked for, no value follows the words of another column, and it neither denies
//! what holds nor affirms what does not.
//!
//! The check has limits: a response may pass and still leave something out, or say it oddly. It
//! knows a column by the words of its name only; it does not catch a value that follows a synonym
//! of the wrong column's name.

use std::collections::BTreeSet;

use turnstream_ports::model::unified::Said;
use turnstream_schemas::{Column, TableRow};

use turnstream_knowledge::terms::terms;

/// Why a response is not faithful.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfaithful {
    /// It was cut, or repeats itself, or is empty.
    #[error("the response is empty, cut off or repeats itself")]
    Unfinished,
    /// A number that occurs neither in the evidence nor in the dialogue.
    #[error("the number {0} is neither in the evidence nor in the dialogue")]
    Number(String),
    /// A column that was asked for and whose value is missing.
    #[error("the response leaves out {0}, which the user asked for")]
    Missing(String),
    /// A value with the words of another column.
    #[error("the response gives {value} as {said_as}, but it is {is}")]
    Slot {
        /// The value.
        value: String,
        /// The column that the response names.
        said_as: String,
        /// Its own column.
        is: String,
    },
    /// A column of yes or no that is affirmed where it is no, or denied where it is yes.
    #[error("the response contradicts the row about {0}")]
    Polarity(String),
}

/// How many terms before a value are searched for the name of its column.
const WORDS_BEFORE: usize = 5;

/// Words before a value that is the owner of another value ("the price of X").
const WHOSE: [&str; 4] = ["of", "for", "at", "from"];

/// Characters that end a clause.
pub(crate) const CLAUSE_ENDS: [char; 5] = ['.', '!', '?', ';', ','];

/// Words that deny.
const DENIALS: [&str; 7] = ["no", "not", "cannot", "never", "without", "none", "neither"];

/// A word that counts as a denial: a response that regrets says no.
const REGRET: &str = "unfortunately";

/// Checks a response to `asked` that was made from a row. Its numbers must come from the row or from `known`:
/// the dialogue and the other evidence.
///
/// # Errors
/// The first fault of the response.
pub fn check(
    said: &[Said],
    is_whole: bool,
    row: &TableRow,
    asked: &str,
    known: &[&str],
) -> Result<(), Unfaithful> {
    let text = turnstream_ports::model::unified::text_of(said);
    if !is_whole || text.is_empty() {
        return Err(Unfaithful::Unfinished);
    }
    numbers(said, row, known)?;
    missing(&text, row, asked)?;
    slots(said, row)?;
    polarity(&text, row)
}

/// Checks that every run of digits in the model's own words occurs in the row or in `known`.
fn numbers(said: &[Said], row: &TableRow, known: &[&str]) -> Result<(), Unfaithful> {
    for part in said {
        let Said::Words(words) = part else { continue };
        for number in words.split(|c: char| !c.is_ascii_digit()).filter(|it| !it.is_empty()) {
            let stands =
                |text: &str| text.split(|c: char| !c.is_ascii_digit()).any(|it| it == number);
            let in_row = row.columns.iter().any(|column| stands(&column.value));
            if !in_row && !known.iter().any(|text| stands(text)) {
                return Err(Unfaithful::Number(number.to_owned()));
            }
        }
    }
    Ok(())
}

/// Returns the terms of a column's name.
fn called(column: &Column) -> BTreeSet<String> {
    terms(&column.name).into_iter().collect()
}

fn is_truth(column: &Column) -> bool {
    column.value == "yes" || column.value == "no"
}

/// Checks that the response contains the value of every column that the user asked for by its whole
/// name.
fn missing(text: &str, row: &TableRow, asked: &str) -> Result<(), Unfaithful> {
    let (asked, text): (BTreeSet<String>, _) =
        (terms(asked).into_iter().collect(), text.to_lowercase());
    let is_missing = |column: &&Column| {
        let name = called(column);
        !name.is_empty()
            && name.is_subset(&asked)
            && !is_truth(column)
            && !text.contains(&column.value.to_lowercase())
    };
    // The first column is what the row is about; the response need not name it again.
    match row.columns.iter().skip(1).find(is_missing) {
        Some(column) => Err(Unfaithful::Missing(column.name.clone())),
        None => Ok(()),
    }
}

/// The words before a value.
pub(crate) struct UpToValue<'w> {
    /// The words in the value's own clause.
    pub(crate) clause: &'w str,
    /// Whether the clause begins within these words, rather than before them.
    pub(crate) begins_clause: bool,
    /// Whether they end in a word such as "of": the value is then the owner of another value.
    pub(crate) is_whose: bool,
}

impl<'w> UpToValue<'w> {
    pub(crate) fn of(words: &'w str) -> Self {
        let (begins_clause, clause) = match words.rsplit_once(CLAUSE_ENDS) {
            Some((_, clause)) => (true, clause),
            None => (false, words),
        };
        let last = clause.split_whitespace().next_back().unwrap_or_default();
        let is_whose = WHOSE.contains(&last.to_lowercase().as_str());
        Self { clause, begins_clause, is_whose }
    }
}

/// Checks that the words right before a value do not name other columns only. A value behind a word
/// such as "of" is the owner of another value and is not checked.
fn slots(said: &[Said], row: &TableRow) -> Result<(), Unfaithful> {
    let (mut before, mut is_whose) = (Vec::new(), false);
    for part in said {
        match part {
            Said::Words(words) => {
                let up_to_value = UpToValue::of(words);
                // A new clause names its own columns.
                if up_to_value.begins_clause {
                    before.clear();
                }
                before.extend(terms(up_to_value.clause));
                is_whose = up_to_value.is_whose;
            }
            Said::Value(Column { value, .. }) if !is_whose => {
                let near = &before[before.len().saturating_sub(WORDS_BEFORE)..];
                slot(value, near, row)?;
                before.clear();
            }
            Said::Value(_) => is_whose = false,
        }
    }
    Ok(())
}

fn slot(value: &str, near: &[String], row: &TableRow) -> Result<(), Unfaithful> {
    let own: Vec<&Column> = row.columns.iter().filter(|it| it.value == value).collect();
    let names = |column: &Column| called(column).iter().any(|term| near.contains(term));
    if own.is_empty() || own.iter().any(|column| names(column)) {
        return Ok(());
    }
    match row.columns.iter().find(|column| names(column)) {
        Some(other) => Err(Unfaithful::Slot {
            value: value.to_owned(),
            said_as: other.name.clone(),
            is: own[0].name.clone(),
        }),
        None => Ok(()),
    }
}

/// Checks that a sentence that names a column of yes does not deny it, and that one that names a
/// column of no does.
fn polarity(text: &str, row: &TableRow) -> Result<(), Unfaithful> {
    for column in row.columns.iter().filter(|column| is_truth(column)) {
        let name = called(column);
        for sentence in text.split(['.', '!', '?', ';']) {
            let spoken: BTreeSet<String> = terms(sentence).into_iter().collect();
            if name.is_empty() || !name.is_subset(&spoken) {
                continue;
            }
            let denies = denies(sentence) || sentence.to_lowercase().contains(REGRET);
            if denies == (column.value == "yes") {
                return Err(Unfaithful::Polarity(column.name.clone()));
            }
        }
    }
    Ok(())
}

/// Whether an English text denies something.
pub(crate) fn denies(text: &str) -> bool {
    let lower = text.to_lowercase().replace('’', "'");
    let mut words = lower.split(|c: char| !c.is_alphanumeric() && c != '\'');
    words.any(|word| DENIALS.contains(&word) || word.ends_with("n't"))
}

#[cfg(test)]
pub(crate) mod tests {
    use turnstream_schemas::Score;

    use super::*;

    pub(crate) fn row() -> TableRow {
        let columns = [
            ("name", "Sino"),
            ("phone number", "408-247-8880"),
            ("address", "377 Santana Row"),
            ("price range", "moderate"),
            ("live music", "no"),
            ("vegetarian dishes", "yes"),
        ];
        let column =
            |(name, value): (&str, &str)| Column { name: name.to_owned(), value: value.to_owned() };
        TableRow {
            place: 1,
            columns: columns.map(column).into(),
            by_words: Score::new(0.5),
            by_meaning: None,
            asked: None,
            cells: None,
        }
    }

    /// Returns the parts of a response; `<…>` is a value.
    pub(crate) fn said(text: &str) -> Vec<Said> {
        let parts = text.split_inclusive(['<', '>']);
        let part = |part: &str| match part.strip_suffix('>') {
            Some(value) => {
                let columns = row().columns;
                let own = columns.into_iter().find(|column| column.value == value);
                Said::Value(own.expect("a value of the row"))
            }
            None => Said::Words(part.trim_end_matches('<').to_owned()),
        };
        parts.map(part).filter(|part| *part != Said::Words(String::new())).collect()
    }

    fn judged(text: &str, asked: &str) -> Result<(), Unfaithful> {
        check(&said(text), true, &row(), asked, &["A table for 2?"])
    }

    #[test]
    fn what_is_right_passes() {
        for (text, asked) in [
            ("The phone number of <Sino> is <408-247-8880>.", "Their phone number?"),
            ("They have no live music.", "Is there live music?"),
            ("Yes, they serve vegetarian dishes.", "Do they have vegetarian dishes?"),
            ("A table for 2 at <Sino>, at <377 Santana Row>.", "Where is it?"),
            ("It is moderate.", "What is the price range?"),
            ("For <Sino> the address is <377 Santana Row>, the phone number <408-247-8880>.", "?"),
            ("There is vegetarian food. It has no live music, though.", "Music?"),
            // The address in another clause does not name the value's column.
            ("I have the address, too. It is <moderate>.", "The price?"),
            ("I have the address of <Sino>. It is <moderate>.", "The price?"),
        ] {
            assert_eq!(judged(text, asked), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let slot = Unfaithful::Slot {
            value: "408-247-8880".to_owned(),
            said_as: "address".to_owned(),
            is: "phone number".to_owned(),
        };
        for (text, asked, wrong) in [
            ("A table for 5 at <Sino>.", "Now?", Unfaithful::Number("5".to_owned())),
            ("It is nice.", "The phone number?", Unfaithful::Missing("phone number".to_owned())),
            ("The address is <408-247-8880>.", "Where?", slot.clone()),
            ("At <Sino> the address is <408-247-8880>.", "Where?", slot),
            ("They have live music.", "Music?", Unfaithful::Polarity("live music".to_owned())),
            (
                "They don't serve vegetarian dishes.",
                "Food?",
                Unfaithful::Polarity("vegetarian dishes".to_owned()),
            ),
            ("", "Now?", Unfaithful::Unfinished),
        ] {
            assert_eq!(judged(text, asked), Err(wrong), "{text}");
        }
        let cut = check(&said("The"), false, &row(), "Now?", &[]);
        assert_eq!(cut, Err(Unfaithful::Unfinished));
    }
}
