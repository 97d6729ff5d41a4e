//! Tests against a real Apache Kafka: the broker named by `TURNSTREAM_TEST_KAFKA` (`host:port`),
//! else a broker that the test starts through `deploy/kafka/`. If neither is available the test
//! prints that it was skipped; in CI that is a failure.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{Offset, TopicPartitionList};

use super::super::conformance::{
    Bed, PARTITIONS, Property, TestMember, output, position, properties, restore, restore_settled,
};
use super::super::{Consumer, Event, Producer, Record, Transaction};
use super::*;

mod broker;
mod fencing;
mod forgotten;
mod lookups;
mod open_transactions;
mod outage;
mod unfit_topics;

use broker::Broker;

struct Topics(KafkaConfig, BaseProducer);

impl Topics {
    fn fresh(broker: &Broker) -> Self {
        let config = broker.fresh();
        let producer = shared_settings(&config).set("linger.ms", "0").create().unwrap();
        Self(config, producer)
    }
}

impl Bed for Topics {
    type Consumer = KafkaConsumer;
    type Producer = KafkaProducer;
    type Follower = KafkaFollower;
    type Open = BaseProducer;

    fn join(&mut self, transactional_id: &str) -> (KafkaConsumer, KafkaProducer) {
        connect(&self.of(transactional_id)).unwrap()
    }

    fn take_over(&mut self, consumer: &KafkaConsumer, id: &str) -> KafkaProducer {
        let consumer = Arc::clone(&consumer.client);
        let fit = topics::Fit { partitions: PARTITIONS, there: [true; 2], accepted_bytes: None };
        KafkaProducer::initialise(consumer, &self.of(id), fit, REQUEST_TIMEOUT).unwrap()
    }

    fn append(&mut self, partition: i32, key: &str, value: &str) {
        let record = BaseRecord::to(&self.0.topics.turns).partition(partition).key(key);
        self.1.send(record.payload(value)).unwrap();
        while self.1.flush(Duration::ZERO).is_err() {
            self.1.poll(Duration::from_micros(500));
        }
    }

    fn follow(&mut self) -> KafkaFollower {
        follow(&self.0, Topic::Knowledge).unwrap()
    }

    fn put(&mut self, partition: i32, key: &str, value: Option<&str>) {
        let topic = &self.0.topics.knowledge;
        let record = BaseRecord::<str, str>::to(topic).partition(partition).key(key);
        let record = value.into_iter().fold(record, BaseRecord::payload);
        self.1.send(record).unwrap();
        while self.1.in_flight_count() > 0 {
            self.1.poll(Duration::from_micros(500));
        }
    }

    fn open(&mut self, partition: i32, key: &str, value: &str) -> BaseProducer {
        let stranger = self.stranger();
        let topic = &self.0.topics.knowledge;
        let record = BaseRecord::to(topic).partition(partition).key(key).payload(value);
        stranger.send(record).unwrap();
        stranger.flush(REQUEST_TIMEOUT).unwrap();
        stranger
    }

    fn abort(&mut self, open: BaseProducer) {
        open.abort_transaction(REQUEST_TIMEOUT).unwrap();
    }

    fn committed(&mut self, topic: Topic, partition: i32) -> Vec<Record> {
        let reader: BaseConsumer = self.0.changelog_settings().create().unwrap();
        let mut list = TopicPartitionList::new();
        let name = self.0.topics.name(topic);
        list.add_partition_offset(name, partition, Offset::Beginning).unwrap();
        reader.assign(&list).unwrap();
        let mut records = Vec::new();
        loop {
            match reader.poll(REQUEST_TIMEOUT) {
                Some(Ok(message)) => records.push(consumer::record(&message)),
                Some(Err(KafkaError::PartitionEOF(_))) => return records,
                other => panic!("{other:?}"),
            }
        }
    }

    fn wait(&self) -> Duration {
        Duration::from_millis(50)
    }
}

impl Topics {
    fn of(&self, transactional_id: &str) -> KafkaConfig {
        let id = format!("{}-{transactional_id}", self.0.group_id);
        KafkaConfig { transactional_id: id, ..self.0.clone() }
    }

    /// A foreign producer with an open transaction.
    fn stranger(&self) -> BaseProducer {
        let stranger: BaseProducer = self.of("stranger").producer_settings(None).create().unwrap();
        stranger.init_transactions(REQUEST_TIMEOUT).unwrap();
        stranger.begin_transaction().unwrap();
        stranger
    }

    fn member(&mut self, id: &str) -> (TestMember<KafkaConsumer>, KafkaProducer) {
        let (consumer, producer) = self.join(id);
        let mut member = TestMember::new(consumer, self.wait());
        member.until("partitions are assigned", |member| !member.held.is_empty());
        (member, producer)
    }
}

/// The number of properties that run at once. Most of the time each waits for a session or a
/// transaction to expire.
const AT_ONCE: usize = 4;

#[test]
fn on_a_real_broker_it_keeps_the_contract() {
    let Some(broker) = Broker::start() else { return };
    type Own = fn(&Broker);
    type OnBroker = Box<dyn Fn(&Broker) + Send>;
    let on_fresh = |(name, property): (&'static str, Property<Topics>)| -> (&str, OnBroker) {
        (name, Box::new(move |broker| property(&mut Topics::fresh(broker))))
    };
    // The longest comes last and is taken first.
    let own: [(&str, Own); 21] = [
        ("restoring_waits_for_an_open_transaction", restoring_waits_for_an_open_transaction),
        ("who_stopped_polling_commits_nothing", who_stopped_polling_commits_nothing),
        ("a_record_that_is_too_large_says_so", a_record_that_is_too_large_says_so),
        ("topics_that_do_not_fit_are_refused", unfit_topics::topics_that_do_not_fit_are_refused),
        ("missing_topics_are_created", unfit_topics::missing_topics_are_created),
        (
            "a_dead_letter_has_room_for_any_input",
            unfit_topics::a_dead_letter_has_room_for_any_input,
        ),
        ("the_topic_of_knowledge_is_checked", unfit_topics::the_topic_of_knowledge_is_checked),
        ("a_fenced_writer_says_so", fencing::a_fenced_writer_says_so),
        ("one_publishes_at_a_time", fencing::one_publishes_at_a_time),
        ("a_fenced_member_says_so", fencing::a_fenced_member_says_so),
        ("a_static_member_keeps_its_partitions", fencing::a_static_member_keeps_its_partitions),
        (
            "a_static_member_that_joins_again_loses_nothing",
            fencing::a_static_member_that_joins_again_loses_nothing,
        ),
        ("open_transactions_are_shown_and_ended", open_transactions::are_shown_and_ended),
        (
            "a_sweep_is_over_where_readers_are_past_it",
            forgotten::a_sweep_is_over_where_readers_are_past_it,
        ),
        ("a_lost_group_is_noticed", a_lost_group_is_noticed),
        ("strange_headers_are_survived", strange_headers_are_survived),
        ("a_commit_takes_milliseconds", a_commit_takes_milliseconds),
        ("a_member_knows_how_far_behind_it_is", a_member_knows_how_far_behind_it_is),
        (
            "what_the_client_reads_again_is_passed_over",
            lookups::what_the_client_reads_again_is_passed_over,
        ),
        (
            "a_seek_overtakes_no_lookup_of_the_client",
            lookups::a_seek_overtakes_no_lookup_of_the_client,
        ),
        (
            "what_was_forgotten_of_a_transaction_is_committed_again",
            forgotten::what_was_forgotten_of_a_transaction_is_committed_again,
        ),
    ];
    let own = own.map(|(name, property)| -> (&str, OnBroker) { (name, Box::new(property)) });
    let waiting = Mutex::new(properties().into_iter().map(on_fresh).chain(own).collect::<Vec<_>>());
    let next = || waiting.lock().unwrap().pop();
    std::thread::scope(|threads| {
        for _ in 0..AT_ONCE {
            threads.spawn(|| {
                while let Some((name, property)) = next() {
                    let begun = Instant::now();
                    property(&broker);
                    eprintln!("on Kafka: {name}, {} ms", begun.elapsed().as_millis());
                }
            });
        }
    });
    // It halts the broker.
    outage::a_broker_that_stood_still_is_waited_for(&broker);
}

fn restoring_waits_for_an_open_transaction(broker: &Broker) {
    let mut bed = Topics::fresh(broker);
    let (mut member, mut producer) = bed.member("a");
    let stranger = bed.stranger();
    let history = bed.0.topics.history.clone();
    let record = BaseRecord::to(&history).partition(0).key("k").payload("never");
    stranger.send(record).unwrap();
    stranger.flush(REQUEST_TIMEOUT).unwrap();
    let done = Transaction {
        outputs: vec![
            // A record of a sweep whose end the broker forgot.
            output(Topic::History, 0, "turnstream.sweep", None),
            output(Topic::History, 0, "k", Some("ours")),
        ],
        positions: vec![position(0, member.held[&0], 3, "")],
    };
    producer.commit(&done).unwrap();
    assert!(bed.committed(Topic::History, 0).is_empty(), "held back by what is open");
    member.consumer.pause(0).unwrap();
    let (unsettled, _) = restore(&mut member.consumer, 0);
    assert!(matches!(unsettled, Err(LogError::Unsettled { .. })), "{unsettled:?}");
    let settled = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1_500));
        stranger.abort_transaction(REQUEST_TIMEOUT).unwrap();
    });
    let (restored, changelog) = restore_settled(&mut member.consumer, 0);
    settled.join().unwrap();
    assert_eq!(restored.unwrap().position, Some(3));
    assert_eq!(changelog.len(), 1);
    assert_eq!(changelog[0].value.as_deref(), Some(&b"ours"[..]), "above the aborted");
}

fn who_stopped_polling_commits_nothing(broker: &Broker) {
    let mut bed = Topics::fresh(broker);
    (bed.0.session_timeout_ms, bed.0.max_poll_interval_ms) = (4_000, 4_000);
    let (mut stuck, mut producer) = bed.member("a");
    let held = stuck.held.clone();
    assert_eq!(held.len(), 4);
    std::thread::sleep(Duration::from_millis(u64::from(bed.0.session_timeout_ms) + 1_500));
    let (mut heir, mut heirs) = bed.member("b");
    let transaction = |held: &std::collections::BTreeMap<i32, u32>, value: &str| Transaction {
        outputs: vec![output(Topic::Responses, 0, "k", Some(value))],
        positions: vec![position(0, held[&0], 1, "")],
    };
    heirs.commit(&transaction(&heir.held, "the heir's")).unwrap();
    let refused = producer.commit(&transaction(&held, "too late"));
    assert!(matches!(refused, Err(LogError::Stale { .. })), "{refused:?}");
    heir.releases = true;
    let lost =
        |member: &TestMember<_>| member.events.iter().any(|event| matches!(event, Event::Lost(_)));
    stuck.until("the loss", lost);
    let deadline = Instant::now() + Duration::from_secs(30);
    while stuck.held.len() < 2 || heir.held.len() > 2 {
        assert!(Instant::now() < deadline, "{:?} {:?}", stuck.events, heir.events);
        stuck.step();
        heir.step();
    }
    let refused = producer.commit(&transaction(&held, "too late again"));
    assert!(matches!(refused, Err(LogError::Stale { .. })), "{refused:?}");
    let seen = bed.committed(Topic::Responses, 0);
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].value.as_deref(), Some(&b"the heir's"[..]));
}

fn a_record_that_is_too_large_says_so(broker: &Broker) {
    for limit in ["1000000", "8000000"] {
        let mut bed = Topics::fresh(broker);
        let (member, _) = bed.member("a");
        // This bypasses the check at start that topics accept what the client sends.
        bed.0.client.0.insert("message.max.bytes".to_owned(), limit.to_owned());
        bed.0.client.0.insert("compression.type".to_owned(), "none".to_owned());
        let mut producer = bed.take_over(&member.consumer, "a");
        let positions = vec![position(0, member.held[&0], 1, "")];
        let huge = "x".repeat(2_000_000);
        let outputs = vec![
            output(Topic::Responses, 0, "k", Some("beside it")),
            output(Topic::Responses, 0, "k", Some(&huge)),
        ];
        let large = Transaction { outputs, positions: positions.clone() };
        let error = producer.commit(&large).unwrap_err();
        assert!(error.is_fatal() && error.to_string().contains("max.message.bytes"), "{error}");
        assert!(bed.committed(Topic::Responses, 0).is_empty(), "nothing of it is visible");
        let outputs = vec![output(Topic::Responses, 0, "k", Some("small"))];
        // After the broker refuses a record, the client's sequence numbers have a gap, which shows
        // in the next transaction: one more may fail and be retried.
        let small = Transaction { outputs, positions };
        if let Err(error) = producer.commit(&small) {
            assert!(!error.is_fatal(), "{error}");
            producer.commit(&small).unwrap();
        }
        assert_eq!(bed.committed(Topic::Responses, 0).len(), 1);
    }
}

fn a_lost_group_is_noticed(broker: &Broker) {
    let mut bed = Topics::fresh(broker);
    let (member, mut producer) = bed.member("a");
    let outputs = vec![output(Topic::History, 1, "k", Some("state"))];
    let positions = vec![position(1, member.held[&1], 7, "")];
    producer.commit(&Transaction { outputs, positions }).unwrap();
    drop((producer, member));
    bed.0.group_id.push_str("-renamed");
    let (mut consumer, _producer) = bed.join("b");
    let error = loop {
        if let Event::Assigned(_) = consumer.poll(bed.wait()).unwrap() {
            let empty = restore_settled(&mut consumer, 0).0;
            assert!(empty.is_ok(), "nothing was ever written there");
            break restore_settled(&mut consumer, 1).0.unwrap_err();
        }
    };
    assert!(error.is_fatal() && error.to_string().contains("renamed"), "{error}");
}

fn strange_headers_are_survived(broker: &Broker) {
    let mut bed = Topics::fresh(broker);
    let mut kcat = Command::new("kcat");
    kcat.args(["-P", "-b", &broker.bootstrap, "-t", &bed.0.topics.turns, "-p", "0", "-K", ":"]);
    kcat.args(["-H", "good=1", "-H"]).arg(OsStr::from_bytes(b"b\xffd=2")).args(["-H", "last=3"]);
    let child = kcat.stdin(std::process::Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        eprintln!("SKIPPED: kcat is not installed, so headers that are not UTF-8 were not tested");
        return;
    };
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"key:\xff\x00value\n").unwrap();
    assert!(child.wait().unwrap().success());
    let (mut member, _producer) = bed.member("a");
    member.until("the record", |member| !member.records.is_empty());
    let record = &member.records[0];
    assert_eq!(record.value.as_deref(), Some(&b"\xff\x00value"[..]), "raw bytes");
    assert!(record.time_ms.is_some());
    let names: Vec<&str> = record.headers.iter().map(|header| header.name.as_str()).collect();
    assert_eq!(names, ["good", "last"], "all that can be read");
}

fn a_commit_takes_milliseconds(broker: &Broker) {
    let mut bed = Topics::fresh(broker);
    let (member, mut producer) = bed.member("a");
    let mut took: Vec<Duration> = (1..=200)
        .map(|offset| {
            let transaction = Transaction {
                outputs: (0..PARTITIONS)
                    .flat_map(|partition| {
                        let value = "x".repeat(1_000);
                        [Topic::Responses, Topic::History, Topic::History]
                            .map(|topic| output(topic, partition, "k", Some(&value)))
                    })
                    .collect(),
                positions: (0..PARTITIONS)
                    .map(|at| position(at, member.held[&at], offset, "Afinished"))
                    .collect(),
            };
            let begun = Instant::now();
            // A machine that stalls for a while may fail a transaction, but nothing else.
            outage::commit_until(&mut producer, &transaction, |_| ());
            begun.elapsed()
        })
        .collect();
    took.sort_unstable();
    let at = |share: usize| took[took.len() * share / 100].as_micros();
    eprintln!("commit of 12 outputs, 4 partitions: p50 {} us, p99 {} us", at(50), at(99));
    assert_eq!(bed.committed(Topic::Responses, 0).len(), 200);
}

fn a_member_knows_how_far_behind_it_is(broker: &Broker) {
    let mut bed = Topics::fresh(broker);
    bed.0.client.0.insert("statistics.interval.ms".to_owned(), "100".to_owned());
    let (mut member, _producer) = bed.member("a");
    (0..3).for_each(|at| bed.append(0, "k", &at.to_string()));
    let stands = |member: &TestMember<KafkaConsumer>, lag: u64| {
        let standing = member.consumer.standing();
        standing.is_member == Some(true) && standing.lag.get(&0) == Some(&lag)
    };
    member.until("all is read", |member| member.records.len() == 3 && stands(member, 0));
    member.consumer.pause(0).unwrap();
    (0..5).for_each(|at| bed.append(0, "k", &at.to_string()));
    member.until("it lags behind", |member| stands(member, 5));
    member.consumer.resume(0).unwrap();
    member.until("it has caught up", |member| member.records.len() == 8 && stands(member, 0));
}
