//! Metrics of the models in this process: queue, batches, tokens and durations.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// From a fraction of a millisecond (a short text) to ten seconds (a stalled model).
const DURATION_BUCKETS_SECONDS: [f64; 16] = [
    0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
];
/// Texts in a batch.
const BATCH_BUCKETS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// The task of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Embeddings of texts.
    Embed,
    /// Scores of pairs of texts.
    Score,
    /// Plans, relevance and responses of the unified model.
    Unify,
    /// Which sentences answer, by the reader.
    Read,
    /// Whether turns need knowledge, by a language model with an adapter.
    Judge,
}

impl Task {
    /// The value of the metric's label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::Score => "score",
            Self::Unify => "unify",
            Self::Read => "read",
            Self::Judge => "judge",
        }
    }
}

/// The metrics of the model of one task. Clones are cheap and share the counters.
#[derive(Clone, Debug)]
pub struct ModelMetrics {
    /// Queued requests.
    pub queued: Gauge,
    /// Requests that a full queue handed back.
    pub refused: Counter,
    /// Requests skipped because their stage had stopped waiting.
    pub skipped: Counter,
    /// Texts or pairs in a batch.
    pub batch: Histogram,
    /// Duration of a batch.
    pub seconds: Histogram,
    /// Tokens computed.
    pub tokens: Counter,
    /// Texts or pairs longer than the model takes.
    pub cut: Counter,
    /// Batches that the model failed on.
    pub errors: Counter,
    /// Batches that the model panicked on.
    pub panics: Counter,
    /// Texts answered from memory.
    pub remembered: Counter,
}

impl ModelMetrics {
    /// Metrics without a registry.
    pub fn unread() -> Self {
        Self {
            queued: Gauge::default(),
            refused: Counter::default(),
            skipped: Counter::default(),
            batch: batch(),
            seconds: seconds(),
            tokens: Counter::default(),
            cut: Counter::default(),
            errors: Counter::default(),
            panics: Counter::default(),
            remembered: Counter::default(),
        }
    }
}

fn batch() -> Histogram {
    Histogram::new(BATCH_BUCKETS)
}

fn seconds() -> Histogram {
    Histogram::new(DURATION_BUCKETS_SECONDS)
}

/// The metrics of all tasks.
#[derive(Clone, Debug)]
pub(super) struct ModelsMetrics {
    embed: ModelMetrics,
    score: ModelMetrics,
    unify: ModelMetrics,
    read: ModelMetrics,
    judge: ModelMetrics,
}

type ByTask = [(&'static str, &'static str); 1];
type ByTaskAndFault = [(&'static str, &'static str); 2];

impl ModelsMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let queued = Family::<ByTask, Gauge>::default();
        let [refused, skipped, tokens, cut, remembered] =
            std::array::from_fn(|_| Family::<ByTask, Counter>::default());
        let errors = Family::<ByTaskAndFault, Counter>::default();
        let batch = Family::<ByTask, Histogram, _>::new_with_constructor(batch as fn() -> _);
        let seconds = Family::<ByTask, Histogram, _>::new_with_constructor(seconds as fn() -> _);
        registry.register(
            "model_queued_requests",
            "Requests that wait for the model",
            queued.clone(),
        );
        for (name, help, counter) in [
            ("model_refused_requests", "Requests that a full queue handed back", &refused),
            ("model_skipped_requests", "Requests nobody waited for any more", &skipped),
            ("model_tokens", "Tokens that the model worked on", &tokens),
            ("model_cut_texts", "Texts that were longer than the model takes, and cut", &cut),
            ("model_remembered_texts", "Texts whose answer was remembered", &remembered),
        ] {
            registry.register(name, help, counter.clone());
        }
        registry.register("model_errors", "Batches that the model failed on", errors.clone());
        registry.register("model_batch_texts", "Texts in a batch", batch.clone());
        let help = "Time that a thread worked on a batch";
        registry.register_with_unit("model_batch_duration", help, Unit::Seconds, seconds.clone());
        let of = |task: Task| {
            let label = [("task", task.name())];
            let fault = |kind| errors.get_or_create_owned(&[("task", task.name()), ("kind", kind)]);
            ModelMetrics {
                queued: queued.get_or_create_owned(&label),
                refused: refused.get_or_create_owned(&label),
                skipped: skipped.get_or_create_owned(&label),
                batch: batch.get_or_create_owned(&label),
                seconds: seconds.get_or_create_owned(&label),
                tokens: tokens.get_or_create_owned(&label),
                cut: cut.get_or_create_owned(&label),
                errors: fault("error"),
                panics: fault("panic"),
                remembered: remembered.get_or_create_owned(&label),
            }
        };
        let [embed, score, unify, read, judge] =
            [Task::Embed, Task::Score, Task::Unify, Task::Read, Task::Judge].map(of);
        Self { embed, score, unify, read, judge }
    }

    pub(super) fn of(&self, task: Task) -> &ModelMetrics {
        match task {
            Task::Embed => &self.embed,
            Task::Score => &self.score,
            Task::Unify => &self.unify,
            Task::Read => &self.read,
            Task::Judge => &self.judge,
        }
    }
}
