//! Turns upserts and retractions into ±1 against the snapshot and all earlier records of the topic.
//! A record that repeats the present state changes nothing.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use turnstream_schemas::FactKey;

use super::super::relation::positive_name;
use super::super::wording::Statement;
use super::super::{Change, Graph, Upsert, Wording};

/// Most sources and relations of a graph and its changes together.
const MAX_SOURCES: usize = 255;
const MAX_RELATIONS: usize = 65_535;

/// A statement that is added or removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Update {
    pub(super) key: FactKey,
    pub(super) language: String,
    /// Above 0.
    pub(super) weight: f32,
    pub(super) negated: bool,
    /// +1 adds it; −1 removes it.
    pub(super) diff: i32,
    /// Whether the update makes a difference from the snapshot. Otherwise it reverts one.
    pub(super) differs: bool,
}

/// The state of a statement in one language.
#[derive(Clone, Debug, PartialEq)]
struct Stands {
    language: String,
    weight: f32,
    negated: bool,
}

/// The statements that differ from the snapshot. One per process.
pub(super) struct Present {
    graph: Arc<Graph>,
    /// By key: the state of a statement that differs from the snapshot.
    differing: FxHashMap<Box<str>, Option<Upsert>>,
    sources: FxHashSet<Box<str>>,
    relations: FxHashSet<Box<str>>,
}

/// Why a change cannot be applied.
#[derive(Debug, thiserror::Error)]
pub(super) enum Full {
    #[error("it would add a source beyond the limit of {MAX_SOURCES}")]
    Sources,
    #[error("it would add a relation beyond the limit of {MAX_RELATIONS}")]
    Relations,
}

impl Present {
    pub(super) fn new(graph: Arc<Graph>) -> Self {
        let sources = graph.sources().map(Into::into).collect();
        let relations = graph.relations().map(|relation| relation.name.into()).collect();
        Self { graph, differing: FxHashMap::default(), sources, relations }
    }

    /// The number of statements that differ from the snapshot.
    pub(super) fn len(&self) -> usize {
        self.differing.len()
    }

    /// Applies a change, and collects the statements that it adds and removes. Returns the change
    /// of own words, if it makes one; its upsert is `None` if they are again those of the snapshot.
    ///
    /// # Errors
    /// There are too many sources or relations. Nothing changed.
    pub(super) fn apply(
        &mut self,
        change: &Change,
        into: &mut Vec<Update>,
    ) -> Result<Option<Change>, Full> {
        let Change { key, upsert } = change;
        let text = joined(key);
        if upsert.is_some() {
            enter(&mut self.sources, &key.source, MAX_SOURCES).ok_or(Full::Sources)?;
            enter(&mut self.relations, &key.relation, MAX_RELATIONS).ok_or(Full::Relations)?;
        }
        let snapshot = self.in_snapshot(key);
        let stands = |upsert: &Option<Upsert>| -> Vec<Stands> {
            upsert.iter().map(|upsert| stands(key, upsert)).collect()
        };
        let known = self.differing.get(&*text);
        let before = match known {
            Some(upsert) => stands(upsert),
            None => snapshot.clone(),
        };
        let was_reworded = known.is_some_and(|upsert| self.is_reworded(key, upsert.as_ref()));
        let is_reworded = self.is_reworded(key, upsert.as_ref());
        let after = stands(upsert);
        let goes = before.iter().filter(|fact| !after.contains(fact)).map(|fact| (fact, -1));
        let comes = after.iter().filter(|fact| !before.contains(fact)).map(|fact| (fact, 1));
        into.extend(goes.chain(comes).map(|(fact, diff)| Update {
            key: key.clone(),
            language: fact.language.clone(),
            weight: fact.weight,
            negated: fact.negated,
            diff,
            // A fact of the snapshot differs when it is removed, any other when it is added.
            differs: snapshot.contains(fact) == (diff < 0),
        }));
        if after == snapshot && !is_reworded {
            self.differing.remove(&*text);
        } else {
            self.differing.insert(text, upsert.clone());
        }
        let upsert = upsert.clone().filter(|_| is_reworded);
        Ok((was_reworded || is_reworded).then(|| Change { key: key.clone(), upsert }))
    }

    /// Whether a statement has another sentence than in the snapshot, or gives its concepts other
    /// names. One without names leaves those of the snapshot.
    fn is_reworded(&self, key: &FactKey, upsert: Option<&Upsert>) -> bool {
        let Some(upsert) = upsert else { return false };
        let (own, language) = (self.graph.own_words(), &*upsert.language);
        let FactKey { source, head, relation, tail } = key;
        let negated = stands(key, upsert).negated;
        let statement = Statement { language, source, relation, head, tail, negated };
        let Wording { sentence, head: head_name, tail: tail_name } = &upsert.wording;
        let is_renamed =
            |text: &str, name: Option<&str>| name.is_some() && name != own.name(language, text);
        sentence.as_deref() != own.sentence(&statement)
            || is_renamed(head, head_name.as_deref())
            || is_renamed(tail, tail_name.as_deref())
    }

    /// The state of the statement in the snapshot, in each language.
    fn in_snapshot(&self, key: &FactKey) -> Vec<Stands> {
        let graph = &*self.graph;
        let mut found = Vec::new();
        for head in graph.find_all(&key.head) {
            for tail in graph.find_all(&key.tail) {
                let facts = graph.facts_between(head, tail).filter(|fact| {
                    graph.relation(fact.relation).name == key.relation
                        && graph.source(fact.source) == key.source
                });
                found.extend(facts.map(|fact| Stands {
                    language: graph.language(head).to_owned(),
                    weight: fact.weight,
                    negated: fact.negated,
                }));
            }
        }
        found
    }
}

fn stands(key: &FactKey, Upsert { weight, language, .. }: &Upsert) -> Stands {
    let negated = *weight < 0.0 || positive_name(&key.relation).is_some();
    Stands { language: language.clone(), weight: weight.abs(), negated }
}

/// The key as one text. None of its parts contains a tab.
fn joined(FactKey { source, head, relation, tail }: &FactKey) -> Box<str> {
    [source.as_str(), head, relation, tail].join("\t").into()
}

fn enter(names: &mut FxHashSet<Box<str>>, name: &str, limit: usize) -> Option<()> {
    if !names.contains(name) {
        if names.len() == limit {
            return None;
        }
        names.insert(name.into());
    }
    Some(())
}
