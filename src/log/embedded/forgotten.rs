//! Transactions that the log gave up and marked nowhere, as Kafka's broker may after a crash (see
//! `kafka/sweep.rs`): for the crash simulation.
//!
//! Such a transaction falls apart: on every partition, and with the positions of a group, its part
//! stays open by itself until a transaction of the same producer ends there, and ends as that one.

use std::collections::BTreeSet;

use super::super::LogError;
use super::codec::{self, Fate, Place, Stored, Unfinished};
use super::state::{Batch, State};

impl State {
    /// Gives up what is open under a transactional id. Gives how many transactions that were.
    pub(super) fn forget_open(&mut self, owner: &str) -> Result<usize, LogError> {
        let open = self.of(owner, Fate::Open);
        let mut batch = Batch::new();
        for transaction in &open {
            let Unfinished { touched, positions, .. } =
                self.unfinished.remove(transaction).unwrap_or_default();
            batch.push((codec::transaction_key(*transaction), None));
            for (place, first) in touched {
                let part = Unfinished { touched: vec![(place, first)], ..Unfinished::default() };
                let part = self.stage_forgotten(&mut batch, owner, part);
                self.stage_renumbered(&mut batch, place, (*transaction, part))?;
            }
            if !positions.is_empty() {
                let part = Unfinished { positions, ..Unfinished::default() };
                self.stage_forgotten(&mut batch, owner, part);
            }
        }
        self.write(batch)?;
        Ok(open.len())
    }

    fn of(&self, owner: &str, fate: Fate) -> Vec<u64> {
        let of = self.unfinished.iter().filter(|(_, of)| of.owner == owner && of.fate == fate);
        of.map(|(transaction, _)| *transaction).collect()
    }

    fn stage_forgotten(&mut self, batch: &mut Batch, owner: &str, part: Unfinished) -> u64 {
        let number = self.stage_begin(batch, owner);
        let part = Unfinished { owner: owner.to_owned(), fate: Fate::Forgotten, ..part };
        self.unfinished.insert(number, part);
        self.keep_open(batch, number);
        number
    }

    /// Has the records that a transaction wrote to a place be those of another one.
    fn stage_renumbered(
        &self,
        batch: &mut Batch,
        place: Place,
        (from, to): (u64, u64),
    ) -> Result<(), LogError> {
        self.scan_records(place, self.end(place), &mut |offset, _, value| {
            if Stored::transaction(value) == from {
                let stored = Stored { transaction: to, ..Stored::decode(value)? };
                batch.push((codec::record_key(place, offset), Some(stored.encode())));
            }
            Ok(())
        })
    }

    /// What was forgotten of the same producer where a transaction wrote to.
    pub(super) fn forgotten_beside(&self, transaction: u64) -> Vec<u64> {
        let Some(ending) = self.unfinished.get(&transaction) else { return Vec::new() };
        let mut forgotten = self.of(&ending.owner, Fate::Forgotten);
        forgotten.retain(|number| {
            let part = &self.unfinished[number];
            let same_place = |(place, _): &(Place, i64)| {
                ending.touched.iter().any(|(touched, _)| touched == place)
            };
            let same_group =
                |(group, ..): &(String, _, _)| ending.positions.iter().any(|(of, ..)| of == group);
            part.touched.iter().any(same_place) || part.positions.iter().any(same_group)
        });
        forgotten
    }

    /// Aborts, in a transaction of its own, what was forgotten of a transactional id.
    pub(super) fn sweep(&mut self, owner: &str) -> Result<(), LogError> {
        let forgotten = self.of(owner, Fate::Forgotten);
        if forgotten.is_empty() {
            return Ok(());
        }
        let parts = || forgotten.iter().map(|part| &self.unfinished[part]);
        let places: BTreeSet<Place> =
            parts().flat_map(|part| &part.touched).map(|(place, _)| *place).collect();
        let swept = Unfinished {
            owner: owner.to_owned(),
            touched: places.into_iter().map(|place| (place, self.end(place))).collect(),
            positions: parts().flat_map(|part| part.positions.clone()).collect(),
            ..Unfinished::default()
        };
        let mut batch = Batch::new();
        let number = self.stage_begin(&mut batch, owner);
        self.unfinished.insert(number, swept);
        self.keep_open(&mut batch, number);
        self.write(batch)?;
        self.abort(number)
    }
}
