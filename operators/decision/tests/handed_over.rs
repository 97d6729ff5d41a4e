//! Turns that a person takes over.

use super::*;

#[test]
fn who_needs_a_person_is_handed_over_whatever_was_found() {
    let sure = |intents| Reading { intents, ..reading(&[&[-2.0], &[9.0, 0.0, 0.0]], 1.0) };
    let asks = [0.4, 0.0, 0.6, 0.0, 0.0];
    for (said, intents, reason) in [
        ("u: I want to speak to a human", asks, HandOffReason::Asked),
        ("u: it is over", [0.6, 0.0, 0.0, 0.0, 0.4], HandOffReason::Safety),
    ] {
        assert_eq!(of(&decided(&[said], pages(), sure(intents))).1, Some(reason));
    }
    // Each reason can be switched off.
    let hand_off = HandOffConfig { asked: false, ..HandOffConfig::default() };
    let config = DecisionConfig { hand_off, ..DecisionConfig::default() };
    let (turn, _) = decided_with(&config, &["u: a real person?"], pages(), sure(asks));
    assert_eq!(of(&turn).0, Action::Answer);
}

#[test]
fn where_nothing_answers_the_reader_may_be_less_sure_that_a_person_is_needed() {
    let lines = ["u: two of the three boxes came"];
    let said = |intents, precision| {
        let reading = Reading { intents, ..reading(&[&[-2.0], &[9.0, 0.0, 0.0]], precision) };
        let turn = decided(&lines, pages(), reading);
        (of(&turn).0, of(&turn).1)
    };
    let complains = [0.6, 0.0, 0.0, 0.4, 0.0];
    assert_eq!(said(complains, 0.9), (Action::Answer, None));
    let complaint = Some(HandOffReason::Complaint);
    assert_eq!(said(complains, 0.1), (Action::HandOff, complaint));
    assert_eq!(said([0.9, 0.0, 0.0, 0.1, 0.0], 0.1), (Action::Decline, None));
    let danger = [0.8, 0.0, 0.0, 0.0, 0.2];
    assert_eq!(said(danger, 0.1), (Action::HandOff, Some(HandOffReason::Safety)));
    assert_eq!(said([0.1, 0.5, 0.0, 0.4, 0.0], 0.1), (Action::HandOff, complaint));
    let hand_off = HandOffConfig { complaint: false, ..HandOffConfig::default() };
    let config = DecisionConfig { hand_off, ..DecisionConfig::default() };
    let unsure = Reading { intents: complains, ..reading(&[&[-2.0], &[9.0, 0.0, 0.0]], 0.1) };
    let (turn, _) = decided_with(&config, &lines, pages(), unsure);
    assert_eq!(of(&turn).0, Action::Decline);
}
