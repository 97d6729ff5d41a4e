//! Views: one consistent version of the graph, in which the stages look facts up.
//!
//! A [`View`] is the compiled graph with its differences in one version. It has the look-ups of
//! [`Graph`], and every stage that serves a turn reads the same version. Concepts without a
//! difference are read from the graph alone.

use std::cmp::Ordering;
use std::cmp::Reverse;

use super::live::{Ranked, Reading, Reworded, Side};
use super::snapshot::LemmaWalk;
use super::wording::is_common;
use super::{ConceptId, Fact, Graph, Relation, RelationId};
use crate::language::Lexicon;

/// One version of the graph. Cheap to copy. Ids are those of the worker that reads it, and are
/// valid as long as the version.
#[derive(Clone, Copy)]
pub struct View<'k> {
    graph: &'k Graph,
    live: Option<&'k Reading<'k>>,
    reworded: Option<&'k Reworded>,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View")
            .field("graph", self.graph)
            .field("live", &self.live.is_some())
            .finish()
    }
}

impl<'k> From<&'k Graph> for View<'k> {
    fn from(graph: &'k Graph) -> Self {
        Self { graph, live: None, reworded: None }
    }
}

/// Facts of the graph alone, or with its differences.
enum Facts<P, C> {
    Plain(P),
    Changed(C),
}

impl<P: Iterator<Item = Fact>, C: Iterator<Item = Fact>> Iterator for Facts<P, C> {
    type Item = Fact;

    fn next(&mut self) -> Option<Fact> {
        match self {
            Self::Plain(facts) => facts.next(),
            Self::Changed(facts) => facts.next(),
        }
    }
}

impl<'k> View<'k> {
    pub(super) fn of(
        graph: &'k Graph,
        live: Option<&'k Reading<'k>>,
        reworded: &'k Reworded,
    ) -> Self {
        Self { graph, live, reworded: Some(reworded) }
    }

    /// The snapshot of the view.
    pub fn graph(self) -> &'k Graph {
        self.graph
    }

    /// The own words of facts that the topic changed.
    pub(super) fn reworded(self) -> Option<&'k Reworded> {
        self.reworded
    }

    /// The concepts beyond the snapshot whose key has a gram.
    pub(super) fn live_with_gram(self, gram: u64) -> impl Iterator<Item = ConceptId> + 'k {
        self.live.into_iter().flat_map(move |live| live.dictionary.with_gram(gram))
    }

    /// The live collection, if it has a difference of this concept.
    fn touching(self, id: ConceptId) -> Option<&'k Reading<'k>> {
        self.live.filter(|live| live.dictionary.is_touched(id))
    }

    fn is_of_snapshot(self, id: ConceptId) -> bool {
        (id.0 as usize) < self.graph.concepts().len()
    }

    /// The text of a concept: lower case, single spaces.
    pub fn concept(self, id: ConceptId) -> &'k str {
        match self.live.and_then(|live| live.dictionary.live(id)) {
            Some(concept) => &concept.text,
            None => self.graph.concept(id),
        }
    }

    /// The content words of a concept, as `read` returns them for its text. `read` is called once
    /// per concept, so every `read` must return the same words.
    pub fn content_words(self, id: ConceptId, read: impl FnOnce(&str) -> Box<[u64]>) -> &'k [u64] {
        match self.live.and_then(|live| live.dictionary.live(id)) {
            Some(concept) => concept.words.get_or_init(|| read(&concept.text)),
            None => self.graph.content_words(id, read),
        }
    }

    /// The language of a concept, such as `en`.
    pub fn language(self, id: ConceptId) -> &'k str {
        match self.live.and_then(|live| live.dictionary.live(id)) {
            Some(concept) => &concept.language,
            None => self.graph.language(id),
        }
    }

    /// Orders concepts by text, then language.
    pub fn by_text(self, one: ConceptId, other: ConceptId) -> Ordering {
        if self.is_of_snapshot(one) && self.is_of_snapshot(other) {
            return one.cmp(&other);
        }
        let key = |id| (self.concept(id), self.language(id));
        key(one).cmp(&key(other))
    }

    /// Orders facts by head, relation, tail and source, by their names.
    pub fn by_key(self, one: &Fact, other: &Fact) -> Ordering {
        self.by_text(one.head, other.head)
            .then_with(|| self.by_relation(one.relation, other.relation))
            .then_with(|| self.by_text(one.tail, other.tail))
            .then_with(|| self.by_source(one.source, other.source))
    }

    /// Sorts facts by [`Self::by_key`].
    pub fn sort(self, facts: &mut [Fact]) {
        let of_snapshot = |fact: &Fact| {
            self.is_of_snapshot(fact.head)
                && self.is_of_snapshot(fact.tail)
                && usize::from(fact.relation.0) < self.graph.relations().len()
                && usize::from(fact.source) < self.graph.sources().len()
        };
        // The snapshot's ids follow the order of their names.
        if self.live.is_none() || facts.iter().all(of_snapshot) {
            facts.sort_unstable_by_key(|fact| (fact.head, fact.relation, fact.tail, fact.source));
        } else {
            facts.sort_unstable_by(|one, other| self.by_key(one, other));
        }
    }

    fn by_relation(self, one: RelationId, other: RelationId) -> Ordering {
        let of_snapshot = |id: RelationId| usize::from(id.0) < self.graph.relations().len();
        if one == other || (of_snapshot(one) && of_snapshot(other)) {
            return one.cmp(&other);
        }
        self.relation(one).name.cmp(self.relation(other).name)
    }

    fn by_source(self, one: u8, other: u8) -> Ordering {
        let of_snapshot = |id: u8| usize::from(id) < self.graph.sources().len();
        if one == other || (of_snapshot(one) && of_snapshot(other)) {
            return one.cmp(&other);
        }
        self.source(one).cmp(self.source(other))
    }

    /// The concept with exactly this text ([`super::normalise`]) that has facts. If several
    /// languages have it, the first language by name.
    pub fn find(self, normalised: &str) -> Option<ConceptId> {
        let Some(live) = self.live else { return self.graph.find(normalised) };
        let known = self.graph.find_all(normalised);
        let standing = known.chain(live.dictionary.find_all(normalised));
        standing.filter(|id| self.degree(*id) > 0).min_by_key(|id| self.language(*id))
    }

    /// Begins a walk through the lemma index of a language, word by word. The walk ends at once for
    /// a language without a lexicon.
    pub(crate) fn lemma_walk(self, language: &str) -> ConceptWalk<'k> {
        let live = self.live.filter(|live| live.dictionary.len() > 0).map(|_| LiveWalk {
            language: language.into(),
            joint: Lexicon::for_language(language).map_or("", Lexicon::joint),
            lemmas: String::new(),
            over: false,
        });
        ConceptWalk { view: self, snapshot: self.graph.lemma_walk(language), live, begun: false }
    }

    /// The concepts of a language that have facts and whose lemmas, joined as the language does,
    /// are `key`; by falling degree, then text.
    pub fn concepts_with_lemmas(self, language: &str, key: &str) -> Vec<ConceptId> {
        let known = self.graph.concepts_with_lemmas(language, key);
        let Some(live) = self.live else { return known.collect() };
        let (only_live, _) = live.dictionary.with_lemmas(language, key);
        self.standing(known.chain(only_live.iter().copied()).collect())
    }

    /// The concepts that have facts, by falling degree, then text.
    fn standing(self, mut concepts: Vec<ConceptId>) -> Vec<ConceptId> {
        concepts.retain(|id| self.degree(*id) > 0);
        concepts.sort_by(|one, other| {
            let degrees = Reverse(self.degree(*one)).cmp(&Reverse(self.degree(*other)));
            degrees.then_with(|| self.by_text(*one, *other))
        });
        concepts
    }

    /// The properties of a relation and the words that speak it.
    pub fn relation(self, id: RelationId) -> Relation<'k> {
        match self.live.and_then(|live| live.dictionary.live_relation(id)) {
            Some(relation) => relation.view(),
            None => self.graph.relation(id),
        }
    }

    /// The number of facts with the concept as head or tail.
    pub fn degree(self, id: ConceptId) -> u32 {
        let known = if self.is_of_snapshot(id) { self.graph.degree(id) } else { 0 };
        match self.touching(id) {
            Some(live) => known.saturating_add_signed(live.degree(id)),
            None => known,
        }
    }

    /// Whether all facts with the concept as head or tail are ConceptNet's or WordNet's: none is of
    /// a source of the user's own.
    pub fn is_common_knowledge(self, concept: ConceptId) -> bool {
        let ahead = self.strongest_from(concept, usize::MAX);
        let mut facts = ahead.chain(self.strongest_to(concept, usize::MAX));
        facts.all(|fact| is_common(self.source(fact.source)))
    }

    /// The informativeness of a concept, 0..=1 ([`Graph::informativeness`]). The scale stays that
    /// of the snapshot's largest hub.
    pub fn informativeness(self, id: ConceptId) -> f32 {
        match self.touching(id) {
            Some(_) => self.graph.informativeness_at(self.degree(id)),
            None => self.graph.informativeness(id),
        }
    }

    /// The first `limit` facts about the concept, strongest first: cuts hubs.
    ///
    /// The order is that of [`Graph::facts_from`]: by falling weight; then those whose other end
    /// has at least three facts, by falling informativeness; then the rest. Degrees are those of
    /// the snapshot here, so that a change moves only its own fact. A concept that only the topic
    /// names was added on purpose, and precedes its equals.
    pub fn strongest_from(self, head: ConceptId, limit: usize) -> impl Iterator<Item = Fact> + 'k {
        match self.touching(head) {
            None => Facts::Plain(self.graph.strongest_from(head, limit)),
            Some(live) => Facts::Changed(self.strongest(live, head, Side::From).take(limit)),
        }
    }

    /// The first `limit` facts whose tail is the concept, strongest first
    /// ([`Self::strongest_from`]).
    pub fn strongest_to(self, tail: ConceptId, limit: usize) -> impl Iterator<Item = Fact> + 'k {
        match self.touching(tail) {
            None => Facts::Plain(self.graph.strongest_to(tail, limit)),
            Some(live) => Facts::Changed(self.strongest(live, tail, Side::To).take(limit)),
        }
    }

    /// Merges the snapshot's ranking with the differences. A retracted fact of the snapshot is in
    /// the second list with −1, at the same rank.
    fn strongest(
        self,
        live: &'k Reading<'k>,
        near: ConceptId,
        side: Side,
    ) -> impl Iterator<Item = Fact> + 'k {
        let known = self.is_of_snapshot(near);
        let from = (known && side == Side::From).then(|| self.graph.facts_from(near));
        let to = (known && side == Side::To).then(|| self.graph.facts_to(near));
        let known = from.into_iter().flatten().chain(to.into_iter().flatten());
        let graph = self.graph;
        let mut known =
            known.map(move |fact| (Ranked::of_snapshot(&fact, side, graph), fact)).peekable();
        let mut changed = live.ranked(near, side).peekable();
        std::iter::from_fn(move || {
            loop {
                let order = match (known.peek(), changed.peek()) {
                    (None, None) => return None,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some((known, _)), Some((changed, _))) => known.cmp(changed),
                };
                match order {
                    Ordering::Less => return known.next().map(|(_, fact)| fact),
                    // The fact was retracted.
                    Ordering::Equal => drop((known.next(), changed.next())),
                    Ordering::Greater => {
                        return changed.next().map(|(ranked, _)| ranked.fact(near, side));
                    }
                }
            }
        })
    }

    /// The facts with this head and this tail, by relation, then source.
    pub fn facts_between(
        self,
        head: ConceptId,
        tail: ConceptId,
    ) -> impl Iterator<Item = Fact> + 'k {
        let known = self.is_of_snapshot(head) && self.is_of_snapshot(tail);
        let known = known.then(|| self.graph.facts_between(head, tail)).into_iter().flatten();
        let (Some(live), Some(_)) = (self.touching(head), self.touching(tail)) else {
            return Facts::Plain(known);
        };
        let mut facts: Vec<Fact> = known.collect();
        for (changed, diff) in live.between(head, tail) {
            if diff > 0 { facts.push(changed) } else { facts.retain(|fact| *fact != changed) }
        }
        facts.sort_by(|one, other| self.by_key(one, other));
        Facts::Changed(facts.into_iter())
    }

    /// Whether the fact exists with the same negation, whatever its weight.
    pub fn has(self, fact: &Fact) -> bool {
        let key = |fact: &Fact| (fact.relation, fact.source, fact.negated);
        self.facts_between(fact.head, fact.tail).any(|other| key(&other) == key(fact))
    }

    /// The name of a source.
    pub fn source(self, source: u8) -> &'k str {
        match self.live.and_then(|live| live.dictionary.live_source(source)) {
            Some(name) => name,
            None => self.graph.source(source),
        }
    }
}

/// A walk through the lemma index of a view. It takes one lemma after the other and has the
/// concepts with exactly these lemmas.
pub(crate) struct ConceptWalk<'k> {
    view: View<'k>,
    snapshot: LemmaWalk<'k>,
    /// Set if some concept is beyond the snapshot.
    live: Option<LiveWalk>,
    begun: bool,
}

struct LiveWalk {
    language: Box<str>,
    joint: &'static str,
    lemmas: String,
    over: bool,
}

impl ConceptWalk<'_> {
    /// Takes one more word. Returns `false` and ends the walk if no concept continues with it.
    pub(crate) fn step(&mut self, lemma: &str) -> bool {
        let known = self.snapshot.step(lemma);
        let begun = std::mem::replace(&mut self.begun, true);
        let Some((walk, live)) = self.live.as_mut().zip(self.view.live) else { return known };
        if !walk.over {
            if begun {
                walk.lemmas.push_str(walk.joint);
            }
            walk.lemmas.push_str(lemma);
            let (ids, goes_on) = live.dictionary.with_lemmas(&walk.language, &walk.lemmas);
            walk.over = ids.is_empty() && !goes_on;
        }
        known || !walk.over
    }

    /// The concept with exactly these lemmas and the most facts; of equals the first by text.
    pub(crate) fn most_named(&self) -> Option<ConceptId> {
        let Some(live) = self.view.live else { return self.snapshot.concepts().next() };
        let mut concepts: Vec<ConceptId> = self.snapshot.concepts().collect();
        if let Some(walk) = self.live.as_ref().filter(|walk| !walk.over && self.begun) {
            concepts.extend(live.dictionary.with_lemmas(&walk.language, &walk.lemmas).0);
        }
        self.view.standing(concepts).first().copied()
    }
}
