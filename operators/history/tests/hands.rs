//! The holder of a conversation: which turns are answered, what returns it, and what is published.

use turnstream_schemas::{Action, HandOffReason, HandoverReason, Holder};

use super::super::handover::WhileWaiting;
use super::*;

const MINUTE: i64 = 60_000;

impl Talk {
    /// The changes of hands so far: to whom, why, and by the input at which offset.
    fn hands(&self) -> Vec<(Holder, HandoverReason, i64)> {
        let records = self.ended.iter().flat_map(|finished| &finished.conversations);
        let hands = records.map(|record| &record.handover);
        hands.map(|of| (of.holder, of.reason, of.since.offset)).collect()
    }

    fn hand_off(&mut self, place: usize) {
        let mut decision = ActionDecision::to(Action::HandOff);
        decision.hand_off = Some(HandOffReason::Asked);
        assert!(self.answer_by(place, "somebody comes", Some(decision)));
    }
}

fn held_by_agents() -> Rules {
    Rules { agent_turns: AgentTurns::TakeOver, ..rules() }
}

#[test]
fn what_is_said_to_an_agent_is_held_and_in_sight_after_the_release() {
    let mut talk = Talk::new(held_by_agents());
    talk.agent("Marta here");
    talk.user("it is broken");
    talk.user("and wet");
    assert_eq!(talk.outcomes(), "[1:system] [2:held] [3:held]");
    assert_eq!(talk.asked.len(), 0);
    talk.agent("I send another");
    talk.direct(DirectiveKind::Release, |_| {});
    talk.user("when?");
    let said: Vec<&str> = talk.asked[0].dialogue.iter().map(|said| &*said.text).collect();
    assert_eq!(said, ["Marta here", "it is broken", "and wet", "I send another", "when?"]);
    talk.answer(0, "tomorrow");
    assert!(
        talk.outcomes().ends_with("[4:system] [5:release] [6:tomorrow]"),
        "{}",
        talk.outcomes()
    );
    assert_eq!(
        talk.hands(),
        [(Holder::Agent, HandoverReason::AgentTurn, 1), (Holder::Bot, HandoverReason::Release, 5)]
    );
}

#[test]
fn an_agent_may_speak_beside_the_engine() {
    let mut talk = Talk::new(rules());
    talk.agent("Marta here");
    talk.user("hello");
    talk.answer(0, "hi");
    assert_eq!((talk.outcomes().as_str(), talk.hands()), ("[1:system] [2:hi]", vec![]));
    talk.direct(DirectiveKind::Takeover, |_| {});
    talk.user("hello?");
    assert!(talk.outcomes().ends_with("[3:takeover] [4:held]"), "a record counts all the same");
}

#[test]
fn a_takeover_supersedes_what_was_not_answered() {
    let mut talk = Talk::new(held_by_agents());
    talk.user("one");
    talk.user("two");
    talk.direct(DirectiveKind::Release, |_| {});
    talk.direct(DirectiveKind::Takeover, |_| {});
    assert_eq!(talk.outcomes(), "[1:superseded_by 2:superseded_by 3:release 4:takeover]");
    assert!(!talk.answer(0, "too late"));
    talk.user("three");
    assert!(talk.outcomes().ends_with("[5:held]"));
    let named = |of: &mut ArrivedDirective| of.turn_id = "0-4".into();
    talk.direct(DirectiveKind::Release, |_| {});
    talk.user("four");
    talk.direct(DirectiveKind::Takeover, named);
    assert!(talk.answer(1, "ours"), "a repeat takes nothing over");
    assert!(talk.outcomes().ends_with("[6:release] [7:ours] [8:duplicate_of]"));
}

#[test]
fn who_was_handed_off_waits_and_is_answered_or_held_meanwhile() {
    for (while_waiting, outcome) in [(WhileWaiting::Answer, "ours"), (WhileWaiting::Hold, "held")] {
        let mut rules = held_by_agents();
        rules.handover.while_waiting = while_waiting;
        rules.handover.queues.insert(HandOffReason::Asked, "front desk".to_owned());
        let mut talk = Talk::new(rules);
        talk.user("a person please");
        talk.hand_off(0);
        let records = talk.ended.iter().flat_map(|finished| &finished.conversations);
        let queues: Vec<_> = records.map(|of| of.handover.queue.as_deref()).collect();
        assert_eq!(queues, [Some("front desk")]);
        talk.user("anybody?");
        if while_waiting == WhileWaiting::Answer {
            talk.hand_off(1);
            talk.user("opening hours?");
            talk.answer(2, "ours");
        }
        assert!(talk.outcomes().ends_with(&format!(":{outcome}]")), "{}", talk.outcomes());
        assert_eq!(talk.hands(), [(Holder::Waiting, HandoverReason::HandOff, 1)], "once");
        talk.agent("Marta here");
        talk.user("at last");
        assert!(talk.outcomes().ends_with(":held]"), "{}", talk.outcomes());
        let last = talk.ended.iter().flat_map(|finished| &finished.conversations).next_back();
        let waited = last.and_then(|record| record.handover.waited_ms);
        assert_eq!(waited, Some((talk.hands()[1].2 as u64 - 1) * 1_000));
    }
}

#[test]
fn time_returns_a_conversation_with_the_turn_that_is_then_answered() {
    let mut rules = held_by_agents();
    rules.handover.return_after_minutes = 10;
    let mut talk = Talk::new(rules);
    talk.agent("Marta here");
    let at =
        |minute: i64| move |turn: &mut ArrivedTurn| turn.event_time = EventTime(minute * MINUTE);
    talk.say(Speaker::User, "thanks", at(9));
    talk.say(Speaker::System, "welcome", at(9));
    talk.say(Speaker::User, "one more thing", at(18));
    assert_eq!(talk.outcomes(), "[1:system] [2:held] [3:system] [4:held]");
    talk.say(Speaker::User, "are you there?", at(19));
    assert_eq!(talk.hands().len(), 1, "not before the turn's own outcome");
    talk.say(Speaker::User, "hm", at(1));
    talk.answer(0, "yes");
    assert_eq!(talk.hands()[1], (Holder::Bot, HandoverReason::AgentSilent, 5));
    let (outcomes, published) = {
        let finished = &talk.ended[4];
        (finished.outcomes.len(), finished.conversations.len())
    };
    assert_eq!((outcomes, published), (1, 1), "one transaction holds both");
    talk.answer(1, "go on");
    assert!(talk.outcomes().ends_with("[5:yes] [6:go on]"), "what is dated back changes nothing");
}

#[test]
fn a_turn_that_fails_after_time_returned_the_conversation_leaves_it_returned() {
    let mut rules = held_by_agents();
    rules.handover.return_after_minutes = 10;
    let mut talk = Talk::new(rules);
    talk.agent("Marta here");
    talk.say(Speaker::User, "hello?", |turn| turn.event_time = EventTime(11 * MINUTE));
    talk.fail(0);
    assert_eq!(talk.hands().len(), 2);
    talk.user("hello?");
    talk.answer(1, "here");
    assert!(talk.outcomes().ends_with("[3:here]"));
}

#[test]
fn a_replay_keeps_hands_by_what_its_history_keeps() {
    let mut talk = Talk::new(Rules {
        source: ResponseSource::Recorded,
        handover: HandoverConfig { while_waiting: WhileWaiting::Hold, ..HandoverConfig::default() },
        ..rules()
    });
    talk.user("a person please");
    talk.hand_off(0);
    talk.user("anybody?");
    talk.answer(1, "ours");
    assert!(talk.outcomes().ends_with("[2:ours]"), "nobody said the first answer");
    let unpublished = Rules { publish_changes: false, ..held_by_agents() };
    let mut talk = Talk::new(unpublished);
    talk.agent("Marta here");
    talk.user("held");
    assert_eq!((talk.outcomes().as_str(), talk.hands()), ("[1:system] [2:held]", vec![]));
}
