//! Chooses the section that answers and the sentences of it that are said, by the reader's scores.

use turnstream_knowledge::language::Lexicon;
use turnstream_knowledge::sentences::sentences;
use turnstream_knowledge::terms::terms;
use turnstream_ports::model::reader::{Reading, Section};
use turnstream_schemas::{Column, Evidence, TableRow};

use crate::tables::{self, subject};
use turnstream_knowledge::phrasings::NearestPhrasings;

/// A sentence beside the best one is said too if its logit is at most so much lower.
const BESIDE: f32 = 1.0;
/// Two rows are rivals if one's best logit is at most so much lower than the other's.
const RIVALS: f32 = 0.7;

/// What answers best.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    /// Its place in the evidence.
    pub(super) place: usize,
    /// The sentences or cells to say, in their order.
    pub(super) sentences: Vec<usize>,
    /// Two rows that fit about as well as each other, by their names.
    pub(super) rivals: Option<[String; 2]>,
    /// Whether it is a row that the utterance names, with a column that it names too.
    pub(super) is_named: bool,
}

/// A piece of evidence as the reader reads it.
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

/// The section with the best sentence, the first of equals, and what of it is said; `None` if nothing was
/// read.
pub(super) fn choose(
    read: &[(usize, &Evidence)],
    reading: &Reading,
    utterance: &str,
    most: usize,
) -> Option<Choice> {
    let best = |scores: &[f32]| {
        let scores = scores.iter().copied().enumerate();
        scores.fold(None, |best: Option<(usize, f32)>, it| match best {
            Some(best) if best.1 >= it.1 => Some(best),
            _ => Some(it),
        })
    };
    let mut sections: Vec<_> = read
        .iter()
        .zip(&reading.scores)
        .filter_map(|((place, evidence), scores)| Some((*place, *evidence, scores, best(scores)?)))
        .collect();
    let spoken = utterance.to_lowercase();
    let is_named = |of: &Evidence| {
        let name = of.row.as_ref().and_then(|row| subject(&row.columns));
        name.is_some_and(|it| it.value.len() > 2 && spoken.contains(&it.value.to_lowercase()))
    };
    // A row and a column of it that are both named are what is asked for, whatever else is near.
    let asked = terms(utterance);
    let named = |(_, evidence, scores, _): &(usize, &Evidence, &Vec<f32>, (usize, f32))| {
        let row = evidence.row.as_ref().filter(|_| is_named(evidence))?;
        let subject = subject(&row.columns)?;
        // A word of the row's name does not ask for a column.
        let name = terms(&subject.value);
        let asked = |it: &String| asked.contains(it) && !name.contains(it);
        let columns = row.columns.iter().zip(scores.iter()).enumerate();
        let of_name = |column: &Column| terms(&column.name).iter().any(asked);
        let columns = columns.filter(|(_, (it, _))| it.name != subject.name && of_name(it));
        let best = columns.max_by(|a, b| a.1.1.total_cmp(b.1.1))?;
        Some((subject.value.len(), best.0, *best.1.1))
    };
    let cell = sections.iter().enumerate().filter_map(|(at, it)| Some((named(it)?, at)));
    // The longest name: "Oslo plus" is not "Oslo".
    let cell = cell.max_by_key(|((length, ..), at)| (*length, std::cmp::Reverse(*at)));
    if let Some(((_, column, score), at)) = cell {
        let mut section = sections.remove(at);
        section.3 = (column, score);
        sections.insert(0, section);
    }
    // A stable sort: of equals the more relevant one. Of two rows about alike the one that is named.
    let rest = usize::from(cell.is_some());
    sections[rest..].sort_by(|a, b| b.3.1.total_cmp(&a.3.1));
    if let [first, second, ..] = &mut sections[..]
        && cell.is_none()
        && first.3.1 - second.3.1 <= RIVALS
        && is_named(second.1)
        && !is_named(first.1)
    {
        std::mem::swap(first, second);
    }
    let (place, evidence, scores, (at, score)) = *sections.first()?;
    // Rows are rivals only where one of them answers rather than none.
    let rivals = sections
        .get(1)
        .filter(|(.., (_, second))| score > 0.0 && score - second <= RIVALS && !is_named(evidence));
    let name = |of: &Evidence| Some(subject(&of.row.as_ref()?.columns)?.value.clone());
    let rivals = rivals.and_then(|(_, rival, ..)| {
        let rivals = [name(evidence)?, name(rival)?];
        (rivals[0] != rivals[1]).then_some(rivals)
    });
    let mut others: Vec<usize> = (0..scores.len())
        .filter(|other| cell.is_none() && *other != at && scores[*other] >= score - BESIDE)
        .collect();
    others.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    // A question in a list of answered questions is answered by what follows it.
    let texts = section(evidence, &NearestPhrasings::default()).sentences;
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
    Some(Choice { place, sentences, rivals, is_named: cell.is_some() })
}

/// The rows that answer what the turn asks of several at once, by their places in the evidence, and what is said of
/// them. `None` if it asks no such thing.
pub(super) fn asked_rows(evidence: &[Evidence], lexicon: &Lexicon) -> Option<(Vec<usize>, String)> {
    let answering = |at: &usize| evidence[*at].row.as_ref().is_some_and(|row| row.asked.is_some());
    let places: Vec<usize> = (0..evidence.len()).filter(answering).collect();
    let rows: Vec<&TableRow> = places.iter().filter_map(|at| evidence[*at].row.as_ref()).collect();
    let asked = rows.first()?.asked.as_ref()?;
    Some((places, tables::said_of_all(&rows, asked, lexicon)?))
}

/// What is said of a piece of evidence: sentences of a passage, or cells of a row. `None` if there is
/// nothing to say.
pub(super) fn said(evidence: &Evidence, chosen: &[usize], lexicon: &Lexicon) -> Option<String> {
    if let Some(row) = &evidence.row {
        let columns: Vec<&Column> = chosen.iter().filter_map(|at| row.columns.get(*at)).collect();
        return tables::said(&row.columns, &columns, lexicon);
    }
    let all = sentences(&evidence.text);
    let chosen: Vec<String> = chosen
        .iter()
        .filter_map(|at| all.get(*at))
        // A row of a table in a page: what it is about, and what holds for it.
        .map(|sentence| sentence.replacen(" | ", ": ", 1).replace(" | ", ", "))
        .collect();
    (!chosen.is_empty()).then(|| joined(&chosen, lexicon))
}

/// Sentences behind each other. List items and table rows end without a full stop; they are parted all
/// the same.
fn joined(sentences: &[String], lexicon: &Lexicon) -> String {
    let is_chinese = lexicon.language() == Lexicon::chinese().language();
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
