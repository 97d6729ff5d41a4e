//! Checks of the topics at start. They exist, or are created if the configuration says so, and no
//! outcome can fail later because of their settings.

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};

use super::super::{LogError, Topic};
use super::errors::{failed, login_refused, refused, remedy_of, unanswered};
use super::membership::Membership;
use super::restore::OutsideGroup;
use super::{KafkaConfig, REQUEST_TIMEOUT, shared_settings};

mod settings;

use settings::{Settings, check, created_limit, settings};

/// The timeout of one request to a broker that may not be there. Between requests the client's
/// errors are read.
const SLICE: Duration = Duration::from_secs(2);

/// The wait before the next request for a new topic, and for the client's pending errors.
const RETRY: Duration = Duration::from_millis(100);
/// How long the brokers may not know a topic before it counts as missing.
const UNKNOWN: Duration = Duration::from_secs(3);

/// The checked properties of the topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    /// Partitions of every topic.
    pub(super) partitions: i32,
    /// Which of [`Topic::MAY_BE_MISSING`] exist.
    pub(super) there: [bool; Topic::MAY_BE_MISSING.len()],
    /// The largest record that some topic of outcomes accepts, in bytes; `None` if the broker does
    /// not say.
    pub(super) accepted_bytes: Option<usize>,
}

impl Fit {
    /// Whether a topic that may be missing exists.
    pub(super) fn has(&self, topic: Topic) -> bool {
        let mut there = Topic::MAY_BE_MISSING.into_iter().zip(self.there);
        there.any(|(of, there)| of == topic && there)
    }
}

/// Checks the topics, and creates missing ones if the configuration says so.
///
/// # Errors
///
/// [`LogError::Refused`] names the topic, its setting, the required setting and the remedy;
/// [`LogError::Kafka`] if no broker answers in time.
pub(super) fn fit(
    client: &BaseConsumer<Membership>,
    config: &KafkaConfig,
) -> Result<Fit, LogError> {
    let mut found = BTreeMap::new();
    for topic in Topic::OF_TURNS.into_iter().chain(Topic::MAY_BE_MISSING) {
        found.insert(topic, find(client, config, topic, false)?);
    }
    let admin = admin(config)?;
    let missing: Vec<Topic> =
        found.iter().filter(|(_, found)| found.is_none()).map(|(topic, _)| *topic).collect();
    // Without `create_topics`, only topics that are not needed may be missing.
    if config.create_topics && !missing.is_empty() {
        let partitions = found.values().flatten().next().map(|found| found.partitions);
        create(&admin, config, &missing, partitions.unwrap_or(config.create_partitions))?;
        for topic in missing {
            found.insert(topic, find(client, config, topic, true)?);
        }
    }
    let found: BTreeMap<Topic, Found> =
        found.into_iter().filter_map(|(topic, found)| Some((topic, found?))).collect();
    let partitions = same_partitions(config, &found)?;
    let there: Vec<Topic> = found.keys().copied().collect();
    let settings = settings(&admin, config, &there)?;
    let accepted_bytes = check(config, &settings)?;
    warn_of_one_copy(config, &found, &settings);
    warn_of_added_partitions(client, config, partitions);
    let there = Topic::MAY_BE_MISSING.map(|topic| found.contains_key(&topic));
    Ok(Fit { partitions, there, accepted_bytes })
}

/// Checks topics as [`fit`] does, but creates none. Returns those that exist.
///
/// # Errors
///
/// As [`fit`].
pub(super) fn check_existing(
    client: &BaseConsumer<Membership>,
    config: &KafkaConfig,
    wanted: &[Topic],
) -> Result<Vec<Topic>, LogError> {
    let mut found = BTreeMap::new();
    for topic in wanted {
        if let Some(there) = find(client, config, *topic, false)? {
            found.insert(*topic, there);
        }
    }
    let there: Vec<Topic> = found.keys().copied().collect();
    let of_turns = Topic::OF_TURNS.into_iter().chain(Topic::MAY_BE_MISSING);
    found.retain(|topic, _| of_turns.clone().any(|of| of == *topic));
    same_partitions(config, &found)?;
    if !there.is_empty() {
        check(config, &settings(&admin(config)?, config, &there)?)?;
    }
    Ok(there)
}

/// Checks one topic that is followed or written on its own, and creates it if it is missing and the
/// configuration says so. Returns its number of partitions.
///
/// # Errors
///
/// As [`fit`].
pub(super) fn fit_alone(
    client: &BaseConsumer<Membership>,
    config: &KafkaConfig,
    topic: Topic,
) -> Result<i32, LogError> {
    let admin = admin(config)?;
    let found = match find(client, config, topic, false)? {
        Some(found) => Some(found),
        None => {
            create(&admin, config, &[topic], created_partitions(client, config, topic)?)?;
            find(client, config, topic, true)?
        }
    };
    check(config, &settings(&admin, config, &[topic])?)?;
    Ok(found.map_or(0, |found| found.partitions))
}

/// The number of partitions of a topic that is created on its own. The topic of knowledge has its
/// own number; any other gets as many as the topic of turns, if that exists.
fn created_partitions(
    client: &BaseConsumer<Membership>,
    config: &KafkaConfig,
    topic: Topic,
) -> Result<i32, LogError> {
    if topic == Topic::Knowledge {
        return Ok(config.create_knowledge_partitions);
    }
    let turns = find(client, config, Topic::Turns, false)?;
    Ok(turns.map_or(config.create_partitions, |turns| turns.partitions))
}

/// A further remedy if a topic is missing.
pub(super) fn without(topic: Topic) -> &'static str {
    match topic {
        Topic::Knowledge => ", or set `knowledge.live = false` to do without changes to it",
        Topic::Partials => ", or set `gateway.partials = false` to do without them",
        _ => "",
    }
}

/// Waits for the answer of an admin client. The client's own thread fetches it within the timeout
/// of the request, so no runtime is needed.
pub(super) fn wait_for<T>(answer: impl Future<Output = T>) -> T {
    let mut answer = pin!(answer);
    loop {
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

pub(super) fn admin(config: &KafkaConfig) -> Result<AdminClient<OutsideGroup>, LogError> {
    shared_settings(config)
        .create_with_context(OutsideGroup)
        .map_err(|source| failed("making the Kafka admin client from `log.kafka.client`", source))
}

pub(super) fn options() -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(REQUEST_TIMEOUT))
        .operation_timeout(Some(REQUEST_TIMEOUT))
}

/// A topic in the brokers' metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) partitions: i32,
    /// Replicas of the first partition.
    copies: usize,
}

/// Looks up a topic, and waits for one that was just created. `None` if it is missing and may be
/// created, or is not needed.
pub(super) fn find(
    client: &BaseConsumer<Membership>,
    config: &KafkaConfig,
    wanted: Topic,
    made: bool,
) -> Result<Option<Found>, LogError> {
    let name = config.topics.name(wanted);
    let doing = format!("asking {} for topic `{name}`", config.bootstrap_servers);
    let (begun, deadline) = (Instant::now(), Instant::now() + REQUEST_TIMEOUT);
    loop {
        let asked = client.fetch_metadata(Some(name), SLICE);
        let metadata = match asked {
            Ok(metadata) => metadata,
            Err(source) => {
                // The reason of a failed connection only comes through polling.
                if let Some((source, remedy)) = pending_error(client) {
                    return Err(refused(&doing, &source, remedy));
                }
                if let Some(said) = client.context().login_refused() {
                    return Err(login_refused(&doing, &said));
                }
                if Instant::now() >= deadline {
                    return Err(unanswered(config, client.context().failure(), source));
                }
                continue;
            }
        };
        let topic = metadata.topics().iter().find(|topic| topic.name() == name);
        let error = topic.and_then(|topic| topic.error()).map(Code::from);
        let why = match (topic, error) {
            (Some(topic), None) => {
                let partitions = i32::try_from(topic.partitions().len()).unwrap_or(i32::MAX);
                let copies = topic.partitions().first().map_or(0, |first| first.replicas().len());
                return Ok(Some(Found { partitions, copies }));
            }
            (_, Some(Code::LeaderNotAvailable)) if Instant::now() < deadline => {
                std::thread::sleep(RETRY);
                continue;
            }
            (_, None | Some(Code::UnknownTopicOrPartition))
                if made && Instant::now() < deadline =>
            {
                std::thread::sleep(RETRY);
                continue;
            }
            (_, None | Some(Code::UnknownTopicOrPartition))
                if (config.create_topics || Topic::MAY_BE_MISSING.contains(&wanted)) && !made =>
            {
                return Ok(None);
            }
            // A broker that has just started may not know its topics yet.
            (_, None | Some(Code::UnknownTopicOrPartition)) if begun.elapsed() < UNKNOWN => {
                std::thread::sleep(RETRY);
                continue;
            }
            (_, None) => "it is not there".to_owned(),
            (_, Some(code)) => match remedy_of(&KafkaError::MetadataFetch(code)) {
                Some(remedy) => {
                    return Err(refused(&doing, &KafkaError::MetadataFetch(code), remedy));
                }
                None => code.to_string(),
            },
        };
        let without = without(wanted);
        return Err(LogError::Refused(format!(
            "topic `{name}` at {}: {why}; create it (`deploy/kafka/topics` does), or set \
             `log.kafka.create_topics = true`, or name another in `log.kafka.topics`{without}",
            config.bootstrap_servers
        )));
    }
}

/// Returns a permanent connection error that was queued meanwhile, with its remedy. The consumer
/// has not subscribed yet, so nothing else can come.
fn pending_error(client: &BaseConsumer<Membership>) -> Option<(KafkaError, &'static str)> {
    // A poll without a wait would return at a log line of the client.
    let until = Instant::now() + RETRY;
    std::iter::from_fn(|| client.poll(until.saturating_duration_since(Instant::now())))
        .filter_map(Result::err)
        .find_map(|error| remedy_of(&error).map(|remedy| (error, remedy)))
}

fn create(
    admin: &AdminClient<OutsideGroup>,
    config: &KafkaConfig,
    missing: &[Topic],
    partitions: i32,
) -> Result<(), LogError> {
    let copies = match config.create_replication_factor {
        0 => -1,
        copies => copies,
    };
    let limits = missing.iter().map(|topic| created_limit(config, *topic).map(|it| it.to_string()));
    let limits: Vec<Option<String>> = limits.collect();
    let topics = missing.iter().zip(&limits).map(|(topic, limit)| {
        let name = config.topics.name(*topic);
        let policy = if topic.is_compacted() { "compact" } else { "delete" };
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(copies))
            .set("cleanup.policy", policy);
        match limit {
            Some(limit) => topic.set("max.message.bytes", limit),
            None => topic,
        }
    });
    let topics: Vec<NewTopic<'_>> = topics.collect();
    let doing = format!("creating topics at {}", config.bootstrap_servers);
    let made = wait_for(admin.create_topics(&topics, &options()));
    for topic in made.map_err(|source| failed(&doing, source))? {
        match topic {
            Ok(name) => tracing::info!(topic = name, partitions, "created"),
            // Another process of ours created it first.
            Err((_, Code::TopicAlreadyExists)) => {}
            Err((name, code)) => {
                let source = KafkaError::AdminOp(code);
                let remedy = remedy_of(&source).unwrap_or(
                    "check `log.kafka.create_partitions` and `log.kafka.create_replication_factor`, or \
                     create it with `deploy/kafka/topics`",
                );
                return Err(refused(&format!("creating topic `{name}`"), &source, remedy));
            }
        }
    }
    Ok(())
}

/// Checks that all topics have the same number of partitions, since the outcome of an input goes to
/// the input's partition number.
fn same_partitions(config: &KafkaConfig, found: &BTreeMap<Topic, Found>) -> Result<i32, LogError> {
    let turns = config.topics.name(Topic::Turns);
    let Some(expected) = found.get(&Topic::Turns).map(|turns| turns.partitions) else {
        return Ok(0);
    };
    match found.iter().find(|(_, found)| found.partitions != expected) {
        None => Ok(expected),
        Some((topic, found)) => Err(LogError::Refused(format!(
            "topic `{}` has {} partitions and `{turns}` has {expected}; all must have the same \
             number, since the outcome of an input goes to the partition of its input; recreate \
             them with `deploy/kafka/topics`",
            config.topics.name(*topic),
            found.partitions
        ))),
    }
}

fn warn_of_one_copy(
    config: &KafkaConfig,
    found: &BTreeMap<Topic, Found>,
    settings: &BTreeMap<Topic, Settings>,
) {
    for (topic, settings) in settings {
        let copies = found.get(topic).map_or(0, |found| found.copies);
        if copies >= 3 && settings.min_insync == Some(1) {
            tracing::warn!(
                topic = config.topics.name(*topic),
                copies,
                "a write counts as done with one copy (min.insync.replicas=1), and is lost with \
                 it; 2 is usual"
            );
        }
    }
}

/// Warns if partitions seem to have been added. The broker allows it, but keys then move, and a
/// conversation continues on another partition without its history. The sign: the highest
/// partitions hold records but no offset, and lower ones have one.
fn warn_of_added_partitions(
    client: &BaseConsumer<Membership>,
    config: &KafkaConfig,
    partitions: i32,
) {
    let turns = config.topics.name(Topic::Turns);
    let mut list = TopicPartitionList::new();
    list.add_partition_range(turns, 0, partitions - 1);
    // The offsets may be unstable or forbidden; the restoration reports that.
    let Ok(committed) = client.committed_offsets(list, SLICE) else { return };
    let committed = committed.elements();
    let known = committed.iter().filter(|element| matches!(element.offset(), Offset::Offset(_)));
    let Some(highest) = known.map(|element| element.partition()).max() else { return };
    let is_used = |partition: i32| {
        let marks = client.fetch_watermarks(turns, partition, SLICE);
        marks.is_ok_and(|(low, high)| high > low)
    };
    if let Some(first) = (highest + 1..partitions).find(|partition| is_used(*partition)) {
        tracing::warn!(
            topic = turns,
            group = config.group_id,
            partition = first,
            partitions,
            "the group has committed offsets of lower partitions, and none from this one on; if \
             partitions were added to a live topic, keys moved, and conversations go on without \
             their histories"
        );
    }
}
