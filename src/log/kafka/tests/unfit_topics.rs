//! Tests of the topic checks at start, and of the creation of topics.

use rdkafka::admin::ResourceSpecifier;

use super::*;
use crate::Follower as _;

fn refusal(config: &KafkaConfig) -> String {
    match connect(config) {
        Err(LogError::Refused(said)) => said,
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("the topics were taken"),
    }
}

pub(super) fn topics_that_do_not_fit_are_refused(broker: &Broker) {
    let config = broker.fresh();
    let mut missing = config.clone();
    missing.topics.recorded.push_str("-missing");
    let error = refusal(&missing);
    assert!(error.contains("-missing") && error.contains("deploy/kafka/topics"), "{error}");
    let mut narrow = config;
    for topic in [&mut narrow.topics.history, &mut narrow.topics.responses] {
        topic.push_str("-narrow");
    }
    let mut others = narrow.clone();
    for name in [
        &mut others.topics.turns,
        &mut others.topics.traces,
        &mut others.topics.conversations,
        &mut others.topics.recorded,
        &mut others.topics.dead_letters,
        &mut others.topics.knowledge,
        &mut others.topics.partials,
        &mut others.topics.views,
    ] {
        name.push_str("-unused");
    }
    broker.make_topics(&others, 2, |_, topic| topic);
    let error = refusal(&narrow);
    assert!(error.contains("has 2 partitions") && error.contains("has 4"), "{error}");
    for (setting, value, topic) in [
        ("cleanup.policy", "delete", Topic::History),
        ("cleanup.policy", "compact,delete", Topic::History),
        ("max.message.bytes", "900000", Topic::Responses),
        ("max.message.bytes", "900000", Topic::Traces),
        ("cleanup.policy", "delete", Topic::Conversations),
        ("max.message.bytes", "900000", Topic::History),
        ("max.message.bytes", "1048000", Topic::DeadLetters),
    ] {
        let unfit = broker.unmade();
        broker.make_topics(
            &unfit,
            1,
            |of, made| {
                if of == topic { made.set(setting, value) } else { made }
            },
        );
        let error = refusal(&unfit);
        for said in [unfit.topics.name(topic), setting, value] {
            assert!(error.contains(said), "{said} is not in {error}");
        }
    }
}

fn setting(config: &KafkaConfig, topic: Topic, name: &str) -> String {
    let admin = topics::admin(config).unwrap();
    let topic = [ResourceSpecifier::Topic(config.topics.name(topic))];
    let described = topics::wait_for(admin.describe_configs(&topic, &topics::options()));
    let described = described.unwrap().remove(0).unwrap();
    described.get(name).unwrap().value.clone().unwrap()
}

pub(super) fn missing_topics_are_created(broker: &Broker) {
    let mut config = broker.unmade();
    assert!(refusal(&config).contains("create_topics = true"));
    config.create_topics = true;
    config.create_partitions = 3;
    let (consumer, _) = connect(&config).unwrap();
    assert_eq!((consumer.partitions(), consumer.has(Topic::Traces)), (3, true));
    assert!(consumer.has(Topic::Conversations));
    drop(consumer);
    assert_eq!(setting(&config, Topic::History, "cleanup.policy"), "compact");
    assert_eq!(setting(&config, Topic::Turns, "cleanup.policy"), "delete");
    // The existing topics decide the number of partitions of the others, and stay unchanged.
    config.create_partitions = 5;
    assert_eq!(follow(&config, Topic::Views).unwrap().positions().len(), 3);
    for name in [&mut config.topics.history, &mut config.topics.dead_letters] {
        name.push_str("-new");
    }
    let (consumer, _) = connect(&config).unwrap();
    assert_eq!(consumer.partitions(), 3);
    drop(consumer);
    config.create_topics = false;
    assert_eq!(connect(&config).unwrap().0.partitions(), 3, "all are there");
    config.topics.traces.push_str("-new");
    let consumer = connect(&config).unwrap().0;
    assert!(!consumer.has(Topic::Traces), "that topic may be missing");
    assert!(consumer.has(Topic::Conversations));
    drop(consumer);
    let mut copies = KafkaConfig { create_topics: true, ..broker.unmade() };
    copies.create_replication_factor = 3;
    let error = refusal(&copies);
    assert!(error.contains("log.kafka.create_replication_factor"), "one broker has no 3: {error}");
}

/// Only a follower of the topic of knowledge checks it.
pub(super) fn the_topic_of_knowledge_is_checked(broker: &Broker) {
    let refusal = |config: &KafkaConfig| match follow(config, Topic::Knowledge) {
        Err(LogError::Refused(said)) => said,
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("the topic was taken"),
    };
    let mut config = broker.unmade();
    let error = refusal(&config);
    for said in [config.topics.knowledge.as_str(), "create_topics = true", "live = false"] {
        assert!(error.contains(said), "{said} is not in {error}");
    }
    config.create_topics = true;
    config.create_knowledge_partitions = 2;
    assert_eq!(follow(&config, Topic::Knowledge).unwrap().positions(), [(0, 0), (1, 0)].into());
    assert_eq!(setting(&config, Topic::Knowledge, "cleanup.policy"), "compact");
    config.create_topics = false;
    config.create_knowledge_partitions = 7;
    assert_eq!(follow(&config, Topic::Knowledge).unwrap().positions().len(), 2, "as it is there");
    for policy in ["delete", "compact,delete"] {
        let unfit = broker.unmade();
        broker.make_topics(&unfit, 1, |of, made| match of {
            Topic::Knowledge => made.set("cleanup.policy", policy),
            _ => made,
        });
        let error = refusal(&unfit);
        for said in [unfit.topics.knowledge.as_str(), policy, "would be forgotten"] {
            assert!(error.contains(said), "{said} is not in {error}");
        }
        connect(&unfit).unwrap();
    }
    let unfit = broker.unmade();
    broker.make_topics(&unfit, 1, |of, made| match of {
        Topic::Views => made.set("cleanup.policy", "delete"),
        _ => made,
    });
    let Err(LogError::Refused(said)) = publish(&unfit, Topic::Views) else { panic!("taken") };
    assert!(said.contains("topic of views") && said.contains("would be gone"), "{said}");
    connect(&unfit).unwrap();
}

/// A record that is no turn and as large as its topic allows does not stop the process.
pub(super) fn a_dead_letter_has_room_for_any_input(broker: &Broker) {
    let config = KafkaConfig { create_topics: true, create_partitions: 1, ..broker.unmade() };
    let (consumer, mut producer) = connect(&config).unwrap();
    let mut member = TestMember::new(consumer, Duration::from_millis(50));
    member.until("partitions are assigned", |member| !member.held.is_empty());
    let huge = "x".repeat(1_048_000);
    let mut letter = output(Topic::DeadLetters, 0, "k", Some(&huge));
    letter.headers.push(turnstream_schemas::Header {
        name: "turnstream.reason".to_owned(),
        value: Some(turnstream_schemas::outcome::Bytes(vec![b'x'; 10_000])),
    });
    let positions = vec![position(0, member.held[&0], 1, "")];
    producer.commit(&Transaction { outputs: vec![letter], positions }).unwrap();
}
