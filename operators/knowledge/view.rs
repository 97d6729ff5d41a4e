//! What the stages look facts up in: one consistent state of the knowledge.
//!
//! A [`View`] is the compiled graph at one moment. It has the look-ups of [`Graph`], and every
//! stage that serves a turn reads the same moment of it.

use super::snapshot::LemmaWalk;
use super::{ConceptId, Fact, Graph, Relation, RelationId};

/// One state of the knowledge. Cheap to copy; ids are those of its [`Graph`].
#[derive(Clone, Copy, Debug)]
pub struct View<'k> {
    graph: &'k Graph,
}

impl<'k> From<&'k Graph> for View<'k> {
    fn from(graph: &'k Graph) -> Self {
        Self { graph }
    }
}

impl<'k> View<'k> {
    /// The text of a concept: lower case, single spaces.
    pub fn concept(self, id: ConceptId) -> &'k str {
        self.graph.concept(id)
    }

    /// The content words of a concept, as `read` gives them for its text; it is asked once per
    /// concept, and has to give all the same.
    pub(crate) fn content_words(
        self,
        id: ConceptId,
        read: impl FnOnce(&str) -> Box<[u64]>,
    ) -> &'k [u64] {
        self.graph.content_words(id, read)
    }

    /// The language of a concept, such as `en`.
    pub fn language(self, id: ConceptId) -> &'k str {
        self.graph.language(id)
    }

    /// The concept with exactly this text ([`super::normalise`]).
    pub fn find(self, normalised: &str) -> Option<ConceptId> {
        self.graph.find(normalised)
    }

    /// Begins a walk through the lemma index, word by word.
    pub(crate) fn lemma_walk(self, language: &str) -> LemmaWalk<'k> {
        self.graph.lemma_walk(language)
    }

    /// What a relation means and how it is spoken.
    pub fn relation(self, id: RelationId) -> Relation<'k> {
        self.graph.relation(id)
    }

    /// How many facts have the concept as head or tail.
    pub fn degree(self, id: ConceptId) -> u32 {
        self.graph.degree(id)
    }

    /// How much a concept says, 0..=1 ([`Graph::informativeness`]).
    pub fn informativeness(self, id: ConceptId) -> f32 {
        self.graph.informativeness(id)
    }

    /// The first `limit` facts about the concept, strongest first ([`Graph::facts_from`]).
    pub fn strongest_from(self, head: ConceptId, limit: usize) -> impl Iterator<Item = Fact> + 'k {
        self.graph.strongest_from(head, limit)
    }

    /// The first `limit` facts whose tail is the concept, strongest first.
    pub fn strongest_to(self, tail: ConceptId, limit: usize) -> impl Iterator<Item = Fact> + 'k {
        self.graph.strongest_to(tail, limit)
    }

    /// The facts with this head and this tail, by relation, then source.
    pub fn facts_between(
        self,
        head: ConceptId,
        tail: ConceptId,
    ) -> impl Iterator<Item = Fact> + 'k {
        self.graph.facts_between(head, tail)
    }

    /// The name of a source.
    pub fn source(self, source: u8) -> &'k str {
        self.graph.source(source)
    }
}
