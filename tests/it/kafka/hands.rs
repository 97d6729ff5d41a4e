//! Tracks who held each conversation, as the topic of conversations says and as inputs and outcomes
//! imply.

use std::collections::BTreeMap;

use turnstream_schemas::{ConversationRecord, HandoverReason, Holder, ScopeRecord};

use super::kcat::Read;
use super::outcomes::parse;

/// The handovers of a scope, in order: the reason, and the offset of the input at which it
/// happened.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hands(Vec<(HandoverReason, i64)>);

impl Hands {
    /// Returns the last handover in a scope's own record.
    pub(crate) fn last_of(record: &ScopeRecord) -> Self {
        Self(record.handover.iter().map(|of| (of.reason, of.since.offset)).collect())
    }

    /// Returns the last handover.
    pub(crate) fn last(&self) -> Self {
        Self(self.0.last().copied().into_iter().collect())
    }

    /// Whether an agent holds the scope.
    pub(crate) fn are_agents(&self) -> bool {
        self.0.last().is_some_and(|(reason, _)| reason.holder() == Holder::Agent)
    }

    /// Hands the scope over, unless that holder has it already.
    pub(crate) fn change(&mut self, reason: HandoverReason, offset: i64) {
        let before = self.0.last().map_or(Holder::Bot, |(reason, _)| reason.holder());
        if before != reason.holder() {
            self.0.push((reason, offset));
        }
    }
}

/// The topic of conversations, read to the end.
#[derive(Default)]
pub(crate) struct ConversationsTopic(BTreeMap<String, Hands>);

impl ConversationsTopic {
    /// Adds the next record of the topic.
    pub(crate) fn add(&mut self, read: &Read) {
        let record: ConversationRecord = parse(read);
        assert_eq!(read.key.as_deref(), Some(record.scope.as_str().as_bytes()));
        assert_eq!(record.handover.since.partition, read.partition, "{record:?}");
        assert_eq!(record.handover.holder, record.handover.reason.holder(), "{record:?}");
        let hands = self.0.entry(record.scope.parts().1.to_owned()).or_default();
        hands.0.push((record.handover.reason, record.handover.since.offset));
    }

    /// Checks that every handover that the inputs imply is there once, and no other. Returns their
    /// number.
    pub(crate) fn check<'a>(
        &self,
        expected: impl Iterator<Item = (&'a String, &'a Hands)>,
    ) -> usize {
        let expected = expected.filter(|(_, hands)| !hands.0.is_empty());
        let expected: BTreeMap<_, _> = expected.collect();
        assert_eq!(self.0.iter().collect::<BTreeMap<_, _>>(), expected, "changes of hands");
        expected.values().map(|hands| hands.0.len()).sum()
    }
}
