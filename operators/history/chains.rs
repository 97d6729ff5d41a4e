//! Chains of thought: which entries of a history follow from each other (DH-RAG eq 22–24).
//!
//! An entry extends the chain whose last entry it is most like, or starts one. A turn that refers
//! back ("what about the second one?") continues the exchange before it, whatever its words are. Chains
//! are bounded in length (the authors' code follows a chain over five steps of likeness 0.4 or more), and
//! only the chains that were extended last can grow. An evicted entry leaves its chain; the other entries
//! of the chain keep their order.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_schemas::ChainRecord;

use super::likeness::Signature;

/// `[history.chains]`: how entries follow from each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChainsConfig {
    /// Entries of one chain at most, from 1.
    #[schemars(range(min = 1))]
    pub max_entries: u32,
    /// Least likeness to a chain's last entry at which an entry extends the chain, 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_likeness: f64,
    /// Chains that an entry may extend at most, those extended last; from 1.
    #[schemars(range(min = 1))]
    pub max_open: u32,
}

impl Default for ChainsConfig {
    fn default() -> Self {
        Self { max_entries: 5, min_likeness: 0.4, max_open: 32 }
    }
}

/// The chains of one scope. Every entry is in exactly one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chains {
    /// Offsets of the entries, oldest first; none is empty.
    chains: BTreeMap<u32, Vec<i64>>,
    /// The chain of each entry.
    chain_of: FxHashMap<i64, u32>,
    /// The last entry of each chain, and the chain. The latest of these chains are open.
    ends: BTreeSet<(i64, u32)>,
    /// The number of the next chain. Numbers are never reused.
    next: u32,
}

impl Chains {
    /// Returns the chains by number, each with the offsets of its entries, oldest first.
    pub fn all(&self) -> impl Iterator<Item = (u32, &[i64])> {
        self.chains.iter().map(|(number, entries)| (*number, entries.as_slice()))
    }

    /// Returns the chain of an entry: its number and the offsets of its entries, oldest first.
    pub fn of(&self, entry: i64) -> Option<(u32, &[i64])> {
        let number = self.chain_of.get(&entry)?;
        Some((*number, self.chains.get(number)?))
    }

    /// Adds the latest entry: it extends a chain or starts one. `refers_back` says that it continues
    /// the exchange before it; `text_of` gives the signature of an entry.
    pub fn insert<'e>(
        &mut self,
        entry: i64,
        text: &Signature,
        refers_back: bool,
        text_of: impl Fn(i64) -> Option<&'e Signature>,
        config: &ChainsConfig,
    ) {
        let open = self.ends.iter().rev().take(config.max_open as usize);
        let open = open.filter(|(_, number)| self.has_room(*number, config));
        let mut best: Option<(f64, i64, u32)> = None;
        for (place, (end, number)) in open.enumerate() {
            // The first open chain ends in the exchange before, unless that chain is full: then an
            // entry that refers back starts a new chain.
            let before = place == 0 && self.ends.last().is_some_and(|(last, _)| last == end);
            let likeness = match text_of(*end) {
                _ if before && refers_back => 1.0,
                Some(said) => said.likeness(text),
                None => continue,
            };
            let better = best.is_none_or(|(most, ..)| likeness > most);
            if likeness >= config.min_likeness && better {
                best = Some((likeness, *end, *number));
            }
        }
        let number = match best {
            Some((_, end, number)) => {
                self.ends.remove(&(end, number));
                number
            }
            None => {
                self.next += 1;
                self.next - 1
            }
        };
        self.chains.entry(number).or_default().push(entry);
        self.chain_of.insert(entry, number);
        self.ends.insert((entry, number));
    }

    fn has_room(&self, number: u32, config: &ChainsConfig) -> bool {
        let length = self.chains.get(&number).map_or(0, Vec::len);
        length < config.max_entries as usize
    }

    /// Removes an entry; the others of its chain stay in order.
    pub fn remove(&mut self, entry: i64) {
        let Some(number) = self.chain_of.remove(&entry) else { return };
        let Some(entries) = self.chains.get_mut(&number) else { return };
        entries.retain(|other| *other != entry);
        if self.ends.remove(&(entry, number))
            && let Some(last) = entries.last()
        {
            self.ends.insert((*last, number));
        }
        if entries.is_empty() {
            self.chains.remove(&number);
        }
    }

    /// Returns the chains as the scope's record keeps them, and the number of the next chain, or 0 if
    /// it follows the highest there.
    pub fn records(&self) -> (Vec<ChainRecord>, u32) {
        let record = |(id, entries): (u32, &[i64])| ChainRecord { id, entries: entries.to_vec() };
        let follows = self.chains.last_key_value().is_some_and(|(id, _)| id + 1 == self.next);
        (self.all().map(record).collect(), if follows { 0 } else { self.next })
    }

    /// Restores the chains from the scope's record, without entries that no longer exist.
    pub fn restored(records: &[ChainRecord], next: u32, is_there: impl Fn(i64) -> bool) -> Self {
        let mut chains = Self { next, ..Self::default() };
        for ChainRecord { id, entries } in records {
            let entries: Vec<i64> = entries.iter().copied().filter(|at| is_there(*at)).collect();
            chains.next = chains.next.max(id + 1);
            let Some(last) = entries.last() else { continue };
            chains.ends.insert((*last, *id));
            chains.chain_of.extend(entries.iter().map(|entry| (*entry, *id)));
            chains.chains.insert(*id, entries);
        }
        chains
    }
}

#[cfg(test)]
mod tests;
