//! Counts of inputs and outcomes: the conservation law in numbers.

use std::collections::BTreeMap;

use serde::Serialize;
use turnstream_schemas::{
    ConversationRecord, EvidenceSet, FaultKind, HandOffReason, HandoverReason, Outcome, Response,
    Stage,
};

/// Counts of outcomes. `inputs` counts at the poll, the other fields at the commit. Once everything
/// is drained, `inputs = responses + recorded + dead_letters`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Polled inputs, without those skipped as finished.
    pub inputs: u64,
    /// Inputs that were answered.
    pub responses: u64,
    /// Inputs that were recorded.
    pub recorded: u64,
    /// Inputs that could not be served.
    pub dead_letters: u64,
    /// Recorded inputs by reason.
    pub recorded_by_reason: BTreeMap<&'static str, u64>,
    /// Dead letters by stage.
    pub dead_letters_by_stage: BTreeMap<Stage, u64>,
    /// Dead letters by stage and kind of fault, for metrics.
    #[serde(skip)]
    pub dead_letters_by_fault: BTreeMap<(Stage, FaultKind), u64>,
    /// The gate's decisions among responses.
    pub gate: GateTally,
    /// Responses by their action.
    pub actions: BTreeMap<&'static str, u64>,
    /// Responses that hand over, by the reason.
    pub hand_offs: BTreeMap<HandOffReason, u64>,
    /// Changes of hands by the reason.
    pub handovers: BTreeMap<HandoverReason, u64>,
    /// How long users waited for an agent, in milliseconds of event time, for metrics.
    #[serde(skip)]
    pub waits_ms: Vec<u64>,
    /// Responses with at least one foreseen fact among their evidence.
    pub foreseen_hits: u64,
    /// Pieces of evidence selected for all responses together.
    pub evidence_used: u64,
    /// Degraded responses, by the stage that failed.
    pub degraded: BTreeMap<Stage, u64>,
}

/// How often the gate said yes and no.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GateTally {
    /// Knowledge was retrieved.
    pub retrieve: u64,
    /// Knowledge was not retrieved.
    pub skip: u64,
}

impl Tally {
    /// Counts one outcome.
    pub fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Response(response) => self.count_response(response),
            Outcome::Recorded(recorded) => {
                self.recorded += 1;
                *self.recorded_by_reason.entry(recorded.reason.name()).or_default() += 1;
            }
            Outcome::DeadLetter(letter) => {
                self.dead_letters += 1;
                let fault = &letter.fault;
                *self.dead_letters_by_stage.entry(fault.stage).or_default() += 1;
                *self.dead_letters_by_fault.entry((fault.stage, fault.kind)).or_default() += 1;
            }
        }
    }

    /// Counts changes of hands.
    pub fn count_handovers(&mut self, records: &[ConversationRecord]) {
        for ConversationRecord { handover, .. } in records {
            *self.handovers.entry(handover.reason).or_default() += 1;
            self.waits_ms.extend(handover.waited_ms);
        }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
        self.inputs += other.inputs;
        self.responses += other.responses;
        self.recorded += other.recorded;
        self.dead_letters += other.dead_letters;
        self.gate.retrieve += other.gate.retrieve;
        self.gate.skip += other.gate.skip;
        self.foreseen_hits += other.foreseen_hits;
        self.evidence_used += other.evidence_used;
        for (action, count) in &other.actions {
            *self.actions.entry(action).or_default() += count;
        }
        for (reason, count) in &other.hand_offs {
            *self.hand_offs.entry(*reason).or_default() += count;
        }
        for (reason, count) in &other.handovers {
            *self.handovers.entry(*reason).or_default() += count;
        }
        self.waits_ms.extend(&other.waits_ms);
        for (reason, count) in &other.recorded_by_reason {
            *self.recorded_by_reason.entry(reason).or_default() += count;
        }
        for (stage, count) in &other.dead_letters_by_stage {
            *self.dead_letters_by_stage.entry(*stage).or_default() += count;
        }
        for (fault, count) in &other.dead_letters_by_fault {
            *self.dead_letters_by_fault.entry(*fault).or_default() += count;
        }
        for (stage, count) in &other.degraded {
            *self.degraded.entry(*stage).or_default() += count;
        }
    }

    /// Whether every input ended as exactly one outcome.
    pub fn is_conserved(&self) -> bool {
        self.inputs == self.responses + self.recorded + self.dead_letters
    }

    fn count_response(&mut self, response: &Response) {
        self.responses += 1;
        match response.gate.retrieve {
            true => self.gate.retrieve += 1,
            false => self.gate.skip += 1,
        }
        if let Some(action) = response.action {
            *self.actions.entry(action.name()).or_default() += 1;
        }
        if let Some(reason) = response.hand_off {
            *self.hand_offs.entry(reason).or_default() += 1;
        }
        let foreseen = Some(EvidenceSet::Foreseen);
        self.foreseen_hits +=
            u64::from(response.evidence.iter().any(|evidence| evidence.set == foreseen));
        self.evidence_used +=
            response.evidence.iter().filter(|evidence| evidence.selected).count() as u64;
        for degraded in &response.degraded {
            *self.degraded.entry(degraded.stage()).or_default() += 1;
        }
    }
}
