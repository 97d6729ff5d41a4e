//! The state of the embedded log: records, ends, transactions and committed positions, on any
//! ordered storage of keys and values.
//!
//! | key | value |
//! |---|---|
//! | `m` | version of the format, number of partitions, next transaction |
//! | `r` topic partition offset | a record and the transaction that wrote it |
//! | `e` topic partition | one above the last offset |
//! | `g` partition group | committed offset and metadata |
//! | `t` transaction | an open or aborted transaction |
//!
//! The transaction of a record is committed if it has no `t`. A commit therefore rewrites no
//! record: it removes the `t` and takes one offset in every partition that the transaction touched.
//! Every change is one batch, written whole or not at all. After a failed write, the state in
//! memory is read again from the storage.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use turnstream_ports::broken::Broken;

use super::super::{LogError, Output, Position, Record, Topic};
use super::codec::{self, Fate, Stored, TopicPartition, Unfinished};
use super::group::Group;
use super::{Isolation, Message};

/// Writes, in order: each a key with its new value, or with `None` to remove it.
pub(super) type Batch = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Receives a key and its value, and decides whether the scan continues.
pub(super) type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, LogError>;

/// Receives an offset, whether its record is committed, and the stored record.
pub(super) type VisitRecord<'a> = &'a mut dyn FnMut(i64, bool, &[u8]) -> Result<(), LogError>;

/// An ordered storage of keys and values.
pub(super) trait Storage: Send {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LogError>;
    /// Visits the keys from `from` up to but excluding `to`, in order.
    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), LogError>;
    /// Writes the whole batch or, if it fails, nothing.
    fn write(&mut self, batch: Batch) -> Result<(), LogError>;
}

/// An offset that a group committed for a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// The next offset to read.
    pub offset: i64,
    /// The metadata committed with the offset.
    pub metadata: String,
}

const FORM: u8 = 1;
/// Longest name of a group or transactional id, since LMDB's keys are short.
const NAME_LIMIT_BYTES: usize = 400;

pub(super) struct LogState {
    storage: Box<dyn Storage>,
    pub(super) partitions: i32,
    ends: BTreeMap<TopicPartition, i64>,
    pub(super) unfinished: BTreeMap<u64, Unfinished>,
    next_transaction: u64,
    /// How often each transactional id was taken, which is the epoch of its only valid producer.
    epochs: BTreeMap<String, u64>,
    pub(super) groups: BTreeMap<String, Group>,
    pub(super) next_member: u64,
    pub(super) sealed: BTreeSet<Topic>,
    /// Records written since the last compaction, and records that it left.
    pub(super) since_compaction: BTreeMap<TopicPartition, (u64, u64)>,
}

impl LogState {
    pub(super) fn load(storage: Box<dyn Storage>, partitions: i32) -> Result<Self, LogError> {
        let mut state = Self {
            storage,
            partitions,
            ends: BTreeMap::new(),
            unfinished: BTreeMap::new(),
            next_transaction: 1,
            epochs: BTreeMap::new(),
            groups: BTreeMap::new(),
            next_member: 1,
            sealed: BTreeSet::new(),
            since_compaction: BTreeMap::new(),
        };
        state.reload()?;
        let meta = vec![(codec::META_KEY.to_vec(), Some(state.meta()))];
        state.storage.write(meta)?;
        Ok(state)
    }

    /// Reads the stored state into memory.
    fn reload(&mut self) -> Result<(), LogError> {
        if let Some(meta) = self.storage.get(codec::META_KEY)? {
            let (form, rest) = meta.split_first().ok_or_else(codec::damaged)?;
            let mut reader = codec::Reader(rest);
            let (Some(partitions), Some(next)) = (reader.i32(), reader.u64()) else {
                return Err(codec::damaged());
            };
            if *form != FORM {
                return Err(LogError::Refused(format!(
                    "the embedded log has format {form}, and this version reads format {FORM}; run \
                     the version that wrote it, or use a new directory"
                )));
            }
            if partitions != self.partitions {
                return Err(LogError::Refused(format!(
                    "the embedded log was created with {partitions} partitions, not {}; a key would \
                     move to another partition, so set `log.embedded.partitions = {partitions}`",
                    self.partitions
                )));
            }
            self.next_transaction = next;
        }
        self.ends.clear();
        for topic in Topic::ALL {
            for partition in 0..self.partitions {
                let place = (topic, partition);
                if let Some(end) = self.storage.get(&codec::end_key(place))? {
                    self.ends.insert(place, codec::offset_of(&end));
                }
            }
        }
        let mut unfinished = BTreeMap::new();
        self.storage.scan(b"t", b"u", &mut |key, value| {
            let transaction = codec::offset_of(key).unsigned_abs();
            unfinished.insert(transaction, Unfinished::decode(value)?);
            Ok(ControlFlow::Continue(()))
        })?;
        self.unfinished = unfinished;
        Ok(())
    }

    fn meta(&self) -> Vec<u8> {
        let mut meta = vec![FORM];
        meta.extend(self.partitions.to_be_bytes());
        meta.extend(self.next_transaction.to_be_bytes());
        meta
    }

    pub(super) fn write(&mut self, batch: Batch) -> Result<(), LogError> {
        self.storage.write(batch).inspect_err(|_| {
            // The write error is the one to report. If the storage is broken, the next write fails
            // too.
            let _ = self.reload();
        })
    }

    pub(super) fn check_name(name: &str) -> Result<(), LogError> {
        if name.is_empty() || name.len() > NAME_LIMIT_BYTES {
            return Err(LogError::Refused(format!(
                "a group or transactional id must be 1 to {NAME_LIMIT_BYTES} bytes long, and \
                 `{name}` is {}",
                name.len()
            )));
        }
        Ok(())
    }

    pub(super) fn check_place(&self, (topic, partition): TopicPartition) -> Result<(), LogError> {
        if (0..self.partitions).contains(&partition) {
            return Ok(());
        }
        Err(LogError::Refused(format!(
            "{}: there is no partition {partition}, only 0 to {}",
            topic.name(),
            self.partitions - 1
        )))
    }

    pub(super) fn end(&self, place: TopicPartition) -> i64 {
        self.ends.get(&place).copied().unwrap_or(0)
    }

    pub(super) fn stable_end(&self, place: TopicPartition) -> i64 {
        let open = self.unfinished.values().filter(|open| open.fate != Fate::Aborted);
        open.flat_map(|transaction| &transaction.touched)
            .filter(|(touched, _)| *touched == place)
            .map(|(_, first)| *first)
            .min()
            .unwrap_or_else(|| self.end(place))
    }

    pub(super) fn seal(&mut self, topic: Topic) {
        self.sealed.insert(topic);
    }

    pub(super) fn append(
        &mut self,
        topic: Topic,
        partition: i32,
        message: Message,
    ) -> Result<i64, LogError> {
        self.check_place((topic, partition))?;
        let mut batch = Batch::new();
        let stored = Stored { transaction: 0, message };
        let offset = self.stage_record(&mut batch, (topic, partition), &stored);
        self.write(batch)?;
        Ok(offset)
    }

    pub(super) fn append_control(&mut self, topic: Topic, partition: i32) -> Result<i64, LogError> {
        self.check_place((topic, partition))?;
        let mut batch = Batch::new();
        let offset = self.stage_offset(&mut batch, (topic, partition));
        self.write(batch)?;
        Ok(offset)
    }

    /// Takes the next offset of a partition.
    fn stage_offset(&mut self, batch: &mut Batch, place: TopicPartition) -> i64 {
        let end = self.ends.entry(place).or_insert(0);
        let offset = *end;
        *end += 1;
        batch.push((codec::end_key(place), Some(end.to_be_bytes().to_vec())));
        offset
    }

    fn stage_record(&mut self, batch: &mut Batch, place: TopicPartition, stored: &Stored) -> i64 {
        let offset = self.stage_offset(batch, place);
        batch.push((codec::record_key(place, offset), Some(stored.encode())));
        self.since_compaction.entry(place).or_default().0 += 1;
        offset
    }

    /// Returns records from `from` on, and the offset to continue from, which is also past control
    /// records and aborted records.
    pub(super) fn read(
        &self,
        place: TopicPartition,
        from: i64,
        max: usize,
        isolation: Isolation,
    ) -> Result<(Vec<Record>, i64), LogError> {
        self.check_place(place)?;
        let limit = match isolation {
            Isolation::ReadCommitted => self.stable_end(place),
            Isolation::ReadUncommitted => self.end(place),
        };
        let from = from.max(0);
        let mut records = Vec::new();
        if from >= limit || max == 0 {
            return Ok((records, from));
        }
        let keys = (codec::record_key(place, from), codec::record_key(place, limit));
        self.storage.scan(&keys.0, &keys.1, &mut |key, value| {
            let hidden = isolation == Isolation::ReadCommitted
                && self.unfinished.contains_key(&Stored::transaction(value));
            if !hidden {
                let Message { key: name, value, headers, time_ms } = Stored::decode(value)?.message;
                records.push(Record {
                    partition: place.1,
                    offset: codec::offset_of(key),
                    time_ms,
                    key: name,
                    value,
                    headers,
                    last_of_scope: false,
                    followed: false,
                    answered: None,
                });
            }
            Ok(if records.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        let next = match records.last() {
            Some(last) if records.len() == max => last.offset + 1,
            _ => limit,
        };
        Ok((records, next))
    }

    /// Visits every stored record of a partition below an offset.
    pub(super) fn scan_records(
        &self,
        place: TopicPartition,
        below: i64,
        visit: VisitRecord<'_>,
    ) -> Result<(), LogError> {
        let keys = (codec::record_key(place, 0), codec::record_key(place, below));
        self.storage.scan(&keys.0, &keys.1, &mut |key, value| {
            let certain = !self.unfinished.contains_key(&Stored::transaction(value));
            visit(codec::offset_of(key), certain, value)?;
            Ok(ControlFlow::Continue(()))
        })
    }

    pub(super) fn committed(
        &self,
        group: &str,
        partition: i32,
    ) -> Result<Option<Committed>, LogError> {
        let stored = self.storage.get(&codec::committed_key(group, partition))?;
        stored.map(|bytes| Committed::decode(&bytes)).transpose()
    }

    /// Whether an open transaction may still change the result of restoring the partition.
    pub(super) fn is_unsettled(&self, group: &str, partition: i32) -> bool {
        self.unfinished.values().filter(|open| open.fate != Fate::Aborted).any(|open| {
            open.touched.iter().any(|(place, _)| *place == (Topic::History, partition))
                || open.positions.iter().any(|(of, at, _)| of == group && *at == partition)
        })
    }

    /// Makes the caller the only valid producer of the transactional id, and returns its epoch.
    pub(super) fn initialise(&mut self, owner: &str) -> Result<u64, LogError> {
        Self::check_name(owner)?;
        self.abort_open(owner)?;
        if !Broken::NoSweep.here() {
            self.sweep(owner)?;
        }
        let epoch = self.epochs.entry(owner.to_owned()).or_insert(0);
        *epoch += 1;
        Ok(*epoch)
    }

    pub(super) fn check_epoch(&self, owner: &str, epoch: u64) -> Result<(), LogError> {
        match self.epochs.get(owner) {
            Some(current) if *current == epoch => Ok(()),
            _ => Err(LogError::Fenced { name: "transactional id", id: owner.to_owned() }),
        }
    }

    pub(super) fn abort_open(&mut self, owner: &str) -> Result<(), LogError> {
        let open =
            self.unfinished.iter().filter(|(_, of)| of.fate == Fate::Open && of.owner == owner);
        let open: Vec<u64> = open.map(|(transaction, _)| *transaction).collect();
        open.into_iter().try_for_each(|transaction| self.abort(transaction))
    }

    /// Begins a transaction. It exists only in memory until [`Self::keep_open`].
    pub(super) fn stage_begin(&mut self, batch: &mut Batch, owner: &str) -> u64 {
        let transaction = self.next_transaction;
        self.next_transaction += 1;
        batch.push((codec::META_KEY.to_vec(), Some(self.meta())));
        let begun = Unfinished { owner: owner.to_owned(), ..Unfinished::default() };
        self.unfinished.insert(transaction, begun);
        transaction
    }

    /// Stores an open transaction in its present state.
    pub(super) fn keep_open(&self, batch: &mut Batch, transaction: u64) {
        if let Some(open) = self.unfinished.get(&transaction) {
            batch.push((codec::transaction_key(transaction), Some(open.encode())));
        }
    }

    /// The open transaction, or an error if it has ended.
    fn open(&mut self, transaction: u64) -> Result<&mut Unfinished, LogError> {
        match self.unfinished.get_mut(&transaction) {
            Some(open) if open.fate == Fate::Open => Ok(open),
            _ => Err(LogError::Refused(format!(
                "transaction {transaction} is not open: it has ended, or its timeout passed"
            ))),
        }
    }

    pub(super) fn stage_outputs(
        &mut self,
        batch: &mut Batch,
        transaction: u64,
        outputs: &[Output],
    ) -> Result<(), LogError> {
        for output in outputs {
            let place = (output.topic, output.partition);
            self.check_place(place)?;
            let next = self.end(place);
            let open = self.open(transaction)?;
            if !open.touched.iter().any(|(touched, _)| *touched == place) {
                open.touched.push((place, next));
            }
            let message = Message {
                key: output.key.clone(),
                value: output.value.clone(),
                headers: output.headers.clone(),
                time_ms: None,
            };
            self.stage_record(batch, place, &Stored { transaction, message });
        }
        Ok(())
    }

    pub(super) fn stage_positions(
        &mut self,
        transaction: u64,
        group: &str,
        positions: &[Position],
    ) -> Result<(), LogError> {
        let open = self.open(transaction)?;
        for position in positions {
            let committed =
                Committed { offset: position.offset, metadata: position.metadata.clone() };
            open.positions.push((group.to_owned(), position.partition, committed));
        }
        Ok(())
    }

    pub(super) fn stage_commit(
        &mut self,
        batch: &mut Batch,
        transaction: u64,
    ) -> Result<(), LogError> {
        self.open(transaction)?;
        let touched = self.unfinished.get(&transaction).map(|ended| ended.touched.clone());
        // Forgotten transactions are older, so their positions come first.
        for ended in self.forgotten_beside(transaction).into_iter().chain([transaction]) {
            let Unfinished { positions, .. } = self.unfinished.remove(&ended).unwrap_or_default();
            for (group, partition, committed) in &positions {
                let key = codec::committed_key(group, *partition);
                batch.push((key, Some(committed.encode())));
            }
            batch.push((codec::transaction_key(ended), None));
        }
        for (place, _) in touched.unwrap_or_default() {
            self.stage_offset(batch, place);
        }
        Ok(())
    }

    pub(super) fn abort(&mut self, transaction: u64) -> Result<(), LogError> {
        let open = self.open(transaction)?;
        let places: Vec<TopicPartition> = open.touched.iter().map(|(place, _)| *place).collect();
        let mut batch = Batch::new();
        for place in places {
            self.stage_offset(&mut batch, place);
        }
        for ended in self.forgotten_beside(transaction).into_iter().chain([transaction]) {
            if let Some(ended) = self.unfinished.get_mut(&ended) {
                ended.fate = Fate::Aborted;
                ended.positions.clear();
            }
            self.keep_open(&mut batch, ended);
        }
        self.write(batch)
    }
}
