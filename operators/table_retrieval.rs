//! Table retrieval finds the rows of a table that answer the turn.
//!
//! It searches the rows of the planned table for the current utterance, by words (BM25 over each
//! row as `column = value`) and, where the rows have vectors by the reader, by meaning. The rows
//! that answer a row operation of the turn, such as which is the cheapest, come first, and so does
//! the row whose cells the turn asks for by name. If the table depends on other sources, it also
//! searches for their evidence; and if that evidence names values of rows that were found, only
//! those rows remain.
//!
//! Key: none. State: none; the rows are those that existed when the process started. If it fails and may
//! degrade, the turn goes on without rows. It does not decide which rows are used.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use turnstream_schemas::{
    CellsAsked, Evidence, EvidenceId, Fault, Score, SourceName, Stage, TableRow,
};

use crate::flow::{Epoch, TurnInFlight};
use crate::fusion::{Fused, fuse};
use crate::sources::Sources;
use crate::stage::{DecideByRules, OnFailure, Streams, Without, run};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;
use crate::tables::{Table, Tables};

const STAGE: Stage = Stage::TableRetrieval;
/// The most earlier utterances from which a row or column may be taken.
const EARLIER: usize = 4;

/// How tables are searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TableRetrievalConfig {
    /// What happens to a turn on which the stage fails.
    pub on_failure: OnFailure,
    /// The most rows that become evidence; 1..=1024.
    #[schemars(range(min = 1, max = 1024))]
    pub max_rows: u32,
    /// The least likeness of a row that becomes evidence; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_score: f64,
    /// The share of words in a row's likeness, against meaning; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub word_share: f64,
    /// The most rows of a table that is also searched by meaning; 0..=100000. The reader turns each
    /// row into a vector when the process starts, some forty milliseconds a row.
    #[schemars(range(max = 100_000))]
    pub max_encoded_rows: u32,
}

impl Default for TableRetrievalConfig {
    fn default() -> Self {
        Self {
            on_failure: OnFailure::Degrade,
            max_rows: 5,
            min_score: 0.05,
            word_share: 0.3,
            max_encoded_rows: 1_000,
        }
    }
}

impl StageConfig for TableRetrievalConfig {}

/// Runs table retrieval over a stream of turns. Returns (turns with rows among their candidates,
/// faults).
pub fn table_retrieval<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: TableRetrievalConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    let StageContext { sources, tables, .. } = context.clone();
    run(turns, TableRetrieval { config, sources, tables }, &context.runner)
}

/// The stage.
struct TableRetrieval {
    config: TableRetrievalConfig,
    sources: Arc<Sources>,
    tables: Arc<Tables>,
}

impl DecideByRules for TableRetrieval {
    type Turn = TurnInFlight;
    type Decision = Vec<Evidence>;

    const STAGE: Stage = STAGE;

    fn on_failure(&self) -> OnFailure {
        self.config.on_failure
    }

    fn decide(&self, turn: &TurnInFlight) -> Result<Vec<Evidence>, Fault> {
        let Some(source) = turn.source(&self.sources) else { return Ok(Vec::new()) };
        let Some(table) = self.tables.get(&source.name) else { return Ok(Vec::new()) };
        let given = turn.given(source, &self.sources);
        Ok(retrieve(turn, &source.name, &given, table, &self.config))
    }

    fn without(&self, _: &TurnInFlight, _: Without<'_>) -> Vec<Evidence> {
        Vec::new()
    }

    fn write(&self, turn: &mut TurnInFlight, rows: Vec<Evidence>) {
        turn.candidates.rows.extend(rows);
    }
}

/// Returns the rows for a turn, by falling relevance. `given` is evidence from the sources that
/// this one depends on.
pub fn retrieve(
    turn: &TurnInFlight,
    source: &SourceName,
    given: &[&Evidence],
    table: &Table,
    config: &TableRetrievalConfig,
) -> Vec<Evidence> {
    let given: Vec<&str> = given.iter().map(|found| &*found.text).collect();
    let asked = [&given[..], &[turn.context.completed_query()]].concat().join(" ");
    let id = |at: u32| EvidenceId(format!("{}/{}", source.as_str(), at + 1));
    let nearer = |(at, cosine): (u32, f64)| (at, cosine.max(turn.taught.of(&id(at))));
    let by_meaning = turn
        .question
        .as_deref()
        .map(|question| table.by_meaning(question).into_iter().map(nearer).collect::<Vec<_>>());
    // Evidence from other sources names rows by their words, not by meaning.
    let by_meaning = by_meaning.filter(|found| !found.is_empty() && given.is_empty());
    let by_words = table.search(&asked, &given, config.max_rows as usize);
    let mut found = fuse(Some(by_words), by_meaning, config.word_share);
    found.retain(|it| it.score >= config.min_score);
    let is_free = given.is_empty();
    let rows = is_free.then(|| table.asked(turn.context.completed_query())).flatten();
    let mut cells = (is_free && rows.is_none()).then(|| asked_cells(turn, table)).flatten();
    if let (Some((row, cells)), Some(utterance)) = (&mut cells, &turn.utterance) {
        let by_meaning = table.columns_by_meaning(*row, utterance);
        cells.by_meaning = by_meaning.into_iter().map(Score::new).collect();
    }
    let answering: Vec<u32> = rows
        .iter()
        .flat_map(|(rows, _)| rows.iter().copied())
        .chain(cells.iter().map(|(row, _)| *row))
        .collect();
    let answers = |at: u32| answering.contains(&at);
    // Rows that answer what the turn asks of the table have the highest relevance; one that it names
    // and that the reader has to judge keeps its own.
    let is_sure = cells.as_ref().is_none_or(|(_, cells)| cells.precision.get() > 0.0);
    let first = answering.iter().map(|at| {
        let it = found.iter().find(|it| it.at == *at);
        let (by_words, by_meaning) = it.map_or((None, None), |it| (it.by_words, it.by_meaning));
        let score = if is_sure { 1.0 } else { it.map_or(0.0, |it| it.score) };
        Fused { at: *at, score, by_words, by_meaning }
    });
    let rest = found.iter().copied().filter(|it| !answers(it.at)).take(config.max_rows as usize);
    let evidence = |found: Fused| {
        let row = table.row(found.at)?;
        let (place, score) = (found.at + 1, Score::new(found.score));
        let is_answer = answers(found.at);
        let row = TableRow {
            place,
            columns: row.columns.clone(),
            by_words: Score::new(found.by_words.unwrap_or(0.0)),
            by_meaning: found.by_meaning.map(Score::new),
            asked: rows.as_ref().filter(|_| is_answer).map(|(_, asked)| asked.clone()),
            cells: cells.as_ref().filter(|_| is_answer).map(|(_, cells)| cells.clone()),
        };
        Some(Evidence {
            id: id(found.at),
            source: source.clone(),
            text: table.row(found.at)?.text.clone(),
            set: None,
            fact: None,
            document: None,
            persona: None,
            row: Some(row),
            relevance: score,
            consistency: None,
            attention: None,
            selected: false,
        })
    };
    let mut rows: Vec<Fused> = first.chain(rest).collect();
    rows.sort_by(|a, b| b.score.total_cmp(&a.score));
    rows.into_iter().filter_map(evidence).collect()
}

/// Returns the cells of a row that the turn asks for by name, with the place of the row. A choice asks what
/// the question asks that it belongs to.
fn asked_cells(turn: &TurnInFlight, table: &Table) -> Option<(u32, CellsAsked)> {
    let context = &turn.context;
    let (asked, own) = match context.chosen {
        Some(_) => (context.completed_query(), 3),
        None => (context.query(), 1),
    };
    let earlier = context.dialogue.iter().rev().skip(own).take(EARLIER);
    let earlier: Vec<&str> = earlier.map(|said| &*said.text).collect();
    table.cells(asked, &earlier)
}

#[cfg(test)]
mod tests;
