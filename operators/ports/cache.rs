//! The cache of idle scopes: a local copy of the changelog, created with every assignment of a
//! partition and deleted with it. The changelog remains the truth; losing a cache costs only time.
//!
//! The engine supplies an implementation on disk. Replays, tests and the simulation use
//! [`MemoryCache`]. A restoration begins a partition and puts its changelog. `history` loads a
//! scope for its first turn, and puts the scope's changes when it evicts the idle scope.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

use turnstream_schemas::{EntryId, EntryKey, Scope};

/// A record of the changelog, on its way into the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheChange {
    /// The scope, and the entry if it is one.
    pub key: EntryKey,
    /// The value on the changelog; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
}

/// A record of a scope, as loaded from the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    /// The entry; `None` for the scope's own record.
    pub entry: Option<EntryId>,
    /// The value that was put.
    pub value: Vec<u8>,
}

/// The states of scopes, by partition, generation of the partition's assignment, and scope. Only
/// the latest generation of a partition exists.
pub trait ScopeCache: Send + Sync {
    /// Deletes the partition and begins an empty generation of it.
    ///
    /// # Errors
    /// The partition then has no cache and cannot be served.
    fn begin(&self, partition: i32, generation: u32) -> Result<(), CacheError>;

    /// Stores changes in order, all or none. Ignores changes of a generation that no longer exists.
    ///
    /// # Errors
    /// No change was stored.
    fn put(
        &self,
        partition: i32,
        generation: u32,
        changes: Vec<CacheChange>,
    ) -> Result<(), CacheError>;

    /// Returns all records of a scope: the scope's own first, then its entries in log order. `None`
    /// if the generation does not exist: nothing is known of the scope then.
    ///
    /// # Errors
    /// The history of the scope is unknown, so none of its turns can be served.
    fn load(
        &self,
        partition: i32,
        generation: u32,
        scope: &Scope,
    ) -> Result<Option<Vec<Cached>>, CacheError>;

    /// Deletes a scope that will have no more turns.
    ///
    /// # Errors
    /// The scope takes space until its partition is deleted.
    fn forget(&self, partition: i32, generation: u32, scope: &Scope) -> Result<(), CacheError>;

    /// Deletes the partition.
    fn end(&self, partition: i32);
}

/// The error of a cache.
#[derive(Debug, thiserror::Error)]
#[error("history cache {place}: {source}; {remedy}")]
pub struct CacheError {
    /// The location of the cache.
    pub place: String,
    /// The underlying error.
    pub source: Box<dyn Error + Send + Sync>,
    /// The remedy for the user.
    pub remedy: &'static str,
}

/// A cache in memory. It frees little memory, and never fails.
#[derive(Debug, Default)]
pub struct MemoryCache(Mutex<BTreeMap<i32, Generation>>);

#[derive(Debug, Default)]
struct Generation {
    number: u32,
    values: BTreeMap<EntryKey, Vec<u8>>,
}

impl MemoryCache {
    /// The number of records of the partition.
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
