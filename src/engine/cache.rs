//! The cache of histories on disk, on LMDB. A restoration writes changelogs into it, and it holds
//! idle scopes. No other process ever reads it.
//!
//! Each process creates its own folder within the configured one and locks it as long as the
//! process lives. It removes the folders of dead processes. Each partition has its own environment,
//! so that a partition frees its disk space as soon as it is given back, and no partition waits for
//! the writes of another. Nothing is ever synced: after a crash of the machine the folder is only
//! removed.
//!
//! Scopes of a partition are numbered in the order of their appearance. The key of a record is the
//! number of its scope, followed by its entry. Records that are written together therefore lie
//! together: a changelog holds few conversations at a time, and keys in random order would write
//! the same pages again and again. LMDB's keys are short and scopes can be long, so a keyed 128-bit
//! hash of the scope leads to its number. Every process draws a new key for the hash, so no client
//! can choose two scopes that collide. The probability that any two of a billion scopes collide by
//! chance is below 10⁻²⁰.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use heed::types::Bytes;
use heed::{
    AnyTls, CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, MdbError, RoTxn, RwTxn,
    WithoutTls,
};
use rustc_hash::FxHashMap;
use turnstream_ports::cache::{CacheChange, CacheError, Cached, ScopeCache};
use turnstream_ports::cache_folder::writable_folder;
use turnstream_schemas::{EntryId, Scope};

use crate::config::RunConfig;

/// The folder within the user's cache folder.
const FOLDER: &str = "histories";
/// Locked while folders are created and removed.
const FOLDERS_LOCK: &str = "folders.lock";
/// Locked by the process that owns the folder.
const OWNER_LOCK: &str = "in-use.lock";
/// Databases of a partition: numbers and records.
const DATABASES: u32 = 2;
/// Most threads that read at once: the largest number of workers, and some spare.
const READERS: u32 = 512;

/// The cache of one process.
pub struct DiskCache {
    folder: PathBuf,
    map_size: usize,
    hash: RandomState,
    partitions: RwLock<BTreeMap<i32, Arc<CachePartition>>>,
    /// Stays locked until the cache is dropped.
    _lock: File,
}

/// One generation of a partition.
struct CachePartition {
    generation: u32,
    folder: PathBuf,
    env: Env<WithoutTls>,
    tables: Tables,
}

/// The two databases of a partition.
struct Tables {
    /// Maps the hash of a scope to its number. Numbers only rise.
    numbers: Database<'static, Bytes, Bytes>,
    /// Maps a [`record_key`] to the record's value.
    records: Database<'static, Bytes, Bytes>,
    /// Above all numbers in use.
    next_number: AtomicU64,
}

/// The hash of a scope.
type Hash = [u8; 16];
/// The number of a scope, big-endian, so that keys sort by number.
type Number = [u8; 8];
/// The number of the scope, then 0 for the scope's own record, or 1 with partition and offset of
/// the entry.
type RecordKey = [u8; 21];

impl DiskCache {
    /// Opens the configured cache.
    ///
    /// # Errors
    /// A folder cannot be created, locked or read.
    pub fn open(config: &RunConfig) -> Result<Self, CacheError> {
        Self::open_in(&Self::parent(config), config.cache_map_size_mib)
    }

    /// The folder in which each process creates its own.
    pub fn parent(config: &RunConfig) -> PathBuf {
        let named = config.cache_directory.clone();
        let parent = named.or_else(|| Some(writable_folder()?.join(FOLDER)));
        parent.unwrap_or_else(|| std::env::temp_dir().join("turnstream-histories"))
    }

    /// Opens a cache in a new folder within `parent`.
    ///
    /// # Errors
    /// A folder cannot be created, locked or read.
    pub fn open_in(parent: &Path, map_size_mib: usize) -> Result<Self, CacheError> {
        let (folder, lock) = own_folder(parent).map_err(|source| CacheError {
            place: parent.display().to_string(),
            source: source.into(),
            remedy: "set run.cache_directory to a writable folder on a local disk",
        })?;
        tracing::debug!(folder = %folder.display(), "histories of idle scopes");
        let (map_size, hash) = (map_size_mib.saturating_mul(1 << 20), RandomState::new());
        Ok(Self { folder, map_size, hash, partitions: RwLock::default(), _lock: lock })
    }

    /// The folder of this process.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn held(&self, partition: i32, generation: u32) -> Option<Arc<CachePartition>> {
        let partitions = self.partitions.read().unwrap_or_else(PoisonError::into_inner);
        partitions.get(&partition).filter(|held| held.generation == generation).cloned()
    }

    /// Replaces a partition.
    fn replace(&self, partition: i32, with: Option<Arc<CachePartition>>) {
        let mut partitions = self.partitions.write().unwrap_or_else(PoisonError::into_inner);
        let gone = match with {
            Some(with) => partitions.insert(partition, with),
            None => partitions.remove(&partition),
        };
        drop(partitions);
        // The last reader of a partition removes its files.
        drop(gone);
    }

    fn hash(&self, scope: &Scope) -> Hash {
        let half = |half: u8| self.hash.hash_one((half, scope));
        (u128::from(half(0)) << 64 | u128::from(half(1))).to_be_bytes()
    }
}

fn record_key(number: Number, entry: Option<EntryId>) -> RecordKey {
    let mut key = [0; 21];
    key[..8].copy_from_slice(&number);
    if let Some(EntryId { partition, offset }) = entry {
        key[8] = 1;
        // Flipping the sign bit makes big-endian bytes sort like the numbers.
        key[9..13].copy_from_slice(&(partition ^ i32::MIN).to_be_bytes());
        key[13..].copy_from_slice(&(offset ^ i64::MIN).to_be_bytes());
    }
    key
}

fn entry_of(key: &[u8]) -> Option<EntryId> {
    let (partition, offset) = key.get(8..)?.strip_prefix(&[1])?.split_first_chunk::<4>()?;
    let partition = i32::from_be_bytes(*partition) ^ i32::MIN;
    let offset = i64::from_be_bytes(*offset.first_chunk::<8>()?) ^ i64::MIN;
    Some(EntryId { partition, offset })
}

impl Tables {
    fn make(env: &Env<WithoutTls>) -> heed::Result<Self> {
        let txn = env.write_txn()?;
        let made = env.create_databases_and_commit(txn, |databases, txn| {
            let numbers = databases.create_database::<Bytes, Bytes>(txn, Some("numbers"))?;
            let records = databases.create_database::<Bytes, Bytes>(txn, Some("records"))?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit((numbers, records)))
        })?;
        match made {
            CommitOrAbort::Commit((numbers, records)) => {
                Ok(Self { numbers, records, next_number: AtomicU64::new(0) })
            }
            CommitOrAbort::Abort(()) => unreachable!("it commits"),
        }
    }

    fn number(&self, txn: &RoTxn<'_, AnyTls>, hash: &Hash) -> heed::Result<Option<Number>> {
        let number = self.numbers.get(txn, hash)?;
        Ok(number.and_then(|number| number.try_into().ok()))
    }

    /// Writes changes. Later ones overwrite earlier ones.
    fn put(
        &self,
        txn: &mut RwTxn<'_>,
        changes: Vec<(Hash, Option<EntryId>, Option<Vec<u8>>)>,
    ) -> heed::Result<()> {
        let mut numbers: FxHashMap<Hash, Number> = FxHashMap::default();
        let mut sorted = Vec::with_capacity(changes.len());
        for (hash, entry, value) in changes {
            let known = match numbers.get(&hash) {
                Some(number) => Some(*number),
                None => self.number(txn, &hash)?,
            };
            let number = match known {
                Some(number) => number,
                // An unknown scope has no records to remove.
                None if value.is_none() => continue,
                None => {
                    // A failed write leaves a gap in the numbers, which does no harm.
                    let number = self.next_number.fetch_add(1, Ordering::Relaxed).to_be_bytes();
                    self.numbers.put(txn, &hash, &number)?;
                    number
                }
            };
            numbers.insert(hash, number);
            sorted.push((record_key(number, entry), value));
        }
        // The sort is stable, so the last of equal keys is written last.
        sorted.sort_by_key(|(key, _)| *key);
        for (key, value) in sorted {
            match value {
                Some(value) => self.records.put(txn, &key, &value)?,
                None => drop(self.records.delete(txn, &key)?),
            }
        }
        Ok(())
    }
}

impl ScopeCache for DiskCache {
    fn begin(&self, partition: i32, generation: u32) -> Result<(), CacheError> {
        self.replace(partition, None);
        let folder = self.folder.join(format!("{partition}-{generation}"));
        let begun = CachePartition::make(folder, generation, self.map_size)?;
        self.replace(partition, Some(Arc::new(begun)));
        Ok(())
    }

    fn put(
        &self,
        partition: i32,
        generation: u32,
        changes: Vec<CacheChange>,
    ) -> Result<(), CacheError> {
        let Some(held) = self.held(partition, generation).filter(|_| !changes.is_empty()) else {
            return Ok(());
        };
        let changes = changes
            .into_iter()
            .map(|CacheChange { key, value }| (self.hash(&key.scope), key.entry, value));
        let changes: Vec<_> = changes.collect();
        held.write(|tables, txn| tables.put(txn, changes))
    }

    fn load(
        &self,
        partition: i32,
        generation: u32,
        scope: &Scope,
    ) -> Result<Option<Vec<Cached>>, CacheError> {
        let Some(held) = self.held(partition, generation) else { return Ok(None) };
        let hash = self.hash(scope);
        let read = || {
            let txn = held.env.read_txn()?;
            let Some(number) = held.tables.number(&txn, &hash)? else { return Ok(Vec::new()) };
            let records = held.tables.records.prefix_iter(&txn, &number)?;
            records
                .map(|record| {
                    let (key, value) = record?;
                    Ok(Cached { entry: entry_of(key), value: value.to_vec() })
                })
                .collect::<heed::Result<_>>()
        };
        read().map(Some).map_err(|source| storage_error(&held.folder, source))
    }

    fn forget(&self, partition: i32, generation: u32, scope: &Scope) -> Result<(), CacheError> {
        let Some(held) = self.held(partition, generation) else { return Ok(()) };
        let hash = self.hash(scope);
        held.write(|tables, txn| {
            let Some(number) = tables.number(txn, &hash)? else { return Ok(()) };
            let keys = tables.records.prefix_iter(txn, &number)?.map(|of| Ok(of?.0.to_vec()));
            for key in keys.collect::<heed::Result<Vec<_>>>()? {
                tables.records.delete(txn, &key)?;
            }
            tables.numbers.delete(txn, &hash).map(drop)
        })
    }

    fn end(&self, partition: i32) {
        self.replace(partition, None);
    }
}

impl Drop for DiskCache {
    fn drop(&mut self) {
        self.partitions.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        // The next process removes what is left.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl CachePartition {
    fn make(folder: PathBuf, generation: u32, map_size: usize) -> Result<Self, CacheError> {
        let make = || {
            // An interrupted restore may have left files.
            match std::fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
            std::fs::create_dir_all(&folder)?;
            let env = open_environment(&folder, map_size)?;
            let tables = Tables::make(&env)?;
            Ok((env, tables))
        };
        match make() {
            Ok((env, tables)) => Ok(Self { generation, folder, env, tables }),
            Err(source) => Err(storage_error(&folder, source)),
        }
    }

    fn write(
        &self,
        change: impl FnOnce(&Tables, &mut RwTxn<'_>) -> heed::Result<()>,
    ) -> Result<(), CacheError> {
        let write = || {
            let mut txn = self.env.write_txn()?;
            change(&self.tables, &mut txn)?;
            txn.commit()
        };
        write().map_err(|source| storage_error(&self.folder, source))
    }
}

impl Drop for CachePartition {
    fn drop(&mut self) {
        // The files stay mapped until the environment is dropped, a moment later.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[allow(unsafe_code)]
fn open_environment(folder: &Path, map_size: usize) -> heed::Result<Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(map_size).max_readers(READERS).max_dbs(DATABASES);
    // SAFETY: without syncs a crash of the machine may damage the file, and no process opens it
    // again: the next one removes it. Scopes are read at random, so read-ahead would only fill
    // memory.
    unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC | EnvFlags::NO_READ_AHEAD) };
    // SAFETY: LMDB maps the file, so no other process may change it meanwhile. The folder is new
    // and belongs to this process; its lock file keeps every other turnstream from removing it.
    unsafe { options.open(folder) }
}

fn storage_error(folder: &Path, source: heed::Error) -> CacheError {
    let remedy = match &source {
        heed::Error::Mdb(MdbError::MapFull) => {
            "it has reached run.cache_map_size_mib; raise it and start again"
        }
        heed::Error::Io(_) => {
            "make room on the disk, or set run.cache_directory to another writable folder on a \
             local disk, and start again"
        }
        _ => "start again; it is rebuilt from the history topic",
    };
    CacheError { place: folder.display().to_string(), source: source.into(), remedy }
}

/// Creates and locks a new folder within `parent`, and removes the folders of dead processes.
fn own_folder(parent: &Path) -> io::Result<(PathBuf, File)> {
    std::fs::create_dir_all(parent)?;
    let folders = File::create(parent.join(FOLDERS_LOCK))?;
    // Every starting process holds this lock for a moment. Closing the file releases it.
    folders.lock()?;
    for folder in std::fs::read_dir(parent)? {
        let folder = folder?.path();
        if folder.is_dir() && is_left(&folder)? {
            std::fs::remove_dir_all(&folder)?;
        }
    }
    for number in 0.. {
        let folder = parent.join(format!("{}-{number}", std::process::id()));
        match std::fs::create_dir(&folder) {
            Ok(()) => {
                let lock = File::create(folder.join(OWNER_LOCK))?;
                lock.lock()?;
                return Ok((folder, lock));
            }
            // The folder belongs to another machine or container, which numbers its processes
            // independently.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    unreachable!("there is always another number")
}

/// Whether the folder belongs to a turnstream process that has ended.
fn is_left(folder: &Path) -> io::Result<bool> {
    match File::options().write(true).open(folder.join(OWNER_LOCK)).map(|lock| lock.try_lock()) {
        Ok(Ok(())) => Ok(true),
        Ok(Err(TryLockError::WouldBlock)) => Ok(false),
        Ok(Err(TryLockError::Error(error))) => Err(error),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
