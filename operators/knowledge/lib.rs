//! Knowledge: the graph of concepts and facts that retrieval reads, and the linguistic data that
//! finds concepts in text.
//!
//! A [`Graph`] is a compiled snapshot, mapped into memory and shared by all workers. Ids are small
//! and `Copy`, and no look-up allocates. The facts of a concept are stored in two orders: by the
//! other end, so that the facts between two concepts are a binary search even at a hub with 80,000
//! neighbours, and by rank, so that the strongest few cost only what is read. All numbers are
//! packed into as few bits as they need; a fact takes about ten bytes.
//!
//! A graph never changes. The live collection of [`Knowledge`] holds what the `knowledge` topic
//! changes, and a [`View`] adds both up as of one [`KnowledgeVersion`].
//!
//! [`language`] has lemmas and word lists. [`linking`] and [`mod@search`] find the concepts that an
//! utterance names. [`terms`] are the units that BM25 counts. [`mod@sentences`] splits a text into
//! sentences without mark-up. [`small_talk`] recognises utterances that ask for nothing.
//! [`phrasings`] are how customers ask, as staff taught it.

mod builder;
mod change;
mod chinese;
mod compile;
mod external;
mod grams;
mod import;
mod layout;
mod live;
mod packed;
mod relation;
mod snapshot;
mod sorter;
mod unfit;
mod vectors;
mod verbalise;
mod view;
mod whole;
mod wording;

mod kept;
pub mod language;
pub mod linking;
pub mod phrasings;
pub mod search;
pub mod sentences;
pub mod small_talk;
pub mod terms;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::OnceLock;

use serde::Serialize;

pub use builder::{BuildError, Builder};
pub use change::{Change, ChangeError, Changes, KnowledgeRecord, Upsert};
pub use chinese::chinese_clause;
pub use external::{CollectError, ExternalBuilder};
pub use grams::{likeness, likeness_of_phrases};
pub use import::{
    BadLine, Collect, Format, ImportError, ImportOptions, ImportReport, ImportedFact,
    MAX_CONCEPT_BYTES, import, normalise,
};
pub use layout::{FORMAT_VERSION, lexicon_fingerprint};
pub use live::{Knowledge, KnowledgeVersion, LiveCounts};
pub use relation::{Relation, RelationKind};
pub use snapshot::SnapshotError;
pub use unfit::Unfit;
pub use vectors::{
    FactVectors, MAX_VECTOR_DIMENSIONS, QueryVector, Row, VectorsError, VectorsHeader,
    VectorsWriter, quantise,
};
pub use verbalise::{verbalise, worded};
pub use view::View;
pub use whole::write_whole;
pub use wording::Wording;

pub(crate) use snapshot::LemmaWalk;

use snapshot::Snapshot;
use wording::OwnWords;

/// A concept of the graph, as a number that is valid within one snapshot. Ids follow the order of
/// the concepts' texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConceptId(pub u32);

/// A relation of the graph, as a number that is valid within one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelationId(pub u16);

/// One fact of the graph: k = (head, relation, tail).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fact {
    /// The concept that the fact is about.
    pub head: ConceptId,
    /// The relation between the two.
    pub relation: RelationId,
    /// The other end.
    pub tail: ConceptId,
    /// How strongly the source asserts the fact, above 0: the absolute value of the imported weight
    /// (ConceptNet: 1 is one ordinary assertion).
    pub weight: f32,
    /// The source, by number; its name is [`Graph::source`].
    pub source: u8,
    /// Whether the fact is negated: the imported weight was negative, or the relation is a `Not…`.
    /// A negated fact must never be spoken as positive.
    pub negated: bool,
}

/// Sizes of a graph, as `knowledge stats` prints them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Facts, after folding repeated lines.
    pub facts: u64,
    /// Distinct concepts.
    pub concepts: u64,
    /// Distinct relations.
    pub relations: u64,
    /// Languages of the concepts, sorted.
    pub languages: Vec<String>,
    /// Size of the compiled snapshot in bytes.
    pub snapshot_bytes: u64,
}

/// A compiled graph of facts. `Send + Sync`; open it once and share it in an `Arc`.
///
/// Passing ids of another graph is a programming error: methods panic on a concept or relation id
/// that is out of this graph's range.
pub struct Graph {
    snapshot: Snapshot,
    /// Cached results of [`Self::content_words`], by concept, in chunks of [`CHUNK`]. A chunk takes
    /// memory only once one of its concepts is asked for.
    content_words: Box<[OnceLock<Box<[ContentWords; CHUNK]>>]>,
}

type ContentWords = OnceLock<Box<[u64]>>;

/// Number of concepts whose content words are allocated together.
const CHUNK: usize = 64;

impl Graph {
    fn over(snapshot: Snapshot) -> Self {
        let chunks = snapshot.concept_count().div_ceil(CHUNK);
        let content_words = (0..chunks).map(|_| OnceLock::new()).collect();
        Self { snapshot, content_words }
    }

    /// Maps a snapshot file into memory and verifies it.
    ///
    /// # Errors
    /// The file cannot be read, is not a snapshot, is of another version, was built with another
    /// lexicon, or is damaged (its checksum differs).
    pub fn open(path: &Path) -> Result<Self, SnapshotError> {
        Snapshot::map(path).map(Self::over)
    }

    /// Builds a graph in memory, through the same snapshot bytes as a file. Leaves out facts that a
    /// snapshot cannot hold ([`BuildError`]).
    pub fn from_facts(facts: impl IntoIterator<Item = ImportedFact>) -> Self {
        let mut builder = Builder::new();
        for fact in facts {
            // Leaves out a fact that a snapshot cannot hold, as documented.
            let _ = builder.add(&fact);
        }
        builder.into_graph()
    }

    /// A view of this graph without changes.
    pub fn view(&self) -> View<'_> {
        View::from(self)
    }

    /// The checksum of the content, as text: `crc32-facts`. Every response contains it.
    pub fn version(&self) -> &str {
        self.snapshot.version()
    }

    /// Counts and sizes.
    pub fn stats(&self) -> Stats {
        Stats {
            facts: self.snapshot.fact_count() as u64,
            concepts: self.snapshot.concept_count() as u64,
            relations: self.snapshot.relations().len() as u64,
            languages: self.snapshot.languages().to_vec(),
            snapshot_bytes: self.snapshot.bytes() as u64,
        }
    }

    /// The size of each part of the snapshot in bytes.
    pub fn parts(&self) -> Vec<(&'static str, u64)> {
        self.snapshot.parts()
    }

    /// The words that facts bring of their own.
    pub(crate) fn own_words(&self) -> &OwnWords {
        self.snapshot.own_words()
    }

    /// All concepts, in order of their texts.
    pub fn concepts(&self) -> impl ExactSizeIterator<Item = ConceptId> + use<> {
        (0..self.snapshot.concept_count() as u32).map(ConceptId)
    }

    /// All facts, by head, tail, relation and source.
    pub fn facts(&self) -> impl ExactSizeIterator<Item = Fact> + '_ {
        self.snapshot.all_facts()
    }

    /// The fact at a position of [`Self::facts`]; `None` beyond the last.
    pub fn fact_at(&self, place: usize) -> Option<Fact> {
        self.snapshot.fact_at(place)
    }

    /// The position of a fact in [`Self::facts`], whatever its weight. `None` if the snapshot does
    /// not have the fact with the same negation, or one of its concepts.
    pub fn position(&self, fact: &Fact) -> Option<usize> {
        let known = |id: ConceptId| (id.0 as usize) < self.snapshot.concept_count();
        let known = known(fact.head) && known(fact.tail);
        known.then(|| self.snapshot.position(fact)).flatten()
    }

    /// The text of a concept: lower case, single spaces.
    pub fn concept(&self, id: ConceptId) -> &str {
        self.snapshot.text(id)
    }

    /// The content words of a concept, as `read` returns them for its text. Only the first worker
    /// that asks calls `read`, once per concept and graph, so every `read` must return the same
    /// words.
    pub(crate) fn content_words(
        &self,
        id: ConceptId,
        read: impl FnOnce(&str) -> Box<[u64]>,
    ) -> &[u64] {
        let (chunk, place) = (id.0 as usize / CHUNK, id.0 as usize % CHUNK);
        let chunk = self.content_words[chunk]
            .get_or_init(|| Box::new(std::array::from_fn(|_| OnceLock::new())));
        chunk[place].get_or_init(|| read(self.concept(id)))
    }

    /// The language of a concept, such as `en`.
    pub fn language(&self, id: ConceptId) -> &str {
        self.snapshot.language(id)
    }

    /// The concept with exactly this text (see [`normalise`]). If several languages have it, the
    /// first language by name.
    pub fn find(&self, normalised: &str) -> Option<ConceptId> {
        self.snapshot.find(normalised)
    }

    /// The concepts with exactly this text, one for each language that has it, by language.
    pub fn find_all(&self, normalised: &str) -> impl Iterator<Item = ConceptId> + use<'_> {
        let first = self.find(normalised);
        let text = first.map(|id| self.concept(id));
        let ids = first.map_or(0..0, |id| id.0..self.snapshot.concept_count() as u32);
        ids.map(ConceptId).take_while(move |id| Some(self.concept(*id)) == text)
    }

    /// The concept of a language with exactly this text (see [`normalise`]).
    pub fn find_in(&self, language: &str, normalised: &str) -> Option<ConceptId> {
        self.snapshot.find_in(language, normalised)
    }

    /// The concepts of a language whose lemmas, joined as the language does, are `key`
    /// ([`crate::language::Lexicon::key`]), by falling degree, then text. Empty for a language
    /// without a lexicon.
    pub fn concepts_with_lemmas(
        &self,
        language: &str,
        key: &str,
    ) -> impl ExactSizeIterator<Item = ConceptId> + '_ {
        self.snapshot.concepts_with_lemmas(language, key)
    }

    /// Begins a walk through the lemma index of a language, word by word. The walk ends at once for
    /// a language without a lexicon.
    pub(crate) fn lemma_walk(&self, language: &str) -> LemmaWalk<'_> {
        self.snapshot.lemma_walk(language)
    }

    pub(crate) fn gram_list(&self, gram: u64) -> std::ops::Range<usize> {
        self.snapshot.gram_list(gram)
    }

    pub(crate) fn gram_concept(&self, entry: usize) -> ConceptId {
        self.snapshot.gram_concept(entry)
    }

    /// The properties of a relation and the words that speak it.
    pub fn relation(&self, id: RelationId) -> Relation<'_> {
        self.snapshot.relations()[usize::from(id.0)].view()
    }

    /// The relation with this name, such as `UsedFor`.
    pub fn find_relation(&self, name: &str) -> Option<RelationId> {
        let found = self.snapshot.relations().iter().position(|relation| relation.name() == name);
        found.map(|index| RelationId(index as u16))
    }

    /// All relations, in order of their ids.
    pub fn relations(&self) -> impl ExactSizeIterator<Item = Relation<'_>> {
        self.snapshot.relations().iter().map(|relation| relation.view())
    }

    /// The number of facts with the concept as head or tail.
    pub fn degree(&self, id: ConceptId) -> u32 {
        self.snapshot.degree(id)
    }

    /// The informativeness of a concept, 0..=1: 1 − ln(degree) / ln(1 + D), where D is the largest
    /// degree of the graph and at least 1,000. The largest hub is near 0, and a concept with a
    /// single fact is 1: an inverse document frequency whose documents are facts. A small graph has
    /// no hubs.
    pub fn informativeness(&self, id: ConceptId) -> f32 {
        self.snapshot.informativeness(id)
    }

    /// [`Self::informativeness`] of a concept with this degree.
    pub(crate) fn informativeness_at(&self, degree: u32) -> f32 {
        self.snapshot.informativeness_at(degree)
    }

    /// Facts about the concept, strongest first: by falling weight; then those whose other end has
    /// at least three facts, by falling informativeness; then the rest; then by ids.
    pub fn facts_from(&self, head: ConceptId) -> impl ExactSizeIterator<Item = Fact> + '_ {
        self.snapshot.ranked_from(head)
    }

    /// Facts whose tail is the concept, in the order of [`Graph::facts_from`].
    pub fn facts_to(&self, tail: ConceptId) -> impl ExactSizeIterator<Item = Fact> + '_ {
        self.snapshot.ranked_to(tail)
    }

    /// The first `limit` of [`Graph::facts_from`]. The cost depends on `limit` and not on the size
    /// of the hub.
    pub fn strongest_from(
        &self,
        head: ConceptId,
        limit: usize,
    ) -> impl ExactSizeIterator<Item = Fact> + '_ {
        self.snapshot.ranked_from(head).take(limit)
    }

    /// The first `limit` of [`Graph::facts_to`]. The cost depends on `limit` and not on the size of
    /// the hub.
    pub fn strongest_to(
        &self,
        tail: ConceptId,
        limit: usize,
    ) -> impl ExactSizeIterator<Item = Fact> + '_ {
        self.snapshot.ranked_to(tail).take(limit)
    }

    /// The facts with this head and this tail, by relation, then source: a binary search among
    /// the head's facts.
    pub fn facts_between(
        &self,
        head: ConceptId,
        tail: ConceptId,
    ) -> impl ExactSizeIterator<Item = Fact> + '_ {
        self.snapshot.between(head, tail)
    }

    /// The names of all sources, in order of their numbers.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = &str> {
        self.snapshot.sources().iter().map(String::as_str)
    }

    /// The name of a source.
    pub fn source(&self, source: u8) -> &str {
        &self.snapshot.sources()[usize::from(source)]
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph").field("version", &self.version()).finish_non_exhaustive()
    }
}
