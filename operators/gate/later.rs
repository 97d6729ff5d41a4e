//! The learned gate where it reads more than the dialogue: what was retrieved (contx ⊕ know,
//! contx × know) or a response that was drafted without knowledge (contx ⊕ resp).
//!
//! The gate's first stage then only links concepts, and lets every turn pass. After retrieval the
//! decision spares what comes behind it, not the search; after a draft it spares both, and a turn
//! that needs no knowledge keeps the draft as its response.

use std::sync::Arc;

use timely::dataflow::StreamVec;
use timely::dataflow::operators::Concat;
use timely::dataflow::operators::generic::operator::empty;
use timely::dataflow::operators::vec::{Branch, Map};
use turnstream_ports::model::gate::LearnedGate;
use turnstream_schemas::{Evidence, Fault, GateDecision, ModelUsed, Stage};

use super::learned::{Reads, reads, score, used};
use super::{GateConfig, Judges, decide as by_rules};
use crate::flow::{Drafted, Epoch, Failed, Gated, Grounded, InFlight, Retrieved};
use crate::generation::{GenerationConfig, generation};
use crate::resources::Resources;
use crate::stage::{Work, instead, stage};

/// Texts of evidence that the gate reads, the most relevant ones.
const MAX_READ: usize = 5;

type Streams<'scope, T> = (StreamVec<'scope, Epoch, T>, StreamVec<'scope, Epoch, Failed>);

/// The gate over turns that were retrieved for: (turns with the decision, faults). Where the gate
/// does not decide here, turns pass as they are.
pub fn after_retrieval<'scope>(
    turns: StreamVec<'scope, Epoch, Retrieved>,
    config: GateConfig,
    resources: &Resources,
) -> Streams<'scope, Retrieved> {
    if !config.after_retrieval {
        let none = empty(turns.scope());
        return (turns, none);
    }
    let read = |turn: &Retrieved| Read { knowledge: most_relevant(turn), draft: None };
    weighed(turns, config, resources, read, |turn| &turn.turn, |turn| &mut turn.turn.gate)
}

/// The gate over turns for which a response is drafted first: (turns that need knowledge, turns
/// whose draft is their response, faults). Where the gate does not decide here, turns pass as they
/// are.
pub fn after_draft<'scope>(
    turns: StreamVec<'scope, Epoch, Gated>,
    config: GateConfig,
    writing: GenerationConfig,
    resources: &Resources,
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
    let (drafted, faults) = generation(asked, writing, resources);
    let read =
        |turn: &Drafted| Read { knowledge: Vec::new(), draft: Some(turn.draft.text.clone()) };
    let (weighed, gate_faults) = weighed(
        drafted,
        config,
        resources,
        read,
        |turn| &turn.grounded.turn,
        |turn| &mut turn.grounded.turn.gate,
    );
    let (kept, needing) = weighed.branch(|_, turn| turn.grounded.turn.gate.retrieve);
    (needing.map(|turn| turn.grounded.turn), kept, faults.concat(gate_faults))
}

/// What the gate reads of a turn beside its dialogue.
struct Read {
    knowledge: Vec<Arc<str>>,
    draft: Option<String>,
}

/// The texts of the most relevant evidence, whichever source it is of; ties in the order of the
/// sources.
fn most_relevant(turn: &Retrieved) -> Vec<Arc<str>> {
    let mut all: Vec<&Evidence> = turn.candidates.iter().collect();
    all.sort_by(|a, b| b.relevance.get().total_cmp(&a.relevance.get()));
    all.into_iter().take(MAX_READ).map(|evidence| Arc::from(evidence.text.as_str())).collect()
}

/// Decides about turns by what the model reads of them.
fn weighed<'scope, T: InFlight + Clone>(
    turns: StreamVec<'scope, Epoch, T>,
    config: GateConfig,
    resources: &Resources,
    read: impl Fn(&T) -> Read + 'static,
    gated: impl Fn(&T) -> &Gated + Clone + 'static,
    decided: impl Fn(&mut T) -> &mut GateDecision + 'static,
) -> Streams<'scope, T> {
    let shell = resources.shell(config.on_failure);
    let judges = Judges::new(&config, &resources.sources);
    let model = resources.gate.clone().filter(|_| judges.asks_encoder());
    let fallen = config.clone();
    let of_fallen = gated.clone();
    let work = Work {
        work: move |turn: &T| {
            let of = gated(turn);
            match model.as_deref().filter(|model| reads(*model, &of.context)) {
                Some(model) => by_model(model, of, &read(turn), &judges, &config),
                None => Ok((by_rules(&of.context, &of.mentions, &rules(&config)), None)),
            }
        },
        fallback: move |turn: &T| {
            let decision = instead(fallen.on_failure, || {
                let of = of_fallen(turn);
                by_rules(&of.context, &of.mentions, &rules(&fallen))
            });
            (decision, None)
        },
        join: move |mut turn: T, (decision, by): (GateDecision, Option<ModelUsed>)| {
            *decided(&mut turn) = decision;
            turn.progress().models.extend(by.map(|by| (Stage::Gate, by)));
            turn
        },
    };
    stage(turns, Stage::Gate, shell, work)
}

fn by_model(
    model: &dyn LearnedGate,
    turn: &Gated,
    read: &Read,
    judges: &Judges,
    config: &GateConfig,
) -> Result<(GateDecision, Option<ModelUsed>), Fault> {
    let read = Reads {
        knowledge: read.knowledge.iter().map(|text| &**text).collect(),
        response: read.draft.as_deref(),
    };
    let scores = score(model, &turn.context, read)?;
    let decision = judges.decide(
        scores,
        || by_rules(&turn.context, &turn.mentions, &rules(config)),
        config.threshold,
    );
    Ok((decision, Some(used(model))))
}

/// The configuration by which rules decide here, too.
fn rules(config: &GateConfig) -> GateConfig {
    GateConfig { after_retrieval: false, after_draft: false, ..config.clone() }
}
