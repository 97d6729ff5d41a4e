//! The scopes of one worker: loads them into memory, passes inputs and answers to them, and moves idle
//! ones to the cache.
//!
//! A scope without a turn in flight is idle. It moves to the cache when it has been idle for long, or
//! when too many scopes are in memory, those that have been idle longest first. Its next turn has the
//! same outcome whether or not it moved. A partition that was never assigned has no cache, and its scopes
//! stay in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use turnstream_ports::cache::CacheError;
use turnstream_schemas::{RequestId, Scope};

use super::preparation::Prepared;
use super::sequence::{HistoryStep, Pause, Sequence, WaitingInput};
use super::{Keeping, Rules, TurnEnd, context_of};
use crate::ingest::Arrived;

/// Scopes that move to the cache in one write at most. It bounds the time that a worker spends on
/// eviction before it turns to inputs again.
const SCOPES_AT_ONCE: usize = 256;

/// The worker looks for idle scopes at whole multiples of this, so that many move together.
const LOOK_MS: u64 = 1_000;

/// The least time between two warnings about a cache that cannot be written.
const TELL_MS: u64 = 60_000;

/// When to look for idle scopes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// No new time: no scope is idle, or a time is set already.
    Never,
    /// At this time.
    At(u64),
    /// As soon as the worker has run its other operators.
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
    /// Idle scopes in memory, numbered in the order in which they became idle.
    idle: BTreeMap<u64, Idle>,
    next_idle: u64,
    max_open: usize,
    /// When the worker will be woken to look for idle scopes.
    armed_ms: Option<u64>,
    /// When to try the cache again after a failed write.
    retry_ms: u64,
    told_ms: Option<u64>,
}

/// A scope in memory.
struct OpenScope {
    // Boxed: the map's capacity is up to twice its length.
    sequence: Box<Sequence>,
    /// Its number among the idle scopes, where it is idle.
    idle: Option<u64>,
}

struct Idle {
    since_ms: u64,
    key: Key,
}

impl Scopes {
    /// Starts without scopes, on one of `workers` workers.
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

    /// Handles what `history` receives from ingest.
    pub(super) fn arrived(&mut self, arrived: Arrived) -> Vec<HistoryStep> {
        match arrived {
            Arrived::Turn(turn) => return self.input(WaitingInput::Turn(turn)),
            Arrived::Directive(of) => return self.input(WaitingInput::Directive(of)),
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

    /// Handles the answer to a turn; `None` where the scope no longer waits for it.
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
        // The consumer will read an input of an older assignment again under the new one.
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
            // An agent's turn superseded the turn that was asked before.
            before.into_iter().for_each(|request| self.keeping.awaited.give_up(request));
            now.into_iter().for_each(|request| self.keeping.awaited.ask(request));
        }
        self.settle(key);
        steps
    }

    /// Handles the end of a wait for fragments; `None` where the scope no longer waits for it.
    pub(super) fn paused(&mut self, pause: &Pause) -> Option<Vec<HistoryStep>> {
        let open = self.open.get_mut(&(pause.request.partition, pause.scope.clone()))?;
        let steps = open.sequence.paused(pause.request, &self.rules)?;
        open.sequence.asked().into_iter().for_each(|request| self.keeping.awaited.ask(request));
        Some(steps)
    }

    /// Handles a prepared turn; `None` where the scope no longer waits for it.
    pub(super) fn prepared(&mut self, prepared: Prepared) -> Option<Vec<HistoryStep>> {
        let context = prepared.context();
        let open = self.open.get_mut(&(context.request.partition, context.scope.clone()))?;
        open.sequence.prepared(prepared, &self.rules)
    }

    /// Loads a scope from the cache; `None` where the partition was assigned again or revoked meanwhile, so
    /// that the consumer will read the input again.
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

    /// Retires a scope after an input or an answer, or notes that it is idle.
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

    /// Retires a scope whose last turn was refused.
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
            // Ignore the error: the records take up room until the partition goes, but no turn asks
            // for them.
            let _ = self.keeping.cache.forget(*partition, *generation, scope);
        }
    }

    fn drop_partition(&mut self, partition: i32) {
        for (_, gone) in self.open.extract_if(|(of, _), _| *of == partition) {
            gone.sequence.asked().into_iter().for_each(|of| self.keeping.awaited.give_up(of));
        }
        self.idle.retain(|_, idle| idle.key.0 != partition);
    }

    /// Moves idle scopes to the cache, and returns when to look again.
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
            // Scopes beyond the bound must leave now, however many they are; expired ones can wait.
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

    /// Moves the first `count` idle scopes to the cache. Those that cannot be written stay, as if their last
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

    /// Returns how many scopes are in memory.
    pub(super) fn in_memory(&self) -> usize {
        self.open.len()
    }

    /// Returns the scopes in memory.
    #[cfg(test)]
    pub(super) fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.open.values().map(|open| &*open.sequence)
    }
}

#[cfg(test)]
mod tests;
