//! The offsets of the group, as part of a transaction.

use std::time::Duration;

use rdkafka::consumer::ConsumerGroupMetadata;
use rdkafka::error::KafkaError;
use rdkafka::producer::{Producer, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};

use super::super::{LogError, Position, Topic};
use super::KafkaConfig;
use super::closing::ClosedInTime;
use super::errors::failed;

/// How much longer than its timeout the client is waited for.
const GRACE: Duration = Duration::from_secs(1);

/// The positions, as the client takes them.
pub(super) fn list(
    config: &KafkaConfig,
    positions: &[Position],
) -> Result<TopicPartitionList, LogError> {
    let turns = config.topics.name(Topic::Turns);
    let mut list = TopicPartitionList::with_capacity(positions.len());
    for position in positions {
        let mut element = list.add_partition(turns, position.partition);
        element.set_offset(Offset::Offset(position.offset)).map_err(|source| {
            failed(&format!("committing offset {} of `{turns}`", position.offset), source)
        })?;
        // Empty metadata is committed too: the metadata must not outlive its offset.
        if !position.metadata.is_empty() {
            element.set_metadata(&position.metadata);
        }
    }
    Ok(list)
}

/// Adds offsets to the open transaction within `left`. `None` if the client does not return: it
/// must be replaced.
///
/// The client ignores its timeout while it waits for the coordinator of the group. If that broker
/// goes away and the cluster's metadata no longer names it, the client waits for it until any other
/// broker comes or goes, perhaps for ever (librdkafka 2.12, its issues 5456 and 5511).
pub(super) fn add<C: ProducerContext + 'static, P: Producer<C> + Send + Sync + 'static>(
    client: &ClosedInTime<P>,
    list: TopicPartitionList,
    group: ConsumerGroupMetadata,
    left: Duration,
) -> Option<Result<(), KafkaError>> {
    client.call(left + GRACE, move |client| client.send_offsets_to_transaction(&list, &group, left))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rdkafka::consumer::{BaseConsumer, Consumer as _};
    use rdkafka::mocking::{MockCluster, MockCoordinator};

    use super::super::membership::Membership;
    use super::super::recovery::KafkaProducer;
    use super::super::topics::Fit;
    use super::*;
    use crate::conformance::{output, position};
    use crate::{Producer as _, Transaction};

    /// The broker that leads every partition, and coordinates the transactions.
    const STAYS: i32 = 1;
    /// The broker that coordinates the group, until it is gone.
    const GOES: i32 = 2;

    #[test]
    fn a_commit_outlives_the_coordinator_of_its_group() {
        let cluster = MockCluster::new(2).unwrap();
        let servers = cluster.bootstrap_servers();
        let config = KafkaConfig {
            // A client that was never connected to the broker that goes cannot know it as lost.
            bootstrap_servers: servers.split(',').next().unwrap().to_owned(),
            transaction_timeout_ms: 1_000,
            // The member outlives its coordinator too.
            session_timeout_ms: 60_000,
            ..KafkaConfig::default()
        };
        for topic in Topic::ALL {
            let name = config.topics.name(topic);
            cluster.create_topic(name, 1, 1).unwrap();
            cluster.partition_leader(name, 0, Some(STAYS)).unwrap();
        }
        let group = || MockCoordinator::Group(config.group_id.clone());
        let transactions = MockCoordinator::Transaction(config.transactional_id.clone());
        cluster.coordinator(transactions, STAYS).unwrap();
        cluster.coordinator(group(), GOES).unwrap();
        let turns = config.topics.name(Topic::Turns);
        let consumer: BaseConsumer<Membership> =
            config.consumer_settings().create_with_context(Membership::new(turns)).unwrap();
        let consumer = Arc::new(ClosedInTime::new(consumer));
        let fit = Fit { partitions: 1, there: [true; 2], accepted_bytes: None };
        let wait = Duration::from_secs(30);
        let mut producer =
            KafkaProducer::initialise(Arc::clone(&consumer), &config, fit, wait).unwrap();
        consumer.subscribe(&[turns]).unwrap();
        while !consumer.context().is_held(0) {
            consumer.poll(Duration::from_millis(20));
        }
        let outputs = vec![output(Topic::Responses, 0, "k", Some("said"))];
        let transaction = Transaction { outputs, positions: vec![position(0, 1, 1, "")] };
        cluster.broker_down(GOES).unwrap();
        let done = AtomicBool::new(false);
        let (first, then) = std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    consumer.poll(Duration::from_millis(20));
                }
            });
            // The client's own call would not return.
            let first = producer.commit(&transaction);
            cluster.coordinator(group(), STAYS).unwrap();
            let mut then = producer.commit(&transaction);
            // A commit that is stale stays so.
            while let Err(LogError::Kafka { fatal: false, .. } | LogError::Unsettled { .. }) = &then
            {
                then = producer.commit(&transaction);
            }
            done.store(true, Ordering::Relaxed);
            (first, then)
        });
        // It is the sweep that fails if the producer knows already that a broker was lost.
        let first = first.unwrap_err();
        assert!(first.to_string().contains("the offsets of group") && !first.is_fatal(), "{first}");
        then.unwrap();
    }
}
