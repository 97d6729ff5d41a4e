//! Metrics of the stages. Workers update them once or twice per turn and stage, so every series is
//! looked up once, at the start. Failures of models also go to the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use turnstream_operators::stage::{Passage, StageObserver};
use turnstream_schemas::{Fault, FaultKind, Stage};

use super::seldom::Seldom;

/// The stages that turns pass one by one. Ingest counts inputs instead, and history counts the
/// turns for which a model prepares recall.
pub(super) fn counted() -> impl Iterator<Item = Stage> {
    Stage::ALL.into_iter().filter(|stage| stage.row().is_counted)
}

/// From a tenth of a millisecond for a rule to two minutes for a model.
const DURATION_BUCKETS_SECONDS: [f64; 19] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0, 120.0,
];

/// How often failures of one model and kind are logged.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// A label for the stage.
type ByStage = [(&'static str, &'static str); 1];
/// Labels for the stage and the kind of a fault.
type ByFault = [(&'static str, &'static str); 2];

pub(super) fn by_stage(stage: Stage) -> ByStage {
    [("stage", stage.name())]
}

pub(super) fn by_fault(stage: Stage, kind: FaultKind) -> ByFault {
    [("stage", stage.name()), ("kind", kind.name())]
}

/// The stages' metrics.
#[derive(Debug)]
pub(super) struct StageMetrics {
    /// In the order of [`counted`].
    stages: Vec<OneStage>,
    persona_sentences_passed_over: Counter,
    scopes: Gauge,
    /// Failures by model name and kind.
    failures: Mutex<Seldom<(String, FaultKind)>>,
}

#[derive(Debug)]
struct OneStage {
    stage: Stage,
    turns: Counter,
    in_progress: Gauge,
    /// In the order of [`FaultKind::ALL`].
    errors: Vec<Counter>,
    degradations: Counter,
    retries: Counter,
    seconds: Histogram,
}

impl StageMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let turns = Family::<ByStage, Counter>::default();
        let in_progress = Family::<ByStage, Gauge>::default();
        let errors = Family::<ByFault, Counter>::default();
        let degradations = Family::<ByStage, Counter>::default();
        let retries = Family::<ByStage, Counter>::default();
        let new = || Histogram::new(DURATION_BUCKETS_SECONDS);
        let seconds = Family::<ByStage, Histogram, _>::new_with_constructor(new as fn() -> _);
        let persona_sentences_passed_over = Counter::default();
        let scopes = Gauge::default();

        registry.register("stage_turns", "Turns that left the stage", turns.clone());
        registry.register("stage_in_progress", "Turns that are in the stage", in_progress.clone());
        registry.register("stage_errors", "Turns that the stage failed on", errors.clone());
        let help = "Turns that went on without the stage after it failed";
        registry.register("stage_degradations", help, degradations.clone());
        let help = "Times that the stage asked its model again for a turn";
        registry.register("stage_retries", help, retries.clone());
        let help = "Time that a turn was in the stage, waiting for a model included";
        registry.register_with_unit("stage_duration", help, Unit::Seconds, seconds.clone());
        let help = "Sentences of personas that were skipped because they exceed the bounds";
        let passed_over = persona_sentences_passed_over.clone();
        registry.register("persona_sentences_passed_over", help, passed_over);
        let help = "Scopes whose history is in memory";
        registry.register("scopes_open", help, scopes.clone());

        let one = |stage| OneStage {
            stage,
            turns: turns.get_or_create_owned(&by_stage(stage)),
            in_progress: in_progress.get_or_create_owned(&by_stage(stage)),
            errors: FaultKind::ALL
                .map(|kind| errors.get_or_create_owned(&by_fault(stage, kind)))
                .into(),
            degradations: degradations.get_or_create_owned(&by_stage(stage)),
            retries: retries.get_or_create_owned(&by_stage(stage)),
            seconds: seconds.get_or_create_owned(&by_stage(stage)),
        };
        let failures = Mutex::new(Seldom::new(TOLD_EVERY));
        Self {
            stages: counted().map(one).collect(),
            persona_sentences_passed_over,
            scopes,
            failures,
        }
    }

    /// `None` for stages without these metrics.
    fn of(&self, stage: Stage) -> Option<&OneStage> {
        self.stages.iter().find(|one| one.stage == stage)
    }
}

impl StageObserver for StageMetrics {
    fn entered(&self, stage: Stage) {
        if let Some(of) = self.of(stage) {
            of.in_progress.inc();
        }
    }

    fn left(&self, stage: Stage, passage: Passage) {
        let Some(of) = self.of(stage) else { return };
        of.in_progress.dec();
        of.turns.inc();
        if let Some(micros) = passage.micros {
            of.seconds.observe(micros as f64 / 1e6);
        }
        if let Some(kind) = passage.fault {
            of.errors[kind as usize].inc();
        }
        if passage.degraded {
            of.degradations.inc();
        }
    }

    fn asked_again(&self, stage: Stage) {
        if let Some(of) = self.of(stage) {
            of.retries.inc();
        }
    }

    fn model_failed(&self, model: &str, fault: &Fault) {
        let of = (model.to_owned(), fault.kind);
        let mut seldom = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = seldom.happens(of, Instant::now());
        drop(seldom);
        let Some(failures) = failures else { return };
        let (stage, kind, reason) = (fault.stage.name(), fault.kind.name(), &*fault.reason);
        tracing::warn!(
            model,
            kind,
            failures,
            %stage,
            %reason,
            "a model gave no usable answer; more of this kind are summed up in a minute"
        );
    }

    fn persona_sentences_passed_over(&self, sentences: u64) {
        self.persona_sentences_passed_over.inc_by(sentences);
    }

    fn scopes_changed(&self, by: i64) {
        self.scopes.inc_by(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passage_is_counted_by_stage_and_kind() {
        let mut registry = Registry::default();
        let metrics = StageMetrics::register(&mut registry);
        let well = Passage { micros: Some(1_500), fault: None, degraded: false };
        let degraded = Passage { micros: None, fault: Some(FaultKind::Timeout), degraded: true };
        let dead = Passage { micros: None, fault: Some(FaultKind::Panic), degraded: false };
        for (stage, passage) in
            [(Stage::Gate, well), (Stage::Generation, degraded), (Stage::Generation, dead)]
        {
            metrics.entered(stage);
            metrics.left(stage, passage);
        }
        metrics.entered(Stage::Generation);
        metrics.asked_again(Stage::Generation);
        metrics.persona_sentences_passed_over(2);
        metrics.scopes_changed(3);
        metrics.scopes_changed(-1);

        let gate = metrics.of(Stage::Gate).unwrap();
        assert_eq!((gate.turns.get(), gate.in_progress.get(), gate.retries.get()), (1, 0, 0));
        let generation = metrics.of(Stage::Generation).unwrap();
        assert_eq!((generation.turns.get(), generation.in_progress.get()), (2, 1));
        let errors: Vec<u64> = generation.errors.iter().map(Counter::get).collect();
        assert_eq!(errors, [0, 0, 1, 1, 0], "invalid, error, timeout, panic, unfit");
        assert_eq!((generation.degradations.get(), generation.retries.get()), (1, 1));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "stage_duration_seconds_sum{stage=\"gate\"} 0.0015",
            "stage_duration_seconds_count{stage=\"gate\"} 1",
            "stage_duration_seconds_bucket{le=\"0.001\",stage=\"gate\"} 0",
            "stage_duration_seconds_bucket{le=\"0.0025\",stage=\"gate\"} 1",
            "stage_duration_seconds_count{stage=\"generation\"} 0",
            "persona_sentences_passed_over_total 2",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} in {text}");
        }
        assert_eq!(metrics.scopes.get(), 2);
    }
}
