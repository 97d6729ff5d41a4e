//! Finds what taught phrasings lead to and makes their vectors: those of the file
//! `teaching.phrasings` when the process starts, and those of the `knowledge` topic before
//! [`knowledge_feed`](crate::knowledge_feed) passes them to the workers.

use std::sync::Arc;

use turnstream_knowledge::phrasings::{LeadsTo, Phrasing, PhrasingChange, Taught};
use turnstream_models::ModelError;
use turnstream_models::reader::AnswerReader;
use turnstream_operators::sources::Sources;
use turnstream_operators::tables::Tables;
use turnstream_ports::model::encoder::EncodeError;
use turnstream_schemas::{EvidenceId, SourceKind, SourceName};
use turnstream_sources::documents::{Documents, DocumentsError};

/// Where the places of phrasings are.
#[derive(Default)]
pub struct Teaching {
    /// The source of the documents.
    source: Option<SourceName>,
    documents: Option<Arc<Documents>>,
    tables: Arc<Tables>,
    threads: usize,
}

/// Why phrasings cannot be taught.
#[derive(Debug, thiserror::Error)]
pub enum TeachingError {
    /// The documents cannot be read.
    #[error(transparent)]
    Documents(#[from] DocumentsError),
    /// The reader cannot be loaded.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The reader failed.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl Teaching {
    /// Looks for places in these documents and tables, and encodes on so many threads.
    pub fn new(
        sources: &Sources,
        documents: Option<Arc<Documents>>,
        tables: Arc<Tables>,
        threads: usize,
    ) -> Self {
        let mut of_kind = sources.iter().filter(|it| it.config.kind == SourceKind::Documents);
        let source = of_kind.next().map(|source| source.name.clone());
        Self { source, documents, tables, threads }
    }

    /// What texts lead to, in their order; `None` withdraws one. A text whose place is not there is
    /// withdrawn too, with a warning: pages change.
    ///
    /// # Errors
    /// The documents cannot be read, or the reader fails.
    pub fn changes(
        &self,
        taught: Vec<(String, Option<Taught>)>,
    ) -> Result<Vec<PhrasingChange>, TeachingError> {
        let mut found = Vec::new();
        let mut changes = Vec::new();
        for (text, taught) in taught {
            let leads_to = taught.map(|taught| self.leads_to(&text, taught)).transpose()?.flatten();
            found.extend(leads_to.map(|leads_to| (changes.len(), (text.clone(), leads_to))));
            changes.push(PhrasingChange { text, phrasing: None });
        }
        if !found.is_empty() {
            let (places, found): (Vec<usize>, Vec<_>) = found.into_iter().unzip();
            let phrasings = Phrasing::encode(found, &*AnswerReader::shipped()?, self.threads)?;
            for (place, phrasing) in places.into_iter().zip(phrasings) {
                changes[place].phrasing = Some(phrasing);
            }
        }
        Ok(changes)
    }

    fn leads_to(&self, text: &str, taught: Taught) -> Result<Option<LeadsTo>, TeachingError> {
        let place = match taught {
            Taught::Action(action) => return Ok(Some(LeadsTo::Action(action))),
            Taught::Place(place) => place,
        };
        let found = match place.strip_prefix("row:") {
            Some(id) => self.row(id),
            None => self.chunks(&place)?,
        };
        if found.is_none() {
            let message = "a phrasing leads to a section or row that does not exist";
            tracing::warn!(place, phrasing = text, "{message}");
        }
        Ok(found)
    }

    fn row(&self, id: &str) -> Option<LeadsTo> {
        self.tables.iter().find_map(|(name, table)| {
            let row = table.place_of(id)? + 1;
            Some(LeadsTo::Row(EvidenceId(format!("{}/{row}", name.as_str()))))
        })
    }

    fn chunks(&self, place: &str) -> Result<Option<LeadsTo>, TeachingError> {
        let Some((source, documents)) = self.source.as_ref().zip(self.documents.as_ref()) else {
            return Ok(None);
        };
        let found = documents.at_place(place)?;
        let id =
            |(id, number): (String, u32)| (EvidenceId(format!("{}/{id}", source.as_str())), number);
        Ok((!found.is_empty()).then(|| LeadsTo::Chunks(found.into_iter().map(id).collect())))
    }
}
