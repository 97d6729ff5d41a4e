//! Writers of the sections that consist of single numbers.

use std::cmp::Reverse;
use std::io::{self, Write};

use fst::MapBuilder;

use super::{Spool, fst_error};
use crate::ConceptId;
use crate::packed::{OffsetsWriter, PackedWriter, bits_among};

/// Writes the concepts.
pub(crate) struct DictionaryWriter {
    pub(super) texts: Spool,
    pub(super) offsets: OffsetsWriter,
    pub(super) languages: PackedWriter<Spool>,
    pub(super) bits: u32,
    pub(super) concepts: usize,
}

impl DictionaryWriter {
    /// Appends a concept. The caller sorts concepts by text, then language.
    pub(crate) fn push(&mut self, text: &str, language: u8) -> io::Result<()> {
        self.texts.write_all(text.as_bytes())?;
        self.offsets.advance(text.len() as u64);
        self.concepts += 1;
        self.languages.push(u64::from(language), self.bits)
    }
}

/// Writes facts by one of their ends.
pub(crate) struct AdjacencyWriter {
    pub(super) facts: PackedWriter<Spool>,
    pub(super) offsets: OffsetsWriter,
    /// The first concept whose facts have not begun.
    pub(super) next: u32,
    /// The number of facts of the concept before `next` so far.
    pub(super) degree: u64,
}

impl AdjacencyWriter {
    /// Ends all concepts before `concept`.
    pub(super) fn reach(&mut self, concept: u32) {
        while self.next <= concept {
            if self.next > 0 {
                self.offsets.advance(self.degree);
            }
            self.degree = 0;
            self.next += 1;
        }
    }
}

/// Writes the rankings of the heads.
pub(crate) struct RankWriter {
    pub(super) ranks: PackedWriter<Spool>,
    pub(super) offsets: OffsetsWriter,
    /// The ranks of the facts of the head before `next`.
    pub(super) group: Vec<(Reverse<u32>, bool, u32)>,
    pub(super) next: u32,
}

impl RankWriter {
    /// Ends the head before `next`, and the heads without facts up to `concept`.
    pub(super) fn end_group(&mut self, concept: u32) -> io::Result<()> {
        let mut order: Vec<u32> = (0..self.group.len() as u32).collect();
        order.sort_unstable_by_key(|&place| (self.group[place as usize], place));
        let width = bits_among(order.len());
        for place in order {
            self.ranks.push(u64::from(place), width)?;
        }
        let mut bits = self.group.len() as u64 * u64::from(width);
        self.group.clear();
        while self.next <= concept {
            if self.next > 0 {
                self.offsets.advance(bits);
            }
            bits = 0;
            self.next += 1;
        }
        Ok(())
    }
}

/// Writes the lemma index.
pub(crate) struct LemmaWriter {
    pub(super) map: MapBuilder<Spool>,
    pub(super) concepts: PackedWriter<Spool>,
    pub(super) bits: u32,
    pub(super) key: Vec<u8>,
    /// The last concept, which is written once it is known whether its key has more.
    pub(super) pending: Option<ConceptId>,
    pub(super) entries: usize,
}

impl LemmaWriter {
    /// Appends a concept with its key. The caller sorts them by key, falling degree, then id.
    pub(crate) fn push(&mut self, key: &[u8], concept: ConceptId) -> io::Result<()> {
        let another = self.pending.is_none() || self.key != key;
        self.end_entry(another)?;
        if another {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.map.insert(key, self.entries as u64).map_err(fst_error)?;
        }
        self.pending = Some(concept);
        Ok(())
    }

    pub(super) fn end_entry(&mut self, last: bool) -> io::Result<()> {
        if let Some(concept) = self.pending.take() {
            self.concepts.push(u64::from(concept.0) << 1 | u64::from(last), self.bits)?;
            self.entries += 1;
        }
        Ok(())
    }
}

/// Writes the index of character n-grams.
pub(in super::super) struct GramWriter {
    pub(super) grams: Spool,
    pub(super) offsets: OffsetsWriter,
    pub(super) concepts: PackedWriter<Spool>,
    pub(super) bits: u32,
    pub(super) current: Option<u64>,
    pub(super) length: u64,
}

impl GramWriter {
    /// Appends a concept with a gram. The caller sorts them by gram, then id.
    pub(in super::super) fn push(&mut self, gram: u64, concept: ConceptId) -> io::Result<()> {
        if self.current != Some(gram) {
            self.end_list();
            self.current = Some(gram);
            self.grams.write_all(&gram.to_le_bytes())?;
        }
        self.length += 1;
        self.concepts.push(u64::from(concept.0), self.bits)
    }

    pub(super) fn end_list(&mut self) {
        if self.current.is_some() {
            self.offsets.advance(self.length);
        }
        self.length = 0;
    }
}
