//! Documents as a source beside the graph: a folder with their chunks, an index of words, and
//! vectors where an encoder made some.
//!
//! [`import`] fills a store from files, in one transaction; [`Documents`] is a store that is
//! searched, as it was when it was opened. `docs/documents.md` tells all of it to those who run
//! it.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_ports::documents::{Chunk, FoundChunk, SearchDocuments, SearchError};
use turnstream_ports::index::Search;

use crate::index::{TreeConfig, Trees};

pub mod import;
pub mod record;
pub mod split;
mod store;
#[cfg(test)]
mod tests;
mod titles;
mod words;

pub use import::{Change, Importer, Report};
pub use store::{EncoderUsed, MAX_ID_BYTES};

use store::Store;
use titles::Titles;
use words::Words;

/// The name of the source in plans and evidence.
pub const SOURCE: &str = "documents";
/// The folder of the index of words within that of the store.
const WORDS_FOLDER: &str = "words";

/// Where documents lie, and how they are searched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DocumentsConfig {
    /// The folder that `turnstream documents import` filled; without one there are no documents.
    /// Relative paths start at the working directory.
    pub directory: Option<PathBuf>,
    /// The most that the store may take, in MiB, 1 or more. Only address space is taken in
    /// advance.
    #[schemars(range(min = 1))]
    pub map_size_mib: usize,
    /// Up to so many vectors are held in memory and compared one by one, which finds all; more are
    /// searched through trees on disk, which are quicker there and miss some. 0 to 10000000. At
    /// 100000 of 256 dimensions a search takes some 14 ms and the vectors 100 MB.
    #[schemars(range(max = 10_000_000))]
    pub max_scanned_vectors: u64,
    /// The trees.
    pub trees: TreeConfig,
}

impl Default for DocumentsConfig {
    fn default() -> Self {
        Self {
            directory: None,
            map_size_mib: 16 * 1024,
            max_scanned_vectors: 100_000,
            trees: TreeConfig::default(),
        }
    }
}

/// Why documents cannot be imported or searched.
#[derive(Debug, thiserror::Error)]
pub enum DocumentsError {
    /// There is no store.
    #[error("no documents in {folder}; make them with `turnstream documents import`", folder = folder.display())]
    Missing {
        /// Where.
        folder: PathBuf,
    },
    /// The store is of another format.
    #[error(
        "{folder} is a store of format {found}, this program reads {known}; import the documents \
         again, into another folder",
        folder = folder.display()
    )]
    Format {
        /// Where.
        folder: PathBuf,
        /// What was found.
        found: u32,
        /// What can be read.
        known: u32,
    },
    /// The environment failed.
    #[error("documents in {folder}: {source}; {remedy}", folder = folder.display())]
    Store {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: Box<heed::Error>,
        /// What mends it.
        remedy: &'static str,
    },
    /// The index of words failed.
    #[error("the index of words in {folder}: {source}; run `turnstream documents reindex`", folder = folder.display())]
    Words {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: tantivy::TantivyError,
    },
    /// Somebody else changes the store.
    #[error("another process changes the documents in {folder}; try again when it is done", folder = folder.display())]
    Busy {
        /// Where.
        folder: PathBuf,
    },
    /// The index of words is not that of the chunks.
    #[error(
        "the index of words in {folder} is not that of the chunks there: an import was broken \
         off, or this program cuts texts into other terms; run `turnstream documents reindex`",
        folder = folder.display()
    )]
    Stale {
        /// Where.
        folder: PathBuf,
    },
    /// The vectors failed.
    #[error("vectors of documents in {folder}: {source}; import the documents again, into another folder", folder = folder.display())]
    Vectors {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: Box<::arroy::Error>,
    },
    /// The vectors were made by another encoder.
    #[error(
        "the vectors in {folder} were made by encoder `{stored}`, not by `{given}` as it is now; \
         name that encoder, or import the documents again into another folder",
        folder = folder.display()
    )]
    Encoder {
        /// Where.
        folder: PathBuf,
        /// What made them.
        stored: String,
        /// What was to be used.
        given: String,
    },
    /// An encoder failed.
    #[error(transparent)]
    Encode(#[from] crate::model::encoder::EncodeError),
    /// A file cannot be read.
    #[error("cannot read {path}: {source}; check the path and its permissions", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The store is full.
    #[error("{folder} has given all its four billion chunk numbers; import into another folder", folder = folder.display())]
    Full {
        /// Where.
        folder: PathBuf,
    },
    /// Searching failed.
    #[error(transparent)]
    Search(#[from] SearchError),
}

/// How many documents and chunks a store has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Extent {
    /// Documents.
    pub documents: u64,
    /// Their chunks.
    pub chunks: u64,
    /// What made their vectors.
    pub encoder: Option<EncoderUsed>,
}

/// A document of a store, for listings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// Its title; may be empty.
    pub title: String,
    /// How many chunks it has.
    pub chunks: usize,
    /// What is said of it.
    pub metadata: std::collections::BTreeMap<String, String>,
}

/// Documents that are searched: what was there when they were opened. What is imported meanwhile
/// is seen after the next start; what is deleted meanwhile is found no more.
pub struct Documents {
    folder: PathBuf,
    store: Store,
    words: Words,
    titles: Titles,
    extent: Extent,
    vectors: Option<Box<dyn Search>>,
}

impl Documents {
    /// Opens the store of a folder.
    ///
    /// # Errors
    /// There is none, it cannot be read, or its index of words fell behind.
    pub fn open(folder: &Path, config: &DocumentsConfig) -> Result<Self, DocumentsError> {
        let store = Store::open(folder, config.map_size_mib, false)?;
        let state = store.read(|txn, tables| tables.state(txn))?;
        let failed = |source| DocumentsError::Words { folder: folder.to_owned(), source };
        let (words, generation) = Words::open(&folder.join(WORDS_FOLDER)).map_err(failed)?;
        let terms = turnstream_knowledge::terms::fingerprint();
        if generation != Some(state.generation) || state.terms != terms {
            return Err(DocumentsError::Stale { folder: folder.to_owned() });
        }
        let titles = store.read(|txn, tables| {
            let documents = tables.documents(txn)?;
            let titled = documents.map(|document| document.map(|(_, it)| (it.title, it.chunks)));
            titled.collect::<heed::Result<Vec<_>>>()
        })?;
        let titles = Titles::read(titles, |term| words.chunks_with(term)).map_err(failed)?;
        let vectors = vectors(&store, folder, state.encoder.as_ref(), config)?;
        let extent =
            Extent { documents: state.documents, chunks: state.chunks, encoder: state.encoder };
        Ok(Self { folder: folder.to_owned(), store, words, titles, extent, vectors })
    }

    /// How many documents there are, and what made their vectors.
    pub fn extent(&self) -> &Extent {
        &self.extent
    }

    /// Refuses an encoder whose vectors must not be compared with those of the store. Without
    /// vectors every encoder will do.
    ///
    /// # Errors
    /// [`DocumentsError::Encoder`], with the remedy.
    pub fn check_encoder(&self, name: &str, fingerprint: u64) -> Result<(), DocumentsError> {
        check_encoder(&self.folder, self.extent.encoder.as_ref(), name, fingerprint)
    }

    /// The chunks of all documents whose metadata have all of these values and whose id is among
    /// those given, where any is given; rising.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn select(
        &self,
        metadata: &[(String, String)],
        documents: &[String],
    ) -> Result<Vec<u32>, DocumentsError> {
        let failed = |source| DocumentsError::Words { folder: self.folder.clone(), source };
        let by_metadata = (!metadata.is_empty())
            .then(|| self.words.with_metadata(metadata).map_err(failed))
            .transpose()?;
        let by_document = (!documents.is_empty()).then(|| self.chunks_of(documents)).transpose()?;
        Ok(match (by_metadata, by_document) {
            (Some(one), Some(other)) => (one & other).into_iter().collect(),
            (Some(one), None) | (None, Some(one)) => one.into_iter().collect(),
            (None, None) => self
                .store
                .read(|txn, tables| tables.chunks(txn)?.map(|chunk| Ok(chunk?.0)).collect())?,
        })
    }

    fn chunks_of(&self, documents: &[String]) -> Result<roaring::RoaringBitmap, DocumentsError> {
        self.store.read(|txn, tables| {
            let mut numbers = roaring::RoaringBitmap::new();
            for id in documents {
                numbers.extend(tables.document(txn, id)?.into_iter().flat_map(|it| it.chunks));
            }
            Ok(numbers)
        })
    }

    /// Up to `limit` documents in the order of their ids.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn list(&self, limit: usize) -> Result<Vec<Listed>, DocumentsError> {
        self.store.read(|txn, tables| {
            let listed = tables.documents(txn)?.take(limit).map(|document| {
                let (id, it) = document?;
                let (title, metadata, chunks) = (it.title, it.metadata, it.chunks.len());
                Ok(Listed { id: id.to_owned(), title, chunks, metadata })
            });
            listed.collect()
        })
    }

    fn unreadable(&self, error: &DocumentsError) -> SearchError {
        let index = self.folder.display().to_string();
        SearchError::Unreadable { index, reason: error.to_string() }
    }
}

/// Refuses an encoder other than the one that made the vectors.
fn check_encoder(
    folder: &Path,
    stored: Option<&EncoderUsed>,
    name: &str,
    fingerprint: u64,
) -> Result<(), DocumentsError> {
    match stored {
        Some(stored) if stored.fingerprint != fingerprint => Err(DocumentsError::Encoder {
            folder: folder.to_owned(),
            stored: stored.name.clone(),
            given: name.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// What searches the vectors of a store: few are scanned in memory, many through trees.
fn vectors(
    store: &Store,
    folder: &Path,
    encoder: Option<&EncoderUsed>,
    config: &DocumentsConfig,
) -> Result<Option<Box<dyn Search>>, DocumentsError> {
    let Some(encoder) = encoder else { return Ok(None) };
    let (env, table) = (store.env.clone(), store.tables.vectors);
    let name = folder.display().to_string();
    let trees = Trees::new(env, table, encoder.dimensions, &config.trees, name);
    Ok(Some(if trees.len()? <= config.max_scanned_vectors {
        Box::new(trees.to_scan()?)
    } else {
        Box::new(trees)
    }))
}

impl SearchDocuments for Documents {
    fn source(&self) -> &str {
        SOURCE
    }

    fn by_words(
        &self,
        text: &str,
        within: Option<&[u32]>,
        limit: usize,
    ) -> Result<Vec<FoundChunk>, SearchError> {
        self.words.search(text, within, limit).map_err(|source| {
            self.unreadable(&DocumentsError::Words { folder: self.folder.clone(), source })
        })
    }

    fn dimensions(&self) -> Option<usize> {
        self.vectors.as_ref().map(|vectors| vectors.dimensions())
    }

    fn by_meaning(
        &self,
        query: &[f32],
        within: Option<&[u32]>,
        limit: usize,
    ) -> Result<Vec<FoundChunk>, SearchError> {
        let Some(vectors) = &self.vectors else {
            return Err(SearchError::Unreadable {
                index: self.folder.display().to_string(),
                reason: "its chunks have no vectors; import the documents with --encoder"
                    .to_owned(),
            });
        };
        let found = vectors.search(query, limit, within)?;
        let score = |similarity: f32| f64::from(similarity.clamp(0.0, 1.0));
        let found = found
            .into_iter()
            .map(|found| FoundChunk { chunk: found.item, score: score(found.similarity) });
        Ok(found.collect())
    }

    fn named_in(&self, text: &str) -> Vec<u32> {
        self.titles.in_text(text)
    }

    fn chunk(&self, number: u32) -> Result<Option<Chunk>, SearchError> {
        let chunk = self.store.read(|txn, tables| tables.chunk(txn, number));
        let chunk = chunk.map_err(|error| self.unreadable(&error))?;
        Ok(chunk.map(|it| Chunk {
            id: format!("{}#{}", it.document, it.ordinal),
            document: it.document,
            title: it.title,
            ordinal: it.ordinal,
            text: it.text.into(),
        }))
    }
}
