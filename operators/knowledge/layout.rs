//! How a snapshot lies in its file.
//!
//! A header of [`HEADER_BYTES`], a u64 length for each section, and the sections. All numbers are
//! little-endian. The checksum covers everything after itself.

use std::ops::Range;

use super::{ConceptId, Fact, RelationId};
use crate::language::Lexicon;

/// Version of this layout. Part of the name under which a built pack is cached.
pub const FORMAT_VERSION: u32 = 2;

pub(super) const MAGIC: [u8; 8] = *b"TURNKNOW";
/// magic 8, format version 4, checksum 4, lexicon 4, concepts 4, facts 4, largest degree 4.
pub(super) const HEADER_BYTES: usize = 32;
/// Where the part of the file begins that the checksum covers.
pub(super) const CHECKED_FROM: usize = 16;
pub(super) const FACT_BYTES: usize = 16;
const NEGATED: u8 = 1;

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
    /// Finite-state map from [`lemma_key`]s to a packed range of `LemmaConcepts`.
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

/// Checksum over the lexicons of the languages, given in order; a language without one counts as
/// such. A lemma index is only good with the lexicons that it was built with.
pub fn lexicon_fingerprint<'l>(languages: impl IntoIterator<Item = &'l str>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for language in languages {
        let lexicon = Lexicon::for_language(language).map_or(0, Lexicon::fingerprint);
        hasher.update(language.as_bytes());
        hasher.update(&[b'\t']);
        hasher.update(&lexicon.to_le_bytes());
    }
    hasher.finalize()
}

/// Between the language and the lemmas of an index key; lemmas have none.
pub(super) const LEMMA_KEY_SEPARATOR: &str = "\t";

/// Under which key the lemma index has a key of a language's lexicon.
pub(super) fn lemma_key(language: &str, key: &str) -> String {
    [language, LEMMA_KEY_SEPARATOR, key].concat()
}

/// The value of a lemma key: where its concepts begin, and how many there are.
pub(super) fn pack(start: usize, count: usize) -> u64 {
    ((start as u64) << 24) | (count as u64).min((1 << 24) - 1)
}

pub(super) fn unpack(value: u64) -> Range<usize> {
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

pub(super) fn decode(bytes: &[u8]) -> Fact {
    Fact {
        head: ConceptId(read_u32(bytes, 0)),
        tail: ConceptId(read_u32(bytes, 4)),
        weight: f32::from_bits(read_u32(bytes, 8)),
        relation: RelationId(u16::from_le_bytes([bytes[12], bytes[13]])),
        source: bytes[14],
        negated: bytes[15] & NEGATED != 0,
    }
}

pub(super) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn range(sections: &[Range<usize>; SECTIONS], section: Section) -> Range<usize> {
    sections[section as usize].clone()
}

/// The section table: a u64 length each, directly after the header; the sections follow it.
pub(super) fn sections(bytes: &[u8]) -> Option<[Range<usize>; SECTIONS]> {
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
pub(super) fn check(
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
pub(super) fn names(bytes: &[u8]) -> Option<[Vec<String>; 3]> {
    let mut lines = std::str::from_utf8(bytes).ok()?.split('\n');
    let mut line = || {
        let line = lines.next()?;
        let names = line.split('\t').filter(|name| !name.is_empty());
        Some(names.map(str::to_owned).collect())
    };
    Some([line()?, line()?, line()?])
}

/// Every fact names a concept, a relation and a source that exist, every concept a language.
pub(super) fn check_names(
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
