//! The transactional producer of the embedded log, and its transactions step by step.

use super::super::{LogError, Producer, Transaction};
use super::group::MemberRef;
use super::state::{Batch, LogState};
use super::{EmbeddedConsumer, EmbeddedLog};

/// Commits for one consumer. Its records have no time, since the log has no clock.
pub struct EmbeddedProducer {
    log: EmbeddedLog,
    group: String,
    member: u64,
    owner: String,
    epoch: u64,
}

impl EmbeddedProducer {
    pub(super) fn initialise(
        log: EmbeddedLog,
        consumer: &EmbeddedConsumer,
        transactional_id: &str,
    ) -> Result<Self, LogError> {
        let epoch = log.state().initialise(transactional_id)?;
        log.shared.changed.notify_all();
        Ok(Self {
            log,
            group: consumer.group().to_owned(),
            member: consumer.member(),
            owner: transactional_id.to_owned(),
            epoch,
        })
    }

    /// Begins a transaction whose steps the caller takes one by one. Each step is written before it
    /// returns. A transaction that is dropped without an end stays open, as after a crash: it ends
    /// when a new producer takes the transactional id, or through [`EmbeddedLog::abort_open`].
    pub fn begin(&mut self) -> Result<OpenTransaction<'_>, LogError> {
        let mut state = self.log.state();
        state.check_epoch(&self.owner, self.epoch)?;
        let mut batch = Batch::new();
        let number = state.stage_begin(&mut batch, &self.owner);
        state.keep_open(&mut batch, number);
        state.write(batch)?;
        drop(state);
        Ok(OpenTransaction { producer: self, number })
    }

    fn check(&self, state: &mut LogState, transaction: &Transaction) -> Result<(), LogError> {
        state.check_epoch(&self.owner, self.epoch)?;
        transaction.check()?;
        let at = MemberRef { group: &self.group, member: self.member };
        let partitions = state.stale(&at, &transaction.positions);
        if partitions.is_empty() { Ok(()) } else { Err(LogError::Stale { partitions }) }
    }

    /// Stages all steps in one batch. If a step fails, nothing is written.
    fn stage(
        &self,
        state: &mut LogState,
        batch: &mut Batch,
        transaction: &Transaction,
    ) -> Result<(), LogError> {
        let number = state.stage_begin(batch, &self.owner);
        state.stage_outputs(batch, number, &transaction.outputs)?;
        state.stage_positions(number, &self.group, &transaction.positions)?;
        state.stage_commit(batch, number)
    }
}

impl Producer for EmbeddedProducer {
    fn commit(&mut self, transaction: &Transaction) -> Result<(), LogError> {
        if transaction.outputs.is_empty() && transaction.positions.is_empty() {
            return Ok(());
        }
        let mut state = self.log.state();
        self.check(&mut state, transaction)?;
        for output in &transaction.outputs {
            state.check_place((output.topic, output.partition))?;
        }
        let mut batch = Batch::new();
        self.stage(&mut state, &mut batch, transaction)?;
        state.write(batch)?;
        for position in &transaction.positions {
            self.log.compact_if_due(&mut state, super::Topic::History, position.partition)?;
        }
        drop(state);
        self.log.shared.changed.notify_all();
        Ok(())
    }
}

/// A transaction between its beginning and its end.
#[must_use = "a transaction that is dropped stays open and holds back its partitions"]
pub struct OpenTransaction<'a> {
    producer: &'a mut EmbeddedProducer,
    number: u64,
}

impl OpenTransaction<'_> {
    /// Writes the outputs. Readers of uncommitted records see them.
    pub fn outputs(&mut self, transaction: &Transaction) -> Result<(), LogError> {
        let mut state = self.producer.log.state();
        self.producer.check(&mut state, transaction)?;
        for output in &transaction.outputs {
            state.check_place((output.topic, output.partition))?;
        }
        let mut batch = Batch::new();
        state.stage_outputs(&mut batch, self.number, &transaction.outputs)?;
        state.keep_open(&mut batch, self.number);
        state.write(batch)
    }

    /// Adds the positions and checks their generations. No other member can restore their
    /// partitions until the transaction ends.
    pub fn positions(&mut self, transaction: &Transaction) -> Result<(), LogError> {
        let mut state = self.producer.log.state();
        self.producer.check(&mut state, transaction)?;
        let group = &self.producer.group;
        state.stage_positions(self.number, group, &transaction.positions)?;
        let mut batch = Batch::new();
        state.keep_open(&mut batch, self.number);
        state.write(batch)
    }

    /// Commits the transaction: its outputs and positions become visible.
    pub fn commit(self) -> Result<(), LogError> {
        let mut state = self.producer.log.state();
        state.check_epoch(&self.producer.owner, self.producer.epoch)?;
        let mut batch = Batch::new();
        state.stage_commit(&mut batch, self.number)?;
        state.write(batch)?;
        drop(state);
        self.producer.log.shared.changed.notify_all();
        Ok(())
    }

    /// Aborts the transaction.
    pub fn abort(self) -> Result<(), LogError> {
        let mut state = self.producer.log.state();
        state.check_epoch(&self.producer.owner, self.producer.epoch)?;
        state.abort(self.number)?;
        drop(state);
        self.producer.log.shared.changed.notify_all();
        Ok(())
    }
}
