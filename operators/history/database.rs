//! The history of one scope as a dynamic database (DH-RAG): entries, their clusters and chains,
//! recall, update, eviction, and the ids of the scope's last turns.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use turnstream_knowledge::language::Lexicon;
use turnstream_ports::broken::Broken;
use turnstream_ports::cache::{CacheChange, Cached};
use turnstream_schemas::{
    EntryId, EntryKey, EventTime, HistoryChange, HistoryEntry, RecalledVia, SCHEMA_VERSION, Scope,
    ScopeRecord, Score, Speaker, TurnId,
};

use super::HistoryConfig;
use super::chains::Chains;
use super::clusters::Clusters;
use super::eviction::Weighted;
use super::hierarchy::best_passage;
use super::importance::importance;
use super::likeness::Signature;
use super::recall::{FoundEntry, SearchedEntries, find};
use super::recency::recency;
use super::reconstruction::reconstruct;
use super::relevance::{EntryStatistics, Relevance};
use super::similarity::Similarity;
use crate::flow::{Recalled, Reconstructed, Utterance};

mod forget;
mod hands;
mod later;
mod shrink;

pub use forget::Update;

/// An entry with its signature.
#[derive(Clone, Debug)]
struct Held {
    entry: Arc<HistoryEntry>,
    text: Signature,
    /// Its importance, once it was asked for.
    importance: OnceLock<f64>,
    cached: InCache,
}

/// Whether the cache holds an entry: not at all, an older version, or the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InCache {
    No,
    Older,
    Same,
}

/// The history of one scope.
#[derive(Clone, Debug, Default)]
pub struct Database {
    /// By offset: the entries of a scope lie on one partition.
    entries: BTreeMap<i64, Held>,
    statistics: EntryStatistics,
    clusters: Clusters,
    chains: Chains,
    record: ScopeRecord,
    /// The offset of the last input that was applied; `None` before the first.
    applied: Option<i64>,
    /// Whether the cache holds anything of the scope.
    cached: bool,
    /// Whether anything changed since the scope was loaded.
    changed: bool,
    /// Evicted entries that the cache still holds.
    gone: Vec<EntryId>,
}

impl Database {
    /// Adds one record of the scope from the cache, which holds it as the changelog does. Call
    /// [`Self::restored`] after the last one.
    ///
    /// # Errors
    /// If the value cannot be decoded as the kind of record that its key names.
    pub fn restore(
        &mut self,
        record: &Cached,
        similarity: &Similarity,
    ) -> Result<(), serde_json::Error> {
        match record.entry {
            Some(_) => {
                self.hold(serde_json::from_slice(&record.value)?, InCache::Same, similarity);
            }
            None => {
                self.record = serde_json::from_slice(&record.value)?;
                // As an older version wrote them: from here on they are remembered as others.
                for turn_id in std::mem::take(&mut self.record.recent_turn_ids) {
                    self.record.remembered_turns.push(&turn_id);
                }
                self.applied = Some(self.record.last_applied_offset);
            }
        }
        self.cached = true;
        Ok(())
    }

    /// Puts the entries into the clusters and chains that they were in, once all records of the scope are
    /// added. Entries that were in none (from an older version) join as if they came now.
    pub fn restored(&mut self, config: &HistoryConfig) {
        let record = &mut self.record;
        let text_of = |at| self.entries.get(&at).map(|held: &Held| &held.text);
        let mut categories = std::mem::take(&mut record.categories);
        if Broken::ClusterAnew.here() {
            categories.clear();
        }
        self.clusters = Clusters::restored(&categories, record.next_cluster, text_of);
        let chains = std::mem::take(&mut record.chains);
        let is_there = |at| self.entries.contains_key(&at);
        self.chains = Chains::restored(&chains, record.next_chain, is_there);
        let known =
            |at: &i64| self.clusters.group_of(*at).is_some() && self.chains.of(*at).is_some();
        let unknown: Vec<i64> = self.entries.keys().copied().filter(|at| !known(at)).collect();
        for at in unknown {
            self.leave(at);
            self.join(at, config);
        }
    }

    /// Whether the cache holds anything of the scope.
    pub fn is_cached(&self) -> bool {
        self.cached
    }

    /// Returns the changes to write to the cache before the scope can leave memory.
    pub fn unsaved(&self, scope: &Scope) -> Vec<CacheChange> {
        if !self.changed {
            return Vec::new();
        }
        let key = |entry| EntryKey { scope: scope.clone(), entry };
        let gone = self.gone.iter().map(|id| CacheChange { key: key(Some(*id)), value: None });
        let changed = self.entries.values().filter(|held| held.cached != InCache::Same);
        let changed = changed
            .map(|held| CacheChange { key: key(Some(held.id())), value: Some(json(&*held.entry)) });
        let record = CacheChange { key: key(None), value: Some(json(&self.whole_record())) };
        gone.chain(changed).chain([record]).collect()
    }

    /// Whether one of the last 256 turns that ended as a response or a recorded turn has this id.
    pub fn remembers(&self, turn_id: &TurnId) -> bool {
        self.record.remembered_turns.contains(turn_id)
    }

    /// Remembers the id of a turn that ended as a response or a recorded turn.
    pub fn remember(&mut self, turn_id: &TurnId) {
        self.record.turns += 1;
        self.record.remembered_turns.push(turn_id);
    }

    /// Notes that an input was applied, whatever its outcome.
    ///
    /// # Panics
    /// If the input does not lie behind the last one. Its outcome must not be committed, so the process
    /// must stop.
    pub fn applied(&mut self, scope: &Scope, offset: i64) {
        if let Some(last) = self.applied.filter(|last| *last >= offset) {
            panic!(
                "scope {scope}: the input at offset {offset} came after the one at {last}, which \
                 its history holds already; if the group's offsets were reset, or the topic of \
                 turns was recreated, set the offsets past the last input or start with an empty \
                 history topic"
            );
        }
        self.applied = Some(offset);
        self.record.last_applied_offset = offset;
        self.changed = true;
    }

    /// Moves the "now" of recency forward: it is the latest event time seen in the scope.
    pub fn see_time(&mut self, event_time: EventTime) {
        self.record.latest_event_time = self.record.latest_event_time.max(event_time);
    }

    /// Returns the latest event time seen in the scope.
    pub fn now(&self) -> EventTime {
        self.record.latest_event_time
    }

    /// Returns the signature of the entry at an offset.
    pub fn text_of(&self, at: i64) -> Option<&Signature> {
        self.entries.get(&at).map(|held| &held.text)
    }

    /// Returns the entries, oldest first, each with the weight that eviction would give it for a
    /// query.
    pub fn weighted(&self, query: &Signature, config: &HistoryConfig) -> Vec<Weighted> {
        let relevance = self.relevance(query, config);
        self.entries.values().map(|held| self.weigh(held, &relevance, config)).collect()
    }

    /// Returns the clusters of the entries.
    pub fn clusters(&self) -> &Clusters {
        &self.clusters
    }

    /// Returns the chains of the entries.
    pub fn chains(&self) -> &Chains {
        &self.chains
    }

    /// Returns how many entries are held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry is held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entries, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &HistoryEntry> {
        self.entries.values().map(|held| &*held.entry)
    }

    /// Returns the latest utterances of the scope, oldest first, within the configured window.
    pub fn latest_utterances(&self, config: &HistoryConfig) -> Vec<Utterance> {
        let mut latest = Vec::new();
        let mut bytes = 0;
        let spoken = self.entries.values().rev().flat_map(|held| {
            let entry = &held.entry;
            let response = entry.response.as_deref().map(|text| Utterance {
                turn_id: entry.response_turn_id.clone().unwrap_or_else(|| entry.turn_id.clone()),
                speaker: Speaker::System,
                text: text.into(),
            });
            let query = entry.query.as_deref().map(|text| Utterance {
                turn_id: entry.turn_id.clone(),
                speaker: Speaker::User,
                text: text.into(),
            });
            [response, query].into_iter().flatten()
        });
        for utterance in spoken.take(config.window_utterances) {
            bytes += utterance.text.len();
            if bytes > config.window_bytes {
                break;
            }
            latest.push(utterance);
        }
        latest.reverse();
        latest
    }

    /// Recalls entries for a query: first those of the window, the latest first, then the older ones that
    /// the configured method finds, by falling score.
    pub fn recall(&self, query: &Signature, rules: &Remembering<'_>) -> Vec<Recalled> {
        let config = rules.config;
        let relevance = self.relevance(query, config);
        let recalled = |held: &Held, via, found: Option<FoundEntry>| {
            let weighted = self.weigh(held, &relevance, config);
            Recalled {
                entry: Arc::clone(&held.entry),
                via,
                relevance: Score::new(found.map_or(weighted.relevance, |found| found.score)),
                weight: Score::new(weighted.weight),
                passage: best_passage(&held.entry, query, rules.similarity),
            }
        };
        let window = config.window_utterances.div_ceil(2);
        let recent = self.entries.values().rev().take(window);
        let first = recent.clone().next_back().map_or(i64::MAX, |held| held.id().offset);
        let has_older = self.entries.len() > window;
        let older = if has_older { self.find(query, config) } else { Vec::new() }.into_iter();
        let older = older.filter(|found| found.entry < first).take(config.recall.max_entries);
        let older = older.filter_map(|found| Some((self.entries.get(&found.entry)?, found)));
        recent
            .map(|held| recalled(held, RecalledVia::Recent, None))
            .chain(older.map(|(held, found)| recalled(held, found.via, Some(found))))
            .collect()
    }

    /// Returns the entries that the configured method finds for a query, by falling score; none
    /// with a score below `recall.min_relevance`. It searches the window as well.
    pub fn find(&self, query: &Signature, config: &HistoryConfig) -> Vec<FoundEntry> {
        let entries: Vec<i64> = self.entries.keys().copied().collect();
        let searched = SearchedEntries {
            clusters: &self.clusters,
            chains: &self.chains,
            entries: &entries,
            text_of: |at| self.entries.get(&at).map(|held| &held.text),
            relevance: self.relevance(query, config),
        };
        let mut found = find(&searched, &config.recall);
        found.retain(|found| found.score >= config.recall.min_relevance);
        found
    }

    /// Completes a query from the latest exchange and those before it in its chain.
    pub fn reconstruct(&self, query: &str, config: &HistoryConfig) -> Option<Reconstructed> {
        let (last, _) = self.entries.last_key_value()?;
        let (_, chain) = self.chains.of(*last)?;
        let entries = chain.iter().rev().filter_map(|at| self.entries.get(at));
        reconstruct(query, entries.map(|held| &*held.entry), &config.reconstruction)
    }

    /// Adds an entry, then keeps the top N by weight against `query` (DH-RAG eq 11–14).
    pub fn insert(
        &mut self,
        scope: &Scope,
        entry: HistoryEntry,
        query: &Signature,
        rules: &Remembering<'_>,
    ) -> Update {
        let (config, id) = (rules.config, entry.input.entry_id());
        self.leave(id.offset);
        let mut changes = vec![changed(scope, &entry)];
        let cached = match self.entries.get(&id.offset) {
            None | Some(Held { cached: InCache::No, .. }) => InCache::No,
            Some(_) => InCache::Older,
        };
        self.hold(entry, cached, rules.similarity);
        self.join(id.offset, config);
        self.changed = true;
        let mut update = Update::of(scope, self.shrink(id, query, config));
        changes.append(&mut update.changes);
        Update { changes, ..update }
    }

    /// Completes the latest entry that lacks a response; `None` where every entry has one.
    pub fn complete(
        &mut self,
        scope: &Scope,
        response: &str,
        turn_id: &TurnId,
        rules: &Remembering<'_>,
    ) -> Option<HistoryChange> {
        let mut waiting = self.entries.iter().rev();
        let (at, held) = waiting.find(|(_, held)| held.entry.response.is_none())?;
        let (at, mut entry, before) = (*at, (*held.entry).clone(), held.text.clone());
        entry.response = Some(response.to_owned());
        entry.response_turn_id = Some(turn_id.clone());
        // A vector that is made elsewhere comes with the next turn.
        entry.vector = None;
        self.statistics.remove(&before.terms);
        let held = self.entries.get_mut(&at)?;
        held.importance = OnceLock::new();
        held.text = rules.similarity.of_entry(&entry);
        held.entry = Arc::new(entry);
        self.statistics.add(&held.text.terms);
        self.clusters.replace(at, &before, &held.text);
        if held.cached == InCache::Same {
            held.cached = InCache::Older;
        }
        self.changed = true;
        Some(changed(scope, &held.entry))
    }

    /// Returns the scope's own record as it is published.
    pub fn record(&self, scope: &Scope) -> HistoryChange {
        let key = EntryKey { scope: scope.clone(), entry: None };
        HistoryChange::Scope { key, record: Box::new(self.whole_record()) }
    }

    fn whole_record(&self) -> ScopeRecord {
        let mut record = self.record.clone();
        record.schema_version = SCHEMA_VERSION;
        (record.categories, record.next_cluster) = self.clusters.records();
        (record.chains, record.next_chain) = self.chains.records();
        record
    }

    fn hold(&mut self, entry: HistoryEntry, cached: InCache, similarity: &Similarity) {
        let text = similarity.of_entry(&entry);
        let at = entry.input.offset;
        self.statistics.add(&text.terms);
        let before = self
            .entries
            .insert(at, Held { entry: Arc::new(entry), text, importance: OnceLock::new(), cached });
        if let Some(before) = before {
            self.statistics.remove(&before.text.terms);
        }
    }

    /// Puts an entry into a group and a chain.
    fn join(&mut self, at: i64, config: &HistoryConfig) {
        let Some(Held { entry, text, .. }) = self.entries.get(&at) else { return };
        self.clusters.insert(at, text, &config.clusters);
        let query = entry.query.as_deref().unwrap_or_default();
        let refers_back = Lexicon::of_text(query).refers_back(query);
        let text_of = |at| self.entries.get(&at).map(|held: &Held| &held.text);
        self.chains.insert(at, text, refers_back, text_of, &config.chains);
    }

    /// Takes an entry out of its group and its chain.
    fn leave(&mut self, at: i64) {
        if let Some(held) = self.entries.get(&at) {
            self.clusters.remove(at, &held.text);
            self.chains.remove(at);
        }
    }

    fn relevance<'q>(&self, query: &'q Signature, config: &HistoryConfig) -> Relevance<'q> {
        Relevance::to(query, &self.statistics, config.recall.meaning_share)
    }

    fn weigh(&self, held: &Held, relevance: &Relevance<'_>, config: &HistoryConfig) -> Weighted {
        let recency = recency(self.now(), held.entry.event_time, config.half_life_seconds);
        let weighted = Weighted::new(held.id(), relevance.of(&held.text), recency, config.alpha);
        match config.importance_share {
            0.0 => weighted,
            share => weighted.with_importance(held.importance(), share),
        }
    }
}

impl Held {
    fn id(&self) -> EntryId {
        self.entry.input.entry_id()
    }

    fn importance(&self) -> f64 {
        *self.importance.get_or_init(|| importance(&self.entry, &self.text.terms))
    }
}

/// The rules by which a history adds and recalls entries.
#[derive(Clone, Copy, Debug)]
pub struct Remembering<'r> {
    /// The configuration of the history.
    pub config: &'r HistoryConfig,
    /// Compares texts.
    pub similarity: &'r Similarity,
}

/// Encodes a record as JSON. Records hold text keys and finite numbers only, so this cannot fail.
fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_else(|error| unreachable!("a record of ours: {error}"))
}

fn changed(scope: &Scope, entry: &HistoryEntry) -> HistoryChange {
    let key = EntryKey { scope: scope.clone(), entry: Some(entry.input.entry_id()) };
    HistoryChange::Entry { key, entry: Box::new(entry.clone()) }
}
