//! Metrics of models on servers: queue, requests, faults and tokens.

use std::array;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// From a tenth of a second (a local server) to the longest time-outs.
const DURATION_BUCKETS_SECONDS: [f64; 13] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0];

/// Why an attempt gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteFault {
    /// No connection.
    Connection,
    /// No answer in time, or no byte for too long within an answer.
    Timeout,
    /// Status 429.
    Throttled,
    /// Another status from 300 to 499.
    Client,
    /// A status from 500 on.
    Server,
    /// An answer that broke off.
    Cut,
    /// An answer larger than its bound.
    TooLong,
    /// An answer without the requested content.
    Malformed,
    /// An answer that does not follow its schema.
    Unfit,
    /// Not attempted, since the circuit breaker is open.
    Open,
}

impl RemoteFault {
    /// All faults.
    pub const ALL: [Self; 10] = [
        Self::Connection,
        Self::Timeout,
        Self::Throttled,
        Self::Client,
        Self::Server,
        Self::Cut,
        Self::TooLong,
        Self::Malformed,
        Self::Unfit,
        Self::Open,
    ];

    /// The value of the metric's label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Timeout => "timeout",
            Self::Throttled => "throttled",
            Self::Client => "client",
            Self::Server => "server",
            Self::Cut => "cut",
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::Unfit => "unfit",
            Self::Open => "open",
        }
    }
}

/// The metrics of one model on a server. Clones are cheap and share the counters.
#[derive(Clone, Debug)]
pub struct RemoteMetrics {
    /// Queued requests.
    pub queued: Gauge,
    /// Active requests.
    pub in_flight: Gauge,
    /// Requests that a full queue handed back.
    pub refused: Counter,
    /// Requests cancelled or never begun, because their stage had stopped waiting.
    pub skipped: Counter,
    /// Duration of an attempt.
    pub seconds: Histogram,
    /// Attempts after the first.
    pub retries: Counter,
    /// Answers that did not follow their schema and were asked for again.
    pub repairs: Counter,
    /// 1 while the circuit breaker is open.
    pub breaker_open: Gauge,
    /// Tokens of prompts, including those in the server's cache.
    pub prompt_tokens: Counter,
    /// Tokens of prompts in the server's cache.
    pub cached_tokens: Counter,
    /// Tokens of answers.
    pub completion_tokens: Counter,
    faults: [Counter; RemoteFault::ALL.len()],
}

impl RemoteMetrics {
    /// Metrics without a registry.
    pub fn unread() -> Self {
        AllRemoteMetrics::register(&mut Registry::default()).of("")
    }

    /// The counter of a fault.
    pub fn fault(&self, fault: RemoteFault) -> &Counter {
        &self.faults[fault as usize]
    }
}

type ByRemoteModel = [(&'static str, String); 1];
type ByKind = [(&'static str, String); 2];

/// The metrics of all models on servers.
#[derive(Clone, Debug)]
pub(super) struct AllRemoteMetrics {
    gauges: [Family<ByRemoteModel, Gauge>; 3],
    counters: [Family<ByRemoteModel, Counter>; 4],
    seconds: Family<ByRemoteModel, Histogram, fn() -> Histogram>,
    faults: Family<ByKind, Counter>,
    tokens: Family<ByKind, Counter>,
}

impl AllRemoteMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let gauges: [Family<ByRemoteModel, Gauge>; 3] = array::from_fn(|_| Family::default());
        let names = [
            ("remote_queued_requests", "Requests that wait for a model on a server"),
            ("remote_in_flight_requests", "Requests that are being worked on"),
            ("remote_breaker_open", "1 while the server is left alone"),
        ];
        for ((name, help), gauge) in names.into_iter().zip(&gauges) {
            registry.register(name, help, gauge.clone());
        }
        let counters: [Family<ByRemoteModel, Counter>; 4] = array::from_fn(|_| Family::default());
        let names = [
            ("remote_refused_requests", "Requests that a full queue handed back"),
            ("remote_skipped_requests", "Requests nobody waited for any more"),
            ("remote_retries", "Attempts after the first"),
            ("remote_repairs", "Answers that were asked for again, to follow their schema"),
        ];
        for ((name, help), counter) in names.into_iter().zip(&counters) {
            registry.register(name, help, counter.clone());
        }
        let constructor: fn() -> Histogram = || Histogram::new(DURATION_BUCKETS_SECONDS);
        let seconds = Family::new_with_constructor(constructor);
        let help = "Time from sending a request to the end of its answer";
        registry.register_with_unit(
            "remote_attempt_duration",
            help,
            Unit::Seconds,
            seconds.clone(),
        );
        let [faults, tokens]: [Family<ByKind, Counter>; 2] = array::from_fn(|_| Family::default());
        registry.register("remote_errors", "Attempts that gave no answer", faults.clone());
        registry.register("remote_tokens", "Tokens that the server counted", tokens.clone());
        Self { gauges, counters, seconds, faults, tokens }
    }

    /// The metrics of the model with a name.
    pub(super) fn of(&self, model: &str) -> RemoteMetrics {
        let label = [("model", model.to_owned())];
        let by_kind = |family: &Family<ByKind, Counter>, kind: &str| {
            let labels = [("model", model.to_owned()), ("kind", kind.to_owned())];
            family.get_or_create_owned(&labels)
        };
        let [queued, in_flight, breaker_open] =
            self.gauges.each_ref().map(|family| family.get_or_create_owned(&label));
        let [refused, skipped, retries, repairs] =
            self.counters.each_ref().map(|family| family.get_or_create_owned(&label));
        let [prompt_tokens, cached_tokens, completion_tokens] =
            ["prompt", "cached", "completion"].map(|kind| by_kind(&self.tokens, kind));
        RemoteMetrics {
            queued,
            in_flight,
            refused,
            skipped,
            seconds: self.seconds.get_or_create_owned(&label),
            retries,
            repairs,
            breaker_open,
            prompt_tokens,
            cached_tokens,
            completion_tokens,
            faults: RemoteFault::ALL.map(|fault| by_kind(&self.faults, fault.name())),
        }
    }
}
