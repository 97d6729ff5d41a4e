//! The LMDB environment in the folder of a store: the source of truth for the index of words.
//! Vectors are in the same environment and transactions.
//!
//! The number of a chunk is never reused, so a search result either still has the content that was
//! indexed under its number, or was deleted. The id of a chunk, `document#ordinal`, appears in
//! records.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use heed::types::{Bytes, Str};
use heed::{
    AnyTls, CommitOrAbort, Database, Env, EnvOpenOptions, MdbError, RoTxn, RwTxn, WithoutTls,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::DocumentsError;
use crate::index::arroy::TreeTable;

/// The layout of the environment; other layouts are refused.
const FORMAT: u32 = 1;
/// The number of tables in the environment.
const TABLES: u32 = 4;
/// The most bytes of a document's id: LMDB's longest key.
pub const MAX_ID_BYTES: usize = 511;
/// Threads that may read at once.
const READERS: u32 = 512;
const STATE: &str = "state";

/// The state of a store as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    format: u32,
    /// The number of changes so far.
    pub(super) generation: u64,
    /// The next chunk number, above all that were ever given.
    pub(super) next_number: u32,
    /// The version of the rules that split texts into terms.
    pub(super) terms: u64,
    /// The encoder of the vectors, if there are any.
    pub(super) encoder: Option<EncoderUsed>,
    /// The number of documents.
    pub(super) documents: u64,
    /// The number of chunks.
    pub(super) chunks: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            format: FORMAT,
            generation: 0,
            next_number: 0,
            terms: turnstream_knowledge::terms::fingerprint(),
            encoder: None,
            documents: 0,
            chunks: 0,
        }
    }
}

/// The encoder of a store's vectors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncoderUsed {
    /// The encoder's name.
    pub name: String,
    /// The encoder's fingerprint.
    pub fingerprint: u64,
    /// Numbers per vector.
    pub dimensions: usize,
}

/// A stored document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DocumentRecord {
    pub(super) title: String,
    pub(super) metadata: BTreeMap<String, String>,
    /// The numbers of its chunks, in order.
    pub(super) chunks: Vec<u32>,
}

/// A stored chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChunkRecord {
    pub(super) document: String,
    pub(super) ordinal: u32,
    pub(super) title: String,
    pub(super) text: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) metadata: BTreeMap<String, String>,
}

/// The environment of a store.
pub(super) struct Store {
    folder: PathBuf,
    pub(super) env: Env<WithoutTls>,
    pub(super) tables: Tables,
}

/// The tables of a store.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    state: Database<'static, Str, Bytes>,
    documents: Database<'static, Str, Bytes>,
    chunks: Database<'static, Bytes, Bytes>,
    pub(super) vectors: TreeTable,
}

impl Store {
    /// Opens the store of a folder, or creates it if `make` is set.
    pub(super) fn open(
        folder: &Path,
        map_size_mib: usize,
        make: bool,
    ) -> Result<Self, DocumentsError> {
        if !make && !folder.join("data.mdb").is_file() {
            return Err(DocumentsError::Missing { folder: folder.to_owned() });
        }
        let open = || {
            std::fs::create_dir_all(folder)?;
            let env = open_environment(folder, map_size_mib)?;
            let tables = Tables::make(&env)?;
            Ok((env, tables))
        };
        let (env, tables) = open().map_err(|source| failed(folder, source))?;
        let store = Self { folder: folder.to_owned(), env, tables };
        let found = store.read(|txn, tables| tables.state(txn))?.format;
        if found != FORMAT {
            return Err(DocumentsError::Format { folder: folder.to_owned(), found, known: FORMAT });
        }
        Ok(store)
    }

    /// Runs `read` in one read transaction.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&RoTxn<'_, AnyTls>, &Tables) -> heed::Result<T>,
    ) -> Result<T, DocumentsError> {
        let txn = self.env.read_txn().map_err(|source| failed(&self.folder, source))?;
        read(&txn, &self.tables).map_err(|source| failed(&self.folder, source))
    }

    /// Wraps an error of the environment with folder and remedy.
    pub(super) fn failed(&self, source: heed::Error) -> DocumentsError {
        failed(&self.folder, source)
    }
}

impl Tables {
    fn make(env: &Env<WithoutTls>) -> heed::Result<Self> {
        let txn = env.write_txn()?;
        let made = env.create_databases_and_commit(txn, |databases, txn| {
            let state = databases.create_database::<Str, Bytes>(txn, Some("state"))?;
            let documents = databases.create_database::<Str, Bytes>(txn, Some("documents"))?;
            let chunks = databases.create_database::<Bytes, Bytes>(txn, Some("chunks"))?;
            let vectors = databases.create_database(txn, Some("vectors"))?;
            let tables = (state, documents, chunks, vectors);
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(tables))
        })?;
        match made {
            CommitOrAbort::Commit((state, documents, chunks, vectors)) => {
                Ok(Self { state, documents, chunks, vectors })
            }
            CommitOrAbort::Abort(()) => unreachable!("it commits"),
        }
    }

    pub(super) fn state(&self, txn: &RoTxn<'_, AnyTls>) -> heed::Result<State> {
        self.state.get(txn, STATE)?.map_or_else(|| Ok(State::default()), parse)
    }

    pub(super) fn put_state(&self, txn: &mut RwTxn<'_>, state: &State) -> heed::Result<()> {
        self.state.put(txn, STATE, &written(state)?)
    }

    pub(super) fn document(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        id: &str,
    ) -> heed::Result<Option<DocumentRecord>> {
        self.documents.get(txn, id)?.map(parse).transpose()
    }

    pub(super) fn put_document(
        &self,
        txn: &mut RwTxn<'_>,
        id: &str,
        record: &DocumentRecord,
    ) -> heed::Result<()> {
        self.documents.put(txn, id, &written(record)?)
    }

    pub(super) fn delete_document(&self, txn: &mut RwTxn<'_>, id: &str) -> heed::Result<bool> {
        self.documents.delete(txn, id)
    }

    /// All documents by id.
    pub(super) fn documents<'t>(
        &self,
        txn: &'t RoTxn<'_, AnyTls>,
    ) -> heed::Result<impl Iterator<Item = heed::Result<(&'t str, DocumentRecord)>>> {
        let documents = self.documents.iter(txn)?;
        Ok(documents.map(|document| {
            let (id, record) = document?;
            Ok((id, parse(record)?))
        }))
    }

    pub(super) fn chunk(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        number: u32,
    ) -> heed::Result<Option<ChunkRecord>> {
        self.chunks.get(txn, &number.to_be_bytes())?.map(parse).transpose()
    }

    pub(super) fn put_chunk(
        &self,
        txn: &mut RwTxn<'_>,
        number: u32,
        record: &ChunkRecord,
    ) -> heed::Result<()> {
        self.chunks.put(txn, &number.to_be_bytes(), &written(record)?)
    }

    pub(super) fn delete_chunk(&self, txn: &mut RwTxn<'_>, number: u32) -> heed::Result<()> {
        self.chunks.delete(txn, &number.to_be_bytes()).map(drop)
    }

    /// All chunks by ascending number.
    pub(super) fn chunks<'t>(
        &self,
        txn: &'t RoTxn<'_, AnyTls>,
    ) -> heed::Result<impl Iterator<Item = heed::Result<(u32, ChunkRecord)>> + use<'t>> {
        let chunks = self.chunks.iter(txn)?;
        Ok(chunks.map(|chunk| {
            let (key, record) = chunk?;
            let number = <[u8; 4]>::try_from(key).map_err(decoding)?;
            Ok((u32::from_be_bytes(number), parse(record)?))
        }))
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> heed::Result<T> {
    serde_json::from_slice(bytes).map_err(decoding)
}

fn written(record: &impl Serialize) -> heed::Result<Vec<u8>> {
    serde_json::to_vec(record).map_err(|error| heed::Error::Encoding(error.into()))
}

fn decoding(error: impl std::error::Error + Send + Sync + 'static) -> heed::Error {
    heed::Error::Decoding(error.into())
}

#[allow(unsafe_code)]
fn open_environment(folder: &Path, map_size_mib: usize) -> heed::Result<Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(map_size_mib.saturating_mul(1 << 20)).max_readers(READERS).max_dbs(TABLES);
    // SAFETY: LMDB maps the file, so only LMDB may change it; LMDB's own locks separate processes.
    // The folder belongs to the store, and nothing else in this program writes `data.mdb`.
    unsafe { options.open(folder) }
}

fn failed(folder: &Path, source: heed::Error) -> DocumentsError {
    let remedy = match &source {
        heed::Error::Mdb(MdbError::MapFull) => "raise documents.map_size_mib (--map-size-mib)",
        heed::Error::Io(_) => "check the folder and its permissions, and that there is room",
        _ => "import the documents again, into another folder",
    };
    DocumentsError::Store { folder: folder.to_owned(), source: source.into(), remedy }
}
