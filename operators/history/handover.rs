//! Decides who holds a conversation, and so whether the engine answers its next user turn.
//!
//! ```text
//!            a response hands off            an agent speaks or takes over
//!     bot ───────────────────────▶ waiting ───────────────────────────────▶ agent
//!      ▲ ▲                            │                                       │ ▲
//!      │ └──── release, nobody came ──┘                                       │ │ speaks again
//!      └────── release, agent silent ─────────────────────────────────────────┘ ┘
//! ```
//!
//! The state changes only by inputs and responses, in the order of the scope, and by event time at
//! the next user turn. A replay of the same inputs therefore decides alike, and no clock is needed.
//! An agent's silence is measured from the latest time of its turns to the time of the user turn
//! itself, not to the latest time of the scope: a turn that is dated too late returns the
//! conversation once and not for good, and one that is dated too early returns nothing.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_ports::broken::Broken;
use turnstream_schemas::{
    EventTime, HandOffReason, Handover, HandoverReason, Holder, InputId, ScopeRecord,
};

/// `[handover]`: how conversations change hands between the engine and people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HandoverConfig {
    /// How the engine treats a user turn while the user waits for an agent: `answer` answers it,
    /// `hold` records it and adds it to the history. `hold` needs agents who read the topic
    /// `conversations`; without them a user who asked for a person would hear nothing more.
    pub while_waiting: WhileWaiting,
    /// Minutes of event time after an agent's last turn from which the engine answers the next user
    /// turn again; 0 leaves the conversation with the agent until it is released.
    pub return_after_minutes: u64,
    /// Minutes of event time that a user waits for an agent at most; the engine answers the first
    /// user turn after that. 0 lets users wait until the conversation is taken over or released.
    pub wait_at_most_minutes: u64,
    /// The agents' queue for each reason of hand-off (`asked`, `complaint`, `safety`,
    /// `nothing_found`, `taught`), for records on the topic `conversations`; a reason that is left
    /// out has no queue.
    pub queues: BTreeMap<HandOffReason, String>,
}

impl Default for HandoverConfig {
    fn default() -> Self {
        Self {
            while_waiting: WhileWaiting::Answer,
            return_after_minutes: 60,
            wait_at_most_minutes: 60,
            queues: BTreeMap::new(),
        }
    }
}

/// How the engine treats user turns while the user waits for an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhileWaiting {
    /// Answers them.
    #[default]
    Answer,
    /// Records them as held.
    Hold,
}

impl HandoverConfig {
    /// Whether a user turn is held while this holder has the scope.
    pub fn holds(&self, holder: Holder) -> bool {
        match holder {
            Holder::Bot => false,
            Holder::Waiting => self.while_waiting == WhileWaiting::Hold,
            Holder::Agent => !Broken::AnswerWhileHeld.here(),
        }
    }

    /// Returns the reason why a user turn at this time returns the scope to the engine; `None` if
    /// it does not.
    pub fn returns(&self, record: &ScopeRecord, time: EventTime) -> Option<HandoverReason> {
        let handover = record.handover.as_ref()?;
        let (since, minutes, reason) = match handover.holder {
            Holder::Bot => return None,
            Holder::Waiting => {
                (handover.time, self.wait_at_most_minutes, HandoverReason::NobodyCame)
            }
            Holder::Agent => {
                (record.agent_time?, self.return_after_minutes, HandoverReason::AgentSilent)
            }
        };
        let limit_ms = i64::try_from(minutes.saturating_mul(60_000)).unwrap_or(i64::MAX);
        let passed_ms = time.millis().saturating_sub(since.millis());
        (minutes > 0 && passed_ms >= limit_ms).then_some(reason)
    }
}

/// Changes the holder of a scope, and returns the change; `None` if the holder stays the same. An
/// agent who speaks again changes only the time of its latest turn.
pub(super) fn change_hands(
    record: &mut ScopeRecord,
    reason: HandoverReason,
    (since, time): (&InputId, EventTime),
    hand_off: Option<(HandOffReason, Option<String>)>,
) -> Option<Handover> {
    let holder = reason.holder();
    record.agent_time = match holder {
        Holder::Agent => Some(record.agent_time.map_or(time, |before| before.max(time))),
        Holder::Bot | Holder::Waiting => None,
    };
    let before = record.handover.as_ref();
    let held_by = before.map_or(Holder::Bot, |before| before.holder);
    // A user who is handed off again keeps the place in the queue.
    if held_by == holder {
        return None;
    }
    let waited = before.filter(|before| before.holder == Holder::Waiting);
    let waited_ms = waited.map(|before| time.millis().saturating_sub(before.time.millis()));
    let (hand_off, queue) = hand_off.map_or((None, None), |(why, queue)| (Some(why), queue));
    let handover = Handover {
        holder,
        reason,
        since: since.clone(),
        time,
        hand_off,
        queue,
        waited_ms: waited_ms.map(|waited| u64::try_from(waited).unwrap_or(0)),
    };
    record.handover = Some(handover.clone());
    Some(handover)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: i64) -> InputId {
        InputId { topic: "turns".to_owned(), partition: 0, offset }
    }

    const MINUTE: i64 = 60_000;

    #[test]
    fn a_scope_changes_hands_only_to_another_holder() {
        use HandoverReason::{AgentTurn, HandOff, Release, Takeover};
        let mut record = ScopeRecord::default();
        let mut change = |reason, minute: i64, why: Option<HandOffReason>| {
            let time = EventTime(minute * MINUTE);
            let asked = why.map(|why| (why, Some("desk".to_owned())));
            let change = change_hands(&mut record, reason, (&at(minute), time), asked);
            (change.map(|it| (it.holder, it.hand_off, it.queue, it.waited_ms)), record.agent_time)
        };
        let desk = Some("desk".to_owned());
        let asked = Some(HandOffReason::Asked);
        assert_eq!(change(Release, 0, None), (None, None), "it is the engine's");
        let waits = (Holder::Waiting, asked, desk, None);
        assert_eq!(change(HandOff, 1, asked), (Some(waits), None));
        assert_eq!(change(HandOff, 2, Some(HandOffReason::Complaint)), (None, None), "still waits");
        let comes = (Holder::Agent, None, None, Some(3 * MINUTE as u64));
        assert_eq!(change(AgentTurn, 4, None), (Some(comes), Some(EventTime(4 * MINUTE))));
        assert_eq!(change(AgentTurn, 3, None), (None, Some(EventTime(4 * MINUTE))), "dated back");
        assert_eq!(change(Takeover, 6, None), (None, Some(EventTime(6 * MINUTE))));
        assert_eq!(change(Release, 7, None), (Some((Holder::Bot, None, None, None)), None));
        assert_eq!(change(Release, 8, None), (None, None));
        assert_eq!(record.handover.map(|it| it.since), Some(at(7)));
    }

    #[test]
    fn event_time_returns_a_scope_to_the_engine() {
        let config = HandoverConfig {
            return_after_minutes: 30,
            wait_at_most_minutes: 10,
            ..HandoverConfig::default()
        };
        let mut record = ScopeRecord::default();
        let returns = |record: &ScopeRecord, minute| config.returns(record, EventTime(minute));
        assert_eq!(returns(&record, i64::MAX), None);
        change_hands(&mut record, HandoverReason::HandOff, (&at(0), EventTime(0)), None);
        assert_eq!(returns(&record, 10 * MINUTE - 1), None);
        assert_eq!(returns(&record, 10 * MINUTE), Some(HandoverReason::NobodyCame));
        change_hands(&mut record, HandoverReason::Takeover, (&at(1), EventTime(MINUTE)), None);
        change_hands(&mut record, HandoverReason::AgentTurn, (&at(2), EventTime(5 * MINUTE)), None);
        assert_eq!(returns(&record, 35 * MINUTE - 1), None, "counted from its last turn");
        assert_eq!(returns(&record, 35 * MINUTE), Some(HandoverReason::AgentSilent));
        assert_eq!(returns(&record, i64::MIN), None, "a turn from before");
        let never = HandoverConfig { return_after_minutes: 0, ..config.clone() };
        assert_eq!(never.returns(&record, EventTime(i64::MAX)), None);
    }
}
