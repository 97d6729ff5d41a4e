//! Chooses the section that answers and which of its sentences to say, by the reader's scores.

use std::ops::Range;

use turnstream_knowledge::language::{Lexicon, has_han};
use turnstream_knowledge::phrasings::NearestPhrasings;
use turnstream_knowledge::sentences::{CELLS, sentences, sentences_and_headers};
use turnstream_ports::model::reader::{Reading, Section};
use turnstream_ports::script::is_han;
use turnstream_schemas::{CellsAsked, Column, Evidence, Score, TableRow};

use super::told::TOLD;
use crate::tables::{self, named_among, subject};

/// The most by which a sentence's logit may be below the best one's for it to be said too.
const BESIDE: f32 = 1.5;
/// The most by which the best logits of two rows may differ for the rows to be rivals.
const RIVALS: f32 = 0.7;
/// How much the cosine of an utterance and a column's name counts beside the logit of the column's cell, and how
/// much it does that the utterance asks for the column in words.
const NAME: f64 = 8.0;
const WORDS: f64 = 3.0;
/// The logit of the precision of a cell of a row that the turn names: how much the cell's logit, the cosine of
/// its column's name, and the logarithm of its share among the row's cells count, and what is added. Fitted
/// to 358 turns of fourteen companies (docs/measurements/decision.md).
const NAMED: [f64; 4] = [0.30, 4.65, 1.37, -1.37];
/// The least logit at which a sentence answers in place of a better one that was said before.
const UNTOLD: f32 = 1.0;
/// The most passages, rows or cells that a response asks about.
const MOST_ASKED: usize = 3;
/// The most letters of a title that is said with its page; a Chinese character counts as two.
const WIDEST: usize = 40;
/// The least cosine of a question and a phrasing at which the two say the same: what staff taught
/// of it holds, whatever the reader finds.
const SAME: f64 = 0.97;

/// The section that answers best, and what to say of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    /// The place of the section in the evidence.
    pub(super) place: usize,
    /// The sentences or cells to say, in their order.
    pub(super) sentences: Vec<usize>,
    /// Two rows that fit about equally well.
    pub(super) rivals: Option<Asked>,
    /// Whether staff taught that the section answers this very question.
    pub(super) is_taught: bool,
}

/// The passages, rows or cells that a response asks about.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    /// Their names, the most probable first.
    pub(super) names: Vec<String>,
    /// Whether the names stand in quotes: titles of passages are among them, or they are of cells.
    pub(super) are_titles: bool,
}

/// Returns what to ask about where the reader is not sure: the passages and rows with the best
/// sentences. `None` if none of them has a name.
pub(super) fn places(read: &[(usize, &Evidence)], reading: &Reading) -> Option<Asked> {
    let best = |scores: &Vec<f32>| scores.iter().copied().fold(TOLD, f32::max);
    let mut places: Vec<(&Evidence, f32)> = read
        .iter()
        .zip(&reading.scores)
        .map(|((_, evidence), scores)| (*evidence, best(scores)))
        .filter(|(_, score)| *score > TOLD)
        .collect();
    places.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (mut names, mut are_titles) = (Vec::new(), false);
    for (evidence, _) in places {
        let Some(name) = name(evidence) else { continue };
        if names.len() < MOST_ASKED && !names.iter().any(|it| it == name) {
            names.push(name.to_owned());
            are_titles |= evidence.row.is_none();
        }
    }
    (!names.is_empty()).then_some(Asked { names, are_titles })
}

/// Returns what a passage or row is called in a question: its title, which a heading that is a question,
/// and a long one, can do without, or the row's name.
fn name(evidence: &Evidence) -> Option<&str> {
    let name = match (&evidence.row, &evidence.document) {
        (Some(row), _) => &*subject(&row.columns)?.value,
        (None, Some(passage)) => {
            let title = passage.title.trim_end_matches(['?', '？']);
            let width: usize = title.chars().map(|it| 1 + usize::from(is_han(it))).sum();
            let is_short = title.len() == passage.title.len() && width <= WIDEST;
            if is_short { title } else { title.rsplit(": ").next()? }
        }
        (None, None) => return None,
    };
    (!name.is_empty()).then_some(name)
}

/// Returns what to ask about the row that a turn names, where it is not sure for which cell: the likeliest.
/// `None` if there are less than two.
pub(super) fn cells(evidence: &Evidence, likeliest: &[usize]) -> Option<Asked> {
    let columns = &evidence.row.as_ref()?.columns;
    let subject = &subject(columns)?.name;
    let is_told = |column: &&Column| column.name != *subject && column.name != columns[0].name;
    let likeliest = likeliest.iter().filter_map(|at| columns.get(*at)).filter(is_told);
    let names: Vec<String> =
        likeliest.filter_map(|it| name_of_cell(evidence, it)).take(MOST_ASKED).collect();
    (names.len() > 1).then_some(Asked { names, are_titles: true })
}

/// Returns what a cell is called in a question.
fn name_of_cell(evidence: &Evidence, column: &Column) -> Option<String> {
    Some(format!("{}: {}", name(evidence)?, tables::called(column)))
}

/// Returns the cell of a row that is called so in a question.
pub(super) fn cell_called(evidence: &Evidence, said: &str) -> Option<usize> {
    let columns = &evidence.row.as_ref()?.columns;
    columns.iter().position(|it| name_of_cell(evidence, it).as_deref() == Some(said))
}

/// Whether a passage or row, or a cell of it, is called so in a question.
pub(super) fn is_called(evidence: &Evidence, said: &str) -> bool {
    name(evidence) == Some(said) || cell_called(evidence, said).is_some()
}

/// Converts a piece of evidence to the section that the reader reads.
pub(super) fn section(evidence: &Evidence, taught: &NearestPhrasings) -> Section {
    let taught = (taught.of(&evidence.id) * 100.0).round() as u8;
    let Evidence { row, document, .. } = evidence;
    if let Some(row) = row {
        let cell = |column: &Column| format!("{}: {}", column.name, column.value);
        let title = subject(&row.columns).map_or_else(String::new, |it| it.value.clone());
        let sentences = row.columns.iter().map(cell).collect();
        return Section { title, sentences, taught };
    }
    let title = document.as_ref().map_or_else(String::new, |passage| passage.title.clone());
    Section { title, sentences: sentences(&evidence.text), taught }
}

/// Chooses the section that answers best, and what to say of it, but for what the response before has
/// said. Where that is all, the best of the rest is chosen if it answers by itself, or else no
/// sentence. Returns `None` if nothing was read.
pub(super) fn choose(
    read: &[(usize, &Evidence)],
    reading: &Reading,
    untold: &Reading,
    utterance: &str,
    taught: &NearestPhrasings,
    most: usize,
) -> Option<Choice> {
    let mut choice = best(read, reading, utterance, taught, most)?;
    let scores = read.iter().zip(&untold.scores).find(|((place, _), _)| *place == choice.place);
    let is_told = |at: &usize| scores.is_some_and(|(_, of)| of.get(*at) == Some(&TOLD));
    if choice.is_taught || !choice.sentences.iter().any(is_told) {
        return Some(choice);
    }
    choice.sentences.retain(|at| !is_told(at));
    let answers = untold.scores.iter().flatten().any(|score| *score >= UNTOLD);
    if choice.sentences.is_empty() && answers {
        let next = best(read, untold, utterance, taught, most)?;
        // Where it is too uncertain, the response may still ask which row is meant.
        return Some(Choice { rivals: next.rivals.or(choice.rivals), ..next });
    }
    Some(choice)
}

/// Chooses the section with the best sentence, the first of equals, or the one that staff taught for
/// this very question, and what to say of it. Returns `None` if nothing was read.
fn best(
    read: &[(usize, &Evidence)],
    reading: &Reading,
    utterance: &str,
    taught: &NearestPhrasings,
    most: usize,
) -> Option<Choice> {
    let highest = |scores: &[f32]| {
        let scores = scores.iter().copied().enumerate();
        scores.fold(None, |best: Option<(usize, f32)>, it| match best {
            Some(best) if best.1 >= it.1 => Some(best),
            _ => Some(it),
        })
    };
    let mut sections: Vec<_> = read
        .iter()
        .zip(&reading.scores)
        .filter_map(|((place, evidence), scores)| {
            Some((*place, *evidence, scores, highest(scores)?))
        })
        .collect();
    let spoken = utterance.to_lowercase();
    let is_named = |of: &Evidence| {
        let name = of.row.as_ref().and_then(|row| subject(&row.columns));
        name.is_some_and(|it| it.value.len() > 2 && spoken.contains(&it.value.to_lowercase()))
    };
    // The sort is stable: of equals the more relevant one stays first. Of two rows that score about
    // alike, the one that the utterance names goes first.
    sections.sort_by(|a, b| b.3.1.total_cmp(&a.3.1));
    if let [first, second, ..] = &mut sections[..]
        && first.3.1 - second.3.1 <= RIVALS
        && is_named(second.1)
        && !is_named(first.1)
    {
        std::mem::swap(first, second);
    }
    let is_taught =
        |(_, of, ..): &(usize, &Evidence, &Vec<f32>, (usize, f32))| taught.of(&of.id) >= SAME;
    let lesson = sections.iter().position(is_taught);
    if let Some(at) = lesson {
        sections[..=at].rotate_right(1);
    }
    let (place, evidence, scores, (at, score)) = *sections.first()?;
    // Rows are rivals only if the best one answers at all.
    let rivals = sections
        .get(1)
        .filter(|(.., (_, second))| score > 0.0 && score - second <= RIVALS && !is_named(evidence));
    let name = |of: &Evidence| Some(subject(&of.row.as_ref()?.columns)?.value.clone());
    let rivals = rivals.and_then(|(_, rival, ..)| {
        let names = vec![name(evidence)?, name(rival)?];
        (names[0] != names[1]).then_some(Asked { names, are_titles: false })
    });
    let mut others: Vec<usize> = (0..scores.len())
        .filter(|other| *other != at && scores[*other] >= score - BESIDE)
        .collect();
    others.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let texts = section(evidence, &NearestPhrasings::default()).sentences;
    // Of the rows of a page's table only the one that the utterance names is said.
    let rows = if evidence.row.is_none() { table_of_page(&texts, at) } else { at..at };
    let first_cell = |at: usize| texts[at].split(CELLS).next().unwrap_or_default();
    let named = named_among(&rows.clone().map(first_cell).collect::<Vec<_>>(), utterance);
    let (at, others) = match named {
        Some(named) => {
            others.retain(|other| !rows.contains(other));
            (rows.start + named, others)
        }
        None => (at, others),
    };
    // In a list of questions and answers, the sentence after a question answers it.
    let is_question = |at: &usize| texts.get(*at).is_some_and(|it| it.ends_with(['?', '？']));
    let answer = |at: usize| if is_question(&at) { at + 1 } else { at };
    let chosen = std::iter::once(at).chain(others).map(answer);
    let mut sentences = Vec::new();
    for at in chosen.filter(|at| *at < texts.len() && !is_question(at)) {
        if sentences.len() < most && !sentences.contains(&at) {
            sentences.push(at);
        }
    }
    sentences.sort_unstable();
    Some(Choice { place, sentences, rivals, is_taught: lesson.is_some() })
}

/// Returns the places of the rows of the page's table that a sentence is a row of; none if it is not.
fn table_of_page(texts: &[String], at: usize) -> Range<usize> {
    let is_row = |text: &&String| text.contains(CELLS);
    let (before, behind) = texts.split_at(at.min(texts.len()));
    let below = behind.iter().take_while(is_row).count();
    let above = before.iter().rev().take_while(is_row).count();
    if below == 0 { at..at } else { at - above..at + below }
}

/// What the reader finds of a row that a turn names, where names alone were not certain enough.
pub(super) struct NamedRow {
    /// The place of the row in the evidence.
    pub(super) place: usize,
    /// The best cell.
    pub(super) cell: usize,
    /// All cells but those that were said, the best first.
    pub(super) likeliest: Vec<usize>,
    /// The share of cells chosen with as much certainty that answered, on development data.
    pub(super) precision: f64,
}

/// Returns what the reader finds of the row that the turn names, by its cells and by the names of its
/// columns; `None` if the turn names none that was read, or the names have no vectors. The cells that
/// another part of the turn asks for are `said`; without one, the reader judges only what names do not
/// tell.
pub(super) fn named_row(
    read: &[(usize, &Evidence)],
    reading: &Reading,
    said: &[usize],
) -> Option<NamedRow> {
    read.iter().zip(&reading.scores).find_map(|((place, evidence), scores)| {
        let row = evidence.row.as_ref()?;
        let is_open = |it: &&CellsAsked| !said.is_empty() || it.precision.get() == 0.0;
        let cells = row.cells.as_ref().filter(is_open)?;
        let of_name = |at: usize| cells.by_meaning.get(at).map(|it| NAME * it.get());
        let is_asked =
            |at: usize| row.columns.get(at).is_some_and(|it| cells.columns.contains(&it.name));
        let by_words = |at: usize| if is_asked(at) { WORDS } else { 0.0 };
        let both = scores.iter().enumerate();
        let both = both.map(|(at, of)| match said.contains(&at) {
            true => Some(f64::NEG_INFINITY),
            false => Some(f64::from(*of) + of_name(at)? + by_words(at)),
        });
        let both: Vec<f64> = both.collect::<Option<_>>()?;
        let mut likeliest: Vec<usize> = (0..both.len()).filter(|at| !said.contains(at)).collect();
        likeliest.sort_by(|a, b| both[*b].total_cmp(&both[*a]));
        let cell = *likeliest.first()?;
        let precision = if scores[cell] == TOLD {
            0.0
        } else {
            let share = 1.0 / both.iter().map(|it| (it - both[cell]).exp()).sum::<f64>();
            let [of_cell, of_cosine, of_share, rest] = NAMED;
            let of_cell = of_cell * f64::from(scores[cell]);
            let of_cosine = of_cosine * cells.by_meaning[cell].get();
            1.0 / (1.0 + (-(of_cell + of_cosine + of_share * share.ln() + rest)).exp())
        };
        Some(NamedRow { place: *place, cell, likeliest, precision })
    })
}

/// What a table answers by itself, without the reader.
pub(super) struct OfTable<'t> {
    /// The places of the rows.
    pub(super) places: Vec<usize>,
    /// The cells of the one row, by their places; none if rows are asked for.
    pub(super) cells: Vec<usize>,
    pub(super) said: String,
    /// The share of such answers that were right on development data, where it was measured.
    pub(super) precision: Option<Score>,
    /// What else the turn asks.
    pub(super) rest: Option<&'t str>,
}

/// Returns what to say of the rows that answer a row operation of the turn, or else of the cells that
/// it asks for by name, if at least this share of such cells was right on development data.
pub(super) fn of_table<'t>(
    evidence: &'t [Evidence],
    min_precision: f64,
    lexicon: &Lexicon,
) -> Option<OfTable<'t>> {
    let answering = |at: &usize| evidence[*at].row.as_ref().is_some_and(|row| row.asked.is_some());
    let places: Vec<usize> = (0..evidence.len()).filter(answering).collect();
    let rows: Vec<&TableRow> = places.iter().filter_map(|at| evidence[*at].row.as_ref()).collect();
    if let Some(asked) = rows.first().and_then(|row| row.asked.as_ref()) {
        let said = tables::said_of_all(&rows, asked, lexicon)?;
        let rest = asked.rest.as_deref();
        return Some(OfTable { places, cells: Vec::new(), said, precision: None, rest });
    }
    let (place, asked) = asked_cells(evidence, min_precision)?;
    let row = evidence[place].row.as_ref()?;
    let cell = |name: &String| row.columns.iter().position(|it| it.name == *name);
    let cells: Vec<usize> = asked.columns.iter().filter_map(cell).collect();
    let said = said(&evidence[place], &cells, lexicon)?;
    let (precision, rest) = (Some(asked.precision), asked.rest.as_deref());
    Some(OfTable { places: vec![place], cells, said, precision, rest })
}

/// Returns what a turn asks beside what it asks a table for.
pub(super) fn rest<'t>(evidence: &'t [Evidence]) -> Option<&'t str> {
    let rest = |row: &'t TableRow| match (&row.asked, &row.cells) {
        (Some(asked), _) => asked.rest.as_deref(),
        (None, cells) => cells.as_ref()?.rest.as_deref(),
    };
    evidence.iter().filter_map(|it| it.row.as_ref()).find_map(rest)
}

/// Returns the cells that the turn asks for by name, with the place of their row, if at least this
/// share of such cells was right on development data.
fn asked_cells(evidence: &[Evidence], min_precision: f64) -> Option<(usize, &CellsAsked)> {
    evidence.iter().enumerate().find_map(|(at, it)| {
        let cells = it.row.as_ref()?.cells.as_ref()?;
        (cells.precision.get() >= min_precision).then_some((at, cells))
    })
}

/// Returns what to say of a piece of evidence: sentences of a passage, or cells of a row. Returns
/// `None` if there is nothing to say.
pub(super) fn said(evidence: &Evidence, chosen: &[usize], lexicon: &Lexicon) -> Option<String> {
    if let Some(row) = &evidence.row {
        let columns: Vec<&Column> = chosen.iter().filter_map(|at| row.columns.get(*at)).collect();
        return tables::said(&row.columns, &columns, lexicon);
    }
    let all = sentences_and_headers(&evidence.text);
    let chosen: Vec<String> = chosen
        .iter()
        .filter_map(|at| all.get(*at))
        .map(|(sentence, header)| row_of_page(sentence, header))
        .collect();
    (!chosen.is_empty()).then(|| joined(&chosen, lexicon))
}

/// Says a table row of a page: the first cell is the subject, and the others describe it, with the names
/// of their columns where there are several. A sentence stays as it is.
fn row_of_page(sentence: &str, header: &[String]) -> String {
    if header.is_empty() {
        return sentence.to_owned();
    }
    let mut cells = sentence.split(CELLS.trim()).map(str::trim);
    let subject = cells.next().unwrap_or_default();
    let is_headed = header.len() > 2 && cells.clone().count() < header.len();
    let names = header.iter().skip(1).filter(|_| is_headed).map(|name| lower_first(name));
    let names = names.chain(std::iter::repeat(String::new()));
    let cells = cells.zip(names).map(|(cell, name)| match &*name {
        _ if cell.is_empty() => String::new(),
        "" => cell.to_owned(),
        name if has_han(name) => format!("{name}{cell}"),
        name => format!("{name} {cell}"),
    });
    let cells: Vec<String> = cells.filter(|cell| !cell.is_empty()).collect();
    let parts = [subject, &*cells.join(", ")].map(str::to_owned);
    parts.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(": ")
}

/// A name with a small first letter, unless it is in capitals.
fn lower_first(name: &str) -> String {
    let mut letters = name.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(name.chars().skip(1)).collect()
        }
        _ => name.to_owned(),
    }
}

/// Joins sentences. Separates list items and table rows too, which end without a full stop.
fn joined(sentences: &[String], lexicon: &Lexicon) -> String {
    let is_chinese = lexicon.is_chinese();
    let [space, parted, stop] = if is_chinese { ["", "；", "。"] } else { [" ", "; ", "."] };
    let mut text = String::new();
    for (at, sentence) in sentences.iter().enumerate() {
        text.push_str(sentence);
        let ends = sentence.ends_with(['.', '!', '?', ':', '。', '！', '？', '：', '”', '"']);
        match (at + 1 == sentences.len(), ends) {
            (true, true) => {}
            (true, false) => text.push_str(stop),
            (false, true) => text.push_str(space),
            (false, false) => text.push_str(parted),
        }
    }
    text
}

#[cfg(test)]
mod tests;
