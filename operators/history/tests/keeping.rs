//! What a history keeps once it is full.

use super::*;

/// Says what is worth keeping, then small talk until the history overflows.
fn full(config: HistoryConfig) -> Talk {
    let mut talk = Talk::new(Rules { config, ..rules() });
    let facts = [
        "I moved to Oslo in May 2019",
        "Clara paid 40 euros to Vera",
        "Trains to Bergen leave at 8:15 and 9:40",
    ];
    let small = ["well", "and then", "so", "is it"];
    for (place, said) in facts.iter().chain(&small).enumerate() {
        talk.user(said);
        talk.answer(place, "ok");
    }
    talk
}

#[test]
fn what_is_specific_outlives_small_talk_and_the_dialogue_stays_whole() {
    let config = HistoryConfig { max_entries: 4, window_utterances: 6, ..HistoryConfig::default() };
    let mut talk = full(config.clone());
    let kept =
        "Clara paid 40 euros to Vera/ok Trains to Bergen leave at 8:15 and 9:40/ok so/ok is it/ok";
    assert_eq!(talk.history(), kept, "half is of the window, half is what weighs most");
    let evicted = &talk.last_response().evicted[0];
    assert_eq!((evicted.turn_id.as_str(), evicted.rank), ("0-5", 5), "and then");
    assert!(evicted.importance.is_some_and(|importance| importance.get() < 0.1), "{evicted:?}");
    talk.user("really");
    let heard: Vec<&str> = talk.asked[7].dialogue.iter().map(|said| &*said.text).collect();
    assert_eq!(heard[2..], ["so", "ok", "is it", "ok", "really"]);

    // Without importance, what is as old as the rest leaves first. Without a window, only the newest stays.
    let by_recency = HistoryConfig { importance_share: 0.0, alpha: 0.0, ..config.clone() };
    assert_eq!(full(by_recency).history(), "well/ok and then/ok so/ok is it/ok");
    let no_window = HistoryConfig { window_utterances: 0, ..config };
    assert!(full(no_window).history().ends_with("leave at 8:15 and 9:40/ok is it/ok"));
}
