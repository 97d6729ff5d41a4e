//! Who holds the scope, on its own record.

use turnstream_schemas::{
    EventTime, HandOffReason, Handover, HandoverReason, Holder, InputId, ScopeRecord,
};

use super::Database;
use crate::history::handover;

impl Database {
    /// Who holds the scope.
    pub fn holder(&self) -> Holder {
        self.record.handover.as_ref().map_or(Holder::Bot, |last| last.holder)
    }

    /// The scope's own record, without what is kept beside it: turn ids, clusters and chains.
    pub(in crate::history) fn scope_record(&self) -> &ScopeRecord {
        &self.record
    }

    /// Changes the hands of the scope at an input, given with its time; `None` where it is in such hands
    /// already.
    pub(in crate::history) fn change_hands(
        &mut self,
        reason: HandoverReason,
        since: (&InputId, EventTime),
        hand_off: Option<(HandOffReason, Option<String>)>,
    ) -> Option<Handover> {
        handover::change_hands(&mut self.record, reason, since, hand_off)
    }
}
