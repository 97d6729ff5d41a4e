//! Facts by position: an iterator over all facts, and access to one.

use super::{Snapshot, partition};
use crate::layout::Section;
use crate::{ConceptId, Fact};

impl Snapshot {
    /// All facts, by head, tail, relation and source.
    pub(crate) fn all_facts(&self) -> AllFacts<'_> {
        AllFacts { snapshot: self, next: 0, head: 0, end: 0 }
    }

    /// The fact at a position of [`Self::all_facts`]; `None` beyond the last.
    pub(crate) fn fact_at(&self, place: usize) -> Option<Fact> {
        let ends_before = |head| self.offset(Section::FromOffsets, head + 1) <= place;
        let head = partition(0..self.counts.concepts, ends_before);
        (place < self.counts.facts).then(|| self.fact_from(ConceptId(head as u32), place))
    }
}

/// Iterates over all facts of a snapshot.
pub(crate) struct AllFacts<'g> {
    snapshot: &'g Snapshot,
    next: usize,
    /// The number after the head whose facts end at `end`.
    head: usize,
    end: usize,
}

impl Iterator for AllFacts<'_> {
    type Item = Fact;

    fn next(&mut self) -> Option<Fact> {
        if self.next == self.snapshot.counts.facts {
            return None;
        }
        while self.next >= self.end {
            self.head += 1;
            self.end = self.snapshot.offset(Section::FromOffsets, self.head);
        }
        self.next += 1;
        Some(self.snapshot.fact_from(ConceptId(self.head as u32 - 1), self.next - 1))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.snapshot.counts.facts - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for AllFacts<'_> {}
