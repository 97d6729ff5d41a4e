//! The layout of a snapshot file.
//!
//! The file has a header of [`HEADER_BYTES`], a u64 length for each section, and the sections. All
//! numbers are little-endian. The checksum covers everything after itself. The counts in the header
//! determine the widths: a concept takes as few bits as distinguish all concepts, and so do labels
//! and languages. Where facts bring words of their own, the sections are followed by
//! [`OwnWords::lines`], and the file has the format [`WORDED_FORMAT_VERSION`].

use std::ops::Range;

use super::packed::{bits_among, check_offsets, offset, packed_bytes, read_bits};
use super::wording::OwnWords;
use crate::language::Lexicon;

/// Version of this layout without own words. Part of the name under which a built pack is cached.
pub const FORMAT_VERSION: u32 = 3;
/// Version of this layout with own words, which programs before it refuse.
pub(super) const WORDED_FORMAT_VERSION: u32 = 4;

pub(super) const MAGIC: [u8; 8] = *b"TURNKNOW";
/// magic 8, format version 4, checksum 4, lexicon 4, concepts 4, facts 4, largest degree 4, entries
/// of `LemmaConcepts` 4, unused 4.
pub(super) const HEADER_BYTES: usize = 40;
/// Position of the checksum.
pub(super) const CHECKSUM_AT: usize = 12;
/// Start of the bytes that the checksum covers.
pub(super) const CHECKED_FROM: usize = 16;
/// Most concepts. A concept with a flag then fits in 32 bits.
pub(super) const MOST_CONCEPTS: usize = (1 << 31) - 1;

/// The sections, in the order of the file. "Offsets" are a rising sequence with one number more
/// than there are concepts ([`super::packed`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Section {
    /// Names of languages, relations and sources, three lines of tab-separated text.
    Names,
    /// Offsets: where the text of a concept begins, in bytes.
    TextOffsets,
    /// The texts, sorted, end to end.
    Texts,
    /// Packed, per concept: its language.
    Languages,
    /// u64 each, rising: the fields of a fact beside its two ends ([`label`]).
    Labels,
    /// Offsets: where the facts of a head begin.
    FromOffsets,
    /// Packed (tail, label) per fact, by head, tail, relation, source.
    From,
    /// Offsets: where the ranking of a head begins, in bits.
    RankOffsets,
    /// Packed per head, in as many bits as distinguish its facts: its facts, strongest first.
    Ranks,
    /// Offsets: where the facts of a tail begin.
    ToOffsets,
    /// Packed (head, label) per fact, by tail, strongest first.
    To,
    /// Finite-state map from [`lemma_key`]s to the start of their concepts in `LemmaConcepts`.
    Lemmas,
    /// Packed: twice the number of a concept, plus 1 for the last concept of a key.
    LemmaConcepts,
    /// u64 each, rising: the character n-grams of the keys ([`super::grams`]).
    Grams,
    /// Offsets: where the concepts of a gram begin.
    GramOffsets,
    /// Packed: concepts, by gram, then id.
    GramConcepts,
}

pub(super) const SECTIONS: usize = Section::GramConcepts as usize + 1;

/// The counts of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) concepts: usize,
    pub(super) facts: usize,
    pub(super) labels: usize,
    pub(super) languages: usize,
    /// Entries of the lemma index.
    pub(super) lemmas: usize,
    /// Different character n-grams.
    pub(super) grams: usize,
}

impl Counts {
    /// Bits of a concept.
    pub(super) fn concept_bits(&self) -> u32 {
        bits_among(self.concepts)
    }

    /// Bits of a label.
    pub(super) fn label_bits(&self) -> u32 {
        bits_among(self.labels)
    }

    /// Bits of a concept and a label.
    pub(super) fn fact_bits(&self) -> u32 {
        self.concept_bits() + self.label_bits()
    }

    /// Bits of a language.
    pub(super) fn language_bits(&self) -> u32 {
        bits_among(self.languages)
    }
}

/// Checksum over the lexicons of the languages, in the given order. A language without a lexicon
/// counts as 0. A lemma index is valid only with the lexicons that it was built with.
pub fn lexicon_fingerprint<'l>(languages: impl IntoIterator<Item = &'l str>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for language in languages {
        let lexicon = Lexicon::for_language(language).map_or(0, Lexicon::fingerprint);
        hasher.update(language.as_bytes());
        hasher.update(b"\t");
        hasher.update(&lexicon.to_le_bytes());
    }
    hasher.finalize()
}

/// Separates the language from the lemmas of an index key. Lemmas never contain it.
pub(super) const LEMMA_KEY_SEPARATOR: &str = "\t";

/// The lemma index key of a language and a lexicon's key.
pub(super) fn lemma_key(language: &str, key: &str) -> String {
    [language, LEMMA_KEY_SEPARATOR, key].concat()
}

/// The fields of a fact beside its two ends as one number: relation, source, negation and weight.
/// There are few distinct labels, so a fact stores the position of its label among the sorted ones.
pub(super) fn label(relation: u16, source: u8, negated: bool, weight: f32) -> u64 {
    u64::from(relation) << 48
        | u64::from(source) << 40
        | u64::from(negated) << 32
        | u64::from(weight.to_bits())
}

/// The relation, source, negation and weight of a label.
pub(super) fn read_label(label: u64) -> (u16, u8, bool, f32) {
    let weight = f32::from_bits(label as u32);
    ((label >> 48) as u16, (label >> 40) as u8, label >> 32 & 1 == 1, weight)
}

pub(super) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn range(sections: &[Range<usize>; SECTIONS], section: Section) -> Range<usize> {
    sections[section as usize].clone()
}

/// The version of a file with these own words.
pub(super) fn format_of(own: &OwnWords) -> u32 {
    if own.is_empty() { FORMAT_VERSION } else { WORDED_FORMAT_VERSION }
}

/// Reads the own words, which follow the last section; `None` if they are damaged, or if a file of
/// this format does not end as it should.
pub(super) fn own_words(
    bytes: &[u8],
    sections: &[Range<usize>; SECTIONS],
    format: u32,
) -> Option<OwnWords> {
    let lines = &bytes[range(sections, Section::GramConcepts).end..];
    OwnWords::read(lines).filter(|own| format_of(own) == format)
}

/// Reads the section table: a u64 length each, directly after the header. The sections follow it.
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
    Some(sections)
}

/// Verifies what reading relies on: lengths match the counts, offsets rise and end at the end, ids
/// are in range, texts are UTF-8.
pub(super) fn check(
    bytes: &[u8],
    sections: &[Range<usize>; SECTIONS],
    counts: &Counts,
) -> Result<(), &'static str> {
    let part = |section: Section| &bytes[range(sections, section)];
    let numbers = counts.concepts + 1;
    let packed = |section: Section, count: usize, width: u32| {
        packed_bytes(count, width) == Some(part(section).len())
    };
    if counts.concepts > MOST_CONCEPTS
        || !packed(Section::Languages, counts.concepts, counts.language_bits())
        || !packed(Section::From, counts.facts, counts.fact_bits())
        || !packed(Section::To, counts.facts, counts.fact_bits())
        || !packed(Section::LemmaConcepts, counts.lemmas, counts.concept_bits() + 1)
    {
        return Err("a section has the wrong length");
    }
    let (texts, facts) = (part(Section::Texts), counts.facts as u64);
    let ends = |section: Section| check_offsets(part(section), numbers);
    if ends(Section::TextOffsets) != Some(texts.len() as u64)
        || ends(Section::FromOffsets) != Some(facts)
        || ends(Section::ToOffsets) != Some(facts)
    {
        return Err("its offsets do not match its sections");
    }
    let text = std::str::from_utf8(texts).map_err(|_| "a concept is not UTF-8")?;
    let begins = |index| offset(part(Section::TextOffsets), numbers, index) as usize;
    if !(0..numbers).all(|index| text.is_char_boundary(begins(index))) {
        return Err("a concept is cut inside a character");
    }
    if !check_ends(part(Section::From), counts)
        || !check_ends(part(Section::To), counts)
        || !check_ranks(bytes, sections, counts)
        || !check_lemma_concepts(part(Section::LemmaConcepts), counts)
        || !check_grams(bytes, sections, counts)
    {
        return Err("an index is out of range");
    }
    Ok(())
}

/// Whether every (concept, label) exists.
fn check_ends(bytes: &[u8], counts: &Counts) -> bool {
    let (concept_bits, label_bits) = (counts.concept_bits(), counts.label_bits());
    let mut bit = 0;
    (0..counts.facts).all(|_| {
        let concept = read_bits(bytes, bit, concept_bits);
        let label = read_bits(bytes, bit + u64::from(concept_bits), label_bits);
        bit += u64::from(concept_bits + label_bits);
        concept < counts.concepts as u64 && label < counts.labels as u64
    })
}

/// Whether every ranking has an entry for each fact of its head, and names only facts of its head.
fn check_ranks(bytes: &[u8], sections: &[Range<usize>; SECTIONS], counts: &Counts) -> bool {
    let part = |section: Section| &bytes[range(sections, section)];
    let (ranks, offsets, numbers) =
        (part(Section::Ranks), part(Section::RankOffsets), counts.concepts + 1);
    let fits = |bits: u64| packed_bytes(bits as usize, 1) == Some(ranks.len());
    check_offsets(offsets, numbers).is_some_and(fits)
        && (0..counts.concepts).all(|concept| {
            let degree = offset(part(Section::FromOffsets), numbers, concept + 1)
                - offset(part(Section::FromOffsets), numbers, concept);
            let width = bits_among(degree as usize);
            let (start, end) =
                (offset(offsets, numbers, concept), offset(offsets, numbers, concept + 1));
            let place = |rank: u64| read_bits(ranks, start + rank * u64::from(width), width);
            end - start == degree * u64::from(width) && (0..degree).all(|rank| place(rank) < degree)
        })
}

/// Whether every entry names a concept, and the last one ends its group.
fn check_lemma_concepts(bytes: &[u8], counts: &Counts) -> bool {
    let width = counts.concept_bits() + 1;
    let entry = |index: usize| read_bits(bytes, index as u64 * u64::from(width), width);
    (0..counts.lemmas).all(|index| entry(index) >> 1 < counts.concepts as u64)
        && (counts.lemmas == 0 || entry(counts.lemmas - 1) & 1 == 1)
}

/// Whether the grams rise, their lists are contiguous, and every entry names a concept.
fn check_grams(bytes: &[u8], sections: &[Range<usize>; SECTIONS], counts: &Counts) -> bool {
    let part = |section: Section| &bytes[range(sections, section)];
    let (grams, rest) = part(Section::Grams).as_chunks::<8>();
    let numbers = grams.iter().map(|gram| u64::from_le_bytes(*gram));
    let (concepts, width) = (part(Section::GramConcepts), counts.concept_bits());
    let entry = |index: u64| read_bits(concepts, index * u64::from(width), width);
    rest.is_empty()
        && numbers.is_sorted_by(|one, other| one < other)
        && check_offsets(part(Section::GramOffsets), counts.grams + 1).is_some_and(|entries| {
            packed_bytes(entries as usize, width) == Some(concepts.len())
                && (0..entries).all(|index| entry(index) < counts.concepts as u64)
        })
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

/// Checks that every label names an existing relation and source, and every concept a language.
pub(super) fn check_names(
    bytes: &[u8],
    sections: &[Range<usize>; SECTIONS],
    counts: &Counts,
    [languages, relations, sources]: [&Vec<String>; 3],
) -> Result<(), &'static str> {
    let (codes, width) = (&bytes[range(sections, Section::Languages)], counts.language_bits());
    let known = |concept: usize| {
        let code = read_bits(codes, concept as u64 * u64::from(width), width);
        (code as usize) < languages.len()
    };
    let labels = bytes[range(sections, Section::Labels)].as_chunks::<8>().0;
    let sound = |bytes: &[u8; 8]| {
        let (relation, source, ..) = read_label(u64::from_le_bytes(*bytes));
        usize::from(relation) < relations.len() && usize::from(source) < sources.len()
    };
    if !(0..counts.concepts).all(known) || !labels.iter().all(sound) {
        return Err("a fact or concept refers to an entry that does not exist");
    }
    Ok(())
}
