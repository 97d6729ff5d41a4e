//! Document retrieval finds passages of the documents for the response.
//!
//! It searches the chunks of documents for the current utterance: by words (BM25), by meaning (the
//! cosine of embeddings), or by both, fused. If the dialogue names documents by their titles, it
//! searches only the chunks of those that the latest such utterance names (entity tracking as in
//! DSTC11 track 5, by look-up; a response that only asks which place is meant does not count);
//! otherwise it searches all chunks. `docs/measurements/documents.md` has
//! the measurements behind each choice. If the source depends on others, the search by words also looks
//! for the words of their evidence (UniMS-RAG: documents for (c, p*)).
//!
//! Key: none. State: none; the documents are those that existed when the process started. Without
//! documents the stage is not in the flow. If it fails and may degrade, the turn goes on without
//! passages. It never changes the facts, and does not decide which passages are used.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::generic::operator::empty;
use turnstream_ports::documents::{FoundChunk, SearchDocuments, SearchError};
use turnstream_schemas::{
    DocumentPassage, Evidence, EvidenceId, Fault, FaultKind, Score, SourceName, Stage,
};

use crate::flow::{Epoch, TurnInFlight};
use crate::fusion::{Fused, SearchForm, fuse};
use crate::response_texts::ResponseTexts;
use crate::sources::Sources;
use crate::stage::{DecideByRules, OnFailure, Streams, Without, run};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;
use turnstream_knowledge::phrasings::NearestPhrasings;

const STAGE: Stage = Stage::DocumentRetrieval;

/// The chunks that are searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchWithin {
    /// Those of the documents whose titles the dialogue names; all if it names none.
    #[default]
    Named,
    /// All chunks.
    All,
}

/// How documents are searched. Used where `documents.directory` is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DocumentRetrievalConfig {
    /// By words, by meaning, or both.
    pub form: SearchForm,
    /// What happens to a turn on which the stage fails.
    pub on_failure: OnFailure,
    /// Which chunks are searched.
    pub within: SearchWithin,
    /// The most chunks that each way of searching gives to the fusion; 1..=1024.
    #[schemars(range(min = 1, max = 1024))]
    pub max_found: u32,
    /// The most chunks that become evidence; 1..=1024.
    #[schemars(range(min = 1, max = 1024))]
    pub max_passages: u32,
    /// The least score of a chunk that becomes evidence; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_score: f64,
    /// The share of words in a fused score, against meaning; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub word_share: f64,
}

impl Default for DocumentRetrievalConfig {
    fn default() -> Self {
        Self {
            form: SearchForm::Fusion,
            on_failure: OnFailure::Degrade,
            within: SearchWithin::Named,
            max_found: 100,
            max_passages: 10,
            min_score: 0.05,
            word_share: 0.3,
        }
    }
}

impl StageConfig for DocumentRetrievalConfig {}

/// Runs document retrieval over a stream of turns. Returns (turns with passages among their candidates,
/// faults).
pub fn document_retrieval<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: DocumentRetrievalConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    let StageContext { documents, sources, response_texts, .. } = context.clone();
    let Some(documents) = documents else {
        let none = empty(turns.scope());
        return (turns, none);
    };
    let stage = DocumentRetrieval { config, sources, documents, response_texts };
    run(turns, stage, &context.runner)
}

/// The stage.
struct DocumentRetrieval {
    config: DocumentRetrievalConfig,
    sources: Arc<Sources>,
    documents: Arc<dyn SearchDocuments>,
    response_texts: Arc<ResponseTexts>,
}

impl DecideByRules for DocumentRetrieval {
    type Turn = TurnInFlight;
    type Decision = Vec<Evidence>;

    const STAGE: Stage = STAGE;

    fn on_failure(&self) -> OnFailure {
        self.config.on_failure
    }

    fn decide(&self, turn: &TurnInFlight) -> Result<Vec<Evidence>, Fault> {
        let Some(source) = turn.source(&self.sources) else { return Ok(Vec::new()) };
        let given = turn.given(source, &self.sources);
        let texts = &self.response_texts;
        retrieve(turn, &source.name, &given, &*self.documents, texts, &self.config)
            .map_err(|error| Fault::new(STAGE, FaultKind::Error, error.to_string()))
    }

    fn without(&self, _: &TurnInFlight, _: Without<'_>) -> Vec<Evidence> {
        Vec::new()
    }

    fn write(&self, turn: &mut TurnInFlight, passages: Vec<Evidence>) {
        turn.candidates.passages.extend(passages);
    }
}

/// Returns the passages for a turn, by falling relevance. `given` is evidence from the sources that
/// this one depends on: its words become part of the query, and if it names documents, only those
/// are searched.
///
/// # Errors
/// The documents cannot be searched as configured.
pub fn retrieve(
    turn: &TurnInFlight,
    source: &SourceName,
    given: &[&Evidence],
    documents: &dyn SearchDocuments,
    texts: &ResponseTexts,
    config: &DocumentRetrievalConfig,
) -> Result<Vec<Evidence>, SearchError> {
    let dialogue = turn.context.dialogue.iter().rev().map(|utterance| &*utterance.text);
    let within = match config.within {
        SearchWithin::All => None,
        SearchWithin::Named => {
            let given = given.iter().map(|found| &*found.text);
            let chosen = turn.context.chosen.as_ref().and_then(|it| it.name.as_deref());
            let said = dialogue.filter(|text| texts.choices(text).is_none());
            named_last(documents, given.chain(chosen).chain(said))
        }
    };
    let asked = turn.context.completed_query();
    let text: Vec<&str> =
        given.iter().map(|found| &*found.text).chain(std::iter::once(asked)).collect();
    let utterance = turn.embedding.as_ref().and_then(|it| it.utterance.as_deref());
    let query = PassageQuery {
        text: &text.join(" "),
        embedding: if documents.are_by_reader() { turn.question.as_deref() } else { utterance },
        within: within.as_deref(),
        taught: &turn.taught,
    };
    let mut passages = Vec::new();
    for found in search(documents, &query, config)? {
        if passages.len() == config.max_passages as usize {
            break;
        }
        passages.extend(evidence(documents, source, found)?);
    }
    Ok(passages)
}

/// Returns the chunks of the documents that are named in the first text that names any; `None` if
/// no text does. Pass the utterances latest first.
pub fn named_last<'t>(
    documents: &dyn SearchDocuments,
    utterances: impl Iterator<Item = &'t str>,
) -> Option<Vec<u32>> {
    let mut named = utterances.map(|text| documents.named_in(text));
    named.find(|chunks| !chunks.is_empty())
}

/// A query for chunks.
#[derive(Clone, Copy, Debug)]
pub struct PassageQuery<'a> {
    /// The words.
    pub text: &'a str,
    /// The meaning.
    pub embedding: Option<&'a [f32]>,
    /// The chunks that may be found; `None` for all.
    pub within: Option<&'a [u32]>,
    /// How near the query is to the phrasings that staff taught.
    pub taught: &'a NearestPhrasings,
}

/// Returns the chunks for a query, by falling score, ties by number. Leaves out scores below
/// `min_score`.
///
/// # Errors
/// The documents cannot be searched as configured.
pub fn search(
    documents: &dyn SearchDocuments,
    query: &PassageQuery<'_>,
    config: &DocumentRetrievalConfig,
) -> Result<Vec<Fused>, SearchError> {
    let limit = config.max_found as usize;
    let can_embed = query.embedding.is_some() && documents.dimensions().is_some();
    let by_meaning = match (config.form, query.embedding) {
        (SearchForm::Bm25, _) => None,
        (SearchForm::Fusion, _) if !can_embed => None,
        (_, Some(embedding)) => {
            let found = documents.by_meaning(embedding, query.within, limit)?;
            Some(with_taught(found, query.taught.chunks(query.within)))
        }
        (_, None) => {
            return Err(SearchError::Unreadable {
                index: documents.source().to_owned(),
                reason: "the turn has no embedding; configure an encoder, or set \
                         document_retrieval.form to \"fusion\" or \"bm25\""
                    .to_owned(),
            });
        }
    };
    let by_words = match config.form {
        SearchForm::Dense => None,
        _ => Some(documents.by_words(query.text, query.within, limit)?),
    };
    let scored = |found: Option<Vec<FoundChunk>>| {
        found.map(|found| found.into_iter().map(|found| (found.chunk, found.score)))
    };
    let mut fused = fuse(scored(by_words), scored(by_meaning), config.word_share);
    fused.retain(|found| found.score >= config.min_score);
    Ok(fused)
}

/// Adds the phrasings to the chunks found by meaning: a chunk has the higher score of its own and
/// its nearest phrasing.
fn with_taught(mut found: Vec<FoundChunk>, mut taught: BTreeMap<u32, f64>) -> Vec<FoundChunk> {
    for chunk in &mut found {
        chunk.score = taught.remove(&chunk.chunk).map_or(chunk.score, |it| it.max(chunk.score));
    }
    found.extend(taught.into_iter().map(|(chunk, score)| FoundChunk { chunk, score }));
    found
}

/// Makes a chunk into evidence; `None` if it was removed since it was indexed.
fn evidence(
    documents: &dyn SearchDocuments,
    source: &SourceName,
    found: Fused,
) -> Result<Option<Evidence>, SearchError> {
    let Some(chunk) = documents.chunk(found.at)? else { return Ok(None) };
    let score = |score: Option<f64>| score.map(|score| Score::new(score.clamp(0.0, 1.0)));
    Ok(Some(Evidence {
        id: EvidenceId(format!("{}/{}", source.as_str(), chunk.id)),
        source: source.clone(),
        text: chunk.text.to_string(),
        set: None,
        fact: None,
        document: Some(DocumentPassage {
            document: chunk.document,
            title: chunk.title,
            chunk: chunk.ordinal,
            by_words: score(found.by_words),
            by_meaning: score(found.by_meaning),
        }),
        persona: None,
        row: None,
        relevance: Score::new(found.score.clamp(0.0, 1.0)),
        consistency: None,
        attention: None,
        selected: false,
    }))
}

#[cfg(test)]
mod tests;
