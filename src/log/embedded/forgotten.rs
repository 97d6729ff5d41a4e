//! Transactions that the log gave up without writing an end marker, as Kafka's broker may after a
//! crash (see `kafka/sweep.rs`). The crash simulation uses them.
//!
//! A forgotten transaction splits into parts: one per partition that it wrote to, and one for the
//! positions of the group. Each part stays open until a transaction of the same producer ends in
//! that place, and then ends in the same way.

use std::collections::BTreeSet;

use super::super::LogError;
use super::codec::{self, Fate, Stored, TopicPartition, Unfinished};
use super::state::{Batch, LogState};

impl LogState {
    /// Forgets the open transactions of a transactional id. Returns their number.
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

    /// Reassigns the records of one transaction in a partition to another transaction.
    fn stage_renumbered(
        &self,
        batch: &mut Batch,
        place: TopicPartition,
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

    /// The forgotten parts of the same producer in the places that a transaction wrote to.
    pub(super) fn forgotten_beside(&self, transaction: u64) -> Vec<u64> {
        let Some(ending) = self.unfinished.get(&transaction) else { return Vec::new() };
        let mut forgotten = self.of(&ending.owner, Fate::Forgotten);
        forgotten.retain(|number| {
            let part = &self.unfinished[number];
            let same_place = |(place, _): &(TopicPartition, i64)| {
                ending.touched.iter().any(|(touched, _)| touched == place)
            };
            let same_group =
                |(group, ..): &(String, _, _)| ending.positions.iter().any(|(of, ..)| of == group);
            part.touched.iter().any(same_place) || part.positions.iter().any(same_group)
        });
        forgotten
    }

    /// Aborts the forgotten parts of a transactional id, by a transaction over all their places.
    pub(super) fn sweep(&mut self, owner: &str) -> Result<(), LogError> {
        let forgotten = self.of(owner, Fate::Forgotten);
        if forgotten.is_empty() {
            return Ok(());
        }
        let parts = || forgotten.iter().map(|part| &self.unfinished[part]);
        let places: BTreeSet<TopicPartition> =
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
