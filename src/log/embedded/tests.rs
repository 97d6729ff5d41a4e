use super::super::conformance::{
    Bed, PARTITIONS, TestMember, output, position, properties, restore,
};
use super::super::{Consumer as _, Event, Position, Producer as _, Transaction};
use super::*;
use std::time::Duration;

impl Bed for EmbeddedLog {
    type Consumer = EmbeddedConsumer;
    type Producer = EmbeddedProducer;
    type Follower = EmbeddedFollower;
    type Open = (TestMember<EmbeddedConsumer>, EmbeddedProducer);

    fn join(&mut self, transactional_id: &str) -> (EmbeddedConsumer, EmbeddedProducer) {
        let consumer = self.consumer("g", Topic::Turns).unwrap();
        let producer = self.producer(&consumer, transactional_id).unwrap();
        (consumer, producer)
    }

    fn take_over(&mut self, consumer: &EmbeddedConsumer, id: &str) -> EmbeddedProducer {
        self.producer(consumer, id).unwrap()
    }

    fn append(&mut self, partition: i32, key: &str, value: &str) {
        EmbeddedLog::append(self, Topic::Turns, partition, message(key, Some(value))).unwrap();
    }

    fn follow(&mut self) -> EmbeddedFollower {
        self.follower(Topic::Knowledge)
    }

    fn put(&mut self, partition: i32, key: &str, value: Option<&str>) {
        EmbeddedLog::append(self, Topic::Knowledge, partition, message(key, value)).unwrap();
    }

    fn open(&mut self, partition: i32, key: &str, value: &str) -> Self::Open {
        let (member, mut producer) = member(self);
        let transaction = Transaction {
            outputs: vec![output(Topic::Knowledge, partition, key, Some(value))],
            positions: vec![position(partition, member.held[&partition], 0, "")],
        };
        producer.begin().unwrap().outputs(&transaction).unwrap();
        (member, producer)
    }

    fn abort(&mut self, _: Self::Open) {
        self.abort_open("a").unwrap();
    }

    fn committed(&mut self, topic: Topic, partition: i32) -> Vec<Record> {
        self.read(topic, partition, 0, usize::MAX, Isolation::ReadCommitted).unwrap()
    }

    fn wait(&self) -> Duration {
        Duration::ZERO
    }
}

fn config() -> EmbeddedConfig {
    EmbeddedConfig { partitions: PARTITIONS, map_size_mib: 64, ..EmbeddedConfig::default() }
}

fn message(key: &str, value: Option<&str>) -> Message {
    let bytes = |text: &str| text.as_bytes().to_vec();
    Message {
        key: Some(bytes(key)),
        value: value.map(bytes),
        time_ms: Some(1_700_000_000_000),
        ..Message::default()
    }
}

fn member(log: &EmbeddedLog) -> (TestMember<EmbeddedConsumer>, EmbeddedProducer) {
    let (consumer, producer) = log.clone().join("a");
    let mut member = TestMember::new(consumer, Duration::ZERO);
    member.until("assigned", |member| !member.held.is_empty());
    (member, producer)
}

fn values(log: &EmbeddedLog, topic: Topic, isolation: Isolation) -> Vec<String> {
    let records = log.read(topic, 0, 0, usize::MAX, isolation).unwrap();
    let text = |record: Record| String::from_utf8(record.value.unwrap_or_default()).unwrap();
    records.into_iter().map(text).collect()
}

#[test]
fn in_memory_it_keeps_the_contract() {
    for (name, property) in properties() {
        eprintln!("in memory: {name}");
        property(&mut EmbeddedLog::in_memory(&config()).unwrap());
    }
}

#[test]
fn in_a_directory_it_keeps_the_contract() {
    for (name, property) in properties() {
        eprintln!("in a directory: {name}");
        let directory = tempfile::tempdir().unwrap();
        property(&mut EmbeddedLog::in_directory(directory.path(), &config()).unwrap());
    }
}

#[test]
fn a_directory_keeps_everything_and_one_process_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let open = |config: &EmbeddedConfig| EmbeddedLog::in_directory(directory.path(), config);
    let log = open(&config()).unwrap();
    log.append(Topic::Turns, 0, message("k", Some("kept"))).unwrap();
    let (member, mut producer) = member(&log);
    let generation = member.held[&0];
    let transaction = Transaction {
        outputs: vec![output(Topic::Responses, 0, "k", Some("answer"))],
        positions: vec![position(0, generation, 1, "Ax")],
    };
    producer.commit(&transaction).unwrap();
    let mut left_open = producer.begin().unwrap();
    left_open.outputs(&transaction).unwrap();
    let refused = open(&config()).err().expect("two at a time");
    assert!(refused.to_string().contains(&*directory.path().to_string_lossy()), "{refused}");
    drop((member, producer, log));
    let refused = open(&EmbeddedConfig { partitions: 5, ..config() }).err().expect("5 is not 4");
    assert!(refused.to_string().contains("partitions = 4"), "{refused}");
    let log = open(&config()).unwrap();
    let turn = &log.read(Topic::Turns, 0, 0, 9, Isolation::ReadCommitted).unwrap()[0];
    assert_eq!(turn.time_ms, Some(1_700_000_000_000));
    assert_eq!(turn.value.as_deref(), Some(&b"kept"[..]));
    let committed = log.committed("g", 0).unwrap().unwrap();
    assert_eq!((committed.offset, committed.metadata.as_str()), (1, "Ax"));
    assert_eq!(values(&log, Topic::Responses, Isolation::ReadCommitted), ["answer"]);
    assert_eq!(values(&log, Topic::Responses, Isolation::ReadUncommitted), ["answer", "answer"]);
    assert_eq!(log.stable_end(Topic::Responses, 0), 2, "held back by what was left open");
    log.abort_open("a").unwrap();
    assert_eq!(log.stable_end(Topic::Responses, 0), 4);
    assert_eq!(values(&log, Topic::Responses, Isolation::ReadCommitted), ["answer"]);
}

#[test]
fn a_full_directory_names_the_remedy_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let small = EmbeddedConfig { map_size_mib: 1, ..config() };
    let log = EmbeddedLog::in_directory(directory.path(), &small).unwrap();
    let big = "x".repeat(10_000);
    let mut written = 0;
    let error = loop {
        match log.append(Topic::Turns, 0, message("k", Some(&big))) {
            Ok(offset) => written = offset + 1,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("map_size_mib"), "{error}");
    assert_eq!(log.end(Topic::Turns, 0), written, "what failed took no offset");
    drop(log);
    let log = EmbeddedLog::in_directory(directory.path(), &config()).unwrap();
    assert_eq!(log.append(Topic::Turns, 0, message("k", Some("more"))).unwrap(), written);
}

#[test]
fn a_crash_between_any_two_steps_leaves_nothing_visible() {
    for steps in 0..4 {
        let log = EmbeddedLog::in_memory(&config()).unwrap();
        let (dead, mut producer) = member(&log);
        let transaction = Transaction {
            outputs: vec![
                output(Topic::Responses, 0, "k", Some("first")),
                output(Topic::History, 0, "k", Some("state")),
            ],
            positions: vec![position(0, dead.held[&0], 5, "")],
        };
        let mut open = producer.begin().unwrap();
        if steps > 0 {
            open.outputs(&transaction).unwrap();
        }
        if steps > 1 {
            open.positions(&transaction).unwrap();
        }
        if steps > 2 {
            open.commit().unwrap();
        } else {
            drop(open);
        }
        log.append(Topic::Responses, 0, message("k", Some("later"))).unwrap();
        log.expel("g", dead.consumer.crash());
        let (mut heir, _new) = log.clone().join("b");
        assert!(matches!(heir.poll(Duration::ZERO), Ok(Event::Assigned(_))));
        let (first, _) = restore(&mut heir, 0);
        let seen = values(&log, Topic::Responses, Isolation::ReadCommitted);
        match steps {
            0 => assert_eq!((first.unwrap().position, seen), (None, vec!["later".to_owned()])),
            3 => {
                assert_eq!(first.unwrap().position, Some(5));
                assert_eq!(seen, ["first", "later"]);
            }
            _ => {
                assert!(matches!(first, Err(LogError::Unsettled { .. })), "{first:?}");
                assert!(seen.is_empty(), "held back by the open transaction");
                log.abort_open("a").unwrap();
                let (restored, changelog) = restore(&mut heir, 0);
                assert_eq!((restored.unwrap().position, changelog.len()), (None, 0));
                assert_eq!(values(&log, Topic::Responses, Isolation::ReadCommitted), ["later"]);
            }
        }
    }
}

/// Kafka's broker may do this: a transaction that it gave up without an end marker ends with the
/// next transaction of the same producer, partition by partition. A producer that takes the id
/// aborts it first.
#[test]
fn a_forgotten_transaction_ends_with_the_next_one_of_its_producer() {
    let log = EmbeddedLog::in_memory(&config()).unwrap();
    let (member, mut producer) = member(&log);
    let on = |partition: i32, value: &str, offset| Transaction {
        outputs: [Topic::Responses, Topic::History]
            .map(|topic| output(topic, partition, "k", Some(value)))
            .into(),
        positions: vec![position(partition, member.held[&partition], offset, "")],
    };
    let forget = |producer: &mut EmbeddedProducer, value: &str| {
        for partition in [0, 1] {
            let mut open = producer.begin().unwrap();
            open.outputs(&on(partition, value, 7)).unwrap();
            open.positions(&on(partition, value, 7)).unwrap();
        }
        assert_eq!(log.forget_open("a").unwrap(), 2);
        assert_eq!(log.forget_open("a").unwrap(), 0, "nothing is open any more");
    };
    let seen = |partition| {
        let read = log.read(Topic::Responses, partition, 0, 9, Isolation::ReadCommitted).unwrap();
        read.into_iter().map(|record| record.value.unwrap()).collect::<Vec<_>>()
    };
    let offset =
        |partition| log.committed("g", partition).unwrap().map(|committed| committed.offset);
    forget(&mut producer, "forgotten");
    assert_eq!((seen(0), seen(1), offset(0)), (vec![], vec![], None));
    assert!(log.stable_end(Topic::Responses, 1) < log.end(Topic::Responses, 1), "held back");
    producer.commit(&on(0, "next", 1)).unwrap();
    assert_eq!(seen(0), [b"forgotten".to_vec(), b"next".to_vec()], "the first was never committed");
    assert_eq!((seen(1), offset(0), offset(1)), (vec![], Some(1), Some(7)), "where it wrote");

    forget(&mut producer, "swept");
    let mut producer = log.producer(&member.consumer, "a").unwrap();
    for partition in [0, 1] {
        for topic in [Topic::Responses, Topic::History] {
            assert_eq!(log.stable_end(topic, partition), log.end(topic, partition), "settled");
        }
    }
    producer.commit(&on(0, "last", 2)).unwrap();
    producer.commit(&on(1, "last", 2)).unwrap();
    assert_eq!(seen(0), [b"forgotten".to_vec(), b"next".to_vec(), b"last".to_vec()]);
    assert_eq!((seen(1), offset(0), offset(1)), (vec![b"last".to_vec()], Some(2), Some(2)));
}

#[test]
fn an_expelled_member_loses_its_partitions_and_joins_again() {
    let log = EmbeddedLog::in_memory(&config()).unwrap();
    let (mut slow, mut producer) = member(&log);
    let (consumer, _other) = log.clone().join("b");
    let mut other = TestMember::new(consumer, Duration::ZERO);
    let old: Vec<Position> = slow.held.iter().map(|(at, by)| position(*at, *by, 1, "")).collect();
    log.expel("g", slow.consumer.member());
    other.until("everything", |member| member.held.len() == 4);
    let refused = producer.commit(&Transaction { outputs: Vec::new(), positions: old.clone() });
    assert!(matches!(refused, Err(LogError::Stale { partitions }) if partitions == [0, 1, 2, 3]));
    slow.until("the loss", |member| matches!(member.events.last(), Some(Event::Lost(_))));
    for _ in 0..5 {
        other.step();
        slow.step();
    }
    assert_eq!((slow.held.len(), other.held.len()), (2, 2), "joined anew");
    assert!(slow.held.values().all(|generation| *generation == 2));
    let refused = producer.commit(&Transaction { outputs: Vec::new(), positions: old });
    assert!(matches!(refused, Err(LogError::Stale { .. })), "also of those that came back");
}

#[test]
fn compaction_keeps_the_last_of_each_key_and_changes_no_reader() {
    let auto = EmbeddedConfig { compact_after_records: 10, ..config() };
    let log = EmbeddedLog::in_memory(&auto).unwrap();
    let (member, mut producer) = member(&log);
    let mut commit = |key: &str, value: Option<&str>| {
        let outputs = vec![output(Topic::History, 0, key, value)];
        let positions = vec![position(0, member.held[&0], 0, "")];
        producer.commit(&Transaction { outputs, positions }).unwrap();
    };
    for index in 0..9 {
        commit(&format!("key {}", index % 3), Some(&format!("value {index}")));
    }
    let all = |log: &EmbeddedLog| values(log, Topic::History, Isolation::ReadUncommitted);
    assert_eq!(all(&log).len(), 9);
    commit("key 0", None);
    assert_eq!(all(&log), ["value 7", "value 8"], "at ten records, without the tombstone");
    assert_eq!(log.end(Topic::History, 0), 20, "offsets stay, ten of them control records");
    assert_eq!(log.compact(Topic::History).unwrap(), 0, "nothing is left to remove");
    log.append(Topic::History, 0, Message::default()).unwrap();
    assert_eq!(log.compact(Topic::History).unwrap(), 0, "records without a key stay");
}

#[test]
fn reading_passes_control_records_and_ends_when_sealed() {
    let log = EmbeddedLog::in_memory(&EmbeddedConfig { poll_records: 2, ..config() }).unwrap();
    for value in ["a", "b", "c"] {
        log.append(Topic::Turns, 0, message("k", Some(value))).unwrap();
        log.append_control(Topic::Turns, 0).unwrap();
    }
    let (mut member, _producer) = member(&log);
    member.until("three records", |member| member.records.len() == 3);
    let offsets: Vec<i64> = member.records.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, [0, 2, 4]);
    assert!(
        matches!(&member.events[1], Event::Records(records) if records.len() == 2),
        "bounded batches"
    );
    assert_eq!(member.consumer.poll(Duration::ZERO).unwrap(), Event::Records(Vec::new()));
    log.seal(Topic::Turns);
    assert_eq!(member.consumer.poll(Duration::ZERO).unwrap(), Event::End);
}

#[test]
fn a_poll_that_waits_is_woken_by_an_append() {
    let log = EmbeddedLog::in_memory(&config()).unwrap();
    let (mut member, _producer) = member(&log);
    let thread = std::thread::spawn(move || {
        log.append_by_key(Topic::Turns, message("k", Some("woken"))).unwrap()
    });
    let event = member.consumer.poll(Duration::from_secs(30)).unwrap();
    let (partition, offset) = thread.join().unwrap();
    assert!(matches!(&event, Event::Records(records)
        if records[0].partition == partition && records[0].offset == offset));
    assert_eq!(partition, partition_of(b"k", PARTITIONS));
}

#[test]
fn keys_go_where_librdkafka_puts_them() {
    // CRC-32 of "123456789" is 0xCBF43926, the check value of the polynomial.
    assert_eq!(partition_of(b"123456789", 1000), (0xCBF4_3926_u32 % 1000) as i32);
    assert_eq!(partition_of(b"", 7), 0);
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let log = EmbeddedLog::in_memory(&config()).unwrap();
    let error = log.append(Topic::Turns, 4, Message::default()).unwrap_err();
    assert!(error.to_string().contains("turns: there is no partition 4"), "{error}");
    assert!(log.consumer("", Topic::Turns).is_err());
    let _reader = log.consumer("g", Topic::Turns).unwrap();
    assert!(log.consumer("g", Topic::History).is_err(), "one group reads one topic");
}
