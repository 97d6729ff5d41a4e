//! Tests of transactions that a crashed broker forgot and the next holder of the id aborts.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use super::super::settling::{Places, Sent};
use super::super::transactions::held_back;
use super::*;

/// A process dies in the middle of a transaction, after the broker has all its records and offsets.
/// The broker is killed and stays away for longer than the transaction's timeout. After its restart
/// it gives the transaction up, but finds no leader for the end marker. The next process of the
/// same name must commit neither the records of the dead one nor its offsets.
#[test]
fn what_a_crashed_broker_forgot_is_never_committed() {
    let Some(broker) = Broker::start_ours() else { return };
    let mut bed = Topics::fresh(&broker);
    // The timeout passes while the broker is away and waits for its earlier session to expire, not
    // before.
    bed.0.transaction_timeout_ms = 8_000;
    // A static member must not be fenced by the records that it writes before it joins.
    bed.0.group_instance_id = "member-1".to_owned();
    let places = || {
        sweep::of_turns(topics::Fit {
            partitions: PARTITIONS,
            there: [true; 2],
            accepted_bytes: None,
        })
        .flat_map(|(topic, all)| (0..all).map(move |partition| (topic, partition)))
    };
    let (member, mut producer) = bed.member("a");
    let done = |member: &TestMember<KafkaConsumer>, value: &str, offset| Transaction {
        outputs: places().map(|(topic, at)| output(topic, at, "k", Some(value))).collect(),
        positions: (0..PARTITIONS).map(|at| position(at, member.held[&at], offset, "")).collect(),
    };
    producer.commit(&done(&member, "before", 1)).unwrap();
    drop((producer, member));

    let dying: BaseProducer = bed.of("a").producer_settings(None).create().unwrap();
    dying.init_transactions(REQUEST_TIMEOUT).unwrap();
    dying.begin_transaction().unwrap();
    for (topic, partition) in places() {
        let record = BaseRecord::to(bed.0.topics.name(topic)).partition(partition).key("k");
        dying.send(record.payload("never")).unwrap();
    }
    dying.flush(REQUEST_TIMEOUT).unwrap();
    let outside: BaseConsumer = bed.0.changelog_settings().create().unwrap();
    let mut finished = TopicPartitionList::new();
    finished.add_partition_offset(&bed.0.topics.turns, 0, Offset::Offset(7)).unwrap();
    let group = outside.group_metadata().unwrap();
    dying.send_offsets_to_transaction(&finished, &group, REQUEST_TIMEOUT).unwrap();
    drop(dying);
    broker.crash(Duration::from_secs(4));

    let mut held = held_back(&bed.0).unwrap();
    let forgotten = loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = held_back(&bed.0).unwrap();
        if now == std::mem::replace(&mut held, now.clone()) {
            break now.len() as u64;
        }
    };
    let swept = sweep::found();
    eprintln!("the broker forgot {forgotten} of {} partitions", places().count());
    let (member, mut producer) = bed.member("a");
    assert_eq!(held_back(&bed.0).unwrap(), [], "it is aborted before anything else is done");
    assert!(sweep::found() >= swept + forgotten, "and counted");
    let positions: Vec<_> = member.restored.values().map(|restored| restored.position).collect();
    assert_eq!(positions, [Some(1); PARTITIONS as usize], "what it finished is not");
    producer.commit(&done(&member, "after", 2)).unwrap();
    for (topic, partition) in places() {
        let seen = bed.committed(topic, partition);
        let values: Vec<_> = seen.iter().map(|record| record.value.as_deref().unwrap()).collect();
        assert_eq!(values, [b"before".as_slice(), b"after"], "{topic:?}, partition {partition}");
    }
}

/// A sweep waits until readers are past its records. If another process holds them back, it tries
/// once more and then continues.
pub(super) fn a_sweep_is_over_where_readers_are_past_it(broker: &Broker) {
    let bed = Topics::fresh(broker);
    let config = bed.of("a");
    let topics = &config.topics;
    let places = [(topics.responses.as_str(), 0), (topics.responses.as_str(), 1)];
    let sweeper = sweep::Sweeper::new(&config, REQUEST_TIMEOUT).unwrap();
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    sweeper.fill(&places, true, deadline).unwrap();
    let mut written = sweeper.written();
    written.sort_unstable();
    assert_eq!(written, [(0, 0), (1, 0)]);
    let held = sweeper.not_passed(&places, &written);
    assert_eq!(held, [(0, Some(0)), (1, Some(0))].into(), "readers stand at what it wrote");
    assert!(!sweeper.is_group_stable(), "and wait for its offset");
    sweeper.abort(deadline).unwrap();
    assert_eq!(sweeper.not_passed(&places, &written), [].into());
    assert!(sweeper.is_group_stable());

    let ends = |partition| {
        let reader: BaseConsumer = config.uncommitted_settings().create().unwrap();
        reader.fetch_watermarks(&topics.responses, partition, REQUEST_TIMEOUT).unwrap().1
    };
    assert_eq!((ends(0), ends(1)), (2, 2), "a record and its end");
    let dead = bed.stranger();
    dead.send(BaseRecord::to(&topics.responses).partition(1).key("k").payload("never")).unwrap();
    dead.flush(REQUEST_TIMEOUT).unwrap();
    assert_eq!(sweeper.sweep(&places[..1], true).unwrap(), 0);
    assert_eq!(ends(0), 4, "once, where nothing is open");
    assert_eq!(sweeper.sweep(&places, true).unwrap(), 0, "what another has open is not ended");
    assert_eq!((ends(0), ends(1)), (8, 7), "and once more where it may be ours");
}

/// The end of a transaction was lost, after an acknowledgement or before, and the broker kept all,
/// some or none of it. In the end all of it is visible once, or none of it if it was never
/// acknowledged.
pub(super) fn what_was_forgotten_of_a_transaction_is_committed_again(broker: &Broker) {
    let mut bed = Topics::fresh(broker);
    let (member, mut producer) = bed.member("a");
    let committed: BaseConsumer = bed.0.changelog_settings().create().unwrap();
    let all: BaseConsumer = bed.0.uncommitted_settings().create().unwrap();
    // A commit is acknowledged before its end marker is written, which takes an offset too.
    let end = |bed: &Topics, topic| {
        let name = bed.0.topics.name(topic);
        let high =
            |reader: &BaseConsumer| reader.fetch_watermarks(name, 0, REQUEST_TIMEOUT).unwrap().1;
        loop {
            let stable = high(&committed);
            if stable == high(&all) {
                break stable;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let written = [Topic::Responses, Topic::History];
    let mut expected = Vec::new();
    let kept: [&[Topic]; 4] = [&[], &[Topic::Responses], &[Topic::History], &written];
    for (nth, (acknowledged, kept)) in
        [true, false].into_iter().flat_map(|told| kept.map(|kept| (told, kept))).enumerate()
    {
        let value = format!("outcome {nth}");
        let positions = vec![position(0, member.held[&0], nth as i64 + 1, "")];
        let of = |topics: &[Topic]| {
            let outputs = topics.iter().map(|topic| output(*topic, 0, "k", Some(&value)));
            Transaction { outputs: outputs.collect(), positions: positions.clone() }
        };
        let whole = of(&written);
        let before = member.consumer.client.context().committed(&positions);
        // If nothing is kept, the offset of the latest marker holds no record.
        let mut places: Places =
            written.into_iter().map(|at| ((at, 0), end(&bed, at) - 1)).collect();
        if !kept.is_empty() {
            producer.commit(&of(kept)).unwrap();
            for topic in kept {
                places.insert((*topic, 0), end(&bed, *topic) - 2);
            }
        }
        producer.doubt(Sent::new(&whole, before, places, acknowledged));
        let wants_again = if acknowledged { Transaction::default() } else { whole };
        producer.commit(&wants_again).unwrap();
        expected.push(value.into_bytes());
        for topic in written {
            let seen = bed.committed(topic, 0).into_iter().filter_map(|record| record.value);
            let seen: Vec<_> = seen.collect();
            assert_eq!(seen, expected, "{topic:?}; acknowledged: {acknowledged}, kept: {kept:?}");
        }
    }
    // The partition was lost meanwhile. If part of its history is visible, it is completed, unless
    // another member continued from there.
    let mut offset = expected.len() as i64;
    for (kept, is_untouched) in [(true, true), (false, true), (true, false)] {
        let value = format!("outcome {offset}, kept: {kept}, untouched: {is_untouched}");
        let of = |topics: &[Topic], positions| {
            let outputs = topics.iter().map(|topic| output(*topic, 0, "k", Some(&value)));
            Transaction { outputs: outputs.collect(), positions }
        };
        let (was, generation) = (offset, member.held[&0]);
        let mut places: Places =
            written.into_iter().map(|at| ((at, 0), end(&bed, at) - 1)).collect();
        if kept {
            let history = of(&[Topic::History], vec![position(0, generation, was, "")]);
            producer.commit(&history).unwrap();
            places.insert((Topic::History, 0), end(&bed, Topic::History) - 2);
        }
        let before = [(0, (Some(if is_untouched { was } else { was - 1 }), String::new()))].into();
        let lost = of(&written, vec![position(0, generation + 1, was + 1, "")]);
        producer.doubt(Sent::new(&lost, before, places, true));
        producer.commit(&Transaction::default()).unwrap();
        let mut has = |topic| {
            let seen = bed.committed(topic, 0).into_iter().filter_map(|record| record.value);
            seen.filter(|seen| *seen == value.as_bytes()).count()
        };
        let is_completed = kept && is_untouched;
        let responses = has(Topic::Responses);
        assert_eq!(responses, usize::from(is_completed), "kept: {kept}, {is_untouched}");
        assert_eq!(has(Topic::History), usize::from(kept), "kept: {kept}, {is_untouched}");
        offset += i64::from(is_completed);
    }
    let mut consumer = member.consumer;
    consumer.pause(0).unwrap();
    assert_eq!(restore_settled(&mut consumer, 0).0.unwrap().position, Some(offset));
}

/// The broker is killed right after it acknowledged a transaction, again and again. It may or may
/// not have written the end marker.
#[test]
fn what_a_killed_broker_acknowledged_is_there_once() {
    let Ok(kills) = std::env::var("TURNSTREAM_CRASH_BROKER_KILLS") else {
        eprintln!("SKIPPED: set TURNSTREAM_CRASH_BROKER_KILLS to as many kills as are wanted");
        return;
    };
    let kills: i64 = kills.parse().expect("a number");
    let Some(broker) = Broker::start_ours() else { return };
    let mut bed = Topics::fresh(&broker);
    let (mut member, producer) = bed.member("a");
    let producer = Mutex::new(producer);
    let commit = |done: &Transaction| producer.lock().unwrap().commit(done);
    let topics = [Topic::Responses, Topic::History];
    let (swept, mut expected) = (sweep::found(), Vec::new());
    for nth in 0..2 * kills {
        let value = format!("outcome {nth}");
        let deadline = Instant::now() + Duration::from_secs(120);
        let mut done_under = None;
        loop {
            // The restoration waits for transactions in doubt while the committer settles them.
            let held = AtomicBool::new(false);
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    while !held.load(Ordering::Relaxed) && Instant::now() < deadline {
                        let _ = commit(&Transaction::default());
                        std::thread::sleep(bed.wait());
                    }
                });
                (0..20).for_each(|_| member.step());
                member.until("it holds all", |member| member.held.len() == PARTITIONS as usize);
                held.store(true, Ordering::Relaxed);
            });
            // A member that lost its partitions does forgotten work again, as the next owner does.
            let is_there = member.restored[&0].position == Some(nth + 1);
            if is_there || done_under.as_ref() == Some(&member.held) {
                break;
            }
            let places = (0..PARTITIONS).flat_map(|at| topics.map(|topic| (topic, at)));
            let held = member.held.iter();
            let done = Transaction {
                outputs: places.map(|(topic, at)| output(topic, at, "k", Some(&value))).collect(),
                positions: held.map(|(at, held)| position(*at, *held, nth + 1, "")).collect(),
            };
            if let Err(error) = commit(&done) {
                assert!(!error.is_fatal() && Instant::now() < deadline, "{error}");
                continue;
            }
            if nth % 2 == 1 && done_under.is_none() {
                let before = sweep::found();
                // Kill at once: the end markers are written within milliseconds.
                outage::signal(&broker, "-KILL");
                broker.crash(Duration::ZERO);
                while commit(&Transaction::default()).is_err() {}
                let found = sweep::found() - before;
                eprintln!("kill {nth}: on {found} partitions the end was forgotten");
            }
            done_under = Some(member.held.clone());
        }
        expected.push(value);
    }
    for (topic, partition) in (0..PARTITIONS).flat_map(|at| topics.map(|topic| (topic, at))) {
        let seen = bed.committed(topic, partition).into_iter().filter_map(|record| record.value);
        let seen: Vec<String> = seen.map(|value| String::from_utf8(value).unwrap()).collect();
        assert_eq!(seen, expected, "{topic:?}, partition {partition}");
    }
    let forgotten = sweep::found() - swept;
    eprintln!("{kills} kills; on {forgotten} partitions the end was forgotten");
}
