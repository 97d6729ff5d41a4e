//! Checks that a response of the unified model says only what its row says. The check guards the learned
//! form, which invents things far from its training data.
//!
//! - Each content word of the model's own must be a word of the row, or one of `plain_words.txt`. Some of
//!   those need a column that they go with: "costs" needs a price. Words of the user do not count: a user
//!   who asks for vegan dishes must not hear that there are some just because of the question. Words for
//!   actions ("booked") are on no list, so that no response claims an action.
//! - Each value must be of a column that the user asked for, or that the value's clause names.
//! - A response may affirm or deny only columns of yes or no.
//! - A response that says neither a value nor such a column says too little.
//! - If the user said only a part of the name of the row's subject, the response must name it in
//!   full: it may not be what the user meant (the lamp's dimmer, for a question about the lamp).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use turnstream_knowledge::terms::terms;
use turnstream_ports::model::unified::{Said, text_of};
use turnstream_schemas::{Column, TableRow};

use crate::faithful::{CLAUSE_ENDS, UpToValue, denies};

const PLAIN_WORDS: &str = include_str!("plain_words.txt");

/// Words that affirm at the beginning of a response.
const AFFIRMED: [&str; 4] = ["yes", "yeah", "yep", "yup"];
/// Words that deny at the beginning of a response.
const DENIED: [&str; 2] = ["no", "nope"];

/// Why a response says more than its row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ungrounded {
    /// A word that is neither in the row nor a plain one.
    #[error("the row does not contain the word {0}")]
    Word(String),
    /// A yes or no at the beginning that answers no column of yes or no, or answers it wrongly.
    #[error("the row does not support the answer {0:?}")]
    Answer(String),
    /// A value that is denied, or a column of yes or no that is said the wrong way round.
    #[error("the response contradicts the row about {0}")]
    Denied(String),
    /// A value whose column neither the user nor its clause names.
    #[error("neither the user nor the response names the column of {0}")]
    Unnamed(String),
    /// A value that is said to own the row's subject, instead of the reverse.
    #[error("the response says that {0} has the row's subject, not the reverse")]
    Reversed(String),
    /// The response has neither a value that is new to the user nor a column of yes or no.
    #[error("the response says nothing about the row")]
    Nothing,
    /// A value that occurs twice, or a word of the model's own that occurs twice in a clause.
    #[error("the response repeats `{0}`")]
    Twice(String),
    /// The row's subject, if the user said only a part of its name and the response does not name
    /// it.
    #[error("the response does not name {0} in full")]
    Subject(String),
}

/// Maps each plain word to the terms of the columns that it goes with; one without terms goes with
/// any column.
static PLAIN: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(|| {
    let mut plain: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in PLAIN_WORDS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (word, columns) = line.split_once(':').unwrap_or((line, ""));
        for term in terms(word) {
            plain.entry(term).or_default().extend(terms(columns));
        }
    }
    plain
});

/// Checks a response to `asked` that was made from a row.
///
/// # Errors
/// The first thing in it that the row does not say.
pub fn check(said: &[Said], row: &TableRow, asked: &str) -> Result<(), Ungrounded> {
    words(said, row)?;
    once(said)?;
    named_in_part(said, row, asked)?;
    forwards(said, row)?;
    answer(said, row, asked)?;
    clauses_hold(said, row, asked)
}

fn words(said: &[Said], row: &TableRow) -> Result<(), Ungrounded> {
    let named: BTreeSet<String> = row.columns.iter().flat_map(|it| terms(&it.name)).collect();
    let valued = row.columns.iter().flat_map(|it| terms(&it.value));
    let of_row: BTreeSet<String> = named.iter().cloned().chain(valued).collect();
    for part in said {
        let Said::Words(words) = part else { continue };
        for term in terms(words) {
            // `faithful` checks numbers.
            if of_row.contains(&term) || term.chars().all(|c| c.is_ascii_digit()) {
                continue;
            }
            let goes_with = PLAIN.get(&term);
            let is_plain =
                goes_with.is_some_and(|needs| needs.is_empty() || !needs.is_disjoint(&named));
            if !is_plain {
                return Err(Ungrounded::Word(term));
            }
        }
    }
    Ok(())
}

/// Checks that no value occurs twice in a response, and no word twice in a clause.
fn once(said: &[Said]) -> Result<(), Ungrounded> {
    let mut values = BTreeSet::new();
    for Clause { words, values: here } in clauses(said) {
        if let Some(value) = here.iter().find(|column| !values.insert(column.value.as_str())) {
            return Err(Ungrounded::Twice(value.value.clone()));
        }
        let mut spoken = BTreeSet::new();
        if let Some(term) = terms(&words).into_iter().find(|term| !spoken.insert(term.clone())) {
            return Err(Ungrounded::Twice(term));
        }
    }
    Ok(())
}

/// Checks that the response has the whole name of the row's subject if the utterance has a part of
/// it.
fn named_in_part(said: &[Said], row: &TableRow, asked: &str) -> Result<(), Ungrounded> {
    let Some(subject) = row.columns.first() else { return Ok(()) };
    let asked: BTreeSet<String> = terms(asked).into_iter().collect();
    let name: BTreeSet<String> = terms(&subject.value).into_iter().collect();
    let spoken: BTreeSet<String> = terms(&text_of(said)).into_iter().collect();
    let is_in_part = !name.is_disjoint(&asked) && !name.is_subset(&asked);
    if is_in_part && !name.is_subset(&spoken) {
        return Err(Ungrounded::Subject(subject.value.clone()));
    }
    Ok(())
}

/// Checks that values belong to the row's subject, and no clause says the reverse ("the ferry for
/// C2 is Skarvik").
fn forwards(said: &[Said], row: &TableRow) -> Result<(), Ungrounded> {
    let subject = row.columns.first();
    let mut whose: Option<&Column> = None;
    let mut is_whose = false;
    for part in said {
        match part {
            Said::Words(words) => {
                let up_to_value = UpToValue::of(words);
                if up_to_value.begins_clause {
                    whose = None;
                }
                is_whose = up_to_value.is_whose;
            }
            Said::Value(column) if Some(column) == subject => {
                if let Some(other) = whose.filter(|_| !is_whose) {
                    return Err(Ungrounded::Reversed(other.value.clone()));
                }
            }
            Said::Value(column) if is_whose => (whose, is_whose) = (Some(column), false),
            Said::Value(_) => {}
        }
    }
    Ok(())
}

/// Checks that a yes or no at the beginning is the value of the columns of yes or no that share
/// most terms with the question.
fn answer(said: &[Said], row: &TableRow, asked: &str) -> Result<(), Ungrounded> {
    let Some(Said::Words(words)) = said.first() else { return Ok(()) };
    let first = words.split(|c: char| !c.is_alphabetic()).find(|word| !word.is_empty());
    let first = first.unwrap_or_default().to_lowercase();
    let truth = match &*first {
        first if AFFIRMED.contains(&first) => "yes",
        first if DENIED.contains(&first) => "no",
        _ => return Ok(()),
    };
    let asked: BTreeSet<String> = terms(asked).into_iter().collect();
    let shared = |column: &Column| called(column).intersection(&asked).count();
    let most = truths(row).map(shared).max().unwrap_or_default();
    let mut meant = truths(row).filter(|column| shared(column) == most);
    if most > 0 && meant.all(|column| column.value == truth) {
        Ok(())
    } else {
        Err(Ungrounded::Answer(first))
    }
}

/// Returns the columns of yes or no.
fn truths(row: &TableRow) -> impl Iterator<Item = &Column> {
    row.columns.iter().filter(|column| matches!(&*column.value, "yes" | "no"))
}

/// Returns the terms of a column's name.
fn called(column: &Column) -> BTreeSet<String> {
    terms(&column.name).into_iter().collect()
}

/// A part of a response up to a comma or a full stop.
#[derive(Default)]
struct Clause<'s> {
    words: String,
    values: Vec<&'s Column>,
}

fn clauses(said: &[Said]) -> Vec<Clause<'_>> {
    let mut clauses = vec![Clause::default()];
    for part in said {
        match part {
            Said::Value(column) => {
                if let Some(last) = clauses.last_mut() {
                    last.values.push(column);
                }
            }
            Said::Words(words) => {
                for (at, words) in words.split(CLAUSE_ENDS).enumerate() {
                    if at > 0 {
                        clauses.push(Clause::default());
                    }
                    if let Some(last) = clauses.last_mut() {
                        last.words.push_str(words);
                    }
                }
            }
        }
    }
    clauses
}

/// Checks each clause. The column of a value must be asked for or named in the clause, except the
/// first column, which names the row's subject. A clause that denies may have no other value than
/// that of the first column, and may name only those columns of yes or no that are no; a clause
/// that does not deny, only those that are yes. Some clause must have a value that is new to the
/// user, or name a column of yes or no: a response that finds nothing, or repeats the user's own
/// words, says less than the row.
fn clauses_hold(said: &[Said], row: &TableRow, asked: &str) -> Result<(), Ungrounded> {
    let subject = row.columns.first();
    let others = row.columns.iter().filter(|column| !matches!(&*column.value, "yes" | "no"));
    let elsewhere: BTreeSet<String> =
        others.flat_map(|it| terms(&it.name).into_iter().chain(terms(&it.value))).collect();
    let asked: BTreeSet<String> = terms(asked).into_iter().collect();
    let mut says = false;
    for Clause { words, values } in clauses(said) {
        let denies = denies(&words);
        if let Some(value) = values.iter().find(|value| denies && Some(**value) != subject) {
            return Err(Ungrounded::Denied(value.value.clone()));
        }
        let spoken: BTreeSet<String> = terms(&words).into_iter().collect();
        let is_named = |column: &Column| {
            let name = called(column);
            let goes_with =
                |term| PLAIN.get(term).is_some_and(|needs: &BTreeSet<_>| !needs.is_disjoint(&name));
            !name.is_disjoint(&asked) || !name.is_disjoint(&spoken) || spoken.iter().any(goes_with)
        };
        let unnamed = values.iter().find(|value| Some(**value) != subject && !is_named(value));
        if let Some(unnamed) = unnamed {
            return Err(Ungrounded::Unnamed(unnamed.value.clone()));
        }
        let is_spoken_of = |column: &&Column| {
            called(column).iter().any(|term| spoken.contains(term) && !elsewhere.contains(term))
        };
        let meant: Vec<&Column> = truths(row).filter(is_spoken_of).collect();
        let is_new = |column: &&Column| terms(&column.value).iter().any(|it| !asked.contains(it));
        says |= values.iter().any(is_new) || !meant.is_empty();
        // A clause that denies a column by a part of its name may mean another column.
        let is_named_in_full = |column: &&Column| called(column).is_subset(&spoken);
        let is_vague = !meant.iter().any(is_named_in_full);
        let is_denied = denies && is_vague && !spoken.is_disjoint(&elsewhere);
        if let Some(wrong) = meant.iter().find(|column| denies == (column.value == "yes")) {
            return Err(Ungrounded::Denied(wrong.name.clone()));
        }
        if is_denied {
            return Err(Ungrounded::Denied(words.trim().to_owned()));
        }
    }
    if says { Ok(()) } else { Err(Ungrounded::Nothing) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faithful::tests::{row, said};

    fn judged(text: &str, asked: &str) -> Result<(), Ungrounded> {
        check(&said(text), &row(), asked)
    }

    #[test]
    fn the_words_of_the_row_and_plain_ones_pass() {
        for (text, asked) in [
            ("The phone number of <Sino> is <408-247-8880>.", "Their phone number?"),
            (
                "Sure, how about <Sino>? It is located at <377 Santana Row>.",
                "A restaurant, please.",
            ),
            ("You can reach them at <408-247-8880>.", "How can I call them?"),
            ("Yes, they have vegetarian dishes.", "Is there anything vegetarian?"),
            ("No, <Sino> has no live music, but the address is <377 Santana Row>.", "Live music?"),
            ("Sorry, there are no others. <Sino> is moderate.", "Another one?"),
            ("It is <moderate>.", "How about the price?"),
            ("The address <377 Santana Row> is of <Sino>.", "Where is it?"),
            ("The place at the address <377 Santana Row> is <Sino>.", "Where is it?"),
            ("It is at <377 Santana Row>, <Sino>.", "The address?"),
            ("It is at <377 Santana Row> for <Sino>.", "The address?"),
        ] {
            assert_eq!(judged(text, asked), Ok(()), "{text}");
        }
    }

    /// Like `judged`, with a row about a place whose name has two words.
    fn judged_of_two_words(text: &str, asked: &str) -> Result<(), Ungrounded> {
        let mut row = row();
        row.columns[0].value = "Sino Garden".to_owned();
        let longer = |part: Said| match part {
            Said::Value(column) if column.value == "Sino" => Said::Value(row.columns[0].clone()),
            part => part,
        };
        let said: Vec<Said> = said(text).into_iter().map(longer).collect();
        check(&said, &row, asked)
    }

    #[test]
    fn a_row_that_is_named_in_part_has_to_be_named_in_full() {
        let unnamed = Err(Ungrounded::Subject("Sino Garden".to_owned()));
        for (text, asked, verdict) in [
            ("The phone number is <408-247-8880>.", "The phone number of Sino?", unnamed.clone()),
            ("The phone number is <408-247-8880>.", "The phone of your garden?", unnamed),
            ("The phone number of <Sino> is <408-247-8880>.", "The phone number of Sino?", Ok(())),
            ("The phone number is <408-247-8880>.", "And the one of Sino Garden?", Ok(())),
            // The user named it before.
            ("The phone number is <408-247-8880>.", "And their phone number?", Ok(())),
        ] {
            assert_eq!(judged_of_two_words(text, asked), verdict, "{asked} {text}");
        }
    }

    #[test]
    fn what_the_row_does_not_say_is_refused() {
        let word = |word: &str| Ungrounded::Word(word.to_owned());
        let denied = |what: &str| Ungrounded::Denied(what.to_owned());
        for (text, asked, wrong) in [
            // The word is the user's, not the row's.
            ("<Sino> has vegan dishes.", "Do they have vegan dishes?", word("vegan")),
            // "leaves" goes with no column: the row has no departure.
            ("<Sino> leaves at <377 Santana Row>.", "When?", word("leav")),
            ("I have booked <Sino>.", "Book it.", word("book")),
            ("There are ten <Sino>.", "How many?", word("ten")),
            ("Yes, <Sino>.", "Do they deliver?", Ungrounded::Answer("yes".to_owned())),
            ("No, <Sino>.", "Vegetarian dishes?", Ungrounded::Answer("no".to_owned())),
            // The column shares one word with one that is no.
            (
                "No, they have vegetarian dishes.",
                "Vegetarian dishes and live fish?",
                Ungrounded::Answer("no".to_owned()),
            ),
            (
                "The address of <Sino> is not <377 Santana Row>.",
                "Where?",
                denied("377 Santana Row"),
            ),
            // Neither the user nor the clause names the column.
            ("It is <moderate>.", "Who cooks?", Ungrounded::Unnamed("moderate".to_owned())),
            // The user asked where the place is, and hears what it has.
            (
                "The place at <377 Santana Row> is <Sino>.",
                "The address?",
                Ungrounded::Reversed("377 Santana Row".to_owned()),
            ),
            // A part of a column's name is enough.
            ("<Sino> has no dishes.", "Vegetarian dishes?", denied("vegetarian dishes")),
            ("There is music at <Sino>.", "Live music?", denied("live music")),
            ("<Sino> has no phone.", "Phone number?", denied("has no phone")),
            ("I could not find that.", "What is the warranty?", Ungrounded::Nothing),
            (
                "The address has no music.",
                "Is there live music?",
                denied("The address has no music"),
            ),
            ("It is <Sino>.", "Is the food at Sino hot?", Ungrounded::Nothing),
            (
                "It is <moderate> and <moderate>.",
                "The price?",
                Ungrounded::Twice("moderate".to_owned()),
            ),
            (
                "No, <Sino> has no live music or music.",
                "Live music?",
                Ungrounded::Twice("music".to_owned()),
            ),
        ] {
            assert_eq!(judged(text, asked), Err(wrong), "{text}");
        }
    }
}
