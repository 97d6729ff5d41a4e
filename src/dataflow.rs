//! The figure: how the stages are joined. One function, one line per stage, in the order of the
//! flow.
//!
//! ```text
//!  turns ──▶ ingest ──▶ history: recall ──▶ gate ──┬── no ─────────────────────────────────────────────────┐
//!  (log)      │            ▲                      └── yes ─▶ embedding ─┬─▶ query production ─┐           │
//!             │            │                                            └─▶ topic planning ───┴─▶ cross revision
//!             │            │                            ┌────────────────────────────────────────────────┘
//!             │            │                            ▼
//!             │            │  fact retrieval ──▶ persona retrieval ──▶ document retrieval
//!             │            │                            ┌────────────────────┘
//!             │            │                            ▼
//!             │            │            fact selection ──▶ integration ──▶ generation
//!             │            │                                            │
//!             │            └──── feedback: history update, eviction ◀───┤
//!             ▼                                                         ▼
//!        dead letters           responses + history changes + offsets, one transaction
//! ```

use timely::dataflow::StreamVec;
use timely::dataflow::operators::vec::{Branch, Map};
use timely::dataflow::operators::{Concat, Concatenate, ConnectLoop, Feedback};
use turnstream_operators::cross_revision::cross_revision;
use turnstream_operators::document_retrieval::document_retrieval;
use turnstream_operators::embedding::embedding;
use turnstream_operators::fact_retrieval::fact_retrieval;
use turnstream_operators::fact_selection::fact_selection;
use turnstream_operators::flow::{Epoch, Finished, Grounded};
use turnstream_operators::gate::gate;
use turnstream_operators::gate::later::{after_draft, after_retrieval};
use turnstream_operators::generation::generation;
use turnstream_operators::history::{Answer, history};
use turnstream_operators::ingest::{Input, ingest};
use turnstream_operators::integration::integration;
use turnstream_operators::persona_retrieval::persona_retrieval;
use turnstream_operators::query_production::query_production;
use turnstream_operators::resources::Resources;
use turnstream_operators::topic_planning::topic_planning;

use crate::parts::Parts;

/// Joins the stages on one worker: inputs in, inputs that ended out.
pub fn dialogue<'scope>(
    inputs: StreamVec<'scope, Epoch, Input>,
    parts: &Parts,
    means: &Resources,
) -> StreamVec<'scope, Epoch, Finished> {
    let config = parts.config.as_ref().clone();
    let (rules, late) = (parts.rules(), parts.count_late_answers());
    let keeping = parts.keeping(means);
    let scope = inputs.scope();
    let (feedback, answers) = scope.feedback::<Vec<Answer>>(1);

    let (turns, refused) = ingest(inputs, config.turns, parts.topic.clone());
    let (recalled, finished) = history(turns, answers, rules, keeping, late);
    let (gated, gate_faults) = gate(recalled, config.gate.clone(), means);
    // As it is, unless the gate reads a draft; so it is below with what was retrieved.
    let (gated, drafts, draft_faults) =
        after_draft(gated, config.gate.clone(), config.generation.clone(), means);
    let (no, yes) = gated.branch(|_, turn| turn.gate.retrieve);
    let (embedded, embedding_faults) = embedding(yes, config.embedding, means);
    let queried = query_production(embedded.clone(), config.query_production, means);
    let planned = topic_planning(embedded, config.topic_planning, means);
    let (demanded, demand_faults) = cross_revision(queried, planned, config.cross_revision, means);
    let (retrieved, retrieval_faults) = fact_retrieval(demanded, config.fact_retrieval, means);
    let (retrieved, persona_faults) = persona_retrieval(retrieved, config.persona_retrieval, means);
    let (retrieved, document_faults) =
        document_retrieval(retrieved, config.document_retrieval, means);
    let (retrieved, later_faults) = after_retrieval(retrieved, config.gate, means);
    let (unneeded, needed) = retrieved.branch(|_, turn| turn.turn.gate.retrieve);
    let no = no.concat(unneeded.map(|turn| turn.turn));
    let (selected, selection_faults) = fact_selection(needed, config.fact_selection, means);
    let grounded = selected.concat(no.map(Grounded::without_knowledge));
    let (integrated, integration_faults) = integration(grounded, config.integration, means);
    let (drafted, generation_faults) = generation(integrated, config.generation, means);

    // Whatever stage could not serve a turn, `history` hears of it: the scope waits for that.
    let faults = [
        gate_faults,
        draft_faults,
        embedding_faults,
        demand_faults,
        retrieval_faults,
        persona_faults,
        document_faults,
        later_faults,
        selection_faults,
        integration_faults,
        generation_faults,
    ];
    let faults = scope.concatenate(faults).map(|failed| Err(Box::new(failed)));
    let drafted = drafted.concat(drafts);
    drafted.map(|drafted| Ok(Box::new(drafted))).concat(faults).connect_loop(feedback);
    finished.concat(refused)
}
