//! Reads topics independently of the engine: one consumer per topic, outside any group, which reads
//! all along.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::service::{PARTITIONS, Service};
use super::turns::Answered;
use crate::kafka::hands::ConversationsTopic;
use crate::kafka::histories::Changelog;
use crate::kafka::kcat::Read;
use crate::kafka::outcomes::{Ended, OUTCOMES, Outcome, Place, TRACES, complete};

/// How long the last records may take to arrive.
const PATIENCE: Duration = Duration::from_secs(60);

/// The records that a reader sees.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Isolation {
    Committed,
    Uncommitted,
}

/// Reads a topic from its beginning and, once `stop` is set, to the end that it has then.
pub(crate) fn read(
    (bootstrap, topic, isolation): (&str, &str, Isolation),
    stop: &AtomicBool,
    mut take: impl FnMut(Read),
) {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        // The client requires a group id; it joins no group and commits nothing.
        .set("group.id", "reader")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set(
            "isolation.level",
            match isolation {
                Isolation::Committed => "read_committed",
                Isolation::Uncommitted => "read_uncommitted",
            },
        )
        .create()
        .expect("a consumer");
    let mut next: BTreeMap<i32, i64> = (0..PARTITIONS).map(|partition| (partition, 0)).collect();
    let assign = |next: &BTreeMap<i32, i64>| {
        let mut list = TopicPartitionList::new();
        for (partition, offset) in next {
            let added = list.add_partition_offset(topic, *partition, Offset::Offset(*offset));
            added.expect("a partition");
        }
        consumer.assign(&list).expect("assigned");
    };
    assign(&next);
    // Ends that were reported before `stop` was set are useless; a new assignment reports them
    // anew.
    let (mut last, mut since) = (None::<BTreeSet<i32>>, Instant::now());
    while last.as_ref().is_none_or(|ends| ends.len() < next.len()) {
        if last.is_none() && stop.load(Ordering::Acquire) {
            assign(&next);
            (last, since) = (Some(BTreeSet::new()), Instant::now());
        }
        match consumer.poll(Duration::from_millis(20)) {
            Some(Ok(message)) => {
                let at = next.get_mut(&message.partition()).expect("one of ours");
                assert!(message.offset() >= *at, "the reader went back in {topic}");
                *at = message.offset() + 1;
                since = Instant::now();
                take(copy(&message));
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                last.iter_mut().for_each(|ends| {
                    ends.insert(partition);
                });
            }
            // The client recovers from what it can; otherwise the end never comes.
            Some(Err(_)) | None => {}
        }
        assert!(last.is_none() || since.elapsed() < PATIENCE, "{topic} has no end: {next:?}");
    }
}

fn copy(message: &BorrowedMessage<'_>) -> Read {
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    let text = |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).into();
    Read {
        partition: message.partition(),
        offset: message.offset(),
        time_ms: message.timestamp().to_millis().expect("a time"),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers.map(|header| (header.key.to_owned(), text(header.value))).collect(),
    }
}

/// The inputs that have an outcome, as they come.
#[derive(Clone, Default)]
pub(crate) struct Progress {
    places: Arc<Mutex<BTreeSet<Place>>>,
    count: Arc<AtomicUsize>,
}

impl Progress {
    fn note(&self, place: Place) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.insert(place);
        self.count.store(places.len(), Ordering::Relaxed);
    }

    /// Returns how many there are; each counts once.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the counter itself.
    pub(crate) fn counter(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.count)
    }
}

/// Readers of committed records, one for each topic of a service.
pub(crate) struct Readers {
    stop: Arc<AtomicBool>,
    inputs: JoinHandle<Vec<Read>>,
    outcomes: Vec<(&'static str, JoinHandle<Vec<Ended>>)>,
    traces: JoinHandle<Vec<Ended>>,
    history: JoinHandle<Changelog>,
    conversations: JoinHandle<ConversationsTopic>,
}

/// The records that they read.
pub(crate) struct Found {
    pub(crate) inputs: Vec<Read>,
    /// By topic, in the order within its partitions.
    pub(crate) outcomes: Vec<(&'static str, Vec<Ended>)>,
    pub(crate) history: Changelog,
    pub(crate) conversations: ConversationsTopic,
}

impl Readers {
    /// Starts reading.
    pub(crate) fn start(
        service: &'static Service,
        bootstrap: &str,
        progress: &Progress,
        answered: &Answered,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let bootstrap: Arc<str> = bootstrap.into();
        let outcomes = OUTCOMES.map(|plain| {
            let (progress, answered) = (progress.clone(), answered.clone());
            let take = move |ended: &mut Vec<Ended>, read| {
                let outcome = slim(Ended::of(plain, read));
                if let Outcome::Response(response) = &outcome.outcome {
                    let user = response.user_id.as_ref().filter(|_| service.by_user);
                    let scope =
                        user.map_or(response.conversation_id.as_str(), |user| user.as_str());
                    answered.note(scope, response.response_id.as_str(), &response.text);
                }
                progress.note(outcome.place);
                ended.push(outcome);
            };
            (plain, follow((&bootstrap, service.topic(plain)), &stop, Vec::new(), take))
        });
        let inputs = (&bootstrap, service.topic("turns"));
        let inputs = follow(inputs, &stop, Vec::new(), |inputs, read| inputs.push(read));
        let traces = (&bootstrap, service.topic(TRACES));
        let traces = follow(traces, &stop, Vec::new(), |traces, read| {
            traces.push(slim(Ended::of(TRACES, read)));
        });
        let history = (&bootstrap, service.topic("history"));
        let history = follow(history, &stop, Changelog::default(), Changelog::add);
        let conversations = (&bootstrap, service.topic("conversations"));
        let conversations =
            follow(conversations, &stop, ConversationsTopic::default(), |all, read| all.add(&read));
        Self { stop, inputs, outcomes: outcomes.into(), traces, history, conversations }
    }

    /// Panics if one of them found something impossible.
    pub(crate) fn assert_reading(&self) {
        let of_outcomes = self.outcomes.iter().any(|(_, reader)| reader.is_finished());
        let ended = of_outcomes
            || self.traces.is_finished()
            || self.inputs.is_finished()
            || self.history.is_finished()
            || self.conversations.is_finished();
        assert!(!ended, "a reader ended; above is why");
    }

    /// Reads on to the end. No process may write any more.
    pub(crate) fn finish(self) -> Found {
        self.stop.store(true, Ordering::Release);
        let outcomes = self.outcomes.into_iter();
        let mut outcomes: Vec<_> =
            outcomes.map(|(topic, reader)| (topic, joined(reader))).collect();
        complete(&mut outcomes[0].1, joined(self.traces));
        Found {
            inputs: joined(self.inputs),
            outcomes,
            history: joined(self.history),
            conversations: joined(self.conversations),
        }
    }
}

fn joined<T>(reader: JoinHandle<T>) -> T {
    reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn follow<T: Send + 'static>(
    (bootstrap, topic): (&Arc<str>, String),
    stop: &Arc<AtomicBool>,
    mut state: T,
    take: impl Fn(&mut T, Read) + Send + 'static,
) -> JoinHandle<T> {
    let (bootstrap, stop) = (Arc::clone(bootstrap), Arc::clone(stop));
    std::thread::spawn(move || {
        let from = (&*bootstrap, topic.as_str(), Isolation::Committed);
        read(from, &stop, |read| take(&mut state, read));
        state
    })
}

/// Drops what no check needs; there may be hundreds of thousands of outcomes.
fn slim(mut ended: Ended) -> Ended {
    if let Outcome::Response(response) = &mut ended.outcome {
        response.evidence.retain(|evidence| evidence.selected);
        for evidence in &mut response.evidence {
            evidence.text = String::new();
            evidence.fact = None;
        }
        response.demand = Default::default();
        response.plan = Default::default();
        response.gate = Default::default();
        response.timings_us.clear();
    }
    if !matches!(ended.outcome, Outcome::DeadLetter) {
        ended.read.value = None;
    }
    ended
}
