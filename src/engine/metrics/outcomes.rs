//! Metrics of inputs, outcomes and the transactions that commit them.
//!
//! The committer updates them where it updates its [`Tally`], so that both agree.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use turnstream_schemas::{Action, FaultKind, HandOffReason, HandoverReason, RecordedReason, Stage};

use super::stages::by_fault;
use crate::tally::Tally;

/// One label.
type OneLabel = [(&'static str, &'static str); 1];

const COMMIT_BUCKETS_SECONDS: [f64; 14] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// From half a minute to a day.
const WAIT_BUCKETS_SECONDS: [f64; 9] =
    [30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 14_400.0, 86_400.0];

const OUTCOME_BUCKETS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0];

/// The reasons of failed commits, as the label has them.
pub(super) const COMMIT_ERRORS: [&str; 3] = ["stale", "aborted", "fatal"];

/// Inputs and outcomes. Cheap to clone: clones share the counters. Not exposed until registered.
#[derive(Clone, Debug)]
pub struct OutcomeMetrics {
    /// Inputs that were polled to be served.
    pub inputs: Counter,
    /// Inputs given back with their partition before they had an outcome.
    pub given_back: Counter,
    /// Inputs that were read again although they had finished before.
    pub skipped: Counter,
    /// Answers that came after their turn had ended in another way.
    pub late_answers: Counter,
    /// Outcomes of an older assignment that were dropped.
    pub stale: Counter,
    responses: Counter,
    recorded: Family<OneLabel, Counter>,
    dead_letters: Family<[(&'static str, &'static str); 2], Counter>,
    gate: Family<OneLabel, Counter>,
    actions: Family<OneLabel, Counter>,
    hand_offs: Family<OneLabel, Counter>,
    handovers: Family<OneLabel, Counter>,
    waits: Histogram,
    /// Outcomes in one transaction.
    per_transaction: Histogram,
}

impl Default for OutcomeMetrics {
    fn default() -> Self {
        Self {
            inputs: Counter::default(),
            given_back: Counter::default(),
            skipped: Counter::default(),
            late_answers: Counter::default(),
            stale: Counter::default(),
            responses: Counter::default(),
            recorded: Family::default(),
            dead_letters: Family::default(),
            gate: Family::default(),
            actions: Family::default(),
            hand_offs: Family::default(),
            handovers: Family::default(),
            waits: Histogram::new(WAIT_BUCKETS_SECONDS),
            per_transaction: Histogram::new(OUTCOME_BUCKETS),
        }
    }
}

impl OutcomeMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let it = Self::default();
        // A rate needs a first value: every series is there from the start.
        for reason in RecordedReason::NAMES {
            it.recorded.get_or_create_owned(&[("reason", reason)]);
        }
        for decision in ["retrieve", "skip"] {
            it.gate.get_or_create_owned(&[("decision", decision)]);
        }
        for action in Action::ALL {
            it.actions.get_or_create_owned(&[("action", action.name())]);
        }
        for reason in HandOffReason::ALL {
            it.hand_offs.get_or_create_owned(&[("reason", reason.name())]);
        }
        for reason in HandoverReason::ALL {
            it.handovers.get_or_create_owned(&[("reason", reason.name())]);
        }
        for stage in Stage::ALL {
            for kind in FaultKind::ALL {
                it.dead_letters.get_or_create_owned(&by_fault(stage, kind));
            }
        }
        let mut add = |name: &str, help: &str, counter: &Counter| {
            registry.register(name, help, counter.clone());
        };
        add("inputs", "Inputs that were polled to be served", &it.inputs);
        let help = "Inputs given back with their partition before they had an outcome";
        add("inputs_given_back", help, &it.given_back);
        let help = "Inputs that were read again and skipped, since they had ended before";
        add("inputs_skipped", help, &it.skipped);
        add("responses", "Inputs that ended as a response", &it.responses);
        let help = "Answers dropped because their turn had ended otherwise";
        add("late_answers", help, &it.late_answers);
        let help = "Outcomes dropped because they were made under an older assignment";
        add("stale_outcomes", help, &it.stale);
        let help = "Inputs that ended as a recorded turn";
        registry.register("recorded", help, it.recorded.clone());
        let help = "Inputs that ended as a dead letter";
        registry.register("dead_letters", help, it.dead_letters.clone());
        let help = "What the gate decided for turns that ended as a response";
        registry.register("gate_decisions", help, it.gate.clone());
        let help = "What responses do";
        registry.register("response_actions", help, it.actions.clone());
        let help = "Responses that hand the conversation over to a person, by the reason";
        registry.register("hand_offs", help, it.hand_offs.clone());
        let help = "Conversations that changed hands, by the reason";
        registry.register("handovers", help, it.handovers.clone());
        let help = "Event time that users waited for an agent, until one came or nobody did";
        registry.register_with_unit("handover_wait", help, Unit::Seconds, it.waits.clone());
        let help = "Outcomes in a transaction that was committed";
        registry.register("commit_outcomes", help, it.per_transaction.clone());
        it
    }

    /// Counts outcomes that were committed in one transaction.
    pub fn committed<'a>(&self, tallies: impl Iterator<Item = &'a Tally>) {
        let mut tally = Tally::default();
        tallies.for_each(|of| tally.add(of));
        let outcomes = tally.responses + tally.recorded + tally.dead_letters;
        if outcomes == 0 {
            return;
        }
        self.per_transaction.observe(outcomes as f64);
        self.responses.inc_by(tally.responses);
        for (decision, count) in [("retrieve", tally.gate.retrieve), ("skip", tally.gate.skip)] {
            self.gate.get_or_create_owned(&[("decision", decision)]).inc_by(count);
        }
        for (action, count) in &tally.actions {
            self.actions.get_or_create_owned(&[("action", *action)]).inc_by(*count);
        }
        for (reason, count) in &tally.hand_offs {
            self.hand_offs.get_or_create_owned(&[("reason", reason.name())]).inc_by(*count);
        }
        for (reason, count) in &tally.handovers {
            self.handovers.get_or_create_owned(&[("reason", reason.name())]).inc_by(*count);
        }
        tally.waits_ms.iter().for_each(|ms| self.waits.observe(*ms as f64 / 1_000.0));
        for (reason, count) in &tally.recorded_by_reason {
            self.recorded.get_or_create_owned(&[("reason", *reason)]).inc_by(*count);
        }
        for ((stage, kind), count) in &tally.dead_letters_by_fault {
            self.dead_letters.get_or_create_owned(&by_fault(*stage, *kind)).inc_by(*count);
        }
    }
}

/// Transactions. Cheap to clone: clones share the counters.
#[derive(Clone, Debug)]
pub(super) struct CommitMetrics {
    pub(super) seconds: Histogram,
    errors: Family<OneLabel, Counter>,
}

impl CommitMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let it =
            Self { seconds: Histogram::new(COMMIT_BUCKETS_SECONDS), errors: Family::default() };
        for reason in COMMIT_ERRORS {
            it.errors.get_or_create_owned(&[("reason", reason)]);
        }
        let help = "Time that a transaction took that was committed";
        registry.register_with_unit("commit_duration", help, Unit::Seconds, it.seconds.clone());
        let help = "Transactions that were not committed";
        registry.register("commit_errors", help, it.errors.clone());
        it
    }

    /// Counts a transaction that was not committed; `reason` is one of [`COMMIT_ERRORS`].
    pub(super) fn failed(&self, reason: &'static str) {
        self.errors.get_or_create_owned(&[("reason", reason)]).inc();
    }
}
