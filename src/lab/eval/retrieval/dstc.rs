//! Measures retrieval on DSTC11 track 5: the gold snippets for the last user turn.
//!
//! Every sentence of a review, and every question with its answer, is a document; its title is the
//! name of the hotel or restaurant. The query is the last user turn. *Within entities* restricts
//! the search to the snippets under names that the dialogue mentions, as the stage does, without
//! using labels. The figures are over the instances that need knowledge.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use turnstream_knowledge::phrasings::NearestPhrasings;
use turnstream_operators::document_retrieval::{
    DocumentRetrievalConfig, PassageQuery, SearchWithin, named_last, search,
};
use turnstream_operators::fusion::SearchForm;
use turnstream_ports::documents::{Chunk, SearchDocuments};
use turnstream_ports::model::encoder::Encoder;
use turnstream_sources::documents::record::Document;
use turnstream_sources::documents::{Change, Documents, DocumentsConfig, Importer};

use super::{EvalError, Ranked, record, records};
use crate::labelled::{LabelledTurn, MAX_KNOWLEDGE};

/// The depth of a ranking.
const DEPTH: u32 = 100;
/// Longer than any snippet, so none is split.
const CHUNK_CHARACTERS: usize = 10_000;

/// Domain → entity → its snippets.
type SnippetsByDomain = BTreeMap<String, BTreeMap<String, Entity>>;

#[derive(Deserialize)]
struct Entity {
    name: Option<String>,
    #[serde(default)]
    reviews: BTreeMap<String, Review>,
    #[serde(default)]
    faqs: BTreeMap<String, Faq>,
}

#[derive(Deserialize)]
struct Review {
    sentences: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Faq {
    question: String,
    answer: String,
}

#[derive(Deserialize)]
struct RetrievalInstance {
    target: bool,
    turns: Vec<DstcLogTurn>,
    #[serde(default)]
    knowledge: Vec<Snippet>,
}

#[derive(Deserialize)]
struct DstcLogTurn {
    text: String,
}

/// The path of a gold snippet.
#[derive(Deserialize)]
pub(in crate::eval) struct Snippet {
    domain: String,
    entity_id: Value,
    doc_type: String,
    doc_id: Value,
    sent_id: Option<Value>,
}

impl Snippet {
    /// Returns the hotel or restaurant, with which the ids of its snippets begin.
    pub(in crate::eval) fn entity(&self) -> String {
        let id = match &self.entity_id {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        format!("{}/{id}/", self.domain)
    }

    /// Returns the id of its document.
    pub(in crate::eval) fn id(&self) -> String {
        let place = [&self.entity_id, &Value::from(self.doc_type.as_str()), &self.doc_id];
        let parts = place.into_iter().chain(&self.sent_id).map(|part| match part {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        let parts: Vec<String> = parts.collect();
        format!("{}/{}", self.domain, parts.join("/"))
    }
}

/// Converts the snippets to documents.
fn documents(knowledge: SnippetsByDomain) -> Vec<Document> {
    let mut documents = Vec::new();
    for (domain, entities) in knowledge {
        for (id, entity) in entities {
            let title = entity.name.unwrap_or_default();
            let mut add = |below: String, text: String| {
                let id = format!("{domain}/{id}/{below}");
                documents.push(Document { id, title: title.clone(), text, ..Document::default() });
            };
            for (review, of) in entity.reviews {
                for (sentence, text) in of.sentences {
                    add(format!("review/{review}/{sentence}"), text);
                }
            }
            for (faq, of) in entity.faqs {
                add(format!("faq/{faq}"), format!("{} {}", of.question, of.answer));
            }
        }
    }
    documents
}

/// Reads the snippets of a knowledge file, each as a document.
///
/// # Errors
/// The file cannot be read.
pub(in crate::eval) fn snippets(knowledge: &Path) -> Result<Vec<Document>, EvalError> {
    Ok(documents(record::<SnippetsByDomain>(knowledge)?))
}

/// Ranks the snippets of `knowledge` for every instance of `data` that needs knowledge.
///
/// # Errors
/// A file cannot be read, or a search fails.
pub fn evaluate(
    data: &Path,
    knowledge: &Path,
    config: &DocumentRetrievalConfig,
    encoder: Option<&dyn Encoder>,
) -> Result<Ranked, EvalError> {
    let folder = tempfile::tempdir().map_err(EvalError::Folder)?;
    let documents = indexed(folder.path(), knowledge, encoder)?;
    let config = DocumentRetrievalConfig { max_found: DEPTH, min_score: 0.0, ..config.clone() };
    let mut rankings = Vec::new();
    for instance in records::<RetrievalInstance>(data)? {
        let gold: BTreeSet<String> = instance.knowledge.iter().map(Snippet::id).collect();
        if instance.target && !gold.is_empty() {
            let said: Vec<&str> = instance.turns.iter().map(|turn| &*turn.text).collect();
            let ranking = rank(&said, &documents, &config, encoder)?;
            let ranking = ranking.iter().map(|chunk| gold.contains(&chunk.document)).collect();
            rankings.push((ranking, gold.len()));
        }
    }
    if rankings.is_empty() {
        return Err(EvalError::Nothing { path: data.to_owned() });
    }
    Ok(Ranked::of(&rankings))
}

/// Gives every turn the snippets that a full-text search finds, best first: the result of the
/// documents stage, without its minimum score.
///
/// # Errors
/// The knowledge cannot be read, or a search fails.
pub fn find_snippets(turns: &mut [LabelledTurn], knowledge: &Path) -> Result<(), EvalError> {
    let folder = tempfile::tempdir().map_err(EvalError::Folder)?;
    let documents = indexed(folder.path(), knowledge, None)?;
    let config = DocumentRetrievalConfig {
        form: SearchForm::Bm25,
        max_found: MAX_KNOWLEDGE as u32,
        min_score: 0.0,
        ..DocumentRetrievalConfig::default()
    };
    for turn in turns {
        let said: Vec<&str> = turn.utterances.iter().map(|said| &*said.text).collect();
        let found = rank(&said, &documents, &config, None)?;
        turn.knowledge = found
            .iter()
            .take(MAX_KNOWLEDGE)
            .map(|chunk| format!("{}: {}", chunk.title, chunk.text))
            .collect();
    }
    Ok(())
}

/// Indexes the snippets in a folder.
fn indexed(
    folder: &Path,
    knowledge: &Path,
    encoder: Option<&dyn Encoder>,
) -> Result<Documents, EvalError> {
    let snippets = documents(record(knowledge)?);
    let store = DocumentsConfig::default();
    let importer = Importer::open(folder, &store, CHUNK_CHARACTERS, encoder)?;
    importer.run(|change| snippets.into_iter().map(Change::Put).try_for_each(change))?;
    Ok(Documents::open(folder, &store)?)
}

/// Returns the snippets for a dialogue's last utterance, best first.
fn rank(
    said: &[&str],
    documents: &Documents,
    config: &DocumentRetrievalConfig,
    encoder: Option<&dyn Encoder>,
) -> Result<Vec<Chunk>, EvalError> {
    let text = said.last().copied().unwrap_or_default();
    let mut embedding = Vec::new();
    if let Some(encoder) = encoder {
        encoder.encode(&[text], &mut embedding)?;
    }
    let utterances = said.iter().rev().copied();
    let within = match config.within {
        SearchWithin::Named => named_last(documents, utterances),
        SearchWithin::All => None,
    };
    let embedding = encoder.map(|_| embedding.as_slice());
    let taught = &NearestPhrasings::default();
    let query = PassageQuery { text, embedding, within: within.as_deref(), taught };
    let mut chunks = Vec::new();
    for found in search(documents, &query, config)? {
        chunks.extend(documents.chunk(found.at)?);
    }
    chunks.truncate(DEPTH as usize);
    Ok(chunks)
}
