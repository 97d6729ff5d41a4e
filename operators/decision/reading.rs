//! Decides by the reader: what it is asked about a turn, and what the response does by its readings.

use std::collections::BTreeSet;

use turnstream_knowledge::phrasings::NearestPhrasings;
use turnstream_knowledge::terms::terms;
use turnstream_ports::model::reader::{Question, ReadRequest, Reading};
use turnstream_schemas::{Action, Column, Evidence, Score, TableRow};

use super::choice::{self, Choice, NamedRow, OfTable};
use super::told::untold;
use super::{DecidedResponse, ResponseDecision, intent};
use crate::flow::{ActionDecision, TurnInFlight};
use crate::questions::questions;
use crate::tables::{contradicts, subject};

impl ResponseDecision {
    /// Returns the evidence that is read, `times` as much as for one question: the most relevant
    /// of this kind, each piece with its place in the evidence.
    pub(super) fn read_evidence<'t>(
        &self,
        turn: &'t TurnInFlight,
        is_read: fn(&Evidence) -> bool,
        times: usize,
    ) -> Vec<(usize, &'t Evidence)> {
        let evidence = turn.evidence.iter().enumerate();
        let mut found: Vec<(usize, &Evidence)> = evidence.filter(|(_, it)| is_read(it)).collect();
        found.sort_by(|(_, a), (_, b)| b.relevance.get().total_cmp(&a.relevance.get()));
        let most = self.config.max_read as usize * times;
        let rest = found.split_off(found.len().min(most));
        // The row that the turn names is read too.
        let is_named = |it: &Evidence| it.row.as_ref().is_some_and(|row| row.cells.is_some());
        found.extend(rest.into_iter().filter(|(_, it)| is_named(it)));
        found
    }

    /// Returns what the reader is asked about a turn: the whole utterance, and then each part of it that
    /// is read by itself, and the rest of it beside the row that it names.
    pub(super) fn requests(&self, turn: &TurnInFlight) -> Vec<ReadRequest> {
        let whole = turn.context.question(&self.response_texts);
        let request = |question, is_read, times| {
            let read = self.read_evidence(turn, is_read, times).into_iter();
            let sections = read.map(|(_, it)| choice::section(it, &turn.taught)).collect();
            ReadRequest { question, sections }
        };
        let mut requests = vec![request(whole.clone(), is_text, 1)];
        let of_row = self.rest_of_row(turn);
        for Part { utterance, before, is_read } in self.parts(turn).into_iter().chain(of_row) {
            let user_before = before.or_else(|| whole.user_before.clone());
            let question = Question { utterance, user_before, ..whole.clone() };
            requests.push(request(question, is_read, READ_OF_PART));
        }
        requests
    }

    /// Returns the parts of a turn: what it asks of a row that it names, where only the reader can tell,
    /// and what it asks beside a table; else each of several questions.
    fn parts(&self, turn: &TurnInFlight) -> Vec<Part> {
        let query = turn.context.query();
        let Some(rest) = choice::rest(&turn.evidence) else {
            let found = questions(query);
            let before = std::iter::once(None).chain(found.iter().copied().map(Some));
            let parts = found.iter().zip(before).filter(|_| found.len() > 1);
            return parts.map(|(it, before)| Part::of(it, before, is_text)).collect();
        };
        let (min_precision, lexicon) = (self.config.min_precision, turn.context.lexicon());
        let is_answered = choice::of_table(&turn.evidence, min_precision, lexicon).is_some();
        // The part that the table answers comes before, as what "it" may mean.
        let of_table = query.replacen(rest, "", 1);
        let beside = Part::of(rest, Some(&of_table), is_passage);
        let of_table = (!is_answered).then(|| Part::of(&of_table, None, is_named));
        of_table.into_iter().chain([beside]).collect()
    }

    /// Returns what a turn asks beside the cell of a row, which may be another cell of it.
    fn rest_of_row(&self, turn: &TurnInFlight) -> Option<Part> {
        let rest = choice::rest(&turn.evidence)?;
        let of_table = turn.context.query().replacen(rest, "", 1);
        let is_of_row = turn.evidence.iter().any(is_named);
        is_of_row.then(|| Part::of(rest, Some(&of_table), is_named))
    }

    /// Decides by the readings of the whole utterance, of each of several questions, and of the rest beside
    /// a row.
    pub(super) fn by_reading(
        &self,
        turn: &TurnInFlight,
        reading: &Reading,
        parts: &[Reading],
    ) -> DecidedResponse {
        if let Some(verdict) = self.handed_over(turn, Some(reading)) {
            return verdict;
        }
        if let Some(verdict) = self.taught(turn) {
            return verdict;
        }
        let of_row = usize::from(self.rest_of_row(turn).is_some());
        let (parts, of_row) = parts.split_at(parts.len().saturating_sub(of_row));
        if let Some(verdict) = self.by_table(turn, parts, of_row.first()) {
            return verdict;
        }
        let read = self.read_evidence(turn, is_text, 1);
        let question = turn.context.question(&self.response_texts);
        let untold = untold(&read, reading, &question);
        let of_row = choice::named_row(&read, &untold, &[]);
        let named = of_row.as_ref().filter(|_| parts.is_empty());
        if let Some(verdict) = named.and_then(|it| self.by_named_row(turn, it)) {
            return verdict;
        }
        let answers = f64::from(reading.precision) >= self.config.min_precision;
        let choice = choice::choose(
            &read,
            reading,
            &untold,
            turn.context.query(),
            &turn.taught,
            self.config.max_sentences as usize,
        );
        // Where a turn asks a row for what it does not have, some cell is still the best.
        let is_silent = |of: &NamedRow| choice.as_ref().is_some_and(|it| it.place == of.place);
        let answers = answers && !named.is_some_and(is_silent);
        let is_taught = choice.as_ref().is_some_and(|it| it.is_taught);
        let row = choice.as_ref().and_then(|it| turn.evidence[it.place].row.as_ref());
        if !is_taught && answers && row.is_some_and(|row| names_nothing_of(turn, row)) {
            let said = Some(self.texts(turn).which.clone());
            return DecidedResponse::of(ActionDecision { said, ..ActionDecision::to(Action::Ask) });
        }
        // What compares rows in words that are not all known is answered by a row that fits.
        let is_contradicted =
            choice.as_ref().is_some_and(|it| self.is_contradicted(turn, it.place));
        if !is_taught && answers && is_contradicted {
            return self.unanswered(turn, reading, None);
        }
        // A section that answers the utterance as a whole probably answers all of its questions.
        if let Some((verdict, is_whole)) = self.of_parts(turn, parts)
            && (is_whole || !answers)
            && !is_taught
        {
            return verdict;
        }
        let mut precision = f64::from(reading.precision);
        let mut verdict = match choice {
            Some(Choice { place, sentences, .. })
                if (answers || is_taught) && !sentences.is_empty() =>
            {
                let said = choice::said(&turn.evidence[place], &sentences, turn.context.lexicon());
                let decided = ActionDecision { said, ..ActionDecision::to(Action::Answer) };
                DecidedResponse { decided: Some(decided), answers: vec![place] }
            }
            choice => {
                let is_asked =
                    |precision: f64, share| precision >= self.config.min_precision * share;
                let rivals = choice.and_then(|it| it.rivals);
                let asked = match &of_row {
                    Some(it) if is_asked(it.precision, ASKED_OF_ROW) => {
                        precision = it.precision;
                        choice::cells(&turn.evidence[it.place], &it.likeliest).or(rivals)
                    }
                    // What a row that the turn names does not have, another place does not tell.
                    Some(_) if named.is_some() => rivals,
                    _ => rivals.or_else(|| {
                        let is_asked = is_asked(precision, ASKED);
                        is_asked.then(|| choice::places(&read, &untold)).flatten()
                    }),
                };
                self.unanswered(turn, reading, asked)
            }
        };
        if let Some(decided) = &mut verdict.decided {
            decided.precision = Some(Score::new(precision));
        }
        verdict
    }

    /// Responds to a turn that no passage or row answers surely; it may be `asked` which of several
    /// does.
    fn unanswered(
        &self,
        turn: &TurnInFlight,
        reading: &Reading,
        asked: Option<choice::Asked>,
    ) -> DecidedResponse {
        let reason = intent::hand_off_unanswered(reading);
        if let Some(verdict) = reason.and_then(|it| self.handed_over_for(turn, it)) {
            return verdict;
        }
        if intent::is_small_talk(turn.context.query(), Some(reading)) {
            return DecidedResponse::of(ActionDecision::to(Action::Social));
        }
        if let Some(choice::Asked { names, are_titles }) = asked {
            let said = Some(self.texts(turn).asking().about(&names, are_titles));
            let asks = ActionDecision { said, ..ActionDecision::to(Action::Ask) };
            return self.or_hand_over(turn, asks);
        }
        self.by_facts(turn).unwrap_or_else(|| self.decline(turn))
    }

    /// Whether a piece of evidence is a row that the turn does not name, and that is not what its
    /// comparison asks for.
    fn is_contradicted(&self, turn: &TurnInFlight, place: usize) -> bool {
        let (evidence, query) = (&turn.evidence[place], turn.context.query());
        let Some(row) = evidence.row.as_ref().filter(|row| row.cells.is_none()) else {
            return false;
        };
        let spoken: BTreeSet<String> = terms(query).into_iter().collect();
        let name = subject(&row.columns).map(|name| terms(&name.value)).unwrap_or_default();
        let table = self.tables.get(&evidence.source);
        !name.iter().any(|word| spoken.contains(word))
            && table.is_some_and(|table| contradicts(table, query, row.place))
    }

    /// Answers with the cell that the reader finds in the row that the turn names.
    fn by_named_row(&self, turn: &TurnInFlight, named: &NamedRow) -> Option<DecidedResponse> {
        let NamedRow { place, cell, precision, .. } = *named;
        let said = choice::said(&turn.evidence[place], &[cell], turn.context.lexicon())?;
        let is_sure = precision >= self.config.min_precision;
        let precision = Some(Score::new(precision));
        let decided =
            ActionDecision { precision, said: Some(said), ..ActionDecision::to(Action::Answer) };
        is_sure.then(|| DecidedResponse { decided: Some(decided), answers: vec![place] })
    }

    /// Answers several questions, each by itself. Returns also whether every one is surely answered;
    /// `None` if none is.
    fn of_parts(
        &self,
        turn: &TurnInFlight,
        readings: &[Reading],
    ) -> Option<(DecidedResponse, bool)> {
        let (config, lexicon) = (&self.config, turn.context.lexicon());
        // Phrasings were compared with the whole utterance.
        let untaught = NearestPhrasings::default();
        let mut chosen: Vec<(usize, Vec<usize>)> = Vec::new();
        let (mut precision, mut is_whole) = (1.0, true);
        let whole = turn.context.question(&self.response_texts);
        let is_sure = |it: &Reading| f64::from(it.precision) >= config.min_precision;
        let (is_answered, are_sure) = (readings.iter().any(is_sure), readings.iter().all(is_sure));
        let least = config.min_precision * BESIDE;
        for (Part { utterance, is_read, .. }, reading) in self.parts(turn).into_iter().zip(readings)
        {
            let read = self.read_evidence(turn, is_read, READ_OF_PART);
            let named = choice::named_row(&read, reading, &[]);
            let of_part = f64::from(reading.precision);
            let most = config.max_sentences as usize;
            let choice = if is_answered && of_part >= least {
                let question = Question { utterance, ..whole.clone() };
                let untold = untold(&read, reading, &question);
                choice::choose(&read, reading, &untold, &question.utterance, &untaught, most)
            } else {
                None
            };
            let choice = choice.filter(|it| !it.sentences.is_empty());
            let Some(Choice { place, mut sentences, .. }) = choice else {
                is_whole = false;
                continue;
            };
            // One question, one cell of the row that the turn names.
            if let Some(named) = named.filter(|it| it.place == place) {
                sentences = vec![named.cell];
            }
            precision = of_part.min(precision);
            match chosen.iter_mut().find(|(known, _)| *known == place) {
                Some((_, said)) => {
                    said.extend(sentences);
                    said.sort_unstable();
                    said.dedup();
                }
                None => chosen.push((place, sentences)),
            }
        }
        let (answers, mut said): (Vec<usize>, Vec<String>) = chosen
            .iter()
            .filter_map(|(at, chosen)| {
                Some((*at, choice::said(&turn.evidence[*at], chosen, lexicon)?))
            })
            .unzip();
        answers.first()?;
        if !is_whole {
            said.push(self.texts(turn).rest.clone());
        }
        let decided = ActionDecision {
            precision: Some(Score::new(precision)),
            said: Some(said.join(" ")),
            ..ActionDecision::to(Action::Answer)
        };
        Some((DecidedResponse { decided: Some(decided), answers }, is_whole && are_sure))
    }

    /// Answers with the rows or cells that the turn asks a table for, and with what the reader found for
    /// the rest of the turn: in the row (`rest_of_row`), or else in pages.
    pub(super) fn by_table(
        &self,
        turn: &TurnInFlight,
        readings: &[Reading],
        rest_of_row: Option<&Reading>,
    ) -> Option<DecidedResponse> {
        let (min_precision, lexicon) = (self.config.min_precision, turn.context.lexicon());
        let of_table = choice::of_table(&turn.evidence, min_precision, lexicon);
        let OfTable { places: mut answers, mut cells, mut said, mut precision, rest } =
            of_table.or_else(|| self.named_beside(turn, readings))?;
        let second = rest_of_row.filter(|_| !cells.is_empty() && rest.is_some());
        let second = second.and_then(|it| self.named_cell(turn, it, &cells));
        if let Some(NamedRow { place, cell, precision: of_cell, .. }) = second {
            cells.push(cell);
            said = choice::said(&turn.evidence[place], &cells, lexicon)?;
            precision = precision.map(|it| Score::new(it.get().min(of_cell)));
        } else if let Some(rest) = rest {
            let least = min_precision * BESIDE;
            let reading = readings.last().filter(|it| f64::from(it.precision) >= least);
            let most = self.config.max_sentences as usize;
            let found = reading.and_then(|it| {
                let read = self.read_evidence(turn, is_passage, READ_OF_PART);
                let whole = turn.context.question(&self.response_texts);
                let question = Question { utterance: rest.to_owned(), ..whole };
                let untold = untold(&read, it, &question);
                let choice = choice::choose(&read, it, &untold, rest, &turn.taught, most)?;
                let evidence = &turn.evidence[choice.place];
                Some((choice.place, choice::said(evidence, &choice.sentences, lexicon)?))
            });
            answers.extend(found.iter().map(|(place, _)| *place));
            let beside = found.map_or_else(|| self.texts(turn).rest.clone(), |(_, said)| said);
            let is_chinese = lexicon.is_chinese();
            said = [&*said, &*beside].join(if is_chinese { "" } else { " " });
        }
        let decided =
            ActionDecision { precision, said: Some(said), ..ActionDecision::to(Action::Answer) };
        Some(DecidedResponse { decided: Some(decided), answers })
    }

    /// Returns the cell that the reader finds in the row that one part of the turn names, where the other
    /// part asks for something else.
    fn named_beside<'t>(
        &self,
        turn: &'t TurnInFlight,
        readings: &[Reading],
    ) -> Option<OfTable<'t>> {
        let (rest, [of_row, _]) = (choice::rest(&turn.evidence)?, readings) else { return None };
        let NamedRow { place, cell, precision, .. } = self.named_cell(turn, of_row, &[])?;
        let said = choice::said(&turn.evidence[place], &[cell], turn.context.lexicon())?;
        let (precision, rest) = (Some(Score::new(precision)), Some(rest));
        Some(OfTable { places: vec![place], cells: vec![cell], said, precision, rest })
    }

    /// Returns the cell, but for those that are `said`, that a part of the turn surely asks for of the row
    /// that the turn names.
    fn named_cell(&self, turn: &TurnInFlight, of: &Reading, said: &[usize]) -> Option<NamedRow> {
        let read = self.read_evidence(turn, is_named, READ_OF_PART);
        let found = choice::named_row(&read, of, said)?;
        (found.precision >= self.config.min_precision).then_some(found)
    }
}

/// How many times `max_read` the reader reads for a part of an utterance: retrieval searched for all
/// of them at once.
const READ_OF_PART: usize = 2;

/// How sure the reader must be of one part of an utterance, in shares of `min_precision`, where another
/// part is answered. Of 80 such parts two in three were right (docs/measurements/decision.md).
const BESIDE: f64 = 0.5;

/// How sure the reader must be, in shares of `min_precision`, to ask which of the best passages and rows
/// is meant. Of 254 such questions 157 name one that answers (docs/measurements/decision.md).
const ASKED: f64 = 0.5;

/// The same of the cells of a row that the turn names. Of 179 such questions 134 name one that answers
/// (docs/measurements/decision.md).
const ASKED_OF_ROW: f64 = 1.0 / 3.0;

/// A part of an utterance that is read by itself.
struct Part {
    utterance: String,
    /// The part before it.
    before: Option<String>,
    is_read: fn(&Evidence) -> bool,
}

impl Part {
    fn of(utterance: &str, before: Option<&str>, is_read: fn(&Evidence) -> bool) -> Self {
        Self { utterance: utterance.to_owned(), before: before.map(str::to_owned), is_read }
    }
}

/// Whether the first turn of a conversation refers to something and names nothing of a row: "how much is
/// it?" asks for whatever row reads best.
fn names_nothing_of(turn: &TurnInFlight, row: &TableRow) -> bool {
    let query = turn.context.query();
    let is_first = turn.context.dialogue.len() == 1;
    let spoken: BTreeSet<String> = terms(query).into_iter().collect();
    let is_spoken = |column: &Column| terms(&column.value).iter().any(|it| spoken.contains(it));
    is_first && turn.context.lexicon().refers_back(query) && !row.columns.iter().any(is_spoken)
}

fn is_named(evidence: &Evidence) -> bool {
    evidence.row.as_ref().is_some_and(|row| row.cells.is_some())
}

fn is_passage(evidence: &Evidence) -> bool {
    evidence.document.is_some()
}

/// Whether a piece of evidence is a passage or a row.
pub(super) fn is_text(evidence: &Evidence) -> bool {
    evidence.document.is_some() || evidence.row.is_some()
}
