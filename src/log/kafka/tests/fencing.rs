//! Tests of processes whose name another process took.

use super::*;
use crate::Follower as _;
use crate::write::Writer as _;

pub(super) fn a_fenced_writer_says_so(broker: &Broker) {
    let mut bed = Topics::fresh(broker);
    let (member, mut producer) = bed.member("a");
    let commit = |producer: &mut KafkaProducer, offset| {
        let outputs = vec![output(Topic::Responses, 0, "k", Some("said"))];
        let positions = vec![position(0, member.held[&0], offset, "")];
        producer.commit(&Transaction { outputs, positions })
    };
    commit(&mut producer, 1).unwrap();
    let mut heir = bed.take_over(&member.consumer, "a");
    for _ in 0..2 {
        match commit(&mut producer, 2) {
            Err(LogError::Fenced { name: "transactional id", id }) => {
                assert_eq!(id, bed.of("a").transactional_id);
            }
            other => panic!("{other:?}"),
        }
    }
    commit(&mut heir, 2).unwrap();
    assert_eq!(bed.committed(Topic::Responses, 0).len(), 2);
}

pub(super) fn a_fenced_member_says_so(broker: &Broker) {
    let mut bed = Topics::fresh(broker);
    bed.0.group_instance_id = "member-1".to_owned();
    let (mut member, _producer) = bed.member("a");
    let (_heir, _heirs) = bed.member("b");
    let deadline = Instant::now() + Duration::from_secs(30);
    let error = loop {
        assert!(Instant::now() < deadline, "{:?}", member.events);
        if let Err(error) = member.consumer.poll(bed.wait()) {
            break error;
        }
    };
    match error {
        LogError::Fenced { name: "group instance id", id } => assert_eq!(id, "member-1"),
        other => panic!("{other:?}"),
    }
}

/// Only one process publishes: a later one takes over the topic, and the open transaction of the
/// earlier one is aborted.
pub(super) fn one_publishes_at_a_time(broker: &Broker) {
    let mut config = KafkaConfig { create_topics: true, create_partitions: 3, ..broker.unmade() };
    config.views_transactional_id = format!("{}-views", config.group_id);
    let mut first = publish(&config, Topic::Views).unwrap();
    first.write(b"k", Some(b"first")).unwrap();
    let written = first.finish().unwrap();
    assert_eq!(written.values().map(|stretch| stretch.records).sum::<u64>(), 1);
    first.write(b"k", Some(b"never committed")).unwrap();
    let mut second = publish(&config, Topic::Views).unwrap();
    for _ in 0..2 {
        let lost = first.write(b"k", Some(b"late")).and_then(|()| first.finish());
        match lost {
            Err(LogError::Fenced { name: "transactional id", id }) => {
                assert_eq!(id, config.views_transactional_id);
            }
            other => panic!("{other:?}"),
        }
    }
    second.write(b"k", None).unwrap();
    second.finish().unwrap();
    second.finish().unwrap();
    let mut follower = follow(&config, Topic::Views).unwrap();
    assert_eq!(follower.positions().len(), 3);
    let mut records = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !follower.has_caught_up() {
        assert!(Instant::now() < deadline, "{records:?}");
        records.extend(follower.poll(Duration::from_millis(50)).unwrap());
    }
    let values: Vec<_> = records.into_iter().map(|record| record.value).collect();
    assert_eq!(values, [Some(b"first".to_vec()), None]);
}

/// A static member comes back within its session, without a rebalance.
pub(super) fn a_static_member_keeps_its_partitions(broker: &Broker) {
    let mut bed = Topics::fresh(broker);
    bed.0.group_instance_id = "member-1".to_owned();
    let (mut first, first_producer) = bed.member("a");
    first.releases = true;
    bed.0.group_instance_id = "member-2".to_owned();
    let (second, _second_producer) = bed.join("b");
    let mut second = TestMember::new(second, bed.wait());
    let deadline = Instant::now() + Duration::from_secs(60);
    while first.held.len() != 2 || second.held.len() != 2 {
        assert!(Instant::now() < deadline, "{:?} {:?}", first.events, second.events);
        first.step();
        second.step();
    }
    let (held, stirred) = (first.held.clone(), second.events.len());
    drop((first_producer, first));
    bed.0.group_instance_id = "member-1".to_owned();
    let (again, _again_producer) = bed.member("a");
    let partitions =
        |held: &std::collections::BTreeMap<i32, u32>| held.keys().copied().collect::<Vec<i32>>();
    assert_eq!(partitions(&again.held), partitions(&held), "what it had");
    for _ in 0..20 {
        second.step();
    }
    assert_eq!(second.events.len(), stirred, "{:?}", second.events);
}

/// A member that leaves to join again gives up its partitions as in any rebalance.
pub(super) fn a_static_member_that_joins_again_loses_nothing(broker: &Broker) {
    let mut bed = Topics::fresh(broker);
    bed.0.group_instance_id = "member-1".to_owned();
    let (first, mut first_producer) = bed.join("a");
    bed.0.group_instance_id = "member-2".to_owned();
    let (second, mut second_producer) = bed.join("b");
    let mut members = [first, second].map(|consumer| TestMember::new(consumer, bed.wait()));
    let until =
        |what: &str, members: &mut [TestMember<_>; 2], so: &dyn Fn(&[TestMember<_>; 2]) -> bool| {
            let deadline = Instant::now() + Duration::from_secs(60);
            while !so(members) {
                let events = || members.each_ref().map(|member| &member.events);
                assert!(Instant::now() < deadline, "never: {what}; saw {:?}", events());
                members.iter_mut().for_each(TestMember::step);
            }
        };
    let read = |members: &[TestMember<KafkaConsumer>; 2]| -> Vec<(i32, Option<Vec<u8>>)> {
        let records = members.iter().flat_map(|member| &member.records);
        let mut read: Vec<_> = records.map(|it| (it.partition, it.value.clone())).collect();
        read.sort();
        read
    };
    let share = |members: &[TestMember<_>; 2]| members.iter().all(|member| member.held.len() == 2);
    until("each holds two", &mut members, &share);
    (0..PARTITIONS).for_each(|at| bed.append(at, "k", "before"));
    until("all is read", &mut members, &|members| read(members).len() == 4);
    let done = |member: &TestMember<_>| Transaction {
        outputs: Vec::new(),
        positions: member.held.iter().map(|(at, held)| position(*at, *held, 1, "")).collect(),
    };
    let before = done(&members[0]);
    first_producer.commit(&before).unwrap();
    second_producer.commit(&done(&members[1])).unwrap();

    let seen = members[0].events.len();
    members[0].consumer.leave_to_join_again();
    (0..PARTITIONS).for_each(|at| bed.append(at, "k", "meanwhile"));
    until("it gave up", &mut members, &|members| members[0].held.is_empty());
    until("each holds two again", &mut members, &share);
    until("all is read again", &mut members, &|members| read(members).len() >= 8);
    let both = [b"before".to_vec(), b"meanwhile".to_vec()];
    let once = (0..PARTITIONS).flat_map(|at| both.clone().map(|value| (at, Some(value))));
    assert_eq!(read(&members), once.collect::<Vec<_>>(), "each once");
    let revoked = &members[0].events[seen];
    assert!(matches!(revoked, Event::Revoked(all) if all.len() == 2), "{revoked:?}");
    assert_eq!(members.each_ref().map(|member| member.consumer.standing().rejoins), [1, 0]);
    let refused = first_producer.commit(&before);
    assert!(matches!(refused, Err(LogError::Stale { .. })), "{refused:?}");
    first_producer.commit(&done(&members[0])).unwrap();
}
