use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use serde_json::{Value, json};
use turnstream_log::Record;
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Isolation, Message, partition_of};
use turnstream_operators::history::similarity::Similarity;
use turnstream_operators::history::{Database, HistoryConfig, Remembering};
use turnstream_schemas::{EntryId, EventTime, HistoryEntry, InputId, SCHEMA_VERSION, TurnId};

use super::*;

const SAID: [&str; 6] = [
    "Where is my parcel?",
    "Is the parcel at the post office?",
    "Which strings fit a violin?",
    "Is the violin for sale?",
    "And the other one?",
    "Does the post office sell strings?",
];

fn config() -> HistoryConfig {
    HistoryConfig { max_entries: 4, window_utterances: 2, ..HistoryConfig::default() }
}

/// Adds a user's turn on a partition. Turns that are not named have their coordinates as ids.
fn turn(
    database: &mut Database,
    said: usize,
    (partition, offset): (i32, i64),
    named: bool,
) -> Vec<HistoryChange> {
    let (config, similarity) = (config(), Similarity::by_words());
    let rules = Remembering { config: &config, similarity: &similarity };
    let scope = Scope::new(None, "c");
    let input = InputId { topic: "turns".to_owned(), partition, offset };
    let turn_id = if named { TurnId(format!("said-{said}")) } else { input.turn_id() };
    let entry = HistoryEntry {
        schema_version: SCHEMA_VERSION,
        turn_id: turn_id.clone(),
        query: Some(SAID[said].to_owned()),
        user_id: None,
        passages: Vec::new(),
        response: Some("So it is.".to_owned()),
        response_turn_id: None,
        event_time: EventTime(database.now().millis() + 60_000),
        vector: None,
        extra: serde_json::Map::new(),
        input,
    };
    database.see_time(entry.event_time);
    let update = database.insert(&scope, entry, &similarity.of_query(SAID[said]), &rules);
    database.remember(&turn_id);
    database.applied(&scope, offset);
    update.changes.into_iter().chain([database.record(&scope)]).collect()
}

/// A history after these turns, whose offsets are three apart.
fn kept(said: &[(usize, bool)], partition: i32) -> Histories {
    let (mut histories, mut database) = (Histories::default(), Database::default());
    for (at, (said, named)) in (0..).zip(said) {
        let changes = turn(&mut database, *said, (partition, 7 + 3 * at), *named);
        changes.into_iter().for_each(|change| histories.take(change));
    }
    histories
}

fn only(histories: &Histories) -> (&Scope, &Kept) {
    histories.iter().next().expect("a history")
}

/// Replaces offsets by texts, so that histories on two logs can be compared.
fn texts(kept: &Kept) -> Value {
    let text = |at: &i64| {
        let found = kept.entries.values().find(|entry| entry.input.offset == *at);
        let entry = found.expect("an entry that the record names");
        format!("{:?} {:?} {:?}", entry.query, entry.response, entry.event_time)
    };
    let texts = |of: &[i64]| of.iter().map(text).collect::<Vec<_>>();
    let record = &kept.record;
    let categories = record.categories.iter().map(|category| {
        let groups = category.groups.iter().map(|group| (group.id, texts(&group.entries)));
        (category.id, groups.collect::<Vec<_>>())
    });
    let chains = record.chains.iter().map(|chain| (chain.id, texts(&chain.entries)));
    json!({
        "entries": kept.entries.keys().map(|id| text(&id.offset)).collect::<Vec<_>>(),
        "categories": categories.collect::<Vec<_>>(),
        "chains": chains.collect::<Vec<_>>(),
        "next": [record.next_cluster, record.next_chain],
        "counts": [record.turns, record.evictions],
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A rebased history behaves like the original: the engine recalls the same entries for a
    /// query, and later turns evict and group the same entries.
    #[test]
    fn what_follows_on_a_rebased_history_is_what_would_have_followed(
        said in prop::collection::vec((0..SAID.len(), any::<bool>()), 0..9),
        then in prop::collection::vec((0..SAID.len(), any::<bool>()), 1..6),
    ) {
        let before = if said.is_empty() { Histories::default() } else { kept(&said, 2) };
        let (scope, old) = match before.iter().next() {
            Some((scope, kept)) => (scope.clone(), kept.clone()),
            None => (Scope::new(None, "c"), Kept::default()),
        };
        let mut after = Histories::default();
        for change in rebased(&scope, &old, (0, -1)).unwrap() {
            after.take(change);
        }
        let new = after.of(&scope).unwrap();
        prop_assert_eq!(texts(new), texts(&old));
        let many = old.entries.len() as i64;
        let offsets: Vec<EntryId> = (-many..0).map(|offset| EntryId { partition: 0, offset }).collect();
        prop_assert_eq!(new.entries.keys().copied().collect::<Vec<_>>(), offsets);
        prop_assert_eq!(new.record.last_applied_offset, -1);

        let (config, similarity) = (config(), Similarity::by_words());
        let rules = Remembering { config: &config, similarity: &similarity };
        let mut one = old.database(&config, &similarity).unwrap();
        let mut other = new.database(&config, &similarity).unwrap();
        let (mut before, mut after) = (before, after);
        for (at, (said, named)) in (0..).zip(then) {
            let recalled = |database: &Database| -> Vec<_> {
                let query = similarity.of_query(SAID[said]);
                let recalled = database.recall(&query, &rules).into_iter();
                recalled.map(|it| (it.entry.query.clone(), it.via, it.relevance, it.weight)).collect()
            };
            prop_assert_eq!(recalled(&one), recalled(&other));
            // On a log without earlier turns, the first turn has offset 0.
            turn(&mut one, said, (2, 100 + at), named).into_iter().for_each(|it| before.take(it));
            turn(&mut other, said, (0, at), named).into_iter().for_each(|it| after.take(it));
            prop_assert_eq!(texts(before.of(&scope).unwrap()), texts(after.of(&scope).unwrap()));
        }
    }
}

/// A turn without an id is named by its coordinates, which belong to another turn on another log.
#[test]
fn entries_are_named_anew_and_turns_stay_remembered() {
    let histories =
        kept(&[(0, false), (1, false), (2, true), (3, false), (4, true), (5, false)], 0);
    let (scope, old) = only(&histories);
    let named = |turn_ids: &[&str]| turn_ids.iter().map(|id| (*id).into()).collect::<Vec<TurnId>>();
    let said = named(&["0-7", "0-10", "said-2", "0-16", "said-4", "0-22"]);
    assert_eq!(old.record.remembered_turns, said.iter().collect());
    assert_eq!(old.entries.len(), 4, "two were evicted");
    let changes = rebased(scope, old, (0, -1)).unwrap();
    let Some(HistoryChange::Scope { record, .. }) = changes.last() else { panic!("{changes:?}") };
    assert_eq!(record.remembered_turns, old.record.remembered_turns);
    let ids = changes.iter().filter_map(|change| match change {
        HistoryChange::Entry { entry, .. } => Some(entry.turn_id.clone()),
        _ => None,
    });
    let before = old.entries.values().map(|entry| &entry.turn_id);
    for (at, (now, before)) in (-4..).zip(ids.zip(before)) {
        let expected = match before.as_str().starts_with("said-") {
            true => before.clone(),
            false => TurnId(format!("0-{at}")),
        };
        assert_eq!(now, expected);
    }
    // A second export and import changes nothing.
    let mut again = Histories::default();
    changes.iter().cloned().for_each(|change| again.take(change));
    assert_eq!(rebased(scope, again.of(scope).unwrap(), (0, -1)).unwrap(), changes);
}

#[test]
fn entries_of_two_partitions_have_no_order() {
    let mut histories = kept(&[(0, true)], 0);
    for change in rebased(&Scope::new(None, "c"), only(&histories).1, (1, -1)).unwrap() {
        histories.take(change);
    }
    let (scope, kept) = only(&histories);
    let error = rebased(scope, kept, (0, -1)).unwrap_err();
    assert_eq!(error, NoOrder { scope: scope.clone(), one: 0, other: 1 });
}

fn log(partitions: i32) -> EmbeddedLog {
    EmbeddedLog::in_memory(&EmbeddedConfig { partitions, ..EmbeddedConfig::default() }).unwrap()
}

fn target(log: &EmbeddedLog) -> Target {
    let consumer = log.consumer("turnstream", Topic::Turns).unwrap();
    let producer = log.producer(&consumer, "turnstream").unwrap();
    let (producer, consumer) = (Box::new(producer), Box::new(consumer));
    let beginnings = (0..log.partitions()).map(|_| 0).collect();
    Target { producer, consumer, beginnings, patience: Duration::from_millis(300) }
}

/// Histories of `scopes` conversations.
fn many(scopes: usize) -> Histories {
    let mut histories = Histories::default();
    for at in 0..scopes {
        let said = [(at % SAID.len(), true), ((at + 1) % SAID.len(), true)];
        for change in kept(&said, 0).changes() {
            let scope = Scope::new(None, &format!("c-{at}"));
            let key = EntryKey { scope, entry: change.key().entry };
            histories.take(match change {
                HistoryChange::Entry { entry, .. } => HistoryChange::Entry { key, entry },
                HistoryChange::Scope { record, .. } => HistoryChange::Scope { key, record },
                HistoryChange::Gone { .. } => continue,
            });
        }
    }
    histories
}

fn place(partitions: i32) -> impl Fn(&Scope) -> i32 {
    move |scope| {
        let (_, id) = scope.as_str().split_once('/').expect("a tenant");
        partition_of(id.as_bytes(), partitions)
    }
}

fn put(log: &EmbeddedLog, histories: &Histories, replace: bool) -> Result<Imported, ImportError> {
    let wanted = Wanted { histories, replace };
    import(&mut target(log), &wanted, &place(log.partitions()), &|| {})
}

/// The histories that a reader of the whole topic sees.
fn on_log(log: &EmbeddedLog) -> Histories {
    let mut histories = Histories::default();
    for partition in 0..log.partitions() {
        for record in records(log, partition) {
            histories.take(super::super::change(&record).unwrap());
        }
    }
    histories
}

fn records(log: &EmbeddedLog, partition: i32) -> Vec<Record> {
    log.read(Topic::History, partition, 0, usize::MAX, Isolation::ReadCommitted).unwrap()
}

#[test]
fn histories_go_where_their_turns_come_and_the_log_knows_where_to_begin() {
    let (log, histories) = (log(3), many(40));
    let done = put(&log, &histories, false).unwrap();
    assert_eq!((done.scopes, done.entries, done.written, done.removed), (40, 80, 120, 0));
    let place = place(3);
    for partition in 0..3 {
        let there = records(&log, partition);
        assert!(!there.is_empty(), "forty conversations are on all partitions");
        for record in there {
            let key: EntryKey = serde_json::from_slice(&record.key.unwrap()).unwrap();
            assert_eq!(place(&key.scope), partition);
            assert!(key.entry.is_none_or(|id| id.partition == partition && id.offset < 0));
        }
        let committed = log.committed("turnstream", partition).unwrap().unwrap();
        assert_eq!((committed.offset, &*committed.metadata), (0, ""));
    }
    for (scope, kept) in histories.iter() {
        assert_eq!(texts(on_log(&log).of(scope).unwrap()), texts(kept));
    }
    // A second import of the same histories changes nothing.
    let ends = || [0, 1, 2].map(|partition| log.end(Topic::History, partition));
    let before = ends();
    let again = put(&log, &histories, false).unwrap();
    assert_eq!(again, Imported { unchanged: 40, ..Imported::default() });
    assert_eq!(ends(), before);
}

#[test]
fn what_is_there_is_left_alone_or_gives_way() {
    let log = log(1);
    put(&log, &many(3), false).unwrap();
    // One of the conversations went on.
    let kept = on_log(&log).of(&Scope::new(None, "c-1")).unwrap().clone();
    let mut database = kept.database(&config(), &Similarity::by_words()).unwrap();
    for change in turn(&mut database, 0, (0, 5), true) {
        let key = EntryKey { scope: Scope::new(None, "c-1"), entry: change.key().entry };
        let value = match &change {
            HistoryChange::Entry { entry, .. } => Some(json(entry)),
            HistoryChange::Scope { record, .. } => Some(json(record)),
            HistoryChange::Gone { .. } => None,
        };
        let message = Message { key: Some(json(&key)), value, ..Message::default() };
        log.append(Topic::History, 0, message).unwrap();
    }
    let end = log.end(Topic::History, 0);
    let error = put(&log, &many(4), false).unwrap_err();
    assert_eq!(error.to_string(), "the log already has a history of `default/c-1`");
    assert_eq!(log.end(Topic::History, 0), end, "nothing of it was written");

    let done = put(&log, &many(4), true).unwrap();
    // Its own record and two entries are written, and the later entry is removed.
    assert_eq!((done.scopes, done.replaced, done.unchanged), (2, 1, 2));
    assert_eq!((done.written, done.removed), (7, 1));
    let now = on_log(&log);
    let scope = Scope::new(None, "c-1");
    assert_eq!(texts(now.of(&scope).unwrap()), texts(many(4).of(&scope).unwrap()));
    let applied = now.of(&scope).unwrap().record.last_applied_offset;
    assert_eq!(applied, 5, "an input that was applied on this log does not come again");
}

#[test]
fn a_history_on_another_partition_than_its_turns_is_refused() {
    let log = log(2);
    let histories = many(1);
    let wanted = Wanted { histories: &histories, replace: false };
    let own = place(2)(&Scope::new(None, "c-0"));
    import(&mut target(&log), &wanted, &|_| 1 - own, &|| {}).unwrap();
    let error = put(&log, &histories, true).unwrap_err().to_string();
    let said = format!(", on partition {}, but its turns come to partition {own}", 1 - own);
    assert!(error.ends_with(&said), "{error}");
}

#[test]
fn a_log_that_is_served_is_left_alone() {
    let log = log(2);
    let mut other = log.consumer("turnstream", Topic::Turns).unwrap();
    while !matches!(other.poll(Duration::ZERO).unwrap(), Event::Assigned(_)) {}
    let stopped = AtomicBool::new(false);
    let error = std::thread::scope(|threads| {
        // The other member gives up one of its partitions, as an engine does.
        threads.spawn(|| {
            while !stopped.load(Ordering::Relaxed) {
                if let Event::Revoked(_) = other.poll(Duration::from_millis(1)).unwrap() {
                    other.release().unwrap();
                }
            }
        });
        let error = put(&log, &many(2), false);
        stopped.store(true, Ordering::Relaxed);
        error.unwrap_err()
    });
    assert!(matches!(error, ImportError::Served { held: 1, of: 2, .. }), "{error}");
    assert!(on_log(&log).iter().next().is_none());

    // A process that begins to serve the log meanwhile finds whole histories.
    drop(other);
    let joined = RefCell::new(None);
    let told = Cell::new(0);
    let advance = || {
        told.set(told.get() + 1);
        if told.get() == 400 {
            *joined.borrow_mut() = Some(log.consumer("turnstream", Topic::Turns).unwrap());
        }
    };
    let histories = many(1_000);
    let wanted = Wanted { histories: &histories, replace: false };
    let error = import(&mut target(&log), &wanted, &place(2), &advance).unwrap_err();
    let ImportError::Interrupted { done } = error else { panic!("{error}") };
    let there = on_log(&log);
    assert_eq!(there.iter().count() as u64, done);
    assert!(done > 0 && done < 1_000, "{done}");
    assert!(there.iter().all(|(_, kept)| kept.entries.len() == 2 && kept.record.turns == 2));
    drop(joined);
    let rest = put(&log, &histories, false).unwrap();
    assert_eq!((rest.unchanged, rest.scopes), (done, 1_000 - done));
}
