use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use turnstream_schemas::outcome::Bytes;
use turnstream_schemas::{
    DeadLetter, EntryId, EntryKey, Fault, FaultKind, HistoryChange, HistoryEntry, InputId,
    ScopeRecord, Stage,
};

use super::super::{Consumer, Event, Output, Position, Producer, Topic, Transaction, letters};
use super::*;

/// Conversations of two turns each: offsets 0 and 1 are the first.
fn inputs(count: i64) -> Records {
    Box::new((0..count).map(|offset| {
        Ok(Record {
            offset,
            key: Some(format!("conversation {}", offset / 2).into_bytes()),
            value: Some(format!("turn {offset}").into_bytes()),
            last_of_scope: offset % 2 == 1,
            ..Record::default()
        })
    }))
}

fn poll(consumer: &mut JsonlConsumer) -> Event {
    consumer.poll(Duration::ZERO).unwrap()
}

/// Opens a replay from the beginning, or from its checkpoint.
fn open(records: Records, sinks: &Sinks, resumes: bool) -> (JsonlConsumer, JsonlProducer) {
    let (sinks, with) = (sinks.clone(), BegunWith::new());
    let opening = match resumes {
        true => Opening::resume(records, sinks, &with).unwrap(),
        false => Opening::begin(records, sinks, with),
    };
    opening.open().unwrap()
}

/// Restores, resumes and reads everything.
fn read_all(consumer: &mut JsonlConsumer) -> Vec<i64> {
    assert!(matches!(poll(consumer), Event::Assigned(_)));
    consumer.restore(PARTITION, &mut |_| Ok(())).unwrap();
    consumer.resume(PARTITION).unwrap();
    let mut offsets = Vec::new();
    loop {
        match poll(consumer) {
            Event::Records(records) => offsets.extend(records.iter().map(|record| record.offset)),
            Event::End => return offsets,
            other => panic!("{other:?}"),
        }
    }
}

fn outcome(topic: Topic, input_offset: i64, value: &str) -> Output {
    Output {
        topic,
        partition: PARTITION,
        input_offset,
        key: None,
        value: Some(value.as_bytes().to_vec()),
        headers: Vec::new(),
    }
}

fn commit(producer: &mut JsonlProducer, outputs: Vec<Output>, lowest_pending: i64) {
    let position = Position {
        partition: PARTITION,
        generation: GENERATION,
        offset: lowest_pending,
        metadata: String::new(),
    };
    producer.commit(&Transaction { outputs, positions: vec![position] }).unwrap();
}

fn sinks(directory: &Path) -> Sinks {
    Sinks {
        responses: Some(directory.join("out.jsonl")),
        history: Some(directory.join("history.jsonl")),
        dead_letters: Some(directory.join("letters.jsonl")),
        checkpoint: Some(directory.join("checkpoint.json")),
        recorded: None,
    }
}

fn text(path: &Option<PathBuf>) -> String {
    let mut text = String::new();
    reader(path.as_ref().unwrap()).unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_file_is_assigned_once_paused_resumed_and_ends() {
    let (mut consumer, _producer) = open(inputs(700), &Sinks::default(), false);
    assert!(matches!(&poll(&mut consumer), Event::Assigned(all) if all[0].partition == 0));
    assert_eq!(poll(&mut consumer), Event::Records(Vec::new()), "paused until it is resumed");
    assert_eq!(consumer.restore(0, &mut |_| Ok(())).unwrap().position, None);
    consumer.resume(0).unwrap();
    let Event::Records(first) = poll(&mut consumer) else { panic!("no records") };
    assert_eq!(first.len(), 500, "bounded batches");
    consumer.pause(0).unwrap();
    assert_eq!(poll(&mut consumer), Event::Records(Vec::new()));
    consumer.resume(0).unwrap();
    assert!(matches!(poll(&mut consumer), Event::Records(rest) if rest[0].offset == 500));
    assert_eq!(poll(&mut consumer), Event::End);
    assert_eq!(poll(&mut consumer), Event::End, "for ever");
}

#[test]
fn an_error_of_the_loader_comes_after_the_records_before_it() {
    let broken = LogError::Refused("log.jsonl:3: not JSON".to_owned());
    let records: Records = Box::new(inputs(2).chain([Err(broken)]).chain(inputs(1)));
    let (mut consumer, _producer) = open(records, &Sinks::default(), false);
    poll(&mut consumer);
    consumer.resume(0).unwrap();
    assert!(matches!(poll(&mut consumer), Event::Records(two) if two.len() == 2));
    let error = consumer.poll(Duration::ZERO).unwrap_err();
    assert!(error.to_string().starts_with("log.jsonl:3"), "{error}");
}

#[test]
fn each_topic_is_written_in_its_own_form() {
    let directory = tempfile::tempdir().unwrap();
    let sinks = sinks(directory.path());
    let (_consumer, mut producer) = open(inputs(0), &sinks, false);
    let input = InputId { topic: "log".to_owned(), partition: 0, offset: 1 };
    let key = |entry| EntryKey { scope: turnstream_schemas::Scope::new(None, "c"), entry };
    let of_entry = key(Some(EntryId { partition: 0, offset: 1 }));
    let entry = HistoryEntry {
        schema_version: 1,
        input: input.clone(),
        query: Some("who is\nthere?".to_owned()),
        turn_id: "t".into(),
        user_id: None,
        passages: Vec::new(),
        response: None,
        response_turn_id: None,
        event_time: turnstream_schemas::EventTime(5),
        vector: None,
        extra: serde_json::Map::new(),
    };
    let record = ScopeRecord { schema_version: 1, turns: 3, ..ScopeRecord::default() };
    let change = |key: &EntryKey, value: Option<Vec<u8>>| Output {
        key: Some(serde_json::to_vec(key).unwrap()),
        value,
        ..outcome(Topic::History, 1, "")
    };
    let letter = DeadLetter {
        schema_version: 1,
        input,
        value: Some(Bytes(vec![255, 0])),
        key: None,
        headers: Vec::new(),
        fault: Fault::new(Stage::Ingest, FaultKind::Invalid, "not UTF-8"),
        time: 7,
    };
    let outputs = vec![
        outcome(Topic::Responses, 1, "{\"response\":1}"),
        outcome(Topic::Recorded, 1, "{\"switched\":\"off\"}"),
        change(&of_entry, Some(serde_json::to_vec(&entry).unwrap())),
        change(&key(None), Some(serde_json::to_vec(&record).unwrap())),
        change(&of_entry, None),
        letters::encode(&letter),
    ];
    commit(&mut producer, outputs, 2);
    assert_eq!(producer.finish().unwrap(), 0);
    assert_eq!(text(&sinks.responses), "{\"response\":1}\n");
    let changes: Vec<HistoryChange> =
        text(&sinks.history).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = [
        HistoryChange::Entry { key: of_entry.clone(), entry: Box::new(entry) },
        HistoryChange::Scope { key: key(None), record: Box::new(record) },
        HistoryChange::Gone { key: of_entry, evicted: None },
    ];
    assert_eq!(changes, expected);
    let letters = text(&sinks.dead_letters);
    assert_eq!(serde_json::from_str::<DeadLetter>(letters.trim_end()).unwrap(), letter);
}

#[test]
fn what_would_break_the_form_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (_consumer, mut producer) = open(inputs(0), &sinks(directory.path()), false);
    let position = Position { partition: 0, generation: 1, offset: 9, metadata: String::new() };
    let mut refuse = |output: Output, position: Position| {
        let transaction = Transaction { outputs: vec![output], positions: vec![position] };
        producer.commit(&transaction).unwrap_err()
    };
    let error = refuse(outcome(Topic::Responses, 3, "{\n}"), position.clone()).to_string();
    assert!(error.contains("input 3") && error.contains("more than one line"), "{error}");
    let error = refuse(outcome(Topic::History, 3, "{}"), position.clone()).to_string();
    assert!(error.contains("history"), "{error}");
    let late = Position { generation: 2, ..position };
    let error = refuse(outcome(Topic::Responses, 3, "{}"), late);
    assert!(matches!(error, LogError::Stale { .. }), "{error}");
}

#[test]
fn outcomes_still_waiting_are_counted_and_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let sinks = sinks(directory.path());
    let (_consumer, mut producer) = open(inputs(0), &sinks, false);
    let both = vec![outcome(Topic::Responses, 0, "0"), outcome(Topic::Responses, 2, "2")];
    commit(&mut producer, both, 1);
    assert_eq!(producer.finish().unwrap(), 1);
    assert_eq!(text(&sinks.responses), "0\n");
}

#[test]
fn compressed_files_read_back_and_cannot_be_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.jsonl.gz");
    let checkpoint = Some(directory.path().join("checkpoint.json"));
    let sinks = Sinks { responses: Some(path.clone()), checkpoint, ..Sinks::default() };
    let (_consumer, mut producer) = open(inputs(0), &sinks, false);
    commit(&mut producer, vec![outcome(Topic::Responses, 0, "{\"a\":1}")], 1);
    drop(producer);
    assert_eq!(std::fs::read(&path).unwrap()[..2], [0x1f, 0x8b], "gzip");
    assert_eq!(text(&sinks.responses), "{\"a\":1}\n");
    let error = Opening::resume(inputs(0), sinks, &BegunWith::new()).err().unwrap();
    assert!(error.to_string().contains("out.jsonl.gz: not the file"), "{error}");
}

/// The contents of the files in a folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn a_replay_that_cannot_resume_is_refused_and_no_file_touched() {
    let directory = tempfile::tempdir().unwrap();
    let sinks = sinks(directory.path());
    let (out, checkpoint) = (sinks.responses.clone().unwrap(), sinks.checkpoint.clone().unwrap());
    let with = |history: &str| BegunWith::from([("--history".to_owned(), history.to_owned())]);
    let refused = |records: Records, history: &str, says: &str| {
        let before = files(directory.path());
        let resumed = Opening::resume(records, sinks.clone(), &with(history));
        let error = resumed.err().unwrap().to_string();
        assert!(error.contains(says) && error.contains("without --resume"), "{error}");
        assert!(files(directory.path()) == before, "{says}: a file was touched");
    };
    std::fs::write(&out, "what somebody wrote\n").unwrap();
    refused(inputs(6), "recorded", "checkpoint.json: there is no such checkpoint");

    let opening = Opening::begin(inputs(6), sinks.clone(), with("recorded"));
    let (mut consumer, mut producer) = opening.open().unwrap();
    read_all(&mut consumer);
    let outputs = (0..3).map(|at| outcome(Topic::Responses, at, &at.to_string()));
    commit(&mut producer, outputs.collect(), 3);
    drop(producer);
    refused(inputs(6), "generated", "--history is `generated`, but the replay began with `rec");
    refused(
        inputs(2),
        "recorded",
        "the first 3 inputs are not those that were replayed: the log has 2",
    );
    let other = |record| Record { value: Some(b"else".to_vec()), ..record };
    let others = inputs(6).map(move |record| record.map(other));
    refused(Box::new(others), "recorded", "some of them differ");
    for (text, says) in [
        (
            "0\n1\n",
            "out.jsonl: not the file that the replay wrote: it holds 4 bytes, and the replay wrote 6",
        ),
        ("0\n1\n3\n4\n", "out.jsonl: not the file that the replay wrote: its first 6 bytes differ"),
    ] {
        std::fs::write(&out, text).unwrap();
        refused(inputs(6), "recorded", says);
    }
    std::fs::remove_file(&out).unwrap();
    refused(
        inputs(6),
        "recorded",
        "out.jsonl: not the file that the replay wrote: it is not there",
    );
    std::fs::write(&checkpoint, r#"{"offset":3,"responses":6}"#).unwrap();
    refused(inputs(6), "recorded", "checkpoint.json: not a checkpoint of this version");
}

#[test]
fn a_replay_that_begins_leaves_no_checkpoint_of_another() {
    let directory = tempfile::tempdir().unwrap();
    let sinks = sinks(directory.path());
    let (mut consumer, mut producer) = open(inputs(4), &sinks, false);
    read_all(&mut consumer);
    commit(&mut producer, vec![outcome(Topic::Responses, 0, "0")], 1);
    drop(producer);
    drop(open(inputs(4), &sinks, false));
    let opening = Opening::resume(inputs(4), sinks, &BegunWith::new()).unwrap();
    assert_eq!(opening.offset(), 0);
}

#[test]
fn histories_of_conversations_under_way_are_restored() {
    let key = |offset: i64| EntryKey {
        scope: turnstream_schemas::Scope::new(None, &format!("c{}", offset / 2)),
        entry: None,
    };
    let changes = |offsets: std::ops::Range<i64>| {
        let change = |offset| {
            let record = ScopeRecord { schema_version: 1, ..ScopeRecord::default() };
            let record = ScopeRecord { last_applied_offset: offset, ..record };
            Output {
                key: Some(serde_json::to_vec(&key(offset)).unwrap()),
                value: Some(serde_json::to_vec(&record).unwrap()),
                ..outcome(Topic::History, offset, "")
            }
        };
        offsets.map(change).collect::<Vec<_>>()
    };
    let endless = || -> Records {
        let goes_on = |record| Record { last_of_scope: false, ..record };
        Box::new(inputs(9).map(move |record| record.map(goes_on)))
    };
    let logs: [(&dyn Fn() -> Records, i64); 2] = [(&|| inputs(9), 4), (&endless, 0)];
    for (log, first) in logs {
        let directory = tempfile::tempdir().unwrap();
        let sinks = sinks(directory.path());
        let (mut consumer, mut producer) = open(log(), &sinks, false);
        read_all(&mut consumer);
        commit(&mut producer, changes(0..3), 3);
        commit(&mut producer, changes(3..7), 5);
        drop(producer);
        let (mut consumer, _producer) = open(log(), &sinks, true);
        let mut given = Vec::new();
        let restored = consumer.restore(PARTITION, &mut |record| {
            given.push((record.key, record.value));
            Ok(())
        });
        let expected = changes(first..5).into_iter().map(|change| (change.key, change.value));
        assert_eq!(given, expected.collect::<Vec<_>>(), "behind the last boundary");
        let restored = restored.unwrap();
        assert_eq!((restored.position, restored.records), (Some(5), 5 - first as u64));
    }
}

/// Finishes inputs in this order of preference, commits from time to time, and stops after
/// `commits` commits.
fn replay(sinks: &Sinks, resumes: bool, count: i64, order: &[u8], commits: usize) -> Checkpoint {
    let (mut consumer, mut producer) = open(inputs(count), sinks, resumes);
    let offsets = read_all(&mut consumer);
    let mut pending: BTreeMap<i64, ()> = offsets.iter().map(|offset| (*offset, ())).collect();
    let mut outputs = Vec::new();
    let mut done = 0;
    let mut turn = 0;
    while !pending.is_empty() && done < commits {
        let pick = usize::from(order[turn % order.len()]);
        turn += 1;
        let offset = *pending.keys().nth(pick % pending.len().min(7)).unwrap();
        pending.remove(&offset);
        for part in 0..=offset % 3 {
            outputs.push(outcome(Topic::Responses, offset, &format!("{offset}.{part}")));
        }
        if pick.is_multiple_of(3) || pending.is_empty() {
            let lowest = pending.keys().next().copied().unwrap_or(count);
            commit(&mut producer, std::mem::take(&mut outputs), lowest);
            done += 1;
        }
    }
    producer.written().clone()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The bytes are those of the inputs in order, whatever the order of outcomes and wherever a
    /// replay is interrupted and resumed.
    #[test]
    fn the_bytes_do_not_depend_on_the_order_of_outcomes(
        count in 0..60_i64,
        order in prop::collection::vec(any::<u8>(), 1..40),
        cuts in prop::collection::vec(0..20_usize, 1..4),
        half in ".{0,9}",
    ) {
        let mut expected = String::new();
        for offset in 0..count {
            for part in 0..=offset % 3 {
                expected.push_str(&format!("{offset}.{part}\n"));
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let sinks = sinks(directory.path());
        for (at, cut) in cuts.iter().enumerate() {
            let written = replay(&sinks, at > 0, count, &order, *cut);
            let kept = Checkpoint::read(sinks.checkpoint.as_ref().unwrap());
            prop_assert_eq!(kept.unwrap(), written);
            let responses = text(&sinks.responses);
            prop_assert!(expected.starts_with(&responses));
            std::fs::write(sinks.responses.as_ref().unwrap(), responses + &half).unwrap();
        }
        replay(&sinks, true, count, &order, usize::MAX);
        prop_assert_eq!(text(&sinks.responses), expected);
    }
}
