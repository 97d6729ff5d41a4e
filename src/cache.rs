//! The cache of histories on disk, on LMDB: where a changelog is restored to, and where scopes lie
//! while they are idle. Nothing in it is ever read again by another process.
//!
//! Each process makes a folder of its own within the configured one, locked as long as it lives,
//! and removes those that dead processes left. Each partition has an environment of its own, so
//! that a partition that goes takes its disk space with it at once, and no partition waits for
//! another's writes. Nothing is ever synced: after a crash of the machine the folder is only
//! removed.
//!
//! A partition's scopes are numbered as they first appear, and a record lies under the number of
//! its scope, then its entry. What is written at one time so lies together: a changelog tells of
//! few conversations at once, and pages in random order would each be written again and again.
//! LMDB's keys are short and scopes need not be, so the number is found under a keyed 128-bit hash
//! of the scope. The key of the hash is drawn anew by every process, so nobody can choose two
//! scopes that meet; that any two of a billion meet by chance has a likelihood below 10⁻²⁰.

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
/// Held while folders are made and removed.
const FOLDERS_LOCK: &str = "folders.lock";
/// Held by the process whose folder it is.
const OWNER_LOCK: &str = "in-use.lock";
/// Databases of a partition: numbers and records.
const DATABASES: u32 = 2;
/// Threads that may read at once: all workers that a process can have, and some.
const READERS: u32 = 512;

/// The cache of one process.
pub struct DiskCache {
    folder: PathBuf,
    map_size: usize,
    hash: RandomState,
    partitions: RwLock<BTreeMap<i32, Arc<Partition>>>,
    /// Held locked as long as this lives.
    _lock: File,
}

/// One generation of a partition.
struct Partition {
    generation: u32,
    folder: PathBuf,
    env: Env<WithoutTls>,
    tables: Tables,
}

/// What a partition holds.
struct Tables {
    /// The hash of a scope: its number, which only rises.
    numbers: Database<'static, Bytes, Bytes>,
    /// A [`record_key`]: the value.
    records: Database<'static, Bytes, Bytes>,
    /// Above all numbers that were given.
    next_number: AtomicU64,
}

/// The hash of a scope.
type Hash = [u8; 16];
/// The number of a scope, so that bytes are ordered as numbers are.
type Number = [u8; 8];
/// The number of the scope; then 0 for its own record, or 1, partition and offset of the entry.
type RecordKey = [u8; 21];

impl DiskCache {
    /// The cache that the configuration asks for.
    ///
    /// # Errors
    /// A folder cannot be made, locked or read.
    pub fn open(config: &RunConfig) -> Result<Self, CacheError> {
        Self::open_in(&Self::parent(config), config.cache_map_size_mib)
    }

    /// The folder in which a process makes one of its own.
    pub fn parent(config: &RunConfig) -> PathBuf {
        let named = config.cache_directory.clone();
        let parent = named.or_else(|| Some(writable_folder()?.join(FOLDER)));
        parent.unwrap_or_else(|| std::env::temp_dir().join("turnstream-histories"))
    }

    /// A cache in a new folder within this one.
    ///
    /// # Errors
    /// A folder cannot be made, locked or read.
    pub fn open_in(parent: &Path, map_size_mib: usize) -> Result<Self, CacheError> {
        let (folder, lock) = own_folder(parent).map_err(|source| CacheError {
            place: parent.display().to_string(),
            source: source.into(),
            remedy: "name a folder on a local disk that can be written to, in run.cache_directory",
        })?;
        tracing::debug!(folder = %folder.display(), "histories of idle scopes");
        let (map_size, hash) = (map_size_mib.saturating_mul(1 << 20), RandomState::new());
        Ok(Self { folder, map_size, hash, partitions: RwLock::default(), _lock: lock })
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn held(&self, partition: i32, generation: u32) -> Option<Arc<Partition>> {
        let partitions = self.partitions.read().unwrap_or_else(PoisonError::into_inner);
        partitions.get(&partition).filter(|held| held.generation == generation).cloned()
    }

    /// Puts a partition in the place of the one that is there.
    fn replace(&self, partition: i32, with: Option<Arc<Partition>>) {
        let mut partitions = self.partitions.write().unwrap_or_else(PoisonError::into_inner);
        let gone = match with {
            Some(with) => partitions.insert(partition, with),
            None => partitions.remove(&partition),
        };
        drop(partitions);
        // Its files go with its last reader.
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
        // With the sign turned over, bytes are ordered as numbers are.
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

    /// Writes changes, later ones over earlier ones.
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
                // Of a scope that is not there, nothing has to be removed.
                None if value.is_none() => continue,
                None => {
                    // Where the write fails the number is lost, and nobody misses it.
                    let number = self.next_number.fetch_add(1, Ordering::Relaxed).to_be_bytes();
                    self.numbers.put(txn, &hash, &number)?;
                    number
                }
            };
            numbers.insert(hash, number);
            sorted.push((record_key(number, entry), value));
        }
        // Stable: of equal keys the last is written last.
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
        let begun = Partition::make(folder, generation, self.map_size)?;
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
        // What is left is removed by the next process.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Partition {
    fn make(folder: PathBuf, generation: u32, map_size: usize) -> Result<Self, CacheError> {
        let make = || {
            // Left by a restoration that was broken off.
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

impl Drop for Partition {
    fn drop(&mut self) {
        // The files are mapped until the environment goes, a moment later.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[allow(unsafe_code)]
fn open_environment(folder: &Path, map_size: usize) -> heed::Result<Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(map_size).max_readers(READERS).max_dbs(DATABASES);
    // SAFETY: without syncs a crash of the machine may leave the file damaged, and nobody opens it
    // again: the next process removes it. Scopes are read at random, so reading ahead would only
    // fill memory.
    unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC | EnvFlags::NO_READ_AHEAD) };
    // SAFETY: LMDB maps the file, so nobody else may change it meanwhile. The folder is new and
    // this process's own; its lock file keeps every other turnstream from removing it.
    unsafe { options.open(folder) }
}

fn storage_error(folder: &Path, source: heed::Error) -> CacheError {
    let remedy = match &source {
        heed::Error::Mdb(MdbError::MapFull) => {
            "it has reached run.cache_map_size_mib; raise it and start again"
        }
        heed::Error::Io(_) => {
            "make room on a local disk that can be written to, or name another folder in \
             run.cache_directory, and start again"
        }
        _ => "start again, and it is made anew from the history topic",
    };
    CacheError { place: folder.display().to_string(), source: source.into(), remedy }
}

/// Makes and locks a new folder within this one, and removes those of processes that are gone.
fn own_folder(parent: &Path) -> io::Result<(PathBuf, File)> {
    std::fs::create_dir_all(parent)?;
    let folders = File::create(parent.join(FOLDERS_LOCK))?;
    // Held for a moment by everybody who starts; given back when the file is closed.
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
            // Another machine's, or another container's, whose processes have numbers of their own.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    unreachable!("there is always another number")
}

/// Whether the folder is one of ours and its process is gone.
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
