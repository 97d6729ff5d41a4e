//! The words that facts bring of their own: a sentence that says the fact, and the names of its
//! ends with their capitals.
//!
//! Look-ups, ranking and keys use the normalised texts; own words are only said. Few facts have
//! any (those of a company), so a snapshot keeps them as lines of text at its end, and they are
//! read into memory. A graph without own words has no such lines.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::{Deserialize, Serialize};

use super::View;
use super::import::{ImportedFact, written};
use super::relation::positive_name;

/// How the names of common sources begin: ConceptNet's datasets, and WordNet's.
const COMMON_SOURCES: [&str; 5] = ["cn4", "cn100k", "conceptnet", "/d/", "oewn"];

/// Whether a source is ConceptNet or WordNet, and not the user's own.
pub(super) fn is_common(source: &str) -> bool {
    COMMON_SOURCES.iter().any(|common| source.starts_with(common))
}

/// The words of a fact's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wording {
    /// The sentence that says the fact as it is, without line ends.
    pub sentence: Option<String>,
    /// The head with its capitals, if it has any.
    pub head: Option<String>,
    /// The tail with its capitals, if it has any.
    pub tail: Option<String>,
}

/// A statement of a source in one language, by its names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statement<'s> {
    pub(super) language: &'s str,
    pub(super) source: &'s str,
    pub(super) relation: &'s str,
    /// Normalised, as the tail.
    pub(super) head: &'s str,
    pub(super) tail: &'s str,
    /// A sentence that affirms must not say a negated fact, so the two have keys of their own.
    pub(super) negated: bool,
}

impl Statement<'_> {
    /// The key of the statement's sentence. No part contains a tab.
    fn key(&self) -> String {
        let Self { language, source, relation, head, tail, negated } = *self;
        let sign = if negated { "-" } else { "+" };
        [language, source, relation, head, tail, sign].join("\t")
    }
}

/// The key of a concept's name. It has fewer parts than the key of a sentence.
fn name_key(language: &str, text: &str) -> String {
    [language, text].join("\t")
}

/// The own words of a snapshot's facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnWords(BTreeMap<String, String>);

impl OwnWords {
    /// Adds the words that a checked fact of a named source brings, given its normalised ends. Only
    /// sources of the user's own name concepts. Of several sentences of a statement, or names of a
    /// concept, the first in alphabetical order stays, whatever the order of the facts.
    pub(super) fn add(&mut self, fact: &ImportedFact, source: &str, [head, tail]: [&str; 2]) {
        let ImportedFact { relation, language, .. } = fact;
        if let Some(sentence) = &fact.sentence {
            let negated = fact.weight < 0.0 || positive_name(relation).is_some();
            let statement = Statement { language, source, relation, head, tail, negated };
            self.keep(statement.key(), sentence.trim().to_owned());
        }
        if is_common(source) {
            return;
        }
        for (text, normalised) in [(&fact.head, head), (&fact.tail, tail)] {
            if let Some(name) = written(text, normalised) {
                self.keep(name_key(language, normalised), name);
            }
        }
    }

    fn keep(&mut self, key: String, words: String) {
        match self.0.entry(key) {
            Entry::Vacant(entry) => _ = entry.insert(words),
            Entry::Occupied(mut entry) => {
                if words < *entry.get() {
                    entry.insert(words);
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sentence of a statement, if it brings one.
    pub(super) fn sentence(&self, of: &Statement<'_>) -> Option<&str> {
        if self.is_empty() {
            return None;
        }
        self.0.get(&of.key()).map(String::as_str)
    }

    /// The name of a concept with its capitals, given its normalised text.
    pub(super) fn name(&self, language: &str, text: &str) -> Option<&str> {
        if self.is_empty() {
            return None;
        }
        self.0.get(&name_key(language, text)).map(String::as_str)
    }

    /// Lines of a key and its words, separated by a tab and sorted. Empty without own words.
    pub(super) fn lines(&self) -> String {
        let mut lines = String::new();
        for (key, words) in &self.0 {
            for part in [key.as_str(), "\t", words.as_str(), "\n"] {
                lines.push_str(part);
            }
        }
        lines
    }

    /// Reads [`Self::lines`]; `None` if they are damaged.
    pub(super) fn read(lines: &[u8]) -> Option<Self> {
        let line = |line: &str| {
            let (key, words) = line.rsplit_once('\t')?;
            Some((key.to_owned(), words.to_owned()))
        };
        let lines = std::str::from_utf8(lines).ok()?;
        lines.lines().map(line).collect::<Option<_>>().map(Self)
    }
}

impl<'k> View<'k> {
    /// The words of a fact's own, as of this version: those that the topic gives it, or else those
    /// of the snapshot. Facts of common sources (ConceptNet, WordNet) have no names.
    pub fn wording(self, fact: &super::Fact) -> Wording {
        let (kept, reworded) = (self.graph().own_words(), self.reworded());
        if kept.is_empty() && reworded.is_none_or(|it| it.is_empty()) {
            return Wording::default();
        }
        let statement = Statement {
            language: self.language(fact.head),
            source: self.source(fact.source),
            relation: self.relation(fact.relation).name,
            head: self.concept(fact.head),
            tail: self.concept(fact.tail),
            negated: fact.negated,
        };
        let sentence = match reworded.and_then(|it| it.wording(&statement)) {
            Some(wording) => wording.sentence.as_deref(),
            None => kept.sentence(&statement),
        };
        let is_common = is_common(statement.source);
        let name = |id| self.name(id).filter(|_| !is_common).map(str::to_owned);
        Wording {
            sentence: sentence.map(str::to_owned),
            head: name(fact.head),
            tail: name(fact.tail),
        }
    }

    /// The name of a concept with its capitals, if facts of the user's own write it with capitals.
    /// A name of the topic precedes that of the snapshot.
    pub fn name(self, id: super::ConceptId) -> Option<&'k str> {
        let (language, text) = (self.language(id), self.concept(id));
        let reworded = self.reworded().and_then(|it| it.name(language, text));
        reworded.or_else(|| self.graph().own_words().name(language, text))
    }
}

#[cfg(test)]
mod tests;
