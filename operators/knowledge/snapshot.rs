//! The compiled snapshot: opening it, and reading it in place. Opening verifies the checksum and
//! that every offset and id lies inside the file, so that reading needs no checks.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fst::raw::{Fst, Node};
use memmap2::Mmap;

use super::layout::{
    CHECKED_FROM, FACT_BYTES, FORMAT_VERSION, HEADER_BYTES, LEMMA_KEY_SEPARATOR, MAGIC, SECTIONS,
    Section, check, check_names, decode, lemma_key, lexicon_fingerprint, names, range, read_u32,
    sections, unpack,
};
use super::relation::RelationEntry;
use super::{ConceptId, Fact};
use crate::language::Lexicon;

/// What has fewer facts is no hub, though it be the largest concept of a small graph.
const SMALLEST_HUB_DEGREE: u32 = 1_000;

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file cannot be read.
    #[error("cannot read the knowledge snapshot {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is something else.
    #[error(
        "{path} is not a knowledge snapshot; make one with `turnstream knowledge import`",
        path = path.display()
    )]
    NotASnapshot {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by another version.
    #[error(
        "{path} has snapshot format {found}, this program reads format {expected}; import the \
         facts again with `turnstream knowledge import`",
        path = path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// The file's lemma index was built with other language data.
    #[error(
        "the lemma index of {path} was built with another lexicon ({found:08x}, this program has \
         {expected:08x}); import the facts again with `turnstream knowledge import`",
        path = path.display()
    )]
    Lexicon {
        /// The file.
        path: PathBuf,
        /// Fingerprint of the lexicon it was built with.
        found: u32,
        /// Fingerprint of ours.
        expected: u32,
    },
    /// The file is damaged.
    #[error(
        "{path} is damaged ({what}); remove it and import the facts again with `turnstream \
         knowledge import`",
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// The bytes of a snapshot.
pub(super) enum Backing {
    Mapped(Mmap),
    Owned(Box<[u8]>),
}

impl Backing {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// A part of the backing that owns its share of it, for the finite-state map.
struct Shared {
    backing: Arc<Backing>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.backing.bytes()[self.range.clone()]
    }
}

/// An opened snapshot.
pub(super) struct Snapshot {
    backing: Arc<Backing>,
    sections: [Range<usize>; SECTIONS],
    lemmas: Fst<Shared>,
    languages: Vec<String>,
    relations: Vec<RelationEntry>,
    sources: Vec<String>,
    version: String,
    concepts: usize,
    facts: usize,
    /// ln(1 + largest degree), not below that of the smallest hub.
    degree_scale: f32,
}

impl Snapshot {
    pub(super) fn map(path: &Path) -> Result<Self, SnapshotError> {
        let read = |source| SnapshotError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(read)?;
        // SAFETY: snapshots are written under a temporary name and renamed into place, and never
        // written again; a process that truncates the file under us breaks its own contract.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(&file) }.map_err(read)?;
        Self::open(Backing::Mapped(map), path)
    }

    /// Opens a snapshot; `path` only names it in errors.
    pub(super) fn open(backing: Backing, path: &Path) -> Result<Self, SnapshotError> {
        let damaged = |what| SnapshotError::Damaged { path: path.to_owned(), what };
        let bytes = backing.bytes();
        let header = bytes
            .get(..HEADER_BYTES)
            .filter(|header| header.starts_with(&MAGIC))
            .ok_or_else(|| SnapshotError::NotASnapshot { path: path.to_owned() })?;
        let [format, checksum, lexicon, concepts, facts, largest] =
            [8, 12, 16, 20, 24, 28].map(|at| read_u32(header, at));
        if format != FORMAT_VERSION {
            let (found, expected) = (format, FORMAT_VERSION);
            return Err(SnapshotError::Format { path: path.to_owned(), found, expected });
        }
        if crc32fast::hash(&bytes[CHECKED_FROM..]) != checksum {
            return Err(damaged("its checksum differs from its content"));
        }
        let (concepts, facts) = (concepts as usize, facts as usize);
        let sections = sections(bytes).ok_or_else(|| damaged("a section leaves the file"))?;
        check(bytes, &sections, concepts, facts).map_err(damaged)?;
        let [languages, relations, sources] = names(&bytes[range(&sections, Section::Names)])
            .ok_or_else(|| damaged("its names are not text"))?;
        let expected = lexicon_fingerprint(languages.iter().map(String::as_str));
        if lexicon != expected {
            let found = lexicon;
            return Err(SnapshotError::Lexicon { path: path.to_owned(), found, expected });
        }
        check_names(bytes, &sections, [&languages, &relations, &sources]).map_err(damaged)?;
        let backing = Arc::new(backing);
        let lemmas =
            Shared { backing: Arc::clone(&backing), range: range(&sections, Section::Lemmas) };
        let lemmas = Fst::new(lemmas).map_err(|_| damaged("its lemma index cannot be read"))?;
        Ok(Self {
            backing,
            sections,
            lemmas,
            languages,
            relations: relations.iter().map(|name| RelationEntry::new(name)).collect(),
            sources,
            version: format!("{checksum:08x}-{facts}"),
            concepts,
            facts,
            degree_scale: (1.0 + largest.max(SMALLEST_HUB_DEGREE) as f32).ln(),
        })
    }

    fn section(&self, section: Section) -> &[u8] {
        &self.backing.bytes()[self.sections[section as usize].clone()]
    }

    fn number(&self, section: Section, index: usize) -> u32 {
        read_u32(self.section(section), index * 4)
    }

    fn span(&self, offsets: Section, id: ConceptId) -> Range<usize> {
        let index = id.0 as usize;
        self.number(offsets, index) as usize..self.number(offsets, index + 1) as usize
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn bytes(&self) -> usize {
        self.backing.bytes().len()
    }

    pub(super) fn concept_count(&self) -> usize {
        self.concepts
    }

    pub(super) fn fact_count(&self) -> usize {
        self.facts
    }

    pub(super) fn languages(&self) -> &[String] {
        &self.languages
    }

    pub(super) fn relations(&self) -> &[RelationEntry] {
        &self.relations
    }

    pub(super) fn sources(&self) -> &[String] {
        &self.sources
    }

    pub(super) fn text(&self, id: ConceptId) -> &str {
        let text = &self.section(Section::Texts)[self.span(Section::TextOffsets, id)];
        // Opening has checked that every text is UTF-8, so the default is never taken.
        std::str::from_utf8(text).unwrap_or_default()
    }

    pub(super) fn language(&self, id: ConceptId) -> &str {
        &self.languages[usize::from(self.section(Section::Languages)[id.0 as usize])]
    }

    pub(super) fn find(&self, text: &str) -> Option<ConceptId> {
        let at = partition(0..self.concepts, |index| self.text(ConceptId(index as u32)) < text);
        let id = ConceptId(at as u32);
        (at < self.concepts && self.text(id) == text).then_some(id)
    }

    pub(super) fn degree(&self, id: ConceptId) -> u32 {
        let from = self.span(Section::FromOffsets, id).len();
        (from + self.span(Section::ToOffsets, id).len()) as u32
    }

    pub(super) fn informativeness(&self, id: ConceptId) -> f32 {
        self.informativeness_at(self.degree(id))
    }

    pub(super) fn informativeness_at(&self, degree: u32) -> f32 {
        let degree = degree.max(1) as f32;
        (1.0 - degree.ln() / self.degree_scale).clamp(0.0, 1.0)
    }

    pub(super) fn fact(&self, index: usize) -> Fact {
        let at = index * FACT_BYTES;
        decode(&self.section(Section::Facts)[at..at + FACT_BYTES])
    }

    pub(super) fn ranked_from(&self, head: ConceptId) -> impl ExactSizeIterator<Item = Fact> + '_ {
        let span = self.span(Section::FromOffsets, head);
        span.map(|at| self.fact(self.number(Section::FromRanked, at) as usize))
    }

    pub(super) fn ranked_to(&self, tail: ConceptId) -> impl ExactSizeIterator<Item = Fact> + '_ {
        let span = self.span(Section::ToOffsets, tail);
        span.map(|at| self.fact(self.number(Section::ToRanked, at) as usize))
    }

    pub(super) fn between(
        &self,
        head: ConceptId,
        tail: ConceptId,
    ) -> impl ExactSizeIterator<Item = Fact> + '_ {
        let facts = self.section(Section::Facts);
        let tail_of = |index: usize| read_u32(facts, index * FACT_BYTES + 4);
        let span = self.span(Section::FromOffsets, head);
        let start = partition(span.clone(), |index| tail_of(index) < tail.0);
        let mut end = start;
        // Few facts join the same two concepts: at most relations × sources.
        while end < span.end && tail_of(end) == tail.0 {
            end += 1;
        }
        (start..end).map(|index| self.fact(index))
    }

    pub(super) fn concepts_with_lemmas(
        &self,
        language: &str,
        key: &str,
    ) -> impl ExactSizeIterator<Item = ConceptId> + '_ {
        let found =
            self.lemmas.get(lemma_key(language, key)).map_or(0..0, |output| unpack(output.value()));
        found.map(|at| ConceptId(self.number(Section::LemmaConcepts, at)))
    }

    pub(super) fn lemma_walk(&self, language: &str) -> LemmaWalk<'_> {
        let node = Some(self.lemmas.root());
        let joint = Lexicon::for_language(language).map_or("", Lexicon::joint);
        let mut walk = LemmaWalk { snapshot: self, node, output: 0, begun: false, joint };
        walk.advance(language);
        walk.advance(LEMMA_KEY_SEPARATOR);
        walk
    }
}

/// A walk through the lemma index: give it lemma after lemma, and it says which concepts have
/// exactly the lemmas so far. Two walks that share a beginning cost nothing twice, and a walk
/// that no concept begins with ends at once.
#[derive(Clone)]
pub(crate) struct LemmaWalk<'g> {
    snapshot: &'g Snapshot,
    node: Option<Node<'g>>,
    output: u64,
    begun: bool,
    /// What stands between two lemmas.
    joint: &'static str,
}

impl<'g> LemmaWalk<'g> {
    /// One word further. `false` where no concept goes on like this: then the walk is over.
    pub(crate) fn step(&mut self, lemma: &str) -> bool {
        if self.begun {
            self.advance(self.joint);
        }
        self.begun = true;
        self.advance(lemma);
        self.node.is_some()
    }

    fn advance(&mut self, text: &str) {
        for &byte in text.as_bytes() {
            let Some(node) = self.node.take() else { return };
            let Some(index) = node.find_input(byte) else { return };
            let transition = node.transition(index);
            self.output += transition.out.value();
            self.node = Some(self.snapshot.lemmas.node(transition.addr));
        }
    }

    /// The concepts with exactly the lemmas so far, by falling degree, then text.
    pub(crate) fn concepts(&self) -> impl ExactSizeIterator<Item = ConceptId> + use<'g> {
        let whole = self.node.as_ref().filter(|node| self.begun && node.is_final());
        let found = whole.map_or(0..0, |node| unpack(self.output + node.final_output().value()));
        let snapshot = self.snapshot;
        found.map(move |at| ConceptId(snapshot.number(Section::LemmaConcepts, at)))
    }
}

/// The first index of the range for which `before` no longer holds.
fn partition(range: Range<usize>, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
