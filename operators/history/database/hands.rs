//! Keeps the holder of the scope in the scope's own record.

use turnstream_schemas::{
    EventTime, HandOffReason, Handover, HandoverReason, Holder, InputId, ScopeRecord,
};

use super::Database;
use crate::history::handover;

impl Database {
    /// Returns the holder of the scope.
    pub fn holder(&self) -> Holder {
        self.record.handover.as_ref().map_or(Holder::Bot, |last| last.holder)
    }

    /// Returns the scope's own record, without the turn ids, clusters and chains that the database
    /// keeps beside it.
    pub(in crate::history) fn scope_record(&self) -> &ScopeRecord {
        &self.record
    }

    /// Changes the holder of the scope at an input, given with its time, and returns the change;
    /// `None` if the holder stays the same.
    pub(in crate::history) fn change_hands(
        &mut self,
        reason: HandoverReason,
        since: (&InputId, EventTime),
        hand_off: Option<(HandOffReason, Option<String>)>,
    ) -> Option<Handover> {
        handover::change_hands(&mut self.record, reason, since, hand_off)
    }
}
