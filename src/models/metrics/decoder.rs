//! Metrics of the language models in this process.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// From a fraction of a millisecond (a tiny model) to a minute (a stalled model).
const DURATION_BUCKETS_SECONDS: [f64; 15] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// The metrics of one language model. Clones are cheap and share the counters.
#[derive(Clone, Debug)]
pub struct DecoderMetrics {
    /// Queued requests.
    pub queued: Gauge,
    /// Active requests.
    pub active: Gauge,
    /// Bytes of key-value caches kept for later prompts with the same beginning.
    pub kept: Gauge,
    /// Requests that a full queue handed back.
    pub refused: Counter,
    /// Requests dropped because their stage had stopped waiting.
    pub skipped: Counter,
    /// Tokens of prompts.
    pub prompt_tokens: Counter,
    /// Tokens of prompts that the kept caches covered.
    pub kept_tokens: Counter,
    /// Tokens of answers.
    pub answer_tokens: Counter,
    /// Duration of a step: one token or part of a prompt for each sequence.
    pub step: Histogram,
    /// Requests that were answered with an error.
    pub errors: Counter,
    /// Requests that the model panicked on.
    pub panics: Counter,
}

impl DecoderMetrics {
    /// Metrics without a registry.
    pub fn unread() -> Self {
        Self {
            queued: Gauge::default(),
            active: Gauge::default(),
            kept: Gauge::default(),
            refused: Counter::default(),
            skipped: Counter::default(),
            prompt_tokens: Counter::default(),
            kept_tokens: Counter::default(),
            answer_tokens: Counter::default(),
            step: seconds(),
            errors: Counter::default(),
            panics: Counter::default(),
        }
    }
}

fn seconds() -> Histogram {
    Histogram::new(DURATION_BUCKETS_SECONDS)
}

type ByModel = [(&'static str, String); 1];
type ByModelAndFault = [(&'static str, String); 2];

/// The metrics of all language models in this process, by name.
#[derive(Clone, Debug)]
pub(super) struct DecodersMetrics {
    queued: Family<ByModel, Gauge>,
    active: Family<ByModel, Gauge>,
    kept: Family<ByModel, Gauge>,
    refused: Family<ByModel, Counter>,
    skipped: Family<ByModel, Counter>,
    prompt_tokens: Family<ByModel, Counter>,
    kept_tokens: Family<ByModel, Counter>,
    answer_tokens: Family<ByModel, Counter>,
    step: Family<ByModel, Histogram, fn() -> Histogram>,
    errors: Family<ByModelAndFault, Counter>,
}

impl DecodersMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let all = Self {
            queued: Family::default(),
            active: Family::default(),
            kept: Family::default(),
            refused: Family::default(),
            skipped: Family::default(),
            prompt_tokens: Family::default(),
            kept_tokens: Family::default(),
            answer_tokens: Family::default(),
            step: Family::new_with_constructor(seconds),
            errors: Family::default(),
        };
        for (name, help, gauge) in [
            ("decoder_queued_requests", "Requests that wait for the model", &all.queued),
            ("decoder_active_requests", "Requests that the model works on", &all.active),
            ("decoder_kept_bytes", "Keys and values kept for prompts that begin alike", &all.kept),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            ("decoder_refused_requests", "Requests that a full queue handed back", &all.refused),
            ("decoder_skipped_requests", "Requests nobody waited for any more", &all.skipped),
            ("decoder_prompt_tokens", "Tokens of prompts", &all.prompt_tokens),
            ("decoder_kept_tokens", "Tokens of prompts that were kept", &all.kept_tokens),
            ("decoder_answer_tokens", "Tokens of answers", &all.answer_tokens),
        ] {
            registry.register(name, help, counter.clone());
        }
        registry.register(
            "decoder_errors",
            "Requests that the model failed on",
            all.errors.clone(),
        );
        let help = "Time that a step of all sequences took";
        registry.register_with_unit("decoder_step", help, Unit::Seconds, all.step.clone());
        all
    }

    /// The metrics of one model.
    pub(super) fn of(&self, model: &str) -> DecoderMetrics {
        let label = [("model", model.to_owned())];
        let fault = |kind: &str| {
            let label = [("model", model.to_owned()), ("kind", kind.to_owned())];
            self.errors.get_or_create_owned(&label)
        };
        DecoderMetrics {
            queued: self.queued.get_or_create_owned(&label),
            active: self.active.get_or_create_owned(&label),
            kept: self.kept.get_or_create_owned(&label),
            refused: self.refused.get_or_create_owned(&label),
            skipped: self.skipped.get_or_create_owned(&label),
            prompt_tokens: self.prompt_tokens.get_or_create_owned(&label),
            kept_tokens: self.kept_tokens.get_or_create_owned(&label),
            answer_tokens: self.answer_tokens.get_or_create_owned(&label),
            step: self.step.get_or_create_owned(&label),
            errors: fault("error"),
            panics: fault("panic"),
        }
    }
}
