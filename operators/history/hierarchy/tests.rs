use turnstream_schemas::{EventTime, InputId};

use super::*;
use crate::history::clusters::ClustersConfig;

/// The clusters of these entries, numbered from 0, and their signatures.
fn told(said: &[&str]) -> (Clusters, Vec<Signature>) {
    let texts: Vec<Signature> = said.iter().map(|said| Signature::of([*said])).collect();
    let mut clusters = Clusters::default();
    for (entry, text) in (0..).zip(&texts) {
        clusters.insert(entry, text, &ClustersConfig::default());
    }
    (clusters, texts)
}

const SAID: [&str; 6] = [
    "my parcel from the shop is late",
    "the violin needs new strings",
    "the parcel is still late",
    "a box with a parcel for a town by train",
    "strings for a violin",
    "rain on the lake",
];

#[test]
fn a_query_goes_down_where_it_matches_best() {
    let (clusters, texts) = told(&SAID);
    let text_of = |at: i64| texts.get(at as usize);
    let below = |query: &str, categories, groups| {
        descend(&clusters, &Signature::of([query]), Beam { categories, groups }, text_of)
    };
    assert_eq!(below("late parcel", 1, 1), [0, 2]);
    assert_eq!(below("late parcel", 1, 2), [0, 2, 3]);
    assert_eq!(below("a town with a violin", 1, 4), [1, 4], "the other category is closed");
    assert_eq!(below("a town with a violin", 2, 4), [1, 3, 4]);
    assert_eq!(below("elephants", 9, 9), [] as [i64; 0], "nothing is like that");
}

#[test]
fn a_summary_is_the_central_entry_and_what_all_share() {
    let (clusters, texts) = told(&["late parcel", "late parcel snow", "late parcel train"]);
    let group = clusters.group_of(0).and_then(|number| clusters.group(number)).unwrap();
    assert_eq!(central(group, |at| texts.get(at as usize)), Some(0));

    let entry = |query: &str| HistoryEntry {
        schema_version: 1,
        input: InputId { topic: "turns".to_owned(), partition: 0, offset: 0 },
        query: Some(query.to_owned()),
        turn_id: "t".into(),
        user_id: None,
        passages: Vec::new(),
        response: None,
        response_turn_id: None,
        event_time: EventTime(0),
        vector: None,
        extra: serde_json::Map::new(),
    };
    let entries = [entry("The late parcel"), entry("late parcel snow")];
    let summary = summarise(group, entries.iter()).unwrap();
    assert_eq!(summary.text, "The late parcel");
    assert_eq!(summary.concepts, ["parcel", "late", "snow"]);
    assert_eq!(summarise(group, std::iter::empty()), None);
}

/// A query is compared with the central entry as well as with the sum: the sum of a large group says
/// little about any one thing.
#[test]
fn a_summary_matches_by_its_central_entry_or_by_what_all_share() {
    let (clusters, texts) = told(&["late parcel", "late parcel snow", "late parcel train"]);
    let group = clusters.group_of(0).and_then(|number| clusters.group(number)).unwrap();
    let matches = |query: &str| {
        let query = Signature::of([query]);
        (
            match_summary(group, &query, |at| texts.get(at as usize)),
            group.centroid().likeness(&query),
        )
    };
    let (by_summary, by_sum) = matches("late parcel");
    assert!(by_summary > by_sum && (by_summary - 1.0).abs() < 1e-6, "{by_summary} {by_sum}");
    let (by_summary, by_sum) = matches("snow");
    assert_eq!(by_summary, by_sum, "the central entry does not have it");
    assert!(by_sum > 0.0);
}
