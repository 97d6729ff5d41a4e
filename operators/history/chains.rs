//! Chains of thought: which entries of a history follow from each other (DH-RAG eq 22–24).
//!
//! An entry extends the chain whose last entry it is most like, or starts one. A turn that refers
//! back ("what about the second one?") continues the exchange before it, whatever its words are
//! like. Chains are bounded in length, and only those that were extended lately can be extended:
//! the authors' code follows a chain over five steps of likeness 0.4 or more. An entry that is
//! evicted leaves its chain, whose other entries stay in their order.

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
    pub max_entries: u32,
    /// Likeness to a chain's last entry from which on an entry extends it, 0..=1.
    pub min_likeness: f64,
    /// Chains that an entry may extend at most: those that were extended last, from 1.
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
    /// The last entry of each chain, and the chain: the open ones are the latest of these.
    ends: BTreeSet<(i64, u32)>,
    /// The number of the next chain: none is given twice.
    next: u32,
}

impl Chains {
    /// The chains by number, each with the offsets of its entries, oldest first.
    pub fn all(&self) -> impl Iterator<Item = (u32, &[i64])> {
        self.chains.iter().map(|(number, entries)| (*number, entries.as_slice()))
    }

    /// The chain of an entry: its number and the offsets of its entries, oldest first.
    pub fn of(&self, entry: i64) -> Option<(u32, &[i64])> {
        let number = self.chain_of.get(&entry)?;
        Some((*number, self.chains.get(number)?))
    }

    /// Takes the latest entry in: it extends a chain or starts one. `refers_back` says that it
    /// continues the exchange before it; `text_of` gives what an entry says.
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
            // Among those that are left, the first is the exchange before, unless that one's
            // chain is full: then what follows it starts anew.
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

    /// Takes an entry away; the others of its chain stay in order.
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

    /// What is kept in the scope's record. The number of the next chain apart.
    pub fn records(&self) -> (Vec<ChainRecord>, u32) {
        let record = |(id, entries): (u32, &[i64])| ChainRecord { id, entries: entries.to_vec() };
        (self.all().map(record).collect(), self.next)
    }

    /// The chains as they were. Entries that are not there are left out.
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
