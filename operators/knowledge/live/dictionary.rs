//! The ids of one worker: those of the snapshot, and further ones for concepts, relations and
//! sources that only the topic names.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::super::grams::grams;
use super::super::relation::RelationEntry;
use super::super::{ConceptId, Graph, RelationId};
use crate::language::Lexicon;

/// A concept that only the topic names.
pub(in super::super) struct LiveConcept {
    pub(in super::super) text: Box<str>,
    pub(in super::super) language: Box<str>,
    pub(in super::super) words: OnceCell<Box<[u64]>>,
}

/// Names and ids. The id of a concept is freed when no readable version has a fact with it.
pub(in super::super) struct Dictionary {
    graph: Arc<Graph>,
    concepts: Vec<Option<LiveConcept>>,
    free: Vec<u32>,
    /// (text, language) → id, beyond the snapshot.
    texts: BTreeMap<(Box<str>, Box<str>), ConceptId>,
    /// (language, lemma key) → ids, beyond the snapshot.
    lemmas: BTreeMap<(Box<str>, Box<str>), Vec<ConceptId>>,
    /// (n-gram of the key, id), beyond the snapshot.
    grams: BTreeSet<(u64, ConceptId)>,
    relations: Vec<RelationEntry>,
    relation_ids: FxHashMap<Box<str>, RelationId>,
    sources: Vec<Box<str>>,
    source_ids: FxHashMap<Box<str>, u8>,
    /// By concept: the number of differences from the snapshot that name it, in any readable
    /// version.
    touched: FxHashMap<ConceptId, u32>,
    /// Differences that were reverted, by version.
    leaving: VecDeque<(u64, ConceptId)>,
}

impl Dictionary {
    pub(super) fn new(graph: Arc<Graph>) -> Self {
        let relations = graph.relations().enumerate();
        let relation_ids =
            relations.map(|(at, relation)| (relation.name.into(), RelationId(at as u16))).collect();
        let sources = graph.sources().enumerate();
        let source_ids = sources.map(|(at, name)| (name.into(), at as u8)).collect();
        Self {
            graph,
            concepts: Vec::new(),
            free: Vec::new(),
            texts: BTreeMap::new(),
            lemmas: BTreeMap::new(),
            grams: BTreeSet::new(),
            relations: Vec::new(),
            relation_ids,
            sources: Vec::new(),
            source_ids,
            touched: FxHashMap::default(),
            leaving: VecDeque::new(),
        }
    }

    /// The first id beyond the snapshot.
    fn first(&self) -> u32 {
        self.graph.concepts().len() as u32
    }

    /// Returns the concept with this text and language. Adds it if it is new.
    pub(super) fn concept(&mut self, text: &str, language: &str) -> ConceptId {
        let known = self.graph.find_all(text).find(|id| self.graph.language(*id) == language);
        if let Some(known) = known {
            return known;
        }
        let key = (Box::from(text), Box::from(language));
        if let Some(known) = self.texts.get(&key) {
            return *known;
        }
        let concept =
            LiveConcept { text: key.0.clone(), language: key.1.clone(), words: OnceCell::new() };
        let at = self.free.pop().unwrap_or(self.concepts.len() as u32);
        if at as usize == self.concepts.len() {
            self.concepts.push(Some(concept));
        } else {
            self.concepts[at as usize] = Some(concept);
        }
        let id = ConceptId(self.first() + at);
        if let Some(lemmas) = lemma_key(text, language) {
            self.grams.extend(key_grams(&lemmas, language).into_iter().map(|gram| (gram, id)));
            self.lemmas.entry((language.into(), lemmas.into())).or_default().push(id);
        }
        self.texts.insert(key, id);
        id
    }

    pub(super) fn relation(&mut self, name: &str) -> RelationId {
        if let Some(known) = self.relation_ids.get(name) {
            return *known;
        }
        let id = RelationId((self.graph.relations().len() + self.relations.len()) as u16);
        self.relations.push(RelationEntry::new(name));
        self.relation_ids.insert(name.into(), id);
        id
    }

    pub(super) fn source(&mut self, name: &str) -> u8 {
        if let Some(known) = self.source_ids.get(name) {
            return *known;
        }
        let id = (self.graph.sources().len() + self.sources.len()) as u8;
        self.sources.push(name.into());
        self.source_ids.insert(name.into(), id);
        id
    }

    /// Notes a difference from the snapshot that names the concept.
    pub(super) fn touch(&mut self, id: ConceptId) {
        *self.touched.entry(id).or_default() += 1;
    }

    /// Notes that such a difference was reverted at a version.
    pub(super) fn leave(&mut self, version: u64, id: ConceptId) {
        self.leaving.push_back((version, id));
    }

    /// Frees concepts that no version from `version` on needs.
    pub(super) fn forget_before(&mut self, version: u64) {
        while let Some(&(left, id)) = self.leaving.front()
            && left <= version
        {
            self.leaving.pop_front();
            let Some(touched) = self.touched.get_mut(&id) else { continue };
            *touched -= 1;
            if *touched == 0 {
                self.touched.remove(&id);
                self.free(id);
            }
        }
    }

    fn free(&mut self, id: ConceptId) {
        let Some(at) = id.0.checked_sub(self.first()) else { return };
        let Some(concept) = self.concepts[at as usize].take() else { return };
        if let Some(lemmas) = lemma_key(&concept.text, &concept.language) {
            for gram in key_grams(&lemmas, &concept.language) {
                self.grams.remove(&(gram, id));
            }
            let key = (concept.language.clone(), lemmas.into());
            if let Some(ids) = self.lemmas.get_mut(&key) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    self.lemmas.remove(&key);
                }
            }
        }
        self.texts.remove(&(concept.text, concept.language));
        self.free.push(at);
    }

    /// Whether no readable version differs from the snapshot.
    pub(super) fn is_idle(&self) -> bool {
        self.touched.is_empty()
    }

    /// Concepts that only the topic names.
    pub(in super::super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether a difference from the snapshot names the concept.
    pub(in super::super) fn is_touched(&self, id: ConceptId) -> bool {
        self.touched.contains_key(&id)
    }

    /// A concept beyond the snapshot; `None` for one of the snapshot.
    pub(in super::super) fn live(&self, id: ConceptId) -> Option<&LiveConcept> {
        let at = id.0.checked_sub(self.first())?;
        let concept = self.concepts.get(at as usize).and_then(Option::as_ref);
        Some(concept.unwrap_or_else(|| panic!("{id:?} is not a concept of this graph")))
    }

    /// The concepts beyond the snapshot with this text, by language.
    pub(in super::super) fn find_all(&self, text: &str) -> impl Iterator<Item = ConceptId> + '_ {
        let from = (Box::from(text), Box::from(""));
        let text: Box<str> = text.into();
        let found = self.texts.range(from..);
        found.take_while(move |((other, _), _)| *other == text).map(|(_, id)| *id)
    }

    /// The concepts beyond the snapshot with these lemmas, and whether a longer key continues them.
    pub(in super::super) fn with_lemmas(
        &self,
        language: &str,
        lemmas: &str,
    ) -> (&[ConceptId], bool) {
        let key = (Box::from(language), Box::from(lemmas));
        let mut from = self
            .lemmas
            .range(key..)
            .take_while(|((other, key), _)| **other == *language && key.starts_with(lemmas));
        match from.next() {
            Some(((_, key), ids)) if **key == *lemmas => (ids, from.next().is_some()),
            Some(_) => (&[], true),
            None => (&[], false),
        }
    }

    /// The concepts beyond the snapshot whose key has an n-gram.
    pub(in super::super) fn with_gram(&self, gram: u64) -> impl Iterator<Item = ConceptId> + '_ {
        let all = (gram, ConceptId(0))..=(gram, ConceptId(u32::MAX));
        self.grams.range(all).map(|(_, id)| *id)
    }

    /// A relation beyond the snapshot.
    pub(in super::super) fn live_relation(&self, id: RelationId) -> Option<&RelationEntry> {
        self.relations.get(usize::from(id.0).checked_sub(self.graph.relations().len())?)
    }

    /// A source beyond the snapshot.
    pub(in super::super) fn live_source(&self, id: u8) -> Option<&str> {
        let at = usize::from(id).checked_sub(self.graph.sources().len())?;
        self.sources.get(at).map(AsRef::as_ref)
    }
}

/// The key in the lemma index; `None` if the language has no lexicon or the text has no words.
fn lemma_key(text: &str, language: &str) -> Option<String> {
    let lexicon = Lexicon::for_language(language)?;
    Some(lexicon.key(text)).filter(|key| !key.is_empty())
}

/// The n-grams of a key.
fn key_grams(key: &str, language: &str) -> Vec<u64> {
    Lexicon::for_language(language).map_or_else(Vec::new, |lexicon| grams(lexicon, key))
}
