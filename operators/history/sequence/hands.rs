//! Follows directives, and holds user turns while people hold the conversation.

use turnstream_ports::broken::Broken;
use turnstream_schemas::{
    Action, ConversationRecord, DirectiveKind, Evicted, HandOffReason, HandoverReason,
    HistoryChange, Outcome, RecordedReason, SCHEMA_VERSION,
};

use super::ending::{recorded, unanswered};
use super::waiting::{WaitingInput, Whereabouts};
use super::{Sequence, TOLD_EVICTIONS};
use crate::flow::ActionDecision;
use crate::history::Rules;
use crate::history::database::Update;
use crate::ingest::ArrivedTurn;

impl Sequence {
    /// Does what a directive asks for.
    pub(super) fn direct(
        &mut self,
        kind: DirectiveKind,
        input: &WaitingInput,
        rules: &Rules,
    ) -> (Outcome, Vec<HistoryChange>) {
        self.database.remember(input.turn_id());
        let (mut evicted, mut changes) = Default::default();
        let reason = match kind {
            DirectiveKind::Forget => {
                (evicted, changes) = self.forget(rules);
                RecordedReason::Forgotten
            }
            DirectiveKind::Takeover => {
                self.change_hands(HandoverReason::Takeover, input.whereabouts(), None);
                RecordedReason::Takeover
            }
            DirectiveKind::Release => {
                if !Broken::LostRelease.here() {
                    self.change_hands(HandoverReason::Release, input.whereabouts(), None);
                }
                RecordedReason::Release
            }
        };
        (input.recorded(reason, evicted), changes)
    }

    /// Removes every entry from the history; returns the evictions for the outcome, and the changes.
    fn forget(&mut self, rules: &Rules) -> (Vec<Evicted>, Vec<HistoryChange>) {
        let Update { changes, mut evicted } =
            self.database.forget(&self.scope, &rules.remembering());
        evicted.truncate(TOLD_EVICTIONS);
        (evicted, changes)
    }

    /// Ends a user turn as held if the configuration says so for the conversation's holder; its
    /// query enters the history. The turn's own time may return the conversation to the engine
    /// first.
    pub(super) fn hold(
        &mut self,
        turn: &ArrivedTurn,
        rules: &Rules,
    ) -> Option<(Outcome, Vec<HistoryChange>)> {
        if let Some(reason) = rules.handover.returns(self.database.scope_record(), turn.event_time)
        {
            self.change_hands(reason, Whereabouts::of(turn), None);
        }
        if !rules.handover.holds(self.database.holder()) {
            return None;
        }
        self.database.see_time(turn.event_time);
        self.database.remember(&turn.turn_id);
        let entry = unanswered(turn, Some(&turn.turn.text));
        let (changes, evicted) = self.insert(entry, &turn.turn.text, rules);
        Some((recorded(turn, RecordedReason::Held, evicted), changes))
    }

    /// Makes the user wait for an agent, if the response hands the conversation off.
    pub(super) fn hand_off(
        &mut self,
        turn: &ArrivedTurn,
        decision: Option<&ActionDecision>,
        rules: &Rules,
    ) {
        let Some(decision) = decision.filter(|it| it.action == Action::HandOff) else { return };
        let why = decision.hand_off.map(|why| (why, rules.handover.queues.get(&why).cloned()));
        self.change_hands(HandoverReason::HandOff, Whereabouts::of(turn), why);
    }

    /// Notes a change of hands for the outcome of the input, unless the holder stays the same.
    pub(super) fn change_hands(
        &mut self,
        reason: HandoverReason,
        at: Whereabouts<'_>,
        hand_off: Option<(HandOffReason, Option<String>)>,
    ) {
        let change = self.database.change_hands(reason, (at.input, at.time), hand_off);
        self.handed.extend(change.map(|handover| ConversationRecord {
            schema_version: SCHEMA_VERSION,
            scope: self.scope.clone(),
            tenant_id: at.tenant_id.cloned(),
            conversation_id: at.conversation_id.cloned(),
            user_id: at.user_id.cloned(),
            handover,
        }));
    }
}
