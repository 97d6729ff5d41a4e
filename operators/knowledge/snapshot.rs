//! The compiled snapshot: its layout, opening it, and reading it in place.
//!
//! A file is a header of [`HEADER_BYTES`], a table of sections, and the sections. All numbers are
//! little-endian. The checksum covers everything after the header. Opening verifies the checksum
//! and that every offset and id lies inside the file, so that reading needs no checks.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fst::raw::{Fst, Node};
use memmap2::Mmap;

use super::relation::RelationEntry;
use super::{ConceptId, Fact, RelationId};
use crate::language::Lexicon;

/// Version of the snapshot's layout. Part of the name under which a built pack is cached.
pub const FORMAT_VERSION: u32 = 1;

pub(super) const MAGIC: [u8; 8] = *b"TURNKNOW";
/// magic 8, format version 4, checksum 4, lexicon 4, concepts 4, facts 4, largest degree 4.
pub(super) const HEADER_BYTES: usize = 32;
pub(super) const FACT_BYTES: usize = 16;
pub(super) const NEGATED: u8 = 1;

/// The sections, in the order in which they lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Section {
    /// u32 per concept and one more: where its text begins.
    TextOffsets,
    /// The texts, sorted, end to end.
    Texts,
    /// u8 per concept: its language.
    Languages,
    /// Names of languages, relations and sources, three lines of tab-separated text.
    Names,
    /// Finite-state map from lemmas to a packed range of `LemmaConcepts`.
    Lemmas,
    /// u32 each: concepts that share their lemmas.
    LemmaConcepts,
    /// [`FACT_BYTES`] each, by head, tail, relation, source.
    Facts,
    /// u32 per concept and one more: where the facts of a head begin.
    FromOffsets,
    /// u32 each: facts of a head, strongest first.
    FromRanked,
    /// u32 per concept and one more: where the facts of a tail begin in `ToRanked`.
    ToOffsets,
    /// u32 each: facts of a tail, strongest first.
    ToRanked,
}

pub(super) const SECTIONS: usize = Section::ToRanked as usize + 1;

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
    /// ln(1 + largest degree).
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
        if crc32fast::hash(&bytes[HEADER_BYTES..]) != checksum {
            return Err(damaged("its checksum differs from its content"));
        }
        let expected = Lexicon::english().fingerprint();
        if lexicon != expected {
            let found = lexicon;
            return Err(SnapshotError::Lexicon { path: path.to_owned(), found, expected });
        }
        let (concepts, facts) = (concepts as usize, facts as usize);
        let sections = sections(bytes).ok_or_else(|| damaged("a section leaves the file"))?;
        check(bytes, &sections, concepts, facts).map_err(damaged)?;
        let [languages, relations, sources] = names(&bytes[range(&sections, Section::Names)])
            .ok_or_else(|| damaged("its names are not text"))?;
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
            degree_scale: (1.0 + largest as f32).ln(),
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
        let degree = self.degree(id).max(1) as f32;
        if self.degree_scale <= 0.0 {
            return 1.0;
        }
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
        key: &str,
    ) -> impl ExactSizeIterator<Item = ConceptId> + '_ {
        let found = self.lemmas.get(key).map_or(0..0, |output| unpack(output.value()));
        found.map(|at| ConceptId(self.number(Section::LemmaConcepts, at)))
    }

    pub(super) fn lemma_walk(&self) -> LemmaWalk<'_> {
        let node = Some(self.lemmas.root());
        LemmaWalk { snapshot: self, node, output: 0, begun: false }
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
}

impl<'g> LemmaWalk<'g> {
    /// One word further. `false` where no concept goes on like this: then the walk is over.
    pub(crate) fn step(&mut self, lemma: &str) -> bool {
        if self.begun {
            self.advance(b' ');
        }
        self.begun = true;
        for &byte in lemma.as_bytes() {
            self.advance(byte);
        }
        self.node.is_some()
    }

    fn advance(&mut self, byte: u8) {
        let Some(node) = self.node.take() else { return };
        let Some(index) = node.find_input(byte) else { return };
        let transition = node.transition(index);
        self.output += transition.out.value();
        self.node = Some(self.snapshot.lemmas.node(transition.addr));
    }

    /// The concepts with exactly the lemmas so far, by falling degree, then text.
    pub(crate) fn concepts(&self) -> impl ExactSizeIterator<Item = ConceptId> + use<'g> {
        let whole = self.node.as_ref().filter(|node| self.begun && node.is_final());
        let found = whole.map_or(0..0, |node| unpack(self.output + node.final_output().value()));
        let snapshot = self.snapshot;
        found.map(move |at| ConceptId(snapshot.number(Section::LemmaConcepts, at)))
    }
}

/// The value of a lemma key: where its concepts begin, and how many there are.
pub(super) fn pack(start: usize, count: usize) -> u64 {
    ((start as u64) << 24) | (count as u64).min((1 << 24) - 1)
}

fn unpack(value: u64) -> Range<usize> {
    let start = (value >> 24) as usize;
    start..start + (value & ((1 << 24) - 1)) as usize
}

pub(super) fn encode(fact: &Fact) -> [u8; FACT_BYTES] {
    let mut bytes = [0; FACT_BYTES];
    bytes[..4].copy_from_slice(&fact.head.0.to_le_bytes());
    bytes[4..8].copy_from_slice(&fact.tail.0.to_le_bytes());
    bytes[8..12].copy_from_slice(&fact.weight.to_le_bytes());
    bytes[12..14].copy_from_slice(&fact.relation.0.to_le_bytes());
    bytes[14] = fact.source;
    bytes[15] = if fact.negated { NEGATED } else { 0 };
    bytes
}

fn decode(bytes: &[u8]) -> Fact {
    Fact {
        head: ConceptId(read_u32(bytes, 0)),
        tail: ConceptId(read_u32(bytes, 4)),
        weight: f32::from_bits(read_u32(bytes, 8)),
        relation: RelationId(u16::from_le_bytes([bytes[12], bytes[13]])),
        source: bytes[14],
        negated: bytes[15] & NEGATED != 0,
    }
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
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

fn range(sections: &[Range<usize>; SECTIONS], section: Section) -> Range<usize> {
    sections[section as usize].clone()
}

/// The section table: a u64 length each, directly after the header; the sections follow it.
fn sections(bytes: &[u8]) -> Option<[Range<usize>; SECTIONS]> {
    let table = bytes.get(HEADER_BYTES..HEADER_BYTES + 8 * SECTIONS)?;
    let mut start = HEADER_BYTES + 8 * SECTIONS;
    let mut sections = std::array::from_fn(|_| 0..0);
    for (section, length) in sections.iter_mut().zip(table.as_chunks::<8>().0) {
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let end = start.checked_add(length).filter(|end| *end <= bytes.len())?;
        *section = start..end;
        start = end;
    }
    (start == bytes.len()).then_some(sections)
}

/// Verifies what reading relies on: lengths agree with the counts, offsets rise and end at the
/// end, ids are in range, texts are UTF-8.
fn check(
    bytes: &[u8],
    sections: &[Range<usize>; SECTIONS],
    concepts: usize,
    facts: usize,
) -> Result<(), &'static str> {
    let part = |section: Section| &bytes[range(sections, section)];
    let lengths = [
        (Section::TextOffsets, 4 * (concepts + 1)),
        (Section::Languages, concepts),
        (Section::Facts, FACT_BYTES * facts),
        (Section::FromOffsets, 4 * (concepts + 1)),
        (Section::FromRanked, 4 * facts),
        (Section::ToOffsets, 4 * (concepts + 1)),
        (Section::ToRanked, 4 * facts),
    ];
    if lengths.iter().any(|&(section, length)| part(section).len() != length) {
        return Err("a section has the wrong length");
    }
    let rises = |section: Section, end: usize| {
        let offsets = part(section).as_chunks::<4>().0;
        let numbers = || offsets.iter().map(|&bytes| u32::from_le_bytes(bytes) as usize);
        numbers().is_sorted() && numbers().next() == Some(0) && numbers().next_back() == Some(end)
    };
    let texts = part(Section::Texts);
    if !rises(Section::TextOffsets, texts.len())
        || !rises(Section::FromOffsets, facts)
        || !rises(Section::ToOffsets, facts)
    {
        return Err("its offsets do not rise to the end");
    }
    let text = std::str::from_utf8(texts).map_err(|_| "a concept is not UTF-8")?;
    let offsets = part(Section::TextOffsets).as_chunks::<4>().0;
    if !offsets.iter().all(|&at| text.is_char_boundary(u32::from_le_bytes(at) as usize)) {
        return Err("a concept is cut inside a character");
    }
    let below = |section: Section, limit: usize| {
        let numbers = part(section).as_chunks::<4>().0;
        numbers.iter().all(|&bytes| (u32::from_le_bytes(bytes) as usize) < limit)
    };
    if !below(Section::FromRanked, facts)
        || !below(Section::ToRanked, facts)
        || !below(Section::LemmaConcepts, concepts)
        || !part(Section::LemmaConcepts).len().is_multiple_of(4)
    {
        return Err("an index is out of range");
    }
    Ok(())
}

/// Three lines: languages, relations, sources.
fn names(bytes: &[u8]) -> Option<[Vec<String>; 3]> {
    let mut lines = std::str::from_utf8(bytes).ok()?.split('\n');
    let mut line = || {
        let line = lines.next()?;
        let names = line.split('\t').filter(|name| !name.is_empty());
        Some(names.map(str::to_owned).collect())
    };
    Some([line()?, line()?, line()?])
}

/// Every fact names a concept, a relation and a source that exist, every concept a language.
fn check_names(
    bytes: &[u8],
    sections: &[Range<usize>; SECTIONS],
    [languages, relations, sources]: [&Vec<String>; 3],
) -> Result<(), &'static str> {
    let concepts = range(sections, Section::Languages).len() as u32;
    let known = |&code: &u8| usize::from(code) < languages.len();
    let facts = bytes[range(sections, Section::Facts)].as_chunks::<FACT_BYTES>().0;
    let sound = |bytes: &[u8; FACT_BYTES]| {
        let fact = decode(bytes);
        fact.head.0 < concepts
            && fact.tail.0 < concepts
            && usize::from(fact.relation.0) < relations.len()
            && usize::from(fact.source) < sources.len()
    };
    if !bytes[range(sections, Section::Languages)].iter().all(known) || !facts.iter().all(sound) {
        return Err("a fact or concept names something that is not there");
    }
    Ok(())
}
