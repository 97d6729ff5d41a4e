//! Sends turns: a thread with a producer of its own keeps a backlog in front of the engine,
//! whichever processes are up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use super::service::Service;
use super::turns::{TRACEPARENT, TurnScript, Written};
use crate::kafka::kcat::Read;
use crate::kafka::outcomes::Place;

/// Inputs that wait for an outcome: as many as the engine takes in at once.
const BACKLOG: usize = 1_200;
/// Inputs sent in a row.
const CHUNK: usize = 40;
/// How long the broker may take to acknowledge everything.
const FLUSH: Duration = Duration::from_secs(60);

/// The sent records, as a reader must find them, each with the reason why it cannot be served, if
/// any.
pub(crate) type SentChange = BTreeMap<Place, (Read, Option<&'static str>)>;

/// Counts records that the broker refused.
#[derive(Clone, Default)]
struct Refused(Arc<AtomicUsize>);

impl ClientContext for Refused {}

impl ProducerContext for Refused {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends turns. It is the only sender, and sends in order and each once, so that it knows the
/// offset of each.
pub(crate) struct Sender {
    service: &'static Service,
    script: TurnScript,
    producer: BaseProducer<Refused>,
    refused: Refused,
    sent: SentChange,
    next: BTreeMap<i32, i64>,
}

impl Sender {
    pub(crate) fn new(service: &'static Service, script: TurnScript, bootstrap: &str) -> Self {
        let refused = Refused::default();
        let producer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("enable.idempotence", "true")
            .set("linger.ms", "2")
            .create_with_context(refused.clone())
            .expect("a producer");
        let (sent, next) = (SentChange::new(), BTreeMap::new());
        Self { service, script, producer, refused, sent, next }
    }

    fn send(&mut self, written: Written, time_ms: i64) {
        let Written { partition, key, value, traced, unfit } = written;
        let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(self.service.turns)
            .partition(partition)
            .key(key.as_slice())
            .timestamp(time_ms);
        record.payload = value.as_deref();
        let headers = if traced { vec![("traceparent", TRACEPARENT)] } else { Vec::new() };
        if traced {
            let all = OwnedHeaders::new();
            record.headers =
                Some(headers.iter().fold(all, |all, (key, value)| {
                    all.insert(Header { key, value: Some(*value) })
                }));
        }
        while let Err((error, back)) = self.producer.send(record) {
            assert_eq!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::QueueFull), "{error}");
            record = back;
            self.producer.poll(Duration::from_millis(5));
        }
        let next = self.next.entry(partition).or_default();
        let offset = std::mem::replace(next, *next + 1);
        let headers =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let read = Read { partition, offset, time_ms, key: Some(key), value, headers };
        self.sent.insert((partition, offset), (read, unfit));
    }

    /// Sends a turn on each partition, and returns their places.
    pub(crate) fn send_last_words(&mut self) -> Vec<Place> {
        let words = self.script.last_words();
        let send = |[release, written]: [Written; 2]| {
            self.send(release, now_ms());
            let place = (written.partition, self.next.get(&written.partition).copied());
            self.send(written, now_ms());
            (place.0, place.1.unwrap_or_default())
        };
        let places = words.into_iter().map(send).collect();
        self.flush();
        places
    }

    fn flush(&self) {
        let since = Instant::now();
        while self.producer.flush(Duration::from_millis(100)).is_err() {
            assert!(since.elapsed() < FLUSH, "the broker does not take the inputs");
        }
        assert_eq!(self.refused.0.load(Ordering::Relaxed), 0, "inputs that the broker refused");
    }

    /// Returns the number of sent records.
    pub(crate) fn count(&self) -> usize {
        self.sent.len()
    }

    /// Returns the sent records.
    pub(crate) fn sent(self) -> SentChange {
        self.sent
    }
}

/// A sender at work.
pub(crate) struct Feed {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Sender>,
}

impl Feed {
    /// Sends whenever fewer than [`BACKLOG`] inputs wait; `ended` counts those with an outcome.
    pub(crate) fn start(mut sender: Sender, ended: Arc<AtomicUsize>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if sender.count() >= ended.load(Ordering::Relaxed) + BACKLOG {
                    sender.producer.poll(Duration::from_millis(5));
                    continue;
                }
                let now = now_ms();
                for _ in 0..CHUNK {
                    let written = sender.script.next(now);
                    sender.send(written, now);
                }
                sender.producer.poll(Duration::ZERO);
            }
            sender.flush();
            sender
        });
        Self { stop, thread }
    }

    /// Stops sending, and returns the sender.
    pub(crate) fn stop(self) -> Sender {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_millis()).expect("within range")
}
