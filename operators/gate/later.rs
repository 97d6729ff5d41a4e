//! The learned gate where it reads more than the dialogue: what was retrieved (contx ⊕ know,
//! contx × know) or a response that was drafted without knowledge (contx ⊕ resp).
//!
//! The gate's first stage then only links concepts, and lets every turn pass. After retrieval the
//! decision spares what comes behind it, not the search; after a draft it spares both, and a turn
//! that needs no knowledge keeps the draft as its response.

use std::marker::PhantomData;
use std::sync::Arc;

use timely::dataflow::StreamVec;
use timely::dataflow::operators::Concat;
use timely::dataflow::operators::generic::operator::empty;
use timely::dataflow::operators::vec::{Branch, Map};
use turnstream_ports::model::gate::LearnedGate;
use turnstream_schemas::{Evidence, Fault, GateDecision, Stage};

use super::learned::{Reads, reads, score, used};
use super::{GateConfig, Judges, decide as by_rules};
use crate::flow::{Drafted, Epoch, Failed, Gated, Grounded, InFlight, Retrieved};
use crate::generation::{GenerationConfig, generation};
use crate::stage::{Decide, OnFailure, Step, Streams, Without, run};
use crate::stage_context::StageContext;

/// Texts of evidence that the gate reads, the most relevant ones.
const MAX_READ: usize = 5;

/// The gate over turns that were retrieved for: (turns with the decision, faults). Where the gate
/// does not decide here, turns pass as they are.
pub fn after_retrieval<'scope>(
    turns: StreamVec<'scope, Epoch, Retrieved>,
    config: GateConfig,
    context: &StageContext,
) -> Streams<'scope, Retrieved> {
    if !config.after_retrieval {
        let none = empty(turns.scope());
        return (turns, none);
    }
    run(turns, LaterGate::new(config, context), &context.runner)
}

/// The gate over turns for which a response is drafted first: (turns that need knowledge, turns
/// whose draft is their response, faults). Where the gate does not decide here, turns pass as they
/// are.
pub fn after_draft<'scope>(
    turns: StreamVec<'scope, Epoch, Gated>,
    config: GateConfig,
    writing: GenerationConfig,
    context: &StageContext,
) -> (
    StreamVec<'scope, Epoch, Gated>,
    StreamVec<'scope, Epoch, Drafted>,
    StreamVec<'scope, Epoch, Failed>,
) {
    if !config.after_draft {
        let (kept, none) = (empty(turns.scope()), empty(turns.scope()));
        return (turns, kept, none);
    }
    let asked = turns.map(|turn| {
        let mut grounded = Grounded::without_knowledge(turn);
        grounded.refinement.for_gate = true;
        grounded
    });
    let (drafted, faults) = generation(asked, writing, context);
    let gate = LaterGate::<Drafted>::new(config, context);
    let (weighed, gate_faults) = run(drafted, gate, &context.runner);
    let (kept, needing) = weighed.branch(|_, turn| turn.grounded.turn.gate.retrieve);
    (needing.map(|turn| turn.grounded.turn), kept, faults.concat(gate_faults))
}

/// A turn that the gate can decide about once more has been done for it.
trait Readable: InFlight {
    /// The turn as the gate left it before.
    fn gated(&self) -> &Gated;

    /// Where its decision stands.
    fn decision(&mut self) -> &mut GateDecision;

    /// What the gate reads beside the dialogue.
    fn reads(&self) -> Reads<'_>;
}

impl Readable for Retrieved {
    fn gated(&self) -> &Gated {
        &self.turn
    }

    fn decision(&mut self) -> &mut GateDecision {
        &mut self.turn.gate
    }

    /// The texts of the most relevant evidence, whichever source it is of; ties in the order of the
    /// sources.
    fn reads(&self) -> Reads<'_> {
        let mut all: Vec<&Evidence> = self.candidates.iter().collect();
        all.sort_by(|a, b| b.relevance.get().total_cmp(&a.relevance.get()));
        let knowledge = all.into_iter().take(MAX_READ).map(|evidence| evidence.text.as_str());
        Reads { knowledge: knowledge.collect(), response: None }
    }
}

impl Readable for Drafted {
    fn gated(&self) -> &Gated {
        &self.grounded.turn
    }

    fn decision(&mut self) -> &mut GateDecision {
        &mut self.grounded.turn.gate
    }

    fn reads(&self) -> Reads<'_> {
        Reads { knowledge: Vec::new(), response: Some(&self.draft.text) }
    }
}

/// The gate where it reads more than the dialogue.
struct LaterGate<T> {
    config: GateConfig,
    judges: Judges,
    model: Option<Arc<dyn LearnedGate>>,
    reads: PhantomData<fn(T)>,
}

impl<T: Readable> LaterGate<T> {
    fn new(config: GateConfig, context: &StageContext) -> Self {
        let judges = Judges::new(&config, &context.sources);
        let model = context.gate.clone().filter(|_| judges.asks_encoder());
        // The configuration by which rules decide here, too.
        let config = GateConfig { after_retrieval: false, after_draft: false, ..config };
        Self { config, judges, model, reads: PhantomData }
    }

    fn by_rules(&self, turn: &T) -> GateDecision {
        let Gated { context, mentions, .. } = turn.gated();
        by_rules(context, mentions, &self.config)
    }
}

impl<T: Readable> Decide for LaterGate<T> {
    type Turn = T;
    type Decision = GateDecision;
    type Decided = T;

    const STAGE: Stage = Stage::Gate;

    fn on_failure(&self, _: &T) -> OnFailure {
        self.config.on_failure
    }

    fn begin(&self, turn: &T) -> Result<Step<GateDecision>, Fault> {
        let context = &turn.gated().context;
        let Some(model) = self.model.as_deref().filter(|model| reads(*model, context)) else {
            return Ok(Step::decided(self.by_rules(turn)));
        };
        let scores = score(model, context, turn.reads())?;
        let by_rules = || self.by_rules(turn);
        let decision = self.judges.decide(scores, by_rules, self.config.threshold);
        Ok(Step::Decided(decision, Some(used(model))))
    }

    fn without(&self, turn: &T, why: Without<'_>) -> GateDecision {
        match why {
            Without::ByRules(_) => self.by_rules(turn),
            _ => GateDecision::default(),
        }
    }

    fn write(&self, mut turn: T, decision: GateDecision) -> T {
        *turn.decision() = decision;
        turn
    }
}
