//! Fragments of one utterance: what is merged, when it is asked, and how its parts end.

use super::*;

/// Rules by which turns within a second and a half of each other are fragments.
fn in_bursts() -> Rules {
    let fragmenting = Fragmenting { burst_ms: 1_500, max_text_bytes: 40 };
    Rules { agent_turns: AgentTurns::TakeOver, fragmenting, ..rules() }
}

impl Talk {
    /// Sends a user's turn at this time, in milliseconds.
    fn at(&mut self, ms: i64, text: &str) {
        self.say(Speaker::User, text, |turn| turn.event_time = EventTime(ms));
    }

    /// Ends the waits that began so far, the oldest first; returns how many of them led to a question.
    fn time_passes(&mut self) -> usize {
        let asked = self.asked.len();
        for pause in std::mem::take(&mut self.pauses) {
            let steps = self.scopes.paused(&pause);
            self.take(steps.unwrap_or_default());
        }
        self.asked.len() - asked
    }

    fn asked_texts(&self) -> Vec<&str> {
        self.asked.iter().map(|context| context.query()).collect()
    }
}

#[test]
fn fragments_are_answered_as_one_utterance() {
    let mut talk = Talk::new(in_bursts());
    talk.at(0, "hi");
    talk.at(900, "my parcel");
    talk.at(2_300, "is late");
    assert_eq!((talk.asked.len(), talk.outcomes().as_str()), (0, ""));
    assert_eq!(talk.time_passes(), 1, "the last wait alone asks");
    assert_eq!(talk.asked_texts(), ["hi my parcel is late"]);
    assert_eq!(talk.asked[0].turn_id.as_str(), "0-3");
    talk.answer(0, "sorry");
    assert_eq!(talk.outcomes(), "[1:merged_into 2:merged_into 3:sorry]");
    assert_eq!(talk.history(), "hi my parcel is late/sorry");
    let (outcome, _) = &talk.ended[0].outcomes[0];
    let Outcome::Recorded(recorded) = outcome else { panic!("{outcome:?}") };
    assert_eq!(recorded.reason, RecordedReason::MergedInto("0-3".into()));
    talk.say(Speaker::User, "hi", |turn| turn.turn_id = "0-1".into());
    assert!(talk.outcomes().ends_with("[4:duplicate_of]"), "its id is remembered");
    talk.at(4_000, "thanks");
    assert_eq!((talk.time_passes(), talk.asked_texts()[1]), (1, "thanks"));
}

#[test]
fn an_utterance_that_cannot_be_merged_ends_the_wait_and_starts_another() {
    let mut talk = Talk::new(in_bursts());
    talk.at(0, "hi");
    talk.at(1_501, "another day");
    assert_eq!(talk.asked_texts(), ["hi"], "too late by its time");
    assert_eq!(talk.time_passes(), 0);
    talk.answer(0, "hello");
    assert_eq!(talk.time_passes(), 1);
    talk.answer(1, "so it is");
    talk.at(3_000, &"x".repeat(30));
    talk.at(3_100, &"y".repeat(10));
    assert_eq!(talk.asked.len(), 3, "together they are too long");
    talk.answer(2, "what?");
    talk.at(3_200, "z");
    assert_eq!((talk.time_passes(), talk.asked_texts()[3]), (1, "yyyyyyyyyy z"));
    talk.say(Speaker::System, "hello", |turn| turn.turn.response_id = Some("turns-0-1".into()));
    assert!(talk.answer(3, "!"), "an echo comes in between and does not matter");
    assert!(talk.outcomes().ends_with("[4:merged_into 5:!] [6:echo]"), "{}", talk.outcomes());
}

#[test]
fn a_repeat_is_a_duplicate_and_not_a_fragment() {
    let mut talk = Talk::new(in_bursts());
    talk.at(0, "hi");
    talk.say(Speaker::User, "hi", |turn| {
        (turn.turn_id, turn.event_time) = ("0-1".into(), EventTime(10));
    });
    talk.answer(0, "hello");
    assert_eq!(talk.outcomes(), "[1:hello] [2:duplicate_of]");
}

#[test]
fn no_more_than_sixteen_are_merged() {
    let mut talk = Talk::new(in_bursts());
    (0..17).for_each(|at| talk.at(at, "a"));
    assert_eq!(talk.asked_texts(), ["a ".repeat(16).trim_end()]);
}

#[test]
fn a_fragment_supersedes_the_answer_to_those_before_it() {
    let mut talk = Talk::new(in_bursts());
    talk.at(0, "my parcel");
    talk.time_passes();
    talk.at(1_000, "is late");
    assert!(!talk.answer(0, "which parcel?"), "that was not all");
    assert_eq!((talk.time_passes(), talk.asked_texts()[1]), (1, "my parcel is late"));
    talk.answer(1, "sorry");
    assert_eq!(talk.outcomes(), "[1:merged_into 2:sorry]");
    talk.at(2_000, "very");
    assert_eq!(talk.time_passes(), 1);
    assert_eq!(talk.asked_texts()[2], "very", "that answer has left");
}

#[test]
fn an_agent_supersedes_each_fragment() {
    for answering in [false, true] {
        let mut talk = Talk::new(in_bursts());
        talk.at(0, "my parcel");
        talk.at(1_000, "is late");
        if answering {
            talk.time_passes();
        }
        talk.agent("let me see");
        assert_eq!(talk.outcomes(), "[1:superseded_by 2:superseded_by 3:system]");
        assert_eq!(talk.history(), "my parcel/- is late/let me see");
        assert_eq!(talk.time_passes(), 0);
    }
}

#[test]
fn fragments_whose_answer_fails_are_dead_letters_each() {
    let mut talk = Talk::new(in_bursts());
    talk.at(0, "my parcel");
    talk.at(1_000, "is late");
    talk.time_passes();
    talk.fail(0);
    assert_eq!(talk.history(), "my parcel/- is late/-");
    let ends: Vec<_> = talk.ended[0].outcomes.iter().map(|(outcome, _)| outcome).collect();
    assert!(matches!(ends[..], [Outcome::DeadLetter(_), Outcome::DeadLetter(_)]), "{ends:?}");
    talk.say(Speaker::User, "my parcel", |turn| turn.turn_id = "0-1".into());
    assert_eq!(talk.time_passes(), 1, "it may be sent again");
}

#[test]
fn a_replay_waits_for_just_what_its_log_says() {
    for source in [ResponseSource::Recorded, ResponseSource::Generated] {
        let mut talk = Talk::new(Rules { source, ..in_bursts() });
        let followed = |turn: &mut ArrivedTurn| {
            (turn.event_time, turn.followed) = (EventTime(0), true);
        };
        talk.say(Speaker::User, "my parcel", followed);
        assert_eq!((talk.asked.len(), talk.pauses.len()), (0, 0));
        talk.at(1_000, "is late");
        assert_eq!(talk.asked_texts(), ["my parcel is late"]);
        talk.at(1_100, "very");
        assert!(talk.answer(0, "sorry"), "the log did not say that more follows");
        assert_eq!(talk.asked_texts()[1], "very");
    }
}

#[test]
fn the_last_of_a_scope_may_be_a_fragment() {
    let mut talk = Talk::new(in_bursts());
    talk.assign(1);
    talk.at(0, "hi");
    talk.say(Speaker::User, "you", |turn| {
        (turn.event_time, turn.last_of_scope) = (EventTime(5), true);
    });
    assert_eq!(talk.scopes.in_memory(), 1);
    talk.time_passes();
    talk.answer(0, "hello");
    assert_eq!(talk.scopes.in_memory(), 0);
}
