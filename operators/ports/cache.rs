//! Where idle scopes lie: a local copy of the changelog, made anew with every assignment of a
//! partition and thrown away with it. The changelog stays the truth; nothing is lost with a
//! cache but time.
//!
//! A port: the engine brings an implementation on disk, and [`MemoryCache`] stands here for
//! replays, tests and the simulation. Who restores a partition begins it and puts its changelog;
//! `history` loads a scope for its first turn and puts what changed when it lets go of it.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

use turnstream_schemas::{EntryId, EntryKey, Scope};

/// A record of the changelog, as the cache is given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheChange {
    /// What it is about.
    pub key: EntryKey,
    /// The value as it stands on the changelog; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
}

/// A record of a scope, as the cache gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    /// Which entry; `None` for the scope's own record.
    pub entry: Option<EntryId>,
    /// The value as it was put.
    pub value: Vec<u8>,
}

/// The states of scopes, by partition, generation of the partition's assignment, and scope. Of a
/// partition only the generation that began last is there.
pub trait ScopeCache: Send + Sync {
    /// Forgets the partition and begins a generation of it, empty.
    ///
    /// # Errors
    /// The partition has no cache then, and cannot be served.
    fn begin(&self, partition: i32, generation: u32) -> Result<(), CacheError>;

    /// Takes changes in, in order, all or none. Those of a generation that is not there are
    /// ignored: its state is gone.
    ///
    /// # Errors
    /// Nothing of it was taken in.
    fn put(
        &self,
        partition: i32,
        generation: u32,
        changes: Vec<CacheChange>,
    ) -> Result<(), CacheError>;

    /// All records of a scope, the scope's own first, then entries as the log is ordered. `None`
    /// where the generation is not there: nothing is known of the scope.
    ///
    /// # Errors
    /// The history of the scope is unknown, and no turn of it can be served.
    fn load(
        &self,
        partition: i32,
        generation: u32,
        scope: &Scope,
    ) -> Result<Option<Vec<Cached>>, CacheError>;

    /// Forgets a scope that will have no turn any more.
    ///
    /// # Errors
    /// It takes room until the partition goes.
    fn forget(&self, partition: i32, generation: u32, scope: &Scope) -> Result<(), CacheError>;

    /// Forgets the partition.
    fn end(&self, partition: i32);
}

/// A cache failed.
#[derive(Debug, thiserror::Error)]
#[error("history cache {place}: {source}; {remedy}")]
pub struct CacheError {
    /// Where it lies.
    pub place: String,
    /// What was said.
    pub source: Box<dyn Error + Send + Sync>,
    /// What would mend it.
    pub remedy: &'static str,
}

/// A cache in memory. It saves little, and never fails.
#[derive(Debug, Default)]
pub struct MemoryCache(Mutex<BTreeMap<i32, Generation>>);

#[derive(Debug, Default)]
struct Generation {
    number: u32,
    values: BTreeMap<EntryKey, Vec<u8>>,
}

impl MemoryCache {
    /// How many records of the partition are there.
    pub fn len(&self, partition: i32) -> usize {
        self.partitions().get(&partition).map_or(0, |generation| generation.values.len())
    }

    fn partitions(&self) -> MutexGuard<'_, BTreeMap<i32, Generation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generation {
    fn keys(&self, scope: &Scope) -> Vec<EntryKey> {
        let first = EntryKey { scope: scope.clone(), entry: None };
        let keys = self.values.range(first..).map(|(key, _)| key);
        keys.take_while(|key| key.scope == *scope).cloned().collect()
    }
}

impl ScopeCache for MemoryCache {
    fn begin(&self, partition: i32, generation: u32) -> Result<(), CacheError> {
        let begun = Generation { number: generation, values: BTreeMap::new() };
        self.partitions().insert(partition, begun);
        Ok(())
    }

    fn put(
        &self,
        partition: i32,
        generation: u32,
        changes: Vec<CacheChange>,
    ) -> Result<(), CacheError> {
        let mut partitions = self.partitions();
        let held = partitions.get_mut(&partition).filter(|held| held.number == generation);
        if let Some(held) = held {
            for CacheChange { key, value } in changes {
                match value {
                    Some(value) => drop(held.values.insert(key, value)),
                    None => drop(held.values.remove(&key)),
                }
            }
        }
        Ok(())
    }

    fn load(
        &self,
        partition: i32,
        generation: u32,
        scope: &Scope,
    ) -> Result<Option<Vec<Cached>>, CacheError> {
        let partitions = self.partitions();
        let held = partitions.get(&partition).filter(|held| held.number == generation);
        Ok(held.map(|held| {
            let keys = held.keys(scope).into_iter();
            keys.map(|key| Cached { value: held.values[&key].clone(), entry: key.entry }).collect()
        }))
    }

    fn forget(&self, partition: i32, generation: u32, scope: &Scope) -> Result<(), CacheError> {
        let mut partitions = self.partitions();
        let held = partitions.get_mut(&partition).filter(|held| held.number == generation);
        if let Some(held) = held {
            for key in held.keys(scope) {
                held.values.remove(&key);
            }
        }
        Ok(())
    }

    fn end(&self, partition: i32) {
        self.partitions().remove(&partition);
    }
}
