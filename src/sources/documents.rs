//! Documents as a source beside the graph. A store is a folder with chunks, an index of words, and,
//! if an encoder made some, vectors.
//!
//! [`import`] fills a store from files in one transaction. [`Documents`] searches a store in the
//! state in which it was opened. `docs/documents.md` is the user's guide.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_ports::documents::{Chunk, FoundChunk, SearchDocuments, SearchError};
use turnstream_ports::index::Search;
use turnstream_ports::model::reader::READER;

use crate::index::{TreeConfig, Trees};
use crate::phrasings::slug;

mod html;
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
/// The folder of the index of words within the store.
const WORDS_FOLDER: &str = "words";

/// The folder of the documents, and how they are searched.
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
    /// Most vectors that are held in memory and compared one by one, which finds all; more are
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
    /// The folder has no store.
    #[error("no documents in {folder}; make them with `turnstream documents import`", folder = folder.display())]
    Missing {
        /// The folder of the store.
        folder: PathBuf,
    },
    /// The store has another format.
    #[error(
        "{folder} is a store of format {found}, this program reads {known}; import the documents \
         again, into another folder",
        folder = folder.display()
    )]
    Format {
        /// The folder of the store.
        folder: PathBuf,
        /// The store's format.
        found: u32,
        /// The format that this program reads.
        known: u32,
    },
    /// The LMDB environment failed.
    #[error("documents in {folder}: {source}; {remedy}", folder = folder.display())]
    Store {
        /// The folder of the store.
        folder: PathBuf,
        /// The cause.
        source: Box<heed::Error>,
        /// How to repair it.
        remedy: &'static str,
    },
    /// The index of words failed.
    #[error("the index of words in {folder}: {source}; run `turnstream documents reindex`", folder = folder.display())]
    Words {
        /// The folder of the store.
        folder: PathBuf,
        /// The cause.
        source: tantivy::TantivyError,
    },
    /// Another process is changing the store.
    #[error("another process is changing the documents in {folder}; try again when it is done", folder = folder.display())]
    Busy {
        /// The folder of the store.
        folder: PathBuf,
    },
    /// The index of words belongs to another generation of the chunks.
    #[error(
        "the index of words in {folder} does not match the chunks there: an import was \
         interrupted, or another version made it; run `turnstream documents reindex`",
        folder = folder.display()
    )]
    Stale {
        /// The folder of the store.
        folder: PathBuf,
    },
    /// The vector index failed.
    #[error("vectors of documents in {folder}: {source}; import the documents again, into another folder", folder = folder.display())]
    Vectors {
        /// The folder of the store.
        folder: PathBuf,
        /// The cause.
        source: Box<::arroy::Error>,
    },
    /// Another encoder made the vectors.
    #[error(
        "the vectors in {folder} were made by encoder `{stored}`, not by `{given}` as it is now; \
         name that encoder, or import the documents again into another folder",
        folder = folder.display()
    )]
    Encoder {
        /// The folder of the store.
        folder: PathBuf,
        /// The encoder that made the vectors.
        stored: String,
        /// The configured encoder.
        given: String,
    },
    /// An encoder failed.
    #[error(transparent)]
    Encode(#[from] turnstream_ports::model::encoder::EncodeError),
    /// A file cannot be read.
    #[error("cannot read {path}: {source}; check the path and its permissions", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The store has used up its chunk numbers.
    #[error("{folder} has used all its four billion chunk numbers; import into another folder", folder = folder.display())]
    Full {
        /// The folder of the store.
        folder: PathBuf,
    },
    /// The search failed.
    #[error(transparent)]
    Search(#[from] SearchError),
}

/// The size of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Extent {
    /// The number of documents.
    pub documents: u64,
    /// The number of chunks.
    pub chunks: u64,
    /// The encoder of the vectors, if there are any.
    pub encoder: Option<EncoderUsed>,
}

/// A document of a store, for listings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The id.
    pub id: String,
    /// The title; may be empty.
    pub title: String,
    /// The number of chunks.
    pub chunks: usize,
    /// Metadata by key.
    pub metadata: std::collections::BTreeMap<String, String>,
}

/// An open store. Documents imported later are found after the next start; deleted documents are no
/// longer found.
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
    /// The store is missing or cannot be read, or its index of words is outdated.
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

    /// Returns the chunks at a place, `document#heading`, each by its id and number. The part
    /// before `#` is the document's id, or the end of it after a `/`; without a heading all of its
    /// chunks are returned. Empty if there are none.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn at_place(&self, place: &str) -> Result<Vec<(String, u32)>, DocumentsError> {
        let (mut document, heading) = place.split_once('#').unwrap_or((place, ""));
        self.store.read(|txn, tables| {
            let record = loop {
                let is_id = (1..=MAX_ID_BYTES).contains(&document.len());
                let record = if is_id { tables.document(txn, document)? } else { None };
                match (record, document.split_once('/')) {
                    (Some(record), _) => break record,
                    (None, Some((_, rest))) => document = rest,
                    (None, None) => return Ok(Vec::new()),
                }
            };
            let mut found = Vec::new();
            for number in record.chunks {
                let Some(chunk) = tables.chunk(txn, number)? else { continue };
                if heading.is_empty() || slug(&chunk.title).ends_with(heading) {
                    found.push((format!("{}#{}", chunk.document, chunk.ordinal), number));
                }
            }
            Ok(found)
        })
    }

    /// The size of the store, and the encoder of its vectors.
    pub fn extent(&self) -> &Extent {
        &self.extent
    }

    /// Checks that an encoder's vectors can be compared with those of the store. A store without
    /// vectors accepts every encoder.
    ///
    /// # Errors
    /// [`DocumentsError::Encoder`], with the remedy.
    pub fn check_encoder(&self, name: &str, fingerprint: u64) -> Result<(), DocumentsError> {
        check_encoder(&self.folder, self.extent.encoder.as_ref(), name, fingerprint)
    }

    /// Selects chunks by document, ascending: the document's metadata must have all the given
    /// values and, if ids are given, its id must be among them.
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

    /// Lists up to `limit` documents by id.
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

/// Opens the vector index: a scan in memory for few vectors, trees on disk for many.
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

    fn are_by_reader(&self) -> bool {
        self.extent.encoder.as_ref().is_some_and(|stored| stored.name == READER)
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
