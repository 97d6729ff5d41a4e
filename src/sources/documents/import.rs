//! Fills a store: adds, replaces and deletes documents in one transaction.
//!
//! An unchanged chunk keeps its number and its vector. A changed chunk is a new one and its
//! predecessor is deleted; numbers are never reused. The chunks are committed first, then the
//! index of words with the chunks' generation. After a crash between the two commits, the next
//! import or `reindex` rebuilds the index.

use std::path::{Path, PathBuf};

use heed::RwTxn;
use serde::Serialize;
use tantivy::TantivyError;
use turnstream_knowledge::sentences::sentences;
use turnstream_knowledge::terms;
use turnstream_ports::model::encoder::Encoder;

use super::record::{BadLine, Document};
use super::split::Splitter;
use super::store::{ChunkRecord, DocumentRecord, EncoderUsed, State, Store};
use super::words::WordsWriter;
use super::{DocumentsConfig, DocumentsError, WORDS_FOLDER, check_encoder};
use crate::index::{TreeConfig, TreesWriter};

/// Chunks encoded at once.
const ENCODE_BATCH: usize = 256;
/// The most bad lines that a report lists; further ones are only counted.
const MAX_BAD_LINES: usize = 20;

/// A change to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds the document, or replaces the one with its id.
    Put(Document),
    /// Deletes the document with this id.
    Delete(String),
    /// An invalid document, which is counted and reported.
    Bad(BadLine),
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Added documents.
    pub added: u64,
    /// Replaced documents.
    pub updated: u64,
    /// Documents that were already stored in the same form.
    pub unchanged: u64,
    /// Deleted documents.
    pub deleted: u64,
    /// Ids to delete that were not stored.
    pub missing: u64,
    /// Invalid documents.
    pub bad: u64,
    /// The first invalid documents.
    pub bad_lines: Vec<BadLine>,
    /// Written chunks.
    pub chunks_written: u64,
    /// Encoded chunks.
    pub chunks_encoded: u64,
    /// Encoded chunks that were longer than the encoder takes, and were cut.
    pub chunks_cut: u64,
    /// Documents in the store after the import.
    pub documents: u64,
    /// Chunks in the store after the import.
    pub chunks: u64,
}

/// Changes a store. Only one importer at a time: another one waits, or is refused by the lock of
/// the index of words.
pub struct Importer<'e> {
    folder: PathBuf,
    store: Store,
    words: WordsWriter,
    words_are_current: bool,
    splitter: Splitter,
    trees: TreeConfig,
    encoder: Option<&'e dyn Encoder>,
}

/// A running import.
struct Run<'r, 'e, 't> {
    importer: &'r mut Importer<'e>,
    txn: RwTxn<'t>,
    state: State,
    report: Report,
    /// Chunks that wait for encoding.
    waiting: Vec<(u32, String)>,
    vectors_changed: bool,
}

impl<'e> Importer<'e> {
    /// Opens or creates the store of a folder. Chunks have up to `chunk_characters` characters.
    ///
    /// # Errors
    /// The store cannot be opened, or another process is changing it.
    pub fn open(
        folder: &Path,
        config: &DocumentsConfig,
        chunk_characters: usize,
        encoder: Option<&'e dyn Encoder>,
    ) -> Result<Self, DocumentsError> {
        let store = Store::open(folder, config.map_size_mib, true)?;
        let state = store.read(|txn, tables| tables.state(txn))?;
        if let Some(encoder) = encoder {
            let (name, fingerprint) = (encoder.name(), encoder.fingerprint());
            check_encoder(folder, state.encoder.as_ref(), name, fingerprint)?;
        }
        let failed = |source| {
            let folder = folder.to_owned();
            match source {
                TantivyError::LockFailure(..) => DocumentsError::Busy { folder },
                source => DocumentsError::Words { folder, source },
            }
        };
        let (words, generation) = WordsWriter::open(&folder.join(WORDS_FOLDER)).map_err(failed)?;
        let words_are_current =
            generation == Some(state.generation) && state.terms == terms::fingerprint();
        Ok(Self {
            folder: folder.to_owned(),
            store,
            words,
            words_are_current,
            splitter: Splitter::new(chunk_characters),
            trees: config.trees.clone(),
            encoder,
        })
    }

    /// Applies all changes that `changes` passes to its argument, or none. Even without changes, it
    /// rebuilds an outdated index of words and encodes chunks if the store has no vectors yet.
    ///
    /// # Errors
    /// The store cannot be written, the encoder failed, the store has vectors but no encoder is
    /// given for a new chunk, or `changes` failed.
    pub fn run(
        mut self,
        changes: impl FnOnce(
            &mut dyn FnMut(Change) -> Result<(), DocumentsError>,
        ) -> Result<(), DocumentsError>,
    ) -> Result<Report, DocumentsError> {
        let env = self.store.env.clone();
        let txn = env.write_txn().map_err(|source| self.store.failed(source))?;
        let state = self.store.tables.state(&txn).map_err(|source| self.store.failed(source))?;
        let mut run = Run {
            importer: &mut self,
            txn,
            state,
            report: Report::default(),
            waiting: Vec::new(),
            vectors_changed: false,
        };
        run.begin()?;
        changes(&mut |change| run.apply(change))?;
        let (report, generation) = run.end()?;
        let folder = self.folder;
        self.words.commit(generation).map_err(|source| DocumentsError::Words { folder, source })?;
        Ok(report)
    }

    fn words_failed(&self, source: TantivyError) -> DocumentsError {
        DocumentsError::Words { folder: self.folder.clone(), source }
    }

    fn vectors_failed(&self, source: ::arroy::Error) -> DocumentsError {
        DocumentsError::Vectors { folder: self.folder.clone(), source: Box::new(source) }
    }
}

impl Run<'_, '_, '_> {
    fn failed(&self, source: heed::Error) -> DocumentsError {
        self.importer.store.failed(source)
    }

    /// Completes existing chunks before others are added: rebuilds an outdated index of words, and
    /// encodes chunks if the store has no vectors yet.
    fn begin(&mut self) -> Result<(), DocumentsError> {
        let encode_all = self.importer.encoder.is_some() && self.state.encoder.is_none();
        if let Some(encoder) = self.importer.encoder.filter(|_| encode_all) {
            self.state.encoder = Some(EncoderUsed {
                name: encoder.name().to_owned(),
                fingerprint: encoder.fingerprint(),
                dimensions: encoder.dimensions(),
            });
            self.vectors_changed = true;
        }
        if self.importer.words_are_current && !encode_all {
            return Ok(());
        }
        if !self.importer.words_are_current {
            self.importer.words.clear().map_err(|source| self.importer.words_failed(source))?;
        }
        self.state.terms = terms::fingerprint();
        let numbers: Vec<u32> = {
            let chunks = self.importer.store.tables.chunks(&self.txn);
            let chunks = chunks.map_err(|source| self.failed(source))?;
            let numbers = chunks.map(|chunk| Ok(chunk?.0)).collect::<heed::Result<_>>();
            numbers.map_err(|source| self.failed(source))?
        };
        for number in numbers {
            let chunk = self.importer.store.tables.chunk(&self.txn, number);
            let Some(chunk) = chunk.map_err(|source| self.failed(source))? else { continue };
            if !self.importer.words_are_current {
                let added = self.importer.words.add(number, &chunk);
                added.map_err(|source| self.importer.words_failed(source))?;
            }
            if encode_all {
                self.encode_later(number, &chunk)?;
            }
        }
        Ok(())
    }

    fn apply(&mut self, change: Change) -> Result<(), DocumentsError> {
        match change {
            Change::Put(document) => self.put(document),
            Change::Delete(id) => self.delete(&id),
            Change::Bad(line) => {
                self.report.bad += 1;
                if self.report.bad_lines.len() < MAX_BAD_LINES {
                    self.report.bad_lines.push(line);
                }
                Ok(())
            }
        }
    }

    fn put(&mut self, document: Document) -> Result<(), DocumentsError> {
        let Document { id, title, text, metadata, markup } = document;
        let tables = self.importer.store.tables;
        let before = tables.document(&self.txn, &id).map_err(|source| self.failed(source))?;
        let old = before.as_ref().map_or(&[][..], |before| &before.chunks);
        let pieces = self.importer.splitter.split(&text, markup);
        let (mut numbers, mut changed) = (Vec::with_capacity(pieces.len()), false);
        for (ordinal, piece) in pieces.into_iter().enumerate() {
            let chunk = ChunkRecord {
                document: id.clone(),
                ordinal: ordinal as u32,
                title: titled(&title, &piece.headings),
                text: piece.text.to_owned(),
                metadata: metadata.clone(),
            };
            let kept = match old.get(ordinal) {
                Some(number) => {
                    let there = tables.chunk(&self.txn, *number);
                    let there = there.map_err(|source| self.failed(source))?;
                    (there.as_ref() == Some(&chunk)).then_some(*number)
                }
                None => None,
            };
            numbers.push(match kept {
                Some(number) => number,
                None => {
                    changed = true;
                    self.add_chunk(&chunk)?
                }
            });
        }
        for (ordinal, number) in old.iter().enumerate() {
            if numbers.get(ordinal) != Some(number) {
                changed = true;
                self.delete_chunk(*number)?;
            }
        }
        match &before {
            None => {
                self.report.added += 1;
                self.state.documents += 1;
            }
            Some(_) if changed => self.report.updated += 1,
            Some(_) => {
                self.report.unchanged += 1;
                return Ok(());
            }
        }
        let record = DocumentRecord { title, metadata, chunks: numbers };
        tables
            .put_document(&mut self.txn, &id, &record)
            .map_err(|source| self.importer.store.failed(source))
    }

    fn delete(&mut self, id: &str) -> Result<(), DocumentsError> {
        let tables = self.importer.store.tables;
        let before = tables.document(&self.txn, id).map_err(|source| self.failed(source))?;
        let Some(before) = before else {
            self.report.missing += 1;
            return Ok(());
        };
        for number in before.chunks {
            self.delete_chunk(number)?;
        }
        tables
            .delete_document(&mut self.txn, id)
            .map_err(|source| self.importer.store.failed(source))?;
        self.report.deleted += 1;
        self.state.documents = self.state.documents.saturating_sub(1);
        Ok(())
    }

    fn add_chunk(&mut self, chunk: &ChunkRecord) -> Result<u32, DocumentsError> {
        let number = self.state.next_number;
        let full = || DocumentsError::Full { folder: self.importer.folder.clone() };
        self.state.next_number = number.checked_add(1).ok_or_else(full)?;
        let tables = self.importer.store.tables;
        tables
            .put_chunk(&mut self.txn, number, chunk)
            .map_err(|source| self.importer.store.failed(source))?;
        let added = self.importer.words.add(number, chunk);
        added.map_err(|source| self.importer.words_failed(source))?;
        self.encode_later(number, chunk)?;
        self.report.chunks_written += 1;
        self.state.chunks += 1;
        Ok(number)
    }

    fn delete_chunk(&mut self, number: u32) -> Result<(), DocumentsError> {
        let tables = self.importer.store.tables;
        tables
            .delete_chunk(&mut self.txn, number)
            .map_err(|source| self.importer.store.failed(source))?;
        self.importer.words.delete(number);
        self.waiting.retain(|(waiting, _)| *waiting != number);
        if let Some(vectors) = self.vectors() {
            let deleted = vectors.delete(&mut self.txn, number);
            deleted.map_err(|source| self.importer.vectors_failed(source))?;
            self.vectors_changed = true;
        }
        self.state.chunks = self.state.chunks.saturating_sub(1);
        Ok(())
    }

    /// The writer of vectors, if the store has vectors.
    fn vectors(&self) -> Option<TreesWriter> {
        let encoder = self.state.encoder.as_ref()?;
        Some(TreesWriter::new(self.importer.store.tables.vectors, encoder.dimensions))
    }

    fn encode_later(&mut self, number: u32, chunk: &ChunkRecord) -> Result<(), DocumentsError> {
        let Some(stored) = &self.state.encoder else { return Ok(()) };
        if self.importer.encoder.is_none() {
            return Err(DocumentsError::Encoder {
                folder: self.importer.folder.clone(),
                stored: stored.name.clone(),
                given: "none".to_owned(),
            });
        }
        self.waiting.push((number, encoded_text(chunk)));
        if self.waiting.len() >= ENCODE_BATCH { self.encode() } else { Ok(()) }
    }

    /// Encodes the waiting chunks and stores their vectors.
    fn encode(&mut self) -> Result<(), DocumentsError> {
        let (Some(encoder), Some(vectors)) = (self.importer.encoder, self.vectors()) else {
            return Ok(());
        };
        let waiting = std::mem::take(&mut self.waiting);
        let texts: Vec<&str> = waiting.iter().map(|(_, text)| text.as_str()).collect();
        let mut encoded = Vec::new();
        let done = encoder.encode(&texts, &mut encoded)?;
        self.report.chunks_encoded += texts.len() as u64;
        self.report.chunks_cut += done.cut;
        for ((number, _), vector) in waiting.iter().zip(encoded.chunks(encoder.dimensions())) {
            let put = vectors.put(&mut self.txn, *number, vector);
            put.map_err(|source| self.importer.vectors_failed(source))?;
            self.vectors_changed = true;
        }
        Ok(())
    }

    /// Commits the chunks and returns their generation.
    fn end(mut self) -> Result<(Report, u64), DocumentsError> {
        self.encode()?;
        if let Some(vectors) = self.vectors().filter(|_| self.vectors_changed) {
            let built = vectors.build(&mut self.txn, &self.importer.trees);
            built.map_err(|source| self.importer.vectors_failed(source))?;
        }
        self.state.generation += 1;
        self.report.documents = self.state.documents;
        self.report.chunks = self.state.chunks;
        let tables = self.importer.store.tables;
        let failed = |source| self.importer.store.failed(source);
        tables.put_state(&mut self.txn, &self.state).map_err(failed)?;
        self.txn.commit().map_err(failed)?;
        Ok((self.report, self.state.generation))
    }
}

/// The title of a chunk: that of the document, then the headings that the chunk lies under.
fn titled(title: &str, headings: &[String]) -> String {
    let new = headings.iter().map(String::as_str).filter(|it| !it.is_empty() && *it != title);
    let parts = std::iter::once(title).filter(|title| !title.is_empty()).chain(new);
    parts.collect::<Vec<_>>().join(": ")
}

/// The text that is encoded for a chunk: its title, then its sentences, without mark-up.
fn encoded_text(chunk: &ChunkRecord) -> String {
    let said = sentences(&chunk.text).join(" ");
    match chunk.title.as_str() {
        "" => said,
        title => format!("{title}: {said}"),
    }
}
