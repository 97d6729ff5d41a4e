//! The own words of facts that the topic changed, as of one version.

use std::collections::BTreeMap;

use turnstream_schemas::FactKey;

use super::super::wording::{Statement, is_common};
use super::super::{Change, Upsert, Wording};

/// The own words of the facts that the topic asserts in other words than the snapshot.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Reworded {
    facts: BTreeMap<FactKey, Upsert>,
    /// (language, concept, a statement that names it) → the name.
    names: BTreeMap<(String, String, FactKey), String>,
}

impl Reworded {
    /// These words after changes, in the order of the log.
    pub(super) fn with(&self, changes: Vec<Change>) -> Self {
        let mut after = self.clone();
        for Change { key, upsert } in changes {
            after.forget(&key);
            if let Some(upsert) = upsert {
                after.keep(key, upsert);
            }
        }
        after
    }

    fn forget(&mut self, key: &FactKey) {
        let Some(Upsert { language, .. }) = self.facts.remove(key) else { return };
        for text in [&key.head, &key.tail] {
            self.names.remove(&(language.clone(), text.clone(), key.clone()));
        }
    }

    fn keep(&mut self, key: FactKey, upsert: Upsert) {
        let Upsert { language, wording: Wording { head, tail, .. }, .. } = &upsert;
        let is_own = !is_common(&key.source);
        for (text, name) in [(&key.head, head), (&key.tail, tail)] {
            if let Some(name) = name.as_ref().filter(|_| is_own) {
                let of = (language.clone(), text.clone(), key.clone());
                self.names.insert(of, name.clone());
            }
        }
        self.facts.insert(key, upsert);
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// The words of a statement that the topic asserts in other words than the snapshot.
    pub(in super::super) fn wording(&self, of: &Statement<'_>) -> Option<&Wording> {
        let Statement { source, head, relation, tail, .. } = *of;
        let [source, head, relation, tail] = [source, head, relation, tail].map(str::to_owned);
        let upsert = self.facts.get(&FactKey { source, head, relation, tail })?;
        Some(&upsert.wording)
    }

    /// The name of a concept, by its language and normalised text. Of several the first by
    /// statement.
    pub(in super::super) fn name(&self, language: &str, text: &str) -> Option<&str> {
        if self.names.is_empty() {
            return None;
        }
        let [source, head, relation, tail] = <[String; 4]>::default();
        let least = FactKey { source, head, relation, tail };
        let from = (language.to_owned(), text.to_owned(), least);
        let (of, name) = self.names.range(from..).next()?;
        (of.0 == language && of.1 == text).then_some(name.as_str())
    }
}
