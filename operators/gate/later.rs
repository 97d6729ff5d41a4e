//! The learned gate that reads more than the dialogue: the retrieved evidence (contx ⊕ know,
//! contx × know), or a response drafted without knowledge (contx ⊕ resp).
//!
//! The first gate then only links concepts and lets every turn pass. A decision after retrieval saves
//! the later stages but not the search. A decision after a draft saves both, and a turn that needs no
//! knowledge keeps the draft as its response.

use std::sync::Arc;

use timely::dataflow::StreamVec;
use timely::dataflow::operators::Concat;
use timely::dataflow::operators::generic::operator::empty;
use timely::dataflow::operators::vec::{Branch, Map};
use turnstream_ports::model::gate::LearnedGate;
use turnstream_schemas::{Evidence, Fault, GateDecision, Stage};

use super::learned::{Reads, reads, score, used};
use super::{GateConfig, Judges, decide as by_rules};
use crate::flow::{Epoch, Failed, TurnInFlight};
use crate::generation::{GenerationConfig, generation};
use crate::stage::{Decide, OnFailure, Step, Streams, Without, run};
use crate::stage_context::StageContext;

/// How many texts of evidence the gate reads: the most relevant ones.
const MAX_READ: usize = 5;

/// Runs the gate after retrieval. Returns (turns with the decision, faults). Turns pass unchanged
/// unless the configuration sets `after_retrieval`.
pub fn after_retrieval<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: GateConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    if !config.after_retrieval {
        let none = empty(turns.scope());
        return (turns, none);
    }
    run(turns, LaterGate::new(config, context, retrieved), &context.runner)
}

/// Drafts a response for each turn and runs the gate on it. Returns (turns that need knowledge, turns
/// whose draft is their response, faults). Turns pass unchanged, as turns that need knowledge, unless
/// the configuration sets `after_draft`.
pub fn after_draft<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: GateConfig,
    writing: GenerationConfig,
    context: &StageContext,
) -> (
    StreamVec<'scope, Epoch, TurnInFlight>,
    StreamVec<'scope, Epoch, TurnInFlight>,
    StreamVec<'scope, Epoch, Failed>,
) {
    if !config.after_draft {
        let (kept, none) = (empty(turns.scope()), empty(turns.scope()));
        return (turns, kept, none);
    }
    let asked = turns.map(|turn| {
        let mut undrafted = turn.without_knowledge();
        undrafted.refinement.for_gate = true;
        undrafted
    });
    let (written, faults) = generation(asked, writing, context);
    let gate = LaterGate::new(config, context, drafted);
    let (weighed, gate_faults) = run(written, gate, &context.runner);
    let (kept, needing) = weighed.branch(|_, turn| turn.gate.retrieve);
    (needing.map(TurnInFlight::undrafted), kept, faults.concat(gate_faults))
}

/// A function that returns what the gate reads beside the dialogue.
type ReadsOf = for<'t> fn(&'t TurnInFlight) -> Reads<'t>;

/// Returns the texts of the most relevant evidence from any source; ties in the order of the
/// sources.
fn retrieved(turn: &TurnInFlight) -> Reads<'_> {
    let mut all: Vec<&Evidence> = turn.candidates.iter().collect();
    all.sort_by(|a, b| b.relevance.get().total_cmp(&a.relevance.get()));
    let knowledge = all.into_iter().take(MAX_READ).map(|evidence| evidence.text.as_str());
    Reads { knowledge: knowledge.collect(), response: None }
}

/// Returns the response that was drafted without knowledge.
fn drafted(turn: &TurnInFlight) -> Reads<'_> {
    Reads { knowledge: Vec::new(), response: Some(&turn.draft.text) }
}

/// The gate that reads more than the dialogue.
struct LaterGate {
    config: GateConfig,
    judges: Judges,
    model: Option<Arc<dyn LearnedGate>>,
    reads: ReadsOf,
}

impl LaterGate {
    fn new(config: GateConfig, context: &StageContext, reads: ReadsOf) -> Self {
        let judges = Judges::new(&config, &context.sources);
        let model = context.gate.clone().filter(|_| judges.asks_encoder());
        // Without these keys, the rules decide here too.
        let config = GateConfig { after_retrieval: false, after_draft: false, ..config };
        Self { config, judges, model, reads }
    }

    fn by_rules(&self, turn: &TurnInFlight) -> GateDecision {
        by_rules(&turn.context, &turn.mentions, &self.config)
    }
}

impl Decide for LaterGate {
    type Turn = TurnInFlight;
    type Decision = GateDecision;

    const STAGE: Stage = Stage::Gate;

    fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
        self.config.on_failure
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<GateDecision>, Fault> {
        let context = &turn.context;
        let Some(model) = self.model.as_deref().filter(|model| reads(*model, context)) else {
            return Ok(Step::decided(self.by_rules(turn)));
        };
        let scores = score(model, context, (self.reads)(turn))?;
        let by_rules = || self.by_rules(turn);
        let decision = self.judges.decide(scores, by_rules, self.config.threshold);
        Ok(Step::Decided(decision, Some(used(model))))
    }

    fn without(&self, turn: &TurnInFlight, why: Without<'_>) -> GateDecision {
        match why {
            Without::ByRules(_) => self.by_rules(turn),
            _ => GateDecision::default(),
        }
    }

    fn write(&self, turn: &mut TurnInFlight, decision: GateDecision) {
        turn.gate = decision;
    }
}
