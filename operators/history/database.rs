//! The history of one scope as a dynamic database (DH-RAG): entries, recall, update, eviction,
//! and what the scope remembers besides.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::Serialize;
use turnstream_schemas::{
    EntryId, EntryKey, EventTime, Evicted, EvictionReason, HistoryChange, HistoryEntry,
    RecalledVia, SCHEMA_VERSION, Scope, ScopeRecord, Score, Speaker, TurnId,
};

use super::HistoryConfig;
use super::cache::{CacheChange, Cached};
use super::eviction::{Weighted, evict};
use super::recall::Terms;
use super::recency::recency;
use crate::flow::{Recalled, Utterance};

/// How many turn ids a scope remembers; they survive eviction.
pub const REMEMBERED_TURN_IDS: usize = 256;

/// An entry with what recall needs of it.
#[derive(Clone, Debug)]
struct Held {
    entry: Arc<HistoryEntry>,
    terms: Terms,
    cached: InCache,
}

/// What the cache holds of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InCache {
    No,
    Older,
    Same,
}

/// The history of one scope.
#[derive(Clone, Debug, Default)]
pub struct Database {
    entries: BTreeMap<EntryId, Held>,
    record: ScopeRecord,
    remembered: VecDeque<TurnId>,
    /// The last input that was applied, where there was one.
    applied: Option<i64>,
    /// Whether the cache holds anything of the scope.
    cached: bool,
    /// Whether anything changed since it was loaded.
    changed: bool,
    /// Entries that the cache holds and that are gone.
    gone: Vec<EntryId>,
}

impl Database {
    /// Takes in one record of the scope, as the cache has it: as it stands on the changelog.
    ///
    /// # Errors
    /// The value is not what stands under such a key.
    pub fn restore(&mut self, record: &Cached) -> Result<(), serde_json::Error> {
        match record.entry {
            Some(id) => {
                self.hold(id, serde_json::from_slice(&record.value)?, InCache::Same);
            }
            None => {
                self.record = serde_json::from_slice(&record.value)?;
                self.remembered = std::mem::take(&mut self.record.recent_turn_ids).into();
                self.applied = Some(self.record.last_applied_offset);
            }
        }
        self.cached = true;
        Ok(())
    }

    /// Whether the cache holds anything of the scope.
    pub fn is_cached(&self) -> bool {
        self.cached
    }

    /// What the cache has to be told before the scope can leave memory.
    pub fn unsaved(&self, scope: &Scope) -> Vec<CacheChange> {
        if !self.changed {
            return Vec::new();
        }
        let key = |entry| EntryKey { scope: scope.clone(), entry };
        let gone = self.gone.iter().map(|id| CacheChange { key: key(Some(*id)), value: None });
        let changed = self.entries.iter().filter(|(_, held)| held.cached != InCache::Same);
        let changed = changed
            .map(|(id, held)| CacheChange { key: key(Some(*id)), value: Some(json(&*held.entry)) });
        let record = CacheChange { key: key(None), value: Some(json(&self.whole_record())) };
        gone.chain(changed).chain([record]).collect()
    }

    /// Whether a turn of this id ended as a response or recorded, among the last 256.
    pub fn remembers(&self, turn_id: &TurnId) -> bool {
        self.remembered.iter().rev().any(|remembered| remembered == turn_id)
    }

    /// Remembers that a turn ended as a response or recorded.
    pub fn remember(&mut self, turn_id: TurnId) {
        self.record.turns += 1;
        if self.remembered.len() == REMEMBERED_TURN_IDS {
            self.remembered.pop_front();
        }
        self.remembered.push_back(turn_id);
    }

    /// Notes that an input was applied, whatever its outcome.
    ///
    /// # Panics
    /// The input does not lie behind the last one. Nothing that comes of it may be committed, so
    /// the process must stop.
    pub fn applied(&mut self, scope: &Scope, offset: i64) {
        if let Some(last) = self.applied.filter(|last| *last >= offset) {
            panic!(
                "scope {scope}: the input at offset {offset} came after the one at {last}, which \
                 its history holds already; if the group's offsets were set back, or the topic of \
                 turns was made anew, set the offsets past the last input or begin with an empty \
                 history topic"
            );
        }
        self.applied = Some(offset);
        self.record.last_applied_offset = offset;
        self.changed = true;
    }

    /// Moves "now" of recency: the latest event time seen in the scope.
    pub fn see_time(&mut self, event_time: EventTime) {
        self.record.latest_event_time = self.record.latest_event_time.max(event_time);
    }

    /// The latest event time seen in the scope.
    pub fn now(&self) -> EventTime {
        self.record.latest_event_time
    }

    /// How many entries are held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry is held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &HistoryEntry> {
        self.entries.values().map(|held| &*held.entry)
    }

    /// The latest utterances of the scope, oldest first, within the configured window.
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

    /// Recalls entries for a query, by falling weight: those of the window as recent, and of the
    /// older ones the most relevant.
    pub fn recall(&self, query: &Terms, config: &HistoryConfig) -> Vec<Recalled> {
        let window = config.window_utterances.div_ceil(2);
        let first_recent = self.entries.len().saturating_sub(window);
        let now = self.now();
        let mut recalled = Vec::new();
        let mut older = Vec::new();
        for (place, (id, held)) in self.entries.iter().enumerate() {
            let scores = self.weigh(*id, held, query, now, config);
            if place >= first_recent {
                recalled.push((scores, RecalledVia::Recent));
            } else if scores.relevance >= config.min_recall_relevance {
                older.push((scores, RecalledVia::Relevance));
            }
        }
        let heavier = |a: &(Weighted, RecalledVia), b: &(Weighted, RecalledVia)| {
            b.0.weight.total_cmp(&a.0.weight).then(b.0.id.cmp(&a.0.id))
        };
        older.sort_unstable_by(heavier);
        older.truncate(config.recall_entries);
        recalled.append(&mut older);
        recalled.sort_unstable_by(heavier);
        let entry = |id: EntryId| Arc::clone(&self.entries[&id].entry);
        recalled
            .into_iter()
            .map(|(scores, via)| Recalled {
                entry: entry(scores.id),
                via,
                weight: Score::new(scores.weight),
            })
            .collect()
    }

    /// Adds an entry, then keeps the top N by weight against `query` (DH-RAG eq 11–14).
    pub fn insert(
        &mut self,
        scope: &Scope,
        entry: HistoryEntry,
        query: &Terms,
        config: &HistoryConfig,
    ) -> Update {
        let id = entry.input.entry_id();
        let mut changes = vec![changed(scope, id, &entry)];
        let cached = match self.entries.get(&id) {
            None | Some(Held { cached: InCache::No, .. }) => InCache::No,
            Some(_) => InCache::Older,
        };
        self.hold(id, entry, cached);
        self.changed = true;
        if self.entries.len() <= config.max_entries {
            return Update { changes, evicted: Vec::new() };
        }
        let now = self.now();
        let entries = self.entries.iter();
        let weighted =
            entries.map(|(id, held)| self.weigh(*id, held, query, now, config)).collect();
        let mut evicted = Vec::new();
        for (scores, rank) in evict(weighted, config.max_entries, id) {
            let Some(held) = self.entries.remove(&scores.id) else { continue };
            self.record.evictions += 1;
            if held.cached != InCache::No {
                self.gone.push(scores.id);
            }
            let key = EntryKey { scope: scope.clone(), entry: Some(scores.id) };
            changes.push(HistoryChange::Gone { key });
            evicted.push(Evicted {
                turn_id: held.entry.turn_id.clone(),
                relevance: Score::new(scores.relevance),
                recency: Score::new(scores.recency),
                weight: Score::new(scores.weight),
                rank,
                reason: EvictionReason::Capacity,
            });
        }
        Update { changes, evicted }
    }

    /// Completes the latest entry that lacks a response; `None` where every entry has one.
    pub fn complete(
        &mut self,
        scope: &Scope,
        response: &str,
        turn_id: &TurnId,
    ) -> Option<HistoryChange> {
        let waiting = self.entries.iter_mut().rev();
        let (id, held) = waiting.into_iter().find(|(_, held)| held.entry.response.is_none())?;
        let entry = Arc::make_mut(&mut held.entry);
        entry.response = Some(response.to_owned());
        entry.response_turn_id = Some(turn_id.clone());
        held.terms = terms_of(entry);
        if held.cached == InCache::Same {
            held.cached = InCache::Older;
        }
        self.changed = true;
        Some(changed(scope, *id, entry))
    }

    /// The scope's own record as it is published.
    pub fn record(&self, scope: &Scope) -> HistoryChange {
        let key = EntryKey { scope: scope.clone(), entry: None };
        HistoryChange::Scope { key, record: Box::new(self.whole_record()) }
    }

    fn whole_record(&self) -> ScopeRecord {
        let mut record = self.record.clone();
        record.schema_version = SCHEMA_VERSION;
        record.recent_turn_ids = self.remembered.iter().cloned().collect();
        record
    }

    fn hold(&mut self, id: EntryId, entry: HistoryEntry, cached: InCache) {
        let terms = terms_of(&entry);
        self.entries.insert(id, Held { entry: Arc::new(entry), terms, cached });
    }

    fn weigh(
        &self,
        id: EntryId,
        held: &Held,
        query: &Terms,
        now: EventTime,
        config: &HistoryConfig,
    ) -> Weighted {
        let relevance = held.terms.relevance(query);
        let recency = recency(now, held.entry.event_time, config.half_life_seconds);
        Weighted::new(id, relevance, recency, config.alpha)
    }
}

/// What an insertion did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// Changes to publish, in order.
    pub changes: Vec<HistoryChange>,
    /// Entries that left.
    pub evicted: Vec<Evicted>,
}

/// Our records hold text keys and finite numbers only, so writing one to memory cannot fail.
fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_else(|error| unreachable!("a record of ours: {error}"))
}

fn terms_of(entry: &HistoryEntry) -> Terms {
    Terms::of([entry.query.as_deref(), entry.response.as_deref()].into_iter().flatten())
}

fn changed(scope: &Scope, id: EntryId, entry: &HistoryEntry) -> HistoryChange {
    let key = EntryKey { scope: scope.clone(), entry: Some(id) };
    HistoryChange::Entry { key, entry: Box::new(entry.clone()) }
}
