use turnstream_schemas::{EventTime, InputId, TurnId};

use super::*;

/// Exchanges, the latest first, as turns t1, t2 …
fn entries(exchanges: &[(&str, &str)]) -> Vec<HistoryEntry> {
    let entry = |(number, (query, response)): (usize, &(&str, &str))| HistoryEntry {
        schema_version: 1,
        input: InputId { topic: "turns".to_owned(), partition: 0, offset: number as i64 },
        query: Some((*query).to_owned()),
        turn_id: TurnId(format!("t{}", exchanges.len() - number)),
        user_id: None,
        passages: Vec::new(),
        response: Some((*response).to_owned()),
        response_turn_id: None,
        event_time: EventTime(0),
        vector: None,
        extra: serde_json::Map::new(),
    };
    exchanges.iter().enumerate().map(entry).collect()
}

fn completed(query: &str, exchanges: &[(&str, &str)]) -> Option<(String, Vec<String>)> {
    let entries = entries(exchanges);
    let completed = reconstruct(query, entries.iter(), &ReconstructionConfig::default())?;
    Some((completed.query, completed.from.into_iter().map(|turn| turn.0).collect()))
}

fn is(query: &str, from: &[&str]) -> Option<(String, Vec<String>)> {
    Some((query.to_owned(), from.iter().map(|turn| (*turn).to_owned()).collect()))
}

#[test]
fn a_query_is_completed_by_what_the_exchange_before_names() {
    assert_eq!(
        completed(
            "And when was it built?",
            &[("How tall is the lighthouse of Pellworm?", "It rises 38 metres.")],
        ),
        is("And when was it built? (tall lighthouse Pellworm)", &["t1"])
    );
    let exchanges = [("Who wrote the opera?", "It was written by Clara Brand in Vienna.")];
    assert_eq!(
        completed("What else did she write?", &exchanges),
        is("What else did she write? (opera Clara Brand Vienna)", &["t1"]),
        "of a response the names, and nothing that the query says itself"
    );
}

#[test]
fn what_refers_back_itself_is_followed_further() {
    let exchanges = [
        ("How deep is it?", "Very deep."),
        ("Can one swim in it?", "Of course."),
        ("Where is the lake of the heron?", "In the north."),
        ("Do you like trains?", "No."),
    ];
    assert_eq!(
        completed("And how cold is it?", &exchanges),
        is("And how cold is it? (deep swim lake heron)", &["t4", "t3", "t2"])
    );
}

#[test]
fn a_query_that_stands_for_itself_stays_as_it_is() {
    let exchanges = [("Where is the lake?", "In the north.")];
    assert_eq!(completed("How do I restring a violin?", &exchanges), None);
    assert_eq!(completed("Ok, thanks!", &exchanges), None);
    assert_eq!(completed("Why is that?", &[]), None);
    assert_eq!(completed("Why is that?", &[("And why?", "Because.")]), None, "nothing is named");
    let entries = entries(&exchanges);
    let none = ReconstructionConfig { max_words: 0, ..ReconstructionConfig::default() };
    assert_eq!(reconstruct("How deep is it?", entries.iter(), &none), None);
}

#[test]
fn chinese_queries_are_completed_too() {
    let exchanges = [("故宫在哪里？", "在北京。")];
    assert_eq!(completed("它有多大？", &exchanges), is("它有多大？ (故宫)", &["t1"]));
}
