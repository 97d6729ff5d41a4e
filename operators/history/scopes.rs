//! The scopes of one worker: which are in memory, which turn is whose, and which leave for the
//! cache.
//!
//! A scope without a turn in flight is idle. It leaves when it has been idle for long, or when
//! too many are in memory; then whoever was idle longest leaves first. What follows from its
//! next turn is the same in either case. A partition that was never assigned has no cache, and
//! its scopes stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use turnstream_ports::cache::CacheError;
use turnstream_schemas::{RequestId, Scope};

use super::preparation::Prepared;
use super::sequence::{HistoryStep, Sequence, WaitingInput};
use super::{Keeping, Rules, TurnEnd, context_of};
use crate::ingest::Arrived;

/// Scopes that leave together at most: one write of the cache, and what a worker spends on it
/// before it looks at turns again.
const SCOPES_AT_ONCE: usize = 256;

/// Idle scopes are looked for at whole multiples of this, so that many leave together.
const LOOK_MS: u64 = 1_000;

/// How often a cache that cannot be written to is told of.
const TELL_MS: u64 = 60_000;

/// When idle scopes must be looked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Not before a turn comes, or as it was said before.
    Never,
    /// At this time.
    At(u64),
    /// As soon as others had their turn.
    Now,
}

/// Partition and scope.
type Key = (i32, Scope);

/// The scopes of one worker.
pub(super) struct Scopes {
    rules: Rules,
    keeping: Keeping,
    generations: FxHashMap<i32, u32>,
    open: FxHashMap<Key, OpenScope>,
    /// Open scopes that may leave, by the number of their last turn's end.
    idle: BTreeMap<u64, Idle>,
    next_idle: u64,
    max_open: usize,
    /// When the worker will be woken to look for idle scopes.
    armed_ms: Option<u64>,
    /// When the cache is tried again that would not be written to.
    retry_ms: u64,
    told_ms: Option<u64>,
}

/// A scope in memory.
struct OpenScope {
    // Boxed: the map has up to twice the room that it needs.
    sequence: Box<Sequence>,
    /// Its place among those that may leave.
    idle: Option<u64>,
}

struct Idle {
    since_ms: u64,
    key: Key,
}

impl Scopes {
    /// No scopes, on one of so many workers.
    pub(super) fn new(rules: Rules, keeping: Keeping, workers: usize) -> Self {
        let max_open = rules.config.max_scopes_in_memory.div_ceil(workers.max(1));
        Self {
            rules,
            keeping,
            generations: FxHashMap::default(),
            open: FxHashMap::default(),
            idle: BTreeMap::new(),
            next_idle: 0,
            max_open,
            armed_ms: None,
            retry_ms: 0,
            told_ms: None,
        }
    }

    /// Takes in what `history` receives from ingest.
    pub(super) fn arrived(&mut self, arrived: Arrived) -> Vec<HistoryStep> {
        match arrived {
            Arrived::Turn(turn) => return self.input(WaitingInput::Turn(turn)),
            Arrived::Forget(forget) => return self.input(WaitingInput::Forget(forget)),
            Arrived::Ended { partition, scope } => self.ended(&(partition, scope)),
            Arrived::Assigned { partition, generation, .. } => {
                self.drop_partition(partition);
                self.generations.insert(partition, generation);
            }
            Arrived::Revoked { partition, .. } => {
                self.drop_partition(partition);
                self.generations.remove(&partition);
            }
        }
        Vec::new()
    }

    /// Takes back what became of a turn; `None` where nobody waits for it any more.
    pub(super) fn answered(&mut self, answer: TurnEnd) -> Option<Vec<HistoryStep>> {
        let context = Arc::clone(context_of(&answer));
        let key = (context.request.partition, context.scope.clone());
        let open = self.open.get_mut(&key)?;
        let steps = open.sequence.answered(context.request, answer, &self.rules)?;
        self.keeping.awaited.answered(context.request);
        if let Some(next) = open.sequence.asked() {
            self.keeping.awaited.ask(next);
        }
        self.settle(key);
        Some(steps)
    }

    fn input(&mut self, input: WaitingInput) -> Vec<HistoryStep> {
        let RequestId { partition, generation, .. } = input.request();
        // An input read under an older assignment will be read again under the new one.
        if self.generations.get(&partition).is_some_and(|current| *current != generation) {
            return Vec::new();
        }
        let key = (partition, input.scope().clone());
        if !self.open.contains_key(&key) {
            let Some(sequence) = self.load(&key, generation) else { return Vec::new() };
            self.open.insert(key.clone(), OpenScope { sequence: Box::new(sequence), idle: None });
        }
        let Some(open) = self.open.get_mut(&key) else { return Vec::new() };
        if let Some(place) = open.idle.take() {
            self.idle.remove(&place);
        }
        let before = open.sequence.asked();
        let steps = open.sequence.arrive(input, &self.rules);
        let now = open.sequence.asked();
        if now != before {
            // An agent overtook the one before.
            before.into_iter().for_each(|request| self.keeping.awaited.give_up(request));
            now.into_iter().for_each(|request| self.keeping.awaited.ask(request));
        }
        self.settle(key);
        steps
    }

    /// Takes back a turn that was prepared; `None` where nobody waits for it any more.
    pub(super) fn prepared(&mut self, prepared: Prepared) -> Option<Vec<HistoryStep>> {
        let context = prepared.context();
        let open = self.open.get_mut(&(context.request.partition, context.scope.clone()))?;
        open.sequence.prepared(prepared, &self.rules)
    }

    /// A scope as it stands in the cache; `None` where the partition was assigned anew or revoked
    /// meanwhile, so that the input will be read again.
    fn load(&self, key: &Key, generation: u32) -> Option<Sequence> {
        let (partition, scope) = key;
        let mut sequence = Sequence::new(scope.clone(), *partition, generation);
        if !self.generations.contains_key(partition) {
            return Some(sequence);
        }
        let loaded = self.keeping.cache.load(*partition, generation, scope);
        for record in loaded.unwrap_or_else(|error| panic!("scope {scope}: {error}"))? {
            let restored = sequence.database_mut().restore(&record, &self.rules.similarity);
            restored.unwrap_or_else(|error| {
                let what = record.entry.map_or("own record".to_owned(), |id| format!("entry {id}"));
                panic!(
                    "history topic, partition {partition}: the {what} of scope {scope}: {error}; \
                     the topic must hold nothing but this engine's histories"
                )
            });
        }
        sequence.database_mut().restored(&self.rules.config);
        Some(sequence)
    }

    /// Looks at a scope that an input or an answer came to: it may be over, or idle.
    fn settle(&mut self, key: Key) {
        let Some(open) = self.open.get_mut(&key) else { return };
        if open.sequence.is_retired() {
            self.retire(&key);
        } else if open.sequence.is_idle() && self.generations.contains_key(&key.0) {
            open.idle = Some(self.next_idle);
            let idle = Idle { since_ms: self.keeping.timers.now_ms(), key };
            self.idle.insert(self.next_idle, idle);
            self.next_idle += 1;
        }
    }

    /// The last turn of a scope was refused.
    fn ended(&mut self, key: &Key) {
        match self.open.get_mut(key).map(|open| open.sequence.retire()) {
            Some(true) => self.retire(key),
            Some(false) => {}
            None => self.forget(key),
        }
    }

    fn retire(&mut self, key: &Key) {
        let Some(open) = self.open.remove(key) else { return };
        if let Some(place) = open.idle {
            self.idle.remove(&place);
        }
        if open.sequence.database().is_cached() {
            self.forget(key);
        }
    }

    fn forget(&self, (partition, scope): &Key) {
        if let Some(generation) = self.generations.get(partition) {
            // Where it fails the records take room until the partition goes, and nobody asks.
            let _ = self.keeping.cache.forget(*partition, *generation, scope);
        }
    }

    fn drop_partition(&mut self, partition: i32) {
        for (_, gone) in self.open.extract_if(|(of, _), _| *of == partition) {
            gone.sequence.asked().into_iter().for_each(|of| self.keeping.awaited.give_up(of));
        }
        self.idle.retain(|_, idle| idle.key.0 != partition);
    }

    /// Lets idle scopes go, and says when to look again.
    pub(super) fn evict_idle(&mut self) -> Next {
        let now_ms = self.keeping.timers.now_ms();
        let idle_ms = self.rules.config.idle_after_seconds.saturating_mul(1_000);
        let mut expired = 0;
        while now_ms >= self.retry_ms {
            let over = self.open.len().saturating_sub(self.max_open);
            let leave = self.idle.values().take(SCOPES_AT_ONCE).zip(0..);
            let leave = leave.take_while(|(idle, place)| {
                *place < over || idle.since_ms.saturating_add(idle_ms) <= now_ms
            });
            let leave = leave.count();
            if leave == 0 {
                break;
            }
            if let Err(error) = self.leave(leave) {
                self.retry_ms = now_ms.saturating_add(LOOK_MS);
                self.tell(&error, now_ms);
            }
            // Too many go at once, however many they are; the others can wait a little.
            expired += leave.saturating_sub(over);
            if expired >= SCOPES_AT_ONCE {
                return Next::Now;
            }
        }
        self.next_look(now_ms, idle_ms)
    }

    fn next_look(&mut self, now_ms: u64, idle_ms: u64) -> Next {
        let Some((_, first)) = self.idle.first_key_value() else { return Next::Never };
        if self.armed_ms.is_some_and(|armed_ms| armed_ms > now_ms) {
            return Next::Never;
        }
        let due_ms = first.since_ms.saturating_add(idle_ms).max(self.retry_ms).max(now_ms + 1);
        let at_ms = due_ms.div_ceil(LOOK_MS).saturating_mul(LOOK_MS);
        self.armed_ms = Some(at_ms);
        Next::At(at_ms)
    }

    /// The first idle scopes go to the cache. Those that it does not take stay, as if their last
    /// turn had just ended.
    fn leave(&mut self, count: usize) -> Result<(), CacheError> {
        let mut by_partition: BTreeMap<i32, Vec<(u64, Scope)>> = BTreeMap::new();
        for (place, Idle { key: (partition, scope), .. }) in self.idle.iter().take(count) {
            by_partition.entry(*partition).or_default().push((*place, scope.clone()));
        }
        let mut failed = Ok(());
        for (partition, scopes) in by_partition {
            let generation = self.generations.get(&partition).copied().unwrap_or_default();
            let keys = scopes.iter().map(|(_, scope)| (partition, scope.clone()));
            let open = keys.filter_map(|key| self.open.get(&key));
            let changes =
                open.flat_map(|open| open.sequence.database().unsaved(open.sequence.scope()));
            let put = self.keeping.cache.put(partition, generation, changes.collect());
            for (place, scope) in scopes {
                self.idle.remove(&place);
                let key = (partition, scope);
                if put.is_ok() {
                    self.open.remove(&key);
                } else {
                    self.settle(key);
                }
            }
            failed = failed.and(put);
        }
        failed
    }

    fn tell(&mut self, error: &CacheError, now_ms: u64) {
        if self.told_ms.is_none_or(|told_ms| now_ms >= told_ms.saturating_add(TELL_MS)) {
            self.told_ms = Some(now_ms);
            tracing::warn!(%error, in_memory = self.open.len(), "idle scopes stay in memory");
        }
    }

    /// How many scopes are in memory.
    pub(super) fn in_memory(&self) -> usize {
        self.open.len()
    }

    /// The scopes in memory.
    #[cfg(test)]
    pub(super) fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.open.values().map(|open| &*open.sequence)
    }
}

#[cfg(test)]
mod tests;
