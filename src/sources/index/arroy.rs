//! Trees over vectors on disk: arroy (random projection trees as in Annoy) in an LMDB environment.
//! The vectors are in the environment too, so nothing is loaded at start.
//!
//! A writer makes all its changes in one transaction and builds the trees once at the end. One
//! addition costs as much as a thousand (0.15 to 0.5 s at 100,000 vectors), so nothing is written
//! while turns flow. A search opens its own reader, which takes microseconds, on any thread. If
//! fewer than half of the items are candidates, arroy compares each of them, so a filtered search
//! is exact.

use std::num::NonZeroUsize;

use ::arroy::distances::Cosine;
use ::arroy::{Database, Reader, Writer};
use heed::{Env, RoTxn, RwTxn, WithoutTls};
use rand::SeedableRng;
use rand::rngs::StdRng;
use roaring::RoaringBitmap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_ports::index::{Found, Search, SearchError};

use super::is_zero;
use super::scan::{Scan, check_dimensions};

/// The table of an LMDB environment that stores the trees.
pub type TreeTable = Database<'static, Cosine>;

/// The index within the table; there is only one.
const INDEX: u16 = 0;
/// The seed of the trees: the same vectors give the same trees.
const SEED: u64 = 0x7475_726e;

/// How trees are grown and searched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TreeConfig {
    /// Trees; 1 to 512. More find more, and take more room and time to build.
    #[schemars(range(min = 1, max = 512))]
    pub trees: u32,
    /// How many times more candidates than results the trees give, per tree; 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    pub oversampling: u32,
}

impl Default for TreeConfig {
    fn default() -> Self {
        Self { trees: 50, oversampling: 4 }
    }
}

/// Writes vectors within one transaction.
pub struct TreesWriter(Writer<Cosine>);

impl TreesWriter {
    /// Makes a writer for vectors of `dimensions` numbers.
    pub fn new(table: TreeTable, dimensions: usize) -> Self {
        Self(Writer::new(table, INDEX, dimensions))
    }

    /// Sets the vector of an item. A zero vector removes the item, because arroy would treat it as
    /// similar to everything.
    ///
    /// # Errors
    /// The environment cannot be written, or the vector has other dimensions.
    pub fn put(&self, txn: &mut RwTxn<'_>, item: u32, vector: &[f32]) -> ::arroy::Result<()> {
        if is_zero(vector) { self.delete(txn, item) } else { self.0.add_item(txn, item, vector) }
    }

    /// Removes an item.
    ///
    /// # Errors
    /// The environment cannot be written.
    pub fn delete(&self, txn: &mut RwTxn<'_>, item: u32) -> ::arroy::Result<()> {
        self.0.del_item(txn, item).map(drop)
    }

    /// Removes all items.
    ///
    /// # Errors
    /// The environment cannot be written.
    pub fn clear(&self, txn: &mut RwTxn<'_>) -> ::arroy::Result<()> {
        self.0.clear(txn)
    }

    /// Builds the trees after changes. Before that, the table cannot be searched.
    ///
    /// # Errors
    /// The environment cannot be written.
    pub fn build(&self, txn: &mut RwTxn<'_>, config: &TreeConfig) -> ::arroy::Result<()> {
        let mut random = StdRng::seed_from_u64(SEED);
        self.0.builder(&mut random).n_trees(config.trees as usize).build(txn)
    }
}

/// Searches the trees.
pub struct Trees {
    env: Env<WithoutTls>,
    table: TreeTable,
    dimensions: usize,
    oversampling: NonZeroUsize,
    name: String,
}

impl Trees {
    /// The trees of an environment's table; errors use `name`.
    pub fn new(
        env: Env<WithoutTls>,
        table: TreeTable,
        dimensions: usize,
        config: &TreeConfig,
        name: String,
    ) -> Self {
        let oversampling = NonZeroUsize::new(config.oversampling as usize);
        let oversampling = oversampling.unwrap_or(NonZeroUsize::MIN);
        Self { env, table, dimensions, oversampling, name }
    }

    fn reader<'t>(&self, txn: &'t RoTxn<'_>) -> Result<Reader<'t, Cosine>, SearchError> {
        Reader::open(txn, INDEX, self.table).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &dyn std::fmt::Display) -> SearchError {
        SearchError::Unreadable {
            index: self.name.clone(),
            reason: format!("{error}; import the documents again"),
        }
    }

    fn txn(&self) -> Result<RoTxn<'_, WithoutTls>, SearchError> {
        self.env.read_txn().map_err(|error| self.unreadable(&error))
    }

    /// The number of vectors.
    ///
    /// # Errors
    /// The environment cannot be read, or the trees were not built.
    pub fn len(&self) -> Result<u64, SearchError> {
        let txn = self.txn()?;
        Ok(self.reader(&txn)?.n_items())
    }

    /// Whether there are no vectors.
    ///
    /// # Errors
    /// As [`Self::len`].
    pub fn is_empty(&self) -> Result<bool, SearchError> {
        Ok(self.len()? == 0)
    }

    /// Copies the vectors into memory, for an exact scan.
    ///
    /// # Errors
    /// As [`Self::len`].
    pub fn to_scan(&self) -> Result<Scan, SearchError> {
        let txn = self.txn()?;
        let reader = self.reader(&txn)?;
        let mut scan = Scan::new(self.dimensions);
        for item in reader.item_ids() {
            let vector = reader.item_vector(&txn, item).map_err(|error| self.unreadable(&error))?;
            if let Some(vector) = vector {
                scan.push(item, &vector);
            }
        }
        Ok(scan)
    }
}

impl Search for Trees {
    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn search(
        &self,
        query: &[f32],
        limit: usize,
        candidates: Option<&[u32]>,
    ) -> Result<Vec<Found>, SearchError> {
        check_dimensions(self.dimensions, query)?;
        if is_zero(query) || limit == 0 {
            return Ok(Vec::new());
        }
        let candidates: Option<RoaringBitmap> =
            candidates.map(|candidates| candidates.iter().copied().collect());
        let txn = self.txn()?;
        let reader = self.reader(&txn)?;
        let mut search = reader.nns(limit);
        search.oversampling(self.oversampling);
        if let Some(candidates) = &candidates {
            search.candidates(candidates);
        }
        let found = search.by_vector(&txn, query).map_err(|error| self.unreadable(&error))?;
        // arroy returns (1 − cosine) / 2.
        let found = found.into_iter().map(|(item, distance)| Found {
            item,
            similarity: (1.0 - 2.0 * distance).clamp(-1.0, 1.0),
        });
        let mut found: Vec<Found> = found.collect();
        found.sort_by(|a, b| b.similarity.total_cmp(&a.similarity).then(a.item.cmp(&b.item)));
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
