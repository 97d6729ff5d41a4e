//! The compiled snapshot: opens it and reads it in place. Opening verifies the checksum and that
//! every offset and id lies inside the file, so that reading needs no checks.

mod places;

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fst::raw::{Fst, Node};
use memmap2::Mmap;

use super::layout::{
    CHECKED_FROM, CHECKSUM_AT, Counts, FORMAT_VERSION, HEADER_BYTES, LEMMA_KEY_SEPARATOR, MAGIC,
    SECTIONS, Section, WORDED_FORMAT_VERSION, check, check_names, lemma_key, lexicon_fingerprint,
    names, own_words, range, read_label, read_u32, sections,
};
use super::packed::{bits_among, offset, read_bits, read_u64};
use super::relation::RelationEntry;
use super::wording::OwnWords;
use super::{ConceptId, Fact, RelationId};
use crate::language::Lexicon;

/// A concept with fewer facts is not a hub, even if it is the largest of a small graph.
const SMALLEST_HUB_DEGREE: u32 = 1_000;

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file cannot be read.
    #[error("cannot read the knowledge snapshot {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is not a snapshot.
    #[error(
        "{path} is not a knowledge snapshot; make one with `turnstream knowledge import`",
        path = path.display()
    )]
    NotASnapshot {
        /// The file.
        path: PathBuf,
    },
    /// Another version wrote the file.
    #[error(
        "{path} has snapshot format {found}, this program reads up to {expected}; import the facts \
         again with `turnstream knowledge import`",
        path = path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format of this program.
        expected: u32,
    },
    /// The file's lemma index was built with other linguistic data.
    #[error(
        "the lemma index of {path} was built with another lexicon ({found:08x}, this program has \
         {expected:08x}); import the facts again with `turnstream knowledge import`",
        path = path.display()
    )]
    Lexicon {
        /// The file.
        path: PathBuf,
        /// Fingerprint of the lexicon that the file was built with.
        found: u32,
        /// Fingerprint of this program's lexicon.
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
        /// The damage.
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

/// A part of the backing with shared ownership, for the finite-state map.
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
    own: OwnWords,
    version: String,
    counts: Counts,
    /// Bits of a concept, and of a label.
    widths: [u32; 2],
    /// ln(1 + largest degree), at least that of the smallest hub.
    degree_scale: f32,
}

impl Snapshot {
    pub(super) fn map(path: &Path) -> Result<Self, SnapshotError> {
        let read = |source| SnapshotError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(read)?;
        // SAFETY: snapshots are written under a temporary name and renamed into place, and never
        // written again. A process that truncates the mapped file breaks its own contract.
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
        let [format, checksum, lexicon, concepts, facts, largest, lemmas] =
            [8, CHECKSUM_AT, 16, 20, 24, 28, 32].map(|at| read_u32(header, at));
        if !(FORMAT_VERSION..=WORDED_FORMAT_VERSION).contains(&format) {
            let (found, expected) = (format, WORDED_FORMAT_VERSION);
            return Err(SnapshotError::Format { path: path.to_owned(), found, expected });
        }
        if crc32fast::hash(&bytes[CHECKED_FROM..]) != checksum {
            return Err(damaged("its checksum differs from its content"));
        }
        let sections =
            sections(bytes).ok_or_else(|| damaged("a section extends past the end of the file"))?;
        let [languages, relations, sources] = names(&bytes[range(&sections, Section::Names)])
            .ok_or_else(|| damaged("its names are not text"))?;
        let expected = lexicon_fingerprint(languages.iter().map(String::as_str));
        if lexicon != expected {
            let found = lexicon;
            return Err(SnapshotError::Lexicon { path: path.to_owned(), found, expected });
        }
        let counts = Counts {
            concepts: concepts as usize,
            facts: facts as usize,
            labels: range(&sections, Section::Labels).len() / 8,
            languages: languages.len(),
            lemmas: lemmas as usize,
            grams: range(&sections, Section::Grams).len() / 8,
        };
        let own = own_words(bytes, &sections, format)
            .ok_or_else(|| damaged("its last section does not end with the file"))?;
        check(bytes, &sections, &counts).map_err(damaged)?;
        check_names(bytes, &sections, &counts, [&languages, &relations, &sources])
            .map_err(damaged)?;
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
            own,
            version: format!("{checksum:08x}-{facts}"),
            widths: [counts.concept_bits(), counts.label_bits()],
            counts,
            degree_scale: (1.0 + largest.max(SMALLEST_HUB_DEGREE) as f32).ln(),
        })
    }

    fn section(&self, section: Section) -> &[u8] {
        &self.backing.bytes()[self.sections[section as usize].clone()]
    }

    fn offset(&self, section: Section, index: usize) -> usize {
        offset(self.section(section), self.counts.concepts + 1, index) as usize
    }

    fn span(&self, offsets: Section, id: ConceptId) -> Range<usize> {
        let index = id.0 as usize;
        self.offset(offsets, index)..self.offset(offsets, index + 1)
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn bytes(&self) -> usize {
        self.backing.bytes().len()
    }

    /// The sizes of groups of sections, by purpose.
    pub(super) fn parts(&self) -> Vec<(&'static str, u64)> {
        let size = |sections: &[Section]| -> u64 {
            sections.iter().map(|&section| self.section(section).len() as u64).sum()
        };
        vec![
            ("texts", size(&[Section::Texts, Section::TextOffsets, Section::Languages])),
            ("labels", size(&[Section::Labels, Section::Names])),
            ("facts by head", size(&[Section::From, Section::FromOffsets])),
            ("rankings of heads", size(&[Section::Ranks, Section::RankOffsets])),
            ("facts by tail", size(&[Section::To, Section::ToOffsets])),
            ("lemma index", size(&[Section::Lemmas, Section::LemmaConcepts])),
            ("n-gram index", size(&[Section::Grams, Section::GramOffsets, Section::GramConcepts])),
        ]
    }

    pub(super) fn concept_count(&self) -> usize {
        self.counts.concepts
    }

    pub(super) fn fact_count(&self) -> usize {
        self.counts.facts
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

    pub(super) fn own_words(&self) -> &OwnWords {
        &self.own
    }

    pub(super) fn text(&self, id: ConceptId) -> &str {
        let text = &self.section(Section::Texts)[self.span(Section::TextOffsets, id)];
        // Opening verified that every text is UTF-8, so the default is never used.
        std::str::from_utf8(text).unwrap_or_default()
    }

    pub(super) fn language(&self, id: ConceptId) -> &str {
        let width = self.counts.language_bits();
        let bit = u64::from(id.0) * u64::from(width);
        &self.languages[read_bits(self.section(Section::Languages), bit, width) as usize]
    }

    pub(super) fn find(&self, text: &str) -> Option<ConceptId> {
        let concepts = self.counts.concepts;
        let at = partition(0..concepts, |index| self.text(ConceptId(index as u32)) < text);
        let id = ConceptId(at as u32);
        (at < concepts && self.text(id) == text).then_some(id)
    }

    pub(super) fn find_in(&self, language: &str, text: &str) -> Option<ConceptId> {
        let ConceptId(first) = self.find(text)?;
        // Concepts with the same text are adjacent, one for each of few languages.
        let same = (first..self.counts.concepts as u32).map(ConceptId);
        same.take_while(|&id| self.text(id) == text).find(|&id| self.language(id) == language)
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

    /// The far end of a fact in `From` or `To`.
    fn far(&self, facts: &[u8], index: usize) -> ConceptId {
        let [concept, label] = self.widths;
        let bit = index as u64 * u64::from(concept + label);
        ConceptId(read_bits(facts, bit, concept) as u32)
    }

    /// A fact of `From` or `To`, with `near` as both ends, and its far end.
    fn fact(&self, facts: &[u8], near: ConceptId, index: usize) -> (Fact, ConceptId) {
        let [concept, label] = self.widths;
        let bit = index as u64 * u64::from(concept + label);
        let code = read_bits(facts, bit + u64::from(concept), label) as usize;
        let (relation, source, negated, weight) =
            read_label(read_u64(self.section(Section::Labels), code * 8));
        let relation = RelationId(relation);
        let fact = Fact { head: near, relation, tail: near, weight, source, negated };
        (fact, self.far(facts, index))
    }

    fn fact_from(&self, head: ConceptId, index: usize) -> Fact {
        let (fact, tail) = self.fact(self.section(Section::From), head, index);
        Fact { tail, ..fact }
    }

    pub(super) fn ranked_from(&self, head: ConceptId) -> impl ExactSizeIterator<Item = Fact> + '_ {
        let span = self.span(Section::FromOffsets, head);
        let width = bits_among(span.len());
        let (ranks, start) =
            (self.section(Section::Ranks), self.offset(Section::RankOffsets, head.0 as usize));
        (0..span.len()).map(move |rank| {
            let bit = start as u64 + rank as u64 * u64::from(width);
            self.fact_from(head, span.start + read_bits(ranks, bit, width) as usize)
        })
    }

    pub(super) fn ranked_to(&self, tail: ConceptId) -> impl ExactSizeIterator<Item = Fact> + '_ {
        let facts = self.section(Section::To);
        self.span(Section::ToOffsets, tail).map(move |index| {
            let (fact, head) = self.fact(facts, tail, index);
            Fact { head, ..fact }
        })
    }

    pub(super) fn between(
        &self,
        head: ConceptId,
        tail: ConceptId,
    ) -> impl ExactSizeIterator<Item = Fact> + '_ {
        let facts = self.section(Section::From);
        let span = self.span(Section::FromOffsets, head);
        let start = partition(span.clone(), |index| self.far(facts, index) < tail);
        let mut end = start;
        // At most relations × sources facts join the same two concepts, so the scan is short.
        while end < span.end && self.far(facts, end) == tail {
            end += 1;
        }
        (start..end).map(move |index| self.fact_from(head, index))
    }

    /// The position of a fact among all facts; `None` if the snapshot does not have it with the
    /// same negation.
    pub(super) fn position(&self, fact: &Fact) -> Option<usize> {
        let facts = self.section(Section::From);
        let span = self.span(Section::FromOffsets, fact.head);
        let start = partition(span.clone(), |index| self.far(facts, index) < fact.tail);
        let mut same = (start..span.end).take_while(|&at| self.far(facts, at) == fact.tail);
        let key = |fact: &Fact| (fact.relation, fact.source, fact.negated);
        same.find(|&at| key(&self.fact_from(fact.head, at)) == key(fact))
    }

    /// The concepts of the lemma index from an entry to the end of its group. Empty if `start` is
    /// `None`.
    fn lemma_group(&self, start: Option<u64>) -> impl ExactSizeIterator<Item = ConceptId> + '_ {
        let entries = self.section(Section::LemmaConcepts);
        let width = self.widths[0] + 1;
        let entry = move |index: usize| read_bits(entries, index as u64 * u64::from(width), width);
        let start = start.map_or(self.counts.lemmas, |start| start as usize);
        let mut end = start;
        // Opening verified that the last entry ends a group.
        while end < self.counts.lemmas {
            end += 1;
            if entry(end - 1) & 1 == 1 {
                break;
            }
        }
        (start..end).map(move |index| ConceptId((entry(index) >> 1) as u32))
    }

    pub(super) fn concepts_with_lemmas(
        &self,
        language: &str,
        key: &str,
    ) -> impl ExactSizeIterator<Item = ConceptId> + '_ {
        let found = self.lemmas.get(lemma_key(language, key));
        self.lemma_group(found.map(|output| output.value()))
    }

    /// The list of the concepts with a gram. Empty if no key has the gram.
    pub(super) fn gram_list(&self, gram: u64) -> Range<usize> {
        let (grams, count) = (self.section(Section::Grams), self.counts.grams);
        let at = partition(0..count, |index| read_u64(grams, index * 8) < gram);
        if at == count || read_u64(grams, at * 8) != gram {
            return 0..0;
        }
        let begins = |index| offset(self.section(Section::GramOffsets), count + 1, index) as usize;
        begins(at)..begins(at + 1)
    }

    /// An entry of a list of [`Self::gram_list`].
    pub(super) fn gram_concept(&self, entry: usize) -> ConceptId {
        let width = self.widths[0];
        let bit = entry as u64 * u64::from(width);
        ConceptId(read_bits(self.section(Section::GramConcepts), bit, width) as u32)
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

/// A walk through the lemma index. It takes one lemma after the other and has the concepts with
/// exactly these lemmas. Walks that share a beginning share its cost. A walk that no concept begins
/// with ends at once.
#[derive(Clone)]
pub(crate) struct LemmaWalk<'g> {
    snapshot: &'g Snapshot,
    node: Option<Node<'g>>,
    output: u64,
    begun: bool,
    /// The separator of two lemmas.
    joint: &'static str,
}

impl<'g> LemmaWalk<'g> {
    /// Takes one more word. Returns `false` and ends the walk if no concept continues with it.
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

    /// The concepts with exactly these lemmas, by falling degree, then text.
    pub(crate) fn concepts(&self) -> impl ExactSizeIterator<Item = ConceptId> + use<'g> {
        let whole = self.node.as_ref().filter(|node| self.begun && node.is_final());
        let start = whole.map(|node| self.output + node.final_output().value());
        self.snapshot.lemma_group(start)
    }
}

/// The first index of the range for which `before` is false.
fn partition(range: Range<usize>, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
