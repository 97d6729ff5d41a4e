//! Storage of the embedded log in a directory, on LMDB. A write is on disk when the call returns,
//! whole or not at all. LMDB gives this guarantee, and no option here weakens it.

use std::fs::{File, TryLockError};
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, MdbError};

use super::super::LogError;
use super::state::{Batch, Storage, Visit};

/// An LMDB environment with one database, used by this process alone.
pub(super) struct Directory {
    path: PathBuf,
    env: Env,
    values: Database<'static, Bytes, Bytes>,
    /// Locked for the lifetime of this value.
    _lock: File,
}

impl Directory {
    pub(super) fn open(path: &Path, map_size_mib: usize) -> Result<Self, LogError> {
        let file = |source| LogError::File { path: path.display().to_string(), source };
        std::fs::create_dir_all(path).map_err(file)?;
        let lock = File::create(path.join("in-use.lock")).map_err(file)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => LogError::Refused(format!(
                "{}: another turnstream has this embedded log open; stop it, or name another \
                 directory",
                path.display()
            )),
            TryLockError::Error(source) => file(source),
        })?;
        let failed = |source| storage_error(path, source);
        let env = open_environment(path, map_size_mib).map_err(failed)?;
        let values = env
            .write_txn()
            .and_then(|txn| {
                env.create_databases_and_commit(txn, |databases, txn| {
                    let values = databases.create_database::<Bytes, Bytes>(txn, None)?;
                    Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(values))
                })
            })
            .map_err(failed)?;
        let CommitOrAbort::Commit(values) = values else {
            return Err(LogError::Refused(format!("{}: LMDB created no database", path.display())));
        };
        Ok(Self { path: path.to_owned(), env, values, _lock: lock })
    }

    fn failed(&self, source: heed::Error) -> LogError {
        storage_error(&self.path, source)
    }
}

#[allow(unsafe_code)]
fn open_environment(path: &Path, map_size_mib: usize) -> heed::Result<Env> {
    let mut options = EnvOpenOptions::new();
    options.map_size(map_size_mib.saturating_mul(1 << 20));
    // SAFETY: LMDB maps the file, so no other program may change it meanwhile. The lock file keeps
    // every other turnstream out, LMDB's own lock keeps out other users of LMDB, and all flags have
    // their safe default values.
    unsafe { options.open(path) }
}

fn storage_error(path: &Path, source: heed::Error) -> LogError {
    let remedy = match &source {
        heed::Error::Mdb(MdbError::MapFull) => {
            "it has reached `log.embedded.map_size_mib`; raise it and start again, nothing is lost"
        }
        heed::Error::Mdb(MdbError::Corrupted | MdbError::Invalid | MdbError::PageNotFound) => {
            "the file is damaged or not LMDB's; restore the directory from a copy, or use a \
             new one"
        }
        heed::Error::Io(_) => {
            "check that the directory is on a local disk with room left, and writable"
        }
        _ => "the last write was not stored; start again",
    };
    LogError::Storage { path: path.display().to_string(), source, remedy }
}

impl Storage for Directory {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LogError> {
        let read = || {
            let txn = self.env.read_txn()?;
            Ok(self.values.get(&txn, key)?.map(<[u8]>::to_vec))
        };
        read().map_err(|source| self.failed(source))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), LogError> {
        let failed = |source| self.failed(source);
        let txn = self.env.read_txn().map_err(failed)?;
        let range = (Bound::Included(from), Bound::Excluded(to));
        for entry in self.values.range(&txn, &range).map_err(failed)? {
            let (key, value) = entry.map_err(failed)?;
            if visit(key, value)? == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, batch: Batch) -> Result<(), LogError> {
        let write = || {
            let mut txn = self.env.write_txn()?;
            for (key, value) in &batch {
                match value {
                    Some(value) => self.values.put(&mut txn, key, value)?,
                    None => {
                        self.values.delete(&mut txn, key)?;
                    }
                }
            }
            txn.commit()
        };
        write().map_err(|source| self.failed(source))
    }
}
