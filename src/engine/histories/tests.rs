use turnstream_schemas::{EventTime, EvictionReason, InputId, Score, TurnId};

use super::*;

fn id(offset: i64) -> EntryId {
    EntryId { partition: 0, offset }
}

fn entry(offset: i64, query: &str) -> HistoryEntry {
    HistoryEntry {
        schema_version: 1,
        input: InputId { topic: "turns".to_owned(), partition: 0, offset },
        query: Some(query.to_owned()),
        turn_id: TurnId(format!("t{offset}")),
        user_id: None,
        passages: Vec::new(),
        response: Some("So it is.".to_owned()),
        response_turn_id: None,
        event_time: EventTime(offset * 1_000),
        vector: None,
        extra: serde_json::Map::new(),
    }
}

fn evicted(turn: &str) -> Evicted {
    Evicted {
        turn_id: turn.into(),
        relevance: Score::new(0.25),
        recency: Score::new(0.5),
        importance: None,
        weight: Score::new(0.375),
        rank: 4,
        reason: EvictionReason::Capacity,
    }
}

fn key(entry: Option<EntryId>) -> EntryKey {
    EntryKey { scope: Scope::new(None, "c"), entry }
}

/// Three entries about two subjects. The first was evicted.
fn changes() -> Vec<HistoryChange> {
    let said = ["Where is my parcel?", "Which strings fit a violin?", "Is the violin for sale?"];
    let mut changes: Vec<HistoryChange> = (0..)
        .zip(said)
        .map(|(at, said)| HistoryChange::Entry {
            key: key(Some(id(at))),
            entry: Box::new(entry(at, said)),
        })
        .collect();
    let why = Some(Box::new(evicted("t0")));
    changes.push(HistoryChange::Gone { key: key(Some(id(0))), evicted: why });
    let record = ScopeRecord { turns: 3, evictions: 1, ..ScopeRecord::default() };
    changes.push(HistoryChange::Scope { key: key(None), record: Box::new(record) });
    changes
}

fn histories(changes: impl IntoIterator<Item = HistoryChange>) -> Histories {
    let mut histories = Histories::default();
    changes.into_iter().for_each(|change| histories.take(change));
    histories
}

#[test]
fn a_history_is_shown_with_what_left_and_why() {
    let histories = histories(changes());
    let scope = Scope::new(None, "c");
    let (config, similarity) = (HistoryConfig::default(), Similarity::by_words());
    let shown = Shown::of(&scope, histories.of(&scope).unwrap(), &config, &similarity).unwrap();
    let rendered = tree(&shown, 10).render(100, false);
    // By hand: t2 has both terms of the latest query, 1 ÷ (1 + 1.02) of the largest relevance; t1
    // has the term that both have, ln(1.2) ÷ ln(2.4) × 1 ÷ (1 + 1.38).
    let expected = "\
default/c: 2 entries, 1 eviction of 3 turns since the scope began, 1 category
├─ category 0
│  └─ summary violin, sale, fit, strings: “Is the violin for sale?”
│     ├─ t1 weighs 0.17 (relevance 0.09, recency 1.00, importance 0.04) now
│     │     user: Which strings fit a violin?
│     │     response: So it is.
│     └─ t2 weighs 0.21 (relevance 0.50, recency 1.00, importance 0.03) now
│           user: Is the violin for sale?
│           response: So it is.
├─ chains of thought
│  └─ t1 → t2
└─ evicted
   └─ t0 ranked 4 by weight 0.38 (relevance 0.25, recency 0.50)
         user: Where is my parcel?
         response: So it is.
";
    assert_eq!(rendered, expected);
    assert!(!tree(&shown, 0).render(100, false).contains("parcel"));
}

#[test]
fn what_is_exported_makes_the_same_histories() {
    let read = histories(changes());
    let exported: Vec<HistoryChange> = read.changes().collect();
    assert_eq!(exported.len(), 3, "the record and two entries");
    let again: Vec<HistoryChange> = histories(exported.clone()).changes().collect();
    assert_eq!(again, exported);
}

/// Records of the topic are read back as the changes that were written.
#[test]
fn records_of_the_topic_are_read_as_changes() {
    for change in changes() {
        let value = match &change {
            HistoryChange::Entry { entry, .. } => serde_json::to_vec(entry).ok(),
            HistoryChange::Scope { record, .. } => serde_json::to_vec(record).ok(),
            HistoryChange::Gone { .. } => None,
        };
        let headers = match &change {
            HistoryChange::Gone { evicted: Some(evicted), .. } => vec![evictions::encode(evicted)],
            _ => Vec::new(),
        };
        let key = serde_json::to_vec(change.key()).ok();
        let record = Record { key, value, headers, ..Record::default() };
        assert_eq!(super::change(&record).unwrap(), change);
    }
}
