//! Views of histories: turns through the engine's own databases, deletions, repeated records and
//! unreadable records.

use std::collections::BTreeMap;

use proptest::prelude::*;
use turnstream_operators::history::similarity::Similarity;
use turnstream_operators::history::{HistoryConfig, Remembering};
use turnstream_schemas::{
    EventTime, EvictionCounts, EvictionReason, HistoryEntry, InputId, Passage, SCHEMA_VERSION,
    Scope, ScopeRecord, TurnId, ViewName,
};

use super::*;
use crate::histories::Histories;

/// What users say: two subjects, so that some entries share a category and others do not.
const SAID: [&str; 5] = [
    "Where is my parcel?",
    "Is the parcel at the post office?",
    "Which strings fit a violin?",
    "Is the violin for sale?",
    "And the other one?",
];
const SCOPES: [&str; 3] = ["a", "a#0", "b"];

/// An event in one history. Offsets and times continue those of the log.
#[derive(Clone, Debug)]
pub(super) enum HistoryEvent {
    /// The user said it, and the response used this evidence.
    Turn { said: usize, evidence: Vec<usize>, answered: bool, later_ms: i64 },
    /// An agent answered the latest entry without a response, if there is one.
    Agent,
    /// The engine restores the history from the topic.
    Restored,
    /// Tombstones for the entries, the scope's own record, or both; perhaps twice each.
    Deleted { entries: bool, record: bool, twice: bool },
    /// An entry or the scope's record becomes unreadable.
    Unreadable { record: bool },
    /// A record of a version that did not count evictions by reason.
    Older,
}

/// A scope and an event in its history.
#[derive(Clone, Debug)]
pub(super) struct Talk {
    partition: i32,
    scope: usize,
    told: HistoryEvent,
}

pub(super) fn talk() -> impl Strategy<Value = Talk> {
    let turn =
        (0..SAID.len(), prop::collection::vec(0..4_usize, 0..3), any::<bool>(), 1..40_000_i64);
    let told = prop_oneof![
        12 => turn.prop_map(|(said, evidence, answered, later_ms)| {
            HistoryEvent::Turn { said, evidence, answered, later_ms }
        }),
        3 => Just(HistoryEvent::Agent),
        2 => Just(HistoryEvent::Restored),
        2 => (any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(entries, record, twice)| HistoryEvent::Deleted { entries, record, twice }),
        1 => any::<bool>().prop_map(|record| HistoryEvent::Unreadable { record }),
        1 => Just(HistoryEvent::Older),
    ];
    let whose = (0..PARTITIONS, 0..SCOPES.len());
    (whose, told).prop_map(|((partition, scope), told)| Talk { partition, scope, told })
}

/// At most three entries, none older than a minute and a half.
fn config() -> HistoryConfig {
    HistoryConfig { max_entries: 3, max_age_seconds: 90, ..HistoryConfig::default() }
}

/// Applies the event through the history's own database, as the engine would. Restores the database
/// from the topic each time, so that all state is on the log.
pub(super) fn happen_to(log: &EmbeddedLog, Talk { partition, scope, told }: &Talk) {
    let scope = Scope::new(None, SCOPES[*scope]);
    let (config, similarity) = (config(), Similarity::by_words());
    let rules = Remembering { config: &config, similarity: &similarity };
    let mut histories = Histories::default();
    for record in
        log.read(Topic::History, *partition, 0, usize::MAX, Isolation::ReadCommitted).unwrap()
    {
        if let Ok(change) = crate::histories::change(&record) {
            histories.take(change);
        }
    }
    let kept = histories.of(&scope).cloned().unwrap_or_default();
    let key = |entry| EntryKey { scope: scope.clone(), entry };
    let put = |change: &HistoryChange| {
        let value = match change {
            HistoryChange::Entry { entry, .. } => Some(serde_json::to_vec(entry).unwrap()),
            HistoryChange::Scope { record, .. } => Some(serde_json::to_vec(record).unwrap()),
            HistoryChange::Gone { .. } => None,
        };
        let key = serde_json::to_string(change.key()).unwrap();
        append(log, Topic::History, *partition, Some(&key), value);
    };
    match told {
        HistoryEvent::Turn { said, evidence, answered, later_ms } => {
            let mut database = kept.database(&config, &similarity).unwrap();
            // The log's end is behind the offset of every entry.
            let offset = read(log, Topic::History).map(|record| record.offset + 1).max();
            let offset = offset.unwrap_or(0).max(kept.record.last_applied_offset + 1);
            let now = EventTime(database.now().millis() + later_ms);
            let input = InputId { topic: "turns".to_owned(), partition: *partition, offset };
            let passage = |at: &usize| Passage {
                id: format!("ours/IsA/{}/thing", CONCEPTS[*at]).into(),
                text: String::new(),
            };
            let entry = HistoryEntry {
                schema_version: SCHEMA_VERSION,
                turn_id: input.turn_id(),
                user_id: None,
                query: Some(SAID[*said].to_owned()),
                passages: evidence.iter().map(passage).collect(),
                response: answered.then(|| "So it is.".to_owned()),
                response_turn_id: None,
                event_time: now,
                vector: None,
                extra: serde_json::Map::new(),
                input,
            };
            database.see_time(now);
            let query = similarity.of_query(SAID[*said]);
            let update = database.insert(&scope, entry, &query, &rules);
            database.applied(&scope, offset);
            update.changes.iter().chain([&database.record(&scope)]).for_each(put);
        }
        HistoryEvent::Agent => {
            let mut database = kept.database(&config, &similarity).unwrap();
            let said = database.complete(&scope, "We will see.", &TurnId::from("agent"), &rules);
            said.iter().chain([&database.record(&scope)]).for_each(put);
        }
        HistoryEvent::Restored => put(&kept.database(&config, &similarity).unwrap().record(&scope)),
        HistoryEvent::Deleted { entries, record, twice } => {
            for _ in 0..=usize::from(*twice) {
                let held = kept.entries.keys().filter(|_| *entries);
                held.for_each(|id| {
                    put(&HistoryChange::Gone { key: key(Some(*id)), evicted: None });
                });
                if *record {
                    put(&HistoryChange::Gone { key: key(None), evicted: None });
                }
            }
        }
        HistoryEvent::Unreadable { record } => {
            let entry = kept.entries.keys().next().copied().filter(|_| !record);
            let key = serde_json::to_string(&key(entry)).unwrap();
            append(log, Topic::History, *partition, Some(&key), Some(b"{}".to_vec()));
            append(log, Topic::History, *partition, Some("no key"), None);
        }
        HistoryEvent::Older => {
            let evictions_by_reason = EvictionCounts::default();
            let record = Box::new(ScopeRecord { evictions_by_reason, ..kept.record });
            put(&HistoryChange::Scope { key: key(None), record });
        }
    }
}

/// Repeats the last records of the topic, as a process does that did not learn of its commit.
pub(super) fn repeat(log: &EmbeddedLog, partition: i32, records: usize) {
    let all = log.read(Topic::History, partition, 0, usize::MAX, Isolation::ReadCommitted).unwrap();
    let from = all.len().saturating_sub(records);
    for Record { key, value, .. } in all.into_iter().skip(from) {
        let message = Message { key, value, ..Message::default() };
        log.append(Topic::History, partition, message).unwrap();
    }
}

#[derive(Clone, Debug)]
enum Followed {
    Talked(Talk),
    Repeated(i32, usize),
    Compacted,
    /// Another process takes over, on the topic that this one published.
    Restarted,
}

fn followed() -> impl Strategy<Value = Followed> {
    prop_oneof![
        12 => talk().prop_map(Followed::Talked),
        2 => (0..PARTITIONS, 1..9_usize).prop_map(|(of, many)| Followed::Repeated(of, many)),
        1 => Just(Followed::Compacted),
        1 => Just(Followed::Restarted),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// One process follows the log, and after each event the topic equals what the oracle counts
    /// from the whole log.
    #[test]
    fn views_of_histories_are_right_after_every_change(
        happenings in prop::collection::vec(followed(), 1..40),
    ) {
        let log = log();
        let mut following = process(&log, &ViewsConfig::default(), None);
        while !following.look(Duration::ZERO).unwrap() {}
        for happening in &happenings {
            match happening {
                Followed::Talked(talk) => happen_to(&log, talk),
                Followed::Repeated(partition, records) => repeat(&log, *partition, *records),
                Followed::Compacted => {
                    log.compact(Topic::History).unwrap();
                    log.compact(Topic::Views).unwrap();
                }
                Followed::Restarted => {
                    following = process(&log, &ViewsConfig::default(), None);
                    while !following.look(Duration::ZERO).unwrap() {}
                }
            }
            while !following.count(Duration::ZERO).unwrap() {}
            following.count(Duration::ZERO).unwrap();
            following.publish().unwrap();
            prop_assert_eq!(on_topic(&log), expected(&log), "after {:?}", happening);
        }
    }
}

/// Keeps the property meaningful: turns fill, split and evict, and every view has rows.
#[test]
fn turns_and_deletions_reach_every_view_of_histories() {
    let log = log();
    let of = |view| {
        let rows = on_topic(&log).into_iter().filter(|(key, _)| key.view == view);
        rows.map(|(key, count)| (key.key, count)).collect::<BTreeMap<_, _>>()
    };
    let named = |rows: &[(&str, u64)]| -> BTreeMap<String, u64> {
        rows.iter().map(|(key, count)| ((*key).to_owned(), *count)).collect()
    };
    let turn = |said, later_ms| {
        let told = HistoryEvent::Turn { said, evidence: vec![0, 0, 1], answered: true, later_ms };
        happen_to(&log, &Talk { partition: 1, scope: 1, told });
    };
    for said in 0..4 {
        turn(said, 1_000);
    }
    turn(0, 91_000);
    once(&log);
    // One entry exceeded the capacity and three were too old. The last one has its own category.
    let reasons = EvictionReason::ALL.map(EvictionReason::name);
    assert_eq!(of(ViewName::EvictionsByReason), named(&[(reasons[0], 1), (reasons[1], 3)]));
    turn(1, 1_000);
    turn(2, 1_000);
    once(&log);
    let clusters = of(ViewName::EntriesByCluster);
    assert_eq!(clusters.values().sum::<u64>(), 3, "{clusters:?}");
    assert!(clusters.keys().all(|key| key.starts_with("default/a#0#")), "{clusters:?}");
    assert_eq!(of(ViewName::ClusterSizes), named(&[("1", 1), ("2", 1)]), "{clusters:?}");
    let used = of(ViewName::EvidenceRemembered);
    assert_eq!(used, named(&[("ours/IsA/cat/thing", 3), ("ours/IsA/dog/thing", 3)]));
    let sizes = of(ViewName::HistorySizes);
    assert_eq!((sizes["scopes"], sizes["entries"], sizes["categories"]), (1, 3, 2), "{sizes:?}");
    assert!(sizes["groups"] >= 2 && sizes["chains"] >= 1 && sizes["bytes"] > 600, "{sizes:?}");

    // Without histories, no row of theirs stays on the topic.
    let whose = |told| Talk { partition: 1, scope: 1, told };
    let without = ViewsConfig { histories: false, ..ViewsConfig::default() };
    let mut process = process(&log, &without, None);
    process.run(true, &AtomicBool::new(false)).unwrap();
    assert_eq!((process.summary().history_changes, on_topic(&log).len()), (0, 0));
    once(&log);
    assert_eq!(on_topic(&log), expected(&log));
    happen_to(&log, &whose(HistoryEvent::Deleted { entries: true, record: true, twice: true }));
    once(&log);
    assert_eq!(on_topic(&log), BTreeMap::new());
}

/// An unreadable record counts for nothing and removes the earlier record of its key, as compaction
/// will.
#[test]
fn a_record_that_cannot_be_read_takes_what_lay_there_with_it() {
    let log = log();
    let on = |told| happen_to(&log, &Talk { partition: 0, scope: 0, told });
    for said in [0, 2] {
        on(HistoryEvent::Turn { said, evidence: vec![2], answered: true, later_ms: 1 });
    }
    on(HistoryEvent::Unreadable { record: false });
    let mut first = process(&log, &ViewsConfig::default(), None);
    first.run(true, &AtomicBool::new(false)).unwrap();
    // Each turn writes an entry and the scope's record.
    assert_eq!((first.summary().history_changes, first.summary().refused), (4, 2));
    let before = on_topic(&log);
    assert_eq!(before, expected(&log));
    let row = |view, key: &str| ViewKey { view, partition: 0, key: key.to_owned() };
    assert_eq!(before[&row(ViewName::HistorySizes, "entries")], 1);
    assert_eq!(before[&row(ViewName::EvidenceRemembered, "ours/IsA/rain/thing")], 1);
    log.compact(Topic::History).unwrap();
    assert_eq!(once(&log).written, 0, "compaction changes nothing");
    assert_eq!(on_topic(&log), before);
}

#[test]
fn more_entries_than_may_be_remembered_stop_it() {
    let log = log();
    for scope in 0..2 {
        let told = HistoryEvent::Turn { said: 0, evidence: vec![], answered: true, later_ms: 1 };
        happen_to(&log, &Talk { partition: 0, scope, told });
    }
    // Two entries and two records of scopes.
    let run = |max_entries| {
        let config = ViewsConfig { max_entries, ..ViewsConfig::default() };
        process(&log, &config, None).run(true, &AtomicBool::new(false))
    };
    let error = run(3).unwrap_err().to_string();
    assert!(
        error.contains("hold 4 entries of histories, and views.max_entries allows 3"),
        "{error}"
    );
    assert!(error.contains("views.histories = false"), "{error}");
    assert_eq!(read(&log, Topic::Views).count(), 0, "nothing was published");
    run(4).unwrap();
}
