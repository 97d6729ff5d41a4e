//! The index of words, for full-text search: BM25 over the terms of title and text, on tantivy.
//!
//! The index holds numbers and terms; the chunks themselves are in the [store](super::store), the
//! source of truth. A commit records the store's generation. An index that is outdated after a
//! crash is therefore detected, and the next writer rebuilds it. Each change ends by merging all
//! segments into one, so that BM25 does not count deleted chunks.

use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;

use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;
use tantivy::collector::{DocSetCollector, FilterCollector, TopDocs};
use tantivy::directory::MmapDirectory;
use tantivy::query::{BooleanQuery, BoostQuery, Occur, Query, TermQuery};
use tantivy::schema::{
    FAST, Field, INDEXED, IndexRecordOption, STRING, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::tokenizer::{PreTokenizedString, Token};
use tantivy::{
    DocId, Index, IndexReader, IndexWriter, ReloadPolicy, Score, Searcher, SegmentReader,
    TantivyDocument, TantivyError, Term,
};
use turnstream_knowledge::terms::terms;
use turnstream_ports::documents::FoundChunk;

use super::store::ChunkRecord;

/// Memory for pending terms in bytes; tantivy requires at least 15 MB.
const WRITER_BYTES: usize = 64_000_000;
/// tantivy fixes BM25's k1 = 1.2 and b = 0.75.
const K1: f32 = 1.2;

const NUMBER: &str = "number";

/// The fields of a chunk in the index.
#[derive(Clone, Copy)]
struct Fields {
    number: Field,
    terms: Field,
    metadata: Field,
}

impl Fields {
    fn schema() -> (Schema, Self) {
        let mut schema = Schema::builder();
        let indexing = TextFieldIndexing::default()
            .set_fieldnorms(true)
            .set_index_option(IndexRecordOption::WithFreqs);
        let fields = Self {
            number: schema.add_u64_field(NUMBER, INDEXED | FAST),
            terms: schema
                .add_text_field("terms", TextOptions::default().set_indexing_options(indexing)),
            metadata: schema.add_text_field("metadata", STRING),
        };
        (schema.build(), fields)
    }

    fn document(self, number: u32, chunk: &ChunkRecord) -> TantivyDocument {
        let tokens = terms(&chunk.title).into_iter().chain(terms(&chunk.text)).enumerate();
        let tokens = tokens.map(|(position, text)| Token { position, text, ..Token::default() });
        let tokens = PreTokenizedString { text: String::new(), tokens: tokens.collect() };
        let mut document = TantivyDocument::new();
        document.add_u64(self.number, u64::from(number));
        document.add_pre_tokenized_text(self.terms, tokens);
        for (key, value) in &chunk.metadata {
            document.add_text(self.metadata, metadata_term(key, value));
        }
        document
    }
}

/// Encodes a metadata key and value as one term.
fn metadata_term(key: &str, value: &str) -> String {
    format!("{key}\0{value}")
}

fn open_index(folder: &Path) -> Result<(Index, Fields), TantivyError> {
    let (schema, fields) = Fields::schema();
    std::fs::create_dir_all(folder).map_err(|error| TantivyError::IoError(Arc::new(error)))?;
    let index = Index::open_or_create(MmapDirectory::open(folder)?, schema)?;
    Ok((index, fields))
}

/// The generation of the last commit; `None` before the first.
fn generation(index: &Index) -> Result<Option<u64>, TantivyError> {
    let payload = index.load_metas()?.payload;
    Ok(payload.and_then(|generation| generation.parse().ok()))
}

/// Writes the index.
pub(super) struct WordsWriter {
    writer: IndexWriter,
    fields: Fields,
}

impl WordsWriter {
    /// Opens or creates the index in a folder, for one writer at a time. Also returns the store's
    /// generation at the last commit.
    pub(super) fn open(folder: &Path) -> Result<(Self, Option<u64>), TantivyError> {
        let (index, fields) = open_index(folder)?;
        let generation = generation(&index)?;
        // One thread, so that the same documents give the same index.
        let writer = index.writer_with_num_threads(1, WRITER_BYTES)?;
        Ok((Self { writer, fields }, generation))
    }

    /// Deletes all chunks.
    pub(super) fn clear(&mut self) -> Result<(), TantivyError> {
        self.writer.delete_all_documents().map(drop)
    }

    /// Deletes a chunk.
    pub(super) fn delete(&mut self, number: u32) {
        let term = Term::from_field_u64(self.fields.number, u64::from(number));
        self.writer.delete_term(term);
    }

    /// Adds a chunk.
    pub(super) fn add(&mut self, number: u32, chunk: &ChunkRecord) -> Result<(), TantivyError> {
        self.writer.add_document(self.fields.document(number, chunk)).map(drop)
    }

    /// Commits the changes under the store's generation.
    pub(super) fn commit(mut self, generation: u64) -> Result<(), TantivyError> {
        let mut prepared = self.writer.prepare_commit()?;
        prepared.set_payload(&generation.to_string());
        prepared.commit()?;
        let segments = self.writer.index().searchable_segment_ids()?;
        if !segments.is_empty() {
            self.writer.merge(&segments).wait()?;
        }
        self.writer.garbage_collect_files().wait()?;
        self.writer.wait_merging_threads()
    }
}

/// A snapshot of the index.
pub(super) struct Words {
    fields: Fields,
    searcher: Searcher,
    /// Keeps the searcher's files open.
    _reader: IndexReader,
}

impl Words {
    /// Opens the index of a folder and returns it with its generation.
    pub(super) fn open(folder: &Path) -> Result<(Self, Option<u64>), TantivyError> {
        let (index, fields) = open_index(folder)?;
        let generation = generation(&index)?;
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
        let reader: IndexReader = reader;
        Ok((Self { fields, searcher: reader.searcher(), _reader: reader }, generation))
    }

    /// The number of chunks that hold a term.
    pub(super) fn chunks_with(&self, term: &str) -> Result<u64, TantivyError> {
        self.searcher.doc_freq(&Term::from_field_text(self.fields.terms, term))
    }

    /// The chunks whose metadata have all the given values, ascending.
    pub(super) fn with_metadata(
        &self,
        wanted: &[(String, String)],
    ) -> Result<RoaringBitmap, TantivyError> {
        let terms = wanted.iter().map(|(key, value)| {
            let term = Term::from_field_text(self.fields.metadata, &metadata_term(key, value));
            Box::new(TermQuery::new(term, IndexRecordOption::Basic)) as Box<dyn Query>
        });
        let all = BooleanQuery::intersection(terms.collect());
        let mut numbers = RoaringBitmap::new();
        for address in self.searcher.search(&all, &DocSetCollector)? {
            let segment = self.searcher.segment_reader(address.segment_ord);
            let column = segment.fast_fields().u64(NUMBER)?;
            numbers
                .extend(column.first(address.doc_id).and_then(|number| u32::try_from(number).ok()));
        }
        Ok(numbers)
    }

    /// The best chunks by BM25, best first and ties by number. A score is the share of the highest
    /// score that the query could get.
    pub(super) fn search(
        &self,
        text: &str,
        within: Option<&[u32]>,
        limit: usize,
    ) -> Result<Vec<FoundChunk>, TantivyError> {
        let mut counts = FxHashMap::<String, u32>::default();
        for term in terms(text) {
            *counts.entry(term).or_default() += 1;
        }
        let mut counts: Vec<(String, u32)> = counts.into_iter().collect();
        // Sort: a sum of floats depends on the order.
        counts.sort_unstable();
        let (mut clauses, mut most) = (Vec::<(Occur, Box<dyn Query>)>::new(), 0.0_f32);
        for (term, count) in counts {
            let term = Term::from_field_text(self.fields.terms, &term);
            let found = self.searcher.doc_freq(&term)?;
            most += count as f32 * self.idf(found) * (K1 + 1.0);
            if found > 0 {
                let term = TermQuery::new(term, IndexRecordOption::WithFreqs);
                let weighted = BoostQuery::new(Box::new(term), count as f32);
                clauses.push((Occur::Should, Box::new(weighted)));
            }
        }
        if clauses.is_empty() || limit == 0 || within.is_some_and(<[u32]>::is_empty) {
            return Ok(Vec::new());
        }
        let best = TopDocs::with_limit(limit).tweak_score(|segment: &SegmentReader| {
            let numbers = segment.fast_fields().u64(NUMBER).ok();
            move |chunk: DocId, score: Score| {
                let number = numbers.as_ref().and_then(|numbers| numbers.first(chunk));
                (score, Reverse(number.unwrap_or(u64::MAX)))
            }
        });
        let query = BooleanQuery::new(clauses);
        let found = match within {
            None => self.searcher.search(&query, &best)?,
            Some(within) => {
                let within: Arc<RoaringBitmap> = Arc::new(within.iter().copied().collect());
                let wanted = move |number: u64| {
                    u32::try_from(number).is_ok_and(|number| within.contains(number))
                };
                let filtered = FilterCollector::new(NUMBER.to_owned(), wanted, best);
                self.searcher.search(&query, &filtered)?
            }
        };
        let chunks = found.into_iter().filter_map(|((score, Reverse(number)), _)| {
            let chunk = u32::try_from(number).ok()?;
            Some(FoundChunk { chunk, score: f64::from((score / most).clamp(0.0, 1.0)) })
        });
        Ok(chunks.collect())
    }

    /// BM25's weight of a term that `chunks` chunks hold, as tantivy computes it.
    fn idf(&self, chunks: u64) -> f32 {
        let (all, chunks) = (self.searcher.num_docs() as f32, chunks as f32);
        (1.0 + (all - chunks + 0.5) / (chunks + 0.5)).ln()
    }
}
