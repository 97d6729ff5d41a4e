//! The contract of every log with groups and transactions, as tests that run on each
//! implementation: the embedded log in memory and in a directory, and Kafka if a broker is
//! available.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use turnstream_schemas::Header;
use turnstream_schemas::outcome::Bytes;

mod follow;

use super::{
    Assignment, Consumer, CountedChangelog, Event, Follower, LogError, Output, Position, Producer,
    Record, Restored, Topic, Transaction,
};

/// A fresh, empty log with [`PARTITIONS`] partitions, on which the suite runs.
pub(super) trait Bed {
    type Consumer: Consumer;
    type Producer: Producer;
    type Follower: Follower;
    /// An open transaction.
    type Open;

    /// A member of group `g` with a producer of this transactional id.
    fn join(&mut self, transactional_id: &str) -> (Self::Consumer, Self::Producer);
    /// Another producer of this transactional id for the same consumer, as a new process would
    /// create it.
    fn take_over(&mut self, consumer: &Self::Consumer, transactional_id: &str) -> Self::Producer;
    /// Appends to the inputs, outside any transaction.
    fn append(&mut self, partition: i32, key: &str, value: &str);
    /// A follower of the topic of knowledge.
    fn follow(&mut self) -> Self::Follower;
    /// Appends to the topic of knowledge, outside any transaction.
    fn put(&mut self, partition: i32, key: &str, value: Option<&str>);
    /// Writes to the topic of knowledge in a transaction that stays open.
    fn open(&mut self, partition: i32, key: &str, value: &str) -> Self::Open;
    /// Aborts an open transaction.
    fn abort(&mut self, open: Self::Open);
    /// Everything committed in a partition of a topic.
    fn committed(&mut self, topic: Topic, partition: i32) -> Vec<Record>;
    /// How long one poll waits.
    fn wait(&self) -> Duration;
}

pub(super) const PARTITIONS: i32 = 4;

/// A property that every log must have.
pub(super) type Property<B> = fn(&mut B);

/// All properties. Each runs on a fresh log.
pub(super) fn properties<B: Bed>() -> Vec<(&'static str, Property<B>)> {
    let own: [(&'static str, Property<B>); 10] = [
        ("outputs_and_positions_are_one", outputs_and_positions_are_one),
        ("restore_gives_the_changelog_in_order", restore_gives_the_changelog_in_order),
        ("a_restoration_can_be_broken_off", a_restoration_can_be_broken_off),
        ("a_paused_partition_gives_nothing_and_loses_nothing", pausing),
        ("partitions_move_when_they_are_released", partitions_move_when_they_are_released),
        ("work_of_an_older_assignment_is_refused", work_of_an_older_assignment_is_refused),
        ("a_producer_that_was_taken_over_is_fenced", a_producer_that_was_taken_over_is_fenced),
        ("unfit_transactions_are_refused", unfit_transactions_are_refused),
        ("a_changelog_without_a_position_is_refused", a_changelog_without_a_position_is_refused),
        ("restoring_again_reads_again", restoring_again_reads_again),
    ];
    own.into_iter().chain(follow::properties()).collect()
}

/// A member that follows its events and records them.
pub(super) struct TestMember<C> {
    pub(super) consumer: C,
    wait: Duration,
    pub(super) held: BTreeMap<i32, u32>,
    pub(super) restored: BTreeMap<i32, Restored>,
    pub(super) changelogs: BTreeMap<i32, Vec<Record>>,
    pub(super) records: Vec<Record>,
    pub(super) events: Vec<Event>,
    /// Whether the member releases revoked partitions at once.
    pub(super) releases: bool,
}

impl<C: Consumer> TestMember<C> {
    pub(super) fn new(consumer: C, wait: Duration) -> Self {
        Self {
            consumer,
            wait,
            held: BTreeMap::new(),
            restored: BTreeMap::new(),
            changelogs: BTreeMap::new(),
            records: Vec::new(),
            events: Vec::new(),
            releases: true,
        }
    }

    pub(super) fn step(&mut self) {
        let event = self.consumer.poll(self.wait).unwrap();
        match &event {
            Event::Records(records) if records.is_empty() => return,
            Event::Records(records) => self.records.extend(records.clone()),
            Event::Assigned(assignments) => {
                for &Assignment { partition, generation } in assignments {
                    self.held.insert(partition, generation);
                    let (restored, changelog) = restore_settled(&mut self.consumer, partition);
                    self.restored.insert(partition, restored.unwrap());
                    self.changelogs.insert(partition, changelog);
                    self.consumer.resume(partition).unwrap();
                }
            }
            Event::Revoked(partitions) => {
                if self.releases {
                    self.held.retain(|held, _| !partitions.contains(held));
                    self.consumer.release().unwrap();
                }
            }
            Event::Lost(partitions) => {
                self.held.retain(|held, _| !partitions.contains(held));
            }
            Event::End => {}
        }
        self.events.push(event);
    }

    /// Steps until the condition holds, and fails after half a minute.
    pub(super) fn until(&mut self, what: &str, so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !so(self) {
            assert!(Instant::now() < deadline, "not within 30 s: {what}; saw {:?}", self.events);
            self.step();
        }
    }

    fn holds_all(&self) -> bool {
        self.held.len() == usize::try_from(PARTITIONS).unwrap()
    }

    fn values(&self, partition: i32) -> Vec<&str> {
        let of = self.records.iter().filter(|record| record.partition == partition);
        of.map(|record| std::str::from_utf8(record.value.as_deref().unwrap()).unwrap()).collect()
    }
}

/// Restores a partition and returns the records of its changelog.
pub(super) fn restore(
    consumer: &mut impl Consumer,
    partition: i32,
) -> (Result<Restored, LogError>, Vec<Record>) {
    let mut changelog = Vec::new();
    let restored = consumer.restore(partition, &mut |record| {
        changelog.push(record);
        Ok(())
    });
    (restored, changelog)
}

/// Restores, and tries again while a transaction is open or the log does not answer in time.
pub(super) fn restore_settled(
    consumer: &mut impl Consumer,
    partition: i32,
) -> (Result<Restored, LogError>, Vec<Record>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match restore(consumer, partition) {
            (Err(LogError::Unsettled { .. } | LogError::Kafka { fatal: false, .. }), _)
                if Instant::now() < deadline => {}
            restored => return restored,
        }
    }
}

pub(super) fn output(topic: Topic, partition: i32, key: &str, value: Option<&str>) -> Output {
    Output {
        topic,
        partition,
        input_offset: 0,
        key: Some(key.as_bytes().to_vec()),
        value: value.map(|value| value.as_bytes().to_vec()),
        headers: Vec::new(),
    }
}

pub(super) fn position(partition: i32, generation: u32, offset: i64, metadata: &str) -> Position {
    Position { partition, generation, offset, metadata: metadata.to_owned() }
}

fn alone<B: Bed>(bed: &mut B) -> (TestMember<B::Consumer>, B::Producer) {
    let (consumer, producer) = bed.join("a");
    let mut member = TestMember::new(consumer, bed.wait());
    member.until("all partitions are assigned", TestMember::holds_all);
    (member, producer)
}

fn commit<P: Producer>(producer: &mut P, outputs: Vec<Output>, positions: Vec<Position>) {
    producer.commit(&Transaction { outputs, positions }).unwrap();
}

fn outputs_and_positions_are_one<B: Bed>(bed: &mut B) {
    for value in ["one", "two", "three"] {
        bed.append(1, "k", value);
    }
    let (mut member, mut producer) = alone(bed);
    assert_eq!(member.restored[&1], Restored::default(), "nothing was ever committed");
    member.until("three records", |member| member.records.len() == 3);
    assert_eq!(member.values(1), ["one", "two", "three"]);
    assert_eq!(member.records[0].key.as_deref(), Some(&b"k"[..]));
    let mut answer = output(Topic::Responses, 1, "k", Some("answer"));
    answer.headers = vec![
        Header { name: "traceparent".to_owned(), value: Some(Bytes(vec![0, 255])) },
        Header { name: "bare".to_owned(), value: None },
    ];
    let outputs = vec![answer.clone(), output(Topic::Responses, 1, "k", Some("second"))];
    let generation = member.held[&1];
    let first = member.records[0].offset;
    commit(&mut producer, outputs, vec![position(1, generation, first + 1, "Afinished")]);
    let seen = bed.committed(Topic::Responses, 1);
    let values: Vec<_> = seen.iter().map(|record| record.value.clone().unwrap()).collect();
    assert_eq!(values, [b"answer".to_vec(), b"second".to_vec()], "in their order");
    assert_eq!(seen[0].headers, answer.headers);
    drop((producer, member));
    let (mut next, mut producer) = alone(bed);
    assert_eq!(next.restored[&1].position, Some(first + 1));
    assert_eq!(next.restored[&1].metadata, "Afinished");
    next.until("the two that are left", |member| member.records.len() == 2);
    assert_eq!(next.values(1), ["two", "three"], "begun at the position");
    let generation = next.held[&1];
    commit(&mut producer, Vec::new(), vec![position(1, generation, first + 1, "")]);
    drop((producer, next));
    let (last, _producer) = alone(bed);
    assert_eq!(last.restored[&1].position, Some(first + 1));
    assert_eq!(last.restored[&1].metadata, "", "metadata is replaced even by none");
}

fn restore_gives_the_changelog_in_order<B: Bed>(bed: &mut B) {
    let (member, mut producer) = alone(bed);
    let generation = member.held[&2];
    let mut written = Vec::new();
    let mut write = |outputs: Vec<Output>| {
        written.extend(outputs.iter().map(|output| (output.key.clone(), output.value.clone())));
        commit(&mut producer, outputs, vec![position(2, generation, 0, "")]);
    };
    for round in 0..3 {
        let value = format!("round {round}");
        write(vec![
            output(Topic::History, 2, "kept", Some(&value)),
            output(Topic::History, 2, "dropped", Some(&value)),
            output(Topic::History, 2, "early", (round == 0).then_some("once")),
        ]);
    }
    write(vec![
        output(Topic::History, 2, "dropped", None),
        output(Topic::History, 2, "early", Some("again")),
    ]);
    drop((producer, member));
    // The partition ends in control records, so no record has the offset before the end.
    let (member, _producer) = alone(bed);
    let changelog = &member.changelogs[&2];
    let read: Vec<_> =
        changelog.iter().map(|record| (record.key.clone(), record.value.clone())).collect();
    assert_eq!(read, written, "tombstones too");
    assert!(changelog.iter().all(|record| record.partition == 2));
    assert!(changelog.is_sorted_by(|one, next| one.offset < next.offset));
    let bytes = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len) as u64;
    let bytes = written.iter().map(|(key, value)| bytes(key) + bytes(value)).sum::<u64>();
    let restored = &member.restored[&2];
    assert_eq!((restored.records, restored.bytes), (written.len() as u64, bytes));
    assert!(member.changelogs[&3].is_empty());
}

fn a_restoration_can_be_broken_off<B: Bed>(bed: &mut B) {
    let (member, mut producer) = alone(bed);
    let outputs = (0..5).map(|at| output(Topic::History, 0, &format!("k{at}"), Some("state")));
    commit(&mut producer, outputs.collect(), vec![position(0, member.held[&0], 9, "")]);
    drop((producer, member));
    let (mut member, _producer) = alone(bed);
    let mut given = 0;
    let refused = member.consumer.restore(0, &mut |record| {
        given += 1;
        if given < 3 { Ok(()) } else { Err(LogError::Refused(format!("at {}", record.offset))) }
    });
    let said = refused.unwrap_err().to_string();
    assert_eq!(said, format!("at {}", member.changelogs[&0][2].offset));
    let (restored, changelog) = restore(&mut member.consumer, 0);
    assert_eq!(restored.unwrap().position, Some(9));
    assert_eq!(changelog, member.changelogs[&0], "and from its beginning again");
}

fn pausing<B: Bed>(bed: &mut B) {
    for index in 0..20 {
        bed.append(0, "k", &format!("first {index}"));
        bed.append(1, "k", &format!("other {index}"));
    }
    let (mut member, _producer) = alone(bed);
    member.until("some records", |member| !member.values(0).is_empty());
    member.consumer.pause(0).unwrap();
    let before = member.values(0).len();
    for index in 20..40 {
        bed.append(0, "k", &format!("first {index}"));
        bed.append(1, "k", &format!("other {index}"));
    }
    member.until("all of the other partition", |member| member.values(1).len() == 40);
    (0..5).for_each(|_| member.step());
    assert_eq!(member.values(0).len(), before, "paused");
    member.consumer.resume(0).unwrap();
    member.until("the rest", |member| member.values(0).len() == 40);
    (0..5).for_each(|_| member.step());
    let expected: Vec<_> = (0..40).map(|index| format!("first {index}")).collect();
    assert_eq!(member.values(0), expected, "each once, in order");
    member.consumer.pause(PARTITIONS + 5).unwrap();
    member.consumer.resume(PARTITIONS + 5).unwrap();
}

fn partitions_move_when_they_are_released<B: Bed>(bed: &mut B) {
    for partition in 0..PARTITIONS {
        bed.append(partition, "k", "one");
        bed.append(partition, "k", "two");
    }
    let (mut first, mut producer) = alone(bed);
    first.until("every record", |member| member.records.len() == 8);
    first.releases = false;
    let (consumer, seconds) = bed.join("b");
    let mut second = TestMember::new(consumer, bed.wait());
    let deadline = Instant::now() + Duration::from_secs(30);
    let revoked = loop {
        assert!(Instant::now() < deadline, "{:?}", first.events);
        second.step();
        first.step();
        if let Some(Event::Revoked(revoked)) = first.events.last() {
            break revoked.clone();
        }
    };
    assert_eq!(revoked.len(), 2, "an even share");
    (0..5).for_each(|_| second.step());
    assert!(second.held.is_empty(), "nothing moves before it is released");
    let moved = revoked[0];
    let one = first.records.iter().find(|record| record.partition == moved).unwrap().offset;
    let outputs = vec![output(Topic::Responses, moved, "k", Some("the last answer"))];
    let done = position(moved, first.held[&moved], one + 1, "");
    commit(&mut producer, outputs.clone(), vec![done.clone()]);
    first.consumer.release().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while second.held.len() < 2 {
        assert!(Instant::now() < deadline, "{:?}", second.events);
        first.step();
        second.step();
    }
    assert_eq!(second.held.keys().copied().collect::<Vec<_>>(), revoked);
    assert_eq!(second.restored[&moved].position, Some(one + 1));
    second.until("what the first left", |member| member.values(moved) == ["two"]);
    let refused = producer.commit(&Transaction { outputs, positions: vec![done] });
    assert!(matches!(&refused, Err(LogError::Stale { partitions }) if *partitions == [moved]));
    assert_eq!(bed.committed(Topic::Responses, moved).len(), 1, "and nothing of it is visible");
    let kept = *first.held.keys().find(|partition| !revoked.contains(partition)).unwrap();
    let done = position(kept, first.held[&kept], 1, "");
    commit(&mut producer, vec![output(Topic::Responses, kept, "k", Some("mine"))], vec![done]);
    drop((seconds, second));
    first.releases = true;
    first.held.retain(|partition, _| !revoked.contains(partition));
    first.until("all come back", TestMember::holds_all);
    assert_eq!(first.held[&moved], 2, "the second time");
    assert_eq!(first.held[&kept], 1, "it never left");
}

fn work_of_an_older_assignment_is_refused<B: Bed>(bed: &mut B) {
    let (member, mut producer) = alone(bed);
    let generation = member.held[&0];
    for wrong in [generation + 1, generation - 1] {
        let refused = producer.commit(&Transaction {
            outputs: vec![output(Topic::Responses, 0, "k", Some("late"))],
            positions: vec![position(0, wrong, 1, ""), position(1, member.held[&1], 1, "")],
        });
        let error = refused.unwrap_err();
        assert!(!error.is_fatal());
        assert!(matches!(error, LogError::Stale { partitions } if partitions == [0]));
    }
    assert!(bed.committed(Topic::Responses, 0).is_empty());
    let outputs = vec![output(Topic::Responses, 0, "k", Some("in time"))];
    commit(&mut producer, outputs, vec![position(0, generation, 1, "")]);
    assert_eq!(bed.committed(Topic::Responses, 0).len(), 1);
}

fn a_producer_that_was_taken_over_is_fenced<B: Bed>(bed: &mut B) {
    let (member, mut producer) = alone(bed);
    let transaction = |value: &str| Transaction {
        outputs: vec![output(Topic::Responses, 0, "k", Some(value))],
        positions: vec![position(0, member.held[&0], 1, "")],
    };
    producer.commit(&transaction("before")).unwrap();
    let mut newer = bed.take_over(&member.consumer, "a");
    let error = producer.commit(&transaction("zombie")).unwrap_err();
    assert!(error.is_fatal(), "{error}");
    newer.commit(&transaction("after")).unwrap();
    let seen = bed.committed(Topic::Responses, 0);
    let values: Vec<_> = seen.iter().map(|record| record.value.clone().unwrap()).collect();
    assert_eq!(values, [b"before".to_vec(), b"after".to_vec()]);
}

fn unfit_transactions_are_refused<B: Bed>(bed: &mut B) {
    let (member, mut producer) = alone(bed);
    let generation = member.held[&0];
    producer.commit(&Transaction::default()).unwrap();
    for (outputs, positions) in [
        (vec![output(Topic::Responses, 0, "k", Some("v"))], vec![]),
        (vec![], vec![position(0, generation, 1, ""), position(0, generation, 2, "")]),
        (vec![], vec![position(0, generation, 1, "ä")]),
        (vec![], vec![position(0, generation, 1, &"x".repeat(4_097))]),
    ] {
        let error = producer.commit(&Transaction { outputs, positions }).unwrap_err();
        assert!(matches!(error, LogError::Refused(_)), "{error}");
    }
    let full = "x".repeat(super::METADATA_LIMIT_BYTES);
    commit(&mut producer, Vec::new(), vec![position(0, generation, 1, &full)]);
    drop((producer, member));
    let (member, _producer) = alone(bed);
    assert_eq!(member.restored[&0].metadata, full);
}

fn a_changelog_without_a_position_is_refused<B: Bed>(bed: &mut B) {
    let (member, mut producer) = alone(bed);
    let outputs = vec![output(Topic::History, 1, "k", Some("state"))];
    commit(&mut producer, outputs, vec![position(1, member.held[&1], 7, "")]);
    let changelog = bed.committed(Topic::History, 1);
    let mut tombstones = changelog.clone();
    tombstones.extend(changelog.iter().map(|of| Record { value: None, ..of.clone() }));
    let restored = |position, changelog: &[Record]| {
        let mut taken = |_| Ok(());
        let mut counted = CountedChangelog::new(1, position, &mut taken);
        changelog.iter().for_each(|record| counted.pass(record.clone()).unwrap());
        counted.finish(String::new(), "g")
    };
    let error = restored(None, &changelog).unwrap_err();
    assert!(error.is_fatal() && error.to_string().contains("group `g`"), "{error}");
    assert!(restored(Some(7), &changelog).is_ok());
    assert!(restored(None, &[]).is_ok(), "begun anew");
    assert!(restored(None, &tombstones).is_ok(), "emptied to begin anew");
}

fn restoring_again_reads_again<B: Bed>(bed: &mut B) {
    for value in ["one", "two", "three"] {
        bed.append(3, "k", value);
    }
    let (mut member, mut producer) = alone(bed);
    member.until("three records", |member| member.records.len() == 3);
    let second = member.records[1].offset;
    commit(&mut producer, Vec::new(), vec![position(3, member.held[&3], second, "")]);
    member.consumer.pause(3).unwrap();
    assert_eq!(restore(&mut member.consumer, 3).0.unwrap().position, Some(second));
    member.consumer.resume(3).unwrap();
    member.until("two again", |member| member.records.len() == 5);
    (0..3).for_each(|_| member.step());
    assert_eq!(member.values(3), ["one", "two", "three", "two", "three"]);
}
